"""How far a run has come, as every checkpoint keeps it, and how its loop ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.train.checkpoint import BestCheckpoint
from linnet.train.protocols import EvalResult, KeptEvaluation


@dataclass
class Progress:
    """Where the loop stands; kept with every checkpoint."""

    step: int = 0
    seen: int = 0  # tokens or images trained on
    seconds: float = 0.0  # that all sessions took until the newest checkpoint
    loss: float = math.nan
    accuracy: float | None = None
    validation: EvalResult | None = None
    first_loss: float | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)
    best: BestCheckpoint | None = None
    best_evaluation: float | None = None  # the lowest held-out loss so far, with a checkpoint or without
    best_step: int | None = None  # of that evaluation
    not_better: int = 0  # evaluations since then
    last_evaluation: float | None = None  # the held-out loss by which it was compared
    evaluated_at: int | None = None
    warned: list[str] = field(default_factory=list)  # what the run has told of (`TrainingWarning.record`)

    def facts(self, seconds: float) -> dict[str, Any]:
        """The progress as a checkpoint's state keeps it, after so many `seconds`; the checkpointer adds the `best`."""
        validation = None if self.validation is None else self.validation.figures
        return {**vars(self), "seconds": seconds, "validation": validation}

    @classmethod
    def from_facts(cls, step: int, facts: Mapping[str, Any]) -> Progress:
        """Where the loop stood at the checkpoint of a step. States of earlier versions have fewer facts."""
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        best, validation = facts.get("best"), facts.get("validation")
        if best is None and facts.get("best_validation") is not None:
            best = {"step": 0, "loss": facts["best_validation"]}
        known["validation"] = KeptEvaluation(validation) if validation else None
        known["best"] = BestCheckpoint(**best) if best else None
        if facts.get("warned_of_rise"):
            known["warned"] = ["held_out_rise"]
        return cls(**{**known, "step": step})


@dataclass(frozen=True)
class Outcome:
    """How the loop ended.

    - `early`: why a completed run ended before its last step.
    - `seconds`: of the whole run, the sessions before this one included, as `progress.seen` counts its tokens.
    - `model`: the newest checkpoint; `best`: the one with the lowest held-out loss, where one was evaluated.
    - `rise`: a sentence on a held-out loss that was clearly lower before.
    - `exit_code`: what the process tells its caller.
    - `speaks`: of several ranks one tells people how it ended.
    """

    reason: str
    error: str | None
    early: str | None
    progress: Progress
    gate: dict[str, object] | None
    seconds: float
    model: Path | None
    exit_code: int
    speaks: bool = True
    best: Path | None = None
    rise: str | None = None
