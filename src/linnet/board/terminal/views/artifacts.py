"""The artifacts tab: names on the left, on the right what was logged under one of them, step by step."""

from __future__ import annotations

from linnet.board.gallery import ArtifactSeries, describe
from linnet.board.terminal.spans import Line, centered, cut, fill, fit, pad, safe, wrap
from linnet.board.terminal.state import Board
from linnet.board.words import number
from linnet.runs import Artifact

_LEAST_BESIDE = 64  # columns from which the list stands beside the drawing and not above it
_WIDEST_LIST = 40
_GAP = 2


def draw(board: Board, width: int, height: int) -> list[Line]:
    all_series, artifact_page = board.artifacts(), board.artifact_page
    artifact_page.list_rows = artifact_page.list_width = 0
    if board.watched is None or not all_series:
        text = "nothing but numbers was logged (yet): run.image(step, name, array), run.table, run.histogram …"
        return centered(cut(text, width), width, height)
    series = all_series[artifact_page.row(all_series)]
    if artifact_page.whole:
        return _drawing(board, series, width, height)
    if width >= _LEAST_BESIDE:
        wide = min(_WIDEST_LIST, max(26, width * 3 // 8))
        names = _list(board, all_series, wide, height)
        drawn = _drawing(board, series, width - wide - _GAP, height)
        return [[*name, (" " * _GAP, ""), *line] for name, line in zip(names, drawn, strict=True)]
    rows = min(len(all_series), max(1, height // 3))
    return _list(board, all_series, width, rows) + _drawing(board, series, width, height - rows)


def _list(board: Board, all_series: list[ArtifactSeries], width: int, height: int) -> list[Line]:
    """A line a name: what it is, and how many there are."""
    artifact_page, chosen = board.artifact_page, board.artifact_page.row(all_series)
    artifact_page.first_row = min(max(artifact_page.first_row, chosen - height + 1), chosen)
    artifact_page.list_rows, artifact_page.list_width = min(height, len(all_series) - artifact_page.first_row), width
    lines: list[Line] = []
    for at, series in enumerate(
        all_series[artifact_page.first_row : artifact_page.first_row + height], artifact_page.first_row
    ):
        on = ".on" if at == chosen else ""
        count = number(len(series.artifacts))
        right = f" {series.media} {count:>4} "
        name = pad(safe(series.name), max(4, width - len(right) - 1))
        lines.append([("▌" if on else " ", f"row{on}"), (name, f"row{on}"), (right, f"dim{on}")])
    return fill(lines, width, height)


def _drawing(board: Board, series: ArtifactSeries, width: int, height: int) -> list[Line]:
    from linnet.board.terminal.artifact_lines import (
        artifact_lines,
    )  # and with it what decodes files: not for the other tabs

    artifact_page = board.artifact_page
    artifact, at = series.artifacts[artifact_page.index(series)], artifact_page.index(series)
    above = [_title(artifact, at, len(series.artifacts)), _facts(artifact)]
    if artifact_page.tells_path:
        above += [[(line, "code")] for line in wrap(str(artifact.path), max(8, width), 6)]
    room = max(1, height - len(above))
    lines = artifact_lines(artifact, max(1, width), room, color=board.color)
    artifact_page.top_line = min(artifact_page.top_line, max(0, len(lines) - room))
    shown = fill(above, width, len(above)) + fill(lines[artifact_page.top_line :], width, room)
    if len(lines) > room:
        mark = f" {artifact_page.top_line + room}/{len(lines)} "
        shown[-1] = [*fit(shown[-1], max(0, width - len(mark))), (mark, "dim")]
    return shown[:height]


def _title(artifact: Artifact, at: int, count: int) -> Line:
    step = f"step {number(artifact.step)}" if artifact.step is not None else "no step"
    position = (
        f"  {'◀' if at else ' '} {number(at + 1)}/{number(count)} {'▶' if at < count - 1 else ''}" if count > 1 else ""
    )
    return [(safe(artifact.name), "title"), (f"  {step}", ""), (position, "dim")]


def _facts(artifact: Artifact) -> Line:
    caption = artifact.fields.get("caption")
    line: Line = [(safe(describe(artifact)), "dim")]
    return [*line, (f"  {safe(caption)}", "")] if isinstance(caption, str) else line


def select_at(board: Board, x: int, y: int) -> bool:
    """Select the name at a place of the screen; False where there is none."""
    artifact_page, all_series = board.artifact_page, board.artifacts()
    if (
        artifact_page.whole
        or not (y < artifact_page.list_rows and x < artifact_page.list_width)
        or artifact_page.first_row + y >= len(all_series)
    ):
        return False
    artifact_page.select(all_series[artifact_page.first_row + y])
    return True
