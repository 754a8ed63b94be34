"""The board as an application: every key, the mouse, and what the screen shows then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from textual.command import CommandList
from textual.pilot import Pilot

from linnet.board.terminal import palette
from linnet.board.terminal.actions import ACTIONS, act
from linnet.board.terminal.app import BoardApp, Canvas
from linnet.board.terminal.keys import FOOTERS, SECTIONS, TABS, VIEWS, bindings, footer
from linnet.board.terminal.state import Board
from linnet.runs import RunStore
from tests.board.conftest import ABOUT, BEGAN, append, board_of, look, steps, training, write

SNAPSHOTS = Path(__file__).parent / "snapshots"
Play = Callable[[Pilot[None], BoardApp], Awaitable[None]]


def screen_text(app: BoardApp) -> str:
    """The screen as Textual composes it."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def settled(pilot: Pilot[None], app: BoardApp) -> None:
    """Wait until everything is read and drawn."""
    for _ in range(400):
        await pilot.pause(0.01)
        board = app.board
        if board.opening is None and all(watched.caught_up for watched in board.watched_runs) and not app._waiting:
            break
    app.draw()
    await pilot.pause()


def play(
    root: Path, runs: list[str], do: Play, size: tuple[int, int] = (100, 30), look: str = palette.DARK
) -> BoardApp:
    """The application on these runs, 190 seconds after the end of those that the tests write."""
    store = RunStore(root)
    app = BoardApp(Board(store, [store.find(run).path for run in runs], now=lambda: BEGAN + 400 + 190), look)

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(pilot, app)
            await do(pilot, app)

    asyncio.run(go())
    return app


@pytest.fixture
def two(root: Path) -> Path:
    write(root / "narrow", training(0.4), **{**ABOUT, "config": {"lr": 0.1}})
    write(root / "wide", training(0.2), **{**ABOUT, "config": {"lr": 0.2}})
    return root


def test_every_key_has_an_action_of_the_board() -> None:
    for key, action in bindings().items():
        assert action == "theme" or action in ACTIONS, key  # the theme is the terminal's


def test_every_action_can_be_reached() -> None:
    named = {key.command for keys in SECTIONS.values() for key in keys}
    by_mouse = {action for action in ACTIONS if action.startswith("sort:")} | {"view:notes"}
    assert ACTIONS.keys() == (set(bindings().values()) | named | by_mouse) - {"", "theme"}


def test_the_footer_names_keys_that_do_something() -> None:
    actions = set(bindings().values())
    assert {hint.action for hints in FOOTERS.values() for hint in hints} <= actions
    assert set(FOOTERS) & set(VIEWS) == {"metrics", "runs", "inside", "artifacts", "notes"}
    assert footer("runs", several=False)[-2:] == [("q", "back"), ("?", "help")]
    assert ("w", "next run") in footer("other tabs", several=True)
    assert ("w", "next run") not in footer("other tabs", several=False)


def test_the_key_of_a_tab_is_a_letter_of_its_name_and_of_no_other_tab() -> None:
    assert tuple(TABS) == VIEWS
    assert all(key.lower() in view for view, (key, _) in TABS.items())
    assert len({key for key, _ in TABS.values()}) == len(TABS)


@pytest.mark.parametrize(
    ("key", "view", "shown"),
    [
        ("y", "system", "as the run logged it"),
        ("r", "runs", "2 runs"),
        ("I", "inside", "linnet train from-scratch --inspect taps,grads,drift@100"),
        ("a", "samples", "def main():"),
        ("i", "artifacts", "nothing but numbers was logged"),
        ("k", "checkpoints", "no checkpoints"),
        ("c", "config", "d_model"),
        ("n", "notes", "the good seed"),
        ("g", "log", "run completed"),
        ("m", "metrics", "1 loss"),
    ],
)
def test_each_tab_has_its_key(two: Path, key: str, view: str, shown: str) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press(key)
        await settled(pilot, app)
        for _ in range(100):
            if shown in screen_text(app):
                break
            await pilot.pause(0.02)
        assert app.board.view == view
        assert shown in screen_text(app)

    play(two, ["wide"], do)


