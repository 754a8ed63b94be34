"""`examine` calls a run damaged when it is, and only then."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from linnet.files import staged_name
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


def test_leftovers_of_killed_writers_are_found_wherever_they_write(tmp_path: Path) -> None:
    staged = staged_name(tmp_path / "weights/step_20.gguf")
    leftovers = [
        ".run.json.k3j2x1",
        f"weights/{staged.name}",
        "state/.step_20.safetensors.tmp",
        "state/.tmpAb3dE9",
        f"state/{staged_name(tmp_path / 'state/step_20.safetensors').name}",
    ]
    for name in ("weights/step_10.gguf", "state/step_10.safetensors", ".cache/metrics", *leftovers):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = _examined(tmp_path, {"kind": "run_end", "t": 1.0, "reason": "completed"})
    assert found.sound
    assert sorted(text.split()[0] for text in found.remarks) == sorted(leftovers)
    assert all(
        text.endswith("is left over from a writer that was stopped; it can be deleted") for text in found.remarks
    )


def test_a_flipped_bit_of_a_checkpoint_is_found_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    weights = tmp_path / "weights/step_1.gguf"
    weights.write_bytes(bytes(100_000))
    digest = hashlib.sha256(bytes(100_000)).hexdigest()
    event = {"kind": "checkpoint", "t": 1.0, "step": 1, "path": "weights/step_1.gguf", "bytes": 100_000}
    end = {"kind": "run_end", "t": 2.0, "reason": "completed"}
    assert _examined(tmp_path, {**event, "sha256": digest}, end).sound
    weights.write_bytes(bytes(50_000) + b"\x10" + bytes(49_999))
    assert _examined(tmp_path, {**event, "sha256": digest}, end).faults == [
        "line 2: checkpoint weights/step_1.gguf is not what was written: its SHA-256 differs"
    ]
    assert _examined(tmp_path, event, end).sound  # older runs noted no digest
    again = hashlib.sha256(weights.read_bytes()).hexdigest()
    resumed = {"kind": "resume", "t": 2.0, "step": 0}
    assert _examined(tmp_path, {**event, "sha256": digest}, resumed, {**event, "sha256": again}, end).sound


def test_only_files_of_the_run_are_read_for_their_digest(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    (tmp_path / "run").mkdir()
    event = {"kind": "checkpoint", "t": 1.0, "path": str(outside), "bytes": 1, "sha256": "0" * 64}
    assert _examined(tmp_path / "run", event, {"kind": "run_end", "t": 2.0, "reason": "completed"}).sound
