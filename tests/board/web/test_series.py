"""A chart is the truth at every width: no spike is lost, smoothing is over every row, and the terminal agrees."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from linnet.board.curve import AXES, Curve, smooth
from linnet.board.watched_run import WatchedRun
from linnet.runs import Run
from tests.board.conftest import ABOUT, append, steps, training, write
from tests.board.web.conftest import Series

LONG = 200_000


@pytest.fixture(scope="module")
def spiky(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NDArray[np.int64]]:
    """A long run with twenty spikes of a single step."""
    root = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(3)
    loss = 2 + np.exp(-np.arange(LONG) / 3e4) + random.normal(0, 0.02, LONG)
    spikes = np.sort(random.choice(LONG, 20, replace=False))
    loss[spikes] = 9.0
    lines = (
        f'{{"kind":"step","phase":"train","t":{0.01 * row:.2f},"step":{row + 1},"loss":{value:.9f},"tokens":512}}'
        for row, value in enumerate(loss)
    )
    write(root / "spiky", [])
    (root / "spiky/events.jsonl").write_text("\n".join(lines) + "\n")
    return root, spikes + 1


@pytest.fixture
def long_series(spiky: tuple[Path, NDArray[np.int64]], root: Path, series: Series) -> Series:
    root.rmdir()
    root.symlink_to(spiky[0])
    return series


@pytest.mark.parametrize("points", [400, 777, 2000])
def test_no_spike_is_lost_at_any_width_and_zoom(
    long_series: Series, spiky: tuple[Path, NDArray[np.int64]], points: int
) -> None:
    for begin, end in ((1, LONG), (LONG // 3, LONG // 2), (LONG // 2, LONG // 2 + 10_000)):
        (line,) = long_series(runs=["spiky"], keys=["loss"], points=points, begin=begin, end=end)
        inside = spiky[1][(spiky[1] >= begin) & (spiky[1] <= end)]
        columns = np.minimum((inside - begin) * points // (end - begin), points - 1)
        assert (line["high"][columns] == 9.0).all()
        assert np.count_nonzero(line["high"] == 9.0) == len(set(columns.tolist()))
        assert line["total"] == end - begin + 1


def test_buckets_are_minimum_maximum_and_mean_of_their_rows(root: Path, long_series: Series) -> None:
    (line,) = long_series(runs=["spiky"], keys=["loss"], points=500)
    rows = Run.load(root / "spiky").metrics()["loss"].value
    edges = np.searchsorted(np.arange(1, LONG + 1), np.linspace(1, LONG, 501))
    for column in (0, 17, 498):
        part = rows[edges[column] : edges[column + 1]]
        np.testing.assert_allclose(line["low"][column], part.min(), rtol=1e-6)
        np.testing.assert_allclose(line["high"][column], part.max(), rtol=1e-6)
        np.testing.assert_allclose(line["mean"][column], part.mean(), rtol=1e-6)


def test_a_small_range_has_every_row_to_the_bit(root: Path, long_series: Series) -> None:
    (line,) = long_series(runs=["spiky"], keys=["loss"], points=400, begin=1000, end=1300)
    own = Run.load(root / "spiky").metrics()["loss"]
    assert line["exact"] and line["total"] == 301
    assert line["x"].tolist() == list(range(999, 1302)), "one more on each side, so that the line goes on"
    assert line["value"].tolist() == own.value[998:1301].tolist()


@pytest.mark.parametrize("alpha", [0.5, 0.05])
def test_smoothing_is_over_every_row_whatever_is_shown(root: Path, long_series: Series, alpha: float) -> None:
    own = Run.load(root / "spiky").metrics()["loss"]
    expected = smooth(own.value, alpha)
    (line,) = long_series(runs=["spiky"], keys=["loss"], points=300, begin=90_000, end=90_200, alpha=alpha)
    np.testing.assert_allclose(line["smooth"], expected[89_998:90_201], rtol=1e-9)
    assert line["ema"] == [pytest.approx(expected[-1], rel=1e-9), 1.0]
    (line,) = long_series(runs=["spiky"], keys=["loss"], points=100, alpha=alpha)
    np.testing.assert_allclose(line["smooth"][50], expected[100_000:102_000].mean(), rtol=1e-3)


def test_a_range_in_a_long_run_is_small(client: TestClient, long_series: Series) -> None:
    question = {"runs": ["spiky"], "keys": ["loss", "tokens"], "points": 1000, "alpha": 0.1}
    assert len(client.get("/api/series", params=question).content) < 50_000


@pytest.mark.parametrize("axis", AXES)
def test_the_server_and_the_terminal_board_have_the_same_numbers(root: Path, series: Series, axis: str) -> None:
    folder = write(root / "llama-20260528-001", training(), **ABOUT)
    watched = WatchedRun(Run.load(folder))
    while not watched.caught_up:
        watched.read(1.0)
    tokens, main = watched.history.curve("tokens"), watched.main()
    for line in series(runs=[folder.name], keys=["loss", "validation/loss", "grad_norm"], points=1000, axis=axis):
        curve = watched.history.curve(line["key"])
        assert isinstance(curve, Curve)
        placed = curve.on_axis(axis, watched.run.created_at, tokens, main)
        assert placed is not None
        assert line["exact"]
        np.testing.assert_array_equal(line["x"], placed.x)
        np.testing.assert_array_equal(line["value"], placed.mean)
        assert line["best"] == (None if placed.best() is None else list(placed.best() or ()))
        assert line["last"] == [placed.x[-1], curve.last_value]


def test_all_series_of_an_answer_lie_on_one_grid(root: Path, series: Series) -> None:
    write(root / "short", steps(500))
    write(root / "late", steps(900, first=400))
    short, late = series(runs=["short", "late"], keys=["loss"], points=100)
    assert len(short["low"]) == len(late["low"]) == 100
    assert np.isnan(short["low"][60:]).all() and not np.isnan(short["low"][:38]).any()
    assert np.isnan(late["low"][:30]).all() and not np.isnan(late["low"][40:]).any()


def test_the_line_of_a_baseline_lies_on_the_grid_of_the_run_beside_it(root: Path, series: Series) -> None:
    """A long one takes no columns away from a short run."""
    write(root / "base", steps(4000))
    write(root / "own", steps(40))
    below, own = series(runs="own", keys="loss", points=100, beside=["base", "gone"])
    assert [below["run"], own["run"]] == ["base", "own"]
    assert [len(below["x"]), len(own["x"])] == [41, 40], "and a row to draw the line on to"


def _forked(root: Path) -> None:
    """A run of 4,000 steps with a spike, a fork of its step 3,000, and a fork of that one's step 3,500."""
    write(root / "base", steps(4000, loss=lambda step: 9.0 if step == 1777 else 2 + 6 / step if step <= 3000 else 1.0))
    write(root / "fork", steps(1000, first=3001), parent="base", parent_step=3000)
    write(root / "again", steps(100, first=3501), parent="fork", parent_step=3500)


