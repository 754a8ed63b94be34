"""Name, tags and archive mark of a run, changed from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import linnet
from linnet.runs import Run, RunError, RunStore, labels
from tests.conftest import FIXTURES


def fields(run: Run) -> dict[str, object]:
    found = json.loads((run.path / "run.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    with linnet.start(tmp_path, run_id="a", name="old", tags=["x"], config={"lr": 0.1}, system_every=0) as session:
        session.log(1, loss=1.0)
    return RunStore(tmp_path).find("a")


def test_only_the_labels_change(run: Run) -> None:
    before = fields(run)
    labels.rename(run, " new ")
    assert labels.tag(run, add=["y", "x", " "], remove=["nothing"]) == ["x", "y"]
    labels.archive(run)
    assert (run.name, run.tags, run.manifest.archived) == ("new", ["x", "y"], True)
    assert fields(run) == {**before, "name": "new", "tags": ["x", "y"], "archived": True}
    assert RunStore(run.path.parent).find("new").id == "a"


def test_they_can_be_taken_away_again(run: Run) -> None:
    before = fields(run)
    labels.archive(run)
    labels.archive(run, archived=False)
    assert fields(run) == before
    labels.rename(run, "")
    labels.tag(run, remove=["x"])
    assert (run.name, run.tags) == (None, [])
    assert "name" not in fields(run)


def test_what_looks_like_a_secret_is_masked(run: Run) -> None:
    labels.rename(run, "token=abcdefghijklmnop1234")
    labels.tag(run, add=["hf_abcdefghijklmnopqrstuvwxyz"])
    assert "abcdefgh" not in (run.path / "run.json").read_text()


def test_a_writer_at_work_keeps_what_was_changed_meanwhile(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", tags=["x"], system_every=0) as session:
        session.log(1, loss=1.0)
        outside = RunStore(tmp_path).find("a")
        labels.rename(outside, "from outside")
        labels.tag(outside, add=["seen"])
        session.config["late"] = 3
        session.log(2, loss=0.5)
    after = RunStore(tmp_path).find("a")
    assert (after.name, after.tags, after.config["late"]) == ("from outside", ["x", "seen"], 3)


def test_a_run_without_a_manifest_says_so(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "events.jsonl").write_text('{"kind":"run_start","schema":"toy/v1","t":0.0,"run_id":"toy"}\n')
    with pytest.raises(RunError, match=r"run toy has no run\.json"):
        labels.rename(RunStore(tmp_path).find("toy"), "mine")


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("**/run.json")), ids=lambda path: path.parent.name)
def test_runs_of_the_ancestors_keep_all_else(path: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(path.parent, tmp_path / "run")
    run = Run.load(tmp_path / "run")
    before, dialect = fields(run), run.manifest.dialect
    labels.tag(run, add=["kept"])
    assert "kept" in run.tags
    assert run.manifest.dialect == dialect
    after = fields(run)
    assert {name: value for name, value in after.items() if name != "tags"} == {
        name: value for name, value in before.items() if name != "tags"
    }


def test_an_unwritable_folder_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("linnet.files.write_file", full)
    with pytest.raises(RunError, match=r"run\.json cannot be written: No space left on device"):
        labels.rename(run, "x")


def test_a_loop_names_and_tags_its_own_run_while_it_is_written(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", name="old", tags=["x"], system_every=0) as session:
        assert (session.name, session.tags) == ("old", ["x"])
        session.name = " wide "
        session.tags += ["good"]
        session.tags.append("seed 3")
        session.tags.remove("x")
    run = linnet.open(tmp_path / "a")
    assert (run.name, run.tags) == ("wide", ["good", "seed 3"])


def test_no_label_raises_into_a_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as session:
        session.tags = "alone"
        session.name = 3  # type: ignore[assignment]
        session.tags.append(None)  # type: ignore[arg-type]
        session.tags = 5  # type: ignore[assignment]
        session.log(1, loss=1.0)
        assert session.tags == ["alone"]
    assert (linnet.open(tmp_path / "a").name, linnet.open(tmp_path / "a").tags) == ("3", ["alone"])
    assert "tags" in caplog.text
    disabled = linnet.start(mode="disabled")
    disabled.name, disabled.tags = "x", ["y"]
    assert (disabled.name, disabled.tags) == ("x", ["y"])
    disabled.finish()


def test_a_run_that_is_over_is_renamed_and_tagged_from_python(run: Run) -> None:
    run.name = "new"
    run.tags += ["keep", "x"]
    run.tags.append("hf_abcdefghijklmnopqrstuvwxyz")
    assert (run.name, run.tags[:2]) == ("new", ["x", "keep"])
    assert fields(run)["name"] == "new"
    assert "abcdefgh" not in (run.path / "run.json").read_text()
    run.tags = []
    run.name = None
    assert "name" not in fields(run)
    assert fields(run)["tags"] == []
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"no run\.json that can be read"):
        run.tags = ["y"]
