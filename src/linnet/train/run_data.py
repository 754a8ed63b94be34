"""`RunData`: what a run is trained and evaluated on. Text, images and one's own data differ here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from linnet.gguf import MetadataBlock
from linnet.runs import Session
from linnet.train.step import Batch

# ruff: noqa: D102 (the properties of the protocols are described in their docstrings)


class EvalResult(Protocol):
    """The metrics of an evaluation on held-out data: its loss, and every one of them by name."""

    @property
    def loss(self) -> float: ...
    @property
    def figures(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class KeptEvaluation:
    """The metrics of an evaluation that a checkpoint kept, for the run that goes on from it."""

    figures: dict[str, float]

    @property
    def loss(self) -> float:
        """The held-out loss."""
        return self.figures["loss"]


class DataEndedError(Exception):
    """An iterable has no rows left for another batch."""


class RunData(Protocol):
    """Batches by number, an evaluation, samples, and what is counted.

    - `description`: in words; `fingerprint`: a hash that changes with the data; `remarks`: what to tell its owner.
    - `unit`: what is counted, `tokens` or `images`; `per_step`: how many of them a step has.
    - `tokenizer`: the keys that a checkpoint carries besides the model's; `vocabulary`: the same, to be read.
    - `memory_settings`: the settings that decide how much memory a step takes, with their values.
    - `step_metrics`, `held_out_metrics`: names of the metrics of each step and of each evaluation.
    """

    @property
    def description(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def remarks(self) -> tuple[str, ...]: ...
    @property
    def unit(self) -> str: ...
    @property
    def per_step(self) -> int: ...
    @property
    def tokenizer(self) -> MetadataBlock | None: ...
    @property
    def vocabulary(self) -> Mapping[str, object] | None: ...
    @property
    def memory_settings(self) -> str: ...
    @property
    def step_metrics(self) -> tuple[str, ...]: ...
    @property
    def held_out_metrics(self) -> tuple[str, ...]: ...

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0; the same one whenever it is asked for."""

    def evaluate(self, model: nn.Module, step: int) -> EvalResult | None:
        """Score the held-out data after a step; None where there is none."""

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """Write an evaluation into the run."""

    def samples(self, model: nn.Module) -> Iterable[tuple[str, str]]:
        """Each prompt with what the model makes of it."""