def test_kaun_boards_keys_keep_their_meaning(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.press("right")
        assert board.selected == "validation/loss"
        await pilot.press("left")
        assert board.selected == "loss"
        await pilot.press("down")
        assert board.selected not in ("loss", "validation/loss")
        await pilot.press("up")
        await pilot.press("enter")
        assert board.detail == "loss"
        await pilot.press("S")
        assert "smoothing light 0.5" in screen_text(app)
        await pilot.press("s")
        assert "smoothing medium 0.3" in screen_text(app)
        await pilot.press("escape")
        assert board.detail is None
        await pilot.press("space")
        assert board.detail == "loss"
        await pilot.press("q")
        assert board.detail is None
        assert app.is_running
        await pilot.press("q")

    app = play(two, ["wide"], do)
    assert app.board.leaving


@pytest.mark.parametrize("keys", ["[]", "<>"])
def test_pages_are_turned(two: Path, keys: str) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        assert "page 1/" in screen_text(app)
        await pilot.press(keys[1])
        assert "page 2/" in screen_text(app)
        await pilot.press(keys[0])
        assert "page 1/" in screen_text(app)

    play(two, ["wide"], do, size=(60, 14))


def test_number_keys_open_the_nth_chart(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        for number, name in (("1", "loss"), ("2", "validation/loss"), ("3", "lr")):
            await pilot.press(number)
            assert app.board.detail == name
            await pilot.press("escape")
        await pilot.press("9")
        assert app.board.detail is None

    play(two, ["wide"], do, size=(120, 40))


def test_detail_keys(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.press("1", "x")
        assert board.axis == "tokens"
        await pilot.press("x", "x", "x", "x", "l", "o")
        assert (board.axis, board.log_scale, board.clip) == ("step", True, True)
        await pilot.press("plus", "equals_sign")
        assert "25 % of the run" in screen_text(app)
        await pilot.press("comma", "shift+left", "full_stop", "shift+right", "minus")
        assert "50 % of the run" in screen_text(app)
        await pilot.press("0")
        assert "% of the run" not in screen_text(app)
        await pilot.press("home")
        assert "step 1  at 1.0 s" in screen_text(app)
        await pilot.press("end")
        assert "step 400  at" in screen_text(app)
        await pilot.press("left", "right", "right_square_bracket")
        assert board.detail == "validation/loss"
        await pilot.press("left_square_bracket", "up", "down")
        assert board.detail == "loss"

    play(two, ["wide"], do)


def test_the_other_keys(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.press("w")
        assert board.watched is not None
        assert board.watched.id == "wide"
        await pilot.press("d")
        assert "config.lr" in screen_text(app)
        await pilot.press("escape", "question_mark")
        assert "what was set differently" in screen_text(app)
        await pilot.press("pagedown", "home", "escape", "e")
        assert not board.side
        await pilot.press("tab")
        assert board.view == "system"
        await pilot.press("shift+tab")
        assert board.view == "metrics"
        before = app.look
        await pilot.press("t")
        assert {before, app.look} == {palette.DARK, palette.LIGHT}
        assert board.theme == app.look, "maps are drawn for the ground they are on"

    play(two, ["narrow", "wide"], do, size=(120, 30))


def test_the_table_by_keys(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.press("r")
        for _ in range(100):
            if "2 runs" in screen_text(app):
                break
            await pilot.pause(0.02)
        await pilot.press("o", "O", "o")
        assert board.table.sort == "status"
        await pilot.press("space", "space")
        assert "2 marked" in screen_text(app)
        await pilot.press("u")
        assert "marked" not in screen_text(app)
        await pilot.press("slash", *"run", "colon", *"wid")
        assert "1 of 2 runs" in screen_text(app)
        await pilot.press("enter")
        assert not board.asking
        await pilot.press("enter")
        await settled(pilot, app)
        assert [watched.id for watched in board.watched_runs] == ["wide"]
        assert board.view == "metrics"

    play(two, ["narrow"], do)


def test_the_table_is_ordered_by_columns_that_are_shown(root: Path) -> None:
    for name in ("a", "b"):
        write(root / name, steps(5))
    board = board_of(root, "a", view="runs")
    look(board)
    seen = []
    while board.table.sort not in seen:
        seen.append(board.table.sort)
        assert f"{board.table.sort}▼" in look(board)
        act(board, "sort")
    assert seen == ["age", "run", "status", "step", "last", "best"]


def test_backspace_goes_back_and_never_quits(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("y", "1")
        assert app.board.view == "system"
        await pilot.press("backspace", "1")
        assert app.board.detail == "loss"
        await pilot.press("backspace", "backspace", "backspace")
        assert (app.board.view, app.board.detail, app.is_running) == ("metrics", None, True)
        await pilot.press("escape")

    app = play(two, ["wide"], do)
    assert app.board.leaving


def test_one_esc_too_many_does_not_quit(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("1", "escape", "escape")
        assert app.is_running
        assert "Esc again, or q, quits" in screen_text(app)
        await pilot.press("slash", *"lo", "escape", "escape")
        assert app.is_running
        await pilot.press("right", "escape")

    app = play(two, ["wide"], do)
    assert app.board.leaving


def test_a_note_is_typed(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("n", "n", *"q is text", "enter")
        for _ in range(100):
            if "q is text" in screen_text(app):
                return
            await pilot.pause(0.02)
        raise AssertionError(screen_text(app))

    play(two, ["wide"], do)
    assert '"text":"q is text"' in (two / "wide" / "events.jsonl").read_text()


def test_typing_is_given_up_with_escape(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("n", "n", "x", "escape")
        assert not app.board.asking
        await pilot.press("m")
        assert app.board.view == "metrics"

    play(two, ["wide"], do)
    assert '"x"' not in (two / "wide" / "events.jsonl").read_text().splitlines()[-1]


def test_the_command_palette_knows_every_command(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "checkpoints" in titles
        assert "log scale" in titles
        await pilot.press("ctrl+p", *"checkpoints")
        for _ in range(200):
            lists = app.screen.query(CommandList)
            if lists and lists.first().option_count == 1:
                break
            await pilot.pause(0.02)
        await pilot.press("enter", "enter")
        for _ in range(200):
            if app.board.view == "checkpoints":
                return
            await pilot.pause(0.02)
        raise AssertionError(screen_text(app))

    play(two, ["wide"], do)


def test_a_command_of_the_palette_does_what_it_says_on_every_tab(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        commands = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        await pilot.press("r")
        commands["clip outliers"]()
        assert (app.board.clip, app.board.table.sort) == (True, "age")
        commands["order by the next column; a click on a column orders by it"]()
        assert app.board.table.sort == "run"

    play(two, ["wide"], do)


def test_the_mouse(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.click("#body", offset=(60, 3))
        assert board.selected == "validation/loss"
        await pilot.click("#body", offset=(60, 3))
        assert board.detail == "validation/loss"
        await pilot.click("#body", offset=(50, 5))
        assert board.zoom.cursor == pytest.approx(200, abs=25)
        await pilot.click("#header", offset=(20, 2))
        assert board.view == "runs"
        for _ in range(100):
            if "2 runs" in screen_text(app):
                break
            await pilot.pause(0.02)
        await pilot.click("#body", offset=(5, 1))
        assert board.table.sort == "run"
        await pilot.click("#body", offset=(10, 3))
        assert board.table.cursor == board.rows()[1].path

    play(two, ["wide"], do)


def test_the_wheel_and_a_drag_move_the_detail(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        board = app.board
        await pilot.press("1")
        body = app.query_one("#body", Canvas)
        for _ in range(3):
            body.post_message(Canvas.Pointed(body, "up", 50, 5))
        await pilot.pause()
        assert board.zoom.window is not None
        before = board.zoom.window
        body.post_message(Canvas.Pointed(body, "drag", 50, 5, 10))
        await pilot.pause()
        assert board.zoom.window[0] < before[0]

    play(two, ["wide"], do)


def test_new_steps_and_new_runs_appear_by_themselves(two: Path) -> None:
    folder = write(two / "live", steps(10))

    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        append(folder, steps(90, first=11))
        for _ in range(200):
            await pilot.pause(0.02)
            if "step 100" in screen_text(app):
                break
        assert "step 100" in screen_text(app)
        await pilot.press("r")
        write(two / "newcomer", steps(5))
        for _ in range(200):
            await pilot.pause(0.02)
            if "newcomer" in screen_text(app):
                return
        raise AssertionError(screen_text(app))

    play(two, ["live"], do)


def test_without_colour_nothing_is_coloured(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        assert app.look == palette.PLAIN
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                style = segment.style
                for colour in (style.color, style.bgcolor) if style is not None else ():
                    assert colour is None or colour.is_default
        assert " A  narrow" in screen_text(app)

    play(two, ["narrow", "wide"], do, look=palette.PLAIN)


def test_both_themes_are_readable() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme in (palette.DARK, palette.LIGHT):
        ground = light(palette.colours(theme)["ground"])
        names = ["", "dim", "title", "key", "axis", "warning", "error", *(f"run{i}" for i in range(8))]
        names += [f"status.{s}" for s in ("live", "completed", "interrupted", "crashed", "stalled")]
        for name in names:
            colour = palette.style_of(name, theme).color
            assert colour is not None
            shade = light(colour.name)
            assert (max(shade, ground) + 0.05) / (min(shade, ground) + 0.05) >= 4.5, (theme, name)


@pytest.mark.parametrize("size", [(60, 20), (100, 30), (300, 80)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", ["metrics", "detail", "overlay", "system", "runs"])
def test_snapshot(two: Path, size: tuple[int, int], view: str) -> None:
    """The whole screen, character by character. `UPDATE_SNAPSHOTS=1` writes them anew."""

    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        if view == "detail":
            await pilot.press("1", "s", "s", "plus", "home")
        elif view in ("system", "runs"):
            await pilot.press(view[0] if view == "runs" else "y", *("o" if view == "runs" else ""))
        await settled(pilot, app)
        while view == "runs" and (not app.board.run_table.scanned or app.board.run_table.busy):
            await pilot.pause(0.02)
        app.draw()
        await pilot.pause()
        shown = screen_text(app) + "\n"
        kept = SNAPSHOTS / f"{view}-{size[0]}x{size[1]}.txt"
        if os.environ.get("UPDATE_SNAPSHOTS"):
            SNAPSHOTS.mkdir(exist_ok=True)
            kept.write_text(shown)
        assert shown == kept.read_text()

    play(two, ["narrow", "wide"] if view == "overlay" else ["wide"], do, size=size)


def test_no_thread_and_no_file_is_left_behind(two: Path) -> None:
    import threading

    def open_streams() -> list[str]:
        names = []
        for fd in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                names.append(str(fd.readlink()))
        return [name for name in names if name.startswith(str(two))]

    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("r")
        await settled(pilot, app)

    app = play(two, ["narrow", "wide"], do)
    app._reader.join(5.0)
    assert not any(thread.name == app._reader.name for thread in threading.enumerate())
    assert open_streams() == []


def test_a_click_ends_the_typing_of_a_filter_and_leaves_a_note_alone(two: Path) -> None:
    async def do(pilot: Pilot[None], app: BoardApp) -> None:
        await pilot.press("r", "slash", *"run", "colon", *"wide")
        await pilot.pause()
        await pilot.click("#body", offset=(8, 2), times=2)
        await settled(pilot, app)
        assert app.board.asking == ""
        assert app.board.table.filter == "run:wide"
        assert [watched.id for watched in app.board.watched_runs] == ["wide"]
        await pilot.press("n", "n", *"half a ")
        await pilot.click("#body", offset=(8, 2))
        await pilot.click("#header", offset=(4, 2))
        await pilot.press(*"note", "enter")
        await settled(pilot, app)
        await pilot.pause(0.4)
        assert app.board.watched_runs[0].journal.notes()[-1].text == "half a note"

    play(two, ["narrow"], do)
