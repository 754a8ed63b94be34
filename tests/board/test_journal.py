"""What a run tells besides numbers: read from the same blocks as the numbers, and complete whatever a cache spared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from linnet.board.journal import Journal
from linnet.board.watched_run import WatchedRun
from linnet.runs import Metrics, Run
from linnet.runs.lines import LONGEST_LINE
from tests.board.conftest import Event, append, steps, write

Contents = tuple[int, int, list[object], list[object], list[object]]


def talk(count: int, first: int = 1) -> list[Event | bytes]:
    """Steps with a sample, a note, a checkpoint and a damaged line among them, now and then."""
    lines: list[Event | bytes] = []
    for step in steps(count, first):
        at = step["step"]
        lines.append(step)
        if at % 1000 == 0:
            lines.append({"kind": "sample", "t": at, "step": at, "prompt": "a", "text": f"b{at}"})
            lines.append({"kind": "note", "t": at, "step": at, "text": f"note {at}"})
            lines.append({"kind": "checkpoint", "t": at, "step": at, "path": f"weights/step_{at}.gguf"})
            lines.append(b'{"kind":"step", torn')
    return lines


def follow(watched: WatchedRun) -> WatchedRun:
    watched.read(0.0)
    while not watched.caught_up:
        watched.read(0.0)
    return watched


def contents(journal: Journal) -> Contents:
    of_the_stream = ("checkpoint ", "line ")  # and not of the board's own
    entries: list[object] = [entry for entry in journal.log_entries() if entry.text.startswith(of_the_stream)]
    return journal.lines, journal.damaged, list(journal.samples()), list(journal.notes()), entries


def reference(run: Run) -> Contents:
    """A journal that was handed the whole stream at once."""
    journal, data = Journal(run), run.events_path.read_bytes()
    journal.take(data.removeprefix(b"\xef\xbb\xbf"), 0, len(data))
    return contents(journal)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("written") / "a", talk(40_000))


@pytest.fixture
def run(written: Path, root: Path) -> Run:
    return Run.load(shutil.copytree(written, root / "a"))


def test_a_stream_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.board.journal.LineReader", lambda path: pytest.fail("the stream was opened again"))
    watched = follow(WatchedRun(run))
    assert contents(watched.journal) == reference(run)
    assert watched.history.damaged == watched.journal.damaged == 40
    append(run.path, talk(1000, first=40_001))
    assert contents(follow(watched).journal) == reference(run)


def test_what_a_cache_spares_the_metrics_is_still_told(run: Run) -> None:
    run.metrics()
    assert (run.path / ".cache" / "metrics").exists()
    watched = WatchedRun(run)
    assert not watched.journal.caught_up
    assert contents(follow(watched).journal) == reference(run)
    append(run.path, talk(1000, first=40_001))
    assert contents(follow(watched).journal) == reference(run)


def test_a_stream_that_grows_behind_its_cache_is_told_in_order(run: Run) -> None:
    run.metrics()
    append(run.path, talk(30_000, first=40_001))
    watched = WatchedRun(run)
    for part in range(10):
        watched.read(0.0)
        append(run.path, talk(500, first=70_001 + 500 * part))
    assert contents(follow(watched).journal) == reference(run)


def test_a_damaged_cache_tells_nothing_twice(run: Run) -> None:
    run.metrics()
    kept = run.path / ".cache" / "metrics"
    data = bytearray(kept.read_bytes())
    data[-100] ^= 1
    kept.write_bytes(data)
    assert contents(follow(WatchedRun(run)).journal) == reference(run)


@pytest.mark.parametrize("cached", [False, True])
def test_a_replaced_stream_is_told_anew(run: Run, cached: bool) -> None:
    if cached:
        run.metrics()
    watched = WatchedRun(run)
    watched.read(0.0)  # some of it
    new = run.path / "new"
    new.write_text("".join(json.dumps(line) + "\n" for line in talk(900)))
    new.replace(run.events_path)
    follow(watched)
    follow(watched)
    assert contents(watched.journal) == reference(run)
    assert any("cut or replaced" in entry.text for entry in watched.journal.log_entries())


def test_a_stream_that_goes_away_is_not_waited_for(run: Run) -> None:
    run.metrics()
    watched = WatchedRun(run)
    run.events_path.unlink()
    follow(watched)
    assert watched.history.trouble
    assert watched.journal.samples() == []


def test_a_mark_before_the_first_line_and_a_line_too_long_are_passed_over(root: Path) -> None:
    long = b'{"kind":"note","text":"' + b"x" * (LONGEST_LINE + 100) + b'"}'
    first, *rest = talk(20_000)
    mark = b"\xef\xbb\xbf" + json.dumps(first).encode()
    run = Run.load(write(root / "a", [mark, *rest[:9000], long, *rest[9000:]]))
    watched = follow(WatchedRun(run))
    assert [sample.text for sample in watched.journal.samples()] == [f"b{n}000" for n in range(1, 21)]
    assert watched.journal.damaged == 20
    before = contents(watched.journal)
    Metrics(run.events_path)
    assert contents(follow(WatchedRun(run)).journal) == before
