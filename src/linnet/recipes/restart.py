"""The same command again (`run_id=X`, `resume=auto`): it goes on with the run it has made before, or starts it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from linnet.errors import LinnetError, UsageError
from linnet.files import is_folder
from linnet.recipes.flags import fill, kept_values
from linnet.recipes.job import BUDGETS, FREE, Job
from linnet.recipes.registry import recipe_type
from linnet.remote import RemoteError, is_url
from linnet.runs import Run, provenance
from linnet.runs.folder import EVENTS, is_leftover, runs_folder, safe_name
from linnet.runs.mirror import NoRunError, fetch_run
from linnet.runs.mirroring import run_url
from linnet.train.settings import TrainSettings

log = logging.getLogger("linnet")

_WAIT_SECONDS = 60.0  # for a writer that is about to end: it may be saving a large model
_SILENT_SECONDS = 45.0  # after which one on another machine is taken for dead; a living one writes every twenty
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class PreviousRun:
    """The run that an earlier start of the same command made, and the flags it is asked for with now."""

    run: Run
    flags: Mapping[str, Any]
    step: int | None  # the checkpoint to go on from; None: the run was ended before its first
    is_done: bool  # it has completed what the command asks for

    @classmethod
    def find(
        cls,
        run_id: str | None,
        runs_root: str | os.PathLike[str] | None,
        recipe: str,
        flags: Mapping[str, Any],
        *,
        forked: bool = False,
    ) -> PreviousRun | None:
        """The run of that id, once nobody writes it; None where there is none yet. Of several ranks the first looks.

        One of another recipe, or started with other flags, is refused by name. `flags`: those that were given;
        `forked`: the run begins at a checkpoint of another.
        """
        from linnet.train.ranks import join

        previous: PreviousRun | None = None
        ranks = join(flags.get("device") or "auto", flags.get("rank_timeout"))
        with ranks.together():
            if ranks.is_first:
                previous = cls._find(run_id, runs_root, recipe, flags, forked)
        return ranks.first(previous)

    @classmethod
    def _find(
        cls,
        run_id: str | None,
        runs_root: str | os.PathLike[str] | None,
        recipe: str,
        flags: Mapping[str, Any],
        forked: bool,
    ) -> PreviousRun | None:
        from linnet.train.state import steps_with_state

        if run_id is None or "{" in run_id or not safe_name(run_id):
            raise UsageError("`resume=auto` needs a `run_id` that is the same each time, such as wide-1")
        folder = runs_folder(runs_root) / safe_name(run_id)
        _bring_back(folder, flags.get("mirror"))
        if not is_folder(folder) or _clear_unborn(folder):
            return None
        run = Run.load(folder)
        _check_recipe(run, recipe, forked)
        recorded = provenance.mask_config(kept_values(recipe_type(recipe).flags, flags))
        _check_flags(run, recorded)
        _wait_for_writer(run)
        run = Run.load(folder)
        given_flags = {name: value for name, value in flags.items() if value is not None}
        return cls(run, given_flags, max(steps_with_state(folder), default=None), _is_done(run, given_flags))

    @property
    def exit_code(self) -> int:
        """What the run told its caller when it ended."""
        code = (self.run.summarize().end or {}).get("exit_code")
        return code if isinstance(code, int) else 0

    @property
    def kept_flags(self) -> dict[str, Any]:
        """The flags as `run.json` will hold them: those of before, with what the command has changed."""
        recipe = recipe_type(self.run.manifest.recipe or "")
        known, given = self.run.manifest.flags or {}, kept_values(recipe.flags, self.flags)
        if any(is_budget(name, value) for name, value in given.items()):
            known = {name: value for name, value in known.items() if not is_budget(name, value)}
        return provenance.mask_config({**known, **given})

    def changed(self, job: Job) -> Job:
        """The run's job with what may change from one start to the next, where the command says it."""
        return with_free_flags(job, self.flags)


def _is_done(run: Run, flags: Mapping[str, Any]) -> bool:
    """Has the run completed what the command asks for?"""
    if run.status != "completed":
        return False
    known, config = run.manifest.flags, run.manifest.config
    budgets = {name: flags[name] for name in BUDGETS if is_budget(name, flags.get(name))}
    if known is None:
        return all(config.get(name) == value for name, value in budgets.items())
    return budgets == {name: known[name] for name in BUDGETS if is_budget(name, known.get(name))}


