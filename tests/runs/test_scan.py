"""Events that are more than numbers: found in any stream, also behind what was kept of it, and never of another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.runs import scan
from linnet.runs.scan import KINDS, events_of_kinds
from linnet.runs.stream import EventStream

_line = st.one_of(
    st.builds(
        lambda kind, step, spaces: json.dumps(
            {"kind": kind, "t": 1.0, "step": step}, separators=(",", ": ") if spaces else (",", ":")
        ),
        st.sampled_from(
            ["step", "scalars", "artifact", "note", "sample", "resume", "checkpoint", "eval", "tap", "region_enter"]
        ),
        st.integers(0, 9),
        st.booleans(),
    ),
    st.sampled_from(
        ["", " ", "{", '{"step": 3, "kind": "note"}', '{"type": "notes", "value": "x"}', '"artifact"', "\r"]
    ),
    st.sampled_from(['{"kind":"step","t":1,"text":"\\n \\"note\\""}', '{"kind":"note","text":"' + "x" * 3000 + '"}']),
)


@given(lines=st.lists(_line, max_size=40), block=st.sampled_from([16, 64, 1 << 20]), ended=st.booleans())
@settings(max_examples=80, deadline=None)
def test_what_is_found_is_what_the_whole_stream_has(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("stream") / "events.jsonl"
    path.write_text("\n".join(lines) + ("\n" if ended and lines else ""))
    patch = pytest.MonkeyPatch()
    patch.setattr(scan, "_BLOCK", block)
    patch.setattr(scan, "_KEPT_FROM", 1)
    try:
        expected = [event.data for event in EventStream(path).read_events() if event.kind in KINDS]
        for _ in range(2):  # from the stream, and from what was kept
            assert [event.data for event in events_of_kinds(path, KINDS)] == expected
        with path.open("a") as file:
            file.write('\n{"kind":"note","text":"later"}\n')
        expected = [event.data for event in EventStream(path).read_events() if event.kind in KINDS]
        assert [event.data for event in events_of_kinds(path, KINDS)] == expected
    finally:
        patch.undo()


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scan, "_KEPT_FROM", 1)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f'{{"kind":"note","text":"{number}"}}\n' for number in range(50)))
    assert texts(path) == [str(number) for number in range(50)]
    assert (tmp_path / ".cache" / "events").exists()
    return path


def texts(path: Path) -> list[str]:
    return [event.data["text"] for event in events_of_kinds(path, ("note",))]


def test_what_was_read_is_not_read_again(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_other_lines", lambda block: pytest.fail("the stream was read again"))
    assert len(texts(stream)) == 50


def test_another_stream_is_read_anew(stream: Path) -> None:
    stream.write_text('{"kind":"note","text":"new"}\n' * 100)
    assert texts(stream) == ["new"] * 100
    stream.write_text('{"kind":"note","text":"short"}\n')
    assert texts(stream) == ["short"]
    stream.unlink()
    assert texts(stream) == []


@pytest.mark.parametrize("at", [0, 20, 60, -5, None])
def test_a_damaged_cache_is_not_believed(stream: Path, at: int | None) -> None:
    kept = stream.parent / ".cache" / "events"
    content = bytearray(kept.read_bytes())
    if at is None:
        content = bytearray(b"linnet-events-1\n{}\n")
    else:
        content[at] ^= 1
    kept.write_bytes(content)
    assert texts(stream) == [str(number) for number in range(50)]


def test_a_line_that_is_too_long_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LONGEST_LINE", 1000)
    monkeypatch.setattr(scan, "_BLOCK", 100)
    path = tmp_path / "events.jsonl"
    lines = ['{"kind":"note","text":"a"}', '{"kind":"note","text":"' + "x" * 5000 + '"}', '{"kind":"note","text":"b"}']
    path.write_text("\n".join(lines) + "\n")
    assert texts(path) == ["a", "b"]
