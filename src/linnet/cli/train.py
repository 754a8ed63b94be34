"""`linnet train RECIPE`: a command for each recipe, made of its flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from linnet.board import words
from linnet.cli.completion import complete_model
from linnet.cli.options import AsJson, ConfigPath, RunsFolder, unless_off
from linnet.recipes.flags import Flag, defaults_of
from linnet.recipes.registry import RECIPES, recipe_type

if TYPE_CHECKING:
    from linnet.recipes import Job


@dataclass(frozen=True)
class RunFlags:
    """Where the run goes and what it is called.

    Args:
        run_id: The folder's name, or a template for it such as {recipe}-{date}-{seq}; {arch}-{date}-{seq} by default.
        name: A label.
        experiment: What it is part of.
        tag: May be given several times.
    """

    config: ConfigPath = None
    runs: RunsFolder = None
    run_id: str | None = None
    name: str | None = None
    experiment: str | None = None
    tag: tuple[str, ...] = ()


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
        return _run_job(recipe.job({**defaults_of(flags), **given, "runs": run.runs}), run, json)

    run_type = Annotated[RunFlags, Parameter(name="*", group=titles["Run"])]
    parameters = [_parameter(flag, group) for flag, group in flags.items()]
    parameters += [_keyword("run", run_type, RunFlags()), _keyword("json", AsJson, False)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(flag: Flag, group: Group) -> inspect.Parameter:
    default = inspect.Parameter.empty if flag.default is MISSING else flag.default
    negative = f"--no-{flag.name}" if default is True else ()
    completer = complete_model if flag.is_model else None
    help = words.flags(flag.help)
    shown = Parameter(group=group, help=help, show_default=unless_off, negative=negative, completer=completer)
    return _keyword(flag.name, Annotated[Path if flag.is_path else flag.type, shown], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _run_job(job: Job, run: RunFlags, json: bool) -> int:
    """Train a job to its end and say what it made."""
    from linnet.cli.training import run_training
    from linnet.recipes import start

    labels = {name: getattr(run, name) for name in ("run_id", "name", "experiment")}
    return run_training(partial(start, job, runs_root=run.runs, tags=list(run.tag), **labels), json)
