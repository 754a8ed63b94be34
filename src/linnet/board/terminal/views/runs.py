"""The table of runs."""

from __future__ import annotations

import math
from functools import lru_cache

from linnet.board.plot import sparkline
from linnet.board.run_columns import is_right, labels_of, text_of
from linnet.board.run_table import RunRow
from linnet.board.terminal.spans import Line, Span, cells, fill, fit, pad, safe, status_span
from linnet.board.terminal.state import TABLE_HEAD, Board
from linnet.board.words import duration, number
from linnet.runs.columns import Term
from linnet.runs.family import origin_of
from linnet.runs.query import UNREAD

_RIGHT = ("step", "last", "best", "age")
_LEAST = {"run": 12, "status": 13, "step": 7, "last": 7, "best": 7, "age": 8, "curve": 10}
_BEFORE = ("run", "status", "recipe", "experiment", "group", "tags", "step", "last", "best")
_BEHIND = ("age", "curve")  # the columns of one's own stand between
_SHORT_NAME = 24  # a run's name may be cut to this before a column is left out
_CURVE = 24
_KEPT = 3  # settings that differ that are dropped last when there is no room; the others first
_DROPPED = ("experiment", "group", "tags", "recipe", "age", "curve", "best")  # between them
_DROPPED_LAST = ("step", "last", "age", "status")  # only for columns that somebody chose, also from the order by age


def draw(board: Board, width: int, height: int) -> list[Line]:
    rows = board.rows()
    table = board.table
    lines = [_summary(board, rows)]
    if not rows:
        why = "no run fits the filter" if table.filter else f"no runs in {safe(board.store.root)} yet"
        why = why if board.run_table.scanned else "looking …"
        return fill([*lines, [], [(f"   {why}", "dim")]], width, height)
    room = max(1, height - TABLE_HEAD)
    at, table.offset = table.window(rows, room)
    shown = rows[table.offset : table.offset + room]
    own = {term.column: term for term in table.terms(board.run_table.rows)}
    labels = labels_of(list(own.values()))
    heads = {name: safe(labels[term], 32) for name, term in own.items()}
    texts = [{**_texts(row, board.now()), **_own_texts(row, own)} for row in shown]
    chosen = [term.column for term in table.chosen(board.run_table.rows)]
    columns = board.columns = _columns(texts, heads, chosen, table.sort, width)
    right = {*_RIGHT, *(name for name, term in own.items() if is_right(term, [row.record for row in shown]))}
    lines.append(_head(board, heads, right))
    if missing := [heads[name] for name in own if name not in columns]:
        lines[0] += [(f"  no room for {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}", "dim")]
    for index, (row, text) in enumerate(zip(shown, texts, strict=True), table.offset):
        lines.append(_line(row, text, columns, right, index == at, row.path in table.marks, width))
    return fill(lines, width, height)


def row_at(board: Board, y: int) -> RunRow | None:
    rows = board.rows()
    index = board.table.offset + y - TABLE_HEAD
    return rows[index] if y >= TABLE_HEAD and index < len(rows) else None


def column_at(board: Board, x: int) -> str | None:
    """The column under x, for sorting by it."""
    at = 3
    for name, wide in board.columns.items():
        if at <= x < at + wide + 2:
            return name
        at += wide + 2
    return None


def _summary(board: Board, rows: list[RunRow]) -> Line:
    table, all_runs = board.table, board.run_table.rows
    live = sum(1 for row in all_runs if row.summary.status == "live")
    runs = "run" if len(rows) == 1 and not table.filter else "runs"
    count = f"{len(rows)} of {len(all_runs)}" if table.filter else f"{len(rows)}"
    line: Line = [(f" {count} {runs} ", "")]
    if live:
        line += [("  ", ""), (f"{live} live", "status.live")]
    if table.marks:
        line += [("  ", ""), (f"{len(board.marked())} marked: ⏎ overlays them, d compares their settings", "notice")]
    if table.filter:
        line += [("  filter ", "dim"), (safe(table.filter, 40), "key"), ("  Esc clears it", "dim")]
    if table.problem:
        line += [("  ", ""), (safe(table.problem, 100), "warning")]
    if board.run_table.busy:
        line += [("  reading …", "dim")]
    return line


