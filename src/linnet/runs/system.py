"""Figures of the machine a run trains on: CPU, memory, process, disk, network, each NVIDIA GPU."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil


class SystemProbe:
    """Reads the figures; rates are taken between two readings.

    - `folder` names the disk that is watched.
    - `pid`: the process; this one by default.
    """

    def __init__(self, folder: Path, pid: int | None = None) -> None:
        self._folder = folder
        self._process = psutil.Process(pid)
        self._process.cpu_percent()
        self._cpu = psutil.cpu_times()
        self._counters = _counters()
        self._at = time.monotonic()
        self._gpus = _open_gpus()

    def figures(self) -> dict[str, Any]:
        """One reading, in the words of the `system` event: percent, bytes, bytes a second, watts, degrees Celsius."""
        now = time.monotonic()
        seconds, self._at = max(now - self._at, 1e-3), now
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        used = memory.total - memory.available
        figures: dict[str, Any] = {
            "cpu": self._cpu_shares(),
            "memory": {"used": used, "total": memory.total, "percent": memory.percent},
            "process": self._process_figures(),
            "disk": {},
        }
        if swap.total:
            figures["swap"] = {"used": swap.used, "total": swap.total, "percent": swap.percent}
        with suppress(OSError):
            disk = psutil.disk_usage(str(self._folder))
            figures["disk"] = {"free": disk.free, "total": disk.total, "percent": disk.percent}
        before, self._counters = self._counters, _counters()
        for (part, name), count in self._counters.items():
            if (part, name) in before:
                rate = (count - before[part, name]) / seconds
                figures.setdefault(part, {})[name] = round(max(0.0, rate), 1)
        if self._gpus:
            figures["gpus"] = [_gpu_figures(index, gpu) for index, gpu in enumerate(self._gpus)]
        return figures

    def _cpu_shares(self) -> dict[str, float]:
        before, self._cpu = self._cpu, psutil.cpu_times()
        spent = {name: getattr(self._cpu, name) - getattr(before, name) for name in self._cpu._fields}
        total = sum(max(0.0, s) for name, s in spent.items() if name not in ("guest", "guest_nice")) or 1.0
        user = spent["user"] + spent.get("nice", 0.0)
        busy = total - spent["idle"] - spent.get("iowait", 0.0)
        shares = {"percent": busy, "user": user, "system": spent["system"]}
        return {name: round(min(100.0, max(0.0, 100 * s / total)), 2) for name, s in shares.items()}

    def _process_figures(self) -> dict[str, float]:
        with self._process.oneshot():
            return {
                "cpu": round(self._process.cpu_percent(), 2),
                "rss": self._process.memory_info().rss,
                "threads": self._process.num_threads(),
            }


class GpuProbe:
    """Reads one GPU, by its UUID: of several ranks each has its own."""

    def __init__(self, uuid: str) -> None:
        self._gpu: Any = None
        with suppress(Exception):  # no driver, or a card that does not answer: no figures
            import pynvml

            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def figures(self) -> dict[str, float]:
        """One reading: `gpu_percent`, `gpu_memory_used` …"""
        read = {} if self._gpu is None else _gpu_figures(0, self._gpu)
        return {
            f"gpu_{name}": value for name, value in read.items() if isinstance(value, int | float) and name != "index"
        }


def _counters() -> dict[tuple[str, str], int]:
    """Counters whose growth is worth showing. A container may have none of them."""
    counters: dict[tuple[str, str], int] = {}
    with suppress(OSError, RuntimeError, NotImplementedError):
        if disk := psutil.disk_io_counters():
            counters |= {("disk", "read_bps"): disk.read_bytes, ("disk", "write_bps"): disk.write_bytes}
        if net := psutil.net_io_counters():
            counters |= {("net", "recv_bps"): net.bytes_recv, ("net", "sent_bps"): net.bytes_sent}
    return counters


def _open_gpus() -> list[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no driver, no card, or a card that does not answer: none to show
        return []


def _gpu_figures(index: int, gpu: Any) -> dict[str, Any]:
    import pynvml

    def ask(question: Any, *arguments: Any) -> Any:
        try:
            return question(gpu, *arguments)
        except pynvml.NVMLError:  # each figure on its own: some cards lack some of them
            return None

    name = ask(pynvml.nvmlDeviceGetName)
    figures: dict[str, Any] = {"index": index, "name": name.decode() if isinstance(name, bytes) else name}
    if (use := ask(pynvml.nvmlDeviceGetUtilizationRates)) is not None:
        figures["percent"] = use.gpu
    if (memory := ask(pynvml.nvmlDeviceGetMemoryInfo)) is not None:
        figures |= {"memory_used": int(memory.used), "memory_total": int(memory.total)}
    if (milliwatts := ask(pynvml.nvmlDeviceGetPowerUsage)) is not None:
        figures["power"] = milliwatts / 1000
    if (degrees := ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)) is not None:
        figures["temperature"] = degrees
    return figures
