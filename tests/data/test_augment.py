"""Variations are what they are called, and a function of the seed and the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linnet.data.augmentation import Augmentation
from linnet.data.image_batches import COLUMNS, ImageBatches, augment, in_order
from linnet.data.images import ImageSet, load_images
from linnet.data.order import uniform
from linnet.errors import UsageError

B, K = 64, 5


def batch(channels: int = 3, size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (B, channels, size, size), dtype=torch.uint8, generator=made)
    return images, torch.randint(0, K, (B,), generator=made), torch.from_numpy(uniform(3, 7, B, COLUMNS))


def varied(channels: int = 3, **how: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    images, labels, chance = batch(channels)
    pixels, targets = augment(images, labels, chance, Augmentation(**how), K, torch.float32)  # type: ignore[arg-type]
    return images, labels, pixels, targets


def test_chances_are_even_and_have_nothing_to_do_with_each_other() -> None:
    drawn = np.concatenate([uniform(1, step, 500, 8) for step in range(8)])
    assert drawn.min() >= 0 and drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert np.histogram(drawn, 10, (0, 1))[0].min() > 0.9 * drawn.size / 10
    apart = np.corrcoef(drawn.T) - np.eye(8)
    assert np.abs(apart).max() < 0.06
    assert np.array_equal(uniform(1, 3, 10, 4), uniform(1, 3, 10, 4))
    for other in (uniform(2, 3, 10, 4), uniform(1, 4, 10, 4), uniform(-1, 3, 10, 4)):
        assert not np.array_equal(uniform(1, 3, 10, 4), other)


def test_nothing_asked_for_changes_nothing() -> None:
    images, labels, pixels, targets = varied()
    assert torch.equal(pixels, images.float())
    assert torch.equal(targets, labels)


def test_a_flip_mirrors_left_and_right() -> None:
    images, _, pixels, _ = varied(flip=1.0)
    assert torch.allclose(pixels, images.flip(3).float(), atol=0.01)
    images, _, pixels, _ = varied(flip=0.5)
    same = torch.isclose(pixels, images.float(), atol=0.01).all(3).all(2).all(1)
    assert 0.3 < same.float().mean() < 0.7


@pytest.mark.parametrize("how", [{"shift": 0.2}, {"rotate": 30.0}, {"zoom": 0.3}, {"shear": 0.3}, {"crop": 0.2}])
def test_what_is_moved_keeps_its_colours(how: dict[str, float]) -> None:
    images, labels, pixels, targets = varied(**how)
    assert not torch.allclose(pixels, images.float(), atol=1)
    assert pixels.min() >= 0 and pixels.max() <= 255
    assert torch.equal(targets, labels)
    flat = torch.full_like(images, 100)
    _, labels, chance = batch()
    still, _ = augment(flat, labels, chance, Augmentation(**how), K, torch.float32)
    assert torch.allclose(still, flat.float(), atol=1e-3)  # no black corners


def test_a_shift_moves_by_whole_shares_of_the_side() -> None:
    images = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    images[0, 0, 4, 4] = 255
    chance = torch.full((1, COLUMNS), 0.5)
    chance[0, 2] = 1.0  # to the far end of --shift, along x
    moved, _ = augment(images, torch.zeros(1, dtype=torch.int64), chance, Augmentation(shift=2 / 9), K, torch.float32)
    assert moved[0, 0].argmax().item() == 4 * 9 + 2
    assert moved.max().item() == pytest.approx(255, abs=0.1)


def test_erasing_blanks_one_rectangle() -> None:
    images, _, pixels, _ = varied(erase=1.0)
    changed = (pixels != images.float()).any(1)
    share = changed.float().mean((1, 2))
    assert share.min() > 0.005 and share.max() < 0.4
    one = changed[0]
    rows, columns = one.any(1).nonzero(), one.any(0).nonzero()
    assert one[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].float().mean() > 0.98


@pytest.mark.parametrize("how", [{"mixup": 1.0}, {"cutmix": 1.0}, {"mixup": 0.3, "cutmix": 0.3}])
def test_mixed_images_have_mixed_labels_in_the_same_proportion(how: dict[str, float]) -> None:
    labels = torch.arange(B) % 2
    images = (labels * 200).to(torch.uint8)[:, None, None, None].expand(B, 1, 64, 64)  # class 1 is bright
    _, _, chance = batch()
    pixels, targets = augment(images, labels, chance, Augmentation(**how), 2, torch.float32)
    assert torch.allclose(targets.sum(1), torch.ones(B))
    assert torch.allclose(pixels.mean((1, 2, 3)) / 200, targets[:, 1], atol=1e-5)
    mixed = (targets.max(1).values < 1).float().mean().item()
    assert mixed == pytest.approx(min(1.0, sum(how.values())), abs=0.15)


def test_smoothed_labels_keep_their_sum() -> None:
    _, labels, _, targets = varied(label_smoothing=0.1)
    assert torch.allclose(targets.sum(1), torch.ones(B))
    assert torch.allclose(targets[torch.arange(B), labels], torch.tensor(0.92))


@pytest.mark.parametrize("channels", [1, 3])
def test_rand_augment_varies_most_images_and_stays_in_range(channels: int) -> None:
    images, _, pixels, _ = varied(channels, rand_augment=2)
    assert pixels.min() >= 0 and pixels.max() <= 255
    changed = (pixels - images.float()).abs().mean((1, 2, 3)) > 0.5
    assert changed.float().mean() > 0.8
    _, _, unchanged, _ = varied(channels, rand_augment=2, magnitude=0.0)
    assert torch.allclose(unchanged, images.float(), atol=0.01)


def test_a_batch_is_the_same_whenever_it_is_asked_for() -> None:
    digits = load_images("digits").train
    how = Augmentation(shift=0.1, rotate=10, mixup=0.5, label_smoothing=0.1)
    one, two = (ImageBatches(digits, batch=32, classes=10, seed=4, how=how) for _ in range(2))
    late = [one.at(step) for step in (90, 3, 45)]
    for step, expected in zip((90, 3, 45), late, strict=True):
        again = two.at(step)
        assert torch.equal(again.images_BCHW, expected.images_BCHW)
        assert torch.equal(again.targets, expected.targets)
    assert not torch.equal(one.at(3).images_BCHW, one.at(4).images_BCHW)
    assert not torch.equal(ImageBatches(digits, batch=32, classes=10, seed=5, how=how).at(3).targets, late[1].targets)


def test_an_epoch_shows_every_image_once() -> None:
    images = ImageSet(np.arange(40, dtype=np.uint8).reshape(40, 1, 1, 1), np.zeros(40, np.int64))
    batches = ImageBatches(images, batch=8, classes=2)
    assert batches.steps_per_epoch == 5
    for epoch in range(2):
        shown = torch.cat([batches.at(5 * epoch + step).images_BCHW.flatten() for step in range(5)])
        assert sorted(shown.tolist()) == list(range(40))
    assert torch.cat([part.images_BCHW.flatten() for part in in_order(images, 16)]).tolist() == list(range(40))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"shift": 2.0}, "`shift` must be from 0 to 1, found 2"),
        ({"rand_augment": 11}, "`rand_augment` must be from 0 to 10"),
        ({"mixup": 0.7, "cutmix": 0.7}, "`mixup=0.7` and `cutmix=0.7` are shares: together at most 1"),
    ],
)
def test_impossible_variations_are_refused(how: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Augmentation(**how)  # type: ignore[arg-type]