def test_a_fork_has_the_line_of_its_parent_up_to_where_it_began(root: Path, series: Series) -> None:
    _forked(root)
    assert [line["run"] for line in series(runs="fork", keys="loss", points=100)] == ["fork"], "unless asked for"
    before, own = series(runs="fork", keys="loss", points=8000, inherited=1)
    assert (before["run"], before["inherited"], own["inherited"]) == ("fork", "base", None)
    assert before["x"].tolist() == list(range(1, 3001)) and before["value"].min() > 1.0
    assert own["x"].tolist() == list(range(3001, 4001))
    assert before["last"] == [3000.0, 2 + 6 / 3000]
    assert (before["position"], before["total"], before["best"], before["marks"]) == (3000, 3000, None, [])


def test_of_a_fork_of_a_fork_each_ancestor_has_its_part(root: Path, series: Series) -> None:
    _forked(root)
    lines = {line["inherited"]: line for line in series(runs="again", keys="loss", points=8000, inherited=1)}
    assert {name: (line["x"][0], line["x"][-1]) for name, line in lines.items()} == {
        "fork": (3001, 3500),
        "base": (1, 3000),
        None: (3501, 3600),
    }


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_the_line_that_a_fork_inherits_is_the_ancestors_at_every_width(
    root: Path, series: Series, alpha: float
) -> None:
    _forked(root)
    question = {"keys": "loss", "points": 150, "begin": 1, "end": 3600, "alpha": alpha}
    lines = {line["inherited"]: line for line in series(runs="again", inherited=1, **question)}
    (base,) = series(runs="base", **question)
    (fork,) = series(runs="fork", **question)
    for name in ("low", "high", "mean", "smooth") if alpha < 1 else ("low", "high", "mean"):
        np.testing.assert_array_equal(lines["base"][name][:124], base[name][:124])
        assert np.isnan(lines["base"][name][126:]).all()
        np.testing.assert_array_equal(lines["fork"][name][126:145], fork[name][126:145])
    assert np.count_nonzero(lines["base"]["high"] == 9.0) == 1


