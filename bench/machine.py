"""The machine under the benchmarks: what it is, who else is using it, how much memory this process has."""

import os
import platform
import resource
import sys
import time
from pathlib import Path
from types import TracebackType

_STATUS = Path("/proc/self/status")


def describe() -> str:
    """One line: processor, cores, memory, system, Python. No names of hosts or folders."""
    import psutil

    memory = psutil.virtual_memory().total / 2**30
    system = platform.system()
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {system} {kernel}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def memory_now() -> int:
    """Resident bytes of this process. (Where /proc is missing: the peak, which is never less.)"""
    return _status_bytes("VmRSS") or memory_peak()


def memory_peak() -> int:
    """The most resident bytes this process has had.

    Not `ru_maxrss` on Linux: a child inherits there the size of the process that started it.
    """
    peak = _status_bytes("VmHWM")
    if peak:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status_bytes(field: str) -> int:
    if not _STATUS.exists():
        return 0
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


class ForeignLoad:
    """Measures, around a block, how many cores other people's processes kept busy meanwhile.

    Everything the machine did, less what this process and the children it has waited for did. Time that
    a hypervisor took away counts as foreign too.
    """

    cores: float = 0.0

    def __enter__(self) -> "ForeignLoad":
        self._wall, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall = time.monotonic() - self._wall
        foreign = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        # The kernel counts the machine's time in ticks of 10 ms; nothing can be said of a shorter block.
        self.cores = max(0.0, foreign - 0.02) / wall if wall > 0.05 else 0.0


def _busy_seconds() -> float:
    import psutil

    times = psutil.cpu_times()._asdict()
    # `guest` is already inside `user`.
    return sum(v for k, v in times.items() if k not in ("idle", "iowait", "guest", "guest_nice"))


def _own_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
