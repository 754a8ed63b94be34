"""The plan before step one against what happened: memory within 15 %, time within 20 %, for every shape measured here.

python bench/plan.py            # the shapes of train_cpu, vit and warm_start on this CPU: six minutes
python bench/plan.py --gpu      # those of train_gpu, train_gpu_vit and vit_gpu: under four minutes on an H200

A shape is trained as `linnet train` does it, in a process of its own. Memory: the process's peak (CPU), or the peak of
torch's allocator (CUDA). Time: what was expected after the first seconds, against the end.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import sample
from report import Report

MEMORY, TIME = 15, 20  # per cent that a plan may be off

# Each shape names its optimizer: a row is of that one, whatever the default has become.
_ADAMW: dict[str, Any] = {"optimizer": "adamw", "lr": 1e-3}
_MUON: dict[str, Any] = {"optimizer": "muon"}
# That of bench/warm_start.py: most of it is 49,152 rows of a vocabulary.
_SMALL_LLAMA = {"d_model": 256, "n_layers": 6, "n_heads": 4, "n_kv": 2, "d_ff": 704, "batch": 4, "ctx": 256}
_FROM_DONOR = {"recipe": "warm-start", "donor": "SmolLM2", **_SMALL_LLAMA, **_MUON}
_IMAGES = {"recipe": "vit-tiny", "images": "made"}
_SMALL_IMAGES = {**_IMAGES, "preset": "vit-tiny-28"}
# Long enough that most of each comes after its time is expected, which five steps and three seconds are waited for.
CPU: dict[str, dict[str, Any]] = {
    "llama 3M, 8×256": {"preset": "demo", **_MUON, "batch": 8, "ctx": 256, "steps": 60},
    "llama 15M, 8×256": {"preset": "nano", **_MUON, "batch": 8, "ctx": 256, "steps": 24},
    "tiny, 1×32": {"preset": "tiny", **_MUON, "batch": 1, "ctx": 32, "steps": 6000},
    "GPT-2 3M, 8×256": {"preset": "demo", "arch": "gpt2", **_MUON, "batch": 8, "ctx": 256, "steps": 60},
    "ViT, digits": {"recipe": "vit-tiny", **_MUON, "steps": 300},
    "SmolLM2's vocabulary, from scratch, 4×256": {"tokenizer": "SmolLM2", **_SMALL_LLAMA, **_MUON, "steps": 20},
    "warm start, a frozen table behind a lens": {**_FROM_DONOR, "init": "pca", "steps": 20},
    "warm start, layers of the donor": {**_FROM_DONOR, "init": "select", "steps": 20},
    "ViT 0.7M, 28 px, 64 images": {
        **_SMALL_IMAGES,
        **_MUON,
        "d_model": 96,
        "n_layers": 6,
        "d_ff": 384,
        "patch_size": 7,
        "batch": 64,
        "mixup": 0.0,
        "steps": 400,
    },
}
# One vocabulary for the large ones, so that the corpus is prepared once.
_LARGE_LLAMA = {"preset": "smollm2-135m", "vocab": 49152}
GPU: dict[str, dict[str, Any]] = {
    "llama 135M, 32×1024": {**_LARGE_LLAMA, **_ADAMW, "batch": 32, "ctx": 1024, "steps": 120},
    "GPT-2 124M, 64×1024": {"preset": "gpt2-124m", "vocab": 49152, **_ADAMW, "batch": 64, "ctx": 1024, "steps": 80},
    "llama 135M, small steps, 1×128": {**_LARGE_LLAMA, **_ADAMW, "batch": 1, "ctx": 128, "steps": 1500},
    "llama 15M, 8×256": {"preset": "nano", **_ADAMW, "batch": 8, "ctx": 256, "steps": 4000},
    "vit-tiny, 224 px, 512 images": {**_IMAGES, "preset": "vit-tiny", "optimizer": "adamw", "batch": 512, "steps": 200},
    "vit-tiny-28, 1,024 images": {**_SMALL_IMAGES, "optimizer": "adamw", "batch": 1024, "steps": 600},
    "vit-tiny-28, 512 images, Muon": {**_SMALL_IMAGES, **_MUON, "batch": 512, "steps": 600},
}


def train(flags: dict[str, Any], folder: str) -> dict[str, Any]:
    """Train a shape: what was planned, and what was."""
    import time

    import torch

    import linnet
    import machine
    import warm_start
    from linnet.train.plan import Plan

    told: dict[str, Any] = {}

    class Told(linnet.Callback):
        def on_plan(self, plan: Plan) -> None:
            told["began"] = time.perf_counter()
            told["memory"] = plan.memory
            told["present"] = machine.memory_now()

        def on_expected_time(self, plan: Plan) -> None:
            told["seconds"], told["after"] = plan.seconds, time.perf_counter() - told["began"]

        def on_end(self, reason: str) -> None:
            told["took"], told["reason"] = time.perf_counter() - told["began"], reason

    flags = {**flags}
    if flags.get("images") == "made":
        flags["images"] = made_images(Path(folder), 224 if flags["preset"] == "vit-tiny" else 28)
    for flag in ("donor", "tokenizer"):
        if flags.get(flag) == "SmolLM2":
            flags[flag] = str(warm_start.smollm2())
    run = linnet.train(flags.pop("recipe", "from-scratch"), **flags, runs=Path(folder) / "runs", callbacks=[Told()])
    assert run.status == "completed", run.status
    assert "seconds" in told, "the run ended before its time was expected: give it more steps"
    cuda = torch.cuda.is_available()
    peak = torch.cuda.max_memory_allocated() if cuda else machine.memory_peak()
    return {**told, "peak": peak, "disk": run.manifest.plan["disk"], "wrote": size_of(run.path)}


def made_images(folder: Path, size: int) -> str:
    """A set of random images, in 10 classes."""
    import numpy as np

    made, count = np.random.default_rng(0), 4096
    images = made.integers(0, 256, (count, size, size, 3 if size > 64 else 1), np.uint8)
    labels = made.integers(0, 10, count)
    path = folder / "images.npz"
    tested = count // 8
    np.savez(path, x_train=images[tested:], y_train=labels[tested:], x_test=images[:tested], y_test=labels[:tested])
    return str(path)


def size_of(folder: Path) -> int:
    """Bytes of a run's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def main(chosen: argparse.Namespace) -> Report:
    if chosen.gpu:
        sample.needs_cuda()
    report = Report(
        name="plan_gpu" if chosen.gpu else "plan",
        claim=(__doc__ or "").splitlines()[0],
        columns={
            "shape": "", "planned MB": ",.0f", "peak MB": ",.0f", "off": "+.0%", "expected s": ".1f", "took s": ".1f",
            "off by": "+.0%", "disk planned MB": ",.1f", "written MB": ",.1f",
        },
    )  # fmt: skip
    for shape, flags in (GPU if chosen.gpu else CPU).items():
        if chosen.only and shape not in chosen.only:
            continue
        with sample.scratch() as folder:
            each = sample.play(__file__, "train", {"flags": flags, "folder": str(folder)}, None)
        memory, time = each["memory"] / each["peak"] - 1, each["seconds"] / each["took"] - 1
        report.row(
            shape, each["memory"] / 1e6, each["peak"] / 1e6, memory, each["seconds"], each["took"], time,
            each["disk"] / 1e6, each["wrote"] / 1e6,
        )  # fmt: skip
        report.at_most(f"{shape}: memory", 100 * abs(memory), MEMORY, "% off")
        report.at_most(f"{shape}: time", 100 * abs(time), TIME, "% off")
        if not chosen.gpu:
            grew = each["memory"] - each["present"]
            really = each["peak"] - each["present"]
            report.note(
                f"{shape}: of that the growth since the plan, {grew / 1e6:.0f} MB planned, {really / 1e6:.0f} MB."
            )
    return report


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="the shapes of a GPU")
    parser.add_argument("--only", nargs="+", default=[], metavar="SHAPE", help="these shapes")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"train": train}, flags))
