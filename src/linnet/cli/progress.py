"""A training run on the screen: a live line in a terminal, plain lines for a log."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.board import words
from linnet.board.plot import sparkline
from linnet.board.terminal.spans import cells, cut, wrap
from linnet.cli.plan import plan_lines, time_line
from linnet.cli.printing import paint
from linnet.cli.streams import LastingStream, draw_over
from linnet.train.callback import Callback

if TYPE_CHECKING:
    from linnet.runs.baseline import Comparison
    from linnet.train.metrics import StepMetrics
    from linnet.train.plan import Plan
    from linnet.train.protocols import EvalResult

_CURVE = 24  # characters of the little curve, where there is room for it
_LEAST_CURVE = 8
_LOG_EVERY = 3.0  # seconds between two step lines in a log
_SAMPLE_INDENT = 8  # columns before the text of a sample: its step
_COMPARISON_LASTS = 5  # for what share of the steps how the run stands beside its baseline is shown
_SHORT = {"tokens": "tok", "images": "img"}


def screen_for(stream: Any = None) -> Callback:
    """The callback that shows a training where its output goes."""
    out = sys.stdout if stream is None else stream
    return LiveLine(out) if out.isatty() else PlainLines(out)


def preparing(stage: str, done: int, total: int) -> None:
    """Progress of preparing a corpus, for a terminal; silent in a pipe."""
    if not sys.stdout.isatty():
        return
    share = f"{done / total:4.0%}" if total else words.size(done)
    end = "\n" if total and done >= total else ""
    stage = cut(stage, _columns(sys.stdout) - cells(f"preparing  {share}") - 1)
    draw_over(f"{paint('preparing', 'dim')} {stage} {share}", sys.stdout, end=end)


def _columns(stream: Any) -> int:
    """The width of the terminal behind a stream, as it is now."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns


def _accuracy(metrics: StepMetrics, word: str, after: str = "") -> str:
    accuracy = metrics.get("accuracy")
    return "" if accuracy is None else f"{word}{accuracy:.1%}{after}"


def _main_figure(result: EvalResult) -> str:
    accuracy = result.figures.get("accuracy")
    return words.number(result.loss) if accuracy is None else f"{accuracy:.2%}"


_STANDING = {"ahead": "green", "par": "", "behind": "yellow", "abort": "red"}  # beside a baseline, and its colour


def _standing(comparison: Comparison) -> str:
    """How a run stands beside its baseline, in two words: `behind 4.2 %`."""
    verdict = "behind" if comparison.verdict == "abort" else comparison.verdict
    return verdict if verdict == "par" else f"{verdict} {100 * abs(comparison.share):.1f} %"


class PlainLines(Callback):
    """Lines for a log, as Toy's trainers print them: of the first and the last step, and every few seconds between."""

    def __init__(self, out: Any) -> None:
        self._out = LastingStream(out)
        self._next = 0.0  # when the next step line is due
        self._unsaid: StepMetrics | None = None
        self._verdict = ""  # that was said last

    def on_remark(self, text: str) -> None:
        self._say(words.flags(text))

    def on_warning(self, step: int, text: str) -> None:
        self._say(f"warning {step}: {words.flags(text)}")

    def on_plan(self, plan: Plan) -> None:
        self._say("\n".join(plan_lines(plan)))

    def on_expected_time(self, plan: Plan) -> None:
        self._say(time_line(plan))

    def on_step(self, metrics: StepMetrics) -> None:
        self._unsaid = metrics
        now = time.monotonic()
        if now >= self._next or metrics.step >= metrics.steps:
            self._next = now + _LOG_EVERY
            self._say_step()

    def on_evaluation(self, step: int, result: EvalResult) -> None:
        figures = "".join(f" {name}={value:.4g}" for name, value in result.figures.items() if name != "loss")
        self._say(f"eval {step}: loss={result.loss:.6f}{figures}")

    def on_comparison(self, comparison: Comparison, baseline: str) -> None:
        """Every held-out loss; of the training loss, which is compared more often, a verdict that is another."""
        if comparison.metric == "loss" and comparison.verdict == self._verdict:
            return
        self._verdict = comparison.verdict
        self._say(
            f"compare {comparison.step}: {comparison.standing(words.plain(baseline))},"
            f" {comparison.metric}={comparison.loss:.6f} against {comparison.baseline_loss:.6f}"
        )

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        self._say(f"sample {step}: {words.plain(prompt + text)}")

    def on_checkpoint(self, step: int, path: Path) -> None:
        self._say(f"checkpoint {step}: {words.shown_path(path)}")

    def on_profile(self, lines: list[str]) -> None:
        self._say("\n".join(lines))

    def on_end(self, reason: str) -> None:
        self._say_step()  # the one at which the run was stopped, if it was not said yet

    def _say_step(self) -> None:
        metrics, self._unsaid = self._unsaid, None
        if metrics is not None:
            mfu = "" if metrics.mfu is None else f" mfu={metrics.mfu:.1%}"
            self._say(
                f"step {metrics.step}: loss={metrics.loss:.6f} {_accuracy(metrics, 'accuracy=', ' ')}"
                f"lr={metrics.lr:.3g} {_SHORT[metrics.unit]}/s={metrics.per_s:.0f}{mfu}"
            )

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


