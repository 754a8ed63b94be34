"""nanoGPT's model and training as a lane: GPT-2's shape in plain torch, compiled, bf16 by autocast, flash attention.

nanoGPT is no package; its model and its settings are written again here: no biases, first weights of 0.02 with smaller
ones at the ends of residual branches, AdamW (0.9, 0.95) with a decay of 0.1 on matrices, clipping at 1, a cosine to a
tenth. Batches come from the device, as ours do; its own loader would only take longer.
"""

import math
import time
from typing import Any

from learning_lane import LaneSpec, Trial


class PeerLane:
    """The model, compiled once, and its data."""

    def __init__(self, spec: LaneSpec, tokens: Any, device: str, held_out: int) -> None:
        import torch

        torch.set_float32_matmul_precision("high")
        self.spec, self._tokens, self._device, self._held_out = spec, tokens, torch.device(device), held_out
        self.model = _model(spec.shape, tokens.vocab, spec.ctx).to(device)
        self._called = torch.compile(self.model) if device == "cuda" else self.model

    def run(self, trial: Trial) -> dict[str, Any]:
        """Train a trial from its first weights to its last step; what came of it."""
        import torch

        from linnet.data import Batches

        torch.manual_seed(trial.seed)
        _initialise(self.model, self.spec.shape["n_layers"])
        lr, decay = trial.settings["lr"], trial.settings.get("weight_decay", 0.1)
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        vectors = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
        fused = self._device.type == "cuda"
        optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, trial.settings.get("beta2", 0.95)), fused=fused)
        batches = Batches(self._tokens.train, ctx=self.spec.ctx, batch=self.spec.batch, seed=trial.seed)
        batches = batches.to(self._device)
        at = {round(trial.steps * (k + 1) / trial.evaluations) for k in range(trial.evaluations)}
        warmup = min(100, trial.steps // 10)
        curve, training, began = [], 0.0, self._now()
        for step in range(trial.steps):
            progress = (step - warmup) / max(1, trial.steps - warmup)
            share = (step + 1) / warmup if step < warmup else 0.1 + 0.45 * (1 + math.cos(math.pi * progress))
            for group in optimizer.param_groups:
                group["lr"] = lr * share
            batch = batches.at(step)
            with torch.autocast(self._device.type, torch.bfloat16, enabled=fused):
                loss = self._called(batch.ids_BT, batch.targets_BT)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step + 1 in at:
                training += self._now() - began
                curve.append([step + 1, self._loss()])
                began = self._now()
        return {
            "lane": self.spec.name,
            "study": trial.study,
            "shape": self.spec.shape,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "tokens": self.spec.batch * self.spec.ctx,
            "steps": trial.steps,
            "optimizer": "nanoGPT",
            "lr": lr,
            "weight_decay": decay,
            "settings": trial.settings,
            "variant": {},
            "seed": trial.seed,
            "loss": curve[-1][1],
            "curve": curve,
            "seconds": round(training, 3),
            "step_ms": round(1e3 * training / trial.steps, 3),
        }

    def _loss(self) -> float:
        """Over the same held-out windows as ours."""
        import torch

        from linnet.data import windows

        rows = max(1, min(32_768, self._held_out) // self.spec.ctx)
        total, count = 0.0, 0
        with torch.no_grad(), torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            for batch in windows(self._tokens.held_out, self.spec.ctx, rows, device=self._device):
                total += float(self.model(batch.ids_BT, batch.targets_BT)) * batch.n_targets
                count += batch.n_targets
                if count >= self._held_out:
                    break
        return round(total / count, 5)

    def _now(self) -> float:
        import torch

        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def _initialise(model: Any, layers: int) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(1.0)
            else:
                ends = name.endswith(("out.weight", "down.weight"))
                parameter.normal_(std=0.02 / math.sqrt(2 * layers) if ends else 0.02)


def _model(shape: dict[str, Any], vocab: int, ctx: int) -> Any:
    import torch
    import torch.nn.functional as F
    from torch import nn

    d, heads, layers = shape["d_model"], shape["n_heads"], shape["n_layers"]

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x: Any) -> Any:
            return F.layer_norm(x, (d,), self.weight, None, 1e-5)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

        def forward(self, x: Any) -> Any:
            B, T, _ = x.shape
            q, k, v = (part.view(B, T, heads, -1).transpose(1, 2) for part in self.qkv(self.first(x)).split(d, dim=2))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(B, T, d))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm = Norm()
            self.head = nn.Linear(d, vocab, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Any, targets: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            logits = self.head(self.norm(self.blocks(x)))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.flatten())

    return Model()
