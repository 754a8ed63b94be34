"""What Muon costs beside AdamW: whole steps of both, which take turns in one process.

python bench/muon.py          # on this machine's CPU, two threads: a minute
python bench/muon.py --gpu    # on a GPU, compiled and captured: a minute, half of it compiling
"""

import argparse
import statistics
import sys
import time
from typing import Any

import sample
from report import Report

# What trains: preset, sequences, context, changes; the ratio or share to reach.
CPU_SHAPES: dict[str, tuple[str, int, int, dict[str, int]]] = {
    "llama 3M, 8×256": ("demo", 8, 256, {}),
    "`make demo`, 2M, 8×128": ("demo", 8, 128, {"vocab": 2048, "n_layers": 4}),
}
GPU_SHAPES: dict[str, tuple[str, int, int, dict[str, int]]] = {
    "llama 15M, 8×256": ("nano", 8, 256, {}),
    "llama 15M, 32×512": ("nano", 32, 512, {}),
    "llama 135M, 32×1024": ("smollm2-135m", 32, 1024, {}),
}
THREADS = 2
RATIO, SHARE = 1.10, 5.0


def turns(preset: str, batch: int, ctx: int, changes: dict[str, int], device: str, seconds: float) -> dict[str, float]:
    """Medians of both optimizers' steps in milliseconds, and of the ratios of neighbours, which share what disturbs."""
    import torch

    from linnet import models
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    if device == "cpu":
        torch.set_num_threads(THREADS)
    config = models.preset(preset, ctx=ctx, **changes)
    dice = torch.Generator().manual_seed(0)
    # Several batches: one alone would soon be known by heart.
    ids = [torch.randint(0, config.vocab, (batch, ctx + 1), generator=dice).to(device) for _ in range(8)]

    class Batch:
        def __init__(self, number: int) -> None:
            rows = ids[number % len(ids)]
            self.inputs, self.n_targets = (rows[:, :-1], rows[:, 1:], None), batch * ctx

    steps: dict[str, Any] = {}
    for optimizer in ("adamw", "muon"):
        settings = TrainSettings(batch=batch, device=device, optimizer=optimizer, muon_norm="spectral")  # type: ignore[arg-type]
        model = models.build(config, seed=0, device=device)
        hardware = choose(settings, batch * ctx, weights_of_layers(config))
        model.set_compute_dtype(hardware.dtype)
        steps[optimizer] = Step(model, settings, hardware)

    def stretch(optimizer: str, count: int) -> float:
        _wait(device)
        began = time.perf_counter()
        for number in range(count):
            steps[optimizer](Batch(number), 1e-3)
        _wait(device)
        return (time.perf_counter() - began) / count * 1e3

    for optimizer in steps:
        stretch(optimizer, 6 if device == "cuda" else 2)
    # A turn is long enough that what the other left in the caches does not matter.
    count = max(1, round(100 / stretch("adamw", 3))) if device == "cuda" else 2
    found: dict[str, list[float]] = {optimizer: [] for optimizer in steps}
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(found["muon"]) < 5:
        for optimizer, times in found.items():
            times.append(stretch(optimizer, count))
    ratios = [muon / adamw for adamw, muon in zip(found["adamw"], found["muon"], strict=True)]
    medians = {optimizer: statistics.median(times) for optimizer, times in found.items()}
    return {**medians, "ratio": statistics.median(ratios)}


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def on_gpu(seconds: float) -> Report:
    """Muon's share of a step, captured and compiled."""
    sample.needs_cuda()
    report = Report(
        name="muon_gpu",
        claim="On a GPU Muon costs under 5 % of a step more than AdamW, at 15M and 135M parameters.",
        columns={"shape": "", "AdamW ms": ".3f", "Muon ms": ".3f", "Muon's extra": "+.1%"},
    )
    for label, (preset, batch, ctx, changes) in GPU_SHAPES.items():
        options = {"preset": preset, "batch": batch, "ctx": ctx, "changes": changes}
        found = sample.play(__file__, "turns", {**options, "device": "cuda", "seconds": seconds}, None)
        extra = found["ratio"] - 1
        report.row(label, found["adamw"], found["muon"], extra)
        report.at_most(f"{label}: Muon's extra", 100 * extra, SHARE, "% of a step")
    report.note(
        "Medians of whole steps, compiled and captured in bf16; the two take turns of a tenth of a second, and the"
        " extra is the median over the turns."
    )
    return report


def main(chosen: argparse.Namespace) -> Report:
    if chosen.gpu:
        return on_gpu(chosen.seconds)
    report = Report(
        name="muon",
        claim="On a CPU with two threads a step with Muon takes at most 1.10 × as long as one with AdamW.",
        columns={"shape": "", "AdamW ms": ",.1f", "Muon ms": ",.1f", "ratio": ".3f"},
    )
    for label, (preset, batch, ctx, changes) in CPU_SHAPES.items():
        options = {"preset": preset, "batch": batch, "ctx": ctx, "changes": changes, "device": "cpu"}
        samples = sample.take(__file__, "turns", lambda given=options: {**given, "seconds": chosen.seconds})  # type: ignore[misc]
        if samples.disturbed:
            report.disturbed.append(label)
        ratio = samples.median("ratio")
        report.row(label, samples.median("adamw"), samples.median("muon"), ratio)
        report.at_most(f"{label}: Muon against AdamW", ratio, RATIO, "×")
    report.note(
        f"Medians of whole steps, {THREADS} threads; the two take turns of two steps in one process, and the ratio is"
        " the median over the turns."
    )
    return report


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="measure on this GPU")
    parser.add_argument("--seconds", type=float, default=6.0, help="of turns, for each shape (6)")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"turns": turns}, flags))
