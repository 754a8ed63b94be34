"""The floor under the rooms: files that are whole or not there, locks, links, and the names of checkpoints.

A file is staged: written under a hidden name in the same folder, forced to the disk and renamed, and the folder is
forced to the disk too. Whatever stops the writer before the rename, the name still means what it meant before: programs
that have the old file open or mapped keep the old file. A writer holds a lock on its hidden file, so the next one
can tell what a killed writer left behind from what another is writing just now, and clears the former away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.direct_writer import DirectWriter

if sys.platform != "win32":
    import fcntl

STAGED_SUFFIX = ".linnet-partial"  # of every file and folder that has not its name yet
LOCKS = sys.platform != "win32"  # this system has advisory locks; a file system may still have none
READER_SECONDS = 0.25  # a writer waits so long for a reader that is testing the lock just now
BINARY = getattr(os, "O_BINARY", 0)  # Windows would otherwise translate line ends
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe would otherwise hold its reader until somebody writes
_AT_ONCE = 16 << 20
LARGE_BYTES = 512 << 20  # from here on a file goes past the page cache
_ABANDONED_SECONDS = 86_400.0  # where there are no locks: nobody writes one file for a day
_GGUF = b"GGUF"  # what begins so is a checkpoint and no pointer, however short
_LONGEST_NAME = 4096  # a pointer that is a text file holds one file name; anything longer is a file in its own right
_NO_FOLDER_SYNC = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOTSUP, errno.EPERM)


class FileError(OSError):
    """A file that could not be written, replaced or followed, in words for the person whose file it is.

    An OSError with the system's `errno`, `strerror` (what was found) and `filename`, and besides them `problem`,
    `place` (`file` or `link`) and `expected`, so that a caller need not take the line apart.
    """

    def __init__(
        self,
        number: int | None,
        found: str,
        path: str,
        *,
        problem: str = "cannot be written",
        place: str = "file",
        expected: str = "",
    ) -> None:
        super().__init__(number, found, path)
        self.problem = problem
        self.place = place
        self.expected = expected

    def __str__(self) -> str:
        line = f"{self.filename}: {self.place}: {self.problem}; expected {self.expected}, found {self.strerror}"
        return " ".join(line.split())


# -- writing ----------------------------------------------------------------------------------------------------------


class StagedFile:
    """A file written piece by piece that gets its name when it is whole: `with StagedFile(path) as out: out.write(…)`.

    Published when the block ends well, else removed; without a block by `publish` or `discard`.

    - `mode`: the file's permissions, less what the umask takes off.
    - `sync`: force the file and its folder to the disk; not needed for what can be made again.
    - `size`: about how long it will be, where that is known: a large file goes past the page cache.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = 0o666, sync: bool = True, size: int = 0) -> None:
        self.path = Path(path)
        self._sync = sync
        self._direct: DirectWriter | None = None
        self.written = 0
        self._started = 0
        if is_folder(self.path):
            raise FileError(errno.EISDIR, "a folder", str(self.path), expected="a file's name")
        try:
            sweep(self.path.parent)
            self._open(mode)
        except OSError as error:
            raise self._refused(error, "a folder that can be written to") from None
        if sync and size >= LARGE_BYTES:
            from linnet.direct_writer import DirectWriter

            self._direct = DirectWriter(self._fd)

    def write(self, data: bytes | memoryview) -> None:
        """Append the bytes; a full disk is a FileError."""
        view = memoryview(data).cast("B")
        try:
            if self._direct is not None:
                self._direct.write(view)
                self.written += len(view)
                return
            while len(view):
                done = os.write(self._fd, view[:_AT_ONCE])
                self.written += done
                view = view[done:]
        except OSError as error:
            raise self._refused(error, f"room for more than {self.written} bytes") from None

    def start_disk(self) -> None:
        """Let the disk begin with what is written so far, while the caller has other work: every 16 MB or so.

        On Linux this advice starts the writing of changed pages and drops only unchanged ones, of which there are
        none. It pays where bytes are made as they are written; where they only need copying it costs.
        """
        if self._direct is None and self.written - self._started >= _AT_ONCE and sys.platform == "linux":
            with contextlib.suppress(OSError):
                length = self.written - self._started
                os.posix_fadvise(self._fd, self._started, length, os.POSIX_FADV_DONTNEED)
            self._started = self.written

    def fileno(self) -> int:
        """The open descriptor, for reading and writing."""
        return self._fd

    def replace(self, data: bytes, at: int) -> None:
        """Write over bytes that were written before; nothing is appended after it."""
        try:
            self._finish()
            os.pwrite(self._fd, data, at)
        except OSError as error:
            raise self._refused(error, "a disk that takes it") from None

    def publish(self) -> None:
        """Force the file to the disk and give it its name, in place of what had it."""
        try:
            self._finish()
            if self._sync:
                os.fsync(self._fd)
            if sys.platform == "win32":  # an open file cannot be renamed there
                self._close()
            self.staged.replace(self.path)
            self._close()
            if self._sync:
                sync_folder(self.path.parent)
        except OSError as error:
            self.discard()
            raise self._refused(error, "a disk that takes it") from None
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was written; `path` is as it was."""
        self._close()
        self.staged.unlink(missing_ok=True)

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.publish()
        else:
            self.discard()

    def _open(self, mode: int) -> None:
        while True:
            self.staged = staged_name(self.path)
            self._fd = os.open(self.staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, mode)
            if lock(self._fd) is not False and self.staged.exists():
                return
            os.close(self._fd)  # swept away by another writer before it was locked: try again

    def _finish(self) -> None:
        if self._direct is not None:
            self._direct.finish()
            self._direct.close()
            self._direct = None

    def _close(self) -> None:
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _refused(self, error: OSError, expected: str) -> FileError:
        return FileError(error.errno, error.strerror or str(error), str(self.path), expected=expected)


def write_file(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Replace a file's content in one step: readers see the old or the new, whole. Options as for `StagedFile`."""
    with StagedFile(path, mode=mode, sync=sync) as out:
        out.write(content)


