"""`examine` calls a run damaged when it is, and only then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from linnet.runs import Findings, Run, examine, provenance

START = {"kind": "run_start", "t": 0.0, "run_id": "a"}


def _examined(folder: Path, *lines: dict[str, Any] | str) -> Findings:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in (START, *lines))
    (folder / "events.jsonl").write_text(text)
    return examine(Run.load(folder))


def test_two_processes_that_log_are_no_damage(tmp_path: Path) -> None:
    found = _examined(tmp_path, *({"kind": "note", "t": t} for t in (2.0, 1.5, 3.0)))
    assert found.sound
    assert found.remarks == ["line 3: t goes back from 2.0 to 1.5"]


def test_a_loss_of_events_is_told_once(tmp_path: Path) -> None:
    lost = {"t": 1.0, "lost_events": 7}
    found = _examined(tmp_path, {"kind": "note", **lost}, {"kind": "run_end", "reason": "completed", **lost})
    assert found.faults == ["line 2: the writer says that 7 events were lost"]


def test_a_crashed_run_is_whole_only_when_nothing_is_damaged(tmp_path: Path) -> None:
    here = {"host": provenance.host()["name"], "boot_id": "before", "lock": "flock"}
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "a", "provenance": here}))
    assert "every event it had logged is here" in _examined(tmp_path).remarks[-1]
    found = _examined(tmp_path, '{"kind":"st')
    assert found.remarks[-1] == "the writer died without a run_end"
    assert not found.sound


def test_a_checkpoint_whose_path_no_system_takes_is_just_not_there(tmp_path: Path) -> None:
    found = _examined(tmp_path, {"kind": "checkpoint", "t": 1.0, "path": "x" * 5000, "bytes": 1})
    assert "is no longer there" in found.remarks[0]
    assert len(found.remarks[0]) < 300
