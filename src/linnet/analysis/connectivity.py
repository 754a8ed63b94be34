"""Linear mode connectivity: the loss on the straight line between two models, and whether a barrier lies on it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from linnet.analysis.alignment import Aligned, align
from linnet.analysis.checkpoint import Checkpoint, Model
from linnet.analysis.held_out import Progress, probe_images, probe_text, require_probe
from linnet.analysis.similarity import require_same_tokens
from linnet.architectures import AnyConfig
from linnet.architectures.parameters import layout
from linnet.errors import UsageError
from linnet.infer.scoring import score_batches
from linnet.models import ViT, pick_device

ALPHAS = tuple(step / 10 for step in range(11))
BARRIER = 0.02  # of the loss at the ends, from which on two models do not lie in one basin
_LEAST_LOSS = 0.1  # nats; of losses below, a share says nothing
_TOKENS = 16_384  # that are scored at each place, by default
_NOT_OF_THE_SHAPE = ("ctx", "labels", "image_mean", "image_std")  # fields of a config
_POSITIONS = "position_embd.weight"  # of a model that learns them: as many rows as its context
Verdict = Literal["same basin", "barrier"]


@dataclass(frozen=True)
class LossLine:
    """The loss at some places of the line from a model A to a model B of the same shape.

    - `alphas`: how much of B is in each, from 0 (A) to 1 (B); `losses`: its mean loss, in nats.
    - `samples`: how many tokens or images were scored at each place, of `source`.
    - `aligned`: how B's units were put into A's order; None: it was taken as it is. `before`: the losses without that.
    """

    a: str
    b: str
    alphas: tuple[float, ...]
    losses: tuple[float, ...]
    samples: int
    unit: str
    source: str
    aligned: Aligned | None = None
    before: tuple[float, ...] | None = None

    @property
    def barrier(self) -> float:
        """How far the loss rises above the straight line between those of the ends, at most; below 0: nowhere."""
        return _barrier(self.alphas, self.losses)

    @property
    def barrier_before(self) -> float | None:
        """The barrier without alignment."""
        return None if self.before is None else _barrier(self.alphas, self.before)

    @property
    def share(self) -> float:
        """The barrier as a share of the mean loss of the ends."""
        return self.barrier / max((self.losses[0] + self.losses[-1]) / 2, _LEAST_LOSS)

    @property
    def verdict(self) -> Verdict:
        """Whether the two lie in one basin: the barrier is at most two per cent of their loss."""
        return "barrier" if not self.share <= BARRIER else "same basin"

    def as_fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        known = ("a", "b", "alphas", "losses", "before", "samples", "unit", "source")
        aligned = self.aligned
        return {
            **{name: getattr(self, name) for name in known},
            "barrier": self.barrier,
            "barrier_before": self.barrier_before,
            "barrier_share": self.share,
            "verdict": self.verdict,
            "aligned": None
            if aligned is None
            else {"before": aligned.before, "after": aligned.after, "moved": aligned.moved},
        }


def lmc(
    a: Model,
    b: Model,
    *,
    alphas: Sequence[float] = ALPHAS,
    aligned: bool = False,
    corpus: str | None = None,
    images: str | None = None,
    tokens: int = _TOKENS,
    cache: Path | None = None,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    on_loss: Callable[[float, float], None] | None = None,
) -> LossLine:
    """The loss on the straight line between two models of one shape, on held-out text or images.

    line = linnet.analysis.lmc("base@200", "base@1000")
    line.verdict, line.barrier, line.losses

    - `a`, `b`: MODELs: a GGUF's path, a RUN (its best checkpoint), `RUN@latest` or `RUN@200`.
    - `alphas`: how much of B is in each model that is scored; 0 and 1 are always among them.
    - `aligned`: put B's units into the order in which they are most like A's first.
    - `corpus`, `images`: what they are scored on; by default what A's run held out, else B's.
    - `on_loss`: called with each place and its loss.
    """
    places = _places(alphas)
    if tokens < 2:
        raise UsageError(f"`tokens` must be 2 or more, found {tokens}")
    first, second = (Checkpoint.find(model, runs) for model in (a, b))
    if first.task != second.task:
        raise UsageError(f"{first.name} and {second.name} do different things: only models of one shape lie on a line")
    require_probe(first, corpus=corpus, images=images)
    chosen = pick_device(device)
    if (why := difference(first.config, second.config)) is not None:  # before a large one is loaded
        raise UsageError(f"{first.name} and {second.name} {why}: only models of one shape lie on a line")
    if first.task == "text":
        require_same_tokens(first, second)
    model = first.load(chosen).module
    start, end = model.params(), second.load(chosen).module.params()
    if odd := sorted(start.keys() ^ end.keys()):
        raise UsageError(f"only one of {first.name} and {second.name} has {odd[0]}: there is no line between them")
    home = first if first.run is not None or second.run is None else second
    if isinstance(model, ViT):
        from linnet.train.images import evaluate_images

        pictures, source, _ = probe_images(home, model.config, images=images, progress=progress)
        unit, samples = "images", len(pictures)

        def score() -> float:
            return float(evaluate_images(model, pictures).loss)

    else:
        from linnet.data import windows
        from linnet.train.text import rows_at_once

        probe = probe_text(home, corpus=corpus, cache=cache, progress=progress)
        unit, samples, source = "tokens", min(tokens, len(probe) - 1), probe.source
        ctx = min(model.config.ctx, samples)
        rows = rows_at_once(chosen, ctx, -(-samples // ctx))

        def score() -> float:
            return score_batches(model, windows(probe.tokens, ctx, rows, device=chosen), samples).mean

    start = {name: tensor.clone() for name, tensor in start.items()}  # the model's own are about to change
    losses = tuple(losses_along(model, start, end, places, score, on_loss))
    for checkpoint, loss in ((first, losses[0]), (second, losses[-1])):
        if not math.isfinite(loss):
            raise UsageError(f"the loss of {checkpoint.name} is not finite: it lies on no line with another model")
    if not aligned:
        return LossLine(first.name, second.name, places, losses, samples, unit, source)
    matched = align(model.config, start, end)
    after = tuple(losses_along(model, start, matched.parameters, places, score, on_loss))
    return LossLine(first.name, second.name, places, after, samples, unit, source, matched, before=losses)


@torch.no_grad()
def losses_along(
    model: Any,
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
    alphas: Sequence[float],
    score: Callable[[], float],
    on_loss: Callable[[float, float], None] | None = None,
) -> list[float]:
    """What `score` says while the model has the weights of each place on the line; it keeps those of the last.

    Neither `start` nor `end` are the model's own weights, which change.
    """
    named = dict(model.named_parameters())
    losses = []
    for alpha in alphas:
        for name, parameter in named.items():
            parameter.copy_(
                torch.lerp(start[name], end[name], alpha) if 0 < alpha < 1 else (start, end)[alpha == 1][name]
            )
        loss = score()
        losses.append(loss if math.isfinite(loss) else math.inf)
        if on_loss is not None:
            on_loss(alpha, losses[-1])
    return losses


def difference(config: AnyConfig, other: AnyConfig) -> str | None:
    """How the shapes of two models differ, in words; None where their parameters correspond one by one."""
    if config.arch != other.arch:
        return f"are a {config.arch} and a {other.arch}"
    fields, others = asdict(config), asdict(other)
    free = {*_NOT_OF_THE_SHAPE} - ({"ctx"} if _POSITIONS in layout(config).params else set())
    names = [name for name in fields if name not in free and fields[name] != others[name]]
    shown = ", ".join(f"{name} ({fields[name]} and {others[name]})" for name in names[:4])
    return f"differ in {shown}" if names else None


def _barrier(alphas: Sequence[float], losses: Sequence[float]) -> float:
    first, last = losses[0], losses[-1]
    inner = zip(alphas[1:-1], losses[1:-1], strict=True)
    return max((loss - (first + alpha * (last - first)) for alpha, loss in inner), default=0.0)


def _places(alphas: Sequence[float]) -> tuple[float, ...]:
    if not all(math.isfinite(alpha) and 0 <= alpha <= 1 for alpha in alphas):
        raise UsageError(f"`alphas` go from 0 (the first model) to 1 (the second), found {', '.join(map(str, alphas))}")
    if not any(0 < alpha < 1 for alpha in alphas):
        raise UsageError("`alphas` has no place between the two models (0 and 1 are always scored): give some, as 0.5")
    return tuple(sorted({0.0, 1.0, *map(float, alphas)}))
