"""A run and the screen it is watched on: the screen may be narrow, know few letters, or go away."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyte
import pytest

import linnet
from linnet.cli import main
from linnet.cli.progress import LiveLine, PlainLines, screen_for
from linnet.train import StepMetrics
from tests.board.terminals import PtyTerminal
from tests.conftest import Said


def report(step: int, steps: int = 20_000, **changes: Any) -> StepMetrics:
    values = {"loss": 4.2361, "lr": 0.0005, "grad_norm": 0.9}
    values |= {name: changes.pop(name) for name in (*values, "accuracy") if name in changes}
    fields = {"unit": "tokens", "per_s": 5815.2, "mfu": 0.4385, "seconds_left": 192.0}
    return StepMetrics(step, steps, values, **{**fields, **changes})


@dataclass(frozen=True)
class HeldOut:
    loss: float
    figures: dict[str, float]


HELD_OUT = HeldOut(4.39, {"loss": 4.39, "ppl": 80.67})


# A screen that goes away


def _write_end_of_a_pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _terminal_that_was_closed() -> int:
    terminal, program = pty.openpty()
    os.close(terminal)
    return program


GONE = {
    "pipe": _write_end_of_a_pipe_without_reader,
    "terminal": _terminal_that_was_closed,
    "full-disk": lambda: os.open("/dev/full", os.O_WRONLY),
    "closed": lambda: -1,
}


@pytest.fixture(params=[name for name in GONE if name != "full-disk" or Path("/dev/full").exists()])
def gone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output and standard error lead to something that takes nothing."""
    streams: list[TextIO | None] = []
    for name in ("stdout", "stderr"):
        descriptor = GONE[request.param]()
        streams.append(None if descriptor < 0 else open(descriptor, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        monkeypatch.setattr(sys, name, streams[-1])
    yield
    for stream in streams:
        if stream is not None:
            stream.close()


@pytest.mark.usefixtures("gone")
def test_a_training_outlives_its_screen(small: list[str]) -> None:
    assert main([*small, "--steps", "6"]) == 0
    run = linnet.open("latest")
    assert run.status == "completed"
    assert run.metrics()["loss"].step.tolist() == [1, 2, 3, 4, 5, 6]
    assert (run.path / "weights/step_6.gguf").is_file()
    assert main(["resume", "latest", "--steps", "7", "--json"]) == 0
    assert linnet.open("latest").status == "completed"


@pytest.mark.parametrize("gone", ["pipe"], indirect=True)
@pytest.mark.usefixtures("gone")
def test_a_failed_training_without_a_screen_keeps_its_exit_code(small: list[str]) -> None:
    assert main([*small, "--steps", "6", "--lr", "1e9"]) == 1
    assert linnet.open("latest").status == "aborted"
    assert main([*small, "--steps", "0"]) == 2


def test_ctrl_c_after_the_reader_has_gone_keeps_the_model(small: list[str], tmp_path: Path) -> None:
    words = [*small, "--steps", "100000", "--eval-every", "0", "--sample-every", "0", "--checkpoint-every", "0"]
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen([sys.executable, "-m", "linnet", *words], stdout=subprocess.PIPE, stderr=file)
    assert process.stdout is not None
    next(line for line in process.stdout if line.startswith(b"step 1:"))
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert errors.read_text() == ""
    run = linnet.open("latest")
    assert run.status == "interrupted"
    assert len(run.checkpoints()) == 1


def test_a_whole_process_behind_head_ends_as_the_training_did(small: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "linnet", *small, "--steps", "6"]
    script = '"$@" 2>errors | head -1 >/dev/null; exit ${PIPESTATUS[0]}'
    assert subprocess.run(["bash", "-c", script, "-", *command], check=False).returncode == 0
    assert (tmp_path / "errors").read_text() == ""
    assert linnet.open("latest").status == "completed"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_letters_that_an_output_does_not_have_are_replaced(
    small: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert main([*small, "--steps", "2", "--prompt", "Привет, 世界"]) == 0
    for words in (["show"], ["tail"], ["board", "--once"], ["generate", "latest", "--prompt", "世"]):
        assert main(words) == 0, words
    text = written.getvalue().decode(encoding)
    assert "sample 2: ??????, ??" in text
    assert "completed after 2 steps" in text


# A log: lines every few seconds


class Clock:
    """Time that stands still until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("linnet.cli.progress.time.monotonic", lambda: self.now)


def test_a_log_has_the_first_and_the_last_step_and_one_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out = Clock(monkeypatch), io.StringIO()
    watch = screen_for(out)
    for step in range(1, 1001):
        watch.on_step(report(step, 1000))
        clock.now += 0.01
    watch.on_end("completed")
    said = [int(line.split()[1].rstrip(":")) for line in out.getvalue().splitlines()]
    assert (said[0], said[-1]) == (1, 1000)
    assert len(said) == 5  # of ten seconds


def test_a_log_ends_with_the_step_at_which_a_run_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    out = io.StringIO()
    watch = PlainLines(out)
    for step in range(1, 8):
        watch.on_step(report(step, mfu=None))
    watch.on_evaluation(7, HELD_OUT)
    watch.on_end("completed")
    assert out.getvalue().splitlines() == [
        "step 1: loss=4.236100 lr=0.0005 tok/s=5815",
        "eval 7: loss=4.390000 ppl=80.67",
        "step 7: loss=4.236100 lr=0.0005 tok/s=5815",
    ]


def test_a_run_of_ten_quick_steps_shows_something(small: list[str], said: Said) -> None:
    code, out, _ = said(*small, "--steps", "10")
    assert code == 0
    assert "step 1: loss=" in out and "step 10: loss=" in out
    assert out.count("\neval ") == 10


# A terminal: one line, drawn over


class Terminal:
    """A pseudo-terminal of a given width for something in this process; `screen` is what a person sees."""

    def __init__(self, width: int, height: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self.stream = open(theirs, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        self.screen = pyte.HistoryScreen(width, height)
        self._emulator = pyte.ByteStream(self.screen)
        self.resize(width, height)

    def resize(self, width: int, height: int = 24) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def rows(self) -> list[str]:
        """The rows with something in them."""
        os.set_blocking(self._ours, False)
        while True:
            try:
                self._emulator.feed(os.read(self._ours, 1 << 16))
            except BlockingIOError:
                break
        return [row.rstrip() for row in self.screen.display if row.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    made = Terminal(80)
    monkeypatch.setattr(sys, "stdout", made.stream)
    return made


def train_on(terminal: Terminal, steps: int = 60, **changes: Any) -> list[str]:
    """A loop of some steps, with an evaluation, on the terminal; its rows at the end."""
    watch = LiveLine(terminal.stream, redraw=0)
    for step in range(1, steps + 1):
        watch.on_step(report(19_000 + step, loss=5 - step / 100, **changes))
        if step == 2:
            watch.on_evaluation(step, HELD_OUT)
    return terminal.rows()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("accuracy", [None, 0.873], ids=["text", "images"])
def test_the_live_line_is_one_row_of_any_terminal(terminal: Terminal, width: int, accuracy: float | None) -> None:
    terminal.resize(width)
    (row,) = train_on(terminal, accuracy=accuracy, unit="tokens" if accuracy is None else "images")
    assert len(row) < width
    assert "19,060/20,000" in row and "loss 4.4" in row
    assert not terminal.screen.history.top


def test_what_matters_least_goes_first(terminal: Terminal) -> None:
    parts = {"▁": "curve", "MFU": "MFU", "lr": "lr", "█": "bar", "held-out": "held-out", "tok/s": "speed"}
    seen = []
    for width in range(140, 39, -1):
        terminal.resize(width)
        (row,) = train_on(terminal, 3)
        shown = tuple(name for mark, name in parts.items() if mark in row)
        if not seen or seen[-1] != shown:
            seen.append(shown)
        terminal.screen.reset()
    assert seen == [tuple(parts.values())[n:] for n in range(7)]
    assert row.endswith("3 m 12 s left")


def test_the_live_line_is_cut_where_nothing_fits(terminal: Terminal) -> None:
    for width in (30, 20, 10, 3):
        terminal.resize(width)
        (row,) = train_on(terminal)
        assert len(row) < width
        terminal.screen.reset()


def test_the_live_line_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    watch = LiveLine(terminal.stream, redraw=0)
    for width in (140, 50, 90, 40):
        terminal.resize(width)
        watch.on_step(report(1))
        *_, row = terminal.rows()
        assert len(row) < width
        if width > 80:
            assert "lr" in row


@pytest.mark.parametrize("width", [40, 80, 140])
def test_a_sample_stands_above_the_line_in_two_rows_at_most(terminal: Terminal, width: int) -> None:
    terminal.resize(width)
    watch = LiveLine(terminal.stream, redraw=0)
    watch.on_step(report(1))
    watch.on_sample(1, "def ", "世界\n\x1b[2J" + "name(self) " * 40)
    watch.on_step(report(2))
    first, second, line = terminal.rows()
    assert first.startswith("     1  def 世")
    assert second.startswith(" " * 8) and second.endswith("…")
    assert line.count("2/20,000") == 1


def test_a_loss_that_is_no_number_is_drawn_too(terminal: Terminal) -> None:
    watch = LiveLine(terminal.stream, redraw=0)
    for loss in (float("nan"), float("inf")):
        watch.on_step(report(1, loss=loss, per_s=float("inf"), seconds_left=float("nan"), mfu=None))
    (row,) = terminal.rows()
    assert "loss ∞" in row and "MFU" not in row


def test_a_real_training_in_a_terminal_of_80_columns(small: list[str]) -> None:
    terminal = PtyTerminal([*small, "--steps", "30"], 80, 60, command="", NO_COLOR="1")
    try:
        assert terminal.ended(60) == 0
        rows = [row for row in terminal.text().splitlines() if row]
    finally:
        terminal.close()
    assert sum("30/30  loss" in row for row in rows) == 1
    assert sum("/30  loss" in row for row in rows) == 1
    assert all(len(row) <= 80 for row in rows)


# What to type next


def test_printed_commands_work_as_printed(small: list[str], said: Said) -> None:
    code, out, _ = said(*small, "--steps", "2", "--runs", "my runs", "--run-id", "base")
    assert code == 0
    assert "  folder  my runs/base\n" in out
    assert "  model   my runs/base/weights/step_2.gguf (" in out
    commands = [line.strip() for line in out.splitlines() if line.startswith("  linnet ")]
    assert [command.split()[1] for command in commands] == ["show", "generate"]
    for command in commands:
        assert said(*shlex.split(command)[1:])[0] == 0, command


def test_resume_is_offered_where_there_is_something_to_resume(small: list[str], said: Said) -> None:
    _, out, _ = said(*small, "--steps", "6", "--lr", "1e9", "--run-id", "early", "--checkpoint-every", "0")
    assert "linnet show early" in out
    assert "linnet resume" not in out
    _, out, _ = said(*small, "--steps", "6", "--lr", "1e9", "--run-id", "late", "--checkpoint-every", "1")
    assert "linnet resume late" in out


def test_tokens_and_seconds_of_a_resumed_run_are_of_the_whole_run(small: list[str], said: Said) -> None:
    first = json.loads(said(*small, "--steps", "4", "--run-id", "a", "--schedule", "constant", "--json")[1])
    second = json.loads(said("resume", "a", "--steps", "5", "--json")[1])
    assert (first["tokens"], second["tokens"]) == (4 * 4 * 32, 5 * 4 * 32)
    assert second["seconds"] > first["seconds"]
    _, out, _ = said("resume", "a", "--steps", "6")
    (line,) = [line for line in out.splitlines() if " tokens in " in line]
    assert " · 768 tokens in " in line and "(this session: " in line


def test_the_paths_in_json_are_absolute(small: list[str], said: Said, tmp_path: Path) -> None:
    _, out, _ = said(*small, "--steps", "2", "--runs", "here", "--run-id", "a", "--json")
    made = json.loads(out)
    assert made["run_dir"] == str(tmp_path / "here/a")
    assert made["model"] == str(tmp_path / "here/a/weights/step_2.gguf")


def test_json_of_a_training_that_failed_is_json(small: list[str], said: Said) -> None:
    code, out, _ = said(*small, "--steps", "6", "--lr", "1e9", "--json")
    assert (code, json.loads(out)["reason"]) == (1, "aborted")


def test_a_slow_reader_of_a_stream_that_does_not_wait_is_no_error(small: list[str], monkeypatch: Any) -> None:
    class Slow(io.StringIO):
        def flush(self) -> None:
            raise BlockingIOError(errno.EAGAIN, "write could not complete without blocking")

    out = Slow()
    watch = PlainLines(out)
    watch.on_step(report(1))
    watch.on_evaluation(1, HELD_OUT)
    assert len(out.getvalue().splitlines()) == 2
