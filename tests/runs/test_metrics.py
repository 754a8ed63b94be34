"""Metrics: the same numbers whichever way they are read, and charts that hide nothing."""

from __future__ import annotations

import json
import math
import os
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linnet
from linnet.runs import Metrics, cache
from linnet.runs.lines import LineReader
from linnet.runs.metric_parser import MetricParser


def _write(folder: Path, lines: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "events.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def _steps(count: int, start: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "step", "phase": "train", "t": s / 10, "step": s, "loss": 1 / (s + 1), **more}
        for s in range(start, start + count)
    ]


def test_columns_hold_what_was_logged(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        for step in range(1, 301):
            run.log(step, loss=1 / step, lr=0.1, epoch=step // 100)
    metrics = linnet.open(run.run_dir).metrics()
    assert metrics.names() == ["loss", "lr"]
    assert metrics["loss"].step.tolist() == list(range(1, 301))
    assert metrics["loss"].value.tolist() == [1 / step for step in range(1, 301)]
    assert metrics["loss"].epoch.tolist()[-1] == 3
    assert np.all(np.diff(metrics["loss"].t) >= 0)
    assert metrics.last_step == 300
    assert metrics.last_epoch == 3


def test_best_follows_the_goal_else_the_name(root: Path) -> None:
    with linnet.start(goals={"cost": "min"}, system_every=0) as run:
        for step, value in enumerate([3.0, 1.0, math.nan, 2.0, 1.0], start=1):
            names = ["train/loss", "error_rate", "ppl", "accuracy", "cost"]
            run.log(step, dict.fromkeys(names, value))
    metrics = linnet.open(run.run_dir).metrics()
    assert metrics["train/loss"].best == (2, 1.0)
    assert metrics["error_rate"].best == (2, 1.0)
    assert metrics["ppl"].best == (2, 1.0)
    assert metrics["accuracy"].best == (1, 3.0)
    assert metrics["cost"].best == (2, 1.0)
    assert metrics["accuracy"].latest == (5, 1.0)


def test_evaluations_and_other_phases_carry_their_name(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        run.log(1, loss=1.0)
        run.eval(1, "validation", loss=2.0, extra={"bpb": 0.9})
        run._event("step", 1, {"logprob": -0.5}, phase="decode")
    metrics = linnet.open(run.run_dir).metrics()
    assert metrics["validation/loss"].value.tolist() == [2.0]
    assert metrics["validation/bpb"].value.tolist() == [0.9]
    assert metrics["decode/logprob"].value.tolist() == [-0.5]
    assert metrics.main is not None
    assert metrics.main.name == "loss"


def test_a_metric_logged_beside_different_companions_is_one_series(tmp_path: Path) -> None:
    lines = [
        {"kind": "step", "t": s / 10, "step": s, "loss": float(s), **({"lr": 0.1} if s % 3 else {"ppl": 2.0})}
        for s in range(400)
    ]
    metrics = Metrics(_write(tmp_path, lines))
    assert metrics["loss"].step.tolist() == list(range(400))
    assert metrics["loss"].value.tolist() == [float(s) for s in range(400)]


_row = st.fixed_dictionaries(
    {"kind": st.sampled_from(["step", "step", "step", "scalars", "eval", "note", "system"])},
    optional={
        "phase": st.sampled_from(["train", "eval", 3]),
        "step": st.integers(0, 50) | st.none() | st.floats(0, 9),
        "t": st.floats(0, 100) | st.just("x"),
        "loss": st.floats(-5, 5) | st.none() | st.integers(0, 9) | st.booleans() | st.text(max_size=3),
        "lr": st.floats(0, 1),
        "epoch": st.integers(0, 3),
        "values": st.dictionaries(st.sampled_from(["a", "loss"]), st.floats(0, 1), max_size=2),
        "nonfinite": st.just({"loss": "nan"}),
        "name": st.just("validation"),
        "cpu": st.just({"percent": 1.0}),
    },
)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(_row, max_size=12), repeats=st.integers(1, 12))
def test_the_quick_way_gives_what_the_careful_way_gives(rows: list[dict[str, Any]], repeats: int) -> None:
    lines = [json.dumps(row).encode() for row in rows * repeats] + [
        json.dumps(line).encode() for line in _steps(40, lr=0.5)
    ]
    quick, careful = MetricParser(), MetricParser()
    quick.take(b"\n".join(lines) + b"\n")
    for line in lines:
        careful._take_line(line)
    careful._flush()
    assert set(quick.names()) == set(careful.names())
    for field in ("damaged", "last_step", "lines"):
        assert getattr(quick.state, field) == getattr(careful.state, field)
    for name in quick.names():
        one, other = (linnet.runs.Series(name, parser.tables_with(name), "min") for parser in (quick, careful))
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.step, other.step)
        np.testing.assert_array_equal(one.t, other.t)
        np.testing.assert_array_equal(one.epoch, other.epoch)


def test_refresh_takes_in_what_is_new_and_starts_anew_when_the_file_is_another(tmp_path: Path) -> None:
    file = _write(tmp_path, _steps(50))
    metrics = Metrics(file)
    assert not metrics.refresh()
    with file.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in _steps(5, start=50))
    assert metrics.refresh()
    assert len(metrics["loss"]) == 55
    _write(tmp_path, _steps(3, start=1000))
    assert metrics.refresh()
    assert metrics["loss"].step.tolist() == [1000, 1001, 1002]


