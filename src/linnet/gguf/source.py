"""The bytes of a file on disk, read by position.

There are two ways to them. `read` and `read_into` copy through `pread(2)`: when the file has become shorter
in the meantime they end in a GGUFError. `view` maps the file and copies nothing; it looks at the file's size
first, but no program can guard a mapping against a file that is cut short *afterwards*: touching the lost
pages then ends the process. Everything in Linnet that walks through somebody else's file uses the first way.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet import files
from linnet.gguf.errors import GGUFError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Source:
    """An open regular file: its path, its size, and its bytes by position."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._refuse_what_is_no_file(self.path.stat().st_mode)
            self._fd = files.open_regular(self.path)  # asks again: a pipe may have taken its place since
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self.error("cannot be opened", "file", "a readable file", reason) from None
        self._map: mmap.mmap | None = None
        self._closed = False
        self.size: int = os.fstat(self._fd).st_size

    def error(self, problem: str, place: str, expected: str, found: str) -> GGUFError:
        """A GGUFError about this file."""
        return GGUFError(problem, path=self.path, place=place, expected=expected, found=found)

    def read(self, offset: int, length: int, place: str) -> bytes:
        """Copy `length` bytes at `offset`; the caller has bounded `length` by the file's size."""
        buffer = bytearray(length)
        self.read_into(offset, memoryview(buffer), place)
        return bytes(buffer)

    def read_into(self, offset: int, buffer: memoryview, place: str) -> None:
        """Fill `buffer` from `offset`; a file that ends before it is full is an error."""
        self._refuse_closed(place)
        done = 0
        while done < len(buffer):
            try:
                got = files.read_into(self._fd, buffer[done:], offset + done)
            except OSError as error:
                raise self.error("cannot be read", place, f"{len(buffer)} bytes at {offset}", str(error)) from None
            if got == 0:
                raise self.error(
                    "the file has become shorter while it was open",
                    place,
                    f"{len(buffer)} bytes at {offset}",
                    f"a file of {os.fstat(self._fd).st_size} bytes",
                )
            done += got

    def view(self, offset: int, length: int, place: str) -> NDArray[np.uint8]:
        """Bytes `offset` to `offset + length` of the mapped file, read-only and not copied."""
        self._refuse_closed(place)
        size = os.fstat(self._fd).st_size
        if offset + length > size:
            problem = "the file has become shorter while it was open"
            raise self.error(problem, place, f"{length} bytes at {offset}", f"a file of {size} bytes")
        if length == 0:
            return np.empty(0, np.uint8)
        if self._map is None:
            self._map = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
        return np.frombuffer(self._map, np.uint8, length, offset)

    def close(self) -> None:
        """Give the descriptor back. Views that somebody still holds stay valid: they keep the mapping."""
        if self._closed:
            return
        self._closed = True
        os.close(self._fd)
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:  # a view is alive; the mapping goes when the last one does
                self._map = None

    def _refuse_what_is_no_file(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "something that is neither file nor folder"
            raise self.error("is not a GGUF file", "file", "a regular file", kind)

    def _refuse_closed(self, place: str) -> None:
        if self._closed:
            raise self.error("has been closed", place, "an open file", "a closed one")
