"""Whatever a training loop hands to its run is logged, and no call of a session raises into the loop."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linnet
from linnet.runs import Session, examine
from tests.runs.conftest import lines_of

Call = Callable[[Session], object]


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log({"loss": 0.5, "lr": 0.1}, step=3),
        lambda run: run.log({"loss": 0.5, "lr": 0.1}, 3),
        lambda run: run.log({"loss": 0.5}, step=3, lr=0.1),
        lambda run: run.log({"step": 3, "loss": 0.5, "lr": 0.1}),
        lambda run: run.log(step=3, loss=0.5, lr=0.1),
        lambda run: run.log(3, {"loss": 0.5, "lr": 0.1}),
        lambda run: run.log(3, {"loss": 0.5}, lr=0.1),
        lambda run: run.log(3, loss=0.5, lr=0.1),
        lambda run: run.log(3.0, loss=0.5, lr=0.1),
        lambda run: run.log(np.int64(3), {"loss": 0.5, "lr": np.float32(0.1).item()}),
        lambda run: (run.log(2, acc=1.0), run.log({"loss": 0.5, "lr": 0.1}, commit=True)),
        lambda run: (run.log(2, acc=1.0), run.log(loss=0.5, lr=0.1)),
        lambda run: (run.log(2, acc=1.0), run.log(None, {"loss": 0.5, "lr": 0.1})),
    ],
)
def test_a_step_is_logged_in_every_way_people_write_it(
    root: Path, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        call(run)
    event = next(line for line in lines_of(root / "a") if line["kind"] == "step")
    assert {name: event[name] for name in ("step", "loss")} == {"step": 3, "loss": 0.5}
    assert event["lr"] == pytest.approx(0.1)
    assert "values" not in event
    assert not caplog.records
    assert examine(linnet.open("a")).sound


def test_without_a_step_the_next_one_is_taken(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log({"loss": 3.0})
        run.log(loss=2.0)
        run.log({"acc": 0.5}, step=10)
        run.log({"acc": 0.6}, commit=False)  # as W&B has it: more of the same step follows
        run.log({"loss": 1.0})
        run.step(20, 0.5)
        run.log(acc=0.7)
    metrics = linnet.open("a").metrics()
    assert metrics["loss"].step.tolist() == [1, 2, 11, 20]
    assert metrics["acc"].step.tolist() == [10, 11, 21]
    assert lines_of(root / "a")[-1]["final_step"] == 21


@pytest.mark.parametrize(("from_step", "following"), [(None, 11), (6, 7)])
def test_after_a_resume_the_next_step_is_that_of_the_run(root: Path, from_step: int | None, following: int) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(1, 11):
            run.log(step, loss=1.0)
    with linnet.start(resume="a", from_step=from_step, system_every=0) as run:
        run.log(loss=0.5)
    assert linnet.open("a").metrics()["loss"].latest == (following, 0.5)


def test_a_step_that_was_given_leaves_a_metric_called_step_alone(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(7, {"step": 5.0, "loss": 0.5})
        run.log({"step": 6, "acc": 0.5}, step=8)
        run.log({"step": 0.25, "acc": 0.5})  # no whole number: a metric
    metrics = linnet.open("a").metrics()
    assert metrics["step"].step.tolist() == [7, 8, 9]
    assert metrics["step"].value.tolist() == [5.0, 6.0, 0.25]


def test_nested_metrics_are_named_by_their_path(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(7, {"train": {"loss": 0.2, "by": {"class": {1: 0.5}}}, "none": {}})
        run.scalars(8, {"val": {"acc": 0.5}})
    metrics = linnet.open("a").metrics()
    assert metrics.names() == ["train/loss", "train/by/class/1", "val/acc"]
    assert metrics["train/loss"].latest == (7, 0.2)


def test_a_value_that_is_no_number_is_kept_and_warned_of_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture = np.zeros((2, 2, 3))
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=0.5, mood="fine", sizes=[1, 2], picture=picture)
        run.log(2, loss=None, acc=0.5)
        run.log(3, loss=math.nan, mood="worse")
        run.log(4, mood="worst")
    first, second, _, fourth = lines_of(root / "a")[1:5]
    assert (first["mood"], first["sizes"], first["picture"]) == ("fine", [1, 2], picture.tolist())
    assert (second["loss"], second["acc"]) == (None, 0.5)
    assert fourth["values"] == {"mood": "worst"}
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "not a number: 'mood' (str), 'sizes' (list), 'picture' (ndarray)" in warnings[0]
    metrics = linnet.open("a").metrics()
    assert metrics.names() == ["loss", "acc"]
    assert metrics["loss"].step.tolist() == [1, 3]  # None is no NaN, and NaN is one
    assert math.isnan(metrics["loss"].value[1])


def test_a_step_that_is_no_number_costs_no_metric(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log("first", loss=0.5)
        run.log(1.5, loss=0.4)
        run.log(math.inf, loss=0.3)
    assert linnet.open("a").metrics()["loss"].step.tolist() == [1, 2, 3]
    assert len(caplog.records) == 1
    assert "the step 'first' is no whole number; 1 is taken" in caplog.text


def test_a_call_that_cannot_be_understood_is_warned_about_once_a_method(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for _ in range(3):
            run.log(1, 0.5)  # type: ignore[arg-type]
            run.step()  # type: ignore[call-arg]
            with run.region():  # type: ignore[call-arg]
                run.log(1, loss=0.5)
    warnings = [record.getMessage() for record in caplog.records]
    assert [warning.partition("()")[0] for warning in warnings] == [
        "run a: a call of log",
        "run a: a call of step",
        "run a: a call of region",
    ]
    assert [line["kind"] for line in lines_of(root / "a")] == ["run_start", *["step"] * 3, "run_end"]


# -- whatever it is given --------------------------------------------------------------------------------------------


class Hostile:
    """Raises at whatever is done with it."""

    def _raise(self, *arguments: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __bool__ = _raise
    __eq__ = __lt__ = __add__ = __radd__ = __getitem__ = __fspath__ = _raise  # type: ignore[assignment]
    __hash__ = object.__hash__
    item = tolist = keys = items = _raise


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Raising(dict[str, Any]):
    def items(self) -> Any:
        raise HostileError

    keys = __iter__ = items


class Adding:
    """A number to `sum`, and to nobody else."""

    def __radd__(self, other: float) -> float:
        return other


def _itself() -> Iterator[Any]:
    knot: list[Any] = []
    knot.append(knot)
    loop: dict[str, Any] = {"loss": 1.0}
    loop["again"] = loop
    yield from (knot, loop, {"a": knot}, (loop, knot))


_ARRAYS = [
    np.zeros((4, 5, 3)),
    np.full((2, 3), np.nan, np.float32),
    np.zeros((2, 3, 4, 5), np.uint8),
    np.array(["a", None], object),
    np.array([(1, "x")], dtype=[("a", "i4"), ("b", "U1")]),
    ([1, 2], [0.0, 1.0, 2.0]),
    [{"a": 1}, {"b": object()}],
    torch.zeros(3, 4, 4, dtype=torch.bfloat16),
    torch.zeros(0),
    [np.zeros((2, 2)), "x"],
]
_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([2**63, -(2**64), 10**400]),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "a\0b", "completed", "loss", "\x1b[2J", "../..", ""]),
    st.binary(max_size=3),
    st.sampled_from([1 + 2j, object(), object, print, math, ..., np.arange(3), np.float16(1), np.zeros((0, 2))]),
    st.builds(Hostile),
    st.builds(Raising, st.just({"loss": 1.0})),
    st.builds(Adding),
    st.sampled_from(list(_itself())),
    st.dictionaries(st.one_of(st.text(max_size=2), st.integers(), st.tuples(st.integers())), st.floats(), max_size=2),
    st.lists(st.floats(), max_size=2),
    st.sampled_from(_ARRAYS),
)
_METHODS = sorted(name for name, _ in inspect.getmembers(Session, inspect.isfunction) if not name.startswith("_"))
_PARAMETERS = {name for method in _METHODS for name in inspect.signature(getattr(Session, method)).parameters}
_words = st.sampled_from([*sorted(_PARAMETERS - {"self"}), "kind", "t", "nonfinite", "commit", "\ud800", ""])


def test_every_public_method_is_among_those_tried() -> None:
    wanted = {
        "log",
        "step",
        "eval",
        "git",
        "gate",
        "region",
        "checkpoint",
        "artifact",
        "finish",
        "run_end",
        "run_start",
        "image",
        "table",
        "histogram",
        "text",
        "audio",
    }
    assert wanted < set(_METHODS)


_call = st.tuples(
    st.sampled_from(_METHODS),
    st.lists(_values, max_size=5),
    st.dictionaries(_words, _values, max_size=4),
)
_log_call = st.tuples(st.just("log"), st.lists(_values, max_size=3), st.dictionaries(_words, _values, max_size=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls=st.lists(st.one_of(_call, _log_call), max_size=10), started=st.booleans())
def test_no_call_of_a_session_raises_and_every_line_is_whole(
    folder: Path, calls: list[tuple[str, list[Any], dict[str, Any]]], started: bool
) -> None:
    logging.getLogger("linnet").setLevel(logging.CRITICAL)
    try:
        run: Any = linnet.start(folder, system_every=0) if started else linnet.runs.RunBundle(folder)
        for method, arguments, options in calls:
            if not hasattr(run, method):
                continue
            made = getattr(run, method)(*arguments, **options)
            if method == "region":
                with made:
                    pass
        if started:
            run.log(5, loss=0.25)
        run.run_end()
        lines = lines_of(run.run_dir)
        assert lines[0]["kind"] == "run_start"
        assert [line["kind"] for line in lines].count("run_start") == 1
        assert lines[-1]["kind"] == "run_end"
        linnet.open(run.run_dir).metrics()
    finally:
        logging.getLogger("linnet").setLevel(logging.NOTSET)
        if started:
            run.finish()