def test_a_chart_shows_every_spike_of_a_single_step(tmp_path: Path) -> None:
    chance = random.Random(0)
    lines = _steps(100_000)
    spikes = {5_000 * i + chance.randrange(4_000) for i in range(20)}
    for at in spikes:
        lines[at]["loss"] = 100.0
    metrics = Metrics(_write(tmp_path, lines))
    step, value = metrics["loss"].downsample(1000)
    assert len(step) <= 1000
    assert set(step[value == 100.0].tolist()) == spikes
    assert (step[0], step[-1]) == (0, 99_999)
    assert np.all(np.diff(step) > 0)


def test_points_that_are_not_finite_are_left_out_of_a_chart(tmp_path: Path) -> None:
    lines = _steps(10)
    lines[3] |= {"loss": None, "nonfinite": {"loss": "nan"}}
    metrics = Metrics(_write(tmp_path, lines))
    step, value = metrics["loss"].downsample(100)
    assert 3 not in step
    assert np.isfinite(value).all()
    nan = {"loss": None, "nonfinite": {"loss": "nan"}}
    lines = [{"kind": "step", "t": 0, "step": s, "x": 1.0, **nan} for s in range(5)]
    nothing = Metrics(_write(tmp_path / "n", lines))["loss"]
    assert len(nothing.downsample(10)[0]) == 0
    assert nothing.best is None
    assert nothing.latest is not None


def test_a_metric_whose_rows_are_all_void_is_an_empty_curve(tmp_path: Path) -> None:
    metrics = Metrics(_write(tmp_path, [*_steps(3, start=5), {"kind": "resume", "t": 9.0, "step": 2}]))
    assert [len(column) for column in metrics["loss"].downsample(10)] == [0, 0]
    assert metrics["loss"].best is None and metrics["loss"].latest is None


def test_the_machines_figures_belong_to_the_step_of_their_time_and_outlive_a_resume(tmp_path: Path) -> None:
    system = {"kind": "system", "t": 1.0, "cpu": {"percent": 5.0}}
    resume = {"kind": "resume", "t": 1.0, "step": 4}
    file = _write(tmp_path, [system, *_steps(10), system, resume, system, *_steps(2, start=5), system])
    metrics = Metrics(file)
    assert metrics["sys/cpu/percent"].step.tolist() == [0, 9, 4, 6]
    assert metrics["loss"].step.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert Metrics(file, superseded=True)["sys/cpu/percent"].step.tolist() == [0, 9, 4, 6]


def test_a_step_beyond_64_bits_takes_nothing_with_it(tmp_path: Path) -> None:
    lines = _steps(60)
    lines[30]["step"] = 2**63 + 5
    metrics = Metrics(_write(tmp_path, lines))
    assert metrics["loss"].step.tolist() == [*range(30), 2**63 - 1, *range(31, 60)]


def test_a_first_step_without_a_number_does_not_slow_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = _steps(2000)
    lines[0] |= {"loss": None, "nonfinite": {"loss": "nan"}}
    careful: list[bytes] = []
    real = MetricParser._take_line
    monkeypatch.setattr(MetricParser, "_take_line", lambda self, line: (careful.append(line), real(self, line))[1])
    assert len(Metrics(_write(tmp_path, lines))["loss"]) == 2000
    assert len(careful) < 100


