"""What a vision transformer sees in images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from linnet.errors import LinnetError
from linnet.models import ViT


@dataclass(frozen=True)
class Guess:
    """A class and how probable the model finds it."""

    label: str
    probability: float


@torch.inference_mode()
def classify(model: ViT, images_BCHW: NDArray[np.uint8], top: int = 3) -> list[list[Guess]]:
    """The likeliest classes of each image, the likeliest first."""
    names = model.config.labels or tuple(map(str, range(model.config.num_classes)))
    probability_BK = model(torch.from_numpy(images_BCHW).to(model.device)).softmax(1)
    if not probability_BK.isfinite().all():
        raise LinnetError(
            "the model's numbers are not finite, so it sees nothing: its weights may have diverged in training; try an"
            " earlier checkpoint"
        )
    top_BN = probability_BK.topk(min(top, len(names)), dim=1)
    return [
        [Guess(names[index], value) for index, value in zip(indices, values, strict=True)]
        for indices, values in zip(top_BN.indices.tolist(), top_BN.values.tolist(), strict=True)
    ]
