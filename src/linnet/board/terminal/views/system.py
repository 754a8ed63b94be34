"""The machine a run trains on: bars with their history."""

from __future__ import annotations

import re
from collections.abc import Callable

from linnet.board.host import HISTORY, describe, is_here, logged
from linnet.board.plot import sparkline
from linnet.board.terminal.spans import Line, cells, fit, foreign, put
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.board.words import number, size

Past = Callable[[str], list[float]]  # the last readings of a figure
_GPU = re.compile(r"sys/gpu([0-9]{1,3})/")


class Gauge:
    """A figure: its `past`, as a share of something where there is such a thing, and how it is said."""

    def __init__(
        self, title: str, past: list[float], text: str, most: float | None = None, part: list[float] | None = None
    ) -> None:
        self.title = title
        self.past = past
        self.text = text
        self.most = most
        self.part = part  # of the same measure, drawn inside the bar: the system's share of the CPU


def draw(board: Board, width: int, height: int) -> list[Line]:
    """The body of the system tab."""
    watched = board.watched
    if watched is None:
        return _empty("no run is open", width, height)
    lines = [fit([(" ", ""), *_where(board, watched)], width), fit([], width)]
    title = 14
    text = 24
    graph = max(6, min(60, (width - title - text - 6) // 2)) if width >= 70 else 0
    bar = max(8, min(48, width - title - text - graph - 6))
    for gauge in gauges(board, watched):
        lines.append(_line(gauge, title, bar, text, graph, width))
    if board.host.cores and is_here(watched):
        lines += [fit([], width), fit([(" cores", "group")], width), *_cores(board.host.cores, width)]
    if len(lines) == 2:
        lines.append(fit([(" this run has logged no figures of its machine", "dim")], width))
    offset = min(board.scroll.get("system", 0), max(0, len(lines) - height))
    board.scroll["system"] = offset
    lines = lines[offset : offset + height]
    return lines + [fit([], width) for _ in range(height - len(lines))]


def panel(board: Board, width: int, height: int) -> list[Line]:
    """The same beside the charts, each figure in two lines."""
    watched = board.watched
    if watched is None:
        return _empty("", width, height)
    lines: list[Line] = [fit([("─" * width, "faint")], width)]
    lines[0] = fit([(" machine ", "group"), ("─" * (width - 9), "faint")], width)
    for gauge in gauges(board, watched):
        if len(lines) + 2 > height - 1:
            break
        room = width - cells(gauge.title) - 1
        lines.append(fit([(gauge.title, "dim"), (" ", ""), (put(gauge.text, room, right=True), "")], width))
        if gauge.most:
            lines.append(fit(_bar(gauge, width), width))
        else:
            lines.append(fit([(_graph(gauge, width), "graph")], width))
    if len(lines) == 1:
        lines.append(fit([("no figures logged", "dim")], width))
    lines.append(fit(_where(board, watched), width))
    return lines[:height] + [fit([], width) for _ in range(height - len(lines))]


def gauges(board: Board, watched: WatchedRun) -> list[Gauge]:
    """Every figure there is of the machine: as the run logged them and, when it trains here, live from this one."""
    here = is_here(watched) and bool(board.host.past("sys/cpu/percent"))

    def past(name: str) -> list[float]:
        return (logged(watched, name) + (board.host.past(name) if here else []))[-HISTORY:]

    found = [*_processor(past), *_memory(past), *_flows(past)]
    names = watched.history.names()
    cards = sorted({int(match[1]) for name in names if (match := _GPU.match(name))})
    if here:
        cards = sorted({*cards, *(index for index in range(16) if board.host.past(f"sys/gpu{index}/percent"))})
    for index in cards:
        found += _gpu(past, index)
    return found


def _processor(past: Past) -> list[Gauge]:
    found = []
    user, system, whole = past("sys/cpu/user"), past("sys/cpu/system"), past("sys/cpu/percent")
    if not whole and user:
        whole = [u + s for u, s in zip(user, system, strict=False)] or user
    if whole:
        parts = f"user {user[-1]:.0f} + system {system[-1]:.0f} %" if user and system else ""
        found.append(Gauge("CPU", whole, parts or f"{whole[-1]:.0f} %", 100.0, system))
    if process := past("sys/process/cpu"):
        found.append(Gauge("process CPU", process, f"{process[-1]:.0f} %"))
    return found


def _memory(past: Past) -> list[Gauge]:
    found = []
    for title, room in (("memory", "memory"), ("swap", "swap")):
        used, total, share = (past(f"sys/{room}/{name}") for name in ("used", "total", "percent"))
        if used and total and total[-1] > 0:
            found.append(Gauge(title, used, f"{size(used[-1])} of {size(total[-1])}", total[-1]))
        elif share:
            found.append(Gauge(title, share, f"{share[-1]:.0f} %", 100.0))
    if rss := past("sys/process/rss"):
        total = past("sys/memory/total")
        found.append(Gauge("process RSS", rss, size(rss[-1]), total[-1] if total else None))
    return found


def _flows(past: Past) -> list[Gauge]:
    found = []
    if share := past("sys/disk/percent"):
        free = past("sys/disk/free")
        text = f"{size(free[-1])} free" if free else f"{share[-1]:.0f} %"
        found.append(Gauge("disk", share, text, 100.0))
    if busy := past("sys/disk/busy"):
        found.append(Gauge("disk busy", busy, f"{busy[-1]:.0f} %", 100.0))
    for title, name in (
        ("disk read", "disk/read_bps"),
        ("disk write", "disk/write_bps"),
        ("net in", "net/recv_bps"),
        ("net out", "net/sent_bps"),
    ):
        if rate := past(f"sys/{name}"):
            found.append(Gauge(title, rate, f"{size(rate[-1])}/s"))
    return found


def _gpu(past: Past, index: int) -> list[Gauge]:
    found = []
    room = f"sys/gpu{index}"
    if use := past(f"{room}/percent"):
        found.append(Gauge(f"GPU {index}", use, f"{use[-1]:.0f} %", 100.0))
    used, total = past(f"{room}/memory_used"), past(f"{room}/memory_total")
    if used and total and total[-1] > 0:
        found.append(Gauge(f"GPU {index} memory", used, f"{size(used[-1])} of {size(total[-1])}", total[-1]))
    if power := past(f"{room}/power"):
        found.append(Gauge(f"GPU {index} power", power, f"{number(power[-1], 3)} W"))
    if heat := past(f"{room}/temperature"):
        found.append(Gauge(f"GPU {index} heat", heat, f"{heat[-1]:.0f} °C", 100.0))
    return found


def _where(board: Board, watched: WatchedRun) -> Line:
    machine = foreign(describe(watched.summary.manifest) or "an unknown machine", 40)
    if is_here(watched):
        return [(machine, ""), (" · this machine, live", "dim")]
    return [(machine, ""), (" · as the run logged it", "dim")]


def _line(gauge: Gauge, title: int, bar: int, text: int, graph: int, width: int) -> Line:
    line: Line = [(" ", ""), (put(gauge.title, title), "dim")]
    line += _bar(gauge, bar) if gauge.most else [(" " * bar, "")]
    line += [("  ", ""), (put(gauge.text, text), "")]
    if graph:
        line += [(" ", ""), (_graph(gauge, graph), "graph")]
    return fit(line, width)


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
        drawn = "".join("▁▂▃▄▅▆▇█"[min(7, max(0, int(v / gauge.most * 8)))] for v in past)
    else:
        drawn = sparkline(past, width) if max(past, default=0.0) > 0 else "▁" * len(past)
    return f"{drawn:>{width}}"


def _cores(cores: list[float], width: int) -> list[Line]:
    """A short bar for each core."""
    lines: list[Line] = []
    each = 20
    across = max(1, (width - 1) // each)
    for begin in range(0, len(cores), across):
        line: Line = [(" ", "")]
        for index, share in enumerate(cores[begin : begin + across], begin):
            line += [(f"{index:>4} ", "dim"), *_bar(Gauge("", [share], "", 100.0), each - 7), ("  ", "")]
        lines.append(fit(line, width))
    return lines


def _empty(text: str, width: int, height: int) -> list[Line]:
    lines: list[Line] = [fit([], width) for _ in range(height)]
    if height:
        lines[height // 2] = fit([(text.center(width), "dim")], width)
    return lines