def staged_name(path: Path) -> Path:
    """A hidden name beside `path` that nobody else uses: `.<name>.<hex>.linnet-partial`."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}{STAGED_SUFFIX}")


def is_staged(name: str) -> bool:
    """Is this the name of a file that is being written, or that a killed writer left behind?"""
    return name.startswith(".") and name.endswith(STAGED_SUFFIX)


def sweep(folder: Path) -> list[Path]:
    """Remove the files that killed writers left in a folder, and say which they were."""
    try:
        staged = [folder / name for name in os.listdir(folder) if is_staged(name)]  # noqa: PTH208
    except OSError:
        return []
    return [path for path in staged if _remove_abandoned(path)]


def _remove_abandoned(path: Path) -> bool:
    """Remove a staged file unless somebody is writing it; what cannot be removed stays, and is in nobody's way."""
    try:
        if path.is_symlink():  # made and renamed at once; `point_link` makes another
            path.unlink()
            return True
        fd = open_regular(path)
        try:
            alone = lock(fd)
            if alone is None:
                alone = time.time() - os.fstat(fd).st_mtime > _ABANDONED_SECONDS
            if alone:
                path.unlink()  # under the lock: who has just made it finds it gone and makes another
            return alone
        finally:
            os.close(fd)
    except OSError:
        return False


def sync_file(file: IO[bytes]) -> None:
    """Force what was written to an open file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk, so that a rename outlives a power cut, where the system can do that."""
    if sys.platform == "win32":
        return
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


# -- locks ------------------------------------------------------------------------------------------------------------


def lock(fd: int, wait: float | None = 0.0) -> bool | None:
    """Take the advisory lock of an open file. False: another has it. None: no lock is to be had here.

    `flock` belongs to the open file, so the kernel drops it the instant its holder dies, however it dies. Windows and
    some network mounts have none.

    - `wait`: seconds to wait for one who has it; None: as long as it takes.
    """
    if sys.platform == "win32":
        return None
    deadline = time.monotonic() + (wait or 0.0)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait is None else fcntl.LOCK_NB))
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        except OSError:
            return None


def is_locked(path: str | Path) -> bool | None:
    """Does a living process hold the lock of this file? None: it cannot be told."""
    if sys.platform == "win32":
        return None
    try:
        fd = open_regular(path)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)


# -- reading ----------------------------------------------------------------------------------------------------------

if sys.platform == "win32":  # no positioned read there: the position that all readers of a descriptor share is guarded
    import threading

    _position = threading.Lock()

    def read_at(fd: int, length: int, offset: int, /) -> bytes:
        """`length` bytes from `offset`; fewer at the end of the file."""
        with _position:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)

    def read_into(fd: int, buffer: memoryview, offset: int, /) -> int:
        """Fill a buffer from `offset`; how many bytes that were, fewer at the end of the file."""
        content = read_at(fd, len(buffer), offset)
        buffer[: len(content)] = content
        return len(content)

