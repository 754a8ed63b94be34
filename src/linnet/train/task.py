"""A recipe at work on its data, as the loop sees it: text and images differ here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from linnet.gguf import MetadataBlock
from linnet.runs import Session
from linnet.train.step import StepResult

# ruff: noqa: D102 (the properties of the protocols are described in their docstrings)


class Held(Protocol):
    """What an evaluation on held-out data found: its loss, and every figure of it by name."""

    @property
    def loss(self) -> float: ...
    @property
    def figures(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class KeptEvaluation:
    """The figures of an evaluation that a checkpoint kept, for the run that goes on from it."""

    figures: dict[str, float]

    @property
    def loss(self) -> float:
        """The held-out loss."""
        return self.figures["loss"]


class Task(Protocol):
    """Steps to take and ways to see what was learnt.

    - `unit`: what is counted, `tokens` or `images`; `per_step`: how many of them a step has; `flops`: its arithmetic.
    - `tokenizer`: the keys that a checkpoint carries besides the model's.
    - `to_lower`: the flags that save memory, with their values.
    - `step_metrics`, `held_out_metrics`: names of the figures that each step and each evaluation give.
    """

    @property
    def unit(self) -> str: ...
    @property
    def tokenizer(self) -> MetadataBlock | None: ...
    @property
    def per_step(self) -> int: ...
    @property
    def flops(self) -> float: ...
    @property
    def to_lower(self) -> str: ...
    @property
    def step_metrics(self) -> tuple[str, ...]: ...
    @property
    def held_out_metrics(self) -> tuple[str, ...]: ...

    def step(self, index: int, lr: float) -> StepResult:
        """Train on batch `index`, counted from 0; the same batch whenever it is asked for."""

    def evaluate(self) -> Held | None:
        """Score the held-out data; None where there is none."""

    def report(self, run: Session, step: int, found: Held, last: bool) -> None:
        """Write what an evaluation found into the run."""

    def samples(self) -> Iterable[tuple[str, str]]:
        """What the model makes of each prompt."""
