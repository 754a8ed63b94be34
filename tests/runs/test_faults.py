"""A broken disk never stops training, and what can be kept is kept."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from linnet.runs import RunBundle
from linnet.runs import sink as sink_module
from tests.runs.conftest import lines_of


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="linnet")


def _steps(folder: Path) -> list[int]:
    return [line["step"] for line in lines_of(folder) if line["kind"] == "step"]


def test_an_unwritable_root_gives_one_warning_and_a_rescue_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    (tmp_path / "rescue").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "rescue"))
    with linnet.start(tmp_path / "runs", system_every=0) as run:
        assert not run.active
        for step in range(1, 1001):
            run.log(step, loss=0.5)
        assert len(caplog.records) == 1
        assert "training goes on" in caplog.records[0].getMessage()
    kept = next((tmp_path / "rescue").glob("linnet-*.jsonl"))
    assert str(kept) in caplog.records[-1].getMessage()
    assert kept.read_text().count("\n") == 1002


def test_a_root_that_becomes_writable_gets_everything(tmp_path: Path) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("")
    with linnet.start(blocked, system_every=0) as run:
        run.log(1, loss=0.5)
        blocked.unlink()
        run._sink._next_try = 0.0
        run.log(2, loss=0.4)
        assert run.active
    assert _steps(run.run_dir) == [1, 2]
    assert (run.run_dir / "run.json").exists()
    assert linnet.open(run.run_dir).status == "completed"


def test_a_read_only_folder_does_not_stop_training(read_only: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(read_only / "runs", system_every=0) as run:
        run.log(1, loss=0.5)
        assert not run.active
    assert "cannot write" in caplog.records[0].getMessage()
    assert not (read_only / "runs").exists()


def test_a_full_disk_holds_events_until_there_is_room(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    ballast = small_disk / "ballast"
    with linnet.start(small_disk / "runs", system_every=0) as run:
        run.log(1, loss=0.5)
        with pytest.raises(OSError, match="space"), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for step in range(2, 2001):
            run.log(step, loss=0.5)
        assert not run.active
        assert len(caplog.records) == 1
        assert "No space left on device" in caplog.records[0].getMessage()
        ballast.unlink()
        run._sink._next_try = 0.0
        run.log(2001, loss=0.1)
        assert run.active
    assert len(caplog.records) == 1
    assert _steps(run.run_dir) == list(range(1, 2002))


def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_no_torn_line(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    room = [10_000]

    def write(fd: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(fd, bytes(data)[: room[0]])
        room[0] -= written
        return written

    with linnet.start(system_every=0) as run:
        monkeypatch.setattr(sink_module, "_write", write)
        for step in range(1, 501):
            run.log(step, loss=0.5)
        for _ in range(40):  # room comes back a little at a time
            room[0] += 777
            run._sink.tend()
        room[0] = 1 << 30
        run._sink.tend()
        monkeypatch.undo()
    assert _steps(run.run_dir) == list(range(1, 501))


def test_what_is_held_is_bounded_and_the_loss_is_stated(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink_module, "HOLD_BYTES", 50_000)
    with linnet.start(system_every=0) as run:

        def refuse(fd: int, data: bytes) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(sink_module, "_write", refuse)
        for step in range(1, 5001):
            run.log(step, loss=0.5)
        assert sum(map(len, run._sink._held)) <= 50_000
        monkeypatch.undo()
        run._sink._next_try = 0.0
        run.log(5001, loss=0.5)
    lines = lines_of(run.run_dir)
    note = next(line for line in lines if line["kind"] == "note")
    steps = _steps(run.run_dir)
    assert steps[-1] == 5001
    assert len(steps) + note["lost_events"] == 5001
    assert lines[-1]["lost_events"] == note["lost_events"]
    findings = linnet.runs.examine(linnet.open(run.run_dir))
    assert not findings.sound
    assert any("were lost" in fault for fault in findings.faults)


def test_a_folder_deleted_during_the_run_comes_back_whole(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(system_every=0) as run:
        for step in range(1, 101):
            run.log(step, loss=0.5)
        shutil.rmtree(run.run_dir)
        for step in range(101, 201):
            run.log(step, loss=0.5)
        run._sink.tend()
        run.log(201, loss=0.5)
    assert _steps(run.run_dir) == list(range(1, 202))
    assert (run.run_dir / "run.json").exists()
    assert "was deleted during the run" in caplog.text
    assert linnet.open(run.run_dir).status == "completed"


def test_a_folder_moved_during_the_run_keeps_its_events(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="here", system_every=0) as run:
        run.log(1, loss=0.5)
        (root / "here").rename(root / "there")
        run.log(2, loss=0.5)
        run._sink.tend()
    assert _steps(root / "there") == [1, 2]
    assert not (root / "here").exists()
    assert "moved" in caplog.text


def test_the_same_id_twice_gets_a_folder_of_its_own(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = RunBundle(root, "same"), RunBundle(root, "same")
    first.step(1, 0.5)
    second.step(1, 0.9)
    first.run_end(1, 0.5)
    second.run_end(1, 0.9)
    assert second.run_id == "same-2"
    assert "same is taken" in caplog.text
    assert lines_of(root / "same")[1]["loss"] == 0.5
    assert lines_of(root / "same-2")[1]["loss"] == 0.9


def test_two_starts_at_the_same_moment_never_share_an_id(
    root: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    program = """
import linnet
for _ in range(20):
    with linnet.start(arch="race", system_every=0) as run:
        print(run.run_id, flush=True)
"""
    processes = [script(program) for _ in range(4)]
    taken = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert len(taken) == len(set(taken)) == 80


def test_resuming_a_run_that_is_being_written_goes_on_beside_it(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="busy", system_every=0) as run:
        run.log(1, loss=0.5)
        with linnet.start(resume="busy", from_step=1, system_every=0) as other:
            other.log(2, loss=0.1)
        assert other.run_id == "busy-2"
        assert other.manifest.parent == "busy"
        assert "another process" in caplog.text
        assert run.active
    assert _steps(root / "busy") == [1]
    assert _steps(root / "busy-2") == [2]


def test_a_bad_template_is_refused_by_name(root: Path) -> None:
    with pytest.raises(linnet.LinnetError, match=r"\{model\} is not a token; known are \{arch\}"):
        linnet.start(template="{model}-{seq}")
