"""`linnet train RECIPE`: a command for each recipe, made of its flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter, Token

from linnet.board import words
from linnet.cli.completion import complete_model, complete_run
from linnet.cli.options import AsJson, ConfigPath, RunsFolder, unless_off
from linnet.cli.torchrun import start_ranks
from linnet.errors import UsageError
from linnet.recipes.flags import Flag, count_of, defaults_of, kept_values
from linnet.recipes.registry import RECIPES, recipe_type
from linnet.train.process import together_where_met

if TYPE_CHECKING:
    from linnet.recipes import Job
    from linnet.recipes.fork import ForkPoint
    from linnet.recipes.restart import PreviousRun


@dataclass(frozen=True)
class RunFlags:
    """Where the run goes and what it is called.

    Args:
        run_id: The folder's name, or a template for it such as {recipe}-{date}-{seq}; {arch}-{date}-{seq} by default.
        name: A label.
        experiment: What it is part of.
        group: Runs that belong together in it, such as seeds.
        tag: May be given several times.
        from_: Begin at a checkpoint of another run: RUN (its latest), RUN@best or RUN@200. What is not given is as it
            was there; the new run knows its parent.
        resume: auto: go on with the run of that run_id where it has a checkpoint, else start it; the same command can
            then be given again after whatever ended it. never: a run_id that is taken gets a number behind it.
        gpus: A number, or all: train on so many GPUs of this machine, a process each, which torchrun starts.
        dry_run: Say what the training would take, after a few steps on trial, and end; no run is made.
    """

    config: ConfigPath = None
    runs: RunsFolder = None
    run_id: str | None = None
    name: str | None = None
    experiment: str | None = None
    group: str | None = None
    tag: tuple[str, ...] = ()
    from_: Annotated[str | None, Parameter(name="--from")] = None
    resume: Literal["never", "auto"] = "never"
    gpus: str | None = None
    dry_run: bool = False


def __getattr__(name: str) -> Callable[..., int]:
    """The command of a recipe: `linnet.cli.train:vit_tiny`."""
    for recipe in RECIPES:
        if recipe.replace("-", "_") == name:
            return _command(recipe)
    raise AttributeError(f"there is no command {name!r}")


def _command(name: str) -> Callable[..., int]:
    recipe = recipe_type(name)
    titles = {title: Group.create_ordered(title) for title in (*recipe.flags, "Run")}
    flags = {flag: titles[title] for title, group in recipe.flags.items() for flag in group}

    def command(*, run: RunFlags = RunFlags(), json: bool = False, **given: Any) -> int:  # noqa: B008 (it is frozen)
        asked = {flag: value for flag, value in given.items() if value is not None}
        start_ranks(None if run.dry_run else run.gpus, str(given.get("device") or "auto"))
        previous = _previous(name, run, asked)
        if previous is not None and (previous.is_done or previous.step is not None):
            return _go_on(previous, json)
        if run.from_ is not None:
            return _run_fork(name, run, json, asked, previous)
        with together_where_met():
            for flag in flags:
                if flag.default is MISSING and given.get(flag.name) is None:
                    option = f"--{flag.name.replace('_', '-')}"
                    raise UsageError(f"train {name}: {option} needs a value; `linnet train {name} --help` has examples")
            job = recipe.job({**defaults_of(flags), **given, "runs": run.runs})
        return _run_job(job, run, json, asked, previous=previous)

    run_type = Annotated[RunFlags, Parameter(name="*", group=titles["Run"])]
    parameters = [_parameter(flag, group) for flag, group in flags.items()]
    parameters += [_keyword("run", run_type, RunFlags()), _keyword("json", AsJson, False)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(flag: Flag, group: Group) -> inspect.Parameter:
    default = None if flag.default is MISSING else flag.default  # a fork needs none of them
    negative = f"--no-{flag.name}" if default is True else ()
    shown = Parameter(
        group=group,
        help=words.flags(flag.help),
        show_default=unless_off,
        negative=negative,
        converter=_count if flag.is_count else None,
        completer=complete_model if flag.is_model else complete_run if flag.is_run else None,
    )
    return _keyword(flag.name, Annotated[Path if flag.is_path else flag.type, shown], default)


def _count(kind: Any, tokens: Sequence[Token]) -> Any:
    """A number such as 20M; a word as it is, where the flag has words besides."""
    text = tokens[-1].value
    choices = [choice for part in get_args(kind) for choice in (part, *get_args(part)) if isinstance(choice, str)]
    return text if text in choices else count_of(text)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _previous(recipe: str, run: RunFlags, flags: dict[str, Any]) -> PreviousRun | None:
    """The run that the same command has made before; None where it is not to be looked for."""
    if run.resume != "auto" or run.dry_run:
        return None
    from linnet.recipes.restart import PreviousRun

    return PreviousRun.find(run.run_id, run.runs, recipe, flags, forked=run.from_ is not None)


def _go_on(previous: PreviousRun, json: bool) -> int:
    """Go on with a run from its newest checkpoint, or say that it has completed."""
    from linnet.cli.training import print_done, run_training
    from linnet.recipes import resume

    if previous.is_done:
        return print_done(previous, json)
    return run_training(partial(resume, previous.run, previous=previous), json)


def _run_fork(recipe: str, run: RunFlags, json: bool, flags: dict[str, Any], previous: PreviousRun | None) -> int:
    from linnet.recipes.fork import ForkPoint

    assert run.from_ is not None
    with together_where_met():
        fork = ForkPoint.find(run.from_, run.runs)
        job = fork.job(recipe, flags)
    return _run_job(job, run, json, flags, fork, previous)


def _run_job(
    job: Job,
    run: RunFlags,
    json: bool,
    flags: dict[str, Any],
    fork: ForkPoint | None = None,
    previous: PreviousRun | None = None,
) -> int:
    """Train a job to its end and say what it made."""
    from linnet.cli.training import print_plan, run_training
    from linnet.recipes import start

    if run.dry_run:
        return print_plan(job, json, fork)
    labels = {name: getattr(run, name) for name in ("run_id", "name", "experiment", "group")}
    labels |= {"tags": list(run.tag), "flags": kept_values(recipe_type(job.recipe).flags, flags)}
    return run_training(partial(start, job, runs_root=run.runs, fork=fork, previous=previous, **labels), json)
