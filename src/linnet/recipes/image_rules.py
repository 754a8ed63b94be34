"""What images decide where no flag does: batch, steps, rate, running average of the weights, and variations.

Pure functions of how many images there are, their size and channels, and how often each will be shown. Those for grey
images are what MNIST and the digits have taught (docs/log.md); those for photographs are the usual ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_BATCHES, _IMAGES_OF_A_BATCH = (64, 512), 100  # the least and the most of a step; images of the set for each of them
_EPOCHS = {True: 50.0, False: 26.7}  # on a GPU, and on a CPU
_STEPS = {True: (600, 6000), False: (600, 3000)}
_LEARNING_RATE = 3e-3
_EMA_SPANS = 6.0  # of a run, of which the average looks back on one
_FEW_IMAGES = 10_000  # below which images are blended too
_MANY_EPOCHS = 20.0  # from which on photographs are varied strongly
_TINY_PIXELS = 16  # images of fewer pixels a side lose what tells them apart when they are slanted
_PHOTO_PIXELS = 64  # larger images are cut out of, not moved
RULED_VARIATIONS = ("shift", "rotate", "zoom", "shear", "crop", "flip", "rand_augment", "mixup", "cutmix")
RULED = ("steps", "lr", "ema", *RULED_VARIATIONS)


@dataclass(frozen=True)
class ImageFacts:
    """A set of images: how many there are to train on, pixels a side, channels, and whether mirrored ones look alike.

    `flip_keeps_class`: None where the images do not tell.
    """

    images: int
    size: int
    channels: int
    flip_keeps_class: bool | None = None

    @property
    def may_flip(self) -> bool:
        """Is a mirrored image one of its class? Where the images do not tell, colour ones are taken for photographs."""
        return self.channels == 3 if self.flip_keeps_class is None else self.flip_keeps_class

    def __str__(self) -> str:
        colours = "grey" if self.channels == 1 else "colour"
        return f"{self.images:,} {colours} images of {self.size} px"


def default_batch(images: int, on_gpu: bool) -> int:
    """Images of a step: a hundredth of the set on a GPU, as a power of two; a CPU is no quicker with more than 64."""
    least, most = _BATCHES
    if not on_gpu:
        return least
    return max(least, min(most, 1 << max(0, round(images / _IMAGES_OF_A_BATCH).bit_length() - 1)))


def default_steps(images: int, batch: int, on_gpu: bool) -> int:
    """Steps that show each image some fifty times on a GPU, half as often on a CPU; fewer of very many images."""
    least, most = _STEPS[on_gpu]
    return max(least, min(most, round(_EPOCHS[on_gpu] * images / batch)))


def default_ema(steps: int) -> float:
    """How much of itself the average keeps at a step: it looks back on the last sixth of the run."""
    return round(max(0.9, min(0.9999, 1 - _EMA_SPANS / max(1, steps))), 4)


def default_variations(facts: ImageFacts, epochs: float) -> dict[str, float]:
    """How images are varied: the more, the more often each is shown. What is not named is not done."""
    moved = {"shift": 0.1, "zoom": 0.1}
    if facts.channels == 1:
        is_tiny = facts.size < _TINY_PIXELS
        varied = {**moved, "rotate": 10.0} if is_tiny else {**moved, "rotate": 15.0, "shear": 0.1}
        if facts.images < _FEW_IMAGES:
            varied["mixup"] = 0.3
    else:
        varied = {"crop": 0.3} if facts.size > _PHOTO_PIXELS else {**moved}
        if epochs >= _MANY_EPOCHS:
            varied |= {"rand_augment": 1, "cutmix": 0.5}
    if facts.may_flip:
        varied["flip"] = 0.5
    return {name: varied.get(name, 0.0) for name in RULED_VARIATIONS} | {"rand_augment": varied.get("rand_augment", 0)}


def decide(facts: ImageFacts, batch: int, steps: int | None, on_gpu: bool) -> dict[str, Any]:
    """Every value by rule. `steps`: those that were asked for; None: by rule too. `batch`: images of a step."""
    planned = default_steps(facts.images, batch, on_gpu) if steps is None else steps
    varied = default_variations(facts, planned * batch / max(1, facts.images))
    return {"steps": planned, "lr": _LEARNING_RATE, "ema": default_ema(planned), **varied}


def fitting_patches(size: int) -> tuple[int, int]:
    """Size and patch for images that no preset has: five to ten patches a side; scaled a little where none divides."""
    patches = [patch for patch in range(1, size + 1) if size % patch == 0 and 5 <= size // patch <= 10]
    if patches:
        return size, min(patches, key=lambda patch: (abs(size // patch - 8), -patch))
    patch = max(1, round(size / 8))
    return round(size / patch) * patch, patch
