"""`FolderWatcher`: says at once which folders changed: by inotify or kqueue, and by looking where these see nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import watchfiles

_STEP_MS = 10  # between two looks at what the system has told; a change is passed on after one or two
_TICK_MS, _POLL_MS = 1000, 200  # without any change, where the system tells of them and where it does not
_MOST_FOLDERS = 512
_REMOTE = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "afs",
    "glusterfs",
    "virtiofs",
    "vboxsf",
)

OnChange = Callable[[set[str], bool], object]  # the folders in which something changed, and whether time has passed


class FolderWatcher:
    """A thread that watches folders, not what is below them, and calls `on_change` for each change and now and then.

    `on_change` may take its time: what happens meanwhile is told by the next call.
    """

    def __init__(self, root: Path, on_change: OnChange) -> None:
        self._root = str(root)
        self._on_change = on_change
        self._polling = is_remote(root) or bool(os.environ.get("WATCHFILES_FORCE_POLLING"))
        self._wanted: frozenset[str] = frozenset()
        self._again = threading.Event()  # ends the present watching of the thread
        self._stopping = threading.Event()  # ends the thread
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    def watch(self, folders: list[str]) -> None:
        """Watch the root and these folders from now on."""
        watched = frozenset([self._root, *folders[: _MOST_FOLDERS - 1]])
        if watched != self._wanted:
            self._wanted = watched
            self._again.set()

    def start(self) -> None:
        self._stopping, self._again = threading.Event(), threading.Event()  # the thread before may still be ending
        self._thread = threading.Thread(
            target=self._run, args=(self._stopping, self._again), name="linnet-board-watcher", daemon=True
        )
        self._thread.start()

    def stop(self) -> threading.Thread | None:
        """Let the thread end, and return it, to be joined. It may be started again at once."""
        thread, self._thread = self._thread, None
        self._stopping.set()
        self._again.set()
        return thread

    def _run(self, stopping: threading.Event, again: threading.Event) -> None:
        while not stopping.is_set():
            again.clear()
            if self._polling or not self._watch(stopping, again):
                again.wait(_POLL_MS / 1000)
                if not stopping.is_set():
                    self._on_change(set(), True)

    def _watch(self, stopping: threading.Event, again: threading.Event) -> bool:
        """Watch until other folders are wanted; False where the system cannot."""
        folders = [folder for folder in self._wanted if os.path.isdir(folder)]  # noqa: PTH112 - hundreds of them
        try:
            for changes in watchfiles.watch(
                *folders,
                watch_filter=None,
                debounce=2 * _STEP_MS,
                step=_STEP_MS,
                stop_event=again,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=False,
                ignore_permission_denied=True,
            ):
                if stopping.is_set():
                    return True
                self._on_change({folder for _, path in changes for folder in _folders_of(path)}, not changes)
        except (OSError, RuntimeError):  # no watches left, or a folder has just gone
            return not folders
        return True


def _folders_of(path: str) -> tuple[str, str]:
    """What changed when something happened to a path: the folder it is in, and itself, where it is one."""
    return path.rpartition(os.sep)[0], path


def is_remote(path: Path) -> bool:
    """Is a folder on another machine's disk, of whose changes this system does not tell?"""
    real = os.path.realpath(path)
    try:
        mounts = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        return False
    inside = [mount for mount in mounts if real == mount[0] or real.startswith(mount[0].rstrip(os.sep) + os.sep)]
    return max(inside, key=lambda mount: len(mount[0]), default=("", ""))[1].lower().startswith(_REMOTE)
