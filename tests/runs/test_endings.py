"""A run ends with the true reason, however it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from linnet.runs import RunBundle
from tests.runs.conftest import lines_of

Script = Callable[..., "subprocess.Popen[str]"]

LOOP = """
import sys, linnet
with linnet.start(system_every=0) as run:
    print(run.run_dir, flush=True)
    step = 0
    while True:
        step += 1
        run.log(step, loss=1 / step)
        if step == 100:
            print("going", flush=True)
"""


def _started(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert process.stdout.readline().strip() == "going"
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_as_interrupted(root: Path, script: Script, number: signal.Signals) -> None:
    process = script(LOOP)
    folder = _started(process)
    process.send_signal(number)
    process.communicate(timeout=20)
    end = lines_of(folder)[-1]
    assert (end["kind"], end["reason"]) == ("run_end", "interrupted")
    assert end["final_step"] >= 100
    assert linnet.open(folder).status == "interrupted"
    assert end["exit_code"] == 128 + number
    if number != signal.SIGINT:  # after which Python kills itself by the signal, which a shell calls 130
        assert process.returncode == end["exit_code"]


def test_a_killed_writer_loses_no_logged_step(root: Path, script: Script) -> None:
    program = LOOP.replace("run.log(step, loss=1 / step)", "run.log(step, loss=1 / step); count[0] = step").replace(
        "import sys, linnet",
        "import sys, linnet, mmap\n"
        "file = open(sys.argv[1], 'r+b')\ncount = memoryview(mmap.mmap(file.fileno(), 8)).cast('B').cast('q')",
    )
    chance = random.Random(2)
    for attempt in range(8):
        counter = root.parent / f"count{attempt}"
        counter.write_bytes(bytes(8))
        process = script(program, str(counter))
        folder = _started(process)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=chance.uniform(0.0, 0.05))
        process.kill()
        process.communicate()
        returned = int.from_bytes(counter.read_bytes(), "little")
        text = (folder / "events.jsonl").read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        (folder / "events.jsonl").write_bytes(whole)
        steps = [line["step"] for line in lines_of(folder) if line["kind"] == "step"]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= returned
        assert linnet.open(folder).status == "crashed"


def test_an_exception_ends_the_run_as_errored_with_its_last_line(root: Path) -> None:
    with pytest.raises(ZeroDivisionError), linnet.start(system_every=0) as run:
        run.log(1, loss=0.5)
        1 / 0  # noqa: B018
    end = lines_of(run.run_dir)[-1]
    assert (end["reason"], end["error"]) == ("errored", "ZeroDivisionError: division by zero")
    assert end["exit_code"] == 1


@pytest.mark.parametrize(
    ("raised", "reason", "exit_code"),
    [
        (SystemExit(0), "completed", 0),
        (SystemExit(3), "errored", 3),
        (SystemExit("no data"), "errored", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (ValueError("bad"), "errored", 1),
    ],
)
def test_the_exit_code_is_that_of_the_process(root: Path, raised: BaseException, reason: str, exit_code: int) -> None:
    with pytest.raises(type(raised)), linnet.start(system_every=0) as run:
        raise raised
    end = lines_of(run.run_dir)[-1]
    assert (end["reason"], end["exit_code"]) == (reason, exit_code)


@pytest.mark.parametrize(
    ("reason", "exit_code"), [("completed", 0), ("interrupted", 130), ("aborted", 1), ("errored", 1)]
)
def test_an_exit_code_goes_with_the_reason_unless_it_is_given(root: Path, reason: str, exit_code: int) -> None:
    for given, expected in ((None, exit_code), (143, 143)):
        bundle = RunBundle(root)
        bundle.run_end(1, 0.5, reason, exit_code=given)
        assert lines_of(bundle.run_dir)[-1]["exit_code"] == expected


def test_an_exception_that_has_no_text_still_ends_the_run(root: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(MuteError), linnet.start(system_every=0) as run:
        raise MuteError
    assert lines_of(run.run_dir)[-1]["error"] == "MuteError: <MuteError>"


def test_sys_exit_with_zero_is_a_completed_run(root: Path) -> None:
    with pytest.raises(SystemExit), linnet.start(system_every=0) as run:
        run.log(1, loss=0.5)
        raise SystemExit(0)
    assert lines_of(run.run_dir)[-1]["reason"] == "completed"


@pytest.mark.parametrize(
    ("ending", "reason", "exit_code"),
    [
        ("pass", "completed", 0),
        ("raise ValueError('bad')", "errored", 1),
        ("raise KeyboardInterrupt", "interrupted", 130),
    ],
)
def test_without_a_with_block_the_interpreters_end_ends_the_run(
    root: Path, script: Script, ending: str, reason: str, exit_code: int
) -> None:
    process = script(f"import linnet\nrun = linnet.start(system_every=0)\nrun.log(1, loss=0.5)\n{ending}\n")
    process.communicate(timeout=20)
    run = linnet.open("latest")
    end = lines_of(run.path)[-1]
    assert (end["reason"], end["exit_code"]) == (reason, exit_code)


def test_a_forked_worker_neither_ends_the_run_nor_keeps_it_alive(root: Path, script: Script) -> None:
    process = script("""