def test_a_file_cut_to_nothing_has_no_points(tmp_path: Path) -> None:
    file = _write(tmp_path, _steps(50))
    metrics = Metrics(file)
    file.write_bytes(b"")
    assert metrics.refresh()
    assert metrics.names() == []
    assert not metrics.refresh()


_NONE = [{"low": None, "high": None, "last": None}]


def _one_piece(offset: int, rows: int, columns: list[object]) -> dict[str, object]:
    """What a header would say of a table of one metric and one piece."""
    pieces = [{"offset": offset, "rows": rows, "columns": columns}]
    return {"tables": [{"names": ["loss"], "pieces": pieces, "extremes": _NONE}]}


class TestCache:
    """What was kept is used only while the stream is what it was made from."""

    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(Metrics, "cached_from", 1)
        file = _write(tmp_path, _steps(500))
        Metrics(file)
        assert (tmp_path / ".cache/metrics").exists()
        return file

    def test_an_untouched_stream_is_not_read_again(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MetricParser, "take", lambda *_: pytest.fail("the stream was read"))
        assert Metrics(file)["loss"].step.tolist() == list(range(500))

    def test_a_stream_that_grew_is_read_from_where_it_was(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with file.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in _steps(5, start=500))
        taken: list[int] = []
        real = MetricParser.take
        monkeypatch.setattr(
            MetricParser, "take", lambda self, block, parts: (taken.append(len(block)), real(self, block, parts))[1]
        )
        assert Metrics(file)["loss"].step.tolist() == list(range(505))
        assert sum(taken) < 1000

    def test_one_changed_byte_makes_it_void(self, file: Path) -> None:
        file.write_bytes(file.read_bytes().replace(b'"loss": 0.5', b'"loss": 0.9', 1))
        assert Metrics(file)["loss"].value[1] == 0.9

    def test_one_changed_byte_with_the_old_times_makes_it_void(self, file: Path) -> None:
        there = file.stat()
        file.write_bytes(file.read_bytes().replace(b'"loss": 0.5', b'"loss": 0.9', 1))
        os.utime(file, ns=(there.st_atime_ns, there.st_mtime_ns))
        assert Metrics(file)["loss"].value[1] == 0.9

    def test_a_changed_byte_before_new_lines_makes_it_void(self, file: Path) -> None:
        text = file.read_bytes().replace(b'"loss": 0.5', b'"loss": 0.9', 1)
        file.write_bytes(text + json.dumps(_steps(1, start=500)[0]).encode() + b"\n")
        metrics = Metrics(file)
        assert metrics["loss"].value[1] == 0.9
        assert len(metrics["loss"]) == 501

    def test_a_shorter_stream_makes_it_void(self, file: Path) -> None:
        _write(file.parent, _steps(10))
        assert len(Metrics(file)["loss"]) == 10

    @pytest.mark.parametrize("damage", [b"", b"garbage", b"linnet-metrics-6\n" + b"\xff" * 8])
    def test_a_damaged_cache_is_no_cache(self, file: Path, damage: bytes) -> None:
        (file.parent / ".cache/metrics").write_bytes(damage)
        assert len(Metrics(file)["loss"]) == 500

    def test_a_cut_cache_is_no_cache(self, file: Path) -> None:
        kept = file.parent / ".cache/metrics"
        kept.write_bytes(kept.read_bytes()[:-1000])
        assert len(Metrics(file)["loss"]) == 500

    def test_a_resume_after_the_cache_still_voids_what_was_before(self, file: Path) -> None:
        with file.open("a") as out:
            out.write(json.dumps({"kind": "resume", "t": 60.0, "step": 99}) + "\n")
            out.writelines(json.dumps(line) + "\n" for line in _steps(1, start=100))
        assert Metrics(file)["loss"].step.tolist() == list(range(101))

    def test_lines_too_long_are_still_counted(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LineReader, "longest_line", 100_000)
        monkeypatch.setattr(LineReader, "block_bytes", 50_000)
        file.write_bytes(file.read_bytes() + b"x" * 300_000 + b"\n")
        assert Metrics(file).damaged == 1
        monkeypatch.setattr(MetricParser, "take", lambda *_: pytest.fail("the stream was read"))
        assert Metrics(file).damaged == 1

    def test_another_beginning_of_time_makes_it_void(self, file: Path) -> None:
        line = {"type": "scalar", "step": 1, "wall_time": 105.0, "tag": "x", "value": 1.0}
        _write(file.parent, [line] * 50)
        assert Metrics(file, origin=100.0)["x"].t[0] == 5.0
        assert Metrics(file, origin=95.0)["x"].t[0] == 10.0

    @pytest.mark.parametrize(
        "lie",
        [
            {"position": -1},
            {"position": "all"},
            {"state": {}},
            {"state": {"step_now": "x"}},
            _one_piece(64, 10**15, [0] * 5),
            _one_piece(64, 500, []),
            _one_piece(64, -5, [0] * 5),
            _one_piece(65, 9, [0] * 5),
            _one_piece(64, 10**12, [{"first": 0, "rise": 1}] * 2 + [{"first": 0.5, "rise": 0}] * 3),
            _one_piece(64, 500, [{"first": 0, "rise": 1}] * 5),
            _one_piece(64, 500, [{"first": 0.5, "rise": 0}] * 5),
            _one_piece(64, 500, [{"first": 1 << 63, "rise": 1}] * 5),
            {"tables": [{"names": ["loss", "loss"], "pieces": [], "extremes": _NONE * 2}]},
            {"tables": [{"names": ["loss"], "pieces": [], "extremes": []}]},
        ],
    )
    def test_a_header_that_does_not_fit_is_no_cache(self, file: Path, lie: dict[str, object]) -> None:
        kept = file.parent / ".cache/metrics"
        content = kept.read_bytes()
        at, magic = len(content) - 12 - len(b"linnet-metrics-6\n"), content[-len(b"linnet-metrics-6\n") :]
        begin = at - int.from_bytes(content[at : at + 8], "little")
        header = msgspec.msgpack.encode(msgspec.msgpack.decode(content[begin:at]) | lie)
        sums = len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(4, "little")
        kept.write_bytes(content[:begin] + header + sums + magic)
        assert Metrics(file)["loss"].value.tolist() == [1 / (n + 1) for n in range(500)]

    @settings(max_examples=100, deadline=None)
    @given(
        steps=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=8)
        | st.tuples(st.integers(-(1 << 62), 1 << 62), st.integers(-5, 5), st.integers(0, 9)).map(
            lambda made: [made[0] + made[1] * place for place in range(made[2])]
        ),
        value=st.floats(allow_nan=True),
    )
    def test_a_column_that_is_a_ramp_is_the_same_as_written(self, steps: list[int], value: float) -> None:
        for column in (np.array(steps, np.int64), np.full(len(steps), value), np.array([*steps, value], np.float64)):
            ramp = cache.Ramp.of(column)
            if ramp is not None:
                ramp = msgspec.msgpack.decode(msgspec.msgpack.encode(ramp), type=cache.Ramp)
                assert ramp.rows(np.arange(len(column))).tobytes() == column.tobytes()
        assert len(steps) < 2 or cache.Ramp.of(np.arange(5)) is not None

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.integers(0, 30_000), bit=st.integers(0, 7), cut=st.booleans())
    def test_no_damage_to_the_cache_changes_a_number(self, file: Path, at: int, bit: int, cut: bool) -> None:
        kept = file.parent / ".cache/metrics"
        true = Metrics(file, cached=False)["loss"]
        content = bytearray(kept.read_bytes())
        at %= len(content)
        content[at] ^= 1 << bit
        kept.write_bytes(content[:at] if cut else content)
        loss = Metrics(file)["loss"]
        for key in ("step", "t", "value", "epoch"):
            np.testing.assert_array_equal(getattr(loss, key), getattr(true, key))
        assert (len(loss), loss.latest, loss.best) == (len(true), true.latest, true.best)
        Metrics(file)
        assert kept.stat().st_size >= 500 * 2 * 8  # made anew, for the next damage

    def test_a_damaged_column_is_found_by_whoever_follows_the_run(self, file: Path) -> None:
        kept = file.parent / ".cache/metrics"
        content = bytearray(kept.read_bytes())
        content[200] ^= 1
        kept.write_bytes(content)
        metrics = Metrics(file, read=False)
        metrics.verify()
        assert metrics.names() == []
        metrics.refresh()
        assert metrics["loss"].step.tolist() == list(range(500))


