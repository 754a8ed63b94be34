"""Many epochs on little text: do weight decay and dropout lower the best held-out loss?

A llama of 1M parameters learns about 1 MB of the standard library for 1, 10 and 50 epochs, for each pair of weight
decay and dropout and each seed. All of them train side by side in one set of tensors, with a leading dimension K for
the models, so that a GPU does the whole grid in two minutes. Muon for the matrices of the blocks, AdamW for the rest,
a cosine to a tenth of the rate: as `linnet train from-scratch` has it.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
import sysconfig
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import sample
from report import Report

PACKAGES = ("asyncio", "email", "json", "logging")  # 1.1 MB
DECAYS, DROPOUTS = (0.1, 0.3, 1.0, 3.0), (0.0, 0.1, 0.2, 0.3)
WIDTH, LAYERS, HEADS, CTX, VOCAB = 128, 4, 4, 256, 2048
FFN = 344
EVALUATIONS, SCORED = 16, 24_576  # of a run, and held-out tokens of each


def tokens(folder: Path) -> tuple[Tensor, Tensor]:
    """Training and held-out tokens of the packages."""
    from linnet.data import prepare

    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for package in PACKAGES:
        for file in sorted((Path(sysconfig.get_path("stdlib")) / package).glob("*.py")):
            (corpus / f"{package}_{file.name}").write_bytes(file.read_bytes())
    prepared = prepare(corpus, vocab=VOCAB, held_out=0.2, cache=folder / "cache")
    parts = (prepared.train, prepared.held_out)
    train, held_out = (torch.tensor(part.tokens[:].tolist()) for part in parts)
    return train, held_out


class Models:
    """K llamas side by side; parameter tensors begin with K."""

    def __init__(self, seeds: list[int], dropouts: Tensor, device: torch.device) -> None:
        self.device, self.dropout_K = device, dropouts.to(device)
        self.drops = bool(dropouts.any())
        shapes = {"embedding": (VOCAB, WIDTH), "norm": (WIDTH,)}
        for layer in range(LAYERS):
            shapes |= {
                f"{layer}.norm1": (WIDTH,),
                f"{layer}.qkv": (WIDTH, 3 * WIDTH),
                f"{layer}.out": (WIDTH, WIDTH),
                f"{layer}.norm2": (WIDTH,),
                f"{layer}.up": (WIDTH, 2 * FFN),
                f"{layer}.down": (FFN, WIDTH),
            }
        self.params: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            drawn = []
            for seed in seeds:
                generator = torch.Generator().manual_seed(1000 * seed + len(self.params))
                scale = 0.02 if name == "embedding" else shape[0] ** -0.5
                if name.endswith(("out", "down")):
                    scale /= math.sqrt(2 * LAYERS)
                drawn.append(torch.ones(shape) if len(shape) == 1 else scale * torch.randn(shape, generator=generator))
            self.params[name] = torch.stack(drawn).to(device).requires_grad_()
        angles = 10_000.0 ** (-torch.arange(0, WIDTH // HEADS, 2, device=device) / (WIDTH // HEADS))
        turns_TP = torch.arange(CTX, device=device)[:, None] * angles
        self._rotation = turns_TP.cos(), turns_TP.sin()

    def losses(self, ids_KBT: Tensor, training: bool) -> Tensor:
        """Mean cross entropy of each model on its own rows of CTX + 1 tokens: [K]."""
        K, B = ids_KBT.shape[:2]
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        weights = {name: tensor.to(dtype) if tensor.ndim == 3 else tensor for name, tensor in self.params.items()}
        inputs_KN = ids_KBT[:, :, :-1].flatten(1)
        rows = inputs_KN + VOCAB * torch.arange(K, device=self.device)[:, None]
        x_KND = F.embedding(rows, weights["embedding"].flatten(0, 1))
        for layer in range(LAYERS):
            normed = self._norm(x_KND, f"{layer}.norm1")
            qkv = torch.bmm(normed, weights[f"{layer}.qkv"]).view(K * B, CTX, 3, HEADS, -1)
            q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
            y = F.scaled_dot_product_attention(self._rotate(q), self._rotate(k), v, is_causal=True)
            y_KND = y.transpose(1, 2).reshape(K, B * CTX, WIDTH)
            x_KND = x_KND + self._drop(torch.bmm(y_KND, weights[f"{layer}.out"]), training)
            gate, up = torch.bmm(self._norm(x_KND, f"{layer}.norm2"), weights[f"{layer}.up"]).chunk(2, -1)
            x_KND = x_KND + self._drop(torch.bmm(F.silu(gate) * up, weights[f"{layer}.down"]), training)
        logits_KNV = torch.bmm(self._norm(x_KND, "norm"), weights["embedding"].mT).float()
        targets_KN = ids_KBT[:, :, 1:].flatten(1)
        loss_KN = F.cross_entropy(logits_KNV.flatten(0, 1), targets_KN.flatten(), reduction="none").view(K, -1)
        return loss_KN.mean(1)

    def _norm(self, x_KND: Tensor, name: str) -> Tensor:
        return F.rms_norm(x_KND.float(), (WIDTH,), None, 1e-5).mul(self.params[name][:, None]).to(x_KND.dtype)

    def _rotate(self, x: Tensor) -> Tensor:
        cos, sin = self._rotation
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)

    def _drop(self, x_KND: Tensor, training: bool) -> Tensor:
        if not training or not self.drops:
            return x_KND
        keep_K11 = (1 - self.dropout_K)[:, None, None]
        return x_KND * ((torch.rand_like(x_KND, dtype=torch.float32) < keep_K11) / keep_K11).to(x_KND.dtype)


class Optimizer:
    """Muon for the matrices of the blocks, AdamW for the rest; the weight decay of each model is its own."""

    def __init__(self, params: dict[str, Tensor], decays: Tensor) -> None:
        self._params, self._decay_K = params, decays
        self._mean = {name: torch.zeros_like(p) for name, p in params.items()}
        self._square = {name: torch.zeros_like(p) for name, p in params.items()}
        device = decays.device
        self.lr, self._steps = torch.zeros((), device=device), torch.zeros((), device=device)

    @torch.no_grad()
    def step(self) -> None:
        """Move all models by their gradients, and forget those."""
        self._steps += 1
        gradients = {name: p.grad for name, p in self._params.items()}
        square_K = sum(g.pow(2).flatten(1).sum(1) for g in gradients.values())  # type: ignore[union-attr]
        clip_K = (1.0 / (square_K.sqrt() + 1e-6)).clamp(max=1.0)
        for name, p in self._params.items():
            gradient = gradients[name] * _like(clip_K, p)  # type: ignore[operator]
            mean = self._mean[name]
            if p.ndim == 3:
                p.mul_(1 - self.lr * _like(self._decay_K, p))
            if p.ndim == 3 and name != "embedding":
                mean.mul_(0.95).add_(gradient)
                update = orthogonal(gradient + 0.95 * mean) * 0.2 * math.sqrt(max(p.shape[1:]))
            else:
                square = self._square[name]
                mean.lerp_(gradient, 0.1)
                square.lerp_(gradient.pow(2), 0.05)
                root = (square / (1 - 0.95**self._steps)).sqrt() + 1e-8
                update = mean / (1 - 0.9**self._steps) / root
            p.sub_(self.lr * update)
            p.grad = None


def orthogonal(matrix: Tensor) -> Tensor:
    """Newton and Schulz's iteration, as Muon takes it."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    wide = x.shape[1] <= x.shape[2]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x if wide else x.mT).float()


