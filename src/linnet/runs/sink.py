"""`Sink`, the append end of an event stream, and `Upkeep`, the thread that looks after it.

Each event is one `write(2)` of a whole line before `append` returns, so a killed process loses nothing it logged.
A disk that fails never reaches the training loop: lines are held in bounded memory and written when it works again.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linnet import files
from linnet.runs.encode import encode_lines, jsonable_record
from linnet.runs.folder import claim_named
from linnet.runs.lines import ends_inside_a_line

_RETRY_SECONDS = 1.0

# Looked up once: append is called at every step of somebody's training.
_now = time.monotonic_ns
_write = os.write

log = logging.getLogger("linnet")


class Sink:
    """One writer of one `events.jsonl`.

    - `path`: the stream; created when missing, appended to when there.
    - `start_t`: the `t` at which the clock goes on (a resumed run continues the time it had).
    - `remade`: called with the folder when it had to be made again, to put back what else belongs in it.

    `lock`, `origin`, `out` and `hold_rest` are open to `Session.log`, which has the body of `append` written out.
    """

    hold_bytes = 32 << 20  # of lines that are kept in memory while the disk refuses

    def __init__(self, path: Path, *, start_t: float = 0.0, remade: Callable[[Path], None] | None = None) -> None:
        self.path = path
        self.locked: bool | None = None  # False: another writer has the stream
        self.lost = 0
        self.closed = False
        self._lost_told = 0
        self._remade = remade
        self.origin = _now() - round(start_t * 1e9)
        self.lock = threading.RLock()
        self._fd = -1
        self.out = -1  # the descriptor while lines go straight to the file; -1 while any is held
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._torn: tuple[int, int] | None = None  # the first held line was cut short: bytes written, file size then
        self._draining = False
        self._next_try = 0.0
        self._refused = self._sync_refused = self._moved = False
        self._synced_size = -1
        self._owner = os.getpid()
        try:
            self._fd = self.out = self._open(self.path)
        except OSError as error:
            self._refuse(error)
        _sinks.add(self)

    @property
    def active(self) -> bool:
        """Events are reaching the file."""
        return self.out >= 0

    def append(self, record: dict[str, Any]) -> None:
        """Write one event. Sets its `t`. Never raises on account of the disk or of the values in it."""
        with self.lock:
            record["t"] = (_now() - self.origin) / 1e9
            try:
                line = encode_lines([record])
            except Exception:  # a value msgspec has no form for; the careful way knows one for everything
                line = encode_lines([jsonable_record(record)])
            self._write(line)

    def append_lines(self, records: Sequence[dict[str, Any]], encode: Callable[[dict[str, Any]], bytes]) -> None:
        """Write many events by one call of the system, encoded by `encode`; all get the same `t`."""
        with self.lock:
            t = (_now() - self.origin) / 1e9
            for record in records:
                record["t"] = t
            self._write(b"".join(map(encode, records)))

    def _write(self, lines: bytes) -> None:
        try:
            written = _write(self.out, lines)
            if written != len(lines):
                whole = lines.rfind(b"\n", 0, written) + 1
                first, *others = lines[whole:].splitlines(keepends=True)
                self.hold_rest(first, written - whole)
                for line in others:
                    self._hold(line)
        except OSError as error:
            if self.closed:
                return
            if self.out >= 0:
                self._refuse(error)
            for line in lines.splitlines(keepends=True):
                self._hold(line)

    def sync(self) -> None:
        """Bring what was written to the disk itself (covers a power cut)."""
        try:
            if self._fd >= 0:
                os.fsync(self._fd)
        except OSError as error:
            if not self._sync_refused and not self.closed:
                self._sync_refused = True
                log.warning(
                    "%s cannot be synced (%s); a power cut may cost its end", self.path, error.strerror or error
                )

    def maintain(self) -> None:
        """Retry what is held, find a deleted folder, sync: called every second or two from a thread."""
        with self.lock:
            if self.closed:
                return
            if self._held or self._fd < 0:
                self._drain()
            self._look_for_folder()
            size = self.size()
        if size != self._synced_size:
            self.sync()
            self._synced_size = size

    def size(self) -> int:
        """Bytes in the stream; -1 while it cannot be told. Unchanged between two calls: nothing was written."""
        try:
            return os.fstat(self._fd).st_size if self._fd >= 0 else -1
        except OSError:
            return -1

    def close(self, last: dict[str, Any] | None = None) -> None:
        """Write a last event and what is still held, sync, release the lock; nothing comes behind it.

        What cannot be written goes to a rescue file.
        """
        with self.lock:
            if self.closed:
                return
            self._look_for_folder()
            if last is not None:
                self.append(last)
            if self._held:
                self._drain()
            self.sync()
            if self._held:
                self._rescue()
            elif self.lost:
                log.warning("%s: %d events were lost while the disk refused to write", self.path, self.lost)
            self.closed = True
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = self.out = -1

    def _open(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | files.BINARY
        fd = os.open(path, flags, 0o644)
        if self._owner == os.getpid():
            self.locked = files.lock(fd, wait=files.READER_SECONDS)
        if self.locked is not False and ends_inside_a_line(fd):
            os.write(fd, b"\n")  # end it, so that ours is whole
        return fd

    # -- when the disk refuses ---------------------------------------------------------------------------------------

    def _refuse(self, error: OSError) -> None:
        self._next_try = time.monotonic() + _RETRY_SECONDS
        if not self._refused:
            self._refused = True
            log.warning(
                "cannot write %s (%s); training goes on, up to %d MB of events are kept in memory and written "
                "as soon as it works again",
                self.path,
                error.strerror or error,
                self.hold_bytes >> 20,
            )

    def hold_rest(self, line: bytes, written: int) -> None:
        """Only so many bytes of a line were taken: hold it, and write the rest when there is room."""
        self._torn = (written, self.size())
        self._refuse(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._hold(line)

    def _hold(self, line: bytes) -> None:
        self.out = -1
        self._held.append(line)
        self._held_bytes += len(line)
        while self._held_bytes > self.hold_bytes and len(self._held) > 2:
            self._held_bytes -= len(self._held[1])
            del self._held[1]  # the first line may be `run_start`, without which the rest means little
            self.lost += 1
        if time.monotonic() >= self._next_try:
            self._drain()

    def _drain(self) -> None:
        """Write the held lines in order, as far as the disk lets us. What a signal handler logs meanwhile waits too."""
        if self._draining:
            return
        self._draining = True
        try:
            if self._fd < 0:
                self._fd = self._open(self.path)
                self._put_back()
            while self._held:
                self._write_held(self._held[0])
                self._held_bytes -= len(self._held.popleft())
            self.out = self._fd
            self._refused = False
        except OSError as error:
            self._refuse(error)
        finally:
            self._draining = False
        if self.out >= 0 and self.lost > self._lost_told:
            text = f"the disk refused to write for a while: {self.lost - self._lost_told} events were lost"
            self._lost_told = self.lost
            self.append({"kind": "note", "t": 0.0, "text": text, "lost_events": self.lost})

    def _write_held(self, line: bytes) -> None:
        """Write one line, or the rest of one that was cut short; when someone has written behind it, start it anew."""
        done, size_then = self._torn or (0, 0)
        is_incomplete = done > 0 and self.size() != size_then
        piece = b"\n" + line if is_incomplete else line[done:]
        written = _write(self._fd, piece)
        if written == len(piece):
            self._torn = None
            return
        self._torn = (max(0, written - 1) if is_incomplete else done + written, self.size())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _rescue(self) -> None:
        """Last resort at the end of a run: what the folder does not take is put where temporary files go."""
        lines = len(self._held)
        try:
            import tempfile

            fd, name = tempfile.mkstemp(prefix=f"linnet-{self.path.parent.name}-", suffix=".jsonl")
            with os.fdopen(fd, "wb") as file:
                file.writelines(self._held)
        except OSError:
            log.warning("%s: the last %d events could not be written and are lost", self.path, lines + self.lost)
            return
        log.warning("%s: %d events could not be written; they are in %s", self.path, lines, name)
        if self.lost:
            log.warning("%s: %d events before them are lost", self.path, self.lost)

    # -- when the folder goes away -----------------------------------------------------------------------------------

    def _look_for_folder(self) -> None:
        """A folder deleted under us is made again with all that was in its stream; a moved one is followed."""
        if self._fd < 0:
            return
        try:
            if os.fstat(self._fd).st_nlink == 0:
                self._remake()
            elif not self._moved and not self.path.exists():
                self._moved = True
                log.warning("%s is no longer there (moved?); its events go on into the file it became", self.path)
        except OSError as error:
            self._refuse(error)

    def _remake(self) -> None:
        """Copy the stream, which lives on in our descriptor, into a folder of its old name, or one beside it."""
        path = self.path
        new = self._open(path)
        if self.locked is False:  # another run has taken the name meanwhile
            os.close(new)
            path = claim_named(path.parent.parent, path.parent.name) / path.name
            new = self._open(path)
        try:
            already = files.read_at(new, os.fstat(new).st_size, 0)  # what a forked worker has logged since
            os.ftruncate(new, 0)
            _copy(self._fd, new)
            os.write(new, already)
        except OSError:
            os.close(new)
            raise
        old, self._fd, self.path = self._fd, new, path
        if self.out >= 0:
            self.out = new
        os.close(old)
        self._put_back()
        log.warning("the run's folder was deleted; it was made again as %s, with every event so far", path.parent)

    def _put_back(self) -> None:
        if self._remade is not None:
            self._remade(self.path.parent)

    def _after_fork(self) -> None:
        """In a forked child: the descriptor carries the parent's lock, so give it back and open one of our own."""
        self.lock = threading.RLock()
        self._held.clear()
        self._held_bytes = 0
        self._torn = None
        self._draining = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = self.out = -1


