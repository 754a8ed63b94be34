"""Masks that are a hash: of the step, the tokens of the row, the layer and the place, and of nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.kernels.dropout import drop, row_keys

IDS_BT = torch.randint(0, 50_000, (4, 64), generator=torch.Generator().manual_seed(0))


def keys(step: int, ids_BT: Tensor = IDS_BT) -> Tensor:
    return row_keys(ids_BT, torch.tensor(step))


def dropped(step: int, salt: int = 17, share: float = 0.25, ids_BT: Tensor = IDS_BT) -> Tensor:
    return drop(torch.ones(*ids_BT.shape, 96), keys(step, ids_BT), salt, share) == 0


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
def test_the_share_that_was_asked_for_is_dropped_and_the_mean_stays(share: float) -> None:
    kept = drop(torch.ones(4, 64, 96), keys(3), 17, share)
    assert (kept == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    assert kept.mean().item() == pytest.approx(1.0, abs=0.05)


def test_a_mask_is_the_same_whatever_rows_are_beside_it() -> None:
    whole = dropped(5)
    assert torch.equal(dropped(5), whole)
    halves = [dropped(5, ids_BT=IDS_BT[:2]), dropped(5, ids_BT=IDS_BT[2:])]
    assert torch.equal(torch.cat(halves), whole)
    assert torch.equal(dropped(5, ids_BT=IDS_BT.flip(0)), whole.flip(0))


@pytest.mark.parametrize("other", [{"step": 6}, {"salt": 18}, {"ids_BT": IDS_BT.roll(1, 1)}])
def test_another_step_layer_or_row_drops_other_numbers(other: dict[str, object]) -> None:
    same = (dropped(5) == dropped(**{"step": 5, **other})).float().mean().item()  # type: ignore[arg-type]
    assert same == pytest.approx(0.25**2 + 0.75**2, abs=0.01)


def test_places_drop_independently_of_each_other() -> None:
    mask = dropped(5).float()
    for axis in (0, 1, 2):
        together = (mask.narrow(axis, 0, mask.shape[axis] - 1) * mask.narrow(axis, 1, mask.shape[axis] - 1)).mean()
        assert together.item() == pytest.approx(0.25**2, abs=0.01)


def test_the_gradient_goes_where_the_numbers_went() -> None:
    x = torch.randn(4, 64, 96, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = drop(x, keys(5), 17, 0.25)
    (by_x,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(by_x == 0, dropped(5))
    assert by_x[by_x != 0].unique().tolist() == pytest.approx([1 / 0.75])
