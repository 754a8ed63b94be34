"""The optimizers of a step: AdamW, AdamW as Toy has it (the seed's), or Muon (muon.py) with AdamW for what it leaves.

Learning rates are tensors, so that a schedule never makes a compiled step compile again; those of embeddings, head and
vectors are in a fixed proportion to that of the matrices (rates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.train.eager_optimizer import AdamW, EagerOptimizer
from linnet.train.muon import Muon
from linnet.train.ranks import ALONE, Ranks
from linnet.train.rates import kind_of, shares
from linnet.train.settings import FULL_MOMENTUM, TrainSettings
from linnet.train.sharded_weights import WholeMatrices, is_sharded, own_piece, own_rows, total_norm
from linnet.train.shards import MomentLayout, Piece, WeightExchange, shards_moments, share_out
from linnet.train.streams import run_concurrently

_SMALL = 1 << 19  # numbers that fit a core's cache
_WEIGHT_DECAY = 0.1  # of settings that no rule has filled in


class SeedAdamW(EagerOptimizer):
    """AdamW as Toy's trainers have it: no bias correction; the moments are scaled by beta1 and beta2 instead."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step: m and v are updated, then w ← w·(1 − lr·wd) − lr · beta1·m / (√(beta2·v) + eps)."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.lerp_(parameter.grad, 1 - beta1)
                v.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.addcdiv_(m * beta1, (v * beta2).sqrt_().add_(group["eps"]), value=-group["lr"])
        return None


# The optimizers besides AdamW, which trains the parameters that they leave. `moment` names the tensor that their state
# has of each parameter. What they do is captured in a graph, so it may ask the host for nothing.
OPTIMIZERS: dict[str, type[Muon]] = {"muon": Muon}


def capture_obstacle(settings: TrainSettings) -> str:
    """Why no graph can hold a step: it is not the same work every time, or the host must know a number. Empty: it can.

    AdamW's own kernel clips and skips on the device.
    """
    if settings.bias_correction != "usual":
        return "the seed's AdamW cannot be captured"
    if settings.optimizer in OPTIMIZERS and settings.on_nan == "skip":
        return f"{settings.optimizer.capitalize()} cannot skip a step without asking the host"
    return ""


