"""`linnet classify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, ModelName, RunsFolder, find_model
from linnet.cli.printing import paint, print_json
from linnet.cli.streams import complain
from linnet.errors import LinnetError, UsageError

_BAR = 12  # characters of certainty
_LABEL = 100  # characters of a class's name


def classify(
    model: ModelName,
    /,
    *files: Annotated[Path, Parameter(help="Image files.")],
    top: int = 3,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """What a trained vision transformer sees in images: the likeliest classes, with their probabilities.

    A file that cannot be read as an image is told of, the others are classified all the same, and the exit code is 1.

    Args:
        top: How many classes to name (3).
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.data.image_files import read_image
    from linnet.infer import classify
    from linnet.models import load, pick_device

    if not files:
        raise UsageError("classify needs an image: linnet classify MODEL IMAGE…")
    if top < 1:
        raise UsageError(f"--top must be 1 or more, found {top}")
    path = find_model(model, runs)
    loaded = load(path, pick_device(device), task="images")
    results: list[dict[str, Any]] = []
    for file in files:
        try:
            _refuse_what_is_no_file(file)
            picture = read_image(file, loaded.config.image_size, loaded.config.num_channels)
        except LinnetError as error:
            results.append({"file": str(file), "error": str(error)})
            if not json:
                complain(words.flags(str(error)))
            continue
        guesses = [asdict(guess) for guess in classify(loaded, np.ascontiguousarray(picture[None]), top)[0]]
        results.append({"file": str(file), "guesses": guesses})
        if not json:
            _print(file, guesses)
    if json:
        print_json({"model": str(path), "images": results})
    return int(any("error" in result for result in results))


def _refuse_what_is_no_file(path: Path) -> None:
    """A pipe or a device would be waited for."""
    if path.is_dir():
        raise LinnetError(f"{path}: this is a folder: name the images in it")
    if path.exists() and not path.is_file():
        raise LinnetError(f"{path}: not an image that can be read: it is neither file nor folder")


def _print(file: Path, guesses: list[dict[str, Any]]) -> None:
    print(paint(words.plain(str(file)), "bold"))
    labels = [words.plain(words.shorten(guess["label"], _LABEL)) for guess in guesses]
    wide = max(map(len, labels))
    for label, guess in zip(labels, guesses, strict=True):
        full = round(_BAR * guess["probability"])
        bar = "█" * full + "░" * (_BAR - full)
        print(f"  {label:<{wide}}  {paint(bar, 'cyan')} {guess['probability']:7.2%}")