def _bring_back(folder: Path, mirror: str | None) -> None:
    """Fetch a run that is not here from its mirror: the machine that began it may be gone.

    A store that cannot be asked is an error: a run begun anew would take the place of the one that it may have.
    """
    if mirror is None or is_folder(folder) or not is_url(mirror):
        return
    url = run_url(mirror, folder.name)
    try:
        fetch_run(url, folder.parent)
        log.warning("run %s: fetched from %s", folder.name, url)
    except NoRunError:
        return  # the first start
    except RemoteError as error:
        raise LinnetError(
            f"`resume=auto`: whether the mirror has run {folder.name} cannot be told: {error}; try again, or begin it"
            " anew without `resume`"
        ) from None


def with_free_flags(job: Job, flags: Mapping[str, Any]) -> Job:
    """A job that was read back, with flags that make no other run of it."""
    free = {name: value for name, value in flags.items() if name in FREE or is_budget(name, value)}
    settings = {name: value for name, value in free.items() if name in _names(TrainSettings)}
    if "steps" in settings:
        settings["steps"] += job.settings.first  # a fork counts its own
    if budget := next((name for name in BUDGETS if name in settings), None):
        settings["minutes"] = settings.get("minutes") if budget == "minutes" else None
    job = replace(job, settings=replace(job.settings, **settings), data=_filled(job.data, free))
    if job.options is not None:
        job = replace(job, options=_filled(job.options, free))
    return replace(job, prompts=tuple(flags["prompt"])) if flags.get("prompt") else job


def is_budget(name: str, value: Any) -> bool:
    """Does a flag say how long to train? Under `tokens` a warm start has something else besides."""
    return name in BUDGETS and isinstance(value, int | float)


def _names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def _filled(data: Any, values: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in values.items() if name in _names(data)}
    kept = {name: getattr(data, name) for name in _names(data)}
    return fill(type(data), {**kept, **given}) if given else data


def _clear_unborn(folder: Path) -> bool:
    """Remove a folder whose first start was killed before it wrote anything; False where there is something."""
    names = [path.name for path in folder.iterdir()]
    if not all(is_leftover("", name) for name in names):
        return False
    with suppress(OSError):
        for name in names:
            (folder / name).unlink()
        folder.rmdir()
    return not folder.exists()


def _check_recipe(run: Run, recipe: str, forked: bool) -> None:
    other = f"choose another `run_id`, or delete it: linnet delete {run.id}"
    if run.manifest.recipe != recipe:
        origin = f"of the recipe {run.manifest.recipe}" if run.manifest.recipe else "not made by linnet train"
        raise UsageError(f"run {run.id} is {origin}, and this command trains {recipe}; {other}")
    if forked != (run.manifest.parent is not None):
        began = f"forked from {run.manifest.parent}" if run.manifest.parent else "not forked from another run"
        raise UsageError(f"run {run.id} was {began}, and this command {'is' if forked else 'is not'}; {other}")


def _check_flags(run: Run, given: Mapping[str, Any]) -> None:
    """Refuse other flags than the run was started with, unless they may change."""
    known = run.manifest.flags
    if known is None:  # of an earlier version: what was given must be as it is in the settings
        config = {**run.manifest.model, **run.manifest.config}
        known, given = config, {name: value for name, value in given.items() if name in config}
    for name in given if known is not run.manifest.flags else {**known, **given}:
        before, now = known.get(name), given.get(name)
        if name in FREE or name == "prompt" or is_budget(name, before) or is_budget(name, now) or before == now:
            continue
        started = f"with `{name}={before}`" if before is not None else f"without `{name}`"
        setting = f"`{name}={now}`" if now is not None else f"no `{name}`"
        raise UsageError(
            f"run {run.id} was started {started}, and this command has {setting}: give it as it was, or another"
            " `run_id`"
        )


def _wait_for_writer(run: Run) -> None:
    """Wait for a writer that is about to end; one that goes on writing is an error."""
    began = changed = time.monotonic()
    size, origin = -1, run.manifest.provenance
    is_same_boot = origin.get("boot_id") == provenance.boot_id()
    writer = f"process {origin.get('pid')} on {origin.get('host')}"
    while run.status == "live":
        now = time.monotonic()
        if size < 0:
            log.warning("run %s is still being written by %s: waiting for it to end", run.id, writer)
        if (latest := (run.path / EVENTS).stat().st_size) != size:
            size, changed = latest, now
        if not is_same_boot and now - changed > _SILENT_SECONDS:
            return
        if now - began > _WAIT_SECONDS:
            raise LinnetError(f"run {run.id} is being written by {writer}; stop it first, or choose another `run_id`")
        time.sleep(_POLL_SECONDS)
