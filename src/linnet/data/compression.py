"""Compressed files as streams of bytes: gzip, bzip2, xz and zstd, unpacked a block at a time and within bounds."""

from __future__ import annotations

import bz2
import lzma
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from linnet.data.errors import DataError, MissingPackageError

BLOCK = 1 << 20  # bytes of text at a time
_PACKED_BLOCK = 1 << 18
_MOST_MEMORY = 1 << 28  # bytes an xz file may ask for to be unpacked
_BOMB_FROM, _BOMB_RATIO = 1 << 30, 200  # more than a gibibyte, and more than so many times the file
_AHEAD = 4  # blocks that are unpacked before they are asked for
_THREAD_WORTH = 1 << 20  # bytes of a packed file that repay a thread


class DamagedError(Exception):
    """A compressed file that cannot be unpacked to its end; what came before was given."""


class Compression(NamedTuple):
    """A way to compress a file: its name, how such files end, how they begin, and what unpacks one stream of it."""

    name: str
    suffixes: tuple[str, ...]
    magic: bytes
    decompressor: Callable[[], Any]


def _zstd() -> Any:
    """Python's own module, which `backports.zstd` is for those before 3.14."""
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise MissingPackageError("reading zstd", "backports.zstd", "documents") from None
    return zstd.ZstdDecompressor()


COMPRESSIONS = {
    "gz": Compression("gzip", (".gz",), b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    "bz2": Compression("bzip2", (".bz2",), b"BZh", bz2.BZ2Decompressor),
    "xz": Compression("xz", (".xz",), b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY)),
    "zst": Compression("zstd", (".zst", ".zstd"), b"\x28\xb5\x2f\xfd", _zstd),
}


def compression_by_name(name: str) -> tuple[str, str | None]:
    """A file's name without the ending of a compressed file, and the key of that compression; None: it has none."""
    lowered = name.lower()
    for key, packing in COMPRESSIONS.items():
        for suffix in packing.suffixes:
            if lowered.endswith(suffix) and len(name) > len(suffix):
                return name[: -len(suffix)], key
    return name, None


def compression_by_content(head: bytes) -> str | None:
    """The compression a file's first bytes tell; None: not compressed."""
    return next((key for key, packing in COMPRESSIONS.items() if head.startswith(packing.magic)), None)


def read_blocks(
    path: Path, compression: str | None = None, *, ahead: bool = True, span: tuple[int, int] | None = None
) -> Iterator[bytes]:
    """The bytes of a file, unpacked, in blocks of at most a mebibyte; those of a `span` of one that is not packed.

    A large compressed file is unpacked on a thread of its own (`ahead`), which costs the reader nothing: none of these
    libraries holds the interpreter's lock.
    """
    if compression is None:
        first, last = span or (0, sys.maxsize)
        with path.open("rb") as file:
            file.seek(first)
            while first < last and (block := file.read(min(BLOCK, last - first))):
                yield block
                first += len(block)
        return
    unpacked = _unpacked(path, COMPRESSIONS[compression])
    if ahead and path.stat().st_size >= _THREAD_WORTH:
        yield from _read_ahead(unpacked)
    else:
        yield from unpacked


def _unpacked(path: Path, packing: Compression) -> Iterator[bytes]:
    """All streams of a file, one after the other: compressed files may be joined."""
    n_bytes = 0
    decompressor = packing.decompressor()
    with path.open("rb") as file:
        data = file.read(_PACKED_BLOCK)
        while True:
            try:
                block = decompressor.decompress(data, BLOCK)
            except MemoryError:
                raise
            except Exception as error:  # each library has its own
                raise DamagedError(str(error)) from None
            if block:
                n_bytes += len(block)
                if n_bytes > _BOMB_FROM and n_bytes > _BOMB_RATIO * file.tell():
                    raise DataError(
                        f"corpus {path}: it unpacks to more than {_BOMB_RATIO} times its size: unpack it yourself to"
                        " have it read"
                    )
                yield block
            if decompressor.eof:
                data = (decompressor.unused_data or file.read(_PACKED_BLOCK)).lstrip(b"\0")  # padding
                while not data and (packed := file.read(_PACKED_BLOCK)):
                    data = packed.lstrip(b"\0")
                if not data:
                    return
                if len(data) < 4:
                    data += file.read(_PACKED_BLOCK)
                decompressor = packing.decompressor()
                continue
            # zlib hands back what it did not come to; the others keep it, and need nothing as long as they have some.
            if hasattr(decompressor, "unconsumed_tail"):
                data = decompressor.unconsumed_tail
                wants_input = not data
            else:
                data = b""
                wants_input = decompressor.needs_input
            if wants_input:
                data = file.read(_PACKED_BLOCK)
                if not data and not block:
                    raise DamagedError("it is cut short")


def _read_ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, made on a thread while the ones before are worked on."""
    queue: Queue[bytes | BaseException | None] = Queue(_AHEAD)
    is_over = threading.Event()

    def put(item: bytes | BaseException | None) -> bool:
        while not is_over.is_set():
            try:
                queue.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def unpack() -> None:
        try:
            for block in blocks:
                if not put(block):
                    return
            put(None)
        except BaseException as error:
            put(error)  # the reader raises it

    thread = threading.Thread(target=unpack, name="linnet-unpack", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_over.set()
        while True:
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join()
