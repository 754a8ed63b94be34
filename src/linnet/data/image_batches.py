"""Batches of images as a function: `batches.at(step)` is the same whenever it is asked.

All images lie on the device as bytes; choosing and varying them are tensor operations there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.augmentation import Augmentation
from linnet.data.chance import uniform
from linnet.data.errors import DataError
from linnet.data.images import ImageSet
from linnet.data.order import shuffled

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ImageBatch:
    """Pixels 0 … 255, and classes [B] or shares of them [B, classes]."""

    images_BCHW: torch.Tensor
    targets: torch.Tensor

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What a classifier's loss takes."""
        return self.images_BCHW, self.targets

    @property
    def n_targets(self) -> int:
        """Every image is scored."""
        return len(self.images_BCHW)


class ImageBatches:
    """Endless shuffled batches, each image varied as `how` says.

    - `dtype`: of the pixels that were varied; unvaried ones stay bytes.
    - `compile`: make one kernel of the variations (on CUDA).
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        batch: int,
        classes: int,
        seed: int = 0,
        how: Augmentation | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        compile: bool = False,
    ) -> None:
        import torch

        from linnet.data.augment import augment

        if batch < 1:
            raise DataError(f"a batch is at least one image, found {batch}")
        self.batch, self.classes, self.seed = batch, classes, seed
        self.how = how or Augmentation()
        self.device, self._dtype = torch.device(device), dtype or torch.float32
        self._count = len(images)
        self._images = torch.from_numpy(images.images_NCHW).to(self.device)
        self._labels = torch.from_numpy(images.labels_N).to(self.device)
        self._augment: Callable[..., tuple[torch.Tensor, torch.Tensor]] = (
            torch.compile(augment, fullgraph=True) if compile else augment
        )

    @property
    def steps_per_epoch(self) -> float:
        """How many batches show every image once."""
        return self._count / self.batch

    def at(self, step: int) -> ImageBatch:
        """The batch of a step, from 0."""
        from linnet.data.augment import SLOTS

        index = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.uint64)
        places = self._sent(shuffled(index, self._count, self.seed))
        images, labels = self._images[places], self._labels[places]
        if not (self.how.moves or self.how.mixes or self.how.erase):
            return ImageBatch(images, labels)
        chance = self._sent(uniform(self.seed, step, self.batch, SLOTS))
        return ImageBatch(*self._augment(images, labels, chance, self.how, self.classes, self._dtype))

    def _sent(self, values: NDArray[Any]) -> torch.Tensor:
        """On the device; from page-locked memory a GPU fetches it by itself."""
        import torch

        here = torch.from_numpy(values)
        if self.device.type == "cuda":
            here = here.pin_memory()
        return here.to(self.device, non_blocking=True)


def in_order(images: ImageSet, batch: int, device: str | torch.device = "cpu") -> Iterator[ImageBatch]:
    """All images once, as they are."""
    import torch

    for start in range(0, len(images), batch):
        pixels = torch.from_numpy(images.images_NCHW[start : start + batch]).to(device)
        yield ImageBatch(pixels, torch.from_numpy(images.labels_N[start : start + batch]).to(device))
