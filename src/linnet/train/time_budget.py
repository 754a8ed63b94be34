"""`TimeBudget`: the clock of a run that was given minutes instead of steps."""

from __future__ import annotations

from linnet.train.settings import TrainSettings

_LEAST_STEPS, _ENOUGH_STEPS = 5, 200  # whose speed can be trusted; the first ones compile, and fill caches
_LEAST_SECONDS = 2.0
_TRIAL = 0.05  # the share of the time after which the speed so far must do


class TimeBudget:
    """How many steps fit into the minutes, and the learning rate by the share of them that is over.

    The clock runs while the run trains: evaluations, samples, checkpoints and the first step's compiling count, the
    reading of a corpus does not. A checkpoint keeps the seconds so far, so a resumed run has what was left of its
    time, at the rate where it stood. How many steps that makes depends on the machine: two such runs are not the same
    to the bit.
    """

    def __init__(self, minutes: float) -> None:
        self._total = 60.0 * minutes

    def is_over(self, seconds: float, step_seconds: float) -> bool:
        """Is the end nearer than half a step?"""
        return seconds + step_seconds / 2 >= self._total

    def is_measured(self, step: int, seconds: float) -> bool:
        """Have there been enough steps to tell how many there will be?"""
        return step >= _ENOUGH_STEPS or (step >= _LEAST_STEPS and seconds >= min(_LEAST_SECONDS, _TRIAL * self._total))

    def steps(self, step: int, seconds: float, step_seconds: float) -> int:
        """Steps that there will be in all, at the speed of the last ones; at least one more."""
        return step + max(1, round((self._total - seconds) / max(step_seconds, 1e-9)))

    def learning_rate(self, settings: TrainSettings, step: int, seconds: float) -> float:
        """The rate of a step, counted from 0, that begins after so many seconds.

        `settings.steps` is the estimate. The warm-up is counted in steps: compiling the first one may take longer than
        all of it, and moments need steps, not seconds.
        """
        warmup = settings.warmup_steps
        if step - settings.first < warmup:
            return settings.learning_rate(step)
        position = settings.own_steps * min(1.0, seconds / self._total)
        return settings.learning_rate(settings.first + max(position, warmup))
