"""Images in the terminal's own graphics: the bytes that are sent, decoded again, are the image."""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

import linnet
from linnet.board.terminal import graphics
from linnet.board.terminal.full_screen import RawTerminal, browse_images, in_graphics
from tests.board.terminals import PtyTerminal, see

Pixels = np.ndarray
_pixels = st.tuples(st.integers(1, 20), st.integers(1, 20)).flatmap(lambda size: arrays(np.uint8, (*size, 3)))


def smooth(height: int = 60, width: int = 90) -> Pixels:
    """A gradient: thousands of colours."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], axis=-1).astype(np.uint8)


def of_kitty(data: bytes) -> tuple[Pixels, dict[str, str]]:
    """The image in kitty's sequences, and what is said of it."""
    sequences = re.findall(rb"\x1b_G([^;]*);([^\x1b]*)\x1b\\", data)
    assert b"".join(b"\x1b_G%s;%s\x1b\\" % parts for parts in sequences) == data, "nothing else is sent"
    controls = [dict(pair.split("=") for pair in control.decode().split(",") if pair) for control, _ in sequences]
    assert [control["m"] for control in controls] == ["1"] * (len(controls) - 1) + ["0"]
    assert all(len(payload) <= 4096 and len(payload) % 4 == 0 for _, payload in sequences)
    raw = zlib.decompress(base64.standard_b64decode(b"".join(payload for _, payload in sequences)))
    first = controls[0]
    assert (first["a"], first["f"], first["o"], first["q"]) == ("T", "24", "z", "2")
    return np.frombuffer(raw, np.uint8).reshape(int(first["v"]), int(first["s"]), 3), first


def of_iterm(data: bytes) -> tuple[Pixels, dict[str, str]]:
    matched = re.fullmatch(rb"\x1b\]1337;File=([^:]*):([A-Za-z0-9+/=]*)\x07", data)
    assert matched is not None
    said = dict(pair.split("=") for pair in matched[1].decode().split(";"))
    content = base64.standard_b64decode(matched[2])
    assert (said["inline"], int(said["size"])) == ("1", len(content))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), said


