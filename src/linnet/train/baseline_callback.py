"""A baseline that runs along, as a callback: comparisons as events, and the rule that ends a run too far behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from linnet.runs import Run
from linnet.runs.baseline import (
    WINDOW,
    AbortRule,
    Baseline,
    Comparison,
    compare_evaluation,
    compare_step,
    compares_training,
    interval,
    latest_of,
)
from linnet.runs.loss_history import LossHistory
from linnet.train.callback import Callback, Callbacks

if TYPE_CHECKING:
    from linnet.train.metrics import StepMetrics
    from linnet.train.protocols import EvalResult


class BaselineCallback(Callback):
    """Compares the run with its baseline: its held-out loss at each evaluation, its training loss fifty times a run.

    - `listeners`: told of each comparison.
    - `unit`, `seen`: how many tokens or images were trained on before the first step of this session.
    - `scored`: how many an evaluation after a step scores.
    """

    def __init__(
        self,
        baseline: Baseline,
        rule: AbortRule | None,
        listeners: Callbacks,
        *,
        unit: str,
        seen: int,
        scored: Callable[[int], int],
    ) -> None:
        self._baseline, self._rule, self._listeners = baseline, rule, listeners
        self._unit, self._seen, self._scored = unit, float(seen), scored
        # The last steps: number, tokens before and after it, loss.
        self._steps: deque[tuple[int, float, float, float]] = deque(maxlen=WINDOW)
        self._behind_since: dict[str, int] = {}  # by metric, the first comparison in a row that is too far behind
        self._made: list[Comparison] = []
        self._steps_planned = 0
        self._told_of_end = False

    @property
    def standing(self) -> tuple[str, Comparison] | None:
        """The baseline's id and the comparison of this session that the run is judged by."""
        latest = latest_of(self._made)
        return None if latest is None else (self._baseline.id, latest)

    def on_start(self) -> None:
        """A run that goes on begins with its last steps, so that it compares as one that was not interrupted."""
        if not self._seen:
            return
        history = LossHistory.of(Run.load(self.run.run_dir))
        before = np.concatenate([[history.begin], history.work[:-1]]) + self._seen - history.end
        rows = zip(history.step, before, history.work + self._seen - history.end, history.loss, strict=False)
        self._steps.extend((int(step), float(a), float(b), float(loss)) for step, a, b, loss in rows)

    def on_step(self, metrics: StepMetrics) -> None:
        """Compare the training loss, now and then."""
        before, self._seen = self._seen, self._seen + metrics.values[metrics.unit]
        self._steps.append((metrics.step, before, self._seen, metrics.loss))
        self._steps_planned = metrics.steps
        if metrics.step % interval(metrics.steps) == 0:
            self._baseline.refresh()
            if compares_training(self.run.manifest.config, self._baseline.run.manifest.config):
                self._log_comparison(compare_step(self._history(), self._baseline.history))
            self._note_end(metrics.step)

    def on_evaluation(self, step: int, result: EvalResult) -> None:
        """Compare the held-out loss."""
        self._baseline.refresh()
        own = self._history([step, self._seen, result.loss, self._scored(step)])
        self._log_comparison(compare_evaluation(own, self._baseline.history))

    def on_end(self, reason: str) -> None:
        """Let go of the baseline's file."""
        self._baseline.close()

    def _history(self, evaluation: Sequence[float] = ()) -> LossHistory:
        """The run's last steps, and an evaluation after them."""
        step, before, work, loss = np.array(self._steps, np.float64).reshape(-1, 4).T
        begin = float(before[0]) if len(before) else self._seen
        evaluations = np.array(evaluation, np.float64).reshape(-1, 4)
        return LossHistory(self._unit, begin, step.astype(np.int64), work, loss, evaluations)

    def _log_comparison(self, comparison: Comparison | None) -> None:
        if comparison is None:
            return
        comparison = self._with_abort(comparison)
        self._made.append(comparison)
        self.run.compare(comparison.step, self._baseline.id, **comparison.fields())
        self._listeners.call(Callback.on_comparison, comparison, self._baseline.id)
        if comparison.aborts and self._rule is not None:
            standing = comparison.standing(f"its baseline {self._baseline.id}")
            self.abort(
                f"{standing} at step {comparison.step:,}: {comparison.figures} (`abort_behind={self._rule.text}`)"
            )

    def _with_abort(self, comparison: Comparison) -> Comparison:
        """The comparison, and whether it ends the run: the second in a row of one quantity that is so far behind does.

        The training loss ends none whose held-out loss, by which it is judged, was not so far behind when last asked.
        """
        rule, metric = self._rule, comparison.metric
        if rule is None or not rule.counts_at(comparison.step, self._steps_planned) or comparison.share <= rule.share:
            self._behind_since.pop(metric, None)
            return comparison
        since = self._behind_since.setdefault(metric, comparison.step)
        judged = latest_of([*self._made, comparison])
        assert judged is not None
        is_hopeless = judged.metric in self._behind_since
        return replace(comparison, aborts=is_hopeless and since < comparison.step < self._steps_planned)

    def _note_end(self, step: int) -> None:
        """Say once that the run has come to where its baseline ended."""
        history = self._baseline.history
        end = history.end if history.unit == self._unit else float(history.step[-1]) if len(history) else 0.0
        reached = self._seen if history.unit == self._unit else step
        if self._told_of_end or reached <= end or self._baseline.run.status in ("live", "stalled"):
            return
        self._told_of_end = True
        name, last = self._baseline.id, f"{end:,.0f} {history.unit}"
        text = f"the baseline {name} ended after {last}: from here on nothing is compared"
        self.run.note(text, step=step)
        self._listeners.call(Callback.on_remark, text)
