"""`DirectWriter`: bytes that go to the disk past the page cache, block by block, where Linux can do so.

The kernel keeps what is written in memory first. For a checkpoint of gigabytes that takes memory from the training
beside it, throws mapped corpora out, and costs more time than the disk does (docs/log.md).
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor

if sys.platform == "linux":
    import fcntl

_BLOCK_BYTES = 16 << 20


class DirectWriter:
    """Appends to an open file by O_DIRECT, one block on its way while the next is filled.

    Only whole blocks of memory pages can go that way: `finish` writes the end through the page cache, and so does all
    of it on a file system that knows no other.
    """

    def __init__(self, fd: int, block_bytes: int = _BLOCK_BYTES) -> None:
        self._fd, self._size = fd, block_bytes
        self._filling, self._leaving = mmap.mmap(-1, block_bytes), mmap.mmap(-1, block_bytes)  # they begin on a page
        self._filled = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="linnet-direct")
        self._on_its_way: Future[None] | None = None
        self._bypass(True)

    def write(self, content: memoryview) -> None:
        """Append bytes; an OSError of earlier ones may come here."""
        while content:
            part = content[: self._size - self._filled]
            self._filling[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            content = content[len(part) :]
            if self._filled == self._size:
                self._wait()
                self._filling, self._leaving, self._filled = self._leaving, self._filling, 0
                self._on_its_way = self._thread.submit(self._write_whole, self._leaving, self._size)

    def finish(self) -> None:
        """Write what is left; the file is a usual one then."""
        self._wait()
        self._bypass(False)
        self._write_whole(self._filling, self._filled)
        self._filled = 0

    def close(self) -> None:
        """End the thread, before the file is closed; what was not finished is lost."""
        self._thread.shutdown(cancel_futures=True)

    def _wait(self) -> None:
        if self._on_its_way is not None:
            self._on_its_way.result()
            self._on_its_way = None

    def _write_whole(self, buffer: mmap.mmap, length: int) -> None:
        with memoryview(buffer) as view:
            done = 0
            while done < length:
                try:
                    done += os.write(self._fd, view[done:length])
                except OSError as error:
                    if error.errno != errno.EINVAL or not self._bypasses:
                        raise
                    self._bypass(False)  # the disk wants other blocks than those of memory

    def _bypass(self, wanted: bool) -> None:
        self._bypasses = False
        if sys.platform == "linux":
            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            try:
                fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
            except OSError:  # not on this file system
                return
            self._bypasses = wanted
