"""Varying images on the device, a whole batch at once, without a branch on what is in it.

The chances come in as a tensor, one row an image, so the same step gives the same images whenever it is asked for.
Shapes: B images, C channels, H and W pixels, K classes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.data.augmentation import Augmentation

# Which chance decides what: numbers of the columns.
_TURN, _ZOOM, _RIGHT, _DOWN, _SHEAR, _FLIP, _AREA, _ASPECT, _CROP_X, _CROP_Y = range(10)
_ERASED, _ERASE_AREA, _ERASE_ASPECT, _ERASE_X, _ERASE_Y, _MIXED, _MIX_SHARE, _MIX_X, _MIX_Y = range(10, 19)
_PICKS = 19  # two for each pick of RandAugment: which, and which way
SLOTS = _PICKS + 2 * 10
_KINDS = 10  # turn, slant twice, move twice, brightness, contrast, colour, solarise, posterise


def augment(
    images_BCHW: Tensor, labels_B: Tensor, chance_BS: Tensor, how: Augmentation, classes: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Pixels 0 … 255 in `dtype`, and shares of classes [B, K] or, where nothing is mixed, the labels as they are."""
    x_BCHW = images_BCHW.float()
    picked_BN = _picked(chance_BS, how) if how.rand_augment else None
    if how.moves:
        x_BCHW = _moved(x_BCHW, chance_BS, how, picked_BN)
    if picked_BN is not None:
        x_BCHW = _tinted(x_BCHW, picked_BN)
    if how.erase:
        x_BCHW = _erased(x_BCHW, chance_BS, how.erase)
    if not how.mixes:
        return x_BCHW.to(dtype), labels_B
    shares_BK = F.one_hot(labels_B, classes).float()
    shares_BK = shares_BK * (1 - how.label_smoothing) + how.label_smoothing / classes
    if how.mixup or how.cutmix:
        x_BCHW, shares_BK = _mixed(x_BCHW, shares_BK, chance_BS, how)
    return x_BCHW.to(dtype), shares_BK


def _around(chance_B: Tensor) -> Tensor:
    """From −1 to 1."""
    return chance_B * 2 - 1


def _picked(chance_BS: Tensor, how: Augmentation) -> Tensor:
    """[B, kinds]: how strongly each kind of variation is applied, −1 … 1; 0 where it was not picked."""
    strength_BN = torch.zeros(len(chance_BS), _KINDS, device=chance_BS.device)
    for pick in range(how.rand_augment):
        which_B1 = (chance_BS[:, _PICKS + 2 * pick] * _KINDS).long().clamp(max=_KINDS - 1)[:, None]
        way_B1 = torch.where(chance_BS[:, _PICKS + 2 * pick + 1] < 0.5, -1.0, 1.0)[:, None]
        strength_BN = strength_BN.scatter(1, which_B1, way_B1 * how.magnitude / 10)
    return strength_BN


