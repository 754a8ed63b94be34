"""A file that appears under its name only when it is whole.

It is written under a hidden name in the same folder, forced to the disk, renamed, and the folder is forced to
the disk too. Whatever stops the writer before the rename, the name still means what it meant before: programs
that have the old file open or mapped keep the old file. A writer holds a lock on its hidden file, so the next
one can tell what a killed writer left behind from what another is writing just now, and clears the former
away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path
from types import TracebackType

from linnet.gguf.errors import GGUFError

if sys.platform != "win32":
    import fcntl

SUFFIX = ".linnet-partial"
_AT_ONCE = 16 << 20


class StagedFile:
    """`with StagedFile(path) as out: out.write(...)`; published when the block ends well, else removed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise self._error("cannot be written", "a file's name", "a folder")
        try:
            sweep(self.path.parent)
            self._open()
        except OSError as error:
            raise self._error("cannot be written", "a folder that can be written to", _reason(error)) from None
        self.written = 0
        self._started = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append the bytes; a full disk is a GGUFError."""
        view = memoryview(data).cast("B")
        try:
            while len(view):
                done = os.write(self._fd, view[:_AT_ONCE])
                self.written += done
                view = view[done:]
        except OSError as error:
            raise self._error("cannot be written", f"room for more than {self.written} bytes", _reason(error)) from None

    def start_disk(self) -> None:
        """Let the disk begin with what is written so far, while the caller has other work: every 16 MB or so.

        On Linux this advice starts the writing of changed pages and drops only unchanged ones, of which there are
        none. It pays where bytes are made as they are written; where they only need copying it costs.
        """
        if self.written - self._started >= _AT_ONCE and sys.platform == "linux":
            with contextlib.suppress(OSError):
                length = self.written - self._started
                os.posix_fadvise(self._fd, self._started, length, os.POSIX_FADV_DONTNEED)
            self._started = self.written

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            os.fsync(self._fd)
            if sys.platform == "win32":  # an open file cannot be renamed there
                os.close(self._fd)
                self._fd = -1
            self.staged.replace(self.path)
        except OSError as failure:
            self._discard()
            raise self._error("cannot be written", "a disk that takes it", _reason(failure)) from None
        except BaseException:
            self._discard()
            raise
        self._close()
        sync_folder(self.path.parent)

    def _open(self) -> None:
        while True:
            self.staged = staged_name(self.path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
            self._fd = os.open(self.staged, flags, 0o666)
            if _lock(self._fd) and self.staged.exists():
                return
            os.close(self._fd)  # swept away by another writer before it was locked: try again

    def _discard(self) -> None:
        self._close()
        self.staged.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _error(self, problem: str, expected: str, found: str) -> GGUFError:
        return GGUFError(problem, path=self.path, place="file", expected=expected, found=found)


def staged_name(path: Path) -> Path:
    """A hidden name beside `path` that nobody else uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}{SUFFIX}")


def sweep(folder: Path) -> list[Path]:
    """Remove what killed writers left in a folder, and say what that was."""
    removed = []
    for leftover in folder.glob(f".*{SUFFIX}"):
        if leftover.is_symlink() or _abandoned(leftover):
            leftover.unlink(missing_ok=True)
            removed.append(leftover)
    return removed


def sync_folder(folder: Path) -> None:
    """Force a rename to the disk, where the system can (Windows has no such call)."""
    if sys.platform != "win32":
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _abandoned(path: Path) -> bool:
    """Whether nobody is writing the file: its lock can be had. (On Windows an open file stays anyway.)"""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: then nothing is known to be abandoned, and nothing is locked
        return True
    return True


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