@dataclass(frozen=True)
class _Moved:
    """What an optimizer of this rank moves: a parameter, or a range of its numbers (`piece`)."""

    name: str
    of: nn.Parameter
    weights: nn.Parameter
    piece: Piece | None = None

    @property
    def start(self) -> int:
        return 0 if self.piece is None else self.piece.start

    def attach(self) -> None:
        """Let a range have its range of the gradient."""
        gradient = self.of.grad
        if self.piece is None:
            return
        if gradient is None or is_sharded(gradient):
            self.weights.grad = None if gradient is None else own_rows(gradient)
        else:
            self.weights.grad = gradient.view(-1)[self.piece.start : self.piece.stop]

    def share_of(self, moment: Tensor) -> Tensor:
        """The numbers of a moment that belong to these weights; one that is a single number is everyone's."""
        if self.piece is None or moment.numel() != self.of.numel():
            return moment
        return moment.reshape(-1)[self.piece.start : self.piece.stop].view(self.weights.shape)

    def is_in(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(self.weights is weights for group in optimizer.param_groups for weights in group["params"])


class Optimizers:
    """One or two torch optimizers that step together and share a learning rate.

    Several ranks share out what they move (`shards.py`): `exchange` then lets all of them have all weights.
    `rows`: of parameters that hold several matrices one below the other, the rows of each.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        settings: TrainSettings,
        ranks: Ranks = ALONE,
        rows: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._named = {name: parameter for name, parameter in named if parameter.requires_grad}
        self._settings, self._ranks = settings, ranks
        device = next(iter(self._named.values())).device
        self._shares = shares(settings)
        at = device if device.type == "cuda" else torch.device("cpu")
        self._rates = {share: torch.tensor((settings.lr or 0.0) * share, device=at) for share in self._shares.values()}
        self._on_device = device.type in ("cpu", "cuda") and not capture_obstacle(settings)
        kind = OPTIMIZERS.get(settings.optimizer)
        self.pieces: dict[str, tuple[Piece, ...]] = {}  # what is shared out among ranks, all else is moved by each
        self._sharded = any(is_sharded(parameter) for parameter in self._named.values())
        if not ranks.alone and not self._sharded:
            n_params = sum(parameter.numel() for parameter in self._named.values())
            is_whole = kind.trains if kind is not None else lambda *_: False
            ranges = shards_moments(settings, ranks, n_params)
            self.pieces = share_out(self._named, ranks.count, is_whole, ranges=ranges)
        self._exchange = WeightExchange(self._named, self.pieces, ranks) if self.pieces else None
        self._moved = self._own_weights()
        self._parts: list[torch.optim.Optimizer] = []
        unassigned = self._moved
        if kind is not None:
            unassigned = [moved for moved in unassigned if not kind.trains(moved.name, moved.of)]
            if members := [moved for moved in self._moved if kind.trains(moved.name, moved.of)]:
                shapes = {moved.weights: moved.of.shape for moved in members}
                whole = WholeMatrices(shapes, ranks) if self._sharded else None
                self._parts.append(self._muon(kind, members, rows or {}, whole))
        if unassigned:
            self._parts.append(self._adamw(self._groups(unassigned), device.type))

    def _own_weights(self) -> list[_Moved]:
        """What this rank moves: parameters, or ranges of them, which share their memory."""
        moved, ranks = [], self._ranks
        for name, parameter in self._named.items():
            if self._sharded:
                rows = nn.Parameter(own_rows(parameter), requires_grad=False)
                moved.append(_Moved(name, parameter, rows, own_piece(parameter, ranks.rank, ranks.count)))
                continue
            if name not in self.pieces:
                moved.append(_Moved(name, parameter, parameter))
            for piece in (piece for piece in self.pieces.get(name, ()) if piece.rank == self._ranks.rank):
                if piece.stop - piece.start == parameter.numel():
                    moved.append(_Moved(name, parameter, parameter))
                elif piece.stop > piece.start:
                    flat = parameter.detach().view(-1)[piece.start : piece.stop]
                    moved.append(_Moved(name, parameter, nn.Parameter(flat, requires_grad=False), piece))
        return moved

    def set_lr(self, lr: float, momentum: float = FULL_MOMENTUM) -> None:
        """The rate of the matrices in the next step, to which the others keep their proportion; Muon's momentum."""
        for share, rate in self._rates.items():
            rate.fill_(lr * share)
        for part in self._parts:
            for group in part.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = lr * group["share"]
            if isinstance(part, Muon):
                part.momentum.fill_(momentum)

    def step(self, norm: Tensor | None = None) -> Tensor:
        """Clip the gradients, move every parameter, drop the gradients. Returns their norm before clipping.

        `norm`: where it is known already.
        With `on_nan` "skip", a norm that is not finite moves nothing.
        """
        gradients = [p.grad for p in self._named.values() if p.grad is not None]
        if norm is None:
            norm = total_norm(gradients, self._ranks) if self._sharded else _norm(gradients)
        for moved in self._moved:
            moved.attach()
        if self._on_device:
            self._step_on_device(norm)
        elif self._settings.on_nan != "skip" or torch.isfinite(norm).item():
            if self._settings.clip > 0:
                weights = [moved.weights for moved in self._moved] if self._sharded else list(self._named.values())
                nn.utils.clip_grads_with_norm_(weights, self._settings.clip, norm)
            for part in self._parts:
                part.step()
        for part in self._parts:
            part.zero_grad(set_to_none=True)
        if self.pieces or self._sharded:  # also those that other ranks move
            for parameter in self._named.values():
                parameter.grad = None
        return norm

    def exchange(self) -> None:
        """Let all ranks have what each of them has moved. Never captured."""
        if self._exchange is not None:
            self._exchange()

    def state(self) -> dict[str, Tensor]:
        """Every moment by `<kind>/<parameter>`, for keeping; of those that are shared out, this rank's (`pieces`)."""
        moments: dict[str, Tensor] = {}
        for moved in self._moved:
            for part in self._parts:
                for kind, value in part.state.get(moved.weights, {}).items():
                    moments[f"{kind}/{moved.name}"] = value if isinstance(value, Tensor) else torch.tensor(float(value))
        return moments

    def layout(self) -> dict[str, MomentLayout]:
        """Where the moments lie that are shared out, by their keys. All ranks ask for it together."""
        if not self.pieces and not self._sharded:
            return {}
        own = {
            f"{kind}/{moved.name}": (moved.start, moved.start + value.numel())
            for moved in self._moved
            if (moved.name in self.pieces or self._sharded) and moved.weights.numel()
            for part in self._parts
            for kind, value in part.state.get(moved.weights, {}).items()
            if isinstance(value, Tensor) and value.numel() == moved.weights.numel() and kind != "step"
        }
        layouts: dict[str, MomentLayout] = {}
        for rank, held in enumerate(self._ranks.gather(own)):
            for key, (start, stop) in held.items():
                shape = self._named[key.partition("/")[2]].shape
                before = layouts.get(key, MomentLayout(shape, ()))
                layouts[key] = MomentLayout(shape, (*before.pieces, Piece(rank, start, stop)))
        return layouts

    def load(self, moments: Mapping[str, Tensor]) -> None:
        """Put the moments back; those that are missing begin anew.

        Tensors that are there already stay where they are: a captured step writes to them.
        """
        kinds: dict[str, list[str]] = {}  # of moments, by parameter
        for key in moments:
            kind, _, name = key.partition("/")
            kinds.setdefault(name, []).append(kind)
        for moved, part in ((moved, part) for part in self._parts for moved in self._moved if moved.is_in(part)):
            stored = {kind: moments[f"{kind}/{moved.name}"] for kind in kinds.get(moved.name, ())}
            held = part.state[moved.weights]
            _check_moments(moved.name, moved.of, stored, getattr(part, "moment", "exp_avg"))
            for kind in held.keys() - stored.keys():
                held[kind].zero_()
            for kind, moment in stored.items():
                value = moved.share_of(moment)
                if kind in held:
                    held[kind].copy_(value)
                else:
                    held[kind] = value.to(moved.of.device, copy=True)

    def _groups(self, moved: list[_Moved]) -> list[dict[str, Any]]:
        """Parameters by their rates; matrices decay, vectors do not."""
        decay = _WEIGHT_DECAY if self._settings.weight_decay is None else self._settings.weight_decay
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in sorted(moved, key=lambda moved: moved.of.ndim < 2):
            dimensions = parameter.of.ndim
            share = self._shares[kind_of(parameter.name, dimensions)]
            groups.setdefault((share, decay if dimensions >= 2 else 0.0), []).append(parameter.weights)
        return [
            {"params": parameters, "weight_decay": decay, "share": share}
            for (share, decay), parameters in groups.items()
        ]

    def _muon(
        self, kind: type[Muon], members: list[_Moved], rows: Mapping[str, tuple[int, ...]], whole: WholeMatrices | None
    ) -> Muon:
        norm = self._settings.muon_norm or "rms"  # runs from before there was a choice
        apart = {moved.weights: rows[moved.name] for moved in members if moved.name in rows and norm == "spectral"}
        return kind(self._groups(members), self._rates[1.0], norm=norm, rows=apart, whole=whole)

    def _adamw(self, groups: list[dict[str, Any]], device: str) -> torch.optim.Optimizer:
        settings = self._settings
        betas = (settings.beta1, settings.beta2)
        if settings.bias_correction == "seed":
            return SeedAdamW(groups, lr=settings.lr or 0.0, betas=betas, eps=settings.eps)
        fused, capturable = device in ("cpu", "cuda", "mps"), device == "cuda"
        groups = [{**group, "lr": self._rates[group["share"]]} for group in groups]
        rate = self._rates[1.0]
        return AdamW(groups, lr=rate, betas=betas, eps=settings.eps, fused=fused, capturable=capturable)

    def _step_on_device(self, norm: Tensor) -> None:
        """The optimizers clip (and AdamW's own kernel skips), which saves a pass over the gradients."""
        excess = _excess(norm, self._settings.clip)
        for part in self._parts:
            if excess is not None:
                part.grad_scale = excess  # type: ignore[attr-defined]
            if self._settings.on_nan == "skip":
                part.found_inf = torch.isfinite(norm).logical_not().float()  # type: ignore[attr-defined]
        works = {type(part).__name__: partial(_step, part) for part in self._parts}
        run_concurrently(works, norm.device)


def _step(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def _check_moments(name: str, parameter: Tensor, stored: dict[str, Tensor], kind: str) -> None:
    """Refuse the moments of another optimizer, or of a parameter of another shape."""
    if stored and (kind not in stored or stored[kind].shape != parameter.shape):
        shapes = ", ".join(f"{key} {list(tensor.shape)}" for key, tensor in stored.items())
        raise UsageError(
            f"the optimizer state of {name!r} is of another optimizer or model: "
            f"expected {kind} {list(parameter.shape)}, found {shapes}"
        )


def _excess(norm: Tensor, clip: float) -> Tensor | None:
    """What the gradients are divided by so that their norm is at most `clip`; without one, nothing."""
    if clip <= 0:
        return None
    longer = norm.clamp(min=clip)
    return longer if clip == 1 else longer / clip


def is_small(gradients: Sequence[Tensor]) -> bool:
    """Do gradients on a CPU fit a core's cache together?"""
    return gradients[0].device.type == "cpu" and sum(gradient.numel() for gradient in gradients) <= _SMALL


def _norm(gradients: list[Tensor]) -> Tensor:
    """Of all gradients together. A small model's are joined first: on a CPU one look costs less than one at each."""
    if is_small(gradients):
        norm: Tensor = torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        return norm
    return nn.utils.get_total_norm(gradients)
