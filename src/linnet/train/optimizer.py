"""The optimisers: AdamW, the seed's AdamW, and Muon for the hidden matrices with AdamW for the rest.

The learning rate is a tensor, so that a schedule never makes a compiled step compile again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.train.muon import Muon
from linnet.train.settings import TrainSettings

_SMALL = 1 << 19  # numbers that fit a core's cache


class Optimizers:
    """One or two torch optimisers that step together and share a learning rate."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], settings: TrainSettings) -> None:
        self._named = {name: parameter for name, parameter in named if parameter.requires_grad}
        self._settings = settings
        device = next(iter(self._named.values())).device
        self._rate = torch.tensor(settings.lr, device=device if device.type == "cuda" else "cpu")
        matrices = {n: p for n, p in self._named.items() if p.ndim >= 2}
        hidden = {n: p for n, p in matrices.items() if _is_hidden(n)} if settings.optimizer == "muon" else {}
        self._parts: list[torch.optim.Optimizer] = []
        if hidden:
            self._parts.append(Muon(hidden.values(), self._rate, weight_decay=settings.weight_decay))
        decayed = [p for n, p in matrices.items() if n not in hidden]
        plain = [p for n, p in self._named.items() if n not in matrices]
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self._parts.append(self._adamw([group for group in groups if group["params"]], settings))

    def set_rate(self, lr: float) -> None:
        """The learning rate of the next step."""
        self._rate.fill_(lr)
        for part in self._parts:
            for group in part.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = lr

    def step(self) -> Tensor:
        """Clip, move every parameter by its gradient, and forget the gradients. The norm comes back, unclipped.

        With `on_nan` "skip", a norm that is not finite moves nothing.
        """
        gradients = [p.grad for p in self._named.values() if p.grad is not None]
        norm = _norm(gradients)
        if self.capturable:
            self._step_on_device(norm)
        elif self._settings.on_nan != "skip" or torch.isfinite(norm).item():
            if self._settings.clip > 0:
                nn.utils.clip_grads_with_norm_(self._named.values(), self._settings.clip, norm)
            for part in self._parts:
                part.step()
        for part in self._parts:
            part.zero_grad(set_to_none=True)
        return norm

    @property
    def capturable(self) -> bool:
        """Is a step the same work every time, with no number that the host must know? Then a graph can hold it."""
        kind = next(iter(self._named.values())).device.type
        kinds = (torch.optim.AdamW,) if self._settings.on_nan == "skip" else (torch.optim.AdamW, Muon)
        return kind in ("cpu", "cuda") and all(isinstance(part, kinds) for part in self._parts)

    def _step_on_device(self, norm: Tensor) -> None:
        """AdamW's own kernel clips and skips, which also saves a pass over the gradients."""
        excess = _excess(norm, self._settings.clip)
        for part in self._parts:
            if isinstance(part, Muon):
                gradients = [p.grad for group in part.param_groups for p in group["params"] if p.grad is not None]
                if excess is not None:
                    torch._foreach_div_(gradients, excess)
            else:
                if excess is not None:
                    part.grad_scale = excess  # type: ignore[attr-defined]
                if self._settings.on_nan == "skip":
                    part.found_inf = torch.isfinite(norm).logical_not().float()  # type: ignore[attr-defined]
            part.step()

    def state(self) -> dict[str, Tensor]:
        """Every moment by `<kind>/<parameter>`, for keeping."""
        found: dict[str, Tensor] = {}
        for name, parameter in self._named.items():
            for part in self._parts:
                for kind, value in part.state.get(parameter, {}).items():
                    found[f"{kind}/{name}"] = value if isinstance(value, Tensor) else torch.tensor(float(value))
        return found

    def load(self, state: dict[str, Tensor]) -> None:
        """Put the moments back; those that are missing begin anew.

        Tensors that are there already stay where they are: a captured step writes to them.
        """
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            by_parameter.setdefault(name, {})[kind] = value
        names = {parameter: name for name, parameter in self._named.items()}
        for part in self._parts:
            for parameter in (each for group in part.param_groups for each in group["params"]):
                given, held = by_parameter.get(names[parameter], {}), part.state[parameter]
                _check_moments(
                    names[parameter], parameter, given, "momentum_buffer" if isinstance(part, Muon) else "exp_avg"
                )
                for kind in held.keys() - given.keys():
                    held[kind].zero_()
                for kind, value in given.items():
                    if kind in held:
                        held[kind].copy_(value)
                    else:
                        held[kind] = value.to(parameter.device, copy=True)

    def _adamw(self, groups: list[dict[str, Any]], settings: TrainSettings) -> torch.optim.Optimizer:
        betas = (settings.beta1, settings.beta2)
        if settings.bias_correction == "seed":
            return SeedAdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps)
        kind = groups[0]["params"][0].device.type
        fused, capturable = kind in ("cpu", "cuda", "mps"), kind == "cuda"
        return torch.optim.AdamW(
            groups, lr=self._rate, betas=betas, eps=settings.eps, fused=fused, capturable=capturable
        )


class SeedAdamW(torch.optim.Optimizer):
    """AdamW as the seed's trainers have it: no bias correction; the moments are scaled by beta1 and beta2 instead."""

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


def _check_moments(name: str, parameter: Tensor, given: dict[str, Tensor], kind: str) -> None:
    """Refuse the moments of another optimiser, or of a parameter of another shape."""
    if given and (kind not in given or given[kind].shape != parameter.shape):
        found = ", ".join(f"{key} {list(tensor.shape)}" for key, tensor in given.items())
        raise UsageError(
            f"the optimizer state of {name!r} is of another optimizer or model: "
            f"expected {kind} {list(parameter.shape)}, found {found}"
        )


def _excess(norm: Tensor, clip: float) -> Tensor | None:
    """What the gradients are divided by so that their norm is at most `clip`; without one, nothing."""
    if clip <= 0:
        return None
    longer = norm.clamp(min=clip)
    return longer if clip == 1 else longer / clip


def _norm(gradients: list[Tensor]) -> Tensor:
    """Of all gradients together. A small model's are joined first: on a CPU one look costs less than one at each."""
    if gradients[0].device.type == "cpu" and sum(gradient.numel() for gradient in gradients) <= _SMALL:
        norm: Tensor = torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        return norm
    return nn.utils.get_total_norm(gradients)


def _is_hidden(name: str) -> bool:
    """Embeddings and the head are no matrices in Muon's sense: their rows are looked up one by one."""
    return name.startswith("blocks.")
