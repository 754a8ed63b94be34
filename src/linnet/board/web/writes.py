"""What the page may change: names, tags, hiding, notes, deleting and taking back. As the commands do it."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

from linnet.board.web import answers
from linnet.board.web.answers import NewNote, RequestError, RunChange
from linnet.board.web.board import WebBoard
from linnet.board.web.table import run_row
from linnet.runs import Run, RunError, add_note, labels
from linnet.runs.store import contents_of
from linnet.runs.trash import Trash

_LONGEST_NAME, _LONGEST_TAG, _MOST_TAGS, _LONGEST_NOTE = 200, 100, 64, 20_000
_LARGEST_STEP = (1 << 63) - 1


def change(board: WebBoard, run_id: str, change: RunChange) -> answers.RunRow:
    """Another name, other tags, hidden or shown; the run's row as it is then."""
    if change.name is not None:
        _check(change.name, "a name", _LONGEST_NAME)
    for tag in [*change.add_tags, *change.remove_tags]:
        _check(tag, "a tag", _LONGEST_TAG)
    if len(change.add_tags) > _MOST_TAGS or len(change.remove_tags) > _MOST_TAGS:
        raise RequestError(400, f"at most {_MOST_TAGS} tags are changed at once")
    run = _loaded(board, run_id)
    if len({*run.tags, *change.add_tags}) > _MOST_TAGS and change.add_tags:
        raise RequestError(400, f"a run has at most {_MOST_TAGS} tags")
    if change.name is not None:
        labels.rename(run, change.name)
    if change.add_tags or change.remove_tags:
        labels.tag(run, change.add_tags, change.remove_tags)
    if change.hidden is not None:
        labels.archive(run, change.hidden)
    board.scan_folders([str(run.path)])
    return run_row(board, board.row(run_id), time.time())


def note(board: WebBoard, run_id: str, note: NewNote) -> None:
    """Add a remark to a run."""
    text = note.text.strip()
    if not text:
        raise RequestError(400, "the note is empty")
    _check(text.replace("\n", " ").replace("\t", " "), "a note", _LONGEST_NOTE)
    if note.step is not None and not 0 <= note.step <= _LARGEST_STEP:
        raise RequestError(400, "step is an integer that is not negative")
    add_note(_loaded(board, run_id), text, note.step)


def delete(board: WebBoard, run_id: str) -> int:
    """Move a run to the trash, where it lies for a day; how many bytes it has. Refused as `linnet delete` refuses."""
    run = _loaded(board, run_id)
    if refusal := board.store.refusal(run):
        raise RequestError(409, refusal.replace("; stop it first, or delete it with `force`", "; stop it first"))
    size = 0 if run.path.is_symlink() else contents_of(run.path).bytes
    board.store.delete(run)
    board.open_runs.forget(str(run.path))
    board.scan(now=True)
    return size


def restore(board: WebBoard, run_id: str) -> answers.RunRow:
    """Take a run back out of the trash."""
    trash = Trash(board.store.root.resolve())
    folder_name = run_id.replace("~", "/")
    deletions = [deletion for deletion in trash.deletions() if deletion.paths == [folder_name]]
    if not deletions:
        raise RequestError(404, "this run was not deleted in the last day")
    try:
        trash.restore(deletions[-1])
    except RunError as error:
        raise RequestError(409, str(error)) from None
    board.scan(now=True)
    return run_row(board, board.row(run_id), time.time())


def _loaded(board: WebBoard, run_id: str) -> Run:
    """The run as it is on the disk now."""
    row = board.row(run_id)
    try:
        return Run.load(Path(row.path))
    except RunError as error:
        raise RequestError(404, str(error)) from None


def _check(text: str, field: str, longest: int) -> None:
    """Refuse what is too long, or could steer a terminal that shows it later."""
    if len(text) > longest:
        raise RequestError(400, f"{field} has at most {longest} characters, found {len(text)}")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise RequestError(400, f"{field} has no control characters")
