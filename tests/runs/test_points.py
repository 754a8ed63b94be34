"""The points that a run leaves when it ends: a copy of its stream's, that no reader trusts over the stream."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linnet
from linnet.runs import Metrics, RunStore, add_note
from linnet.runs.columns import Term
from linnet.runs.figure_reader import read_figures
from linnet.runs.point_keeper import PointKeeper
from linnet.runs.points_cache import kept_figures
from linnet.runs.selection import Filters, select
from tests.runs import random_streams
from tests.runs.random_streams import MACHINE, content, figures_of


@pytest.fixture(scope="module", autouse=True)
def short_streams() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linnet.runs.point_keeper._SHORTEST", 0)
        yield


WHOLE = {"loss": frozenset((3, 15))}


def as_read(events: Path) -> str:
    """What whole curves say."""
    return repr(figures_of(Metrics(events, cached=False), MACHINE))


def as_told(events: Path) -> str:
    return repr(read_figures(str(events.parent), MACHINE))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_streams.lines, random_streams.lines, st.sampled_from([b"", b'{"kind":"step"']), st.integers(0))
def test_kept_points_say_what_the_stream_says(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], late: list[bytes], torn: bytes, damage: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    events, points = folder / "events.jsonl", folder / ".cache/points"
    events.write_bytes(content(lines) + torn)
    if PointKeeper(events).save():
        assert repr(kept_figures(str(folder), MACHINE)) == as_read(events)
        written = points.read_bytes()
        points.write_bytes(written[: damage % len(written)])
        assert as_told(events) == as_read(events)
        at = damage % len(written)
        points.write_bytes(written[:at] + bytes([written[at] ^ 1 << damage % 8]) + written[at + 1 :])
        assert as_told(events) == as_read(events)
        points.write_bytes(written)
    with events.open("ab") as stream:
        stream.write(content(late))
    assert as_told(events) == as_read(events)
    events.write_bytes(content([*late, *lines]))  # another stream beside points that are sound
    assert as_told(events) == as_read(events)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_streams.lines, st.lists(st.integers(0, 3000), max_size=4), st.integers(1, 300))
def test_points_may_be_collected_while_the_stream_is_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], at_once: int
) -> None:
    events = tmp_path_factory.mktemp("run") / "events.jsonl"
    written, done = content(lines), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linnet.runs.point_keeper._AT_ONCE", at_once)
        patch.setattr("linnet.runs.point_keeper._BLOCK", 64)
        keeper = PointKeeper(events)
        for cut in sorted(cuts):
            with events.open("ab") as stream:
                stream.write(written[done:cut])
            done = max(done, cut)
            keeper.collect()
    with events.open("ab") as stream:
        stream.write(written[done:])
    if keeper.save():
        assert repr(kept_figures(str(events.parent), MACHINE)) == as_read(events)


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number in range(1, 21):
            run.log(number, loss=abs(number - 10) / 4, lr=1 / number)
            if number % 5 == 0:
                run.eval(number, "validation", loss=number / 2)
    return tmp_path / "a"


@pytest.fixture
def no_stream_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_scan", "_figures_of_metrics"):
        monkeypatch.setattr(f"linnet.runs.figure_reader.{name}", lambda *_: pytest.fail("a whole stream was read"))


@pytest.mark.usefixtures("no_stream_is_read")
def test_a_run_that_ended_answers_without_its_stream(ended: Path) -> None:
    figures = read_figures(str(ended), {**WHOLE, "validation/loss": frozenset((12,)), "gone": frozenset((1,))})
    assert set(figures) == {"loss", "validation/loss"}
    loss = figures["loss"]
    assert (loss.count, loss.first, loss.last) == (20, (1, 2.25), (20, 2.5))
    assert (loss.low, loss.high, loss.at) == ((10, 0.0), (20, 2.5), {3: (3, 1.75), 15: (15, 1.25)})
    assert figures["validation/loss"].at == {12: (10, 5.0)}


@pytest.mark.usefixtures("no_stream_is_read")
def test_what_is_added_after_the_end_counts(ended: Path) -> None:
    run = RunStore(ended.parent).find("a")
    add_note(run, "a good one")
    with (ended / "events.jsonl").open("ab") as stream:
        stream.write(b'{"kind":"eval","phase":"eval","t":9.0,"step":20,"name":"test","loss":0.5,"nonfinite":{}}\n')
        stream.write(b'{"kind":"eval","phase":"eval","t":9.0,"step":20,"name":"validation","loss":0.25}\n')
    figures = read_figures(str(ended), {**WHOLE, "test/loss": frozenset(), "validation/loss": frozenset((99,))})
    assert figures["loss"].count == 20
    assert figures["test/loss"].last == (20, 0.5)
    assert (figures["validation/loss"].low, figures["validation/loss"].at) == ((20, 0.25), {99: (20, 0.25)})


def test_a_resumed_run_tells_no_void_steps(ended: Path) -> None:
    with linnet.start(ended.parent, resume="a", from_step=12, system_every=0) as run:
        run.log(13, loss=9.0, lr=0.0)
        figures = read_figures(str(ended), {"loss": frozenset((99,))})["loss"]
        assert (figures.high, figures.at) == ((13, 9.0), {99: (13, 9.0)})  # the points of the first end are stale
    kept = kept_figures(str(ended), {"loss": frozenset((99,))})
    assert repr(kept) == repr({"loss": figures})


@pytest.mark.usefixtures("no_stream_is_read")
def test_a_copied_run_has_its_points_too(ended: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies/a"
    shutil.copytree(ended, copy, copy_function=shutil.copyfile)
    assert read_figures(str(copy), WHOLE) == read_figures(str(ended), WHOLE)


def test_points_of_another_run_are_not_believed(ended: Path, tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="b", system_every=0) as run:
        run.log(1, loss=5.0)
    shutil.copyfile(ended / ".cache/points", tmp_path / "b/.cache/points")
    assert kept_figures(str(tmp_path / "b"), WHOLE) is None
    assert read_figures(str(tmp_path / "b"), WHOLE)["loss"].last == (1, 5.0)


def test_a_stream_that_was_changed_in_place_is_read_anew(ended: Path) -> None:
    events = ended / "events.jsonl"
    status = events.stat()
    events.write_bytes(events.read_bytes().replace(b'"loss":2.25', b'"loss":7.25'))
    os.utime(events, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_figures(str(ended), WHOLE)["loss"].first == (1, 7.25)


def test_nan_is_kept_and_no_extreme(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number, loss in enumerate((3.0, math.nan, 1.0, math.inf), 1):
            run.log(number, loss=loss)
    kept = kept_figures(str(tmp_path / "a"), {"loss": frozenset((2,))})
    assert kept is not None
    assert (kept["loss"].low, kept["loss"].high, kept["loss"].last) == ((3, 1.0), (1, 3.0), (4, math.inf))
    point = kept["loss"].at[2]
    assert point is not None and math.isnan(point[1])


def test_the_machines_figures_are_kept(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.log(7, loss=1.0)
        run.system({"cpu": {"percent": 50.0}})
    kept = kept_figures(str(tmp_path / "a"), {"sys/cpu/percent": frozenset()})
    assert kept is not None and kept["sys/cpu/percent"].last == (7, 50.0)


@pytest.mark.usefixtures("no_stream_is_read")
def test_a_long_run_is_collected_by_its_thread_so_that_its_end_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.runs.point_keeper._AT_ONCE", 20_000)
    monkeypatch.setattr("linnet.runs.sink.Upkeep.maintain_seconds", 0.01)
    collected = threading.Event()
    take = PointKeeper._take
    monkeypatch.setattr(PointKeeper, "_take", lambda self, *end: (take(self, *end), collected.set())[0])
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number in range(1, 1001):
            run.log(number, loss=1 / number)
            if number % 100 == 0:
                collected.clear()
                assert collected.wait(10)
    figures = read_figures(str(tmp_path / "a"), WHOLE)["loss"]
    assert (figures.count, figures.low) == (1000, (1000, 0.001))


def test_a_loop_that_is_faster_than_its_thread_ends_without_waiting_for_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.runs.point_keeper._AT_ONCE", 20_000)
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        for number in range(1, 1001):
            run.log(number, loss=1 / number)
    assert not (tmp_path / "a/.cache").exists()
    assert read_figures(str(tmp_path / "a"), WHOLE)["loss"].count == 1000


@pytest.mark.parametrize(("shortest", "longest"), [(0, 100), (8000, 9000)])
def test_a_long_or_short_stream_leaves_none(
    tmp_path: Path, shortest: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.runs.point_keeper._SHORTEST", shortest)
    monkeypatch.setattr("linnet.runs.point_keeper._LONGEST", longest)
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    assert not (tmp_path / "a/.cache").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError(), RuntimeError("odd")])
def test_an_end_that_cannot_leave_points_is_an_end(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("linnet.runs.points_cache.write_file", refuse)
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    assert RunStore(tmp_path).find("a").status == "completed"
    assert not caplog.records
    assert read_figures(str(tmp_path / "a"), WHOLE)["loss"].last == (1, 1.0)


@pytest.mark.usefixtures("no_stream_is_read")
def test_a_first_question_about_runs_that_ended_decodes_no_stream(ended: Path) -> None:
    selection = select(RunStore(ended.parent), filters=Filters(where="best(loss)<1 and loss@3>1.5 and min(lr)<1"))
    at_step = Term("metric", "loss", step=15)
    selection.read([at_step])
    assert [record.value(at_step) for record in selection] == [1.25]
