"""What a loop tells whoever watches it: the command line draws it, a test counts it, a script may ignore it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linnet.train.task import Held


@dataclass(frozen=True)
class StepReport:
    """One step that is done."""

    step: int
    steps: int
    loss: float
    lr: float
    grad_norm: float
    unit: str  # tokens or images
    count: int
    per_s: float
    mfu: float | None  # None: the device's peak is not known
    seconds_left: float
    accuracy: float | None = None


class Watch:
    """Hears of everything; by default does nothing about it."""

    def on_start(self, text: str) -> None:
        """A line about what was chosen."""

    def on_step(self, report: StepReport) -> None:
        """A step is done."""

    def on_evaluation(self, step: int, found: Held) -> None:
        """The held-out data was scored."""

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        """The model wrote something."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is on the disk."""

    def on_profile(self, lines: list[str]) -> None:
        """Where the time of some steps went."""

    def on_end(self) -> None:
        """The loop is over."""
