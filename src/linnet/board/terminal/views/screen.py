"""The whole screen: the run and the tabs, the body, the keys; and one frame of it, printed, for pipes, logs and CI."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from rich.color import ColorSystem

from linnet.board.curve import SMOOTHING
from linnet.board.terminal import keys, palette
from linnet.board.terminal.keys import TABS, VIEWS, View
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.spans import Line, cells, cut, fit, justify, length, safe, status_span, text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import artifacts, detail, grid, pages, runs, system
from linnet.board.watched_run import WatchedRun
from linnet.board.words import duration, is_coloured, number
from linnet.runs.family import children_of, origin_of

_HEAD, _FOOT = 3, 1  # lines above and below the body
_NARROW = 64  # columns below which three letters of a tab must do


_STANDING_STYLES = {"ahead": "bar.ok", "behind": "warning", "abort": "error"}  # beside a baseline


def _draw_scatter(board: Board, width: int, height: int) -> list[Line]:
    from linnet.board.terminal.views import scatter  # most boards never show it

    return scatter.draw(board, width, height)


def _draw_inside(board: Board, width: int, height: int) -> list[Line]:
    from linnet.board.terminal.views import inside  # most boards never show it

    return inside.draw(board, width, height)


_BODIES = {  # the other tabs are pages
    "scatter": _draw_scatter,
    "metrics": grid.draw,
    "system": system.draw,
    "runs": runs.draw,
    "inside": _draw_inside,
    "artifacts": artifacts.draw,
}


def body(board: Board, width: int, height: int) -> list[Line]:
    """What is between header and keys."""
    board.size = (width, height)
    draw = detail.draw if board.area == "detail" else _BODIES.get(board.overlay or board.view, pages.draw)
    return draw(board, width, height)


def parts(board: Board, width: int, height: int) -> dict[str, list[Line]]:
    """The lines of header, body and footer."""
    room = max(1, height - _HEAD - _FOOT)
    return {
        "header": _header(board, width),
        "body": body(board, width, room),
        "footer": [_footer(board, width)],
    }


def whole(board: Board, width: int, height: int) -> list[Line]:
    """The screen as it stands."""
    return [line for lines in parts(board, width, height).values() for line in lines][:height]


def frame(board: Board, width: int, height: int) -> list[Line]:
    """The screen once everything has been read."""
    reader = Reader(board, lambda: None)
    board.size = (width, max(1, height - _HEAD - _FOOT))
    rounds = 0
    while rounds < 2:  # the second for what the first has asked for
        reader.read_once()
        rounds += reader.idle()
    return whole(board, width, height)


def print_frame(board: Board, width: int, height: int, theme: str) -> None:
    """Read all that there is, and print the board as it stands; in colour only on a terminal that wants it."""
    board.color = is_coloured()
    board.theme = "light" if theme == palette.LIGHT else "dark"
    lines = frame(board, width, height)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe may have an encoding without dots and lines
    if board.color:
        print("\n".join(paint(line, theme) for line in lines))
    else:
        print(text_of(lines))


def paint(line: Line, theme: str) -> str:
    """A line with the escape sequences of its colours."""
    return "".join(
        palette.style_of(style, theme).render(text, color_system=ColorSystem.TRUECOLOR) for text, style in line
    )


def _header(board: Board, width: int) -> list[Line]:
    """Two lines about the run, and the tabs."""
    watched = board.watched
    if watched is None:
        first: Line = [(" linnet ", "brand"), (" ", ""), (safe(board.store.root), "dim")]
        return [justify(first, _notice(board, width), width), fit([], width), _tabs(board, width)]
    return [_about(board, watched, width), _progress(watched, width), _tabs(board, width)]


def _about(board: Board, watched: WatchedRun, width: int) -> Line:
    manifest = watched.summary.manifest
    line: Line = [(" ", ""), (cut(safe(watched.id), max(12, width - 16)), "title")]
    line += [("  ", ""), status_span(watched.status)]
    for word in filter(None, (manifest.name, manifest.recipe, manifest.experiment)):
        line += [("  ", ""), (safe(word, 40), "")]
    if (origin := origin_of(manifest.parent, manifest.parent_step)) is not None:
        line += [("  ", ""), (f"from {safe(origin, 40)}", "dim")]
    if forks := children_of(watched.id, [row.summary for row in board.run_table.rows]):
        line += [("  ", ""), (f"{len(forks)} forks" if len(forks) > 1 else f"fork {safe(forks[0], 40)}", "dim")]
    if (standing := watched.journal.standing()) is not None and manifest.compare_to is not None:
        style = _STANDING_STYLES.get(standing.verdict, "")
        line += [("  ", ""), (standing.standing(safe(manifest.compare_to, 40)), style)]
    elif watched.baseline is not None:
        line += [("  ", ""), (f"beside {safe(watched.baseline.run.id, 40)}", "dim")]
    for tag in manifest.tags[:12]:
        line += [("  ", ""), (safe(f"#{tag}", 24), "dim")]
    right: Line = []
    if watched.history.trouble:
        right += [(" events.jsonl cannot be read", "warning")]
    elif watched.history.damaged:
        right += [(f" {watched.history.damaged:,} damaged", "warning")]
    if others := len(board.watched_runs) - 1:
        right += [(f" +{others} more ", "dim")]
    if board.message:
        right = _notice(board, width)
    elif (newer := _newer(board)) and width >= 80:
        right += [("  ", ""), (f" new: {safe(newer, 40)} ", "notice"), (" N opens it ", "dim")]
    return justify(line, right, width)


def _notice(board: Board, width: int) -> Line:
    """What the board has to say; of a long text both ends, because errors name a path first and the reason last."""
    text, room = safe(board.message), max(width // 2, width - 24)
    if cells(text) > room:
        end = text[-(room // 2) :]
        text = cut(text, room - cells(end)) + end
    return [(f" {text} ", "notice")] if text else []


def _newer(board: Board) -> str:
    """A run that began while the board was open on an older one."""
    row, watched = board.run_table.newest(), board.watched
    if row is None or watched is None or any(row.path == str(w.run.path) for w in board.watched_runs):
        return ""
    newest_shown = max(w.summary.manifest.created_at for w in board.watched_runs)
    fresh = row.summary.status == "live" and row.summary.manifest.created_at > newest_shown
    return row.summary.run_id if fresh else ""


def _progress(watched: WatchedRun, width: int) -> Line:
    manifest, step, epoch = watched.summary.manifest, watched.step(), watched.history.last_epoch
    total, epochs = manifest.total_steps, manifest.total_epochs
    facts: list[Line] = [[("step ", "dim"), (number(step) + (f"/{number(total)}" if total else ""), "")]]
    if epoch is not None or epochs:
        facts.append([("epoch ", "dim"), (number(epoch, 3) + (f"/{number(epochs)}" if epochs else ""), "")])
    facts.append([("elapsed ", "dim"), (duration(watched.elapsed()), "")])
    if (left := watched.remaining()) is not None:
        facts.append([("ETA ", "dim"), (duration(left), "")])
    if (speed := watched.tokens_per_second()) is not None:
        facts.append([(number(round(speed) if speed >= 10 else speed), ""), (" tok/s", "dim")])
    if (mfu := watched.history.last("mfu")) is not None:
        facts.append([("MFU ", "dim"), (f"{100 * mfu:.1f} %", "")])
    line: Line = [(" ", "")]
    for index, fact in enumerate(facts):
        if length(line) + length(fact) + 3 > width:
            break
        line += [*([("   ", "")] if index else []), *fact]
    room = width - length(line) - 12
    if step is not None and total and room >= 10:
        share = min(1.0, step / total)
        line += [("   ", ""), *_bar(share, min(room, 40)), (f" {100 * share:.0f} %", "dim")]
    return fit(line, width)


def _bar(share: float, width: int) -> Line:
    """A bar that is filled by halves of a character."""
    full, half = divmod(round(max(0.0, share) * width * 2), 2)
    return [("━" * full + ("╸" if half else ""), "progress"), ("─" * (width - full - half), "bar.empty")]


def _tabs(board: Board, width: int) -> Line:
    """The tabs; the underlined letter of each is its key."""
    line: Line = [(" ", "tabs")]
    for view, text in _tab_texts(width).items():
        on = "tab.on" if view == board.view else "tab"
        at = _key_at(view)
        line += [(f" {text[:at]}", on), (text[at], f"{on}.key"), (f"{text[at + 1 :]} ", on)]
    modes = _modes(board) if board.view == "metrics" and board.detail is None else []
    return justify(line, modes, width) if length(line) + length(modes) <= width else fit(line, width, "tabs")


def _tab_texts(width: int) -> dict[View, str]:
    """The names of the tabs; where they have no room, the longest are cut first, and then all to three letters."""
    names = {view: view[: _key_at(view)] + TABS[view][0] + view[_key_at(view) + 1 :] for view in VIEWS}
    texts: dict[View, str] = dict(names)
    if width < _NARROW:
        return {view: name[: max(_key_at(view) + 1, 3)] for view, name in names.items()}
    for view in sorted(VIEWS, key=len, reverse=True):
        if sum(map(len, texts.values())) + 2 * len(texts) + 1 <= width or len(view) <= 6:
            break
        texts[view] = view[: max(_key_at(view) + 1, 4)]
    return texts


def _key_at(view: View) -> int:
    """Which letter of a tab's name is its key."""
    return view.index(TABS[view][0].lower())


