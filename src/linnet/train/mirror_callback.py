"""A run's mirror as a callback: woken at each checkpoint, asked now and then whether it can reach its store."""

from __future__ import annotations

from pathlib import Path

from linnet.runs.mirror import Mirror
from linnet.train.callback import Callback


class MirrorCallback(Callback):
    """Lets finished checkpoints be copied; what the store says is noted in the run, and training goes on."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def on_start(self) -> None:
        """What an earlier session could not copy is tried again."""
        self._mirror.wake()

    def on_checkpoint(self, step: int, path: Path) -> None:
        """Copy it, with what is new beside it."""
        if problem := self._mirror.problem():
            self.run.note(f"mirror: {problem}; training goes on, and it is tried again", step=step)
        self._mirror.wake()