def _copy(source: int, target: int) -> None:
    offset = 0
    while chunk := files.read_at(source, 1 << 20, offset):
        offset += len(chunk)
        while chunk:
            chunk = chunk[os.write(target, chunk) :]


class Upkeep(threading.Thread):
    """The one background thread of a run being written, until stopped: retries, syncs, heartbeats, system figures.

    - `maintain`: called every two seconds; `size`: bytes of the stream, by which silence is noticed.
    - `heartbeat`: called when nothing was written for a while, so that readers elsewhere see that the run lives.
    - `sample`: called every `sample_seconds`, unless that is 0.
    """

    maintain_seconds = 2.0  # at most so much is lost in a power cut
    heartbeat_seconds = 20.0

    def __init__(
        self,
        maintain: Callable[[], None],
        size: Callable[[], int],
        heartbeat: Callable[[], None],
        sample: Callable[[], None],
        sample_seconds: float,
    ) -> None:
        super().__init__(name="linnet-upkeep", daemon=True)
        self._maintain = maintain
        self._size = size
        self._heartbeat = heartbeat
        self._sample = sample
        self._sample_seconds = sample_seconds if sample_seconds > 0 else math.inf
        self._stopping = threading.Event()

    def run(self) -> None:
        """Work until `stop`; nothing that fails here may reach the training process."""
        now = time.monotonic()
        next_maintain, quiet_since = now + self.maintain_seconds, now
        next_sample = now if self._sample_seconds < math.inf else math.inf
        size = self._size()
        while not self._stopping.wait(max(0.0, min(next_maintain, next_sample) - time.monotonic())):
            now = time.monotonic()
            try:
                if now >= next_sample:
                    next_sample = now + self._sample_seconds
                    self._sample()
                if now >= next_maintain:
                    next_maintain = now + self.maintain_seconds
                    if self._size() != size:
                        quiet_since = now
                    elif now - quiet_since >= self.heartbeat_seconds:
                        quiet_since = now
                        self._heartbeat()
                    size = self._size()
                    self._maintain()
            except Exception:
                log.debug("the run's background thread met an error", exc_info=True)

    def stop(self) -> None:
        """End the thread and wait for it, unless it is the one that asks."""
        self._stopping.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout=5.0)


_sinks: weakref.WeakSet[Sink] = weakref.WeakSet()


def _forked() -> None:
    for sink in list(_sinks):
        sink._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