def _like(values_K: Tensor, p: Tensor) -> Tensor:
    return values_K.view(-1, *([1] * (p.ndim - 1)))


def train(
    data: tuple[Tensor, Tensor], grid: list[tuple[float, float, int]], epochs: int, lr: float, batch: int, most: int
) -> tuple[list[dict[str, Any]], float]:
    """Train all models of the grid: what each had as its best and its last held-out loss; and the seconds."""
    train_N, held_out_N = data
    device = train_N.device
    models = Models([seed for *_, seed in grid], torch.tensor([drop for _, drop, _ in grid]), device)
    optimizer = Optimizer(models.params, torch.tensor([decay for decay, *_ in grid], device=device))
    rows = (len(train_N) - 1) // CTX
    steps = min(most, epochs * rows // batch)
    orders = []  # of each model's rows
    for *_, seed in grid:
        generator = torch.Generator().manual_seed(seed)
        orders.append(torch.cat([torch.randperm(rows, generator=generator) for _ in range(epochs)]))
    order_KR = torch.stack(orders).to(device)
    offsets = torch.arange(CTX + 1, device=device)
    ids = torch.zeros(len(grid), batch, CTX + 1, dtype=torch.long, device=device)

    def one_step() -> Tensor:
        losses_K = models.losses(ids, training=True)
        losses_K.sum().backward()
        optimizer.step()
        return losses_K.detach()

    graph = None
    curve: list[Tensor] = []
    began = time.perf_counter()
    for step in range(steps):
        chosen_KB = order_KR[:, step * batch : (step + 1) * batch]
        ids.copy_(train_N[(chosen_KB * CTX)[:, :, None] + offsets])
        optimizer.lr.fill_(_rate(step, steps, lr))
        if device.type != "cuda" or step < 3:
            one_step()
        else:
            if graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                    one_step()
            graph.replay()
        if (step + 1) % max(1, steps // EVALUATIONS) == 0 or step == steps - 1:
            curve.append(_evaluate(models, held_out_N, len(grid), batch))
    by_time = torch.stack(curve).cpu()
    results = []
    for k, (decay, drop, seed) in enumerate(grid):
        losses = by_time[:, k].tolist()
        best = min(range(len(losses)), key=losses.__getitem__)
        results.append(
            {
                "epochs": epochs, "weight_decay": decay, "dropout": drop, "seed": seed, "steps": steps,
                "best": losses[best], "last": losses[-1], "best_at": (best + 1) / len(losses),
            }
        )  # fmt: skip
    return results, time.perf_counter() - began


def _rate(step: int, steps: int, lr: float) -> float:
    warmup = min(500, steps // 20)
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))


@torch.no_grad()
def _evaluate(models: Models, held_out_N: Tensor, K: int, batch: int) -> Tensor:
    rows = min(SCORED, len(held_out_N) - 1) // CTX
    starts = torch.arange(rows, device=held_out_N.device) * CTX
    ids = held_out_N[starts[:, None] + torch.arange(CTX + 1, device=held_out_N.device)]
    parts = [models.losses(part.expand(K, -1, -1), False) * len(part) for part in ids.split(batch)]
    return torch.stack(parts).sum(0) / rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--decays", type=float, nargs="+", default=DECAYS)
    parser.add_argument("--dropouts", type=float, nargs="+", default=DROPOUTS)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--most-steps", type=int, default=10**9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the report to FILE as a line of JSON")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="append what each model reached, a line of JSON each")
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and chosen.most_steps > 1000:
        print(
            "this takes a GPU; on a CPU a trial: --most-steps 10 --seeds 1 --decays 0.1 --dropouts 0", file=sys.stderr
        )
        return sample.NOT_HERE
    grid = list(itertools.product(chosen.decays, chosen.dropouts, range(chosen.seeds)))
    report = Report(
        name="small_corpora",
        claim=(__doc__ or "").splitlines()[0],
        columns={
            "epochs": "d",
            "decay": "g",
            "dropout": "g",
            "best": ".4f",
            "spread": ".4f",
            "at": ".0%",
            "last": ".4f",
        },
    )
    with sample.scratch() as folder:
        train_N, held_out_N = (part.to(device) for part in tokens(folder))
    print(f"{len(train_N):,} tokens, {len(held_out_N):,} held out, {len(grid)} models", file=sys.stderr, flush=True)
    for epochs in chosen.epochs:
        with torch.cuda.stream(torch.cuda.Stream()) if device.type == "cuda" else nullcontext():  # what is captured too
            results, seconds = train((train_N, held_out_N), grid, epochs, chosen.lr, chosen.batch, chosen.most_steps)
        print(f"{epochs} epochs: {results[0]['steps']:,} steps, {seconds:.0f} s", file=sys.stderr, flush=True)
        for decay, drop in itertools.product(chosen.decays, chosen.dropouts):
            own = [r for r in results if (r["weight_decay"], r["dropout"]) == (decay, drop)]
            best, last = ([r[name] for r in own] for name in ("best", "last"))
            spread = statistics.stdev(best) if len(best) > 1 else 0.0
            at = statistics.mean(r["best_at"] for r in own)
            report.row(epochs, decay, drop, statistics.mean(best), spread, at, statistics.mean(last))
        if chosen.runs:
            with chosen.runs.open("a") as file:
                file.writelines(json.dumps(result) + "\n" for result in results)
    report.note(f"{len(train_N):,} tokens to train on, {len(held_out_N):,} held out; lr {chosen.lr:g}, {device.type}.")
    print(report.markdown())
    if chosen.json:
        report.append_json(chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