class TestManyRows:
    """Rows that memory shall not hold wait on disk, and nobody can tell."""

    @pytest.fixture
    def little_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LineReader, "block_bytes", 20_000)
        monkeypatch.setattr(Metrics, "most_memory", 50_000)
        monkeypatch.setattr(Metrics, "cached_from", 1)

    def _lines(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [
            {"kind": "step", "t": n / 7, "step": n, "loss": 1 / (n + 1), "lr": n * 0.1} if n % 3 else
            {"kind": "step", "t": n / 7, "step": n, "loss": -n / 3}
            for n in range(6000)
        ]  # fmt: skip
        lines[4000:4000] = [{"kind": "eval", "t": 600.0, "step": 4000, "name": "validation", "loss": 2.5}]
        return lines

    def test_they_are_the_same(self, tmp_path: Path, little_memory: None) -> None:
        file = _write(tmp_path, self._lines())
        true = Metrics(file, cached=False)
        for metrics in (Metrics(file), Metrics(file)):  # read, and from the cache
            assert metrics.names() == true.names()
            for name, series in metrics.items():
                assert (len(series), series.latest, series.best) == (
                    len(true[name]),
                    true[name].latest,
                    true[name].best,
                )
                for key in ("step", "t", "value", "epoch"):
                    np.testing.assert_array_equal(getattr(series, key), getattr(true[name], key))
        assert [entry.name for entry in (tmp_path / ".cache").iterdir()] == ["metrics"]

    @pytest.mark.parametrize("back_to", [10, 5990])
    def test_a_resume_voids_those_on_disk_too(self, tmp_path: Path, little_memory: None, back_to: int) -> None:
        again = [line for line in self._lines() if line["step"] > back_to and line["kind"] == "step"]
        file = _write(tmp_path, [*self._lines(), {"kind": "resume", "t": 900.0, "step": back_to}, *again[:500]])
        true, metrics = Metrics(file, cached=False), Metrics(file)
        np.testing.assert_array_equal(metrics["loss"].step, true["loss"].step)
        np.testing.assert_array_equal(metrics["loss"].value, true["loss"].value)
        assert metrics["loss"].best == true["loss"].best

    def test_a_series_stays_as_it_was_while_its_run_goes_on(self, tmp_path: Path, little_memory: None) -> None:
        file = _write(tmp_path, _steps(2000))
        metrics = Metrics(file)
        before = metrics["loss"]
        with file.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in _steps(2000, start=2000))
        metrics.refresh()
        assert len(before) == len(before.step) == len(before.value) == 2000
        assert len(metrics["loss"].step) == 4000

    def test_a_folder_that_cannot_be_written_keeps_them_in_memory(
        self, tmp_path: Path, little_memory: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = _write(tmp_path, self._lines())
        (tmp_path / ".cache").write_text("a file in the way of the folder")
        np.testing.assert_array_equal(Metrics(file)["loss"].value, Metrics(file, cached=False)["loss"].value)

    def test_memory_does_not_grow_with_the_stream(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LineReader, "block_bytes", 1 << 16)
        monkeypatch.setattr(Metrics, "most_memory", 1 << 18)
        peaks = []
        for count in (10_000, 30_000):
            file = _write(tmp_path / str(count), _steps(count, lr=0.1, acc=0.5))
            tracemalloc.start()
            metrics = Metrics(file)
            assert metrics["loss"].best == (count - 1, 1 / count)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert len(metrics["loss"]) == count
        assert peaks[1] < 1.2 * peaks[0]
        assert peaks[1] < 30_000 * 7 * 8 / 2  # half of what the columns take


def test_a_mistyped_metric_gets_a_suggestion(tmp_path: Path) -> None:
    metrics = Metrics(_write(tmp_path / "run", _steps(3)))
    with pytest.raises(KeyError, match=r"no metric 'lss'; did you mean 'loss'\?"):
        metrics["lss"]
    with pytest.raises(KeyError, match="no metric 'zzz'; there is loss"):
        metrics["zzz"]
    assert metrics.get("lss") is None and "lss" not in metrics
