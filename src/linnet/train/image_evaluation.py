"""How well a classifier does on images it was not trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from linnet.data.image_batches import in_order
from linnet.data.images import ImageSet
from linnet.models import ViT

_AT_ONCE = {"cpu": 256}  # images that pass through the model together; elsewhere 1,024
_SHOWN = 64


@dataclass(frozen=True)
class Wrong:
    """An image that was taken for something else: its place in the set, its class, the guess and how sure it was."""

    place: int
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
    wrong: tuple[Wrong, ...]

    @property
    def figures(self) -> dict[str, float]:
        """Each figure by its name; of five classes or fewer, one of five guesses is always right."""
        found = {"loss": self.loss, "accuracy": self.accuracy}
        return found if len(self.confusion_KK) <= 5 else {**found, "top5": self.top5}

    def per_class(self, labels: tuple[str, ...]) -> dict[str, float]:
        """The accuracy of every class that was scored."""
        there = self.confusion_KK.sum(1)
        right = np.diagonal(self.confusion_KK)
        return {name: float(right[k] / there[k]) for k, name in enumerate(labels) if there[k]}


@torch.no_grad()
def evaluate_images(
    model: ViT, images: ImageSet, *, most: int | None = None, told: Callable[[int, int], None] | None = None
) -> ImageEvaluation:
    """Score the images, or the first `most` of them; `told(done, total)` of it. The device is waited for once."""
    classes, device = model.config.num_classes, model.device
    scored = images if most is None or most >= len(images) else images.take(np.arange(most))
    total, in_five = torch.zeros((), device=device), torch.zeros((), device=device)
    guesses, sureness = [], []
    done = 0
    for part in in_order(scored, _AT_ONCE.get(device.type, 1024), device):
        logits_BK = model(part.images_BCHW)
        total += F.cross_entropy(logits_BK, part.targets, reduction="sum")
        five_B5 = logits_BK.topk(min(5, classes), dim=1).indices
        in_five += (five_B5 == part.targets[:, None]).sum()
        probability_B, guess_B = logits_BK.softmax(1).max(1)
        guesses.append(guess_B)
        sureness.append(probability_B)
        done += len(guess_B)
        if told is not None:
            told(done, len(scored))
    guess_N = torch.cat(guesses).cpu().numpy()
    sure_N = torch.cat(sureness).float().cpu().numpy()
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
        wrong=tuple(Wrong(int(i), int(label_N[i]), int(guess_N[i]), float(sure_N[i])) for i in surest),
    )
