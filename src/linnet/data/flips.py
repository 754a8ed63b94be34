"""Do mirrored images look like those of their class? What decides whether a training may flip them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.data.images import ImageSet

_MOST = 4000  # images that are looked at
_PIXELS = 16  # a side, at most, that they are reduced to
_LEAST = 0.05  # by which a linear classifier must be better than naming one class, to tell anything
_ALIKE = 0.9  # of that lead, which it keeps on mirrored images where they look alike


def flip_keeps_class(images: ImageSet) -> bool | None:
    """Does a linear classifier know mirrored images as well as it knows the others? None: it knows neither.

    It is fitted to half of the images (ridge regression on small copies of them), and asked about the other half as
    they are and mirrored. Letters, digits and signs are lost when they are mirrored; photographs are not.
    """
    chosen = np.linspace(0, len(images) - 1, min(_MOST, len(images))).astype(np.int64)
    chosen = np.random.default_rng(0).permutation(chosen)
    sample = images.take(chosen)
    fitted, tested = slice(0, len(sample) // 2), slice(len(sample) // 2, None)
    labels_N = sample.labels_N
    known_labels = labels_N[tested]
    if len(known_labels) < 2 or len(np.unique(labels_N[fitted])) < 2:
        return None
    small_NCHW = _reduced(sample.images_NCHW)
    mean = small_NCHW[fitted].mean(0, keepdims=True)
    features_NF = (small_NCHW - mean).reshape(len(sample), -1)
    mirrored_NF = (small_NCHW[..., ::-1] - mean).reshape(len(sample), -1)
    weights_FK, offset_K = _ridge(features_NF[fitted], labels_N[fitted])
    right, right_mirrored = (
        float(((part[tested] @ weights_FK + offset_K).argmax(1) == known_labels).mean())
        for part in (features_NF, mirrored_NF)
    )
    by_chance = float(np.bincount(known_labels).max()) / len(known_labels)
    noise = 1.0 / np.sqrt(len(known_labels))  # two standard deviations of a share
    lead = right - by_chance
    if lead < _LEAST + noise:
        return None
    return bool(right_mirrored - by_chance >= _ALIKE * lead - noise)


def _reduced(images_NCHW: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Copies of at most 16 pixels a side: means of squares; what does not fill a square at the edges is left out."""
    side = max(1, images_NCHW.shape[-1] // _PIXELS) if images_NCHW.shape[-1] > _PIXELS else 1
    count = images_NCHW.shape[-1] // side
    margin = (images_NCHW.shape[-1] - count * side) // 2  # on both sides, or a mirrored image would be moved
    cut = images_NCHW[..., margin : margin + count * side, margin : margin + count * side]
    shape = (*cut.shape[:2], count, side, count, side)
    means: NDArray[np.float32] = cut.reshape(shape).mean((3, 5), dtype=np.float32) / np.float32(255)
    return means


def _ridge(features_NF: NDArray[np.float32], labels_N: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
    """Weights and offset of the linear classifier."""
    targets_NK = np.eye(int(labels_N.max()) + 1, dtype=np.float32)[labels_N]
    offset_K = targets_NK.mean(0)
    products_FF = features_NF.T @ features_NF
    strength = 0.01 * float(np.trace(products_FF)) / max(1, min(features_NF.shape)) + 1e-6
    products_FF[np.diag_indices_from(products_FF)] += strength
    return np.linalg.solve(products_FF, features_NF.T @ (targets_NK - offset_K)), offset_K
