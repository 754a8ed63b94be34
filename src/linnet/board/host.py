"""`Host`: figures of this machine, for a run that trains on it; and a run's own figures in the same words."""

from __future__ import annotations

import time
from collections import deque

import psutil

from linnet.board.watched_run import WatchedRun
from linnet.runs import Manifest, provenance
from linnet.runs.events import to_event
from linnet.runs.metric_names import MUNIN_SYSTEM, rows
from linnet.runs.system import SystemProbe

_EVERY = 1.0  # seconds between two readings
HISTORY = 120  # readings that are kept


class Host:
    """Reads this machine once a second, while asked to. One thread calls `read`; `past` is for others to show."""

    def __init__(self) -> None:
        self.cores: list[float] = []
        self._past: dict[str, deque[float]] = {}
        self._probe: SystemProbe | None = None
        self._pid: int | None = None  # the run's process, where it is known
        self._logged_pid: object = None
        self._read_at = -_EVERY

    def read(self, watched: WatchedRun) -> bool:
        """Take the figures again when it is time, for a run that trains on this machine."""
        now = time.monotonic()
        if not is_here(watched) or now - self._read_at < _EVERY:
            return False
        pid = watched.summary.manifest.provenance.get("pid")
        if self._probe is None or pid != self._logged_pid:
            self._past, self._logged_pid = {}, pid
            self._pid = pid if isinstance(pid, int) and 0 < pid < 2**31 and psutil.pid_exists(pid) else None
            self._probe = SystemProbe(watched.run.path, self._pid)
            psutil.cpu_percent(percpu=True)
            self._read_at = now
            return False
        self._read_at = now
        try:
            figures = self._probe.figures()
        except psutil.Error:  # the process has ended meanwhile
            self._probe = None
            return False
        if self._pid is None:
            del figures["process"]  # it would be the board's own
        self.cores = [float(share) for share in psutil.cpu_percent(percpu=True)]
        for name, value in rows(to_event({"kind": "system", **figures})):
            self._past.setdefault(name, deque(maxlen=HISTORY)).append(value)
        return True

    def past(self, name: str) -> list[float]:
        return list(self._past.get(name, ()))


def is_here(watched: WatchedRun) -> bool:
    """Does this run train on this machine, now? By boot id; by the host's name where there is none."""
    if watched.status != "live":
        return False
    machine = watched.summary.manifest.provenance
    if machine.get("boot_id") and provenance.boot_id():
        return bool(machine["boot_id"] == provenance.boot_id())
    return bool(machine.get("host")) and machine.get("host") == provenance.host()["name"]


def logged(watched: WatchedRun, name: str) -> list[float]:
    """The last readings of a figure that the run itself has logged."""
    curve, scale = watched.history.curve(name), 1.0
    if curve is None:
        munin_name, scale = MUNIN_SYSTEM.get(name, ("", 1.0))
        curve = watched.history.curve(munin_name)
    return [] if curve is None else [float(value) * scale for value in curve.mean[-HISTORY:] if value == value]


def describe(manifest: Manifest) -> str:
    """The machine a run trains on, in a word."""
    return str(manifest.provenance.get("host") or manifest.provenance.get("hostname") or "")
