"""A run's numbers while it is watched: exact while it is short, folded when it is long, and always the truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.board.curve import Curve
from linnet.board.downsampling import Downsampler, DownsamplingLimits
from linnet.board.history import History
from linnet.runs import Metrics, Run
from linnet.runs.series import Table
from tests.board.conftest import append, steps, write


def table(values: np.ndarray, first: int = 0, names: tuple[str, ...] = ("loss",)) -> Table:
    made = Table(names)
    line = np.arange(first, first + len(values))
    made.extend([line, line + 1, line * 0.5, np.full(len(values), np.nan), *(values for _ in names)])
    return made


def folded(values: np.ndarray, chunk: int) -> Curve:
    downsampler = Downsampler()
    for begin in range(0, len(values), chunk):
        downsampler.take([table(values[begin : begin + chunk], begin)])
    curve = downsampler.curve("loss", "min")
    assert curve is not None
    return curve


@pytest.mark.parametrize("chunk", [1_000, 7_777, 100_000])
def test_a_folded_run_has_the_same_extremes_mean_and_end(chunk: int) -> None:
    values = np.random.default_rng(3).normal(size=100_000)
    values[[17, 40_000]] = np.nan, np.inf
    curve = folded(values, chunk)
    finite = values[np.isfinite(values)]
    assert len(curve) <= DownsamplingLimits().most_buckets
    assert not curve.exact
    assert curve.low[np.isfinite(curve.low)].min() == finite.min()
    assert curve.high[np.isfinite(curve.high)].max() == finite.max()
    assert curve.stats.mean == pytest.approx(finite.mean())
    assert curve.stats.best == (int(np.nanargmin(np.where(np.isfinite(values), values, np.nan))) + 1, finite.min())
    assert curve.stats.last == (100_000, values[-1])
    assert (curve.stats.count, curve.stats.empty) == (100_000, 2)


def test_each_bucket_holds_the_rows_it_stands_for() -> None:
    values = np.random.default_rng(4).normal(size=50_001)
    curve = folded(values, 333)
    stride = 8
    for at in (0, 1, 777, len(curve) - 1):
        rows = values[at * stride : (at + 1) * stride]
        assert (curve.low[at], curve.high[at]) == (rows.min(), rows.max())
        assert curve.mean[at] == pytest.approx(rows.mean())
        assert curve.step[at] == (50_001 if at == len(curve) - 1 else at * stride + 1)  # it ends where the run is


def test_a_short_run_is_folded_without_loss() -> None:
    values = np.arange(500.0)
    curve = folded(values, 100)
    assert curve.exact
    np.testing.assert_array_equal(curve.mean, values)


def test_a_metric_logged_in_two_companies_is_one_curve() -> None:
    downsampler = Downsampler()
    both, alone = Table(("loss", "lr")), Table(("loss",))
    both.extend([[0, 2], [1, 3], [0.0, 2.0], [np.nan] * 2, [1.0, 3.0], [0.1, 0.1]])
    alone.extend([[1], [2], [1.0], [np.nan], [2.0]])
    downsampler.take([both, alone])
    curve = downsampler.curve("loss", "min")
    assert curve is not None
    assert curve.mean.tolist() == [1.0, 2.0, 3.0]
    assert curve.last_value == 3.0


def wait(history: History) -> History:
    history.read(0.0)
    while not history.caught_up:
        history.read(0.0)
    return history


def reference(run: Run, name: str = "loss") -> Curve:
    return Curve.of(run.metrics(cached=False)[name])


@pytest.mark.parametrize("cells", [1 << 30, 100])
def test_history_says_what_the_run_says(root: Path, cells: int) -> None:
    run = Run.load(write(root / "a", steps(3000)))
    curve = wait(History(run, DownsamplingLimits(exact_cells=cells))).curve("loss")
    assert curve is not None
    assert curve.stats == reference(run).stats
    np.testing.assert_array_equal(curve.mean, reference(run).mean)


@pytest.mark.parametrize("cells", [1 << 30, 100])
def test_history_goes_on_with_the_run(root: Path, cells: int) -> None:
    folder = write(root / "a", steps(500))
    history = wait(History(Run.load(folder), DownsamplingLimits(exact_cells=cells)))
    assert not history.read(0.1)
    append(folder, steps(10, first=501))
    assert history.read(0.1)
    curve = history.curve("loss")
    assert curve is not None
    assert curve.stats.last == (510, 2 + 6 / 510)
    assert history.last_step == 510


@pytest.mark.parametrize("cells", [1 << 30, 100])
def test_a_resumed_run_drops_the_steps_it_trains_again(root: Path, cells: int) -> None:
    folder = write(root / "a", steps(500))
    run = Run.load(folder)
    history = wait(History(run, DownsamplingLimits(exact_cells=cells)))
    append(folder, [{"kind": "resume", "t": 500.0, "step": 300}, *steps(20, first=301)])
    wait(history)
    curve = history.curve("loss")
    assert curve is not None
    assert curve.stats.count == 320
    assert curve.stats == reference(run).stats
    append(folder, steps(5, first=321))
    wait(history)
    assert history.last_step == 325


@pytest.mark.parametrize("cells", [1 << 30, 100])
def test_a_stream_that_is_replaced_is_read_anew(root: Path, cells: int) -> None:
    folder = write(root / "a", steps(500))
    history = wait(History(Run.load(folder), DownsamplingLimits(exact_cells=cells)))
    new = folder / "new"
    new.write_text("".join(json.dumps(event) + "\n" for event in steps(7, loss=lambda step: -step)))
    new.replace(folder / "events.jsonl")
    wait(history)
    curve = history.curve("loss")
    assert curve is not None
    assert (curve.stats.count, curve.last_value) == (7, -7.0)


def test_a_folded_run_opens_from_its_cache(root: Path) -> None:
    with linnet.start(root, arch="long", system_every=0) as session:
        for step in range(20_000):
            session.log(step, loss=1 / (step + 1), lr=1e-3)
    run = Run.load(next(root.iterdir()))
    first = wait(History(run, DownsamplingLimits(exact_cells=1000))).curve("loss")
    assert (run.path / ".cache" / "metrics").exists()
    again = wait(History(run, DownsamplingLimits(exact_cells=1000)))
    second = again.curve("loss")
    assert first is not None
    assert second is not None
    assert again.downsampled
    np.testing.assert_array_equal(first.mean, second.mean)
    assert first.stats == second.stats


def test_memory_of_a_folded_run_does_not_grow_with_it(root: Path) -> None:
    downsampler = Downsampler()
    held = []
    for begin in range(0, 400_000, 10_000):
        downsampler.take([table(np.ones(10_000), begin, ("loss", "lr", "acc"))])
        held.append(downsampler.nbytes)
    assert held[-1] == held[2]


def test_metrics_can_be_read_a_block_at_a_time_and_drained(root: Path) -> None:
    folder = write(root / "a", steps(40_000))
    events = folder / "events.jsonl"
    metrics = Metrics(events, cached=False, read=False)
    assert metrics.names() == []
    blocks = rows = 0
    while metrics.refresh(blocks=1):
        blocks += 1
        rows += sum(part.rows for part in metrics.drain())
    assert blocks == -(-events.stat().st_size // (1 << 20))
    assert rows == 40_000
    assert metrics.last_step == 40_000


def test_tokens_count_up_on_their_axis(root: Path) -> None:
    run = Run.load(write(root / "a", steps(100, loss=lambda s: s, tokens=lambda s: 10)))
    loss, tokens = reference(run), reference(run, "tokens")
    by_tokens = loss.on_axis("tokens", 0.0, tokens)
    assert by_tokens is not None
    assert (by_tokens.x[0], by_tokens.x[-1]) == (10, 1000)
    assert loss.on_axis("epoch") is None
    wall = loss.on_axis("wall time", 1000.0)
    assert wall is not None
    assert wall.x[0] == 1001.0
