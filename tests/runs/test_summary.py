"""How a run stands, told from the end of its stream: the same as a reading of the whole would tell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet import files
from linnet.runs import Run, RunSummary, summary
from linnet.runs.events import iso_now


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def _write(run: Path, *lines: dict[str, Any]) -> RunSummary:
    run.mkdir(exist_ok=True)
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summary.summarize(run)
    assert found is not None
    return found


def _step(step: int, **values: float) -> dict[str, Any]:
    return {"kind": "step", "t": step / 10, "step": step, **(values or {"loss": 1 / step})}


def test_steps_that_a_resume_made_void_are_not_the_last(run: Path) -> None:
    found = _write(run, *(_step(s) for s in range(1, 101)), {"kind": "resume", "t": 11, "step": 50})
    assert (found.step, found.value) == (50, 1 / 50)
    main = Run.load(run).metrics().main
    assert main is not None
    assert main.latest == (found.step, found.value)


def test_a_resume_before_anything_was_logged_tells_the_step(run: Path) -> None:
    assert _write(run, {"kind": "resume", "t": 11, "step": 50}).step == 50


@pytest.mark.parametrize("late", [_step(3), {"kind": "note", "t": 1.0, "text": "good"}, {"kind": "heartbeat", "t": 9}])
def test_a_late_line_does_not_undo_the_end(run: Path, late: dict[str, Any]) -> None:
    assert _write(run, _step(2), {"kind": "run_end", "t": 1, "reason": "completed"}, late).status == "completed"


@pytest.mark.parametrize("anew", [{"kind": "resume", "resumed_at": ""}, {"kind": "run_start", "started_at": ""}])
def test_a_run_that_goes_on_has_not_ended(run: Path, anew: dict[str, Any]) -> None:
    end = {"kind": "run_end", "t": 1, "reason": "completed"}
    anew = {name: value or iso_now() for name, value in anew.items()}
    assert _write(run, _step(2), end, {**anew, "t": 1}, _step(3)).status == "live"


def test_list_and_show_name_the_same_main_metric(run: Path) -> None:
    scores = [{"kind": "scalars", "t": 9, "step": s, "values": {"val/acc": 0.5}} for s in range(7)]
    found = _write(run, *(_step(s) for s in range(1, 50)), *scores)
    assert (found.metric, found.step) == ("loss", 49)
    found = _write(run, *({"kind": "scalars", "t": s, "step": s, "values": {n: 1.0}} for s in range(9) for n in "ab"))
    main = Run.load(run).metrics().main
    assert main is not None
    assert found.metric == main.name == "a"


def test_a_kaun_board_run_of_a_plain_loss_is_done_when_its_epochs_are(run: Path) -> None:
    found = _write(run, {"type": "scalar", "step": 9, "wall_time": 1e9, "tag": "loss", "value": 0.5, "epoch": 3})
    (run / "run.json").write_text(json.dumps({"run_id": "a", "created_at": 1e9, "total_epochs": 3}))
    assert Run.load(run).status == "completed"
    assert found.metric == "loss"


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        ({"run_id": "a", "created_at": 1.7e9}, {"type": "scalar", "step": 1, "wall_time": 1.7e9 + 5, "tag": "x"}),
        ({"id": "a", "started_at": 1.7e9}, {"type": "metric", "step": 1, "timestamp": 1.7e9 + 5, "key": "x"}),
    ],
)
def test_a_note_on_a_foreign_run_is_spelt_as_its_neighbours_are(
    run: Path, manifest: dict[str, Any], line: dict[str, Any]
) -> None:
    _write(run, line)
    (run / "run.json").write_text(json.dumps(manifest))
    opened = Run.load(run)
    linnet.runs.add_note(opened, "good", step=1)
    event = opened.events().read_events()[-1]
    assert (event.kind, event.t, event.step, event.data["text"]) == ("note", 5.0, 1, "good")
    assert "kind" not in json.loads((run / "events.jsonl").read_text().splitlines()[-1])
    assert opened.summarize().t == 5.0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
@pytest.mark.parametrize("name", ["events.jsonl", ".cache/metrics"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(run: Path, name: str) -> None:
    _write(run, _step(1))
    (run / "run.json").write_text('{"run_id": "a", "provenance": {"lock": "flock"}}')
    (run / ".cache").mkdir()
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    opened = Run.load(run)
    opened.summarize()
    opened.metrics()
    opened.events().read_events()
    linnet.runs.examine(opened)
    assert files.is_locked(run / "events.jsonl") in (False, None)
    if name == "events.jsonl":
        with pytest.raises(linnet.LinnetError, match="not a regular file"):
            linnet.runs.add_note(opened, "good")
