"""From numbers to characters."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from linnet.board.curve import Curve, smooth
from linnet.board.plot import Plot, range_of, ticks
from linnet.board.terminal.spans import cells, cut, fit, justify, length, pad, text_of, wrap
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.runs import RunStore


def line(y: list[float] | np.ndarray, x: np.ndarray | None = None) -> Curve:
    value = np.asarray(y, dtype=np.float64)
    return Curve.through(np.arange(len(value), dtype=np.float64) if x is None else x, value)


def drawn(*curves: Curve, width: int = 10, height: int = 3, letters: str = "") -> str:
    ranges = range_of(curves)
    assert ranges is not None
    plot = Plot(width, height, *ranges)
    for index, curve in enumerate(curves):
        plot.draw(curve, f"run{index}", letter=letters[index] if letters else "")
    return text_of(plot.lines())


def test_a_falling_line_falls() -> None:
    assert drawn(line([3, 2, 1])) == "⠑⠢⢄⡀\n   ⠈⠑⠢⣀\n       ⠑⠢⢄"


def test_two_points_are_joined_and_one_is_a_bullet() -> None:
    assert drawn(line([1, 1]), height=1) == "⠒" * 10
    assert drawn(line([5.0]), height=1).strip() == "•"


def test_a_value_that_is_not_finite_breaks_the_line() -> None:
    whole, broken = drawn(line([1, 1, 1, 1, 1]), height=1), drawn(line([1, 1, np.nan, 1, 1]), height=1)
    assert " " not in whole
    assert " " in broken.strip()


@pytest.mark.parametrize("at", [1, 31_415, 99_998])
def test_one_spike_in_a_hundred_thousand_steps_is_seen(at: int) -> None:
    y = np.ones(100_000)
    y[at] = 100.0
    top = drawn(line(y), width=60, height=8).splitlines()[0]
    assert top.strip()


def test_a_million_points_are_drawn_in_milliseconds() -> None:
    y = np.random.default_rng(0).normal(size=1_000_000)
    curve = line(y)
    plot = Plot(120, 30, (0.0, 1e6), (-6.0, 6.0))
    began = time.process_time()
    plot.draw(curve, "run0")
    plot.lines()
    assert time.process_time() - began < 0.4  # some 0.06 on a quiet machine


@given(
    arrays(np.float64, st.integers(0, 50), elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_any_numbers_can_be_drawn(y: np.ndarray, width: int, height: int) -> None:
    values = np.where(np.isfinite(y), y, np.nan)
    ranges = range_of([line(values)])
    if ranges is None:
        assert not np.isfinite(values).any()
        return
    plot = Plot(width, height, *ranges)
    plot.draw(line(values), "run0")
    assert [length(line) for line in plot.lines()] == [width] * height


@pytest.mark.parametrize(
    "y", [[7.0] * 5, [1e300, -1e300, 1e300], [1e-300, 2e-300], [0.0, 5e-324], [1e308, 1.7e308], [float("nan"), 3.0]]
)
@pytest.mark.parametrize("log_scale", [False, True])
def test_extreme_values_make_a_chart(y: list[float], log_scale: bool, tmp_path: Path) -> None:
    board = Board(RunStore(tmp_path))
    board.log_scale = log_scale
    drawing = chart.draw(board, [(0, line(y))], 40, 6)
    assert drawing is not None
    assert all(length(line) == 40 for line in drawing.lines)


def test_the_end_of_each_line_carries_its_letter() -> None:
    lines = drawn(line([1, 2]), line([2, 1]), letters="AB").splitlines()
    assert (lines[0][-1], lines[-1][-1]) == ("A", "B")


def test_lines_that_end_in_one_place_have_their_letters_side_by_side() -> None:
    level = [line([1, 1]) for _ in "ABC"]
    lines = drawn(*level, line([0, 0]), line([2, 2]), height=5, letters="ABCDE").splitlines()
    assert [line[-1] for line in lines] == ["E", "A", "B", "C", "D"]
    crowded = drawn(*(line([1, 1]) for _ in range(8)), height=3, letters="ABCDEFGH").splitlines()
    assert sorted(letter for line in crowded for letter in line if letter.isalpha()) == list("ABCDEFGH")


def test_clipping_leaves_out_the_farthest() -> None:
    y = np.ones(1000) + np.arange(1000) / 1000
    y[500] = 1e6
    ranges, clipped = range_of([line(y)]), range_of([line(y)], clip=True)
    assert ranges is not None
    assert clipped is not None
    assert ranges[1][1] == 1e6
    assert clipped[1][1] < 2.1


def test_the_row_under_the_cursor_is_the_nearest_with_a_value() -> None:
    curve = line([1.0, np.nan, 3.0])
    assert curve.nearest(0.9) == 0
    assert curve.nearest(1.4) == 2
    assert line([np.nan]).nearest(0.0) is None


@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.15, 0.001])
def test_smoothing_is_the_exponential_mean_of_every_value(alpha: float) -> None:
    x = np.random.default_rng(1).normal(size=1000)
    x[[5, 77]] = np.nan
    expected, total, weight = [], 0.0, 0.0
    for value in x:
        if not np.isnan(value):
            total, weight = alpha * value + (1 - alpha) * total, alpha + (1 - alpha) * weight
        expected.append(np.nan if np.isnan(value) else total / weight)
    np.testing.assert_allclose(smooth(x, alpha), expected, rtol=1e-9)


def test_the_smallest_numbers_there_are_can_be_smoothed() -> None:
    smoothed = smooth(np.array([5e-324, 5e-324, 5e-324]), 0.1)
    np.testing.assert_array_equal(smoothed, 5e-324)


def test_smoothing_is_not_biased_to_the_first_value() -> None:
    x = np.concatenate([[100.0], np.ones(9)])
    assert smooth(x, 0.15)[1] == pytest.approx((0.85 * 100 + 1) / 1.85)  # not 0.85 of the first
    np.testing.assert_allclose(smooth(np.full(2000, 0.7), 0.01), 0.7, rtol=1e-12)


def test_smoothing_of_huge_values_stays_finite() -> None:
    assert np.isfinite(smooth(np.full(500, 1.7e308), 0.15)).all()


def test_ticks_are_round_numbers() -> None:
    assert ticks(0, 480, 4) == [0, 200, 400]
    assert ticks(0.13, 0.92, 4) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert ticks(1e300, 1e300, 4) == []


@given(st.text(), st.integers(0, 30))
def test_texts_are_cut_to_columns(text: str, width: int) -> None:
    assert cells(cut(text, width)) <= width
    assert cells(pad(text, width)) == width


def test_wide_characters_take_two_columns() -> None:
    assert cells("損失") == 4
    assert pad("損失", 5) == "損失 "
    assert cells(cut("損失損失", 5)) <= 5


def test_a_line_is_fitted_exactly() -> None:
    assert length(fit([("abc", ""), ("損失損失", "")], 6)) == 6
    assert length(justify([("left" * 10, "")], [("right", "")], 20)) == 20


def test_foreign_text_keeps_its_lines_and_loses_its_controls() -> None:
    assert wrap("a\x1b[31mb\nlong line", 6, 5) == ["a␛[31m", "b", "long l", "ine"]
