"""`linnet rename`, `tag`, `archive`, `delete`, `thin` and `du`: keeping house among many runs."""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import (
    EVERY_RUN,
    AsJson,
    RunFilters,
    RunNames,
    RunsFolder,
    choose_named_runs,
    choose_runs,
    open_store,
)
from linnet.cli.printing import print_json, print_table
from linnet.cli.streams import lasting_output
from linnet.errors import UsageError
from linnet.runs import Run, RunError, RunStore, labels
from linnet.runs.settings import settings
from linnet.runs.store import Contents, contents_of
from linnet.runs.trash import Trash
from linnet.runs.usage import PARTS, Keep, Surplus, bytes_of, surplus_of

Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="Do not ask.")]


def rename(
    *words_: Annotated[str, Parameter(name="RUN… NAME", help="The runs, then their new name; '' takes a name away.")],
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
) -> int:
    """Give runs another name; the id, which is the folder, stays. {lr} in a name is the run's own setting."""
    if not words_:
        raise UsageError("rename needs a run and its new name: linnet rename llama-20260531-001 wide")
    *references, name = words_
    if not references and not filters:
        example = f"linnet rename {shlex.quote(name)} wide {words.runs_flag(runs)}".rstrip()
        raise UsageError(f"the new name is missing, or the run: {example}; `{words.listing(runs)}` lists runs")
    chosen = choose_named_runs(RunStore(runs), references, filters, "rename")
    names = [_filled_in(name, run) for run in chosen]
    with lasting_output():  # a reader that has had enough (`| head`) leaves no half of the work undone
        for run, own in zip(chosen, names, strict=True):
            labels.rename(run, own)
            called = f"is called {words.bounded(run.name)}" if run.name else "has no name"
            print(f"{words.bounded(run.id)} {called}")
    return 0


def _filled_in(name: str, run: Run) -> str:
    """A name with `{setting}` replaced by what the run has for it."""
    known = settings(run.manifest)
    short = {setting.rpartition(".")[2]: value for setting, value in known.items()}

    def value(match: re.Match[str]) -> str:
        if match[1] not in short and match[1] not in known:
            raise UsageError(f"run {run.id} has no setting {match[1]!r} for its name; it has {', '.join(short)}")
        setting = short.get(match[1], known.get(match[1]))
        return words.number(setting) if isinstance(setting, float) else str(setting)

    return re.sub(r"{([^{}]+)}", value, name)


def tag(
    *run: RunNames,
    add: tuple[str, ...] = (),
    remove: tuple[str, ...] = (),
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
) -> int:
    """Add tags to runs, or take some away.

    Args:
        add: A tag to add; may be given several times.
        remove: A tag to take away; may be given several times.
    """
    if not add and not remove:
        raise UsageError("tag needs --add TAG or --remove TAG: linnet tag latest --add keep")
    chosen = choose_named_runs(RunStore(runs), run, filters, "tag")
    with lasting_output():
        for tagged in chosen:
            tags = labels.tag(tagged, add, remove)
            listed = " ".join(f"#{words.bounded(name)}" for name in tags)
            print(f"{words.bounded(tagged.id)}  {listed or '(no tags)'}")
    return 0


def archive(*run: RunNames, undo: bool = False, filters: RunFilters = EVERY_RUN, runs: RunsFolder = None) -> int:
    """Take runs out of the lists; their folders stay as they are, and their names work as before.

    Args:
        undo: Put them back into the lists.
    """
    chosen = choose_named_runs(RunStore(runs), run, filters, "archive")
    with lasting_output():
        for archived in chosen:
            labels.archive(archived, not undo)
            print(f"{'listed again' if undo else 'archived'} {words.bounded(archived.id)}")
        if not undo:
            print(f"`{words.listing(runs)} --where archived` lists them")
    return 0


