"""Batches of images, varied on the device: `batches.at(step)` is the same whenever it is asked.

All images lie on the device as bytes. Choosing and varying them are tensor operations there, a whole batch at once,
without a branch on what is in it; the random numbers come in as a tensor, one row an image.
Shapes: B images, C channels, H and W pixels, K classes, R random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.data.augmentation import Augmentation
from linnet.data.batches import send
from linnet.data.errors import DataError
from linnet.data.images import ImageSet
from linnet.data.order import shuffled, uniform

# Which column of the random numbers decides what.
_ROTATE, _ZOOM, _RIGHT, _DOWN, _SHEAR, _FLIP, _AREA, _ASPECT, _CROP_X, _CROP_Y = range(10)
_ERASED, _ERASE_AREA, _ERASE_ASPECT, _ERASE_X, _ERASE_Y, _MIXED, _MIX_SHARE, _MIX_X, _MIX_Y = range(10, 19)
_PICKS = 19  # two for each pick of RandAugment: which, and which way
COLUMNS = _PICKS + 2 * 10
_KINDS = 10  # rotation, shear and shift along both axes, brightness, contrast, colour, solarise, posterise


@dataclass(frozen=True)
class ImageBatch:
    """Pixels 0 … 255, and classes [B] or shares of them [B, classes].

    `of`: images of the whole batch, where these are one rank's share.
    """

    images_BCHW: Tensor
    targets: Tensor
    of: int | None = None

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """What a classifier's loss takes."""
        return self.images_BCHW, self.targets

    @property
    def n_targets(self) -> int:
        """Every image of the whole batch is scored."""
        return len(self.images_BCHW) if self.of is None else self.of

    def rows(self, rows: slice) -> ImageBatch:
        """A share of the batch."""
        return ImageBatch(self.images_BCHW[rows], self.targets[rows], len(self.images_BCHW))


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
        if batch < 1:
            raise DataError(f"a batch is at least one image, found {batch}")
        self.batch, self.classes, self.seed = batch, classes, seed
        self.how = how or Augmentation()
        self.device, self._dtype = torch.device(device), dtype or torch.float32
        self._count = len(images)
        self._images = torch.from_numpy(images.images_NCHW).to(self.device)
        self._labels = torch.from_numpy(images.labels_N).to(self.device)
        self._augment: Callable[..., tuple[Tensor, Tensor]] = (
            torch.compile(augment, fullgraph=True) if compile else augment
        )

    @property
    def steps_per_epoch(self) -> float:
        """How many batches show every image once."""
        return self._count / self.batch

    def at(self, step: int) -> ImageBatch:
        """The batch of a step, from 0."""
        index = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.uint64)
        index_B = send(shuffled(index, self._count, self.seed), self.device)
        images, labels = self._images[index_B], self._labels[index_B]
        if not (self.how.moves or self.how.mixes or self.how.erase):
            return ImageBatch(images, labels)
        random_BR = send(uniform(self.seed, step, self.batch, COLUMNS), self.device)
        return ImageBatch(*self._augment(images, labels, random_BR, self.how, self.classes, self._dtype))


def in_order(images: ImageSet, batch: int, device: str | torch.device = "cpu") -> Iterator[ImageBatch]:
    """All images once, as they are."""
    for start in range(0, len(images), batch):
        pixels = torch.from_numpy(images.images_NCHW[start : start + batch]).to(device)
        yield ImageBatch(pixels, torch.from_numpy(images.labels_N[start : start + batch]).to(device))


