"""The artifacts tab: what was logged besides numbers, by name and step, drawn in characters."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.board.gallery import describe, find_artifact, series_of
from linnet.board.picture import braille, fitted_size, half_blocks, resized
from linnet.board.terminal import system_viewer
from linnet.board.terminal.actions import act, point
from linnet.board.terminal.artifact_lines import artifact_lines
from linnet.board.terminal.palette import style_of
from linnet.board.terminal.spans import length, text_of
from linnet.board.terminal.state import Board
from linnet.errors import UsageError
from tests.board.conftest import append, board_of, look, read, styles, write

RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has logged one of everything, and an image at three steps."""
    root = tmp_path_factory.mktemp("logged")
    with linnet.start(root, run_id="a", system_every=0) as run:
        for step in (100, 200, 300):
            run.log(step, loss=1.0)
            image = np.zeros((8, 8, 3), np.uint8)
            image[:4], image[4:] = RED, BLUE
            image[0, 0] = step % 251  # another image at every step
            run.image(step, "samples/cat", image, caption=f"caption {step}")
        run.table(300, "errors", [{"text": f"row {i}", "loss": i / 4} for i in range(60)])
        run.histogram(300, "weights", np.repeat(np.arange(10.0), np.arange(1, 11)), bins=10)
        run.text(300, "plan", "first\n" + "word " * 100)
        run.audio(300, "voice", np.sin(np.arange(8000) / 3), 8000)
        file = root / "any.bin"
        file.write_bytes(b"123")
        run.artifact(file)
    return root


def shelf_of(root: Path, *actions: str) -> Board:
    board = board_of(root, "a", view="artifacts")
    for action in actions:
        act(board, action)
    return board


def test_names_are_listed_and_the_first_is_drawn_at_its_last_step(logged: Path) -> None:
    shown = look(shelf_of(logged), 80, 24)
    assert all(name in shown for name in ("samples/cat", "errors", "weights", "plan", "voice", "any.bin"))
    assert "samples/cat  step 300  ◀ 3/3" in shown
    assert "8×8" in shown
    assert "caption 300" in shown


def test_arrows_walk_through_steps_and_names(logged: Path) -> None:
    board = shelf_of(logged, "left")
    assert "step 200  ◀ 2/3 ▶" in look(board)
    act(board, "first")
    assert "step 100    1/3 ▶" in look(board)
    act(board, "last")
    assert "step 300  ◀ 3/3" in look(board)
    act(board, "down")
    assert "errors  step 300" in look(board)
    act(board, "up")
    act(board, "up")
    assert "samples/cat  step 300" in look(board)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("errors", ["text", "loss", "row 3", "0.75"]),
        ("weights", ["55 values", "█", "9", "────"]),
        ("plan", ["first", "word word"]),
        ("voice", ["1.0 s, 8,000 Hz, 1 ch"]),
        ("any.bin", ["not drawn here", "3 B"]),
    ],
)
def test_each_kind_is_drawn_as_text(logged: Path, name: str, words: list[str]) -> None:
    board = shelf_of(logged)
    board.artifact_page.select(next(series for series in board.artifacts() if series.name == name))
    for size in ((100, 30), (40, 12), (200, 60)):
        shown = look(board, *size)
        assert size != (100, 30) or all(word in shown for word in words), shown


def test_a_long_table_scrolls_on_the_whole_screen(logged: Path) -> None:
    board = shelf_of(logged, "down", "open")
    assert "row 0" in look(board, 80, 20)
    for _ in range(4):
        act(board, "page_on")
    shown = look(board, 80, 20)
    assert "row 59" in shown
    assert "row 0 " not in shown
    act(board, "back")
    assert not board.artifact_page.whole
    assert board.view == "artifacts"
    act(board, "back")
    assert board.view == "metrics"


