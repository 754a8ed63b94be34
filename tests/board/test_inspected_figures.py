"""Heat maps and Gram matrices as both boards need them: reduced without a spike lost, compared without torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linnet.analysis.similarity import linear_cka
from linnet.board.gram_similarity import cka_of_grams
from linnet.board.map_columns import map_columns
from linnet.runs.figure_tables import HeatMap, Row


def map_of(values: list[list[float]]) -> HeatMap:
    rows = [Row("ffn_out", layer) for layer in range(len(values))]
    return HeatMap("std", rows, np.arange(10, 10 + len(values[0]), dtype=np.int64), np.array(values))


def test_a_map_of_few_looks_stays_as_it_is() -> None:
    heat = map_of([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]])
    columns = map_columns(heat, 3)
    assert columns.begins.tolist() == columns.ends.tolist() == [10, 11, 12]
    assert np.array_equal(columns.values, heat.values, equal_nan=True)


@pytest.mark.parametrize("at", [0, 137, 999])
@pytest.mark.parametrize("spike", [50.0, -50.0, np.inf])
def test_a_spike_of_one_look_in_a_thousand_is_seen(at: int, spike: float) -> None:
    values = np.tile(np.linspace(1, 2, 1000), (3, 1))
    values[1, at] = spike
    columns = map_columns(map_of(values.tolist()), 20)
    assert columns.values.shape == (3, 20) and columns.begins[0] == 10 and columns.ends[-1] == 1009
    assert (columns.begins[1:] == columns.ends[:-1] + 1).all()
    column = at // 50
    assert columns.values[1, column] == spike
    assert spike in (columns.low[1, column], columns.high[1, column])
    assert np.abs(np.delete(columns.values, column, 1)).max() <= 2.0


def test_looks_that_told_nothing_are_passed_over() -> None:
    columns = map_columns(map_of([[np.nan, np.nan, np.nan, 3.0], [np.nan] * 4]), 2)
    assert np.array_equal(columns.values, [[np.nan, 3.0], [np.nan, np.nan]], equal_nan=True)
    assert np.array_equal(columns.low, columns.values, equal_nan=True)


def test_likeness_by_gram_matrices_is_that_of_the_activations() -> None:
    layers = [torch.randn(32, width, generator=torch.Generator().manual_seed(width)) for width in (5, 48, 300)]
    layers.append(layers[0] @ torch.linalg.qr(torch.randn(5, 5)).Q * 3 + 7)  # turned, moved, larger: the same
    centred = [(x - x.mean(0)).double() for x in layers]
    values = cka_of_grams(np.stack([(x @ x.T).numpy() for x in centred]))
    expected = [[linear_cka(x, y) for y in layers] for x in layers]
    assert values == pytest.approx(np.array(expected), abs=1e-5)
    assert values[0, 3] == pytest.approx(1.0, abs=1e-5)


def test_a_matrix_without_numbers_is_like_none() -> None:
    values = cka_of_grams(np.stack([np.eye(8) + 0.1 * np.outer(np.arange(8), np.arange(8)), np.full((8, 8), np.nan)]))
    assert values[0, 0] == pytest.approx(1.0) and np.isnan(values[0, 1]) and np.isnan(values[1]).all()
