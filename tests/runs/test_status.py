"""A run's status comes from its last event and its writer's lock: nothing else brings one back to life."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli import main
from linnet.runs import Run, RunStore, add_note, summary
from tests.conftest import FIXTURES
from tests.runs.test_dialects import KAUN

HOUR = 3600.0


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _toy(folder: Path, began: float, *lines: dict[str, Any]) -> Run:
    """A run of Toy's: no manifest, no lock."""
    folder.mkdir(parents=True)
    start = {"kind": "run_start", "schema": "toy/v1", "t": 0.0, "started_at": _iso(began), "run_id": folder.name}
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (start, *lines)))
    return Run.load(folder)


def _elsewhere(folder: Path, began: float, *lines: dict[str, Any]) -> Run:
    """A run of ours on another machine, in a folder that this one sees too."""
    run = _toy(folder, began, *lines)
    away = {"host": "elsewhere", "boot_id": "another", "lock": "flock"}
    manifest = {"schema_version": 1, "run_id": folder.name, "created_at": began, "tags": [], "provenance": away}
    (folder / "run.json").write_text(json.dumps(manifest))
    return Run.load(run.path)


def _step(t: float, step: int = 1) -> dict[str, Any]:
    return {"kind": "step", "phase": "train", "t": t, "step": step, "loss": 1.0}


def _kaun(folder: Path, began: float, *lines: dict[str, Any]) -> Run:
    shutil.copytree(KAUN, folder)
    return Run.load(folder)


def _noted(run: Run) -> None:
    add_note(run, "was it the seed?")


def _touched(run: Run) -> None:
    run.events_path.touch()


def _copied(run: Run) -> None:
    shutil.copytree(run.path, run.path.with_name("copy"))
    run.path = run.path.with_name("copy")


@pytest.mark.parametrize("change", [_noted, _touched, _copied])
@pytest.mark.parametrize("writer", [_toy, _elsewhere, _kaun])
def test_a_note_a_copy_or_a_touch_brings_no_run_back_to_life(
    root: Path, writer: Callable[..., Run], change: Callable[[Run], None]
) -> None:
    run = writer(root / "dead", time.time() - HOUR, _step(5.0))
    os.utime(run.events_path, (1e9, 1e9))
    assert run.status == "stalled"
    change(run)
    assert run.status == "stalled"
    RunStore().delete(run)
    assert not run.path.exists()


@pytest.mark.parametrize("writer", [_toy, _elsewhere])
def test_a_run_is_live_while_its_last_event_is_of_this_minute(root: Path, writer: Callable[..., Run]) -> None:
    run = writer(root / "busy", time.time() - HOUR, _step(5.0), _step(HOUR - 20.0, 2))
    os.utime(run.events_path, (1e9, 1e9))
    assert run.status == "live"


def test_a_resumed_run_of_another_machine_is_as_old_as_its_last_event(root: Path) -> None:
    now = time.time()
    resume = {"kind": "resume", "t": 5.0, "step": 1, "resumed_at": _iso(now - 60)}
    run = _elsewhere(root / "a", now - 100 * HOUR, _step(5.0), resume, _step(40.0, 2))
    assert run.status == "live"
    later = summary.summarize(run.path, now=now + 200)
    assert later is not None
    assert later.status == "stalled"


def test_the_resume_may_lie_far_back_in_the_stream(root: Path) -> None:
    now = time.time()
    resume = {"kind": "resume", "t": 5.0, "step": 1, "resumed_at": _iso(now - 500)}
    steps = [_step(5.0 + n, n) for n in range(2, 501)]
    assert _elsewhere(root / "a", now - 100 * HOUR, _step(5.0), resume, *steps).status == "live"
    assert _elsewhere(root / "b", now - 100 * HOUR, *steps).status == "stalled"


@pytest.mark.parametrize("writer", [_toy, _elsewhere])
def test_a_clock_that_is_ahead_is_no_sign_of_life(root: Path, writer: Callable[..., Run]) -> None:
    assert writer(root / "future", time.time() + 1000 * HOUR, _step(5.0)).status == "stalled"
    assert writer(root / "broken", time.time(), _step(1e300)).status == "stalled"


def test_a_stream_that_tells_no_time_is_not_taken_for_live(root: Path) -> None:
    run = _toy(root / "a", 0.0)
    run.events_path.write_text(json.dumps(_step(5.0)) + "\n")
    assert run.status == "stalled"


def test_a_locked_run_whose_clock_stood_still_is_live_while_it_writes(root: Path) -> None:
    with linnet.start(run_id="slept", system_every=0) as run:
        fields = json.loads((run.run_dir / "run.json").read_text())
        (run.run_dir / "run.json").write_text(json.dumps({**fields, "created_at": time.time() - HOUR}))
        start = json.loads(run.events_path.read_text())
        with run.events_path.open("r+") as events:  # the same file: its lock is the writer's
            events.write(json.dumps({**start, "started_at": _iso(time.time() - HOUR)}, separators=(",", ":")))
        run.log(1, loss=1.0)
        assert linnet.open("slept").status == "live"
        later = summary.summarize(run.run_dir, now=time.time() + 200)
        assert later is not None
        assert later.status == "stalled"
        add_note(linnet.open("slept"), "is it stuck?")
        assert linnet.open("slept").status == "stalled"  # the last word was not the writer's