def of_sixel(data: bytes) -> Pixels:
    """A decoder by the book (VT340): colours, run lengths, carriage return and new line."""
    matched = re.fullmatch(rb'\x1bP[0-9;]*q"1;1;(\d+);(\d+)(.*)\x1b\\', data, re.DOTALL)
    assert matched is not None
    width, height, body = int(matched[1]), int(matched[2]), matched[3]
    pixels = np.zeros((-(-height // 6) * 6, width, 3), np.uint8)
    colours: dict[int, tuple[int, ...]] = {}
    x = top = colour = at = 0
    for part in re.finditer(rb"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|(\$)|(-)", body):
        assert part.start() == at, "nothing else is sent"
        at = part.end()
        if part[1]:
            colours[int(part[1])] = tuple(round(int(part[index]) * 255 / 100) for index in (2, 3, 4))
        elif part[5]:
            colour = int(part[5])
        elif part[9]:
            x = 0
        elif part[10]:
            x, top = 0, top + 6
        else:
            length, code = (int(part[6]), part[7]) if part[6] else (1, part[8])
            for row in range(6):
                if (code[0] - 63) >> row & 1:
                    pixels[top + row, x : x + length] = colours[colour]
            x += length
            assert x <= width
    assert at == len(body)
    return pixels[:height]


@given(pixels=_pixels)
@settings(max_examples=40, deadline=None)
def test_kitty_and_iterm_get_every_pixel(pixels: Pixels) -> None:
    sent, said = of_kitty(graphics.kitty(pixels, 7, 3))
    np.testing.assert_array_equal(sent, pixels)
    assert (said["c"], said["r"]) == ("7", "3")
    sent, said = of_iterm(graphics.iterm(pixels, 7, 3))
    np.testing.assert_array_equal(sent, pixels)
    assert (said["width"], said["height"]) == ("7", "3")


@given(pixels=_pixels)
@settings(max_examples=40, deadline=None)
def test_sixel_of_few_colours_is_the_image_but_for_its_percents(pixels: Pixels) -> None:
    few = pixels // 85 * 85
    assert np.abs(of_sixel(graphics.sixel(few)).astype(int) - few).max() <= 2


def test_sixel_of_many_colours_is_near_everywhere_and_right_on_the_whole() -> None:
    pixels = smooth()
    sent = of_sixel(graphics.sixel(pixels)).astype(int)
    difference = sent - pixels
    assert np.abs(difference).max() <= 60
    assert np.abs(difference.mean(axis=(0, 1))).max() < 6
    assert len(np.unique(sent.reshape(-1, 3), axis=0)) <= 256


def test_a_large_image_is_sent_in_chunks() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    data = graphics.kitty(noise, 10, 5)
    assert data.count(b"\x1b_G") == 10
    np.testing.assert_array_equal(of_kitty(data)[0], noise)


ANSWERS = {
    "kitty": b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c",
    "sixel": b"\x1b[?62;4;22c",
    "neither": b"\x1b[?1;2c",
    "silent": b"",
    "fourteen": b"\x1b[?64;14c",
}


@pytest.mark.parametrize(
    ("environment", "answer", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty", "kitty"),
        ({"TERM": "foot"}, "sixel", "sixel"),
        ({"TERM": "xterm-256color"}, "neither", None),
        ({"TERM": "xterm-256color"}, "silent", None),
        ({"TERM": "xterm-256color"}, "fourteen", None),
        ({"TERM_PROGRAM": "iTerm.app"}, "silent", "iterm"),
        ({"LC_TERMINAL": "iTerm2"}, "sixel", "iterm"),
        ({"TERM_PROGRAM": "WezTerm"}, "kitty", "iterm"),
        ({"TERM_PROGRAM": "Apple_Terminal"}, "kitty", None),
        ({"TERM": "linux"}, "sixel", None),
        ({"TMUX": "1", "LC_TERMINAL": "iTerm2"}, "sixel", "sixel"),
        ({"TMUX": "1", "KITTY_WINDOW_ID": "1"}, "kitty", None),
        ({"LINNET_GRAPHICS": "sixel", "TERM_PROGRAM": "iTerm.app"}, "kitty", "sixel"),
        ({"LINNET_GRAPHICS": "none"}, "kitty", None),
    ],
)
def test_the_terminal_is_known_by_its_words_and_its_answers(
    environment: dict[str, str], answer: str, protocol: str | None
) -> None:
    assert graphics.choose_protocol(lambda question: ANSWERS[answer], environment) == protocol


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    with linnet.start(root, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
        for step in (1, 2, 3):
            run.image(step, "x", np.full((4, 4, 3), step * 50, np.uint8))
    return root


def test_a_small_image_fills_the_screen_and_a_damaged_one_is_said(logged: Path) -> None:
    artifact = linnet.open(logged / "a").artifacts()[0]
    pixels, said = of_kitty(in_graphics("kitty", artifact, 80, 24, (8, 16)))
    assert pixels.shape == (32, 32, 3)  # eight times as large at most
    assert (said["c"], said["r"]) == ("4", "2")
    assert of_sixel(in_graphics("sixel", artifact, 3, 24, (8, 16))).shape == (24, 24, 3)


_KEYS = (b"\x1b[C", b"\x1b[C", b"\x1b[D", b"q")  # right, right, left, and back


def test_a_real_terminal_is_asked_and_keys_walk_through_the_steps(logged: Path) -> None:
    """The far end of a pseudo-terminal answers as kitty does, and presses keys."""
    artifacts = linnet.open(logged / "a").artifacts()
    near, far = pty.openpty()
    seen = b""

    def kitty() -> None:
        nonlocal seen
        for until, typed in ((b"\x1b[c", ANSWERS["kitty"]), *((b"goes back", key) for key in _KEYS)):
            piece = b""
            while until not in piece:
                piece += os.read(near, 1 << 16)
            seen += piece
            os.write(near, typed)
        while b"?1049l" not in seen:
            seen += os.read(near, 1 << 16)

    answering = threading.Thread(target=kitty, daemon=True)
    answering.start()
    with RawTerminal(far, far) as terminal:
        assert graphics.choose_protocol(terminal.ask, {"TERM": "xterm"}) == "kitty"
        assert browse_images(terminal, "kitty", artifacts, 0) == 1
    answering.join(10)
    os.close(far)
    os.close(near)
    images = re.findall(rb"\x1b_Ga=T[^\x1b]*\x1b\\", seen)
    assert [of_kitty(image)[0][0, 0, 0] for image in images] == [50, 100, 150, 100]
    assert b"?1049h" in seen
    assert b"x  step 2  2/3" in seen


def test_a_silent_terminal_is_not_waited_for() -> None:
    near, far = pty.openpty()
    began = time.monotonic()
    with RawTerminal(far, far) as terminal:
        assert graphics.choose_protocol(terminal.ask, {"TERM": "xterm"}) is None
        assert terminal.size()[:2] == (80, 24)
    assert time.monotonic() - began < 3
    os.close(near)
    os.close(far)


def test_enter_shows_an_image_in_the_terminals_graphics_and_any_key_comes_back(logged: Path) -> None:
    terminal = PtyTerminal(["a", "--runs", str(logged), "--view", "artifacts"], LINNET_GRAPHICS="kitty")
    try:
        see(terminal, "x  step 3", "4×4")
        terminal.press("\r")
        see(terminal, "any other key goes back")
        (image,) = re.findall(rb"\x1b_Ga=T[^\x1b]*\x1b\\", terminal.sent)
        assert of_kitty(image)[0][0, 0].tolist() == [150, 150, 150]
        terminal.press("\x1b[D")
        see(terminal, "step 2", "goes back")
        terminal.press("x")
        see(terminal, "x  step 2", "artifacts", "? help")
        terminal.press("qq")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_a_terminal_without_graphics_gets_half_blocks_on_the_whole_screen(logged: Path) -> None:
    terminal = PtyTerminal(["a", "--runs", str(logged), "--view", "artifacts"], LINNET_GRAPHICS="none")
    try:
        see(terminal, "x  step 3", "▀")
        terminal.press("\r")
        see(terminal, "\nx  step 3", "▀" * 40)  # no list beside it
        assert b"\x1b_Ga=T" not in terminal.sent
        assert terminal.sent.count(b"?1049h") == 1  # the board did not stand aside for a terminal that cannot
    finally:
        terminal.close()


@pytest.mark.parametrize("protocol", ["kitty", "iterm", "sixel", "none"])
def test_show_draws_an_image_in_the_terminal(logged: Path, protocol: str) -> None:
    words = ["a", "--runs", str(logged), "--artifact", "x@2"]
    terminal = PtyTerminal(words, command="show", LINNET_GRAPHICS=protocol)
    try:
        assert terminal.ended() == 0
    finally:
        terminal.close()
    drawn = terminal.sent.partition(b"4\xc3\x974")[2].replace(b"\r\n", b"\n")
    match protocol:
        case "kitty":
            (image,) = re.findall(rb"\x1b_Ga=T[^\x1b]*\x1b\\", drawn)
            pixels = of_kitty(image)[0]
        case "iterm":
            (image,) = re.findall(rb"\x1b\]1337[^\x07]*\x07", drawn)
            pixels = of_iterm(image)[0]
        case "sixel":
            (image,) = re.findall(rb"\x1bP.*?\x1b\\", drawn, re.DOTALL)
            pixels = of_sixel(image)
        case _:
            assert "▀".encode() in drawn
            assert b"38;2;100;100;100" in drawn
            return
    assert np.abs(pixels.astype(int) - 100).max() <= 2
