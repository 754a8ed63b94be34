"""`RankMonitor`: a thread of each of several ranks that tells the others that it lives, how fast it is, what it takes.

What it says lies in the store by which the ranks have met, so nothing of it is in the way of a step. When a collective
fails, the others' last words tell who is gone; when no step comes to an end, the thread itself says so.
"""

from __future__ import annotations

import faulthandler
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil
import torch.distributed as dist

from linnet.errors import LinnetError, error_text
from linnet.runs import Session
from linnet.runs.straggler import slowdowns
from linnet.runs.system import GpuProbe
from linnet.train.process import abandon_thread
from linnet.train.protocols import RunData
from linnet.train.ranks import RankError, RankLostError, Ranks, group_timeout
from linnet.train.settings import TrainSettings

_BEAT_SECONDS = 1.0  # between two signs of life
_SILENT_SECONDS = 3.5  # without one, and a rank is gone
_STORE_SECONDS = 3.0  # that the store may take to answer
_JOIN_SECONDS = 3 * _STORE_SECONDS  # that the thread may take to end
_FIGURE_SECONDS = 5.0  # between two readings of a rank's figures
_MANY = 16  # ranks from which on they are logged less often, so that a stream does not grow with their number
_SLOW_STEPS = 10  # times the usual step, and a step hangs
_FAREWELL_SECONDS = 1.5  # that a failed rank waits for the others to hear why; rank 0 takes the store with it


@dataclass(frozen=True)
class _Beat:
    count: int
    step: int