@pytest.mark.parametrize("change", [_noted, _touched, _copied])
@pytest.mark.parametrize("writer", [_toy, _elsewhere])
def test_a_run_is_as_old_as_its_last_event_whatever_became_of_its_file(
    root: Path, writer: Callable[..., Run], change: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run = writer(root / "old", time.time() - 30 * HOUR, _step(5.0), _step(HOUR, 2))
    change(run)
    found = run.summarize()
    assert found.last_event == pytest.approx(time.time() - 29 * HOUR, abs=60)
    assert found.modified == pytest.approx(time.time(), abs=60)
    main(["runs"])
    assert "1 d 5 h" in capsys.readouterr().out.splitlines()[1]


def test_the_age_of_a_resumed_run_counts_from_its_last_event(root: Path) -> None:
    began, resumed = time.time() - 100 * HOUR, time.time() - 10 * HOUR
    resume = {"kind": "resume", "t": 5.0, "step": 1, "resumed_at": _iso(resumed)}
    run = _elsewhere(root / "a", began, _step(5.0), resume, _step(5.0 + HOUR, 2))
    assert run.summarize().last_event == pytest.approx(resumed + HOUR, abs=5)


def test_the_age_of_a_live_run_that_was_resumed_long_ago_is_that_of_its_file(root: Path) -> None:
    with linnet.start(run_id="long", system_every=0) as run:
        fields = json.loads((run.run_dir / "run.json").read_text())
        (run.run_dir / "run.json").write_text(json.dumps({**fields, "created_at": time.time() - 100 * HOUR}))
        for step in range(8000):  # more than is looked through
            run.log(step, loss=1.0, **{f"metric_{index}": index / 7 for index in range(8)})
        found = linnet.open("long").summarize()
        assert (found.status, found.last_event) == ("live", found.modified)


def test_the_end_of_a_run_tells_its_age(root: Path) -> None:
    end = {"kind": "run_end", "t": 6.0, "reason": "completed", "ended_at": _iso(time.time() - HOUR)}
    found = _elsewhere(root / "a", time.time() - 100 * HOUR, _step(5.0), end).summarize()
    assert found.last_event == pytest.approx(time.time() - HOUR, abs=5)


def test_the_step_of_a_run_is_not_that_of_its_loss(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
        for step in range(2, 101):
            run.log(step, acc=step / 100)
    found = linnet.open("a").summarize()
    assert (found.step, found.metric, found.value) == (100, "loss", 1.0)
    main(["runs"])
    head, row = capsys.readouterr().out.splitlines()
    assert (head.split()[2:4], row.split()[2:4]) == (["step", "loss"], ["100", "1"])


def test_steps_of_decoding_are_no_steps_of_training(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [
        {"kind": "step", "phase": "decode", "t": 6.0 + n, "step": n, "token_id": 7, "logprob": -0.5} for n in range(90)
    ]
    run = _toy(root / "a", time.time(), _step(5.0, 12), *tokens, {"kind": "system", "t": 99.0, "cpu": {"percent": 3}})
    assert run.summarize().step == 12
    metrics = run.metrics(cached=False)
    assert metrics.last_step == 12
    assert metrics["sys/cpu/percent"].step.tolist() == [12]
    assert len(metrics["decode/logprob"]) == 90
    assert linnet.runs.examine(run).faults == []
    main(["tail", "a", "--no-follow", "-n", "1"])
    assert "decode no. 89 token_id 7 logprob -0.5" in " ".join(capsys.readouterr().out.split())


def test_regions_alignments_and_masks_are_lines_one_can_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = linnet.RunBundle(root, "a")
    run.step(1, 2.0)
    with run.region(1, "attention"):
        run.align(1, 0, 3, "blk.0.attn_q.weight", cos=0.25, dfa_norm=1.5, bp_norm=None)
        run.mask(1, 0, 3, 0.125)
    run.run_end(1, 2.0)
    main(["tail", "a", "--no-follow"])
    told = [" ".join(line.split()[2:]) for line in capsys.readouterr().out.splitlines()]
    assert "region_enter step 1 → attention" in told
    assert "region_exit step 1 ← attention" in told
    assert any(line.startswith("align step 1 blk.0.attn_q.weight cos 0.25 dfa_norm 1.5") for line in told)
    assert "mask step 1 layer 0 weight 3 density 0.125" in told
    metrics = linnet.open("a").metrics()
    assert metrics["align/blk.0.attn_q.weight/cos"].value.tolist() == [0.25]
    assert metrics["mask/0.3/density"].latest == (1, 0.125)


def test_a_run_of_every_ancestor_that_has_ended_stays_ended(root: Path) -> None:
    for writer in ("toy", "munin"):
        shutil.copytree(FIXTURES / writer, root / writer)
        for run in RunStore(root / writer).list():
            add_note(Run.load(run.path), "read again")
            assert Run.load(run.path).status == run.status != "live"