def _modes(board: Board) -> Line:
    """How the charts are drawn, where that is not the usual way."""
    name, alpha = SMOOTHING[board.smoothing]
    words = [
        f"by {board.axis}" if board.axis != "step" else "",
        f"smoothing {name} {alpha}" if board.smoothing else "",
        "log scale" if board.log_scale else "",
        "clipped" if board.clip else "",
    ]
    text = " · ".join(filter(None, words))
    return [(f"{text} ", "dim")] if text else []


def tab_at(board: Board, width: int, x: int) -> str | None:
    at, position = 0, -1
    for text, style in _tabs(board, width):
        if style in ("tab", "tab.on") and text.startswith(" "):
            position += 1
        at += cells(text)
        if x < at:
            return VIEWS[position] if 0 <= position < len(VIEWS) and style != "tabs" else None
    return None


def _footer(board: Board, width: int) -> Line:
    where = (
        "scatter"
        if board.overlay == "scatter"
        else "overlay"
        if board.overlay
        else "one metric"
        if board.area == "detail"
        else board.inside.keys
        if board.area == "inside"
        else board.view
    )
    hints = keys.footer(where, several=len(board.watched_runs) > 1)
    parts: list[Line] = [[(f" {key}", "key"), (f" {text} ", "dim")] for key, text in hints]
    line: Line = []
    ends = parts[-2:]  # how to go back and where help is have their room first
    for part in parts[:-2]:
        if length(line) + length(part) <= width - sum(map(length, ends)):
            line += part
    return fit([*line, *(span for part in ends for span in part)], width, "footer")
