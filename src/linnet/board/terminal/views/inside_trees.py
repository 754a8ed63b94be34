"""The inside tab: where the time of a step went, by the parts of the model and by operation; the model as a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from linnet.board.flow_tree import FlowNode, newest_times, read_flow
from linnet.board.terminal.inside_page import InsidePage
from linnet.board.terminal.spans import Line, around, fill, fit, justify, pad, safe
from linnet.board.terminal.state import Board
from linnet.board.words import compact, device_time, number
from linnet.runs.figure_tables import Row, tensor_row
from linnet.runs.folder import FLOW
from linnet.runs.inspection import Inspection, OpTiming
from linnet.runs.region_tree import RegionNode

_BAR = 12  # columns of a bar
_BESIDE = 104  # columns from which operations stand beside the tree
_LEAST_TREE = 6
_MOST_OPERATIONS = 8  # lines below the tree
_ATTENTION = "scaled_dot_product_attention"
_Node = TypeVar("_Node", RegionNode, FlowNode)


def draw_time(board: Board, inspection: Inspection, width: int, height: int) -> list[Line]:
    page = board.inside
    timings = {timing.step: timing for timing in inspection.op_timings}
    page.steps = sorted({*inspection.region_steps, *timings})
    step = page.nearest_step(page.steps)
    if step is None:
        return []
    tree = inspection.regions(step) if step in inspection.region_steps else None
    timing = timings.get(step)
    total = device_time(tree.us if tree is not None else timing.compute_us if timing is not None else math.nan)
    head = justify([(" time ", "dim"), (f"of step {number(step)}", "title")], [(f"{total} ", "")], width)
    room = height - 1
    if tree is None or timing is None or width >= _BESIDE:
        half = width if tree is None or timing is None else width * 3 // 5
        left = _regions(page, tree, half, room) if tree is not None else []
        right = _operations(timing, width - half if tree is not None else width, room) if timing is not None else []
        if tree is None or timing is None:
            return [head, *(left or right)]
        right = fill(right, width - half, room)
        return [head, *([*a, *b] for a, b in zip(fill(left, half, room), right, strict=True))]
    below = _operations(timing, width, min(_MOST_OPERATIONS, max(0, room - _LEAST_TREE)))
    return [head, *fill(_regions(page, tree, width, room - len(below)), width, room - len(below)), *below]


def _regions(page: InsidePage, tree: RegionNode, width: int, height: int) -> list[Line]:
    """The tree, opened as far as somebody has: what it is, a bar, how long it took, and its share."""
    rows = list(_opened(page, tree, lambda node: node.path, lambda node: node.children, _is_shut))
    page.rows, page.row_names = len(rows), [node.path for _, node in rows]
    wide = max(12, width - _BAR - 22)
    lines: list[Line] = []
    for at, (depth, node) in enumerate(rows):
        on = ".on" if at == page.row else ""
        share = node.us / tree.us if tree.us > 0 else 0.0
        name = pad(_branch(depth, safe(node.name) or "all", _sign(page, node, _is_shut(node, depth))), wide)
        lines.append([("▌" if on else " ", f"row{on}"), (name, f"row{on}"), *_bar(share, on)])
        lines[-1] += [(pad(device_time(node.us), 10, right=True), f"row{on}")]
        lines[-1] += [(pad(f"{100 * share:.0f} %", 7, right=True), f"dim{on}"), ("  ", f"row{on}")]
    return around(lines, page.row, height)


def _operations(timing: OpTiming, width: int, height: int) -> list[Line]:
    """The dearest operations of a step."""
    if height < 2:
        return []
    whole = sum(timing.buckets.values()) or 1.0
    dearest = sorted(timing.buckets.items(), key=lambda bucket: (bucket[0] == "other", -bucket[1]))
    wide = max(8, width - _BAR - 20)
    lines: list[Line] = [[(" operations", "group")]]
    for name, us in dearest[: height - 1]:
        bar = _bar(us / whole, "")
        lines.append([(" ", ""), (pad(safe(name), wide), ""), *bar, (pad(device_time(us), 10, right=True), "")])
        lines[-1].append((pad(f"{100 * us / whole:.0f} %", 7, right=True), "dim"))
    return lines


def draw_model(board: Board, inspection: Inspection | None, width: int, height: int) -> list[Line]:
    """The modules of the model in the order of the pass, with shapes, parameters, figures and times."""
    page, watched = board.inside, board.watched
    tree = _flow(watched.run.path) if watched is not None else None
    if tree is None:
        return []
    figures = _Figures(inspection, page)
    rows = [
        (depth - 1, node)
        for depth, node in _opened(page, tree, lambda node: node.path, lambda node: node.children, _is_shut_module)
        if node is not tree
    ]
    page.rows, page.row_names = len(rows), [node.path for _, node in rows]
    columns = figures.columns(width)
    wide = max(14, min(44, width - 2 - sum(room for room, _ in columns.values())))
    above = f" {compact(tree.parameters)} parameters"
    when = f"step {number(figures.step)} " if figures.step is not None else ""
    lines: list[Line] = []
    for at, (depth, node) in enumerate(rows):
        on = ".on" if at == page.row else ""
        sign = _sign(page, node, _is_shut_module(node, depth + 1))
        views = f" +{node.views} views" if node.views and node.path in page.toggled and node.is_block else ""
        line: Line = [("▌" if on else " ", f"row{on}")]
        name = pad(_branch(depth, f"{safe(node.name)}{views}", sign), wide)
        line.append((name, f"dim{on}" if node.op else f"row{on}"))
        line += [(pad(text_of(node), room, right=True), f"row{on}") for room, text_of in columns.values()]
        lines.append(line)
    head: Line = [(pad(above, wide + 1), "head")]
    head += [(pad(name, room, right=True), "head") for name, (room, _) in columns.items()]
    title = justify([(" model ", "dim"), (safe(watched.title if watched else ""), "title")], [(when, "dim")], width)
    return [title, fit(head, width), *around(lines, page.row, height - 2)]


class _Figures:
    """What is told of the parts of a model at the cursor's step, as texts."""

    def __init__(self, inspection: Inspection | None, page: InsidePage) -> None:
        self._inspection = inspection
        looks = inspection.looks if inspection is not None else {}
        page.steps = sorted({step for steps in looks.values() for step in steps})
        self.step = page.nearest_step(page.steps)
        self._looks, self._page = looks, page
        times = page.nearest_step(looks.get("regions", []))
        self._times = newest_times(inspection, times) if inspection is not None and times is not None else {}

    def columns(self, width: int) -> dict[str, tuple[int, Callable[[FlowNode], str]]]:
        """The columns there is room for, and what there is to be told in: name, width and text of a node."""
        columns: dict[str, tuple[int, Callable[[FlowNode], str]]] = {
            "shape": (17, lambda node: safe(node.shape, 16)),
            "params": (8, lambda node: compact(node.parameters) if node.parameters else ""),
        }
        if "taps" in self._looks:
            columns["std"] = (9, lambda node: self._tap(node, "std"))
        if self._times:
            columns["forward"] = (10, lambda node: self._time(node, "forward"))
            columns["backward"] = (10, lambda node: self._time(node, "backward"))
        if "grads" in self._looks:
            columns["update"] = (10, lambda node: self._tensors(node, "grads", "update_ratio"))
            columns["gradient"] = (10, lambda node: self._tensors(node, "grads", "l2"))
        if "drift" in self._looks:
            columns["moved"] = (10, lambda node: self._tensors(node, "drift", "l2_to_init"))
        if "taps" in self._looks:
            columns["entropy"] = (9, lambda node: self._entropy(node))
            columns["rank"] = (8, lambda node: self._tap(node, "effective_rank"))
            columns["mean"] = (10, lambda node: self._tap(node, "mean"))
        room = width - 24
        fitting: dict[str, tuple[int, Callable[[FlowNode], str]]] = {}
        for name, (wide, text_of) in columns.items():
            if (room := room - wide) >= 0:
                fitting[name] = (wide, text_of)
        return fitting

    def _tap(self, node: FlowNode, figure: str) -> str:
        """A figure of what a module puts out: of the first region of it that was told."""
        step = self._page.nearest_step(self._looks["taps"])
        assert self._inspection is not None
        for region in node.taps:
            for row in (Row(region, node.layer), Row(region)):
                value = self._inspection.taps.value(figure, row, step) if step is not None else None
                if value is not None:
                    return number(value, 3)
        return ""

    def _entropy(self, node: FlowNode) -> str:
        step = self._page.nearest_step(self._looks["taps"])
        if self._inspection is None or step is None or node.op != _ATTENTION:
            return ""
        value = self._inspection.taps.value("entropy", Row("attn_out", node.layer), step)
        return "" if value is None else number(value, 3)

    def _tensors(self, node: FlowNode, group: str, figure: str) -> str:
        """The greatest of a module's tensors."""
        assert self._inspection is not None
        table = self._inspection.grads if group == "grads" else self._inspection.drift
        step = self._page.nearest_step(self._looks[group])
        names = [tensor if node.layer is None else f"blk.{node.layer}.{tensor}" for tensor in node.tensors]
        values = [table.value(figure, tensor_row(name), step) for name in names] if step is not None else []
        return number(max(known), 3) if (known := [value for value in values if value is not None]) else ""

    def _time(self, node: FlowNode, direction: str) -> str:
        path = f"{node.path.rpartition('.')[0]}.attention" if node.op == _ATTENTION else node.path
        seconds = self._times.get(path, {}).get(direction) if node.op in ("", _ATTENTION) else None
        return "" if seconds is None else device_time(seconds)


