"""A training run on the screen: a live line in a terminal, plain lines for a log."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from linnet.board import words
from linnet.board.braille import sparkline
from linnet.cli.terminal import paint
from linnet.train.task import Held
from linnet.train.watch import StepReport, Watch

_CURVE = 24  # characters of the little curve
_REDRAW = 0.1  # seconds
_SHORT = {"tokens": "tok", "images": "img"}


def watch_for(stream: Any = None) -> Watch:
    """The watch that fits where the output goes."""
    out = sys.stdout if stream is None else stream
    return LiveLine(out) if out.isatty() else PlainLines(out)


def preparing(stage: str, done: int, total: int) -> None:
    """Progress of preparing a corpus, for a terminal; silent in a pipe."""
    if not sys.stdout.isatty():
        return
    share = f"{done / total:4.0%}" if total else words.size(done)
    end = "\n" if total and done >= total else ""
    print(f"\r\x1b[K{paint('preparing', 'dim')} {stage} {share}", end=end, flush=True)


def _accuracy(report: StepReport, word: str, after: str = " ") -> str:
    return "" if report.accuracy is None else f"{word}{report.accuracy:.1%}{after}"


def _main_figure(held: Held) -> str:
    accuracy = held.figures.get("accuracy")
    return words.number(held.loss) if accuracy is None else f"{accuracy:.2%}"


class PlainLines(Watch):
    """One line a step, as Toy's trainers print them."""

    def __init__(self, out: Any) -> None:
        self._out = out

    def on_start(self, text: str) -> None:
        """Say what was chosen."""
        self._say(text)

    def on_step(self, report: StepReport) -> None:
        """One line."""
        self._say(
            f"step {report.step}: loss={report.loss:.6f} {_accuracy(report, 'accuracy=')}lr={report.lr:.3g} "
            f"{_SHORT[report.unit]}/s={report.per_s:.0f}{'' if report.mfu is None else f' mfu={report.mfu:.1%}'}"
        )

    def on_evaluation(self, step: int, found: Held) -> None:
        """One line."""
        rest = "".join(f" {name}={value:.4g}" for name, value in found.figures.items() if name != "loss")
        self._say(f"eval {step}: loss={found.loss:.6f}{rest}")

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        """One line."""
        self._say(f"sample {step}: {words.plain(prompt + text)}")

    def on_checkpoint(self, step: int, path: Path) -> None:
        """One line."""
        self._say(f"checkpoint {step}: {path}")

    def on_profile(self, lines: list[str]) -> None:
        """As they are."""
        for line in lines:
            self._say(line)

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class LiveLine(Watch):
    """A line that is drawn over, with everything worth keeping above it."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._losses: list[float] = []
        self._drawn = 0.0
        self._held: Held | None = None
        self._line = ""

    def on_start(self, text: str) -> None:
        """Say what was chosen."""
        self._above(paint(text, "dim"))

    def on_step(self, report: StepReport) -> None:
        """Draw the line anew, at most ten times a second."""
        self._losses.append(report.loss)
        if len(self._losses) > 4096:
            self._losses = [sum(pair) / 2 for pair in zip(self._losses[::2], self._losses[1::2], strict=False)]
        now = time.monotonic()
        if now - self._drawn < _REDRAW and report.step < report.steps:
            return
        self._drawn = now
        share = report.step / report.steps
        bar = "█" * round(10 * share) + "░" * (10 - round(10 * share))
        held = "" if self._held is None else f"held-out {_main_figure(self._held)}  "
        mfu = "" if report.mfu is None else f"MFU {report.mfu:.0%}  "
        text = (
            f"{bar} {report.step:,}/{report.steps:,}  loss {paint(words.number(report.loss), 'bold')}  "
            f"{_accuracy(report, 'accuracy ', '  ')}{held}lr {report.lr:.2g}  "
            f"{words.number(round(report.per_s))} {_SHORT[report.unit]}/s  {mfu}"
            f"{words.duration(report.seconds_left)} left  {paint(sparkline(self._losses, _CURVE), 'cyan')}"
        )
        self._line = text
        print(f"\r\x1b[K{text}", end="", file=self._out, flush=True)

    def on_evaluation(self, step: int, found: Held) -> None:
        """Remember it for the line."""
        self._held = found

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        """Above the line, cut to two lines."""
        shown = words.shorten(" ".join(words.plain(text).replace("␊", "⏎ ").split()), 150)
        self._above(f"{paint(f'{step:>6,}', 'dim')}  {paint(words.plain(prompt), 'bold')}{shown}")

    def on_profile(self, lines: list[str]) -> None:
        """Above the line."""
        for line in lines:
            self._above(line)

    def on_end(self) -> None:
        """Leave the last line standing."""
        print(file=self._out, flush=True)

    def _above(self, text: str) -> None:
        print(f"\r\x1b[K{text}\n{self._line}", end="", file=self._out, flush=True)
