"""Rows that are reduced from blocks have the same extremes as rows looked at one by one, and the same means."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from linnet.board.web.reduction import Grid, Placed, reduced
from linnet.board.web.row_blocks import RowBlocks

ROWS = 100_003  # not a whole number of blocks
VALUES = np.random.default_rng(5).normal(2.0, 0.5, ROWS)


@pytest.mark.parametrize(
    "bounds", [[0, ROWS], [0, 1_000, 2_047, 2_560, 4_000, ROWS], [63, 6_400, 64_001, ROWS], np.arange(7, ROWS, 777)]
)
def test_stretches_have_the_extremes_and_the_sum_of_their_rows(bounds: list[int]) -> None:
    stretches = RowBlocks(VALUES).reduce(np.asarray(bounds))
    assert stretches is not None
    parts = [VALUES[begin:end] for begin, end in pairwise(bounds)]
    assert stretches.low.tolist() == [part.min() for part in parts]
    assert stretches.high.tolist() == [part.max() for part in parts]
    np.testing.assert_allclose(stretches.sum, [part.sum() for part in parts], rtol=1e-12)


@pytest.mark.parametrize("row", [0, 63, 64, 50_000, 99_967, 99_968, ROWS - 1])
def test_a_single_row_that_stands_out_is_in_its_stretch_wherever_it_lies(row: int) -> None:
    spiky = VALUES.copy()
    spiky[row] = 99.0
    bounds = np.linspace(0, ROWS, 200).astype(np.int64)
    stretches = RowBlocks(spiky).reduce(bounds)
    assert stretches is not None
    assert np.flatnonzero(stretches.high == 99.0).tolist() == [np.searchsorted(bounds, row, "right") - 1]


@pytest.mark.parametrize("bounds", [[], [5], [0, 200, 260, ROWS], np.arange(0, ROWS, 100)])
def test_short_stretches_are_looked_at_row_by_row(bounds: list[int]) -> None:
    assert RowBlocks(VALUES).reduce(np.asarray(bounds, np.int64)) is None


@pytest.mark.parametrize(("value", "row"), [(np.nan, 40), (np.inf, ROWS - 1), (-np.inf, 70), (1.7e308, 40)])
def test_what_is_not_finite_or_too_great_to_sum_is_looked_at_row_by_row(value: float, row: int) -> None:
    odd = VALUES.copy()
    odd[row : row + 40] = value
    blocks = RowBlocks(odd)
    assert not blocks.finite and blocks.reduce(np.asarray([0, 50_000, ROWS])) is None


@pytest.mark.parametrize("kind", ["least", "greatest", "several"])
def test_rows_of_an_extreme_are_found(kind: str) -> None:
    values = VALUES.copy()
    if kind == "several":
        values[[3, 64, 99_999, ROWS - 1]] = -9.0
    value = values.max() if kind == "greatest" else values.min()
    assert RowBlocks(values).rows_of(value).tolist() == np.flatnonzero(values == value).tolist()


def test_a_chart_is_the_same_with_blocks_and_without() -> None:
    placed, blocks = Placed(np.arange(1.0, ROWS + 1)), RowBlocks(VALUES)
    for grid in (Grid(1.0, ROWS, 300), Grid(500.0, 90_000.5, 77), Grid(-50_000.0, 2.0 * ROWS, 100)):
        with_blocks, without = reduced(placed, VALUES, grid, blocks=blocks), reduced(placed, VALUES, grid)
        _same(with_blocks.low, without.low)
        _same(with_blocks.high, without.high)
        np.testing.assert_allclose(with_blocks.mean, without.mean, rtol=1e-6)


def _same(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(one, other)
