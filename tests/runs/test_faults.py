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
from linnet.runs import session as session_module
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
        monkeypatch.setattr(session_module, "_write", write)
        for step in range(1, 501):
            run.log(step, loss=0.5)
        for _ in range(40):  # room comes back a little at a time
            room[0] += 777
            run._sink.maintain()
        room[0] = 1 << 30
        run._sink.maintain()
        monkeypatch.undo()
    assert _steps(run.run_dir) == list(range(1, 501))


def test_what_is_held_is_bounded_and_the_loss_is_stated(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink_module.Sink, "hold_bytes", 50_000)
    with linnet.start(system_every=0) as run:

        def refuse(fd: int, data: bytes) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(sink_module, "_write", refuse)
        monkeypatch.setattr(session_module, "_write", refuse)
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
        run._sink.maintain()
        run.log(201, loss=0.5)
    assert _steps(run.run_dir) == list(range(1, 202))
    assert (run.run_dir / "run.json").exists()
    assert "folder was deleted; it was made again" in caplog.text
    assert linnet.open(run.run_dir).status == "completed"


def test_a_folder_moved_during_the_run_keeps_its_events(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="here", system_every=0) as run:
        run.log(1, loss=0.5)
        (root / "here").rename(root / "there")
        run.log(2, loss=0.5)
        run._sink.maintain()
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


def test_a_folder_that_cannot_be_made_again_yet_loses_nothing(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(1, 6):
            run.log(step, loss=0.5)
        shutil.rmtree(root)
        root.write_text("a file where the folder was")
        run._sink.maintain()
        run.log(6, loss=0.5)
        root.unlink()
        run._sink.maintain()
    assert _steps(root / "a") == [1, 2, 3, 4, 5, 6]


def test_a_deleted_runs_name_taken_by_another_is_left_to_it(root: Path) -> None:
    with linnet.start(run_id="same", system_every=0) as first:
        first.log(1, loss=0.5)
        shutil.rmtree(root / "same")
        with linnet.start(run_id="same", system_every=0) as second:
            second.log(7, loss=0.1)
            first._sink.maintain()
            first.log(2, loss=0.4)
    assert _steps(root / "same") == [7]
    assert _steps(root / "same-2") == [1, 2]
    assert first.run_dir == root / "same-2"
    assert linnet.open("same-2").id == "same-2"


def test_logging_from_inside_a_write_is_held_and_written_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a signal handler does that logs while a line is on its way."""
    with linnet.start(system_every=0) as run:
        run.log(1, loss=0.5)
        real, state = os.write, {"refuse": True, "nested": False}

        def write(fd: int, data: bytes) -> int:
            if state["refuse"]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if not state["nested"]:
                state["nested"] = True
                run.log(3, loss=0.3)
            return real(fd, data)

        monkeypatch.setattr(sink_module, "_write", write)
        monkeypatch.setattr(session_module, "_write", write)
        run.log(2, loss=0.4)
        state["refuse"] = False
        run._sink.maintain()
        monkeypatch.undo()
    assert sorted(_steps(run.run_dir)) == [1, 2, 3]


def test_the_manifest_comes_when_the_disk_works_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linnet.runs.manifest import Manifest

    def refuse(self: Manifest, folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Manifest, "write", refuse)
    with linnet.start(run_id="a", config={"lr": 0.1}, system_every=0) as run:
        run.log(1, loss=0.5)
        monkeypatch.undo()
        monkeypatch.setenv("LINNET_RUNS", str(root))
    assert linnet.open("a").manifest.config == {"lr": 0.1}


def test_a_run_that_ends_while_threads_log_is_completed(root: Path) -> None:
    import threading

    for _ in range(3):
        run = linnet.start(system_every=0)
        stop = threading.Event()

        def log_on(run: linnet.runs.Session = run, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                run.log(1, loss=0.5)

        threads = [threading.Thread(target=log_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        run.log(2, loss=0.5)
        run.finish()
        stop.set()
        for thread in threads:
            thread.join()
        assert lines_of(run.run_dir)[-1]["kind"] == "run_end"
        assert linnet.open(run.run_dir).status == "completed"


@pytest.mark.parametrize("reference", ["nosuch", "../evil", ""])
def test_resuming_what_is_not_there_is_a_new_run_with_a_warning(
    root: Path, caplog: pytest.LogCaptureFixture, reference: str
) -> None:
    root.mkdir()
    with linnet.start(resume=reference, from_step=5, system_every=0) as run:
        run.log(1, loss=0.5)
    assert run.run_dir.parent == root
    assert lines_of(run.run_dir)[0]["kind"] == "run_start"
    assert "new run" in caplog.text


def test_resume_without_a_step_voids_nothing(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(1, 11):
            run.log(step, loss=0.5)
    with linnet.start(resume="latest", system_every=0) as again:
        again.log(11, loss=0.4)
    assert linnet.open("a").metrics()["loss"].step.tolist() == list(range(1, 12))


def test_resuming_a_foreign_run_leaves_it_alone(root: Path) -> None:
    from tests.conftest import FIXTURES

    name = "2026-03-14_09-26-53_a1f3_mnist"
    shutil.copytree(FIXTURES / "kaun-board" / name, root / name)
    before = (root / name / "run.json").read_bytes()
    with linnet.start(resume=name, system_every=0) as run:
        run.log(1, loss=0.5)
    assert (root / name / "run.json").read_bytes() == before
    assert run.run_id != name
    assert run.manifest.parent == name


def test_a_long_name_still_gets_its_number(root: Path) -> None:
    runs = []
    for _ in range(3):
        with linnet.start(arch="a" * 130, system_every=0) as run:
            runs.append(run.run_id)
    assert len(set(runs)) == 3
    assert runs[2].endswith("-003")


def test_two_interrupts_in_a_row_still_end_the_run(root: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    import signal
    import time

    for pause in (0.0, 0.002, 0.004):
        process = script("""
import linnet
with linnet.start(run_id="a") as run:
    print("up", flush=True)
    step = 0
    while True:
        step += 1
        run.log(step, loss=0.5)
""")
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert linnet.open("latest").status in ("interrupted", "errored")
        shutil.rmtree(root)
