"""The board as people have it: in a terminal, beside a run that trains."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.board.conftest import ABOUT, END, append, steps, training, write
from tests.board.terminals import PtyTerminal, Terminal, TmuxTerminal, see

KINDS = [
    PtyTerminal,
    pytest.param(TmuxTerminal, marks=pytest.mark.skipif(not TmuxTerminal.there(), reason="there is no tmux here")),
]


@pytest.fixture
def opened() -> Iterator[list[Terminal]]:
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def step_on(text: str) -> int:
    step = re.search(r"step ([\d,]+)", text)
    return int(step[1].replace(",", "")) if step else -1


@pytest.mark.parametrize("kind", KINDS)
def test_beside_a_real_training_run(
    kind: type[PtyTerminal] | type[TmuxTerminal],
    root: Path,
    tmp_path: Path,
    opened: list[Terminal],
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = tmp_path / "text"
    text.mkdir()
    for file in sorted((Path(sysconfig.get_path("stdlib")) / "json").glob("*.py")):
        shutil.copy(file, text)
    flags = ["--corpus", str(text), "--preset", "tiny", "--vocab", "384", "--batch", "4", "--steps", "100000"]
    flags += ["--eval-every", "20", "--sample-every", "20", "--sample-tokens", "8", "--checkpoint-every", "40"]
    flags += ["--eval-tokens", "512", "--runs", str(root)]
    trainer = subprocess.Popen(
        [sys.executable, "-m", "linnet", "train", "from-scratch", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    started.append(trainer)
    board = kind([], 120, 40)
    opened.append(board)
    first = step_on(see(board, "● live", "from-scratch", "1 loss", "tok/s", patience=90))
    while step_on(see(board, "● live")) <= first:
        board.poll()
    board.press("1")
    see(board, "smoothing off", "points", "mean")
    board.press("s")
    see(board, "smoothing light 0.5")
    board.press("\x1b")
    see(board, "2 validation/loss", "3 lr")
    board.press("y")
    see(board, "this machine, live", "CPU", "memory", "process RSS")
    board.press("a")
    see(board, "0  ", "The ", patience=60)
    board.press("k")
    see(board, ".gguf", "latest", "linnet generate", patience=60)
    board.press("r")
    see(board, "1 run", "● live")
    trainer.send_signal(signal.SIGINT)
    see(board, "‖ interrupted", patience=60)
    board.press("g")
    see(board, "run interrupted")
    trainer.wait(timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_the_board_is_as_wide_as_its_terminal(
    kind: type[PtyTerminal] | type[TmuxTerminal], root: Path, opened: list[Terminal]
) -> None:
    write(root / "a", [*steps(10), END])
    board = kind([], 132, 40)
    opened.append(board)
    text = see(board, "✓ completed", "1 loss")
    assert max(len(line) for line in text.splitlines()) == 132


def test_a_killed_writer_is_seen_at_once(
    root: Path, opened: list[Terminal], started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    program = tmp_path / "writer.py"
    program.write_text(
        "import linnet, sys, time\n"
        "with linnet.start(sys.argv[1], arch='killed', total_steps=10**6, system_every=0) as run:\n"
        "    for step in range(10**6):\n"
        "        run.log(step, loss=1 / (step + 1))\n"
        "        time.sleep(0.005)\n"
    )
    writer = subprocess.Popen([sys.executable, str(program), str(root)])
    started.append(writer)
    while not any(root.glob("*/events.jsonl")):
        writer.poll()
    board = PtyTerminal([])
    opened.append(board)
    see(board, "● live")
    writer.kill()
    writer.wait()
    see(board, "✗ crashed", patience=10)
    board.press("g")
    see(board, "the writer died without a run_end")


def test_a_run_that_is_cut_damaged_replaced_and_deleted_while_open(root: Path, opened: list[Terminal]) -> None:
    folder = write(root / "poor-thing", steps(200))
    board = PtyTerminal(["poor-thing"])
    opened.append(board)
    see(board, "step 200", "1 loss")
    append(folder, [b'{"kind":"step", oh no', b"\xff\xfe\x00", *steps(100, first=201)])
    see(board, "step 300", "2 damaged")
    board.press("g")
    see(board, "line 201 is damaged", "oh no")
    with (folder / "events.jsonl").open("r+b") as file:
        file.truncate(2000)
    see(board, "the stream was cut or replaced")
    write(root / "other", steps(50, loss=lambda step: -step))
    (root / "other" / "events.jsonl").replace(folder / "events.jsonl")
    see(board, "step 50")
    board.press("m")
    see(board, "-50")
    shutil.rmtree(folder)
    see(board, "? gone", "1 loss")
    board.press("g")
    see(board, "folder is gone")
    write(folder, steps(20))
    see(board, "step 20", patience=10)
    board.press("m")
    board.press("q")
    assert board.ended() == 0


def test_quitting_leaves_the_terminal_as_it_was(root: Path, opened: list[Terminal]) -> None:
    write(root / "a", [*steps(10), END])
    for key in ("q", "\x1b", "\x03"):
        board = PtyTerminal([])
        opened.append(board)
        see(board, "✓ completed")
        board.press(key)
        assert board.ended() == 0
        assert b"\x1b[?1049h" in board.sent  # the alternate screen was taken
        assert board.sent.rfind(b"\x1b[?1049l") > board.sent.rfind(b"\x1b[?1049h")  # and given back
        assert b"\x1b[?25h" in board.sent  # with its cursor


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_board_ended_from_outside_leaves_the_terminal_as_it_was(
    number: signal.Signals, root: Path, opened: list[Terminal]
) -> None:
    write(root / "a", [*steps(10), END])
    board = PtyTerminal([])
    opened.append(board)
    see(board, "✓ completed")
    assert not board.echoes()
    os.kill(board.pid, number)
    assert board.ended() == 128 + number
    assert board.echoes()
    assert board.sent.rfind(b"\x1b[?1049l") > board.sent.rfind(b"\x1b[?1049h")
    assert board.sent.rfind(b"\x1b[?25h") > board.sent.rfind(b"\x1b[?25l")


def test_a_board_that_fails_says_so_by_its_exit_code(
    root: Path, opened: list[Terminal], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(root / "a", [*steps(10), END])
    (tmp_path / "sitecustomize.py").write_text(
        "import linnet.board.terminal.views.pages as pages\ndel pages.duration\n"  # the log tab will fail
    )
    paths = (str(tmp_path), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    board = PtyTerminal([])
    opened.append(board)
    see(board, "✓ completed")
    board.press("g")
    assert board.ended() == 1
    assert board.echoes()
    assert b"NameError" in board.sent


def test_a_stream_that_cannot_be_read_any_more_is_told(root: Path, opened: list[Terminal]) -> None:
    folder = write(root / "a", steps(200))
    board = PtyTerminal(["a"])
    opened.append(board)
    see(board, "step 200", "1 loss")
    (folder / "events.jsonl").unlink()
    see(board, "events.jsonl cannot be read", "step 200", "1 loss")
    board.press("g")
    see(board, "(No such file or directory)", "still shown")
    (folder / "events.jsonl").mkdir()
    see(board, "(not a regular file)")
    (folder / "events.jsonl").rmdir()
    append(folder, steps(20))
    see(board, "step 20", "can be read again")
    assert "cannot be read" not in board.text().splitlines()[0]


def test_a_terminal_that_changes_its_size(root: Path, opened: list[Terminal]) -> None:
    write(root / "a", training(), **ABOUT)
    board = PtyTerminal([], 60, 14)
    opened.append(board)
    see(board, "page 1/")
    board.resize(140, 50)
    see(board, "machine", "validation")
    board.resize(60, 14)
    see(board, "page 1/")


def test_without_colour_no_colour_is_sent(root: Path, opened: list[Terminal]) -> None:
    write(root / "a", training(), **ABOUT)
    board = PtyTerminal([], NO_COLOR="1")
    opened.append(board)
    see(board, "✓ completed", "1 loss")
    for codes in re.findall(rb"\x1b\[([\d;]*)m", board.sent):
        numbers = {int(code) for code in codes.split(b";") if code}
        assert not numbers & {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}, codes


def test_nothing_is_written_into_a_run_but_its_cache(root: Path, opened: list[Terminal]) -> None:
    folder = write(root / "a", training(), **ABOUT)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    board = PtyTerminal([])
    opened.append(board)
    see(board, "1 loss")
    for key in "1sxlo+\x1b":
        board.press(key)
        board.poll(0.1)
    for key in "yrakcngm":
        board.press(key)
        board.poll(0.2)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts}
    assert after == before


def test_a_folder_nobody_may_write_in_is_shown_all_the_same(root: Path, opened: list[Terminal]) -> None:
    folder = write(root / "a", training(), **ABOUT)
    folder.chmod(0o555)
    try:
        board = PtyTerminal([])
        opened.append(board)
        see(board, "1 loss", "✓ completed")
    finally:
        folder.chmod(0o755)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the application draws first")
def test_the_list_stands_before_the_application_is_there(root: Path, opened: list[Terminal], tmp_path: Path) -> None:
    """The import of the application never ends here; Ctrl-C gives the terminal back all the same."""
    write(root / "early", [*steps(10), END])
    (tmp_path / "textual.py").write_text("import time; time.sleep(60)")
    board = PtyTerminal(["--runs", str(root)], PYTHONPATH=str(tmp_path))
    opened.append(board)
    see(board, "1 run", "early", "✓ completed", "▁")
    assert b"\x1b[?1049h" in board.sent
    board.press("\x03")
    assert board.ended() == 130
    assert board.sent.rstrip().endswith(b"\x1b[?1049l")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the application draws first")
def test_the_early_list_leaves_nothing_behind(root: Path, opened: list[Terminal]) -> None:
    write(root / "early", [*steps(10), END])
    board = PtyTerminal(["--runs", str(root)])
    opened.append(board)
    see(board, "1 run", "early", "✓ completed")
    while board.sent.count(b"\x1b[?1049h") < 2:  # first the list, then the application
        assert board.poll()
    see(board, "1 run", "early", "✓ completed")
    board.press("q")
    assert board.ended() == 0
    assert board.sent.count(b"\x1b[?1049h") == board.sent.count(b"\x1b[?1049l") == 2
    assert board.sent.rindex(b"\x1b[?25h") > board.sent.rindex(b"\x1b[?25l")
