"""Where a file may be cut between two documents, so that several machines can share it.

JSONL that is not packed is cut between lines, a `.txt` file at its `<|endoftext|>` marks, Parquet between row groups.
Everything else is read from its beginning, by one machine.
"""

from __future__ import annotations

from pathlib import Path

from linnet.data.corpus_file import CorpusFile
from linnet.data.documents import END_OF_TEXT
from linnet.data.encoding import UTF8
from linnet.data.rows import row_groups

_BLOCK = 1 << 20


def can_be_cut(file: CorpusFile) -> bool:
    """Whether there is a place in the middle of a file at which a reader can begin."""
    if file.kind == "parquet":
        return True
    return file.compression is None and file.encoding == UTF8 and _mark(file) is not None


def border(file: CorpusFile, position: int) -> int:
    """The first byte from `position` on at which a document may begin; the size of the file where none does."""
    if position <= 0:
        return 0
    size = file.path.stat().st_size
    if position >= size:
        return size
    if file.kind == "parquet":
        starts = [start for start, _ in row_groups(file)]
        return next((start for start in starts if start >= position), size)
    mark = _mark(file)
    assert mark is not None
    return _behind(file.path, mark, max(0, position - len(mark)), size)


def _mark(file: CorpusFile) -> bytes | None:
    """What stands before every document of a file but the first; None: nothing that bytes tell."""
    if file.kind == "jsonl":
        return b"\n"
    return END_OF_TEXT.encode() if file.kind == "text" and file.name.endswith(".txt") else None


def _behind(path: Path, mark: bytes, start: int, size: int) -> int:
    """The place behind the first `mark` that begins at `start` or later."""
    held = b""
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(_BLOCK):
            data = held + block
            position = data.find(mark)
            if position >= 0:
                return start + position + len(mark)
            kept = min(len(data), len(mark) - 1)
            start += len(data) - kept
            held = data[len(data) - kept :] if kept else b""
    return size