else:
    read_at = os.pread  # itself: a call between would cost a reader of many small pieces

    def read_into(fd: int, buffer: memoryview, offset: int, /) -> int:
        """Fill a buffer from `offset`; how many bytes that were, fewer at the end of the file."""
        return os.preadv(fd, [buffer], offset)


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; an OSError for pipes, devices, sockets and folders, and never a wait."""
    fd = os.open(path, flags | BINARY | _NO_WAITING, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def read_bounded(path: str | os.PathLike[str], largest: int) -> bytes:
    """The content of a regular file; ValueError for one of more than `largest` bytes."""
    with os.fdopen(open_regular(os.fspath(path)), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"expected a file of at most {largest >> 20} MB, found a larger one")
    return content


def sha256_of(path: str | Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    import hashlib  # few commands need it

    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def change_stamp(status: os.stat_result) -> list[int]:
    """What changes whenever a file does: size, times, inode and device."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` spelled out; where nobody has that name, as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_file(path: str | Path) -> bool:
    """Is there a regular file? No, too, where it may not be asked (`Path.is_file` raises there)."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    """Is there a folder? No, too, where it may not be asked."""
    return os.path.isdir(path)  # noqa: PTH112


# -- links ------------------------------------------------------------------------------------------------------------


def point_link(link: Path, target: str) -> None:
    """Make `link` mean the file `target` in the same folder, in one step: readers see the old or the new.

    A relative symlink, so the folder can be moved or copied. Where the system refuses links (Windows without
    the right, some file systems), a small text file that holds the name; `resolve_link` reads both.
    """
    if not target or target != Path(target).name:
        raise _link_error(link, errno.EINVAL, "a link points within its folder", "a name", ascii(target[:80]))
    for _ in range(8):
        staged = staged_name(link)
        try:
            staged.symlink_to(target)
        except (OSError, NotImplementedError):
            write_file(link, f"{target}\n".encode())
            return
        try:
            staged.replace(link)
        except FileNotFoundError:  # another writer swept it away between the two calls
            continue
        except OSError as error:
            staged.unlink(missing_ok=True)
            problem, found = "cannot be replaced", error.strerror or str(error)
            raise _link_error(link, error.errno, problem, "a name that can be replaced", found) from None
        sync_folder(link.parent)
        return
    raise _link_error(link, errno.EBUSY, "cannot be replaced", "a quiet folder", "other writers")


def resolve_link(path: Path) -> Path:
    """The file that `path` means: itself, or where a symlink or a text pointer leads."""
    if path.is_symlink():
        return _existing(path.resolve(), path)
    name = link_target(path)
    return _existing(path.with_name(name) if name else path, path)


def link_target(path: Path) -> str:
    """The name that a symlink or a text pointer holds; empty for a file in its own right, and where there is none."""
    try:
        if path.is_symlink():
            return path.readlink().name
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(_LONGEST_NAME + 1)
        name = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return ""
    is_name = name == Path(name).name and not any(ord(letter) < 32 for letter in name)
    return name if is_name and len(content) <= _LONGEST_NAME and not content.startswith(_GGUF) else ""


def _existing(target: Path, link: Path) -> Path:
    if not target.exists():
        found = "nothing" if target == link else f"a pointer to {target.name}, which is not there"
        raise _link_error(link, errno.ENOENT, "does not lead to a file", "a file", found)
    return target


def _link_error(link: Path, number: int | None, problem: str, expected: str, found: str) -> FileError:
    return FileError(number, found, str(link), problem=problem, place="link", expected=expected)


# -- checkpoints ------------------------------------------------------------------------------------------------------

WEIGHTS_SUFFIX = ".gguf"
STATE_SUFFIX = ".safetensors"
_STEP_NAME = re.compile(r"step_([0-9]{1,19})(\.gguf|\.safetensors)")


def step_path(folder: Path, step: int, suffix: str = WEIGHTS_SUFFIX) -> Path:
    """Where the weights or the state of a step lie: `step_<N>.gguf`, `step_<N>.safetensors`."""
    return folder / f"step_{step}{suffix}"


def step_of(path: Path, suffix: str = WEIGHTS_SUFFIX) -> int | None:
    """The step in a checkpoint's name; None for any other file."""
    match = _STEP_NAME.fullmatch(path.name)
    return int(match[1]) if match and match[2] == suffix else None


def step_files(folder: Path, suffix: str = WEIGHTS_SUFFIX) -> list[tuple[int, Path]]:
    """The checkpoints of a folder, by step."""
    steps = ((step_of(path, suffix), path) for path in folder.glob(f"step_*{suffix}"))
    return sorted((step, path) for step, path in steps if step is not None)
