"""What the commands that read runs print, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import linnet
from linnet.runs import Run, RunError, provenance
from linnet.runs.metric_parser import MetricParser
from tests.conftest import Printed

STEERING = "\x7f\x9b\u00ad\u061c\u200b\u200e\u202e\u2028\u2029\ufeff\U000e0001"


def test_group_and_parent_are_shown(root: Path, printed: Printed) -> None:
    with linnet.start(run_id="a", group="seeds", parent="b", experiment="lr", tags=["t"], name="n", system_every=0):
        pass
    shown = dict(line.split(maxsplit=1) for line in printed("show", "a").splitlines()[1:] if len(line.split()) > 1)
    assert {name: shown[name] for name in ("name", "experiment", "group", "parent", "tags")} == {
        "name": "n",
        "experiment": "lr",
        "group": "seeds",
        "parent": "b",
        "tags": "t",
    }
    for told in (json.loads(printed("show", "a", "--json")), json.loads(printed("runs", "--json"))[0]):
        assert (told["group"], told["parent"]) == ("seeds", "b")


def test_a_broken_manifest_is_said_and_the_run_is_not_taken_for_toys(root: Path, printed: Printed) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    (run.run_dir / "run.json").write_text('{"run_id": "a", "confi')
    for words in (["runs"], ["show", "a"], ["check", "a"]):
        assert "run.json cannot be read as a manifest" in printed(*words, code=int("check" in words))
    assert "written by" not in printed("show", "a")
    told = json.loads(printed("runs", "--json"))[0]
    assert "run.json cannot be read" in told["warning"]
    assert told["writer"] is None
    run.events_path.unlink()
    with pytest.raises(RunError, match=r"its run\.json cannot be read as a manifest, and there is no events\.jsonl"):
        Run.load(run.run_dir)


def test_json_on_a_terminal_steers_nothing_and_loses_nothing(root: Path, printed: Printed) -> None:
    text = f"a{STEERING}é漢😀z"
    with linnet.start(run_id="a", name=text, tags=[text], config={text: text}, system_every=0) as run:
        run.log(1, {"loss": 1.0, text: 2.0})
        run.note(text)
    for words in (
        ["runs", "--json"],
        ["show", "a", "--json"],
        ["compare", "a", "a", "--json"],
        ["metrics", "a", "--json"],
        ["metrics", "a", "--format", "jsonl"],
        ["tail", "a", "--json"],
        ["check", "a", "--json"],
    ):
        out = printed(*words)
        assert not set(STEERING) & set(out), words
        told = [json.loads(line) for line in out.splitlines()] if "tail" in words else []
        assert not told or told[-2]["text"] == text
    assert json.loads(printed("runs", "--json"))[0]["name"] == text
    assert "é漢😀z" in printed("runs", "--json")


@pytest.mark.parametrize("name", ["\x1b[31mred", 'a"b', "a\\b", "a\nb", "\x00", ""])
def test_a_metric_may_have_any_name(root: Path, printed: Printed, name: str) -> None:
    lines = [json.dumps({"kind": "step", "t": 1.0, "step": s, "loss": 1 / s, name: 2.0}) for s in range(1, 60)]
    parser = MetricParser()
    parser.take(("\n".join(lines) + "\n").encode())
    assert parser.names() == ["loss", name]
    (root / "a").mkdir(parents=True)
    (root / "a/events.jsonl").write_text("\n".join(lines) + "\n")
    assert json.loads(printed("show", "a", "--json"))["metrics"][name]["points"] == 59
    for words in (["metrics", "a"], ["compare", "a", "a"], ["show", "a"]):
        assert "loss" in printed(*words)


def test_no_run_that_fits_is_not_the_same_as_no_runs(root: Path, printed: Printed) -> None:
    assert printed("runs") == f"There are no runs in the folder {root}.\n"
    with linnet.start(run_id="a", system_every=0):
        pass
    assert printed("runs", "--tag", "x") == f"No run in the folder {root} fits these filters.\n"


def test_a_crashed_run_that_was_noted_can_be_told_from_a_live_one(root: Path, printed: Printed) -> None:
    run = Run.create(root)
    run.events_path.write_text('{"kind":"step","t":1,"step":1,"loss":1}\n')
    fields = json.loads((run.path / "run.json").read_text())
    before = {"host": provenance.host()["name"], "boot_id": "before", "lock": "flock"}
    (run.path / "run.json").write_text(json.dumps({**fields, "provenance": before}))
    printed("note", "latest", "why?")
    assert json.loads(printed("runs", "--json"))[0]["status"] == "crashed"


def test_a_name_of_a_million_letters_is_cut_for_people(printed: Printed, tmp_path: Path) -> None:
    events = [{"kind": "run_start", "t": 0.0, "run_id": "a" * 1_000_000}, {"kind": "run_end", "t": 1.0}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for command in ("check", "tail", "show"):
        lines = printed(command, str(tmp_path)).splitlines()
        assert lines and max(map(len, lines)) < 20_000, command