class RankMonitor:
    """Watches the ranks of a training while its `with` block runs.

    - `work`: tokens or images of this rank in a step; `unit`: which of them.
    - `figures_of_device`: what this rank takes of its GPU, in the words of `system` events.
    - `hang_seconds`: without a step for so long, the process is ended; `on_hang` is given the line that says why.
    """

    def __init__(
        self,
        ranks: Ranks,
        *,
        work: int,
        unit: str,
        figures_of_device: Callable[[], dict[str, float]],
        hang_seconds: float,
        on_hang: Callable[[str], None],
    ) -> None:
        self._ranks, self._work, self._unit = ranks, work, unit
        self._figures_of_device, self._on_hang = figures_of_device, on_hang
        self._hang_seconds = hang_seconds
        self._process = psutil.Process()
        self._step, self._stepped_at, self._pauses = 0, time.monotonic(), 1  # until the first step is done
        self._seconds: list[float] = []  # of the steps since the last reading
        self._usual = 0.0  # seconds of a step
        self._waited = 0.0
        self._logged_at = -_FIGURE_SECONDS
        self._failure: tuple[int, str] | None = None  # the rank that failed and said why
        self._pids = ranks.gather(os.getpid())
        key = ranks.first(f"linnet/{os.getpid()}/{time.time_ns()}")  # a store may outlive a rank that is started again
        self._store = dist.distributed_c10d.PrefixStore(key, _own_connection())
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="linnet-ranks", daemon=True)

    def __enter__(self) -> RankMonitor:
        self._put("beat", "0 0")
        self._put("figures", "{}")
        self._ranks.wait()  # so that nobody asks for what is not there yet
        self._ranks.explain_loss = self.explain
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ranks.explain_loss = None
        self._stopping.set()
        self._thread.join(timeout=_JOIN_SECONDS)
        if self._thread.is_alive():  # waiting for a store that is gone, and does not say so
            abandon_thread(self._thread)

    def stepped(self, step: int, seconds: float) -> None:
        """A step has come to an end, on the device too."""
        self._step, self._stepped_at = step, time.monotonic()
        self._seconds.append(seconds)
        if self._pauses and len(self._seconds) == 1 and self._usual == 0.0:
            self._pauses -= 1  # the first one, which may have been compiled for minutes
        self._usual = seconds if self._usual == 0.0 else 0.9 * self._usual + 0.1 * seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """An evaluation or a sample may take longer than any step."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self._stepped_at = time.monotonic()

    # -- figures ------------------------------------------------------------------------------------------------------

    def read_all(self) -> list[dict[str, Any]]:
        """The latest figures of every rank, for a `system` event; empty while it is too early for the next ones."""
        now = time.monotonic()
        if now - self._logged_at < _FIGURE_SECONDS * self._ranks.count / _MANY:
            return []
        self._logged_at = now
        try:
            texts = self._store.multi_get([f"figures/{rank}" for rank in range(self._ranks.count)])
            reports: list[dict[str, Any]] = [json.loads(text) for text in texts]
        except (RuntimeError, ValueError):  # the store is gone, and with it the group: the loop meets that too
            return []
        busy = {rank: figures["busy_us"] for rank, figures in enumerate(reports) if figures.get("busy_us")}
        ratios = slowdowns(busy)
        return [
            {"rank": rank, "host": self._ranks.hosts[rank], **figures, **_if("slowdown", ratios.get(rank))}
            for rank, figures in enumerate(reports)
            if figures
        ]

    def system_figures(self) -> dict[str, Any]:
        """What is added to a `system` event."""
        ranks = self.read_all()
        return {"ranks": ranks} if ranks else {}

    def _own_figures(self) -> dict[str, float]:
        """This rank's: how long it works in a step, and how much of the time it does not wait for others."""
        seconds, self._seconds = self._seconds, []
        waited, before = self._ranks.waits.seconds(), self._waited
        self._waited = waited
        figures: dict[str, float] = {"cpu": round(self._process.cpu_percent(), 2)}
        figures["rss"] = self._process.memory_info().rss
        if seconds:
            step = statistics.fmean(seconds)
            busy = max(0.02 * step, step - (waited - before) / len(seconds))
            figures["busy_us"] = round(1e6 * busy)
            figures["busy_percent"] = round(100 * busy / step, 1)
            figures[f"{self._unit}_per_s"] = round(self._work / busy, 1)
        return figures | self._figures_of_device()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        count, figures_at = 0, time.monotonic() + _BEAT_SECONDS
        while not self._stopping.wait(_BEAT_SECONDS):
            count += 1
            self._put("beat", f"{count} {self._step}")
            self._hear_failure()
            if self._stopping.is_set():
                return
            if time.monotonic() >= figures_at:
                figures_at = time.monotonic() + _FIGURE_SECONDS
                with suppress(Exception):  # a figure is never worth a training
                    self._put("figures", json.dumps(self._own_figures()))
            silent = time.monotonic() - self._stepped_at
            if not self._pauses and silent > max(self._hang_seconds, _SLOW_STEPS * self._usual):
                self._end_hang(silent)

    def tell_failure(self, why: str) -> None:
        """Let the other ranks know why this one ends."""
        with suppress(RuntimeError):
            self._store.set("failure", json.dumps([self._ranks.rank, why]))
            time.sleep(_FAREWELL_SECONDS)

    def _hear_failure(self) -> None:
        with suppress(RuntimeError, ValueError):
            if self._failure is None and self._store.check(["failure"]):
                rank, why = json.loads(self._store.get("failure"))
                self._failure = int(rank), str(why)

    def _put(self, name: str, text: str) -> None:
        with suppress(RuntimeError):  # the store is gone
            self._store.set(f"{name}/{self._ranks.rank}", text)

    def _end_hang(self, silent: float) -> None:
        """No step comes to an end, and no collective says why: show where every thread stands, and end the process."""
        _, why = self.explain(f"no step for {silent:.0f} s")
        line = f"{self._ranks.name(self._ranks.rank)} has had no step for {silent:.0f} s after step {self._step}: {why}"
        with suppress(OSError, ValueError):
            faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
            print(f"linnet: {line}", file=sys.stderr, flush=True)
        ending = threading.Thread(target=self._on_hang, args=(line,), daemon=True)
        ending.start()
        ending.join(timeout=10)
        os._exit(RankLostError.exit_code)

    # -- who is gone --------------------------------------------------------------------------------------------------

    def explain(self, problem: str) -> tuple[bool, str]:
        """Who is gone or hangs, as far as it can be told; and whether this rank is the one to say it."""
        ranks = self._ranks
        if not self._is_dead_here(0):  # else the store is gone too, and every question to it takes seconds
            self._hear_failure()
        if self._failure is not None and self._failure[0] != ranks.rank:
            return ranks.is_first, f"{ranks.name(self._failure[0])}: {self._failure[1]}"
        lost = self._gone()
        speaks = ranks.rank == min((rank for rank in range(ranks.count) if rank not in lost), default=ranks.rank)
        if lost:
            names = ", ".join(ranks.name(rank) for rank in sorted(lost)[:3])
            verb = f" and {len(lost) - 3} more are" if len(lost) > 3 else " are" if len(lost) > 1 else " is"
            return speaks, f"{names}{verb} gone after step {self._step}; the last checkpoint stands"
        behind = self._behind()
        if behind is not None:
            rank, step = behind
            return speaks, f"{ranks.name(rank)} hangs after step {step}; the last checkpoint stands"
        return speaks, f"a rank does not answer after step {self._step} ({problem}); the last checkpoint stands"

    def _gone(self) -> set[int]:
        """The ranks that give no sign of life: those of this machine are seen at once."""
        dead = {rank for rank in range(self._ranks.count) if self._is_dead_here(rank)}
        if dead:
            return dead
        before = self._beats()
        deadline = time.monotonic() + _SILENT_SECONDS
        while before is not None and time.monotonic() < deadline:
            time.sleep(0.25)
        now = self._beats()
        if before is None or now is None:
            return {0} - {self._ranks.rank}  # the store is in its process
        silent = {rank for rank in now if now[rank].count == before[rank].count}
        return silent - {self._ranks.rank} if len(silent) < self._ranks.count else set()

    def _is_dead_here(self, rank: int) -> bool:
        if rank == self._ranks.rank or self._ranks.hosts[rank] != self._ranks.hosts[self._ranks.rank]:
            return False
        try:
            return psutil.Process(self._pids[rank]).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False

    def _behind(self) -> tuple[int, int] | None:
        """The rank that has come less far than the others, and how far."""
        beats = self._beats() or {}
        steps = {rank: beat.step for rank, beat in beats.items()}
        if not steps or min(steps.values()) == max(steps.values()):
            return None
        rank = min(steps, key=lambda rank: steps[rank])
        return rank, steps[rank]

    def _beats(self) -> dict[int, _Beat] | None:
        try:
            texts = self._store.multi_get([f"beat/{rank}" for rank in range(self._ranks.count)])
        except RuntimeError:
            return None
        return {rank: _Beat(*map(int, text.split())) for rank, text in enumerate(texts)}


