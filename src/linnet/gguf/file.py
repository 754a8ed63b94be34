"""An open GGUF file: `GGUFFile.open(path)`, or `GGUFFile(path)`; the bytes behind it, and links to files.

There are two ways to the bytes. `read` and `read_into` copy through `pread(2)`: when the file has become shorter in
the meantime they end in a GGUFError. `view` maps the file and copies nothing; it looks at the file's size first, but no
program can guard a mapping against a file that is cut short *afterwards*: touching the lost pages then ends the
process. Everything in Linnet that walks through somebody else's file uses the first way.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import numpy as np

from linnet import files
from linnet.gguf.errors import GGUFError, file_errors_as_gguf
from linnet.gguf.header import read_header
from linnet.gguf.metadata import Metadata
from linnet.gguf.tensor import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray


class GGUFFile:
    """A GGUF file whose head has been checked; metadata and tensors are read when asked for.

        with GGUFFile.open("model.gguf") as file:
            file.metadata["general.architecture"]       # 'llama'
            file.tensors["token_embd.weight"].shape     # (49152, 576)
            file.tensors["token_embd.weight"].read(rows=slice(0, 1000))

    Opening takes the checks of `linnet.gguf.header`: a file that opens has a head that is sound throughout
    and tensors that lie within it, one after the other.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._source = source = Source(path)
        try:
            header = read_header(source)
        except BaseException:
            source.close()
            raise
        self.path: Path = source.path
        self.size: int = source.size
        self.version: int = header.version
        self.alignment: int = header.alignment
        self.data_start: int = header.data_start
        self.metadata = Metadata(source, header.entries)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(header.tensors)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Open and check a file; anything that is wrong with it is a GGUFError."""
        return cls(path)

    @property
    def is_adapter(self) -> bool:
        """Does it change another model, rather than being one?"""
        return self.metadata.get("general.type") == "adapter"

    @property
    def architecture(self) -> str:
        """`general.architecture`, or an empty string where the file has none."""
        return self.metadata.text("general.architecture")

    def close(self) -> None:
        """Close the file. Views taken from it stay valid; nothing more can be read."""
        self._source.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self.path}: {len(self.tensors)} tensors, {len(self.metadata)} keys>"


class Source:
    """An open regular file: its path, its size, and its bytes by position."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            mode = self.path.stat().st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "something that is neither file nor folder"
                raise self.error("is not a GGUF file", "file", "a regular file", kind)
            self._fd = files.open_regular(self.path)  # asks again: a pipe may have taken its place since
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self.error("cannot be opened", "file", "a readable file", reason) from None
        self._map: mmap.mmap | None = None
        self._closed = False
        self.size: int = os.fstat(self._fd).st_size

    def error(self, problem: str, place: str, expected: str, found: str) -> GGUFError:
        """A GGUFError about this file."""
        return GGUFError(problem, place, expected, found, self.path)

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
                count = files.read_into(self._fd, buffer[done:], offset + done)
            except OSError as error:
                raise self.error("cannot be read", place, f"{len(buffer)} bytes at {offset}", str(error)) from None
            if count == 0:
                raise self._shorter(offset, len(buffer), place)
            done += count

    def view(self, offset: int, length: int, place: str) -> NDArray[np.uint8]:
        """Bytes `offset` to `offset + length` of the mapped file, read-only and not copied."""
        self._refuse_closed(place)
        if offset + length > os.fstat(self._fd).st_size:
            raise self._shorter(offset, length, place)
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

    def _shorter(self, offset: int, length: int, place: str) -> GGUFError:
        problem, size = "the file has become shorter while it was open", os.fstat(self._fd).st_size
        return self.error(problem, place, f"{length} bytes at {offset}", f"a file of {size} bytes")

    def _refuse_closed(self, place: str) -> None:
        if self._closed:
            raise self.error("has been closed", place, "an open file", "a closed one")


def point_link(link: str | os.PathLike[str], target: str) -> None:
    """`files.point_link` for callers who expect a GGUFError: make `link` mean the file `target` in its folder."""
    with file_errors_as_gguf():
        files.point_link(Path(link), target)


def resolve_link(path: str | os.PathLike[str]) -> Path:
    """The GGUF file that `path` means: itself, or where a symlink or a text pointer leads."""
    with file_errors_as_gguf():
        return files.resolve_link(Path(path))
