"""Runs that are odd, or out to harm: nothing breaks, and nothing in them is interpreted."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from linnet.board.terminal.actions import act
from linnet.board.terminal.app import BoardApp
from linnet.board.terminal.keys import VIEWS
from linnet.board.terminal.state import Board
from linnet.runs import RunStore
from tests.board.conftest import ABOUT, board_of, look, read, steps, training, write
from tests.board.test_keys import screen_text, settled

NASTY = [
    "[bold red]markup[/bold red]",
    "[link=file:///etc/passwd]x[/link]",
    "[@click=app.quit]quit[/]",
    "\x1b[2J\x1b]0;title\x07",
    "line\nbreak\r\ttab",
    "n" * 300,
    "損失" * 150,
    "a\u202eb\u2066c",  # would turn the text round
    "e\u0301\u0301\u0301\u0301",
    "\x9b31m\x90",
    "/",
    "//",
    "a/",
    "",
    " ",
    "💥" * 40,
    "\x00",
]


def hostile() -> dict[str, Any]:
    text = "".join(NASTY)
    return {
        "run_id": text,
        "name": NASTY[0],
        "recipe": NASTY[3],
        "experiment": NASTY[2],
        "tags": NASTY,
        "config": {**dict.fromkeys(NASTY, text), "deep": {"a": {"b": [text] * 50}}},
        "model": {"arch": NASTY[3]},
        "provenance": {"host": text, "command": NASTY, "git": {"sha": NASTY[3], "branch": text}, "pid": "no"},
    }


def events() -> list[Any]:
    lines: list[Any] = [{"kind": "run_start", "t": 0.0}]
    for step in range(1, 30):
        values = dict.fromkeys(NASTY, step * 0.5)
        lines.append({"kind": "scalars", "t": step, "step": step, "values": values})
    for text in NASTY:
        lines.append({"kind": "sample", "t": 30, "step": 30, "prompt": text, "text": text})
        lines.append({"kind": "note", "t": 30, "text": text, "at": text})
        lines.append({"kind": text or "odd", "t": 30, text: text})
        lines.append({"kind": "checkpoint", "t": 30, "step": 30, "path": text})
        lines.append(text.encode())
    lines.append({"kind": "eval", "t": 30, "step": 30, "name": NASTY[3], "loss": 1.0})
    return [*lines, {"kind": "run_end", "t": 31, "reason": NASTY[3], "error": NASTY[0]}]


@pytest.mark.parametrize("size", [(60, 20), (120, 40)])
def test_hostile_names_and_texts_are_shown_as_what_they_are(root: Path, size: tuple[int, int]) -> None:
    write(root / "evil", events(), **hostile())
    board = board_of(root, "evil")
    for view in VIEWS:
        act(board, f"view:{view}")
        read(board)
        text = look(board, *size)
        assert not any(ord(c) < 32 and c != "\n" for c in text)
        assert not set(text) & {"\x7f", "\x9b", "\x90", "\u202e", "\u2066"}
    for name in board.names():
        board.open_metric(name)
        look(board, *size)
    act(board, "differences")
    look(board, *size)


def test_markup_is_not_interpreted_on_the_screen(root: Path) -> None:
    write(root / "evil", events(), **{**hostile(), "run_id": "[red]evil[/red]"})
    store = RunStore(root)
    app = BoardApp(Board(store, [store.find("evil").path]))

    async def go() -> None:
        async with app.run_test(size=(160, 40)) as pilot:
            await settled(pilot, app)
            assert "[red]evil[/red]" in screen_text(app)
            await pilot.press("a", "end")
            for _ in range(40):
                await pilot.press("pageup")
                if "[bold red]markup[/bold red]" in screen_text(app):
                    break
            assert "[bold red]markup[/bold red]" in screen_text(app)
            assert app.is_running

    asyncio.run(go())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("only NaN", [math.nan] * 20),
        ("one point", [3.25]),
        ("one NaN", [math.nan]),
        ("all equal", [7.0] * 50),
        ("tiny", [1e-300, 2e-300, 3e-300]),
        ("huge", [1e300, -1e300, 5e299]),
        ("both", [1e-300, 1e300]),
        ("infinite", [math.inf, -math.inf, 1.0]),
        ("denormal", [5e-324, 0.0]),
        ("zero", [0.0] * 5),
    ],
)
def test_odd_values(root: Path, name: str, values: list[float]) -> None:
    spelled = {math.inf: "inf", -math.inf: "-inf"}
    lines = []
    for step, value in enumerate(values, 1):
        finite = math.isfinite(value)
        line: dict[str, Any] = {"kind": "step", "phase": "train", "t": float(step), "step": step}
        line["loss"] = value if finite else None
        if not finite:
            line["nonfinite"] = {"loss": spelled.get(value, "nan")}
        lines.append(line)
    write(root / "a", lines)
    board = board_of(root, "a")
    assert "loss" in look(board)
    board.open_metric("loss")
    for action in ("smoothing", "log_scale", "clip", "zoom_in", "left", "axis", "axis", "axis", "axis"):
        look(board)
        act(board, action)
    text = look(board)
    act(board, "log_scale")
    if all(math.isnan(value) for value in values):
        assert "NaN" in text
    else:
        assert "nothing to draw" not in text


def test_five_thousand_metrics(root: Path) -> None:
    values = {f"layer{i // 50}/m{i}": float(i) for i in range(5000)}
    events = [
        {"kind": "scalars", "t": s, "step": s, "values": {k: v + s for k, v in values.items()}} for s in range(1, 11)
    ]
    write(root / "many", events)
    board = board_of(root, "many")
    assert len(board.names()) == 5000
    text = look(board, 300, 80)
    assert "page 1/" in text
    assert "layer0 ──" in text
    act(board, "last")
    assert "m4999" in look(board, 300, 80)
    act(board, "page_back")
    look(board, 60, 20)


def test_steps_that_go_back_or_are_gigantic(root: Path) -> None:
    lines = steps(10) + steps(5, first=3)
    lines.append({"kind": "step", "t": 1e18, "step": 2**62, "loss": 1.0})
    lines.append({"kind": "step", "t": -5.0, "step": -7, "loss": 2.0})
    write(root / "a", lines, created_at=1e299, total_steps=-1)
    board = board_of(root, "a")
    text = look(board)
    assert "1 loss" in text
    assert "step 4.612e+18" in text
    board.open_metric("loss")
    for _ in range(5):
        text = look(board)
        assert f"x {board.axis}" in text
        assert "points 17" in text
        act(board, "axis")


def test_a_folder_without_events_and_one_without_a_manifest(root: Path) -> None:
    write(root / "empty", [], **ABOUT)
    assert "no metrics yet" in look(board_of(root, "empty"))
    (root / "empty" / "events.jsonl").unlink()
    look(board_of(root, "empty"))
    folder = write(root / "bare", training())
    (folder / "run.json").unlink()
    assert "1 loss" in look(board_of(root, "bare"))


def test_a_run_json_of_wrong_types(root: Path) -> None:
    write(root / "a", steps(3), tags="no", total_steps="many", config=[1], provenance=3, goals={"loss": 7}, model=None)
    board = board_of(root, "a")
    for view in VIEWS:
        act(board, f"view:{view}")
        header = look(board).splitlines()[1]
        assert "step 3 " in header  # and of how many, it did not say


def test_links_and_pipes_in_the_weights_folder(trained: Path) -> None:
    import os

    weights = trained / "weights"
    weights.mkdir()
    (weights / "step_1.gguf").symlink_to("nowhere")
    (weights / "latest").symlink_to("/etc/passwd")
    os.mkfifo(weights / "best")
    board = board_of(trained.parent, "latest", view="checkpoints")
    text = look(board)
    assert "gone" in text
    assert "root:" not in text


def test_a_metric_of_only_nan_is_called_that_on_a_log_scale_too(root: Path) -> None:
    write(root / "a", [{"kind": "step", "t": 1.0, "step": 1, "loss": None, "nonfinite": {"loss": "nan"}}])
    board = board_of(root, "a")
    act(board, "log_scale")
    assert "all values are NaN or infinite" in look(board)
    board.open_metric("loss")
    assert "all values are NaN or infinite" in look(board)
