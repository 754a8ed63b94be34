"""The figures of a metric, read without its curve: the same that the curve says."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linnet
from linnet.runs import Metrics, RunStore
from linnet.runs.columns import Term
from linnet.runs.figure_index import FigureIndex, stamp_of
from linnet.runs.figure_reader import read_figures
from linnet.runs.figures import MetricFigures
from linnet.runs.processes import in_processes
from linnet.runs.selection import Filters, select
from tests.conftest import FIXTURES
from tests.runs import random_streams
from tests.runs.random_streams import WANTED, content, figures_of


# On a machine with other work the first draw alone may take longer than hypothesis thinks well.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_streams.lines, st.booleans())
def test_figures_are_those_of_the_metrics(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], torn: bool
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "events.jsonl").write_bytes(content(lines) + (b'{"kind":"step"' if torn else b""))
    expected = figures_of(Metrics(folder / "events.jsonl", cached=False))
    assert repr(read_figures(str(folder), WANTED)) == repr(expected)


def test_figures_of_a_training_are_read_without_numpy(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number in range(1, 101):
            run.log(number, loss=1 / number, acc=number / 100)
            if number % 20 == 0:
                run.eval(number, "validation", loss=2 / number)
                run.log(number, {"own/score": number})
    wanted = {"loss": frozenset((50, 1000)), "validation/loss": frozenset((50,)), "own/score": frozenset[int]()}
    figures = read_figures(str(tmp_path / "a"), wanted)
    assert figures["loss"].low == (100, 0.01)
    assert figures["loss"].at == {50: (50, 0.02), 1000: (100, 0.01)}
    assert figures["validation/loss"].at == {50: (40, 0.05)}
    assert figures["own/score"].last == (100, 100.0)


def test_what_a_resume_made_void_is_not_told(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number in range(1, 11):
            run.log(number, loss=10.0 - number)
    with linnet.start(tmp_path, resume="a", from_step=5, system_every=0) as run:
        run.log(6, loss=9.0)
    figures = read_figures(str(tmp_path / "a"), {"loss": frozenset((10,))})["loss"]
    assert (figures.low, figures.last, figures.at) == ((5, 5.0), (6, 9.0), {10: (6, 9.0)})


@pytest.mark.parametrize("folder", ["toy", "kaun-board", "munin"])
def test_figures_of_every_ancestors_run(folder: str, tmp_path: Path) -> None:
    for record in select(RunStore(FIXTURES / folder)):
        metrics = record.open().metrics(cached=False)
        foreign = record.summary.manifest.dialect not in ("linnet", "toy")
        read = read_figures(record.path, {name: frozenset[int]() for name in metrics}, foreign=foreign)
        last = {name: metrics[name].latest for name in metrics}
        assert repr({name: figures.last for name, figures in read.items()}) == repr(last)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for number, lr in enumerate((0.1, 0.2, 0.3)):
        with linnet.start(tmp_path, run_id=f"run-{number}", config={"lr": lr}, system_every=0) as run:
            for at in range(1, 21):
                run.log(at, loss=lr * abs(at - 10), lr=lr / at)
    _age(tmp_path)
    return tmp_path


def _age(root: Path) -> None:
    """A stream of some days ago; what was changed this moment is not kept."""
    for events in root.glob("*/events.jsonl"):
        os.utime(events, (1e9, 1e9))


BEST = Term("metric", "loss", "max")


def test_the_index_answers_for_streams_that_did_not_change(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.figure_index._SETTLED", -1.0)
    first = select(RunStore(sweep), filters=Filters(where="max(loss)>1"))
    assert [record.number(BEST) for record in first] == [0.2 * 10, 0.3 * 10]
    monkeypatch.setattr("linnet.runs.selection.read_figures", lambda *_, **__: pytest.fail("a stream was read"))
    again = select(RunStore(sweep), filters=Filters(where="max(loss)>1"))
    assert [record.value(BEST) for record in again] == [record.value(BEST) for record in first]


def test_the_index_never_answers_for_a_stream_that_did(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.figure_index._SETTLED", -1.0)
    select(RunStore(sweep), filters=Filters(where="max(loss)>1"))
    events = sweep / "run-0/events.jsonl"
    lines = events.read_bytes().replace(b'"loss":0.9', b'"loss":7.9')  # same length
    events.write_bytes(lines)
    os.utime(events, (1e9, 1e9))  # and the same time
    again = select(RunStore(sweep), filters=Filters(where="max(loss)>1"))
    assert next(iter(again)).value(BEST) == 7.9


@pytest.mark.parametrize("damage", [b"", b"\0" * 50, b"not an index"])
def test_a_damaged_index_is_read_anew(sweep: Path, damage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.figure_index._SETTLED", -1.0)
    filters = Filters(where="max(loss)>1")
    assert len(select(RunStore(sweep), filters=filters)) == 2
    index = sweep / ".cache/figures"
    whole = index.read_bytes()
    index.write_bytes(damage)
    assert len(select(RunStore(sweep), filters=filters)) == 2
    index.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    assert len(select(RunStore(sweep), filters=filters)) == 2


def test_a_folder_that_cannot_be_written_just_has_no_index(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("linnet.runs.figure_index._SETTLED", -1.0)
    monkeypatch.setattr("linnet.runs.figure_index.write_file", refuse)
    assert len(select(RunStore(sweep), filters=Filters(where="max(loss)>1"))) == 2
    assert not (sweep / ".cache/figures").exists()


def test_a_stream_that_changed_this_moment_is_not_kept(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    index, folder = FigureIndex(tmp_path), str(tmp_path / "a")
    wanted = {"loss": frozenset[int]()}
    index.put(folder, stamp_of(folder), wanted, {"loss": MetricFigures(1)})
    assert index.get(folder, stamp_of(folder), wanted) is None


def test_work_by_processes_is_the_work_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.processes.threading.active_count", lambda: 1)
    monkeypatch.setattr("linnet.runs.processes._cores", lambda: 3)
    numbers = list(range(1000))
    assert in_processes(numbers, lambda number: float(number), float) == numbers
    here = os.getpid()

    def fails_elsewhere(number: int) -> float:
        if os.getpid() != here:
            raise RuntimeError
        return math.sqrt(number)

    assert in_processes(numbers, fails_elsewhere, float) == [math.sqrt(number) for number in numbers]
    monkeypatch.setattr("os.fork", lambda: (_ for _ in ()).throw(BlockingIOError()))
    assert in_processes(numbers, lambda number: float(number), float) == numbers
