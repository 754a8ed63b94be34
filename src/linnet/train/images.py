"""A classifier while it trains: its accuracy on held-out images, and pictures of what it takes for what."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from linnet.data.image_batches import in_order
from linnet.data.images import ImageSet
from linnet.models import ViT
from linnet.runs.media import png

CONFUSION, WRONG = "confusion.svg", "wrong.svg"
_AT_ONCE = {"cpu": 256}  # images that pass through the model together; elsewhere 1,024
_SHOWN = 64  # wrong guesses
_LEARNT = 0.25  # of what the most frequent class alone leaves wrong, the least share that a model is right in
_MOST_CLASSES = 40  # of more, those that are confused the most
_MOST_COUNTED = 100  # classes whose counts go into the stream: a line of 30 kB
_CELL, _TILE, _LINE, _ACROSS = 34, 72, 16, 8
_GREEN, _RED = (46, 125, 80), (200, 60, 40)
_STYLE = (
    "<style>text{font:11px system-ui,sans-serif;fill:#222}.t{font-size:13px}.n{text-anchor:middle}.e{text-anchor:end}"
    "rect.page{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}rect.page{fill:#16181c}.k{fill:#111}}</style>"
)


@dataclass(frozen=True)
class WrongGuess:
    """An image that was taken for something else: its index in the set, its class, the guess and how sure it was."""

    index: int
    label: int
    guess: int
    probability: float


@dataclass(frozen=True)
class ImageEvaluation:
    """Mean loss in nats, how many were right (the first guess, or one of five), and what was taken for what.

    `confusion_KK[label, guess]` counts images; `wrong` are the surest of the wrong guesses.
    """

    loss: float
    accuracy: float
    top5: float
    samples: int
    confusion_KK: NDArray[np.int64]
    wrong: tuple[WrongGuess, ...]
    part_loss: float | None = None  # of the images that the evaluations before scored, where this one scored more

    @property
    def compared_loss(self) -> float:
        """The loss by which the evaluations of a run are compared: always of the same images."""
        return self.loss if self.part_loss is None else self.part_loss

    @property
    def figures(self) -> dict[str, float]:
        """Each metric by its name; of five classes or fewer, one of five guesses is always right."""
        figures = {"loss": self.loss, "accuracy": self.accuracy}
        return figures if len(self.confusion_KK) <= 5 else {**figures, "top5": self.top5}

    @property
    def hardly_better(self) -> float | None:
        """How many would be right by naming the most frequent class for all, where the model is hardly better."""
        baseline = float(self.confusion_KK.sum(1).max()) / self.samples
        return baseline if self.accuracy < baseline + _LEARNT * (1 - baseline) else None

    def per_class(self, labels: tuple[str, ...]) -> dict[str, float]:
        """The accuracy of every class that was scored."""
        scored_K, right_K = self.confusion_KK.sum(1), np.diagonal(self.confusion_KK)
        return {name: float(right_K[k] / scored_K[k]) for k, name in enumerate(labels) if scored_K[k]}

    def confusion(self, labels: tuple[str, ...]) -> dict[str, list[Any]] | None:
        """Labels and counts as they go into the run's stream; None of so many classes that its lines would be long."""
        if len(labels) > _MOST_COUNTED:
            return None
        return {"labels": list(labels), "counts": self.confusion_KK.tolist()}


@torch.no_grad()
def evaluate_images(model: ViT, images: ImageSet, *, most: int | None = None) -> ImageEvaluation:
    """Score the images, or the first `most` of them. The device is waited for once."""
    classes, device = model.config.num_classes, model.device
    scored = images if most is None or most >= len(images) else images.take(np.arange(most))
    total, in_five = torch.zeros((), device=device), torch.zeros((), device=device)
    guesses, probabilities = [], []
    for part in in_order(scored, _AT_ONCE.get(device.type, 1024), device):
        logits_BK = model(part.images_BCHW)
        total += F.cross_entropy(logits_BK, part.targets, reduction="sum")
        five_B5 = logits_BK.topk(min(5, classes), dim=1).indices
        in_five += (five_B5 == part.targets[:, None]).sum()
        probability_B, guess_B = logits_BK.softmax(1).max(1)
        guesses.append(guess_B)
        probabilities.append(probability_B)
    guess_N = torch.cat(guesses).cpu().numpy()
    sure_N = torch.cat(probabilities).float().cpu().numpy()
    label_N = scored.labels_N
    confusion_KK = np.bincount(label_N * classes + guess_N, minlength=classes**2).reshape(classes, classes)
    missed = np.flatnonzero(guess_N != label_N)
    surest = missed[np.argsort(-sure_N[missed], kind="stable")][:_SHOWN]
    return ImageEvaluation(
        loss=float(total) / len(scored),
        accuracy=1 - len(missed) / len(scored),
        top5=float(in_five) / len(scored),
        samples=len(scored),
        confusion_KK=confusion_KK,
        wrong=tuple(WrongGuess(int(i), int(label_N[i]), int(guess_N[i]), float(sure_N[i])) for i in surest),
    )


