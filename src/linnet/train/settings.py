"""How to train, as data: every field is a flag of `linnet train` and a key of its TOML file."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from linnet.errors import UsageError
from linnet.train.inspection.schedule import InspectSchedule

Count = Annotated[int, "count"]  # may be written as 20M or 1e9
RunName = Annotated[str, "run"]  # an id, a part of one, or a path; a run keeps the path
OptimizerName: TypeAlias = Literal["adamw", "muon"]  # adamw, and those of `optim.OPTIMIZERS`
MuonNorm: TypeAlias = Literal["spectral", "rms"]
Periodic: TypeAlias = Literal["eval", "sample", "checkpoint"]  # what is done between steps

FULL_MOMENTUM = 0.95  # Muon's
_MOMENTUM_RISE = 0.1  # of it, in its warm-up
_TIMES: dict[Periodic, int] = {"eval": 10, "sample": 10, "checkpoint": 5}  # how often in a run, by default


@dataclass(frozen=True)
class TrainSettings:
    """The settings of the loop. A field that is None is derived from the others when the run starts.

    Args:
        steps: Optimiser steps; 1,000 where no other budget is given.
        minutes: Train for so long instead: the learning rate follows the clock and is at its end when the time is over.
        tokens: Train on so many tokens instead of a number of steps: 20M, 1e9.
        epochs: Pass so often through the data instead of a number of steps.
        patience: End after so many evaluations without a better held-out loss; the best checkpoint is kept.
        batch: Sequences that pass through the model at once.
        batch_tokens: Tokens of one optimiser step; gradients are accumulated to reach it.
        lr: The highest learning rate, of the hidden matrices; by default it follows from the model's width, the tokens
            of a step and the steps. The other rates follow it in proportion.
        lr_embedding: The highest rate of the embeddings; by default it follows from lr.
        lr_head: The same of an output head with a matrix of its own.
        lr_vectors: The same of norms and biases.
        lr_min: Where the rate of the matrices ends, a tenth of lr by default; the others fall by the same share.
        schedule: How the rate falls after the warm-up: as a cosine, not at all, or at the end (wsd).
        warmup: Steps in which the rate rises; a twentieth of the steps by default, at most 500.
        decay: wsd: the share of the steps in which the rate falls.
        optimizer: muon for the hidden matrices, with adamw for the rest; or adamw for all.
        muon_norm: Muon: how large updates are: by the shape of a matrix (spectral), with queries, keys, values, gate
            and up a matrix each; or as AdamW's are (rms), of matrices as they lie in memory.
        momentum_warmup: Muon: steps in which its momentum rises from 0.85 to 0.95; 150 by default, at most a quarter.
        weight_decay: On matrices only; by default it follows from the rate and the steps.
        dropout: The share of the residual stream that is dropped in training: of the embeddings, and of what attention
            and feed-forward add. By default none before the tenth pass over a text with fewer tokens than the model has
            weights; then 0.1, and 0.2 from 50 passes on.
        beta1: AdamW: how long the mean of the gradients is remembered.
        beta2: AdamW: how long the mean of their squares is remembered.
        eps: AdamW: added to the divisor.
        bias_correction: AdamW's first steps: the usual correction, or the seed's constants.
        clip: The greatest norm of the gradient; 0: not clipped.
        seed: Of the weights and the order of the data.
        device: auto, cpu, cuda, cuda:N or mps.
        dtype: What is computed in; weights are kept in float32. auto: bfloat16 on a GPU that has it.
        compile: Compile the model; auto: on CUDA.
        graph: Hand a GPU whole steps as a CUDA graph, or repeat one recorded step on a CPU; auto: where steps are
            small.
        deterministic: Give the same bits every time on the same GPU, also after a resume; an operation that cannot
            is an error. By default where that costs next to nothing; false in a file: nowhere.
        rank_timeout: Minutes after which one of several ranks that does not answer counts as lost; 10 by default where
            each has a GPU, else 30.
        shard: What several ranks share out instead of each keeping all of it: nothing; the moments of the optimizer; or
            the weights too, for models that do not fit one device. auto: the moments from 300M parameters on.
        overlap: Add up gradients of the last layers over the ranks while those of the first are still being computed;
            auto: on GPUs, and between machines, where the sum is more than a twentieth of a step.
        recompute: Activations that are computed again in the backward pass instead of being kept: those that are cheap
            (norms, activations), or all of a block but its input (blocks).
        eval_every: Steps between evaluations on held-out text; ten times a run by default, 0: never.
        eval_tokens: Held-out tokens scored each time; by default so many that all evaluations cost about 1 % of the
            run.
        sample_every: Steps between samples; ten times a run by default, 0: never.
        sample_tokens: Tokens of a sample.
        checkpoint_every: Steps between checkpoints; five times a run by default, 0: only at the end.
        keep: Checkpoints kept besides the best one; 0: all.
        file_type: How checkpoints store matrices.
        profile: Look closely at ten steps after the first six: a trace into artifacts/, and where their time went.
        on_nan: A loss or gradient that is not finite stops the run, is skipped, or ignored.
        gate: What the run must reach, such as "loss<2.5"; exit code 1 when it does not.
        inspect: Look inside while training, into the run's events: taps (activations), gram (their similarity), grads,
            drift (distance from the first weights), regions and ops (where the time goes), or all, as in
            taps,grads,drift@100 for every 100 steps; by default 50 times a run. Losses and weights stay the same.
        baseline: A RUN to compare with while training: whether the loss is ahead or behind after as many tokens.
        abort_behind: End the run, with exit code 1, when it is behind its baseline by more than this share of the loss,
            twice in a row: 0.05, 5%, or 0.05@2000 from that step on, else from a tenth of the run on.
        mirror: Copy the run and its finished checkpoints below this URL in the background: s3://bucket/runs, gs://,
            hf://, file:///; a store that is slow or gone never delays the training.
    """

    steps: int = 1000
    minutes: float | None = None
    tokens: Count | None = None
    epochs: float | None = None
    patience: int | None = None
    batch: int = 8
    batch_tokens: int | None = None
    batch_images: int | None = None  # a flag where the data are images
    lr: float | None = None
    lr_embedding: float | None = None
    lr_head: float | None = None
    lr_vectors: float | None = None
    lr_min: float | None = None
    schedule: Literal["cosine", "constant", "wsd"] = "cosine"
    warmup: int | None = None
    decay: float = 0.2
    optimizer: OptimizerName = "muon"
    muon_norm: MuonNorm | None = None
    momentum_warmup: int | None = None
    weight_decay: float | None = None
    dropout: float | None = None  # a flag where the data are text
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    bias_correction: Literal["usual", "seed"] = "usual"
    clip: float = 1.0
    seed: int = 0
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    graph: Literal["auto", "on", "off"] = "auto"
    deterministic: bool | None = None
    rank_timeout: float | None = None
    shard: Literal["auto", "none", "moments", "weights"] = "auto"
    overlap: Literal["auto", "on", "off"] = "auto"
    recompute: Literal["off", "cheap", "blocks"] = "off"
    eval_every: int | None = None
    eval_tokens: int | None = None
    sample_every: int | None = None
    sample_tokens: int = 64
    checkpoint_every: int | None = None
    keep: int = 3
    file_type: Literal["f32", "f16", "bf16", "q8_0"] = "f32"
    profile: bool = False
    on_nan: Literal["stop", "skip", "ignore"] = "stop"
    gate: str | None = None
    inspect: str | None = None
    baseline: RunName | None = None
    abort_behind: str | None = None
    mirror: str | None = None
    # Of a fork (docs/train.md); no flags.
    schedule_start: int | None = None  # the step after which its schedule begins; None: at the first
    data_offset: int | None = None  # steps that its position in the data is behind its number of steps

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "batch_tokens", "tokens", "patience"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"`{name}` must be 1 or more, found {value}")
        # A negative one would be met in the middle of a run: by its first sample, when old checkpoints are removed.
        for name in ("eval_every", "eval_tokens", "sample_every", "sample_tokens", "checkpoint_every", "keep"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise UsageError(f"`{name}` must be 0 or more, found {value}")
        for name in ("minutes", "epochs", "rank_timeout"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise UsageError(f"`{name}` must be above 0, found {value:g}")
        if self.batch_images is not None and (self.batch_images < 1 or self.batch_images % self.batch):
            raise UsageError(
                f"`batch_images={self.batch_images}` is no multiple of the {self.batch} images that pass at once"
                f" (`batch={self.batch}`)"
            )
        for name in ("lr", "lr_embedding", "lr_head", "lr_vectors"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise UsageError(f"`{name}` must be above 0, found {value}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"`weight_decay` must be 0 or more, found {self.weight_decay:g}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise UsageError(f"`dropout` is a share of the residual stream, from 0 to below 1, found {self.dropout:g}")
        if self.momentum_warmup is not None and self.momentum_warmup < 0:
            raise UsageError(f"`momentum_warmup` must be 0 or more, found {self.momentum_warmup}")
        if self.inspect is not None:
            InspectSchedule.parse(self.inspect)
        if not 0 < self.decay <= 1:
            raise UsageError(f"`decay` is a share of the steps, above 0 and at most 1, found {self.decay}")
        known = self.minutes is None and self.tokens is None and self.epochs is None  # else steps follow from them
        if self.warmup is not None and (self.warmup < 0 or (known and self.warmup > self.own_steps)):
            raise UsageError(f"`warmup` must be between 0 and `steps` ({self.own_steps}), found {self.warmup}")

    def in_steps(self, per_step: int, per_epoch: int | None) -> TrainSettings:
        """The settings with a budget of tokens or epochs turned into steps, which is what a run keeps.

        Tokens are never exceeded (but a run has one step at least); an epoch is passed through whole. `per_epoch` is
        None where nobody knows how much there is.
        """
        if self.epochs is not None and per_epoch is None:
            raise UsageError("`epochs` needs data whose length is known, found an iterable: give `steps` or `tokens`")
        if self.tokens is not None:
            steps = self.tokens // per_step
        elif self.epochs is not None:
            assert per_epoch is not None
            steps = math.ceil(self.epochs * per_epoch / per_step - 1e-9)
        else:
            return self
        return replace(self, steps=self.first + max(1, steps), tokens=None, epochs=None)

    @property
    def first(self) -> int:
        """Steps before the first one of the schedule: those of the run that this one was forked from."""
        return self.schedule_start or 0

    @property
    def own_steps(self) -> int:
        """Steps of the schedule."""
        return self.steps - self.first

    @property
    def warmup_steps(self) -> int:
        """Steps in which the rate rises."""
        return min(500, self.own_steps // 20) if self.warmup is None else self.warmup

    @property
    def top_lr(self) -> float:
        """The highest rate of the matrices, once it is known (`rates.settled`)."""
        if self.lr is None:
            raise UsageError("`lr` is not known before a training starts: give one, or see linnet.train.rates.settled")
        return self.lr

    @property
    def least_lr(self) -> float:
        """Where the rate ends."""
        return self.top_lr / 10 if self.lr_min is None else self.lr_min

    def learning_rate(self, step: float) -> float:
        """The rate of a step, counted from 0: a linear rise, then constant, a cosine, or a plateau and a fall (wsd).

        A pure function, so that a resumed run finds it again. Between two steps it is defined too: a run of so many
        minutes is wherever its clock is (`TimeBudget`).
        """
        top, least, warmup, steps = self.top_lr, self.least_lr, self.warmup_steps, self.own_steps
        step -= self.first
        if step < warmup:
            return top * (step + 1) / warmup
        if self.schedule == "constant":
            return top
        if self.schedule == "cosine":
            if steps <= warmup:
                return least
            progress = min(1.0, (step - warmup) / (steps - warmup))
            return least + 0.5 * (top - least) * (1 + math.cos(math.pi * progress))
        falling = max(1, round(self.decay * steps))
        progress = max(0.0, min(1.0, (step - (steps - falling)) / falling))
        return top + (least - top) * progress

    def momentum(self, step: int) -> float:
        """Muon's momentum in a step, counted from 0; that of a fork has risen with its parent's."""
        warmup = self.momentum_warmup or 0  # runs from before there was one
        return FULL_MOMENTUM - _MOMENTUM_RISE * max(0.0, 1 - step / warmup) if warmup else FULL_MOMENTUM

    def schedule_fields(self) -> dict[str, str | float]:
        """The `schedule` of `run_start`, in Toy's words: the rates and steps that follow from the settings."""
        lowest = self.top_lr if self.schedule == "constant" else self.least_lr
        rates = {"lr_max": self.top_lr, "lr_min": lowest}
        return {"kind": self.schedule, **rates, "warmup": self.warmup_steps, "n_steps": self.steps}

    @property
    def inspected(self) -> InspectSchedule | None:
        """What is looked at inside, and when; None: nothing."""
        return None if self.inspect is None else InspectSchedule.parse(self.inspect)

    def interval(self, kind: Periodic) -> int:
        """Steps between two evaluations, samples or checkpoints; 0: none, but for the last checkpoint."""
        every: int | None = getattr(self, f"{kind}_every")
        return max(1, self.own_steps // _TIMES[kind]) if every is None else every

    def due(self, kind: Periodic, step: int) -> bool:
        """Is an evaluation, a sample or a checkpoint due after `step`? After the last one all are that ever are."""
        interval = self.interval(kind)
        if step == self.steps and (interval != 0 or kind == "checkpoint"):
            return True
        return interval > 0 and step % interval == 0

    def rates(self) -> dict[str, float]:
        """The highest rates by what they move, weight decay and dropout: what of them is known."""
        names = ("lr", "lr_embedding", "lr_head", "lr_vectors", "weight_decay", "dropout")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def derived(self, tokens_per_step: int | None) -> dict[str, float]:
        """What settings that were not given have become; `tokens_per_step` is None where the data are images."""
        derived: dict[str, float] = {f"{kind}_every": self.interval(kind) for kind in _TIMES}
        derived |= self.rates()
        if tokens_per_step is not None:
            derived["eval_tokens"] = self.tokens_to_score(tokens_per_step)
        return derived

    def tokens_to_score(self, tokens_per_step: int) -> int:
        """Tokens of one evaluation. A pass forward costs a third of a training step's work on the same tokens."""
        if self.eval_tokens is not None:
            return self.eval_tokens
        return max(1024, min(65_536, round(0.003 * self.own_steps * tokens_per_step)))

    def accumulate(self, ctx: int) -> int:
        """Passes through the model for one optimizer step (gradient accumulation)."""
        if self.batch_tokens is None:
            return 1
        at_once = self.batch * ctx
        if self.batch_tokens % at_once:
            raise UsageError(
                f"`batch_tokens={self.batch_tokens}` is no multiple of the {at_once} tokens that pass at once "
                f"(`batch={self.batch}` × `ctx={ctx}`)"
            )
        return self.batch_tokens // at_once