def augment(
    images_BCHW: Tensor, labels_B: Tensor, random_BR: Tensor, how: Augmentation, classes: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Pixels 0 … 255 in `dtype`, and shares of classes [B, K] or, where nothing is mixed, the labels as they are."""
    x_BCHW = images_BCHW.float()
    strength_BN = _rand_augment(random_BR, how) if how.rand_augment else None
    if how.moves:
        x_BCHW = _affine(x_BCHW, random_BR, how, strength_BN)
    if strength_BN is not None:
        x_BCHW = _color_jitter(x_BCHW, strength_BN)
    if how.erase:
        x_BCHW = _random_erasing(x_BCHW, random_BR, how.erase)
    if not how.mixes:
        return x_BCHW.to(dtype), labels_B
    shares_BK = F.one_hot(labels_B, classes).float()
    shares_BK = shares_BK * (1 - how.label_smoothing) + how.label_smoothing / classes
    if how.mixup or how.cutmix:
        x_BCHW, shares_BK = _mix(x_BCHW, shares_BK, random_BR, how)
    return x_BCHW.to(dtype), shares_BK


def _signed(random_B: Tensor) -> Tensor:
    """From −1 to 1."""
    return random_B * 2 - 1


def _rand_augment(random_BR: Tensor, how: Augmentation) -> Tensor:
    """RandAugment: how strongly each of N kinds is applied, −1 … 1; 0 where it was not picked."""
    strength_BN = torch.zeros(len(random_BR), _KINDS, device=random_BR.device)
    for pick in range(how.rand_augment):
        which_B1 = (random_BR[:, _PICKS + 2 * pick] * _KINDS).long().clamp(max=_KINDS - 1)[:, None]
        way_B1 = torch.where(random_BR[:, _PICKS + 2 * pick + 1] < 0.5, -1.0, 1.0)[:, None]
        strength_BN = strength_BN.scatter(1, which_B1, way_B1 * how.magnitude / 10)
    return strength_BN


def _affine(x_BCHW: Tensor, random_BR: Tensor, how: Augmentation, strength_BN: Tensor | None) -> Tensor:
    """Rotation, shear, zoom, crop, shift and flip as one affine transform: one resampling."""
    angle_B = _signed(random_BR[:, _ROTATE]) * math.radians(how.rotate)
    shear_B = _signed(random_BR[:, _SHEAR]) * how.shear
    right_B, down_B = (_signed(random_BR[:, column]) * 2 * how.shift for column in (_RIGHT, _DOWN))
    wide_B = high_B = 1 / (1 + _signed(random_BR[:, _ZOOM]) * how.zoom)
    shear_y_B = torch.zeros_like(shear_B)
    if how.crop:
        area_B = how.crop + (1 - how.crop) * random_BR[:, _AREA]
        aspect_B = (_signed(random_BR[:, _ASPECT]) * math.log(4 / 3)).exp()
        crop_wide_B = (area_B * aspect_B).sqrt().clamp(max=1)
        crop_high_B = (area_B / aspect_B).sqrt().clamp(max=1)
        right_B = right_B + _signed(random_BR[:, _CROP_X]) * (1 - crop_wide_B)
        down_B = down_B + _signed(random_BR[:, _CROP_Y]) * (1 - crop_high_B)
        wide_B, high_B = wide_B * crop_wide_B, high_B * crop_high_B
    if strength_BN is not None:
        angle_B = angle_B + strength_BN[:, 0] * math.radians(30)
        shear_B = shear_B + strength_BN[:, 1] * 0.3
        shear_y_B = strength_BN[:, 2] * 0.3
        right_B = right_B + strength_BN[:, 3] * 0.6
        down_B = down_B + strength_BN[:, 4] * 0.6
    flip_B = torch.where(random_BR[:, _FLIP] < how.flip, -1.0, 1.0)
    cos_B, sin_B = angle_B.cos(), angle_B.sin()
    rows = [
        torch.stack([flip_B * wide_B * (cos_B + shear_B * sin_B), high_B * (shear_B * cos_B - sin_B), right_B], 1),
        torch.stack([flip_B * wide_B * (sin_B + shear_y_B * cos_B), high_B * (cos_B - shear_y_B * sin_B), down_B], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(x_BCHW.shape), align_corners=False)
    return F.grid_sample(x_BCHW, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _color_jitter(x_BCHW: Tensor, strength_BN: Tensor) -> Tensor:
    """Brightness, contrast, colour, solarising and posterising, each as strong as RandAugment picked it."""
    bright, contrast, colour, solar, poster = (strength_BN[:, 5 + n, None, None, None] for n in range(5))
    x_BCHW = (x_BCHW * (1 + 0.9 * bright)).clamp(0, 255)
    mean_B111 = x_BCHW.mean((1, 2, 3), keepdim=True)
    x_BCHW = (mean_B111 + (x_BCHW - mean_B111) * (1 + 0.9 * contrast)).clamp(0, 255)
    if x_BCHW.shape[1] == 3:
        grey_B1HW = x_BCHW.mean(1, keepdim=True)
        x_BCHW = (grey_B1HW + (x_BCHW - grey_B1HW) * (1 + 0.9 * colour)).clamp(0, 255)
    x_BCHW = torch.where(x_BCHW >= 256 * (1 - solar.abs()), 255 - x_BCHW, x_BCHW)
    step_B111 = torch.exp2((4 * poster.abs()).round())
    coarse_BCHW = (x_BCHW / step_B111).floor() * step_B111
    return torch.where(poster == 0, x_BCHW, coarse_BCHW)


def _random_erasing(x_BCHW: Tensor, random_BR: Tensor, share: float) -> Tensor:
    """Random erasing: a rectangle of 2 to 33 % of the area takes the image's mean."""
    area_B = 0.02 + 0.31 * random_BR[:, _ERASE_AREA]
    aspect_B = (_signed(random_BR[:, _ERASE_ASPECT]) * math.log(3)).exp()
    inside_B1HW = _box(x_BCHW, random_BR[:, _ERASE_X], random_BR[:, _ERASE_Y], area_B, aspect_B)
    chosen_B111 = (random_BR[:, _ERASED] < share)[:, None, None, None]
    return torch.where(inside_B1HW & chosen_B111, x_BCHW.mean((2, 3), keepdim=True), x_BCHW)


def _mix(x_BCHW: Tensor, shares_BK: Tensor, random_BR: Tensor, how: Augmentation) -> tuple[Tensor, Tensor]:
    """CutMix and Mixup: each image with the one before it in the batch, which is shuffled already."""
    other_BCHW, others_BK = x_BCHW.roll(1, 0), shares_BK.roll(1, 0)
    which_B, share_B = random_BR[:, _MIXED], random_BR[:, _MIX_SHARE]
    inside_B1HW = _box(x_BCHW, random_BR[:, _MIX_X], random_BR[:, _MIX_Y], share_B, torch.ones_like(share_B))
    cut_B, blend_B = which_B < how.cutmix, (which_B >= how.cutmix) & (which_B < how.cutmix + how.mixup)
    weight_B1HW = torch.where(cut_B[:, None, None, None], inside_B1HW.float(), 0.0)
    weight_B1HW = torch.where(blend_B[:, None, None, None], share_B[:, None, None, None], weight_B1HW)
    part_B1 = weight_B1HW.mean((1, 2, 3))[:, None]
    mixed_BCHW = x_BCHW + (other_BCHW - x_BCHW) * weight_B1HW
    return mixed_BCHW, shares_BK + (others_BK - shares_BK) * part_B1


def _box(x_BCHW: Tensor, x_B: Tensor, y_B: Tensor, area_B: Tensor, aspect_B: Tensor) -> Tensor:
    """[B, 1, H, W]: mask of a rectangle of this share of the area, somewhere within the image."""
    high, wide = x_BCHW.shape[2:]
    wide_B = (area_B * aspect_B).sqrt().clamp(max=1) * wide
    high_B = (area_B / aspect_B).sqrt().clamp(max=1) * high
    left_B, top_B = x_B * (wide - wide_B), y_B * (high - high_B)
    column_W = torch.arange(wide, device=x_BCHW.device) + 0.5
    row_H = torch.arange(high, device=x_BCHW.device) + 0.5
    across_BW = (column_W >= left_B[:, None]) & (column_W < (left_B + wide_B)[:, None])
    down_BH = (row_H >= top_B[:, None]) & (row_H < (top_B + high_B)[:, None])
    return (down_BH[:, :, None] & across_BW[:, None, :])[:, None]