def draw_confusion(path: Path, evaluation: ImageEvaluation, labels: tuple[str, ...]) -> None:
    """The confusion matrix as SVG: a row for each class, a column for each guess; what is wrong is red."""
    counts_KK = evaluation.confusion_KK
    wrong_K = counts_KK.sum(0) + counts_KK.sum(1) - 2 * np.diagonal(counts_KK)
    shown = np.sort(np.argsort(-wrong_K, kind="stable")[:_MOST_CLASSES])
    names = [_short(labels[k]) for k in shown]
    left = 24 + 7 * max(map(len, names))
    size, top = _CELL * len(shown), 40 + 7 * max(map(len, names))
    title = f"{evaluation.accuracy:.2%} of {evaluation.samples:,} images right"
    if len(shown) < len(labels):
        title += f"; the {len(shown)} classes that are confused the most"
    parts = [f'<text class="t" x="8" y="20">{title}; rows: what it is, columns: what it was taken for</text>']
    for row, name in enumerate(names):
        x, y = left + _CELL * (row + 0.5), top + _CELL * (row + 0.5) + 4
        parts.append(f'<text transform="translate({x:.0f} {top - 6}) rotate(-90)">{escape(name)}</text>')
        parts.append(f'<text class="e" x="{left - 6}" y="{y:.0f}">{escape(name)}</text>')
    for i, label in enumerate(shown):
        row_total = max(int(counts_KK[label].sum()), 1)
        for j, guess in enumerate(shown):
            count = int(counts_KK[label, guess])
            if not count:
                continue
            share = count / row_total
            colour = _shade(_GREEN, share) if i == j else _shade(_RED, min(1.0, 0.25 + 3 * share))
            x, y = left + _CELL * j, top + _CELL * i
            parts.append(f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" fill="{colour}"/>')
            ink = "#fff" if i == j and share > 0.5 else "#111"
            middle = f'x="{x + _CELL // 2}" y="{y + _CELL // 2 + 4}"'
            parts.append(f'<text class="n" style="fill:{ink}" {middle}>{count}</text>')
    _write(path, max(left + size + 12, 8 * len(title) + 320), top + size + 12, parts)


def draw_wrong(path: Path, evaluation: ImageEvaluation, images: ImageSet, labels: tuple[str, ...]) -> None:
    """The surest of the wrong guesses as SVG: the image, its class, what it was taken for and with what probability."""
    wrong, samples = evaluation.wrong, evaluation.samples
    rows = max(1, -(-len(wrong) // _ACROSS))
    wide, high = _TILE + 24, _TILE + 2 * _LINE + 12
    title = f"{round((1 - evaluation.accuracy) * samples):,} of {samples:,} images were taken for something else"
    parts = [f'<text class="t" x="8" y="20">{title}{"; the surest of them" if wrong else ""}</text>']
    for number, image in enumerate(wrong):
        row, column = divmod(number, _ACROSS)
        x, y = 8 + column * wide, 32 + row * high
        tile = base64.b64encode(png_bytes(images.images_NCHW[image.index])).decode()
        parts.append(
            f'<image x="{x}" y="{y}" width="{_TILE}" height="{_TILE}" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{tile}"/>'
        )
        parts.append(f'<text x="{x}" y="{y + _TILE + 13}">{escape(_short(labels[image.label], 10))}</text>')
        guess = f"→ {_short(labels[image.guess], 8)} {image.probability:.0%}"
        parts.append(f'<text x="{x}" y="{y + _TILE + 13 + _LINE}">{escape(guess)}</text>')
    _write(path, max(8 + _ACROSS * wide, 8 * len(title) + 180), 40 + rows * high, parts)


def png_bytes(image_CHW: NDArray[np.uint8]) -> bytes:
    """An image as a PNG file: grey or RGB, eight bits."""
    return png.encode(np.moveaxis(image_CHW, 0, -1), level=9, filtered=False)


def _write(path: Path, wide: int, high: int, parts: list[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
    page = f'<rect class="page" width="{wide}" height="{high}"/>'
    path.write_text("\n".join([head, _STYLE, page, *parts, "</svg>", ""]), encoding="utf-8")


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _shade(colour: tuple[int, int, int], share: float) -> str:
    """From a pale tint of a colour to the colour itself."""
    return "#" + "".join(f"{round(238 + (part - 238) * share):02x}" for part in colour)