def delete(
    *run: RunNames,
    filters: RunFilters = EVERY_RUN,
    yes: Yes = False,
    force: bool = False,
    for_good: bool = False,
    undo: bool = False,
    empty_trash: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Delete runs, with their checkpoints. For a day they can be taken back.

    Args:
        force: Delete even a run that is being written, or that holds files which no run writes.
        for_good: Remove at once, which frees the disk; nothing can be taken back then.
        undo: Take back the runs named, or what was deleted last.
        empty_trash: Remove for good all that was deleted in the last day.
    """
    store = RunStore(runs)
    trash = Trash(store.root)
    if undo:
        return _undo(trash, run)
    if empty_trash:
        return _empty(trash, yes)
    chosen = choose_named_runs(store, run, filters, "delete")
    for doomed in chosen:
        if refusal := store.refusal(doomed, force=force):
            raise RunError(refusal)
    if not yes:
        contents = [Contents() if doomed.path.is_symlink() else contents_of(doomed.path) for doomed in chosen]
        for doomed, content in zip(chosen, contents, strict=True):
            print(f"{words.plain(doomed.path)}  ({words.plain(_described(doomed, content))})")
        size = words.size(sum(content.bytes for content in contents))
        count = "this run" if len(chosen) == 1 else f"these {len(chosen)} runs"
        if not agreed(f"Delete {count}, {size}{', for good' if for_good else ''}? [y/N] ", "delete"):
            print("nothing was deleted")
            return 1
    trashes = [store.trash_of(doomed) for doomed in chosen if not for_good and not doomed.path.is_symlink()]
    now = time.time()
    with lasting_output():
        for doomed in chosen:
            print(f"deleted {words.plain(store.delete(doomed, force=force, for_good=for_good, at=now))}")
        trash.empty()
        _print_undo_hint(trashes)
    return 0


def thin(
    *run: RunNames,
    keep: str,
    filters: RunFilters = EVERY_RUN,
    yes: Yes = False,
    for_good: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Delete checkpoints of runs, all but those to keep. For a day they can be taken back, by linnet delete --undo.

    Args:
        keep: Which stay: best, latest, last=3, every=1000, or steps, as in best,latest,every=1000.
        for_good: Remove at once, which frees the disk; nothing can be taken back then.
    """
    kept = Keep.parse(keep)
    store = RunStore(runs)
    chosen = choose_named_runs(store, run, filters, "thin")
    for chosen_run in chosen:
        if chosen_run.status == "live":
            raise RunError(f"run {chosen_run.id} is being written; it keeps its own checkpoints by --keep")
    all_over = [(chosen_run, surplus_of(chosen_run, kept)) for chosen_run in chosen]
    surplus = [(chosen_run, surplus_of_run) for chosen_run, surplus_of_run in all_over if surplus_of_run.files]
    for chosen_run, surplus_of_run in surplus:
        print(f"{words.bounded(chosen_run.id)}: {_steps(surplus_of_run)}, {words.size(surplus_of_run.bytes)}")
    if foreign := sum(len(surplus_of_run.foreign) for _, surplus_of_run in all_over):
        print(f"{foreign} that their run did not write stay")
    if not surplus:
        print("there is nothing to thin")
        return 0
    size = words.size(sum(surplus_of_run.bytes for _, surplus_of_run in surplus))
    if not yes and not agreed(f"Delete {size}{', for good' if for_good else ''}? [y/N] ", "thin"):
        print("nothing was deleted")
        return 1
    now = time.time()
    for chosen_run, surplus_of_run in surplus:
        store.discard(chosen_run, surplus_of_run.files, surplus_of_run.bytes, for_good=for_good, at=now)
    Trash(store.root).empty()
    print(f"deleted {size}")
    _print_undo_hint([] if for_good else [store.trash_of(chosen_run) for chosen_run, _ in surplus])
    return 0


def du(*run: RunNames, filters: RunFilters = EVERY_RUN, json: AsJson = False, runs: RunsFolder = None) -> int:
    """What runs take on the disk, the largest last: weights, state, events, artifacts, and what was deleted lately."""
    store = open_store(runs)
    chosen = choose_runs(store, run, filters)
    sizes = sorted(
        ((bytes_of(chosen_run.path), chosen_run) for chosen_run in chosen), key=lambda pair: sum(pair[0].values())
    )
    trash = Trash(store.root)
    trash.empty()
    deletions = trash.deletions()
    deleted = sum(deletion.bytes for deletion in deletions)
    if json:
        listed = [
            {"run_id": chosen_run.id, "path": str(chosen_run.path), **parts, "total": sum(parts.values())}
            for parts, chosen_run in sizes
        ]
        print_json({"runs": listed, "total": sum(sum(parts.values()) for parts, _ in sizes), "trash": deleted})
        return 0
    if not sizes:
        print(f"There are no runs in the folder {words.plain(store.root)}.")
    else:
        rows = [
            (chosen_run.id, *(words.size(parts[part]) for part in PARTS), words.size(sum(parts.values())))
            for parts, chosen_run in sizes
        ]
        totals = [sum(parts[part] for parts, _ in sizes) for part in PARTS]
        rows.append((f"{len(sizes)} in all", *map(words.size, totals), words.size(sum(totals))))
        print_table(("run", *PARTS, "total"), rows, right=range(1, len(PARTS) + 2))
    if deletions:
        empty = f"linnet delete --empty-trash {words.runs_flag(runs)}".rstrip()
        print(f"{words.size(deleted)} were deleted in the last day and are still there; `{empty}` frees them")
    return 0


# -- what they share -----------------------------------------------------------------------------------------------


def agreed(question: str, command: str) -> bool:
    """Ask before something goes; where nobody is there to answer, `--yes` must say it."""
    if not sys.stdin.isatty():
        raise UsageError(f"{command} asks before it deletes, and there is nobody to ask here; say --yes")
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False


def _described(run: Run, contents: Contents) -> str:
    """What would go with a run: files and bytes, and by name what no run writes."""
    if run.path.is_symlink():
        return f"a link to {run.path.readlink()}, which stays"
    facts = f"{words.number(contents.files)} {'file' if contents.files == 1 else 'files'}, {words.size(contents.bytes)}"
    return f"{facts}, also {', '.join(contents.foreign)}" if contents.foreign else facts


def _steps(surplus: Surplus) -> str:
    """The steps whose checkpoints go; and whether the run can be resumed after it."""
    steps = surplus.steps
    shown = ", ".join(map(str, steps)) if len(steps) <= 6 else f"{steps[0]}, {steps[1]}, … {steps[-1]}"
    noun = "checkpoint" if len(steps) == 1 else f"{len(steps)} checkpoints"
    return f"{noun} of step{'' if len(steps) == 1 else 's'} {shown}" + (
        "" if surplus.can_resume else " (it cannot be resumed then)"
    )


def _print_undo_hint(trashes: Sequence[Trash]) -> None:
    """How to take back what went to these."""
    for root in dict.fromkeys(trash.root for trash in trashes):
        undo = f"linnet delete --undo {words.runs_flag(root)}".rstrip()
        print(f"`{undo}` takes back what was deleted last, for a day; so long it takes its room")


def _undo(trash: Trash, references: Sequence[str]) -> int:
    """Take back the runs named, or what was deleted last."""
    deletions = trash.deletions()
    if not deletions:
        raise RunError(f"nothing was deleted from {trash.root} in the last day")
    chosen = trash.last()
    if references:
        names = {deletion.run_id for deletion in deletions}
        for reference in references:
            if reference not in names:
                raise RunError(f"no run {reference!r} was deleted in the last day; there is {', '.join(sorted(names))}")
        chosen = [deletion for deletion in deletions if deletion.run_id in references]
    with lasting_output():
        for deletion in chosen:
            back = trash.restore(deletion)
            run_id = words.bounded(deletion.run_id)
            listed = words.plain(back[0]) if len(back) == 1 else f"{len(back)} files of {run_id}"
            print(f"restored {listed}" if back else f"nothing of {run_id} had been deleted")
    return 0


def _empty(trash: Trash, yes: bool) -> int:
    deletions = trash.deletions()
    size = words.size(sum(deletion.bytes for deletion in deletions))
    if not deletions:
        print(f"there is nothing in {words.plain(trash.folder)}")
        return 0
    if not yes and not agreed(f"Remove {size} for good? [y/N] ", "delete --empty-trash"):
        print("nothing was removed")
        return 1
    trash.empty(older=-math.inf)
    print(f"removed {size} for good")
    return 0