def _moved(x_BCHW: Tensor, chance_BS: Tensor, how: Augmentation, picked_BN: Tensor | None) -> Tensor:
    """Turned, slanted, enlarged, moved and mirrored, all in one resampling."""
    turn_B = _around(chance_BS[:, _TURN]) * math.radians(how.rotate)
    slant_B = _around(chance_BS[:, _SHEAR]) * how.shear
    right_B, down_B = (_around(chance_BS[:, slot]) * 2 * how.shift for slot in (_RIGHT, _DOWN))
    wide_B = high_B = 1 / (1 + _around(chance_BS[:, _ZOOM]) * how.zoom)
    upward_B = torch.zeros_like(slant_B)
    if how.crop:
        area_B = how.crop + (1 - how.crop) * chance_BS[:, _AREA]
        aspect_B = (_around(chance_BS[:, _ASPECT]) * math.log(4 / 3)).exp()
        crop_wide_B = (area_B * aspect_B).sqrt().clamp(max=1)
        crop_high_B = (area_B / aspect_B).sqrt().clamp(max=1)
        right_B = right_B + _around(chance_BS[:, _CROP_X]) * (1 - crop_wide_B)
        down_B = down_B + _around(chance_BS[:, _CROP_Y]) * (1 - crop_high_B)
        wide_B, high_B = wide_B * crop_wide_B, high_B * crop_high_B
    if picked_BN is not None:
        turn_B = turn_B + picked_BN[:, 0] * math.radians(30)
        slant_B = slant_B + picked_BN[:, 1] * 0.3
        upward_B = picked_BN[:, 2] * 0.3
        right_B = right_B + picked_BN[:, 3] * 0.6
        down_B = down_B + picked_BN[:, 4] * 0.6
    mirror_B = torch.where(chance_BS[:, _FLIP] < how.flip, -1.0, 1.0)
    cos_B, sin_B = turn_B.cos(), turn_B.sin()
    rows = [
        torch.stack([mirror_B * wide_B * (cos_B + slant_B * sin_B), high_B * (slant_B * cos_B - sin_B), right_B], 1),
        torch.stack([mirror_B * wide_B * (sin_B + upward_B * cos_B), high_B * (cos_B - upward_B * sin_B), down_B], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(x_BCHW.shape), align_corners=False)
    return F.grid_sample(x_BCHW, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _tinted(x_BCHW: Tensor, picked_BN: Tensor) -> Tensor:
    """Brighter or darker, with more or less contrast and colour, part inverted, in fewer shades."""
    bright, contrast, colour, solar, poster = (picked_BN[:, 5 + n, None, None, None] for n in range(5))
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


def _erased(x_BCHW: Tensor, chance_BS: Tensor, share: float) -> Tensor:
    """A rectangle of 2 to 33 % of the area takes the image's mean."""
    area_B = 0.02 + 0.31 * chance_BS[:, _ERASE_AREA]
    aspect_B = (_around(chance_BS[:, _ERASE_ASPECT]) * math.log(3)).exp()
    inside_B1HW = _box(x_BCHW, chance_BS[:, _ERASE_X], chance_BS[:, _ERASE_Y], area_B, aspect_B)
    chosen_B111 = (chance_BS[:, _ERASED] < share)[:, None, None, None]
    return torch.where(inside_B1HW & chosen_B111, x_BCHW.mean((2, 3), keepdim=True), x_BCHW)


def _mixed(x_BCHW: Tensor, shares_BK: Tensor, chance_BS: Tensor, how: Augmentation) -> tuple[Tensor, Tensor]:
    """Each image with the one before it in the batch, which is shuffled already."""
    other_BCHW, others_BK = x_BCHW.roll(1, 0), shares_BK.roll(1, 0)
    which_B, share_B = chance_BS[:, _MIXED], chance_BS[:, _MIX_SHARE]
    inside_B1HW = _box(x_BCHW, chance_BS[:, _MIX_X], chance_BS[:, _MIX_Y], share_B, torch.ones_like(share_B))
    cut_B, blend_B = which_B < how.cutmix, (which_B >= how.cutmix) & (which_B < how.cutmix + how.mixup)
    weight_B1HW = torch.where(cut_B[:, None, None, None], inside_B1HW.float(), 0.0)
    weight_B1HW = torch.where(blend_B[:, None, None, None], share_B[:, None, None, None], weight_B1HW)
    part_B1 = weight_B1HW.mean((1, 2, 3))[:, None]
    mixed_BCHW = x_BCHW + (other_BCHW - x_BCHW) * weight_B1HW
    return mixed_BCHW, shares_BK + (others_BK - shares_BK) * part_B1


def _box(x_BCHW: Tensor, x_B: Tensor, y_B: Tensor, area_B: Tensor, aspect_B: Tensor) -> Tensor:
    """[B, 1, H, W]: is a pixel in a rectangle of this share of the area, somewhere within the image?"""
    high, wide = x_BCHW.shape[2:]
    wide_B = (area_B * aspect_B).sqrt().clamp(max=1) * wide
    high_B = (area_B / aspect_B).sqrt().clamp(max=1) * high
    left_B, top_B = x_B * (wide - wide_B), y_B * (high - high_B)
    column_W = torch.arange(wide, device=x_BCHW.device) + 0.5
    row_H = torch.arange(high, device=x_BCHW.device) + 0.5
    across_BW = (column_W >= left_B[:, None]) & (column_W < (left_B + wide_B)[:, None])
    down_BH = (row_H >= top_B[:, None]) & (row_H < (top_B + high_B)[:, None])
    return (down_BH[:, :, None] & across_BW[:, None, :])[:, None]
