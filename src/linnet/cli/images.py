"""`linnet eval` of a vision transformer."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.board import words
from linnet.cli.printing import paint, print_facts, print_json, print_table
from linnet.data.errors import left_out_sentence
from linnet.files import step_of
from linnet.runs.run import add_evaluation

if TYPE_CHECKING:
    import torch

    from linnet.runs import Run

_LABEL = 100  # characters of a class's name
_WORST = 20  # classes that an evaluation shows


def eval_images(
    path: Path,
    run: Run | None,
    source: str | None,
    all: bool,
    device: torch.device,
    json: bool,
    record: str | None = None,
) -> int:
    """Score a model on a RUN's own held-out images, or on those of `source`."""
    from linnet.analysis.checkpoint import Checkpoint
    from linnet.analysis.held_out import probe_images
    from linnet.cli.progress import preparing
    from linnet.models import load
    from linnet.train.images import evaluate_images

    checkpoint = Checkpoint(path, run, step_of(path))
    model = load(path, device, task="images")
    show_progress = preparing if sys.stdout.isatty() and not json else None
    scored, wanted, skipped = probe_images(checkpoint, model.config, images=source, all=all, progress=show_progress)
    began = time.perf_counter()
    evaluated = evaluate_images(model, scored)
    labels = model.config.labels or tuple(map(str, range(model.config.num_classes)))
    result: dict[str, Any] = {
        "model": str(path),
        "device": str(device),
        "images": wanted,
        "split": "all" if all else "held_out",
        "samples": evaluated.samples,
        **evaluated.figures,
        "seconds": time.perf_counter() - began,
        "per_class": evaluated.per_class(labels),
        "labels": list(labels),
        "confusion": evaluated.confusion_KK.tolist(),
        "skipped": list(skipped),
    }
    if json:
        print_json(result)
    else:
        _print_evaluation(result)
    if record is not None and run is not None:
        figures = {"samples": evaluated.samples, **evaluated.figures, "images": wanted, "split": result["split"]}
        add_evaluation(run, record, step_of(path), figures)
    return 0


def _print_evaluation(result: dict[str, Any]) -> None:
    print(paint(words.plain(result["model"]), "bold"))
    part = "all images" if result["split"] == "all" else "held-out images"
    print_facts(
        {
            "images": f"{result['images']}, {part}: {result['samples']:,}",
            "accuracy": f"{result['accuracy']:.2%}",
            "top 5": f"{result['top5']:.2%}" if "top5" in result else "",
            "loss": f"{result['loss']:.5g} nats",
            "took": words.duration(result["seconds"]),
            "files": left_out_sentence(result["skipped"]),
        }
    )
    worst = sorted(result["per_class"].items(), key=lambda pair: pair[1])[:_WORST]
    rows = [(words.shorten(name, _LABEL), f"{value:.2%}", _confused_with(result, name)) for name, value in worst]
    print_table(("class", "right", "taken for"), rows, right=(1,))


def _confused_with(result: dict[str, Any], name: str) -> str:
    """The three classes that a class is taken for most often."""
    labels = result["labels"]
    row = result["confusion"][labels.index(name)]
    wrong = [(count, labels[k]) for k, count in enumerate(row) if count and labels[k] != name]
    return ", ".join(f"{words.shorten(label, _LABEL)} ({count})" for count, label in sorted(wrong, reverse=True)[:3])
