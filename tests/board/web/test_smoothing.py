"""A smoothed line is the same whether all of it is worked out or only what a chart shows."""

from itertools import pairwise

import numpy as np
import pytest

from linnet.board.curve import Floats, smooth
from linnet.board.web.smoothing import SmoothedLine

ROWS = 50_000
VALUES = 2.0 + 8.0 * np.exp(-np.arange(ROWS) / 900) + np.random.default_rng(3).normal(0, 0.05, ROWS)


def line(values: Floats, alpha: float) -> SmoothedLine:
    def refuse() -> Floats:
        raise AssertionError("all of it was asked for")

    return SmoothedLine(values, alpha, refuse)


@pytest.mark.parametrize("alpha", [0.9, 0.4, 0.1])
@pytest.mark.parametrize(("begin", "end"), [(0, 40), (3, 90), (20_000, 20_300), (ROWS - 1, ROWS)])
def test_rows_are_those_of_the_whole_line(alpha: float, begin: int, end: int) -> None:
    np.testing.assert_allclose(line(VALUES, alpha).rows(begin, end), smooth(VALUES, alpha)[begin:end], rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.9, 0.4, 0.2])
@pytest.mark.parametrize(
    "bounds", [[0, ROWS], [0, 7, 4_000, 4_010, ROWS], [11, 900, 30_000], np.arange(0, ROWS + 1, 5_000)]
)
def test_means_are_those_of_the_whole_line(alpha: float, bounds: list[int]) -> None:
    whole = smooth(VALUES, alpha)
    expected = [whole[begin:end].mean() for begin, end in pairwise(bounds)]
    means = line(VALUES, alpha).means(np.asarray(bounds))
    assert means is not None
    np.testing.assert_allclose(means, expected, rtol=1e-12)


def test_a_line_that_forgets_slowly_or_has_gaps_is_worked_out_as_a_whole() -> None:
    gaps = VALUES.copy()
    gaps[25_000] = np.nan
    assert line(VALUES, 0.0001).means(np.asarray([0, 25_000, ROWS])) is None
    assert line(gaps, 0.4).means(np.asarray([0, 25_000, ROWS])) is None
    whole = smooth(gaps, 0.4)
    np.testing.assert_array_equal(SmoothedLine(gaps, 0.4, lambda: whole).rows(24_990, 25_010), whole[24_990:25_010])
