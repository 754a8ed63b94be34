"""Reading while it is written: every event once, whatever happens to the file."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet
from linnet.runs import Event, EventStream
from linnet.runs.lines import LineReader


def _line(step: int, **more: Any) -> bytes:
    return json.dumps({"kind": "step", "t": step / 10, "step": step, "loss": 1.0, **more}).encode() + b"\n"


def _steps(events: list[Event]) -> list[int | None]:
    return [event.step for event in events]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_a_partial_line_waits_for_its_end(file: Path) -> None:
    whole = _line(1)
    file.write_bytes(whole + _line(2)[:10])
    stream = EventStream(file)
    assert _steps(stream.read_events()) == [1]
    assert stream.read_events() == []
    with file.open("ab") as out:
        out.write(_line(2)[10:])
    assert _steps(stream.read_events()) == [2]


def test_windows_line_ends_and_blank_lines_are_nothing_special(file: Path) -> None:
    file.write_bytes(b"\r\n\n" + _line(1).replace(b"\n", b"\r\n") + b"   \n" + _line(2))
    stream = EventStream(file)
    assert _steps(stream.read_events()) == [1, 2]
    assert stream.damaged == 0


def test_a_missing_file_is_an_empty_stream_until_it_comes(file: Path) -> None:
    stream = EventStream(file)
    assert stream.read_events() == []
    file.write_bytes(_line(1))
    assert _steps(stream.read_events()) == [1]


def test_damaged_lines_are_counted_and_passed_over(file: Path) -> None:
    file.write_bytes(_line(1) + b'{"kind":"st\n' + b"\xff\xfe\n" + b"[1,2]\n" + b"12\n" + _line(2))
    stream = EventStream(file)
    assert _steps(stream.read_events()) == [1, 2]
    assert stream.damaged == 4


def test_unknown_kinds_and_keys_are_passed_on(file: Path) -> None:
    file.write_bytes(b'{"kind":"of_the_future","t":1,"colour":["blue",{"deep":1}]}\n')
    (event,) = EventStream(file).read_events()
    assert event.kind == "of_the_future"
    assert event.data["colour"] == ["blue", {"deep": 1}]


def test_a_file_replaced_by_a_longer_copy_of_itself_is_read_on(file: Path) -> None:
    file.write_bytes(_line(1) + _line(2))
    stream = EventStream(file)
    assert _steps(stream.read_events()) == [1, 2]
    copy = file.with_suffix(".new")
    copy.write_bytes(_line(1) + _line(2) + _line(3))
    copy.replace(file)
    assert _steps(stream.read_events()) == [3]
    assert stream.generation == 0


def test_a_rotated_file_is_read_from_its_beginning(file: Path) -> None:
    file.write_bytes(_line(1) + _line(2))
    stream = EventStream(file)
    stream.read_events()
    file.rename(file.with_suffix(".1"))
    file.write_bytes(_line(7))
    assert _steps(stream.read_events()) == [7]
    assert stream.generation == 1


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_a_truncated_file_never_gives_an_event_twice(file: Path, cut: int) -> None:
    whole = b"".join(_line(step) for step in range(5))
    file.write_bytes(whole)
    stream = EventStream(file)
    assert _steps(stream.read_events()) == [0, 1, 2, 3, 4]
    with file.open("r+b") as out:
        out.truncate(cut)
    assert stream.read_events() == []
    with file.open("ab") as out:
        out.write(b"\n" + _line(9))
    assert _steps(stream.read_events()) == [9]


def test_a_file_written_anew_and_longer_is_noticed(file: Path) -> None:
    file.write_bytes(_line(1) + _line(2))
    stream = EventStream(file)
    stream.read_events()
    with file.open("r+b") as out:  # the same inode, and never shorter when we look
        out.truncate(0)
        out.write(_line(1) + b"".join(_line(step) for step in range(100, 110)))
    assert _steps(stream.read_events()) == list(range(100, 110))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_stream_read_in_any_pieces_gives_the_same_events(data: st.DataObject) -> None:
    import tempfile

    whole = b"".join(_line(step, text="é→" * step) for step in range(6))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=8)) | {len(whole)})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.jsonl"
        stream = EventStream(file)
        events: list[Event] = []
        done = 0
        for cut in cuts:
            with file.open("ab") as out:
                out.write(whole[done:cut])
            done = cut
            events += stream.read_events()
            assert len(events) == whole[:cut].count(b"\n")
    assert _steps(events) == list(range(6))


def test_a_stream_cut_at_every_byte_gives_its_whole_lines(file: Path) -> None:
    whole = b"".join(_line(step, text="ü") for step in range(4)) + b'{"kind":"run_end","t":1.0,"reason":"completed"}\n'
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        stream = EventStream(file)
        assert len(stream.read_events()) == whole[:cut].count(b"\n")
        assert stream.damaged == 0
        stream.close()


_number = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.integers(-(2**63), 2**63 - 1), st.booleans())
_json = st.recursive(
    st.none() | _number | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[linnet.RunBundle, EventStream]]:
    """A run that many examples write to, and who reads it meanwhile."""
    bundle = linnet.RunBundle(tmp_path_factory.mktemp("runs"), "a")
    yield bundle, EventStream(bundle.events_path)
    bundle.run_end(0, None)


@settings(max_examples=150, deadline=None)
@given(step=st.integers(0, 2**53), values=st.dictionaries(st.text(min_size=1), _number, max_size=6), odd=_json)
def test_what_is_written_is_what_is_read(
    written: tuple[linnet.RunBundle, EventStream], step: int, values: dict[str, Any], odd: Any
) -> None:
    bundle, stream = written
    list(stream.read_events())
    bundle.scalars(step, values)
    bundle.note("odd", step=step)
    bundle._event("of_the_future", step, {"thing": odd})
    by_kind = {event.kind: event for event in stream.read_events()}
    assert by_kind.keys() >= {"scalars", "note", "of_the_future"}
    assert by_kind["scalars"].step == step
    assert repr(by_kind["scalars"].data["values"]) == repr(_replaced(values))
    if odd is not None:
        assert repr(by_kind["of_the_future"].data["thing"]) == repr(_replaced(odd))


def _replaced(value: Any) -> Any:
    """Text as UTF-8 can hold it: lone surrogates, which no file can, become question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if isinstance(value, dict):
        return {_replaced(k): _replaced(v) for k, v in value.items()}
    return value


