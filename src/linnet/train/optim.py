"""The optimizers: AdamW, AdamW as Toy has it (the seed's), and Muon for the hidden matrices with AdamW for the rest.

The learning rate is a tensor, so that a schedule never makes a compiled step compile again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.train.settings import TrainSettings

_SMALL = 1 << 19  # numbers that fit a core's cache

# The quintic iteration of Keller Jordan's Muon: steep at zero, so that five rounds bring every singular value near 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Muon, momentum made orthogonal, for hidden matrices. Those of one shape are worked on as one batch of matmuls.

    torch's own takes them one by one: a thousand small kernels a step for a model of twelve layers, with a learning
    rate that only the host knows, so that no graph can hold it. One learning rate is right for this and AdamW: updates
    have the size that AdamW's have.
    """

    moment = "momentum_buffer"

    def __init__(
        self, matrices: Iterable[Any], lr: Tensor, *, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @staticmethod
    def trains(name: str, parameter: nn.Parameter) -> bool:
        """Embeddings and the head are no matrices in Muon's sense: their rows are looked up one by one."""
        return parameter.ndim >= 2 and name.startswith("blocks.")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for matrices in by_shape.values():
                self._move(matrices, group["lr"], group["weight_decay"], group["momentum"])
        return None

    def _move(self, matrices: list[nn.Parameter], lr: Tensor, weight_decay: float, momentum: float) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        buffers = [self._buffer(matrix) for matrix in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        update_NRC = orthogonal(torch.stack(ahead)).float()
        size = 0.2 * max(matrices[0].shape) ** 0.5
        tensors: list[Tensor] = list(matrices)
        torch._foreach_mul_(tensors, 1 - lr * weight_decay)
        torch._foreach_add_(tensors, (update_NRC * (-size * lr)).unbind())

    def _buffer(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if self.moment not in state:
            state[self.moment] = torch.zeros_like(matrix)
        buffer: Tensor = state[self.moment]
        return buffer


class SeedAdamW(torch.optim.Optimizer):
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


class Optimizers:
    """One or two torch optimizers that step together and share a learning rate."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], settings: TrainSettings) -> None:
        self._named = {name: parameter for name, parameter in named if parameter.requires_grad}
        self._settings = settings
        device = next(iter(self._named.values())).device
        self._lr = torch.tensor(settings.lr, device=device if device.type == "cuda" else "cpu")
        self._on_device = device.type in ("cpu", "cuda") and not capture_obstacle(settings)
        self._parts: list[torch.optim.Optimizer] = []
        rest = self._named
        if kind := OPTIMIZERS.get(settings.optimizer):
            rest = {name: parameter for name, parameter in rest.items() if not kind.trains(name, parameter)}
            if taken := {name: parameter for name, parameter in self._named.items() if name not in rest}:
                self._parts.append(kind(self._groups(taken), self._lr))
        if rest:
            self._parts.append(self._adamw(self._groups(rest), device.type))

    def set_lr(self, lr: float) -> None:
        """The learning rate of the next step."""
        self._lr.fill_(lr)
        for part in self._parts:
            for group in part.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = lr

    def step(self) -> Tensor:
        """Clip the gradients, move every parameter, drop the gradients. Returns their norm before clipping.

        With `on_nan` "skip", a norm that is not finite moves nothing.
        """
        norm = _norm([p.grad for p in self._named.values() if p.grad is not None])
        if self._on_device:
            self._step_on_device(norm)
        elif self._settings.on_nan != "skip" or torch.isfinite(norm).item():
            if self._settings.clip > 0:
                nn.utils.clip_grads_with_norm_(self._named.values(), self._settings.clip, norm)
            for part in self._parts:
                part.step()
        for part in self._parts:
            part.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Every moment by `<kind>/<parameter>`, for keeping."""
        moments: dict[str, Tensor] = {}
        for name, parameter in self._named.items():
            for part in self._parts:
                for kind, value in part.state.get(parameter, {}).items():
                    moments[f"{kind}/{name}"] = value if isinstance(value, Tensor) else torch.tensor(float(value))
        return moments

    def load(self, moments: Mapping[str, Tensor]) -> None:
        """Put the moments back; those that are missing begin anew.

        Tensors that are there already stay where they are: a captured step writes to them.
        """
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key, value in moments.items():
            kind, _, name = key.partition("/")
            by_parameter.setdefault(name, {})[kind] = value
        names = {parameter: name for name, parameter in self._named.items()}
        for part in self._parts:
            for parameter in (parameter for group in part.param_groups for parameter in group["params"]):
                given, held = by_parameter.get(names[parameter], {}), part.state[parameter]
                _check_moments(names[parameter], parameter, given, getattr(part, "moment", "exp_avg"))
                for kind in held.keys() - given.keys():
                    held[kind].zero_()
                for kind, value in given.items():
                    if kind in held:
                        held[kind].copy_(value)
                    else:
                        held[kind] = value.to(parameter.device, copy=True)

    def _groups(self, named: Mapping[str, nn.Parameter]) -> list[dict[str, Any]]:
        """Matrices decay, vectors do not."""
        matrices = [parameter for parameter in named.values() if parameter.ndim >= 2]
        vectors = [parameter for parameter in named.values() if parameter.ndim < 2]
        decays = ((matrices, self._settings.weight_decay), (vectors, 0.0))
        return [{"params": parameters, "weight_decay": decay} for parameters, decay in decays if parameters]

    def _adamw(self, groups: list[dict[str, Any]], device: str) -> torch.optim.Optimizer:
        settings = self._settings
        betas = (settings.beta1, settings.beta2)
        if settings.bias_correction == "seed":
            return SeedAdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps)
        fused, capturable = device in ("cpu", "cuda", "mps"), device == "cuda"
        return torch.optim.AdamW(groups, lr=self._lr, betas=betas, eps=settings.eps, fused=fused, capturable=capturable)

    def _step_on_device(self, norm: Tensor) -> None:
        """AdamW's own kernel clips and skips, which also saves a pass over the gradients."""
        excess = _excess(norm, self._settings.clip)
        for part in self._parts:
            if isinstance(part, torch.optim.AdamW):
                if excess is not None:
                    part.grad_scale = excess  # type: ignore[attr-defined]
                if self._settings.on_nan == "skip":
                    part.found_inf = torch.isfinite(norm).logical_not().float()  # type: ignore[attr-defined]
            elif excess is not None:
                gradients = [p.grad for group in part.param_groups for p in group["params"] if p.grad is not None]
                torch._foreach_div_(gradients, excess)
            part.step()


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """[N, R, C]: each matrix with its singular values brought near 1, in bf16 on a GPU, where that is quickest."""
    rows, columns = matrices_NRC.shape[1:]
    x = matrices_NRC.mT if rows > columns else matrices_NRC
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value is above 1 now
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.mT if rows > columns else x


def _check_moments(name: str, parameter: Tensor, given: dict[str, Tensor], kind: str) -> None:
    """Refuse the moments of another optimizer, or of a parameter of another shape."""
    if given and (kind not in given or given[kind].shape != parameter.shape):
        shapes = ", ".join(f"{key} {list(tensor.shape)}" for key, tensor in given.items())
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


def _norm(gradients: list[Tensor]) -> Tensor:
    """Of all gradients together. A small model's are joined first: on a CPU one look costs less than one at each."""
    if gradients[0].device.type == "cpu" and sum(gradient.numel() for gradient in gradients) <= _SMALL:
        norm: Tensor = torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        return norm
    return nn.utils.get_total_norm(gradients)
