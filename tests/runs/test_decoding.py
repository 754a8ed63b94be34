"""Lines of one schema are read together; whatever was done to a stream, the result is that of reading line by line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.runs import Findings, Metrics, Run, decoding, examine, metric_parser
from linnet.runs.decoding import Segment, schema_of, segments

START = b'{"kind":"run_start","t":0.0,"run_id":"a"}'


def _step(number: int) -> bytes:
    return json.dumps({"kind": "step", "t": number / 8, "step": number, "loss": 1 / (number + 1), "lr": 0.5}).encode()


_EXTRA = [
    b"",
    b"  ",
    b"not JSON",
    b'{"kind":"eval","t":9.0,"step":7,"name":"validation","loss":1.5}',
    b'{"kind":"resume","t":9.5,"step":20}',
    b'{"kind":"run_end","t":99.0,"reason":"completed"}',
    b'{"kind":"note","t":9.0,"lost_events":3}',
    b'{"kind":"step","t":0.0,"step":3,"loss":0.25,"lr":0.5}',
    b'{"kind":"step","t":1e9,"step":4,"loss":0.25,"lr":0.5}',
    b'{"kind":"step","t":9.0,"step":123456789012345678901234567890,"loss":0.25,"lr":0.5}',
    b'{"kind":"step","t":9.0,"step":30,"loss":null,"lr":0.5}',
    b'{"kind":"step","t":9.0,"step":30,"loss":NaN,"lr":0.5}',
    b'{"kind":"step","t":9.0,"step":30,"loss":0.25,"lr":0.5,"acc":0.75}',
    b'{"kind":"step","t":9.0,"step":30,"loss":0.25,"loss":0.5,"lr":0.5}',
    b'{"kind":"step","t":9.0,"step":30,"loss":0.25,"lr":0.5}\r',
    b'{"kind":"scalars","t":9.0,"values":{"loss":0.125}}',
    b'{"kind":"tap","t":9.0,"step":30,"region":"embd","loss":0.25}',
    b'{"kind":"tap","t":9.0,"step":30,"region":"embd","lo',
    b'{"kind":"grad","t":9.0,"step":30,"param":"a","l2":0.25}\r',
    b'{"kind":"region_enter","t":9.0,"step":30,"region":"a"}',
    b'{"kind":"region_x","t":9.0,"step":30}',
    b'{"kind":"drift","t":1e9,"step":3,"param":"a"}',
    b'{"kind":"tape","t":9.0,"step":30,"loss":0.25}',
]
_mutation = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 150), st.sampled_from(_EXTRA)),
    st.tuples(st.sampled_from(["delete", "join", "halve", "swap", "twice"]), st.integers(0, 150), st.just(b"")),
)


def _mutated(mutations: list[tuple[str, int, bytes]]) -> bytes:
    lines = [START, *(_step(number) for number in range(1, 140))]
    for kind, place, extra in mutations:
        at = min(place, len(lines) - 2)
        if kind == "insert":
            lines.insert(at, extra)
        elif kind == "delete":
            del lines[at]
        elif kind == "join":  # two events in one line
            lines[at : at + 2] = [lines[at] + lines[at + 1]]
        elif kind == "halve":  # one event in two lines
            middle = lines[at].find(b",") + 1
            lines[at : at + 1] = [lines[at][:middle], lines[at][middle:]]
        elif kind == "swap":
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        else:
            lines.insert(at, lines[at])
    return b"\n".join(lines) + b"\n"


def _findings(folder: Path) -> Findings:
    return examine(Run.load(folder))


@settings(max_examples=100, deadline=None)
@given(mutations=st.lists(_mutation, max_size=6))
def test_check_finds_the_same_in_steps_taken_together(mutations: list[tuple[str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "events.jsonl").write_bytes(_mutated(mutations))
        together = _findings(folder)
        patch.setattr(decoding, "segments", lambda block: [Segment(0, len(block))])
        assert together == _findings(folder)


@settings(max_examples=100, deadline=None)
@given(mutations=st.lists(_mutation, max_size=6))
def test_metrics_are_the_same_from_steps_taken_together(mutations: list[tuple[str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        file = Path(name) / "events.jsonl"
        file.write_bytes(_mutated(mutations))
        together = Metrics(file, cached=False)
        patch.setattr(metric_parser, "segments", lambda block: [Segment(0, len(block))])
        patch.setattr(metric_parser, "schema_of", lambda line: None)
        singly = Metrics(file, cached=False)
        assert together.names() == singly.names()
        assert (together.damaged, together.last_step) == (singly.damaged, singly.last_step)
        for name, series in together.items():
            for key in ("step", "t", "value", "epoch"):
                np.testing.assert_array_equal(getattr(series, key), getattr(singly[name], key))


def test_segments_are_the_block_in_order() -> None:
    block = _mutated([("insert", 70, _EXTRA[3]), ("insert", 90, _EXTRA[12])])
    parts = list(segments(block))
    assert b"".join(block[part.begin : part.end] for part in parts) == block
    together = sum(len(part.columns[0]) for part in parts if part.columns is not None)
    assert together > 100  # two odd lines cost no more than their neighbours


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", START, _EXTRA[3], b'{"kind":"step","t":1,"step":2}', b'{"type":"scalar"}']
)
def test_what_is_no_plain_step_has_no_schema(line: bytes) -> None:
    assert schema_of(line) is None


def test_lines_of_a_schema_that_are_not_one_object_each_are_not_decoded_together() -> None:
    schema = schema_of(_step(1))
    assert schema is not None
    one, two = _step(1), _step(2)
    middle = one.find(b",") + 1
    assert schema.decode(one + b"\n" + two + b"\n") is not None
    assert schema.decode(one + two + b"\n\n") is None
    assert schema.decode(one + two[:middle] + b"\n" + two[middle:] + b"\n") is None