class LiveLine(Callback):
    """A line that is drawn over, with everything worth keeping above it. `redraw`: seconds between two drawings."""

    def __init__(self, out: Any, redraw: float = 0.1) -> None:
        self._out = LastingStream(out)
        self._redraw = redraw
        self._losses: list[float] = []
        self._drawn = 0.0
        self._evaluation: EvalResult | None = None
        self._last: StepMetrics | None = None
        self._comparison: Comparison | None = None

    def on_remark(self, text: str) -> None:
        self._above(
            paint(textwrap.fill(words.flags(text), max(20, _columns(self._out) - 1), subsequent_indent="  "), "dim")
        )

    def on_warning(self, step: int, text: str) -> None:
        shown = textwrap.fill(
            f"! step {step:,}: {words.flags(text)}", max(20, _columns(self._out) - 1), subsequent_indent="  "
        )
        self._above(paint(shown, "yellow"))

    def on_plan(self, plan: Plan) -> None:
        self._above("\n".join(cut(line, _columns(self._out) - 1) for line in plan_lines(plan)))

    def on_expected_time(self, plan: Plan) -> None:
        self._above(cut(time_line(plan), _columns(self._out) - 1))

    def on_step(self, metrics: StepMetrics) -> None:
        self._last = metrics
        self._losses.append(metrics.loss)
        if len(self._losses) > 4096:
            self._losses = [sum(pair) / 2 for pair in zip(self._losses[::2], self._losses[1::2], strict=False)]
        now = time.monotonic()
        if now - self._drawn < self._redraw and metrics.step < metrics.steps:
            return
        self._drawn = now
        self._write(f"\r\x1b[K{self._line()}")

    def on_evaluation(self, step: int, result: EvalResult) -> None:
        self._evaluation = result

    def on_comparison(self, comparison: Comparison, baseline: str) -> None:
        self._comparison = comparison

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        """Above the line, in at most two rows, the second below the text of the first."""
        prompt = words.plain(prompt)
        space = " " if text[:1].isspace() else ""
        shown = prompt + space + " ".join(words.plain(text).replace("␊", "⏎ ").split())
        room = max(1, _columns(self._out) - _SAMPLE_INDENT - 1)
        first, *second = wrap(shown, room, most=3)
        begin, continuation = first[: len(prompt)], first[len(prompt) :]
        rows = [f"{paint(f'{step:>6,}', 'dim')}  {paint(begin, 'bold')}{continuation}"]
        if second:
            mark = "…" if len(second) > 1 else ""
            rows.append(" " * _SAMPLE_INDENT + cut(second[0] + mark, room))
        self._above("\n".join(rows))

    def on_profile(self, lines: list[str]) -> None:
        self._above("\n".join(lines))

    def on_end(self, reason: str) -> None:
        if self._last is not None:
            self._write(f"\r\x1b[K{self._line()}\n")

    def _line(self) -> str:
        """The last step in one row of the terminal: what is least important is left out where the row is short."""
        metrics = self._last
        if metrics is None:
            return ""
        room = _columns(self._out) - 1  # a full row would make some terminals begin the next
        done = round(10 * metrics.step / metrics.steps)
        compared = self._comparison
        if compared is not None and metrics.step - compared.step > max(1, metrics.steps // _COMPARISON_LASTS):
            compared = None  # the baseline has ended before
        standing = ("", "") if compared is None else (_standing(compared), _STANDING[compared.verdict])
        # In the order of the row; where there is too little room, the part with the lowest figure goes first.
        parts = [
            (3, "█" * done + "░" * (10 - done), ""),
            (10, f"{metrics.step:,}/{metrics.steps:,}", ""),
            (9, f"loss {words.number(metrics.loss)}", "bold"),
            (6, _accuracy(metrics, "accuracy "), ""),
            (4, "" if self._evaluation is None else f"held-out {_main_figure(self._evaluation)}", ""),
            (7, *standing),
            (2, f"lr {metrics.lr:.2g}", ""),
            (5, f"{metrics.per_s:,.0f} {_SHORT[metrics.unit]}/s", ""),
            (1, "" if metrics.mfu is None else f"MFU {metrics.mfu:.0%}", ""),
            (8, f"{words.duration(metrics.seconds_left)} left", ""),
        ]
        parts = [part for part in parts if part[1]]
        curve = min(_CURVE, room - _row_length(parts) - 2)
        while len(parts) > 1 and _row_length(parts) > room:
            parts.remove(min(parts))
        row = "  ".join(paint(cut(text, room), style) if style else cut(text, room) for _, text, style in parts)
        return f"{row}  {paint(sparkline(self._losses, curve), 'cyan')}" if curve >= _LEAST_CURVE else row

    def _above(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n{self._line()}")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _row_length(parts: list[tuple[int, str, str]]) -> int:
    return sum(cells(text) for _, text, _ in parts) + 2 * (len(parts) - 1)