def test_a_line_of_100_mb_is_passed_over_in_bounded_memory(
    file: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    with file.open("wb") as out:
        out.write(_line(1) + b'{"kind":"step","text":"')
        for _ in range(100):
            out.write(b"x" * (1 << 20))
        out.write(b'"}\n' + _line(2))
    process = script(
        """
import sys, resource, linnet, linnet.runs.metrics
from linnet.runs import EventStream
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stream = EventStream(sys.argv[1])
print([e.step for e in stream.read_events()], stream.oversized)
metrics = linnet.runs.Metrics(__import__("pathlib").Path(sys.argv[1]))
print(metrics["loss"].step.tolist(), metrics.damaged)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
""",
        str(file),
    )
    out_text, err = process.communicate(timeout=60)
    first, second, grown = out_text.splitlines() or [err]
    assert first == "[1, 2] 1"
    assert second == "[1, 2] 1"
    assert int(grown) < 120_000  # kB: three times the longest line that is kept


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"kind":"step","step":NaN,"loss":Infinity,"t":-Infinity}',
        b'{"kind":"step","step":1,"loss":' + b"9" * 400 + b',"t":' + b"9" * 400 + b"}",
        b'{"kind":"step","step":' + b"9" * 400 + b',"loss":1}',
        b'{"kind":"step","step":1e999,"loss":1}',
        b'{"kind":"step","step":"one","loss":"two","t":"three"}',
        b'{"kind":7,"t":null,"step":[],"loss":{}}',
        b'{"kind":"scalars","values":[1,2],"step":1}',
        b'{"kind":"scalars","values":{"a":{"b":1}},"nonfinite":{"a.b.c":"nan","":"inf","x":7}}',
        b'{"kind":"system","gpus":{"0":1},"cpu":[1]}',
        b'{"kind":"eval","name":{"a":1},"loss":1,"step":-1}',
        b'{"kind":"resume","step":null}',
        b'{"kind":"resume","step":-5}',
        b'{"kind":"run_end","reason":42}',
        b'{"type":"scalar","tag":{"a":1},"value":"x","wall_time":"y"}',
        b'{"type":"metric"}',
        b'{"type":[1]}',
        b'{"type":"finished","status":{}}',
        b'{"kind":"step","step":1,"loss":NaN,"x":"' + b"N" * 100_000,
        b"\x00" * 1000,
        b"\xed\xa0\x80",
        b'"\\ud800"',
    ],
)
def test_hostile_lines_harm_nothing(file: Path, hostile: bytes) -> None:
    file.write_bytes(_line(1) + hostile + b"\n" + _line(2) + b"".join(_line(s) for s in range(3, 40)))
    stream = EventStream(file)
    assert {event.step for event in stream.read_events()} >= set(range(3, 40))
    run = linnet.open(file.parent)
    metrics = run.metrics()
    assert metrics["loss"].step.tolist()[-37:] == list(range(3, 40))
    run.summarize()
    linnet.runs.examine(run)


