"""`linnet classify`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, ModelName, RunsFolder, find_model, print_choice
from linnet.cli.printing import paint, print_json, width
from linnet.cli.streams import complain
from linnet.data.errors import DataError, left_out_sentence, printable
from linnet.errors import LinnetError, UsageError

if TYPE_CHECKING:
    from linnet.models import ViT

_AT_ONCE = 32  # images that are read and classified together
_BAR = 12  # characters of certainty
_LABEL = 100  # characters of a class's name
_TOLD = 10  # images that could not be read, each with a line of its own; the rest is counted
_CLASSES = 8  # that the sum of a folder names


def classify(
    model: ModelName,
    /,
    *images: Annotated[Path, Parameter(help="Image files, and folders: all images below them.")],
    top: int = 3,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """What a trained vision transformer sees in images: the likeliest classes, with their probabilities.

    An image that cannot be read is told of, the others are classified all the same, and the exit code is 1. What lies
    in a folder and is no image by its name is left out, and counted.

    Args:
        top: How many classes to name (3).
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.models import load, pick_device

    if not images:
        raise UsageError("classify needs an image: linnet classify MODEL IMAGE…, or a folder of images")
    if top < 1:
        raise UsageError(f"--top must be 1 or more, found {top}")
    path = find_model(model, runs)
    loaded = load(path, pick_device(device), task="images")
    files, left_out = _listed(images)
    screen = _Screen(folders=any(image.is_dir() for image in images))
    results: list[dict[str, Any]] = []
    for result in _classified(loaded, files, top):
        if json:
            results.append(result)
        else:
            screen.take(result)
    if json:
        print_json({"model": str(path), "images": results, "left_out": [printable(file) for file in left_out]})
        return int(any("error" in result for result in results))
    screen.finish(left_out)
    print_choice(model, path)
    return int(screen.failed > 0)


def _listed(images: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The files to look at, in the order in which they were named, those of a folder sorted; and what was left out."""
    from linnet.data.image_files import find_images

    files: list[Path] = []
    left_out: list[Path] = []
    for image in images:
        if not image.is_dir():
            files.append(image)
            continue
        below, others = find_images(image)
        if not below:
            skipped = f" (files of other kinds: {len(others):,})" if others else ""
            raise LinnetError(f"{image}: there are no images in this folder{skipped}")
        files += below
        left_out += others
    return files, left_out


def _classified(model: ViT, files: Sequence[Path], top: int) -> Iterator[dict[str, Any]]:
    """Each file with its guesses, or with what is wrong with it, in order and as they are ready."""
    from linnet.data.image_files import read_images
    from linnet.infer import classify

    for start in range(0, len(files), _AT_ONCE):
        part = files[start : start + _AT_ONCE]
        pixels = read_images(part, model.config.image_size, model.config.num_channels)
        sound = [image for image in pixels if not isinstance(image, DataError)]
        guesses = iter(classify(model, np.stack(sound), top) if sound else ())
        for file, image in zip(part, pixels, strict=True):
            if isinstance(image, DataError):
                yield {"file": printable(file), "error": str(image)}
            else:
                yield {"file": printable(file), "guesses": [asdict(guess) for guess in next(guesses)]}


class _Screen:
    """Results as they come: a few lines for an image that was named, one for each of a folder, and then their sum."""

    def __init__(self, folders: bool) -> None:
        self._folders = folders
        self._counts: Counter[str] = Counter()
        self.failed = 0

    def take(self, result: dict[str, Any]) -> None:
        if "error" in result:
            self.failed += 1
            if self.failed <= _TOLD:
                complain(words.flags(result["error"]))
            return
        labels = [words.plain(words.shorten(guess["label"], _LABEL)) for guess in result["guesses"]]
        self._counts[labels[0]] += 1
        chances = [guess["probability"] for guess in result["guesses"]]
        (_print_line if self._folders else _print_bars)(words.plain(result["file"]), labels, chances)

    def finish(self, left_out: Sequence[Path]) -> None:
        if self.failed > _TOLD:
            complain(f"and {self.failed - _TOLD:,} more images could not be read")
        if self._folders:
            count = self._counts.total()
            named = [f"{label} {number:,}" for label, number in self._counts.most_common(_CLASSES)]
            further = f" · {len(self._counts) - _CLASSES:,} more classes" if len(self._counts) > _CLASSES else ""
            print(f"{words.counted(count, 'image')}: {' · '.join(named)}{further}")
        if left_out:
            print(paint(left_out_sentence([printable(file) for file in left_out]), "dim"))


def _print_line(file: str, labels: Sequence[str], chances: Sequence[float]) -> None:
    guesses = "  ".join(f"{label} {chance:.1%}" for label, chance in zip(labels, chances, strict=True))
    print(words.shorten(f"{file}  {guesses}", width()))


def _print_bars(file: str, labels: Sequence[str], chances: Sequence[float]) -> None:
    print(paint(file, "bold"))
    wide = max(map(len, labels))
    for label, chance in zip(labels, chances, strict=True):
        full = round(_BAR * chance)
        bar = "█" * full + "░" * (_BAR - full)
        print(f"  {label:<{wide}}  {paint(bar, 'cyan')} {chance:7.2%}")
