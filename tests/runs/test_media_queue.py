"""Media beside a training loop: a slow disk, a full one, a fork, a kill, the end. The loop never waits."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.runs import examine
from linnet.runs.media.queue import MediaQueue
from linnet.runs.session import Session
from tests.runs.conftest import lines_of

RGB = np.random.default_rng(7).integers(0, 256, (5, 8, 3), dtype=np.uint8)


def test_a_slow_disk_drops_and_counts_and_never_stalls_the_loop(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(MediaQueue, "most_jobs", 4)
    released = threading.Event()
    work = MediaQueue._do_next
    monkeypatch.setattr(MediaQueue, "_do_next", lambda self: (released.wait(10), work(self))[1])
    with linnet.start(run_id="a", system_every=0) as run:
        began = time.monotonic()
        for step in range(50):
            run.image(step, "x", np.full((64, 64), step, np.uint8))
        assert time.monotonic() - began < 1.0
        released.set()
    steps = [artifact.step for artifact in linnet.open("a").artifacts()]
    assert steps[:4] == [0, 1, 2, 3]
    dropped = 50 - len(steps)
    assert dropped >= 45
    note = next(line for line in lines_of(root / "a") if line["kind"] == "note")
    assert (note["lost_media"], note["level"]) == (dropped, "warning")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert f"{dropped} of the images and other media" in caplog.text


def test_the_end_waits_for_the_queue_and_not_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(40):
            run.image(step, "x", np.full((64, 64), step, np.uint8))
    assert len(linnet.open("a").artifacts()) == 40
    assert lines_of(root / "a")[-1]["kind"] == "run_end"
    stuck = threading.Event()
    monkeypatch.setattr(MediaQueue, "_do_next", lambda self: stuck.wait(20))
    monkeypatch.setattr(Session, "media_seconds", 0.1)
    began = time.monotonic()
    with linnet.start(run_id="b", system_every=0) as run:
        run.image(1, "x", RGB)
    assert time.monotonic() - began < 3.0
    stuck.set()
    assert linnet.open("b").status == "completed"
    assert "1 of the images" in caplog.text


def test_a_run_keeps_so_many_files_and_bytes(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Session, "media_files", 3)
    for run_of in (lambda: linnet.start(run_id="a", system_every=0), lambda: linnet.start(resume="a", system_every=0)):
        with run_of() as run:
            for step in range(5):
                run.text(step, "x", f"text {step}")
    artifacts = linnet.open("a").artifacts()
    assert [artifact.step for artifact in artifacts] == [0, 1, 2, 0, 1, 2]  # what is there may be named again
    assert caplog.text.count("has 3 files of media") == 2


def test_a_full_disk_tears_nothing(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (40, 100, 100, 3), dtype=np.uint8)
    with linnet.start(small_disk, run_id="a", system_every=0) as run:
        for step in range(40):
            run.image(step, "x", noise[step])
        run.log(1, loss=1.0)
    opened = linnet.open(small_disk / "a")
    artifacts = opened.artifacts()
    assert 0 < len(artifacts) < 40
    assert [artifact.problem() for artifact in artifacts] == [""] * len(artifacts)
    assert caplog.text.count("was not kept") == 1
    assert f"{40 - len(artifacts)} of the images" in caplog.text


def test_an_unwritable_folder_never_raises(read_only: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(read_only, run_id="a", system_every=0) as run:
        run.image(1, "x", RGB)
        run.text(1, "x", "y")
    assert caplog.text.count("was not kept") == 1


def test_a_forked_worker_keeps_its_own_and_the_parent_goes_on(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.image(1, "parent", RGB)
        child = os.fork()
        if child == 0:
            run.image(2, "child", RGB[::-1])
            os._exit(0)
        os.waitpid(child, 0)
        run.image(3, "parent", RGB[:, ::-1])
    opened = linnet.open("a")
    assert {(artifact.name, artifact.step) for artifact in opened.artifacts()} == {
        ("parent", 1),
        ("child", 2),
        ("parent", 3),
    }
    assert examine(opened).sound


KILLED = """
import sys, numpy, linnet
run = linnet.start(sys.argv[1], run_id="a", system_every=0)
generator = numpy.random.default_rng(0)
for step in range(100000):
    run.image(step, "noise", generator.integers(0, 256, (64, 64, 3), dtype=numpy.uint8))
    if step == 20:
        print("going", flush=True)
"""


def test_a_killed_writer_leaves_no_torn_file_that_an_event_names(script: Callable[..., Any], root: Path) -> None:
    process = script(KILLED, str(root))
    assert process.stdout.readline() == "going\n"
    while not (root / "a" / "events.jsonl").read_bytes().count(b'"artifact"') > 5:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    opened = linnet.open("a")
    artifacts = opened.artifacts()
    assert len(artifacts) > 5
    assert [artifact.problem() for artifact in artifacts] == [""] * len(artifacts)
    assert examine(opened).sound


def test_a_program_that_just_ends_waits_for_its_media(script: Callable[..., Any], root: Path) -> None:
    process = script(
        "import sys, numpy, linnet\n"
        "run = linnet.start(sys.argv[1], run_id='a', system_every=0)\n"
        "for step in range(20):\n"
        "    run.image(step, 'x', numpy.full((64, 64), step, numpy.uint8))\n",
        str(root),
    )
    assert process.wait(30) == 0
    assert len(linnet.open("a").artifacts()) == 20
    assert linnet.open("a").status == "completed"


def test_ctrl_c_while_the_end_waits_still_ends_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(MediaQueue, "_do_next", lambda self: stuck.wait(20))
    interrupting = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    began = time.monotonic()
    with linnet.start(run_id="a", system_every=0) as run:
        run.image(1, "x", RGB)
        interrupting.start()
    assert time.monotonic() - began < 10
    stuck.set()
    assert linnet.open("a").status == "completed"
    assert lines_of(root / "a")[-1]["kind"] == "run_end"


def test_media_after_the_end_is_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        pass
    run.image(1, "x", RGB)
    run.text(1, "x", "y")
    assert linnet.open("a").artifacts() == []
    assert caplog.text.count("has ended") == 1
    assert not (root / "a" / "artifacts").exists()


def test_a_run_without_media_loads_no_numpy_and_no_thread(script: Callable[..., Any], root: Path) -> None:
    process = script(
        "import sys, threading, linnet\n"
        "run = linnet.start(system_every=0)\n"
        "run.log(1, loss=1.0)\n"
        "names = [thread.name for thread in threading.enumerate()]\n"
        "run.finish()\n"
        "print('numpy' in sys.modules, 'linnet-media' in names)\n"
    )
    assert process.communicate()[0] == "False False\n"


def test_the_thread_ends_with_the_run(root: Path) -> None:
    logging.getLogger("linnet").debug("")
    with linnet.start(run_id="a", system_every=0) as run:
        run.text(1, "x", "y")
        assert "linnet-media" in {thread.name for thread in threading.enumerate()}
    deadline = time.monotonic() + 5
    while "linnet-media" in {thread.name for thread in threading.enumerate()}:
        assert time.monotonic() < deadline