def test_following_hands_over_an_event_within_100_ms(
    tmp_path: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    process = script(
        """
import sys, time, linnet
with linnet.start(sys.argv[1], run_id="live", system_every=0) as run:
    print("up", flush=True)
    for step in range(100):
        time.sleep(0.01)
        run.log(step, loss=1.0, written=time.monotonic())
""",
        str(tmp_path),
    )
    assert process.stdout is not None
    process.stdout.readline()
    run = linnet.open(tmp_path / "live")
    delays = []
    for batch in run.events().follow(lambda: process.poll() is not None):
        now = time.monotonic()
        delays += [now - event.data["written"] for event in batch if event.kind == "step"]
    assert len(delays) == 100
    assert sorted(delays)[95] < 0.1


def test_an_unreadable_file_is_an_empty_stream(tmp_path: Path) -> None:
    assert EventStream(tmp_path).read_events() == []  # a folder
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert EventStream(loop).read_events() == []


def test_long_files_are_read_in_blocks(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineReader, "block_bytes", 64)
    file.write_bytes(b"".join(_line(step) for step in range(500)))
    assert _steps(EventStream(file).read_events()) == list(range(500))
    assert file.stat().st_size > 64 * 100


def test_a_byte_order_mark_costs_no_line(tmp_path: Path) -> None:
    start = b'{"kind":"run_start","t":0,"run_id":"toy-1","config":{"lr":0.5}}\n'
    (tmp_path / "events.jsonl").write_bytes(b"\xef\xbb\xbf" + start + _line(1))
    run = linnet.open(tmp_path)
    assert run.manifest.config == {"lr": 0.5}
    stream = run.events()
    assert [event.kind for event in stream.read_events()] == ["run_start", "step"]
    assert stream.damaged == run.metrics().damaged == 0


@pytest.mark.parametrize("place", ["values.²", "values." + "9" * 5000, "values." + ".".join("a" * 100_000)])
def test_a_place_that_is_none_is_passed_over(file: Path, place: str) -> None:
    spelt = {"kind": "step", "t": 1.0, "step": 1, "values": [None], "nonfinite": {place: "nan"}}
    file.write_text(json.dumps(spelt) + "\n" + json.dumps({**spelt, "nonfinite": {"values.0": "inf"}}) + "\n")
    first, second = EventStream(file).read_events()
    assert first.data["values"] == [None]
    assert second.data["values"] == [float("inf")]
    assert linnet.runs.RunStore(file.parent).list()[0].step == 1


class TestLast:
    """`last` gives the end of a stream at once, and reading goes on behind it."""

    def test_the_last_events_and_then_each_new_one_once(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LineReader, "block_bytes", 64)
        file.write_bytes(b"".join(_line(step) for step in range(500)) + _line(500)[:20])
        stream = EventStream(file)
        assert _steps(stream.last(3)) == [497, 498, 499]
        with file.open("ab") as out:
            out.write(_line(500)[20:] + _line(501))
        assert _steps(stream.read_events()) == [500, 501]
        assert stream.read_events() == []

    def test_only_those_wanted_are_counted(self, file: Path) -> None:
        file.write_bytes(b"".join(_line(step) for step in range(500)))
        assert _steps(EventStream(file).last(2, lambda event: (event.step or 0) % 100 == 0)) == [300, 400]
        assert EventStream(file).last(0) == []
        assert len(EventStream(file).last(9999)) == 500

    def test_what_was_written_between_is_not_lost(self, file: Path) -> None:
        file.write_bytes(b"".join(_line(step) for step in range(5)))
        stream = EventStream(file)
        stream.last(1)
        with file.open("ab") as out:
            out.write(_line(5))
        assert _steps(stream.read_events()) == [5]

    def test_a_file_cut_and_written_on_gives_only_what_is_new(self, file: Path) -> None:
        whole = b"".join(_line(step) for step in range(5))
        file.write_bytes(whole)
        stream = EventStream(file)
        stream.last(1)
        stream.read_events()
        file.write_bytes(whole[:-30] + b"\n" + _line(9))
        assert _steps(stream.read_events()) == [9]

    def test_a_line_too_long_to_hold_is_passed_over(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LineReader, "longest_line", 1000)
        for length in (20_000, 8 << 10, 200_000):
            file.write_bytes(_line(1) + _line(2) + b"x" * length + b"\n" + _line(3))
            assert _steps(EventStream(file).last(9)) == [1, 2, 3]
