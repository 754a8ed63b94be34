"""How to train, as data: every field is a flag of `linnet train` and a key of its TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from linnet.errors import UsageError


@dataclass(frozen=True)
class TrainSettings:
    """The settings of the loop. A field that is None is derived from the others when the run starts."""

    steps: int = 1000
    batch: int = 8  # sequences that pass through the model at once
    batch_tokens: int | None = None  # tokens of one optimiser step; gradients are accumulated to reach it
    lr: float = 1e-3
    lr_min: float | None = None  # None: a tenth of lr
    schedule: Literal["cosine", "constant", "wsd"] = "cosine"
    warmup: int | None = None  # None: a twentieth of the steps, at most 500
    decay: float = 0.2  # wsd: the share of the steps in which the rate falls
    optimizer: Literal["adamw", "muon"] = "adamw"
    weight_decay: float = 0.1  # on matrices only
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    bias_correction: Literal["usual", "seed"] = "usual"
    clip: float = 1.0  # greatest norm of the gradient; 0: not clipped
    seed: int = 0
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    eval_every: int | None = None  # None: ten times a run; 0: never
    eval_tokens: int = 65_536
    sample_every: int | None = None  # None: with every evaluation; 0: never
    sample_tokens: int = 64
    checkpoint_every: int | None = None  # None: five times a run; 0: only at the end
    keep: int = 3  # checkpoints kept besides the best one; 0: all
    file_type: Literal["f32", "f16", "bf16", "q8_0"] = "f32"
    on_nan: Literal["stop", "skip", "ignore"] = "stop"
    gate: str | None = None  # what the run must reach, such as "loss<2.5"

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} must be 1 or more, found {getattr(self, name)}")
        if not self.lr > 0:
            raise UsageError(f"--lr must be above 0, found {self.lr}")
        if not 0 < self.decay <= 1:
            raise UsageError(f"--decay is a share of the steps, above 0 and at most 1, found {self.decay}")
        if self.warmup is not None and not 0 <= self.warmup <= self.steps:
            raise UsageError(f"--warmup must be between 0 and --steps ({self.steps}), found {self.warmup}")

    @property
    def warmup_steps(self) -> int:
        """Steps in which the rate rises."""
        return min(500, self.steps // 20) if self.warmup is None else self.warmup

    @property
    def least_lr(self) -> float:
        """Where the rate ends."""
        return self.lr / 10 if self.lr_min is None else self.lr_min

    def due(self, step: int, every: int | None, times: int) -> bool:
        """Is something due after `step` that happens `every` steps, by default `times` times a run?"""
        interval = max(1, self.steps // times) if every is None else every
        return interval > 0 and step % interval == 0

    def accumulate(self, ctx: int, ranks: int = 1) -> int:
        """Passes through the model for one optimiser step."""
        once = self.batch * ctx * ranks
        if self.batch_tokens is None:
            return 1
        if self.batch_tokens % once:
            raise UsageError(
                f"--batch-tokens {self.batch_tokens} is no multiple of the {once} tokens that pass at once "
                f"(--batch {self.batch} × --ctx {ctx}{f' × {ranks} ranks' if ranks > 1 else ''})"
            )
        return self.batch_tokens // once