def _texts(row: RunRow, now: float) -> dict[str, str]:
    summary, manifest = row.summary, row.summary.manifest
    total = f"/{number(manifest.total_steps)}" if manifest.total_steps else ""
    name = f"{safe(manifest.name, 40)}  " if manifest.name else ""
    origin = origin_of(manifest.parent, manifest.parent_step)
    return {
        "run": name + safe(summary.run_id) + (f"  ← {safe(origin, 40)}" if origin else ""),
        "status": status_span(summary.status)[0],
        "recipe": safe(manifest.recipe or "", 24),
        "experiment": safe(manifest.experiment or "", 24),
        "group": safe(manifest.group or "", 24),
        "tags": safe(" ".join(f"#{tag}" for tag in manifest.tags[:8]), 32),
        "step": f"{number(summary.step)}{total}",
        "last": number(summary.value),
        "best": number(row.best[1] if row.best is not None else None),
        "age": _age(now - summary.last_event),
        "curve": "",  # is as wide as there is room
    }


def _own_texts(row: RunRow, own: dict[str, Term]) -> dict[str, str]:
    """The columns somebody chose, and the settings that differ; three dots where a stream is still to be read."""
    return {
        name: "…" if row.record.value(term) is UNREAD else safe(text_of(row.record, term), 24)
        for name, term in own.items()
    }


@lru_cache(maxsize=256)  # more rows than a screen has
def _curve(values: tuple[float, ...], width: int) -> str:
    return sparkline(values, width) if sum(map(math.isfinite, values)) > 1 else ""


def _age(seconds: float) -> str:
    if seconds < 1:
        return "now"
    return duration(seconds).split(".")[0] + " s" if seconds < 10 else duration(seconds)


def _columns(
    texts: list[dict[str, str]], heads: dict[str, str], chosen: list[str], sort: str, width: int
) -> dict[str, int]:
    """The widths of the columns that fit, in order; those that are empty everywhere are left out.

    The one by which the list is sorted stays; those that were chosen stay before all others.
    """
    wide = {
        name: max([cells(heads.get(name, name)) + 1, _LEAST.get(name, 0), *(cells(text[name]) for text in texts)])
        for name in (*_BEFORE, *heads, *_BEHIND)
        if name in _LEAST or name in heads or any(text[name] for text in texts)
    }
    room, own = width - 4, [name for name in heads if name not in chosen]
    needless = [name for name in (*reversed(own[_KEPT:]), *_DROPPED, *reversed(own[:_KEPT])) if name != sort]
    if chosen:
        needless += [name for name in _DROPPED_LAST if name != sort or name == "age"]
        needless += [name for name in reversed(heads) if name in chosen and name != sort]
    for name in needless:
        if sum(wide.values()) + 2 * len(wide) - max(0, wide["run"] - _SHORT_NAME) <= room:
            break
        wide.pop(name, None)
    spare = room - sum(wide.values()) - 2 * len(wide)
    wide["run"] = max(8, wide["run"] + min(0, spare))
    if "curve" in wide:
        wide["curve"] += min(max(0, spare), _CURVE - wide["curve"])
    return wide


def _head(board: Board, heads: dict[str, str], right: set[str]) -> Line:
    line: Line = [("   ", "")]
    for name, wide in board.columns.items():
        arrow = ("▲" if board.table.reverse else "▼") if name == board.table.sort else ""
        text = pad(heads.get(name, name) + arrow, wide, right=name in right)
        line += [(text, "head.on" if arrow else "head"), ("  ", "")]
    return line


def _line(
    row: RunRow, text: dict[str, str], columns: dict[str, int], right: set[str], here: bool, marked: bool, width: int
) -> Line:
    style, on = ("row.on", ".on") if here else ("", "")
    line: Line = [("❯" if here else " ", f"key{on}"), ("◆ " if marked else "  ", f"mark{on}")]
    for name, wide in columns.items():
        span: Span = (pad(text[name], wide, right=name in right), style)
        if name == "status":
            span = (span[0], f"status.{row.summary.status}{on}")
        elif name == "curve":
            span = (pad(_curve(tuple(row.spark), wide), wide), f"graph{on}")
        line += [span, ("  ", style)]
    return fit(line, width, style)
