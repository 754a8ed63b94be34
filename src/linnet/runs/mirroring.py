"""Copies a run folder to a store: what is new or has changed, newest checkpoint first. A process of its own runs it.

`.cache/mirror.json` in the run folder is its ledger: what was copied as it was then, what is still to be copied, and
why it failed. So a copy that was cut off goes on where it stopped, in this session of the run or the next.
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from linnet.errors import LinnetError
from linnet.files import is_staged, link_target, write_file
from linnet.remote import Store, joined
from linnet.runs.folder import ARTIFACTS, CACHE, EVENTS, FLOW, MANIFEST, STATE, WEIGHTS

LEDGER = f"{CACHE}/mirror.json"
_AGAIN_SECONDS = 30.0  # after a failure, where nothing else asks for it
_REPORTED_SECONDS = 0.5
_POINTERS = (f"{WEIGHTS}/latest", f"{WEIGHTS}/best")
_PRUNED = (f"{WEIGHTS}/", f"{STATE}/")


class Ledger(msgspec.Struct):
    """What a mirror holds of a run, and how the last attempt went.

    - `copied`: size and time of change that each file had when it was copied.
    - `missing`: what is not there, or not as it is here; `error`: why.
    - `request`: the number of the last request that was attended to; `sent`: bytes, so that progress shows.
    """

    url: str
    copied: dict[str, tuple[int, int]] = {}
    missing: list[str] = []
    error: str = ""
    request: int = 0
    sent: int = 0

    @classmethod
    def read(cls, run_dir: Path, url: str) -> Ledger:
        """That of a run; an empty one where there is none, or it is of another place."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            ledger = msgspec.json.decode((run_dir / LEDGER).read_bytes(), type=cls)
            if ledger.url == url:
                return ledger
        return cls(url)

    def write(self, run_dir: Path) -> None:
        """Keep it, where that is possible: only time is lost."""
        with suppress(OSError):
            (run_dir / LEDGER).parent.mkdir(exist_ok=True)
            write_file(run_dir / LEDGER, msgspec.json.encode(self), sync=False)


def mirrored_files(run_dir: Path) -> Iterator[str]:
    """What of a run folder is copied, in that order: a checkpoint's state before its weights, descriptions last."""
    steps = sorted(_files(run_dir, STATE) + _files(run_dir, WEIGHTS), key=lambda name: (-_step(name), name))
    yield from (name for name in steps if name not in _POINTERS)
    yield from (name for name in _POINTERS if os.path.lexists(run_dir / name))
    yield from _files(run_dir, ARTIFACTS)
    yield from (name for name in (FLOW, EVENTS, MANIFEST) if (run_dir / name).is_file())


def _files(run_dir: Path, folder: str) -> list[str]:
    names = []
    for root, _, files in os.walk(run_dir / folder):
        names += [Path(root, name).relative_to(run_dir).as_posix() for name in files if not is_staged(name)]
    return sorted(names)


def _step(name: str) -> int:
    digits = "".join(letter for letter in Path(name).stem if letter.isdigit())
    return int(digits) if digits else -1


class Mirroring:
    """The copying itself: `copy` brings the store up to date, and the ledger says how far it came."""

    def __init__(self, run_dir: Path, url: str, reported: Callable[[Ledger], None] | None = None) -> None:
        self._run_dir = run_dir
        self.ledger = Ledger.read(run_dir, url)
        self._store: Store | None = None
        self._reported = reported
        self._last_report = 0.0

    def copy(self, request: int = 0) -> None:
        """Copy what is new or has changed, then remove checkpoints that the run itself has removed."""
        names = list(mirrored_files(self._run_dir))
        self.ledger.missing = [name for name in names if self._is_new(name)]
        self._report(now=True)
        error = ""
        try:
            if self._store is None:
                self._store = Store(self.ledger.url)
            for name in list(self.ledger.missing):
                self._copy_file(name)
                self.ledger.missing.remove(name)
            for name in [name for name in self.ledger.copied if name.startswith(_PRUNED)]:
                if not os.path.lexists(self._run_dir / name):
                    self._store.remove(name)
                    del self.ledger.copied[name]
        except (LinnetError, OSError) as failure:
            error = str(failure)
        self.ledger.error, self.ledger.request = error, request
        self._report(now=True)

    def _is_new(self, name: str) -> bool:
        try:
            return self.ledger.copied.get(name) != self._state(name)
        except OSError:
            return False  # removed meanwhile

    def _state(self, name: str) -> tuple[int, int]:
        facts = (self._run_dir / name).lstat()
        return facts.st_size, facts.st_mtime_ns

    def _copy_file(self, name: str) -> None:
        path = self._run_dir / name
        assert self._store is not None
        try:
            state = self._state(name)
            source = self._snapshot(path) if name == EVENTS or path.is_symlink() else path
        except FileNotFoundError:
            return  # an old checkpoint, removed meanwhile
        try:
            before = self.ledger.sent
            self._store.upload(source, name, lambda done: self._sent(before + done))
            self.ledger.sent = before + state[0]
        except LinnetError:
            if not os.path.lexists(path):
                return
            raise
        finally:
            if source is not path:
                source.unlink(missing_ok=True)
        self.ledger.copied[name] = state
        self._report()

    def _snapshot(self, path: Path) -> Path:
        """A stream that is being written, up to its last whole line; a link as the name it leads to."""
        content = f"{link_target(path)}\n".encode() if path.is_symlink() else path.read_bytes()
        folder = self._run_dir / CACHE
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
        if not (folder.is_dir() and os.access(folder, os.W_OK)):  # a run that can only be read
            folder = Path(tempfile.gettempdir())
        # A name that nobody can tell before: in a folder that others can write to a link may wait under any other.
        fd, copy = tempfile.mkstemp(prefix="mirror-", suffix=f"-{path.name}", dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(content[: content.rfind(b"\n") + 1])
        return Path(copy)

    def _sent(self, n_bytes: int) -> None:
        self.ledger.sent = n_bytes
        self._report()

    def _report(self, now: bool = False) -> None:
        if not now and time.monotonic() < self._last_report + _REPORTED_SECONDS:
            return
        self._last_report = time.monotonic()
        self.ledger.write(self._run_dir)
        if self._reported is not None:
            self._reported(self.ledger)


def main(run_dir: str, url: str) -> None:
    """Copy whenever a line with a number comes from the pipe, and again after a failure; end with the pipe."""
    with suppress(OSError, AttributeError):
        os.nice(10)
    mirroring = Mirroring(Path(run_dir), url)
    request, pipe = 0, sys.stdin.fileno()
    while True:
        failed = bool(mirroring.ledger.error) and request > 0
        if select.select([pipe], [], [], _AGAIN_SECONDS if failed else None)[0]:
            requests = os.read(pipe, 1 << 16)
            if not requests:
                return
            request = int(requests.split()[-1])
        mirroring.copy(request)


def run_url(url: str, run_id: str) -> str:
    """Where a run lies in a mirror of runs."""
    return joined(url, run_id)
