"""Muon with what the studies varied: momentum, Nesterov, the norm of updates, parts of fused matrices, decay.

Without a variant it is the product's, which has since taken over what helped (`muon_norm`, `momentum_warmup`).
"""

from collections.abc import Callable
from typing import Any


def variant_of(variant: dict[str, Any], model: Any) -> Callable[..., Any] | None:
    """What `Optimizers` makes in the place of Muon; None: Muon itself."""
    keys = ("momentum", "nesterov", "norm", "split", "momentum_warmup", "decay_by_schedule", "rounds")
    if not any(key in variant for key in keys):
        return None
    import torch

    from linnet.train.muon import Muon
    from linnet.train.orthogonal import by_polynomials

    config = model.config
    parts = _parts(config) if variant.get("split") else {}

    class Variant(torch.optim.Optimizer):
        moment = Muon.moment
        trains = staticmethod(Muon.trains)
        grad_scale: Any = None

        def __init__(self, matrices: Any, lr: Any, **_: Any) -> None:
            momentum: Any = variant.get("momentum", 0.95)
            if "momentum_warmup" in variant:
                momentum = torch.tensor(0.85, device=lr.device)
            super().__init__(matrices, {"lr": lr, "weight_decay": 0.0, "momentum": momentum})
            if variant.get("decay_by_schedule"):
                for group in self.param_groups:
                    group["weight_decay"] = torch.tensor(float(group["weight_decay"]), device=lr.device)

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                by_shape: dict[Any, list[Any]] = {}
                for matrix in group["params"]:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
                for shape, matrices in by_shape.items():
                    self._move(shape, matrices, group)

        def _move(self, shape: Any, matrices: list[Any], group: dict[str, Any]) -> None:
            momentum, lr = group["momentum"], group["lr"]
            for matrix in matrices:
                state = self.state[matrix]
                if Muon.moment not in state:
                    state[Muon.moment] = torch.zeros_like(matrix)
            buffers = torch.stack([self.state[matrix][Muon.moment] for matrix in matrices])
            gradients = torch.stack([matrix.grad for matrix in matrices])
            gradients = gradients if self.grad_scale is None else gradients / self.grad_scale
            buffers = buffers * momentum + gradients * (1 - momentum)
            for matrix, buffer in zip(matrices, buffers.unbind(), strict=True):
                self.state[matrix][Muon.moment].copy_(buffer)
            ahead = gradients * (1 - momentum) + buffers * momentum if variant.get("nesterov", True) else buffers
            pieces = ahead.split(parts[shape], dim=1) if shape in parts else (ahead,)
            moved = [by_polynomials(piece.contiguous()).float() * _size(piece.shape[1:], variant) for piece in pieces]
            update = torch.cat(moved, dim=1)
            for matrix, each in zip(matrices, update.unbind(), strict=True):
                matrix.mul_(1 - lr * group["weight_decay"]).add_(each * -lr)

    return Variant


def _size(shape: Any, variant: dict[str, Any]) -> float:
    """Times the orthogonal update: the root mean square of AdamW's, or a spectral norm by the shape (muP)."""
    rows, columns = shape
    if variant.get("norm") == "spectral":  # the same as the usual one at 384 × 384
        return float(0.2 * 384**0.5 * (rows / columns) ** 0.5)
    if variant.get("norm") == "keller":
        return float(0.2 * 384**0.5 * max(1.0, rows / columns) ** 0.5)
    return float(0.2 * max(rows, columns) ** 0.5)


def _parts(config: Any) -> dict[Any, list[int]]:
    """The rows of what is fused: queries, keys and values; gate and up."""
    import torch

    d, head = config.d_model, config.head_size
    q, kv = config.n_heads * head, config.n_kv * head
    return {
        torch.Size((q + 2 * kv, d)): [q, kv, kv],
        torch.Size((2 * config.d_ff, d)): [config.d_ff, config.d_ff],
    }
