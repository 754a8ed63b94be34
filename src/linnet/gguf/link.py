"""`latest` and `best` of a folder of GGUF files, for callers who expect a GGUFError; `linnet.files` does the work."""

from __future__ import annotations

import os
from pathlib import Path

from linnet import files
from linnet.gguf.errors import file_errors_as_gguf


def point_link(link: str | os.PathLike[str], target: str) -> None:
    """Make `link` mean the file `target` in the same folder, in one step: readers see the old or the new."""
    with file_errors_as_gguf():
        files.point_link(Path(link), target)


def resolve_link(path: str | os.PathLike[str]) -> Path:
    """The GGUF file that `path` means: itself, or where a symlink or a text pointer leads."""
    with file_errors_as_gguf():
        return files.resolve_link(Path(path))
