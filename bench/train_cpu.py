"""Training on a CPU, two threads, float32: our step is 1.25 × as fast as a `transformers` eager loop, 3 × if small.

Each side has a process of its own, as its user would; they take turns, so that a busy moment hits both.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sample
from report import Report

SHAPES = {
    # name: (preset, sequences, context, steps, at least)
    "llama 3M, 8×256": ("demo", 8, 256, 15, 1.25),
    "llama 15M, 8×256": ("nano", 8, 256, 9, 1.25),
    "tiny, 1×32": ("tiny", 1, 32, 40, 3.0),
}
THREADS = 2
WARM_UP = 3
# Steps of a turn. A turn's first step finds its caches and threads as the other side left them, as none in a run does.
AT_ONCE = {"llama 3M, 8×256": 5, "llama 15M, 8×256": 2, "tiny, 1×32": 20}


def side(who: str, shape: str) -> dict[str, Any]:
    """One side: as many steps as each line that comes in says, the seconds of one as a line that goes out."""
    import torch

    torch.set_num_threads(THREADS)
    preset_name, batch, ctx, _, _ = SHAPES[shape]
    step, facts = (linnet if who == "linnet" else transformers)(preset_name, batch, ctx)
    square, best = torch.ones(1024, 1024), float("inf")
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            step()
        took = (time.perf_counter() - began) / int(line)
        began = time.perf_counter()
        square @ square
        best = min(best, time.perf_counter() - began)
        print(took, flush=True)  # the other side's turn
    return {**facts, "peak": 2 * 1024**3 / best}


def linnet(preset_name: str, batch: int, ctx: int) -> tuple[Callable[[], object], dict[str, Any]]:
    """The step that `linnet train` makes, and what it is measured by."""

    from linnet.models import build, preset
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    config = preset(preset_name, ctx=ctx)
    settings = TrainSettings(batch=batch, device="cpu", optimizer="adamw")
    hardware = choose(settings, tokens=batch * ctx, weights=weights_of_layers(config))
    model = build(config, seed=0)
    step = Step(model, settings, hardware)
    ids = tokens(config.vocab, batch, ctx)

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), batch * ctx

    facts = {
        "flops": model.flops_per_token(ctx) * batch * ctx,
        "parameters": model.n_params(),
        "why": hardware.why,
    }
    return lambda: step(Batch(), 1e-3), facts


def transformers(preset_name: str, batch: int, ctx: int) -> tuple[Callable[[], object], dict[str, Any]]:
    """The loop its manual shows, with the fused AdamW."""
    import torch

    from linnet.models import preset
    from peer_llama import peer_llama

    config = preset(preset_name, ctx=ctx)
    peer = peer_llama(config, ctx, use_cache=False)
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = tokens(config.vocab, batch, ctx)[:, :-1]

    def step() -> None:
        peer(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, {}


def tokens(vocab: int, batch: int, ctx: int) -> Any:
    import torch

    return torch.randint(0, vocab, (batch, ctx + 1), generator=torch.Generator().manual_seed(0))


def turns(shape: str, steps: int) -> dict[str, Any]:
    """The seconds of each side's steps, and what ours told of itself."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides, seconds = {}, {}
        for who in ("linnet", "transformers"):
            command = sample.command(__file__, "side", {"who": who, "shape": shape}, folder / who)
            environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            sides[who] = stack.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes))  # type: ignore[call-overload]
            seconds[who] = []
        for turn in range(WARM_UP + steps):
            for who, process in sides.items():
                process.stdin.write(f"{AT_ONCE[shape]}\n")
                process.stdin.flush()
                took = float(process.stdout.readline())
                if turn >= WARM_UP:
                    seconds[who].append(took)
        for process in sides.values():
            process.stdin.close()
            process.wait()
        return {**seconds, **json.loads((folder / "linnet").read_text())}


def main() -> Report:
    report = Report(
        name="train_cpu",
        claim=__doc__ or "",
        columns={
            "shape": "",
            "parameters": ",",
            "linnet tok/s": ",.0f",
            "transformers tok/s": ",.0f",
            "ratio": ".2f",
            "share of sgemm": ".0%",
        },
    )
    for shape, (_, batch, ctx, steps, least) in SHAPES.items():
        found = turns(shape, steps)
        ours, theirs = (statistics.median(found[name]) for name in ("linnet", "transformers"))
        share = found["flops"] / ours / found["peak"]
        report.row(shape, found["parameters"], batch * ctx / ours, batch * ctx / theirs, theirs / ours, share)
        report.at_least(f"{shape}, against transformers eager", theirs / ours, least, "×")
        report.note(f"{shape}: {found['why']}.")
    report.note(
        f"Medians of whole steps (forward, backward, clipping, AdamW), {THREADS} threads each. "
        "sgemm: a product of 1024 × 1024 matrices in our process. The sides take turns of "
        f"{', '.join(map(str, AT_ONCE.values()))} steps; both start at once, so the peak that ours measures is too low."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"side": side}))
