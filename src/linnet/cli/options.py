"""Arguments that several commands share: what a RUN and a MODEL mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.completion import complete_model, complete_run
from linnet.cli.streams import complain
from linnet.errors import UsageError, near_words
from linnet.files import is_folder
from linnet.runs import STATUSES, Run, RunError, RunStore
from linnet.runs.selection import Filters, select

RunName = Annotated[
    str,
    Parameter(
        help="The run: an id or a part of one that no other has, a name, a path, or 'latest'.", completer=complete_run
    ),
]
RunNames = Annotated[
    str,
    Parameter(
        help="Runs: ids or parts of them, names, paths, 'latest', or patterns as in 'xor-*'.", completer=complete_run
    ),
]
RunsFolder = Annotated[Path | None, Parameter(help="The folder of runs; else $LINNET_RUNS, else ./runs.")]
ModelName = Annotated[
    str,
    Parameter(
        help="A GGUF file, or a RUN (its best checkpoint by held-out loss), RUN@latest, or RUN@200 for step 200.",
        completer=complete_model,
    ),
]
AdapterNames = Annotated[
    tuple[str, ...],
    Parameter(
        help="An adapter of the model, a GGUF or a RUN, with its scale behind a colon if it is not 1: notes.gguf:0.5;"
        " may be given several times.",
        completer=complete_model,
        negative=(),
    ),
]
AnyBase = Annotated[
    bool, Parameter(help="Apply adapters although they were made for another file, if only the shapes fit.")
]
ConfigPath = Annotated[Path | None, Parameter(help="A TOML file of flags, as in lr = 3e-4; the command line wins.")]
AsJson = Annotated[bool, Parameter(help="As JSON, for other programs.")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunFilters(Filters):
    """The flags by which runs are chosen, the same for every command that takes several."""

    where: Annotated[str | None, Parameter(help="Only runs that fit, as in 'loss<2 and lr>=1e-3 and tag:base'.")] = None
    experiment: Annotated[str | None, Parameter(help="Only the runs of this experiment.")] = None
    group: Annotated[str | None, Parameter(help="Only the runs of this group.")] = None
    tag: Annotated[str | None, Parameter(help="Only the runs with this tag.")] = None
    status: Annotated[str | None, Parameter(help=f"Only {', '.join(STATUSES[:-1])} or {STATUSES[-1]} runs.")] = None
    recipe: Annotated[str | None, Parameter(help="Only the runs of this recipe.")] = None
    archived: Annotated[bool | None, Parameter(negative=(), help="Also runs that were archived.")] = None


EVERY_RUN = RunFilters()


def choose_runs(store: RunStore, references: Sequence[str], filters: Filters) -> list[Run]:
    """The runs that a command is about, each once: those named, all without a name, as far as they fit the filters.

    An error where filters leave none.
    """
    if references and not filters:
        runs = [run for reference in references for run in store.find_all(reference)]
        return list({run.path.parent.resolve() / run.path.name: run for run in runs}.values())
    chosen = [record.open() for record in select(store, references, filters)]
    if not chosen and filters:
        raise RunError(f"no run in the folder {store.root} fits; `{words.listing(store.root)}` lists them")
    return chosen


def choose_named_runs(store: RunStore, references: Sequence[str], filters: Filters, command: str) -> list[Run]:
    """The runs that are named or fit; never all of them for want of a word."""
    if not references and not filters:
        listing = words.listing(store.root)
        raise UsageError(f"{command} needs the name of a run, or --where and what fits; `{listing}` lists them")
    return choose_runs(store, references, filters)


def unless_off(value: object) -> str | None:
    """A default for `--help`; none where a flag is simply off, or where its text says what happens without it."""
    return None if value is None or value is False or value == () else str(value)


def open_store(runs: Path | None) -> RunStore:
    """The folder of runs; one that was named must be there."""
    store = RunStore(runs)
    if runs is not None and not is_folder(store.root):
        raise RunError(f"there is no folder {store.root}")
    return store


def require_metrics(keys: Iterable[str], known: list[str], whose: str) -> None:
    """Refuse a `--key` that is no metric, by name, with what may have been meant. `whose`: `run first has`."""
    for key in keys:
        if key not in known:
            close = near_words(key, known, count=3)
            shown = [name for name in known if not name.startswith("sys/")][:8]
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(shown) or 'none'}"
            raise UsageError(f"{whose} no metric {key!r}; {hint}")


def refuse_to_replace(target: Path, force: bool) -> None:
    """Refuse to write over a file that is there, unless with `--force`."""
    if target.exists() and not force:
        raise UsageError(f"{target} is there already; say --force to replace it")


def find_model(name: str, runs: Path | None = None) -> Path:
    """The GGUF file that a MODEL means."""
    from linnet.models.model_name import find_model  # with numpy, which a list of runs does without

    return find_model(name, runs)


def print_choice(name: str, path: Path, json: bool = False) -> None:
    """A line on stderr where a RUN's best checkpoint is taken and is not its last: people may have meant that."""
    from linnet.models.model_name import choice_sentence

    if not json and (choice := choice_sentence(name, path)) is not None:
        complain(choice)
