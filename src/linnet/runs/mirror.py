"""A copy of a run in a store, made while it trains by a process of its own: nothing here waits for the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from linnet.errors import LinnetError, UsageError
from linnet.files import staged_name
from linnet.remote import RemoteError, Store, is_url
from linnet.runs.folder import MANIFEST
from linnet.runs.mirroring import Ledger, mirrored_files, run_url

STALLED_SECONDS = 30.0  # at the end: a store that takes nothing for so long is not waited for
INTERRUPTED_SECONDS = 10.0  # a run that was told to stop waits so long at most
_LOOKED_SECONDS = 0.05
_NAMED = 3


@dataclass(frozen=True)
class MirrorReport:
    """What a mirror holds at the end of a run."""

    url: str
    missing: tuple[str, ...] = ()
    error: str = ""

    @property
    def sentence(self) -> str:
        """`s3://bucket/runs/x`, and what is not there."""
        if not self.missing and not self.error:
            return self.url
        names = ", ".join(self.missing[:_NAMED]) + (" …" if len(self.missing) > _NAMED else "")
        count = len(self.missing)
        outcome = f"{count} file{'s were' if count != 1 else ' was'} not copied ({names})" if count else "not copied"
        why = self.error.removeprefix(f"{self.url}: ") or "there was no time for it"
        return f"{self.url}: {outcome}: {why}"


def check_mirror(url: str) -> None:
    """Refuse what is no place to copy to, before a training begins; the store itself is not asked."""
    if not is_url(url):
        raise UsageError(f"`mirror={url}`: expected a URL such as s3://bucket/runs or file:///backup/runs")
    try:
        Store(url)
    except RemoteError as error:
        raise UsageError(f"`mirror`: {error}") from None


class Mirror:
    """Keeps a store up to date with a run folder: `wake` when there is something new, `finish` at the end."""

    def __init__(self, run_dir: Path, url: str) -> None:
        self.run_dir, self.url = run_dir, run_url(url, run_dir.name)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = 0
        self._told = ""

    def wake(self) -> None:
        """Let everything new be copied. Never waits: a process that is busy looks again when it is done."""
        self._requests += 1
        with suppress(OSError, ValueError):
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            os.write(self._process.stdin.fileno(), f"{self._requests}\n".encode())

    def problem(self) -> str:
        """What went wrong since it was asked last; empty where nothing did, or it was told already."""
        error = Ledger.read(self.run_dir, self.url).error if self._process is not None else ""
        is_new = bool(error) and error != self._told
        self._told = error
        return error if is_new else ""

    def finish(
        self, is_stopped: Callable[[], bool] = lambda: False, waiting: Callable[[str], None] = lambda _: None
    ) -> MirrorReport:
        """Copy the rest, as long as the store takes any, and say what it has not got.

        `is_stopped`: somebody wants the program to end; `waiting` is told once where this takes more than a second.
        """
        self.wake()
        last, sent, is_told = time.monotonic(), (-1, -1), False
        began, hurried = last, is_stopped()
        ledger = Ledger.read(self.run_dir, self.url)
        while self._process is not None and self._process.poll() is None:
            ledger = Ledger.read(self.run_dir, self.url)
            now = time.monotonic()
            if ledger.request == self._requests:
                break
            if now - began > 1 and not is_told:
                waiting(f"copying what is left to {self.url}; Ctrl-C leaves it for the next resume")
                is_told = True
            if (ledger.sent, len(ledger.missing)) != sent:
                last, sent = now, (ledger.sent, len(ledger.missing))
            elif now - last > STALLED_SECONDS:
                break
            if (hurried and now - began > INTERRUPTED_SECONDS) or (is_stopped() and not hurried):
                break
            time.sleep(_LOOKED_SECONDS)
        self.close()
        missing = [name for name in mirrored_files(self.run_dir) if not _is_copied(self.run_dir, name, ledger)]
        error = ledger.error
        if missing and not error and ledger.request != self._requests:
            error = "the store takes nothing" if time.monotonic() - last > STALLED_SECONDS else ""
        return MirrorReport(self.url, tuple(missing), error)

    def close(self) -> None:
        """End the process, whatever it is doing; its ledger says where to go on."""
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):
                self._process.communicate()
            self._process = None

    def _start(self) -> None:
        command = f"import sys; sys.path[:] = {sys.path!r}; from linnet.runs.mirroring import main; main(*sys.argv[1:])"
        words = [sys.executable, "-c", command, str(self.run_dir.absolute()), self.url]
        quiet = subprocess.DEVNULL
        # Of its own session: Ctrl-C is the training's to handle.
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)


def _is_copied(run_dir: Path, name: str, ledger: Ledger) -> bool:
    with suppress(OSError):
        facts = (run_dir / name).lstat()
        return ledger.copied.get(name) == (facts.st_size, facts.st_mtime_ns)
    return True  # removed meanwhile: nothing is missing


class NoRunError(LinnetError):
    """There is no run at a place of a store."""


def fetch_run(url: str, root: Path, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """Bring a run back from a mirror (`s3://bucket/runs/x`) into a folder of runs; it appears there whole."""
    store = Store(url)
    files = store.files()
    if MANIFEST not in files:
        raise NoRunError(f"{url}: there is no run here: expected {MANIFEST} in it")
    target = root / url.rstrip("/").rpartition("/")[2]
    if target.exists():
        raise LinnetError(f"{url}: a run of this name is in {root} already: go on with {target}")
    total, done = sum(file.size for file in files.values()), 0
    root.mkdir(parents=True, exist_ok=True)
    staged = staged_name(target)
    try:
        for name, file in sorted(files.items()):
            if not _is_inside(name):
                raise LinnetError(f"{url}: it holds a file with a strange name, {name[:80]!r}")
            store.download(name, staged / name)
            done += file.size
            if progress is not None:
                progress("fetching", done, total)
        try:
            staged.rename(target)
        except OSError:
            if not (target / MANIFEST).exists():  # else another process has fetched it meanwhile
                raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return target


def _is_inside(name: str) -> bool:
    """Whether a path from a store stays below the folder it is fetched into."""
    parts = name.split("/")
    return not name.startswith("/") and not any(part in ("", ".", "..") or "\\" in part for part in parts)