def test_a_fork_whose_parent_is_gone_or_leads_out_has_its_own_line(root: Path, series: Series, tmp_path: Path) -> None:
    _forked(root)
    (root / "base").rename(tmp_path / "elsewhere")
    assert [line["inherited"] for line in series(runs="fork", keys="loss", inherited=1)] == [None]
    (root / "base").symlink_to(tmp_path / "elsewhere")
    assert [line["inherited"] for line in series(runs="fork", keys="loss", inherited=1)] == [None]


def test_where_no_fork_counts_on_and_of_the_machine_nothing_is_inherited(root: Path, series: Series) -> None:
    write(root / "base", training(), **ABOUT)
    write(root / "fork", training()[200:], **ABOUT, parent="base", parent_step=100)
    for axis in AXES:
        lines = series(runs="fork", keys=["loss", "sys/cpu/percent"], axis=axis, inherited=1)
        assert any(line["key"].startswith("sys/") for line in lines)
        assert [line["key"] for line in lines if line["inherited"]] == (["loss"] if axis == "step" else [])


def test_nan_and_infinity_break_the_line_and_are_marked(root: Path, series: Series) -> None:
    nan = {"kind": "step", "t": 300.5, "step": 301, "loss": None, "nonfinite": {"loss": "nan"}}
    inf = {"kind": "step", "t": 302.5, "step": 302, "loss": None, "nonfinite": {"loss": "inf"}}
    write(root / "sick", [*steps(300), nan, inf, *steps(300, first=303)])
    (line,) = series(runs=["sick"], keys=["loss"], points=1000)
    assert np.isnan(line["value"][300]) and np.isinf(line["value"][301])
    assert [mark for mark in line["marks"] if mark["kind"] == "nan"] == [
        {"x": 301.0, "kind": "nan", "text": "NaN at step 301"}
    ]
    (line,) = series(runs=["sick"], keys=["loss"], points=50)
    assert np.isfinite(line["low"]).all() and np.isfinite(line["mean"]).all()


def test_a_spike_and_a_silence_are_marked(root: Path, series: Series) -> None:
    spike = {"kind": "step", "t": 500.5, "step": 501, "loss": 50.0}
    late: list[Any] = [{**event, "t": event["t"] + 9000.0} for event in steps(400, first=502)]
    write(root / "bumpy", [*steps(500, loss=lambda step: 2 + 0.1 * math.sin(step)), spike, *late])
    (line,) = series(runs=["bumpy"], keys=["loss"])
    told = {mark["kind"]: mark for mark in line["marks"]}
    assert told["spike"]["x"] == 501.0 and "50" in told["spike"]["text"]
    assert told["stall"]["x"] == 502.0 and "2 h" in told["stall"]["text"]


