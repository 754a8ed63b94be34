"""The machine a run trains on: bars with their history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from linnet.board.host import HISTORY, describe, is_here, logged
from linnet.board.plot import BLOCKS, sparkline
from linnet.board.terminal.spans import Line, cells, centered, fill, pad, safe
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.board.words import number, size
from linnet.runs.straggler import SLOW

Past = Callable[[str], list[float]]  # the last readings of a figure
_GPU = re.compile(r"sys/gpu([0-9]{1,3})/")
_RANK = re.compile(r"sys/rank([0-9]{1,5})/")
_UNITS = {"tokens": "tok", "images": "images"}
_CORE = 20  # columns of a core's bar


@dataclass(frozen=True)
class Gauge:
    """A figure: its readings, the latest as text, and of what it is a share, where it is one.

    `part`: of the same measure, drawn inside the bar: the system's share of the CPU.
    """

    title: str
    past: list[float]
    text: str
    most: float | None = None
    part: list[float] | None = None


def draw(board: Board, width: int, height: int) -> list[Line]:
    watched = board.watched
    if watched is None:
        return centered("no run is open", width, height)
    lines: list[Line] = [[(" ", ""), *_machine(watched)], []]
    title, text = 14, 24
    graph = max(6, min(60, (width - title - text - 6) // 2)) if width >= 70 else 0
    bar = max(8, min(48, width - title - text - graph - 6))
    for gauge in gauges(board, watched):
        lines.append([(" ", ""), (pad(gauge.title, title), "dim")])
        lines[-1] += _bar(gauge, bar) if gauge.most else [(" " * bar, "")]
        lines[-1] += [("  ", ""), (pad(gauge.text, text), "")]
        if graph:
            lines[-1] += [(" ", ""), (_graph(gauge, graph), "graph")]
    lines += _ranks(watched, width)
    if board.host.cores and is_here(watched):
        lines += [[], [(" cores", "group")], *_cores(board.host.cores, width)]
    if len(lines) == 2:
        lines.append([(" this run has logged no figures of its machine", "dim")])
    offset = board.scroll["system"] = min(board.scroll.get("system", 0), max(0, len(lines) - height))
    return fill(lines[offset:], width, height)


def panel(board: Board, width: int, height: int) -> list[Line]:
    """The same beside the charts, each figure in two lines."""
    watched = board.watched
    if watched is None:
        return fill([], width, height)
    lines: list[Line] = [[(" machine ", "group"), ("─" * (width - 9), "faint")]]
    for gauge in gauges(board, watched):
        if len(lines) + 2 > height - 1:
            break
        room = width - cells(gauge.title) - 1
        lines.append([(gauge.title, "dim"), (" ", ""), (pad(gauge.text, room, right=True), "")])
        lines.append(_bar(gauge, width) if gauge.most else [(_graph(gauge, width), "graph")])
    if len(lines) == 1:
        lines.append([("no figures logged", "dim")])
    return fill([*lines, _machine(watched)], width, height)


def gauges(board: Board, watched: WatchedRun) -> list[Gauge]:
    """Every figure there is of the machine: as the run logged them and, when it trains here, live from this one."""
    is_of_this_machine = is_here(watched) and bool(board.host.past("sys/cpu/percent"))

    def past(name: str) -> list[float]:
        return (logged(watched, f"sys/{name}") + (board.host.past(f"sys/{name}") if is_of_this_machine else []))[
            -HISTORY:
        ]

    gpus = {int(match[1]) for name in watched.history.names() if (match := _GPU.match(name))}
    if is_of_this_machine:
        gpus |= {index for index in range(16) if board.host.past(f"sys/gpu{index}/percent")}
    return [*_processor(past), *_memory(past), *_disk_and_net(past), *(g for i in sorted(gpus) for g in _gpu(past, i))]


def _figure(
    past: Past, name: str, title: str, text: Callable[[float], str], most: float | None = None
) -> Iterator[Gauge]:
    if readings := past(name):
        yield Gauge(title, readings, text(readings[-1]), most)


def _used(past: Past, name: str, title: str) -> Iterator[Gauge]:
    """Bytes in use of those there are."""
    used, total = past(f"{name}used"), past(f"{name}total")
    if used and total and total[-1] > 0:
        yield Gauge(title, used, f"{size(used[-1])} of {size(total[-1])}", total[-1])


def _percent(share: float) -> str:
    return f"{share:.0f} %"


def _processor(past: Past) -> Iterator[Gauge]:
    user, system, whole = past("cpu/user"), past("cpu/system"), past("cpu/percent")
    if not whole and user:
        whole = [u + s for u, s in zip(user, system, strict=False)] or user
    if whole:
        parts = f"user {user[-1]:.0f} + system {system[-1]:.0f} %" if user and system else _percent(whole[-1])
        yield Gauge("CPU", whole, parts, 100.0, system)
    yield from _figure(past, "process/cpu", "process CPU", _percent)


def _memory(past: Past) -> Iterator[Gauge]:
    for name in ("memory", "swap"):
        in_bytes = [*_used(past, f"{name}/", name)]
        yield from in_bytes or _figure(past, f"{name}/percent", name, _percent, 100.0)
    total = past("memory/total")
    yield from _figure(past, "process/rss", "process RSS", size, total[-1] if total else None)


def _disk_and_net(past: Past) -> Iterator[Gauge]:
    free = past("disk/free")
    yield from _figure(past, "disk/percent", "disk", lambda v: f"{size(free[-1])} free" if free else _percent(v), 100.0)
    yield from _figure(past, "disk/busy", "disk busy", _percent, 100.0)
    rates = {"disk/read_bps": "disk read", "disk/write_bps": "disk write"}
    for name, title in (rates | {"net/recv_bps": "net in", "net/sent_bps": "net out"}).items():
        yield from _figure(past, name, title, lambda rate: f"{size(rate)}/s")


def _gpu(past: Past, index: int) -> Iterator[Gauge]:
    name, title = f"gpu{index}", f"GPU {index}"
    yield from _figure(past, f"{name}/percent", title, _percent, 100.0)
    yield from _used(past, f"{name}/memory_", f"{title} memory")
    yield from _figure(past, f"{name}/power", f"{title} power", lambda watts: f"{number(watts, 3)} W")
    yield from _figure(past, f"{name}/temperature", f"{title} heat", lambda degrees: f"{degrees:.0f} °C", 100.0)


def _machine(watched: WatchedRun) -> Line:
    machine = safe(describe(watched.summary.manifest) or "an unknown machine", 40)
    return [(machine, ""), (" · this machine, live" if is_here(watched) else " · as the run logged it", "dim")]


def _bar(gauge: Gauge, width: int) -> Line:
    """Filled as far as it is used; red above 80 %, yellow above 50 %, as kaun-board has it."""
    most = gauge.most or 1.0
    share = min(1.0, max(0.0, gauge.past[-1] / most))
    style = "bar.high" if share > 0.8 else "bar.warn" if share > 0.5 else "bar.ok"
    filled = round(share * width)
    inner = min(filled, round(gauge.part[-1] / most * width)) if gauge.part else 0
    return [("━" * (filled - inner), style), ("━" * inner, "bar.system"), ("─" * (width - filled), "bar.empty")]


def _graph(gauge: Gauge, width: int) -> str:
    """The past of a figure, the present at the right end; of a share, on the scale of the whole."""
    past = gauge.past[-width:]
    if gauge.most:
        drawn = "".join(BLOCKS[min(7, max(0, int(value / gauge.most * 8)))] for value in past)
    else:
        drawn = sparkline(past, width) if max(past, default=0.0) > 0 else BLOCKS[0] * len(past)
    return f"{drawn:>{width}}"


def _ranks(watched: WatchedRun, width: int) -> list[Line]:
    """A line for each rank of a training by several: its own speed, how much it works, what it takes; who is slow."""
    ranks = sorted({int(match[1]) for name in watched.history.names() if (match := _RANK.match(name))})
    hosts = watched.summary.manifest.provenance.get("hosts")
    lines: list[Line] = []
    for rank in ranks:
        named = isinstance(hosts, list) and rank < len(hosts)
        host = safe(str(hosts[rank]), 16) if isinstance(hosts, list) and named else ""
        lines.append([(" ", ""), (pad(f"rank {rank} {host}".rstrip(), 14), "dim")])
        lines[-1] += _rank_figures(watched, rank, max(8, min(24, width - 70)))
    return [[], [(" ranks", "group")], *lines] if lines else []


def _rank_figures(watched: WatchedRun, rank: int, bar: int) -> Line:
    def last(name: str) -> float | None:
        return next(reversed(logged(watched, f"sys/rank{rank}/{name}")), None)

    unit, speed = next(((unit, value) for unit in _UNITS if (value := last(f"{unit}_per_s")) is not None), ("", None))
    busy, slowdown = last("busy_percent"), last("slowdown")
    facts = [] if speed is None else [f"{number(speed, 3)} {_UNITS[unit]}/s"]
    facts += [] if busy is None else [f"busy {busy:.0f} %"]
    facts += [] if (memory := last("rss")) is None else [size(memory)]
    facts += [] if (gpu := last("gpu_percent")) is None else [f"GPU {gpu:.0f} %"]
    facts += [] if (held := last("gpu_memory_used")) is None else [size(held)]
    slow = slowdown is not None and slowdown > SLOW
    drawn = [] if busy is None else [*_bar(Gauge("", [busy], "", 100.0), bar), ("  ", "")]
    return [*drawn, (" · ".join(facts), ""), (f" · slow, {slowdown:.1f} ×", "status.errored") if slow else ("", "")]


def _cores(shares: list[float], width: int) -> list[Line]:
    """A short bar for each core."""
    lines: list[Line] = []
    across = max(1, (width - 1) // _CORE)
    for begin in range(0, len(shares), across):
        lines.append([(" ", "")])
        for index, share in enumerate(shares[begin : begin + across], begin):
            lines[-1] += [(f"{index:>4} ", "dim"), *_bar(Gauge("", [share], "", 100.0), _CORE - 7), ("  ", "")]
    return lines