def test_an_image_is_half_blocks_in_its_own_colours(logged: Path) -> None:
    board = shelf_of(logged, "first")
    board.color = True
    drawn = [span for line in inspection_lines(board) for span in line if span[1].startswith("pixel.")]
    assert drawn[0][1] == "pixel.646464.646464"
    assert {"pixel.ff0000.ff0000", "pixel.0000ff.0000ff"} <= {style for _, style in drawn}
    assert set("".join(text for text, _ in drawn)) == {"▀"}
    style = style_of(drawn[0][1], "dark")
    assert style.color is not None and style.bgcolor is not None


def inspection_lines(board: Board) -> Any:
    from linnet.board.terminal.views import screen

    return screen.whole(board, 100, 30)


def test_the_mouse_selects_a_name_and_opens_it(logged: Path) -> None:
    board = shelf_of(logged)
    look(board, 100, 30)
    point(board, "click", 2, 1)
    assert board.artifact_page.key == ("errors", "table")
    point(board, "click", 90, 1)
    assert board.artifact_page.key == ("errors", "table")
    point(board, "double", 2, 1)
    assert board.artifact_page.whole
    point(board, "down", 2, 1)
    assert board.artifact_page.top_line == 3


def test_what_is_logged_while_one_looks_comes_by_itself(root: Path) -> None:
    folder = write(root / "a", [{"kind": "step", "t": 1, "step": 1, "loss": 1}])
    board = board_of(root, "a", view="artifacts")
    assert "nothing but numbers" in look(board)
    (folder / "artifacts").mkdir()
    (folder / "artifacts/x.txt").write_text("hello there")
    append(folder, [{"kind": "artifact", "t": 2, "step": 2, "name": "x", "path": "artifacts/x.txt"}])
    assert "hello there" in look(read(board))
    (folder / "artifacts/y.txt").write_text("and again")
    append(folder, [{"kind": "artifact", "t": 3, "step": 3, "name": "x", "path": "artifacts/y.txt"}])
    assert "and again" in look(read(board))
    append(folder, [{"kind": "resume", "t": 4, "step": 2}])
    assert "hello there" in look(read(board))
    assert "artifact x" in [entry.text for entry in board.watched_runs[0].journal.log_entries()]


HOSTILE = [
    {"name": "\x1b[2J\x1b]0;x\x07‮", "path": "artifacts/x.txt"},
    {"name": "a" * 100_000, "path": "artifacts/x.txt", "caption": "\x1b[31m" * 1000},
    {"name": 5, "path": "artifacts/x.txt", "bytes": -(10**30), "media": ["image"]},
    {"name": "gone", "path": "artifacts/none.png", "media": "image", "width": "\x1b", "height": {}},
    {"name": "bomb", "path": "artifacts/bomb.png", "media": "image"},
    {"path": ""},
    {"name": "table", "path": "artifacts/x.txt", "media": "table"},
    {"name": "ragged", "path": "artifacts/ragged.json", "media": "table"},
    {"name": "odd", "path": "artifacts/odd.json", "media": "histogram"},
    {"name": "sound", "path": "artifacts/x.txt", "media": "audio"},
    {"name": "folder", "path": "artifacts", "media": "image"},
]


def test_nothing_that_a_run_says_of_its_files_breaks_the_screen(root: Path) -> None:
    folder = write(root / "a", [{"kind": "artifact", "t": 1.0, "step": 1, **event} for event in HOSTILE])
    (folder / "artifacts").mkdir()
    (folder / "artifacts/x.txt").write_bytes(b"\x1b[2J\x00\xff\tz" * 50)
    (folder / "artifacts/bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\xff" * 40)
    (folder / "artifacts/ragged.json").write_text(json.dumps({"columns": ["a", "b"], "rows": [[1], [], [1, 2, 3]]}))
    (folder / "artifacts/odd.json").write_text(json.dumps({"counts": [-5, 1e308], "edges": [3, 2, 1e308]}))
    board = board_of(root, "a", view="artifacts")
    count = len(board.artifacts())
    assert count >= 9
    for size in ((80, 24), (20, 8), (300, 60)):
        for row, series in enumerate(board.artifacts()):
            board.artifact_page.select(series)
            board.artifact_page.whole = bool(row % 2)
            shown = look(board, *size)
            assert not set(shown) & set("\x1b\x07\x00‮"), series.name


