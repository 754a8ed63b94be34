"""Runs made by Toy, kaun-board and munin open, list, follow and compare like our own."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path

import pytest

import linnet
from linnet.runs import EventStream, Run, RunStore
from tests.conftest import FIXTURES

TOY = FIXTURES / "toy/llama-20260531-001"
KAUN = FIXTURES / "kaun-board/2026-03-14_09-26-53_a1f3_mnist"
MUNIN = FIXTURES / "munin/experiments/digits/runs/2026-03-20_10-00-00_0b1c"


def test_a_toy_run_has_its_manifest_from_its_first_event() -> None:
    run = Run.load(TOY)
    assert run.id == "llama-20260531-001"
    assert run.manifest.dialect == "toy"
    assert run.manifest.model["d_model"] == 64
    assert run.manifest.config["lr"] == 0.001
    assert run.manifest.total_steps == 6
    assert run.manifest.created_at == 1780219800.0
    assert run.manifest.provenance["host"] == "spark"
    assert run.status == "completed"
    summary = run.summarize()
    assert (summary.step, summary.metric, summary.value) == (6, "loss", 6.151132)


def test_toys_bare_nan_is_a_number_and_its_torn_line_is_counted() -> None:
    metrics = Run.load(TOY).metrics(cached=False)
    assert metrics["loss"].step.tolist() == [1, 2, 3, 4, 6]
    assert math.isnan(metrics["loss"].value[2])
    assert metrics["loss"].best == (6, 6.151132)
    assert metrics.damaged == 1
    kinds = [event.kind for event in Run.load(TOY).events().read_events()]
    assert "drift" in kinds
    assert "something_new" in kinds


def test_a_kaun_board_run_reads_like_our_own() -> None:
    run = Run.load(KAUN)
    assert run.manifest.dialect == "kaun-board"
    assert run.manifest.experiment == "mnist"
    assert run.manifest.tags == ["cnn", "baseline"]
    assert run.manifest.config == {"lr": 0.001, "batch_size": 64}
    metrics = run.metrics(cached=False)
    assert metrics.names() == ["train/loss", "train/accuracy"]
    assert metrics["train/loss"].t.tolist() == [1.0, 2.25, 3.5]
    assert metrics["train/loss"].epoch.tolist() == [1, 1, 2]
    assert metrics["train/loss"].best == (20, 0.41)
    assert math.isnan(metrics["train/loss"].value[2])
    assert metrics["train/accuracy"].best == (30, 0.88)
    assert metrics.main is not None
    assert metrics.main.name == "train/loss"
    assert run.status == "stalled"  # it has no end marker, and nothing is being written


def test_a_kaun_board_run_is_done_when_its_epochs_are(tmp_path: Path) -> None:
    shutil.copytree(KAUN, tmp_path / "run")
    manifest = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps({**manifest, "total_epochs": 2}))
    assert Run.load(tmp_path / "run").status == "completed"


def test_a_munin_run_reads_like_our_own() -> None:
    run = Run.load(MUNIN)
    assert run.manifest.dialect == "munin"
    assert run.id == "2026-03-20_10-00-00_0b1c"
    assert run.manifest.parent == "2026-03-19_08-00-00_77aa"
    assert run.manifest.config == {"lr": 0.01, "epochs": 3}
    assert run.status == "errored"
    metrics = run.metrics(cached=False)
    assert metrics["loss"].t.tolist() == [1.0, 2.0]
    assert metrics["score"].best == (2, 4.0)  # its declared goal is the least
    kinds = {event.kind for event in run.events().read_events()}
    assert {"scalars", "artifact", "note", "run_end"} <= kinds


def test_what_a_munin_run_was_given_while_it_ran_is_taken_up(tmp_path: Path) -> None:
    shutil.copytree(MUNIN, tmp_path / "run")
    manifest = json.loads((tmp_path / "run/run.json").read_text())
    origin = {"hostname": "spark", "git_commit": "0" * 40, "git_dirty": True}
    (tmp_path / "run/run.json").write_text(json.dumps({**manifest, "tags": ["a"], "provenance": origin}))
    more = [
        {"type": "tags", "values": ["b", "a"]},
        {"type": "metric", "step": 3, "timestamp": manifest["started_at"] + 3, "key": "epoch", "value": 2},
        {"type": "summary", "values": {"best": 0.5}},
    ]
    with (tmp_path / "run/events.jsonl").open("a") as stream:
        stream.writelines(json.dumps(event) + "\n" for event in more)
    run = Run.load(tmp_path / "run")
    assert run.tags == ["a", "b"]
    assert run.manifest.summary == {"best": 0.5}
    assert run.manifest.provenance["host"] == "spark"
    assert run.manifest.provenance["git"] == {"sha": "0" * 40, "branch": "", "dirty": True}
    assert run.total_epochs == 3
    assert run.metrics(cached=False).last_epoch == 2


def test_a_scalar_without_a_value_is_no_point(tmp_path: Path) -> None:
    shutil.copytree(KAUN, tmp_path / "run")
    with (tmp_path / "run/events.jsonl").open("a") as stream:
        stream.write('{"type":"scalar","step":40,"wall_time":1773480413.0,"tag":"train/lr"}\n')
        stream.write('{"type":"scalar","step":40,"wall_time":1773480413.0,"tag":"train/lr","value":"high"}\n')
    assert Run.load(tmp_path / "run").metrics(cached=False).names() == ["train/loss", "train/accuracy"]


def test_a_store_lists_all_of_them_side_by_side(tmp_path: Path) -> None:
    for source in (TOY, KAUN):
        shutil.copytree(source, tmp_path / source.name)
    shutil.copytree(MUNIN.parents[2], tmp_path / "experiments")
    with linnet.start(tmp_path, system_every=0) as run:
        run.log(1, loss=0.5)
    listed = RunStore(tmp_path).list()
    assert {summary.manifest.dialect for summary in listed} == {"linnet", "toy", "kaun-board", "munin"}
    assert [summary.status for summary in listed] == ["stalled", "errored", "completed", "completed"]
    assert RunStore(tmp_path).find("2026-03-20").id == "2026-03-20_10-00-00_0b1c"


@pytest.mark.parametrize("source", [TOY, KAUN, MUNIN])
def test_a_foreign_run_is_followed_while_it_grows(tmp_path: Path, source: Path) -> None:
    text = (source / "events.jsonl").read_bytes()
    file = tmp_path / "events.jsonl"
    stream = EventStream(file)
    count = 0
    for cut in range(0, len(text) + 1, 13):
        file.write_bytes(text[:cut])
        count += len(stream.read_events())
    file.write_bytes(text)
    count += len(stream.read_events())
    assert count + stream.damaged == text.count(b"\n")


def test_a_foreign_run_without_an_end_is_live_while_it_is_written(tmp_path: Path) -> None:
    shutil.copytree(KAUN, tmp_path / "run")
    line = {"type": "scalar", "step": 40, "wall_time": time.time() - 5, "tag": "train/loss", "value": 0.3}
    with (tmp_path / "run/events.jsonl").open("a") as events:
        events.write(json.dumps(line) + "\n")
    assert Run.load(tmp_path / "run").status == "live"
    later = linnet.runs.summary.summarize(tmp_path / "run", now=time.time() + 1000)
    assert later is not None
    assert later.status == "stalled"