import os, sys, time, linnet
with linnet.start(system_every=0) as run:
    run.log(1, loss=0.5)
    child = os.fork()
    if not child:
        run.log(2, loss=0.4)          # a worker may log
        print(run.run_dir, flush=True)
        time.sleep(60)                # and outlives its parent
        os._exit(0)
    time.sleep(60)
""")
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    run = linnet.open(folder)
    assert run.status == "live"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    worker = int(children.read_text()) if children.exists() else None
    process.kill()
    process.wait()
    try:
        assert run.status == "crashed"
        assert [line["step"] for line in lines_of(folder) if line["kind"] == "step"] == [1, 2]
    finally:
        if worker:
            os.kill(worker, signal.SIGKILL)


def test_a_handler_of_the_programs_own_outlives_the_run(root: Path) -> None:
    def own(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.getsignal(signal.SIGTERM)
    try:
        with linnet.start(system_every=0):
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_gate_sets_the_exit_code(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        run.log(1, loss=3.0)
        run.gate("loss", 3.0, 2.5, passed=False)
    end = lines_of(run.run_dir)[-1]
    assert end["quality_gate"] == {"passed": False, "metric": "loss", "value": 3.0, "threshold": 2.5}
    assert end["exit_code"] == 1


def test_a_resumed_run_goes_on_in_the_same_stream(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(1, 11):
            run.log(step, loss=10.0 - step)
    with linnet.start(resume="a", from_step=6, system_every=0) as again:
        for step in range(7, 9):
            again.log(step, loss=0.5)
    lines = lines_of(root / "a")
    assert [line["kind"] for line in lines].count("run_start") == 1
    times = [line["t"] for line in lines]
    assert times == sorted(times)
    assert [line["kind"] for line in lines][-4:] == ["resume", "step", "step", "run_end"]
    opened = linnet.open("a")
    assert opened.status == "completed"
    assert opened.metrics()["loss"].step.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert opened.metrics()["loss"].value.tolist()[-3:] == [4.0, 0.5, 0.5]
    assert len(opened.metrics(superseded=True)["loss"]) == 12


def test_resume_ends_the_line_its_killed_writer_left_open(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    with (root / "a/events.jsonl").open("ab") as file:
        file.write(b'{"kind":"step","st')
    bundle = RunBundle(root, "a", resume=True)
    bundle.resume(1)
    bundle.step(2, 0.5)
    bundle.run_end(2, 0.5)
    opened = linnet.open("a")
    metrics = opened.metrics()
    assert metrics["loss"].step.tolist() == [1, 2]
    assert metrics.damaged == 1