def test_a_step_is_found_by_name_and_mistakes_are_answered(logged: Path) -> None:
    artifacts = linnet.open(logged / "a").artifacts()
    assert find_artifact(artifacts, "samples/cat").step == 300
    assert find_artifact(artifacts, "samples/cat@100").step == 100
    with pytest.raises(UsageError, match="was not logged at step 150; there are steps 100, 200, 300"):
        find_artifact(artifacts, "samples/cat@150")
    with pytest.raises(UsageError, match=r"there is no artifact 'sample/cat'; did you mean samples/cat"):
        find_artifact(artifacts, "sample/cat")
    assert series_of(artifacts)[0].name == "samples/cat"
    assert describe(find_artifact(artifacts, "errors")).startswith("60 rows × 2, ")


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (80, 20), (17, 31)])
def test_pictures_fit_their_room_at_every_size(size: tuple[int, int]) -> None:
    for shape in ((1, 1), (1, 400), (400, 1), (7, 9), (640, 480)):
        pixels = np.full((*shape, 3), 200, np.uint8)
        for draw in (half_blocks, braille):
            lines = draw(pixels, *size)
            assert 1 <= len(lines) <= size[1]
            assert all(length(line) <= size[0] for line in lines), (shape, draw)


def test_a_smaller_picture_has_the_mean_colours_and_a_larger_one_the_same_pixels() -> None:
    checks = np.indices((64, 64)).sum(axis=0) % 2 * 200
    pixels = np.repeat(checks[..., None], 3, axis=2).astype(np.uint8)
    assert np.unique(resized(pixels, 8, 8)).tolist() == [100]
    np.testing.assert_array_equal(resized(pixels, 128, 128)[::2, ::2], pixels)
    assert resized(np.zeros((9000, 7000, 3), np.uint8), 10, 10).shape == (10, 10, 3)
    assert fitted_size(100, 50, 80, 80) == (80, 40)


def test_without_colour_an_image_is_dots(logged: Path) -> None:
    artifact = find_artifact(linnet.open(logged / "a").artifacts(), "samples/cat")
    dots = text_of(artifact_lines(artifact, 20, 6, color=False))
    assert any(0x2800 < ord(letter) < 0x2900 for letter in dots)
    assert not any(style.startswith("pixel") for style in styles(artifact_lines(artifact, 20, 6, color=False)))


def test_a_file_is_opened_by_the_system_or_its_path_is_told(
    logged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    board = shelf_of(logged)
    act(board, "open_file")
    assert "no desktop" in board.message
    monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    act(board, "open_file")
    assert board.message.startswith("over ssh")
    path = str(board.artifact_page.artifact(board.artifacts()).path)  # type: ignore[union-attr]
    shown = "".join(line[30:].strip() for line in look(board, 80, 24).splitlines())  # whole, beside the list
    assert path in shown
    act(board, "down")
    assert path[-40:] not in look(board, 200, 24)
    act(board, "up")
    monkeypatch.delenv("SSH_CONNECTION")
    monkeypatch.setenv("DISPLAY", ":0")
    opener, seen = tmp_path / "xdg-open", tmp_path / "seen"
    opener.write_text(f'#!/bin/sh\necho "$1" > {seen}.part && mv {seen}.part {seen}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    act(board, "open_file")
    assert board.message.startswith("opened ")
    while not seen.exists():
        os.sched_yield()
    assert seen.read_text().strip() == str(board.artifact_page.artifact(board.artifacts()).path)  # type: ignore[union-attr]
    assert system_viewer.open_with_system(tmp_path / "gone") == (False, "the file is no longer there")