@contextmanager
def watched(ranks: Ranks, run: Session, data: RunData, settings: TrainSettings) -> Iterator[RankMonitor]:
    """Ranks that watch each other while the block runs; what ends one of them by an exception is told to the others."""
    patience = 60 * settings.rank_timeout if settings.rank_timeout is not None else group_timeout()
    monitor = RankMonitor(
        ranks,
        work=data.per_step // ranks.count,
        unit=data.unit,
        figures_of_device=_device_probe(),
        hang_seconds=1.25 * patience + 30,  # a collective that is waited for in vain says so itself, before
        on_hang=lambda line: run.finish("errored", line, RankLostError.exit_code),
    )
    if ranks.is_first:
        run.manifest.provenance["hosts"] = ranks.hosts
        run.manifest.write(run.run_dir)
    with monitor:
        if ranks.is_first:
            run.more_system_figures = monitor.system_figures
        try:
            yield monitor
        except RankError:
            raise
        except BaseException as problem:
            first_line = (error_text(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
            kind = "" if isinstance(problem, LinnetError) else f"{type(problem).__name__}: "
            monitor.tell_failure(f"{kind}{first_line}")
            raise
        finally:
            run.more_system_figures = dict


def _device_probe() -> Callable[[], dict[str, float]]:
    """What this rank takes of its GPU; nothing where it has none."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return dict
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return GpuProbe(f"GPU-{uuid}").figures if uuid is not None else dict


def _own_connection() -> Any:
    """The group's store by a connection of its own: another thread's question would wait behind a long one."""
    store = dist.distributed_c10d._get_default_store()
    if hasattr(store, "clone"):
        store = store.clone()
        store.set_timeout(timedelta(seconds=_STORE_SECONDS))
    return store


def _if(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: value}