def test_where_a_curve_begins_high_and_falls_is_no_spike(root: Path, series: Series) -> None:
    values = [10 + 900 / n**1.5 for n in range(1, 130)]
    falling = [{"kind": "scalars", "t": n, "step": n, "values": {"ppl": ppl}} for n, ppl in enumerate(values, 1)]
    write(root / "a", falling, **ABOUT)
    (line,) = series(runs=["a"], keys=["ppl"], points=200)
    assert line["marks"] == []


def test_a_warning_about_a_metric_stands_on_its_curve_alone(root: Path, series: Series) -> None:
    notes = [
        {"kind": "note", "t": 50.0, "step": 50, "text": "held-out loss rises", "level": "warning", "metric": "loss"},
        {"kind": "note", "t": 60.0, "step": 60, "text": "the disk is full", "level": "warning"},
    ]
    write(root / "warned", [*steps(100, loss=lambda step: 2.0, lr=lambda step: 1e-3), *notes])
    loss, rate = series(runs=["warned"], keys=["loss", "lr"])
    assert [mark["text"] for mark in loss["marks"]] == ["held-out loss rises", "the disk is full"]
    assert [mark["text"] for mark in rate["marks"]] == ["the disk is full"]


def test_a_resumed_run_is_one_line_and_what_was_trained_again_is_another(root: Path, series: Series) -> None:
    resume = {"kind": "resume", "t": 300.0, "step": 200}
    again = [{**event, "t": event["t"] + 100.0} for event in steps(300, first=201, loss=lambda step: 1.0)]
    write(root / "resumed", [*steps(300, loss=lambda step: 5.0), resume, *again])
    (line,) = series(runs=["resumed"], keys=["loss"])
    assert line["x"].tolist() == list(range(1, 501))
    assert line["resumes"] == [200.0]
    line, void = series(runs=["resumed"], keys=["loss"], superseded=1)
    assert (line["superseded"], void["superseded"]) == (False, True)
    assert void["x"].tolist() == list(range(201, 301)) and set(void["value"].tolist()) == {5.0}


def test_what_is_written_later_is_in_the_next_answer(root: Path, series: Series) -> None:
    folder = write(root / "live", steps(100))
    assert series(runs=["live"], keys=["loss"])[0]["position"] == 100
    append(folder, steps(50, first=101))
    assert series(runs=["live"], keys=["loss"])[0]["position"] == 150


@pytest.mark.parametrize(
    "question",
    [
        "from=nan", "from=1e999", "to=x", "from=5&to=1", "points=0", "points=1e9", "points=-3", "alpha=0", "alpha=2",
        "axis=time", "superseded=maybe", "from=1_0", "points=99999999999999999999999", "from=0x10", "alpha=",
    ],
)  # fmt: skip
def test_a_malformed_range_is_refused_in_words(client: TestClient, root: Path, question: str) -> None:
    write(root / "run", steps(10))
    answer = client.get(f"/api/series?runs=run&keys=loss&{question}")
    if question == "alpha=":
        assert answer.status_code == 200
        return
    assert answer.status_code == 400
    assert question.split("=")[0].split("&")[0] in answer.json()["error"]


def test_the_size_of_an_answer_is_bounded(client: TestClient, root: Path) -> None:
    write(root / "run", steps(10))
    for question in (
        {"runs": [f"r{n}" for n in range(201)], "keys": ["loss"]},
        {"runs": ["run"], "keys": [f"k{n}" for n in range(65)]},
        {"runs": [f"r{n}" for n in range(100)], "keys": ["a", "b", "c"], "points": 8000},
    ):
        assert client.get("/api/series", params=question).status_code == 400
    assert client.get("/api/series", params={"runs": ["nobody"], "keys": ["loss"]}).status_code == 404
    assert client.get("/api/series").status_code == 400