def _flow(folder: Path) -> FlowNode | None:
    try:
        changed = (folder / FLOW).stat().st_mtime_ns
    except OSError:
        return None
    return _flow_as_of(folder, changed)


@lru_cache(maxsize=8)
def _flow_as_of(folder: Path, changed_ns: int) -> FlowNode | None:
    """Read once until it changes."""
    return read_flow(folder)


# -- trees ----------------------------------------------------------------------------------------------------------


def _opened(
    page: InsidePage,
    node: _Node,
    path: Callable[[_Node], str],
    children: Callable[[_Node], list[_Node]],
    shut: Callable[[_Node, int], bool],
    depth: int = 0,
) -> Iterator[tuple[int, _Node]]:
    """The parts of a tree that are to be seen."""
    yield depth, node
    if shut(node, depth) == (path(node) in page.toggled):
        for child in children(node):
            yield from _opened(page, child, path, children, shut, depth + 1)


def _is_shut(node: RegionNode, depth: int) -> bool:
    """Layers are shut at first: there are many of them."""
    return ".".join(node.name.split(".")[1:]).isdecimal()


def _is_shut_module(node: FlowNode, depth: int) -> bool:
    """Every layer but the first, and what a module consists of, are shut at first."""
    return depth > 0 and not (node.is_block and node.layer == 0)


def _sign(page: InsidePage, node: RegionNode | FlowNode, shut: bool) -> str:
    if not node.children:
        return " "
    return "▸" if shut != (node.path in page.toggled) else "▾"


def _branch(depth: int, name: str, sign: str) -> str:
    return f"{'  ' * depth}{sign} {name}"


def _bar(share: float, on: str) -> Line:
    full = round(max(0.0, min(1.0, share)) * _BAR)
    return [("━" * full, "graph"), (" " * (_BAR - full), f"row{on}")]
