"""`delete` removes what is provably a run, all of it, and nothing else."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import linnet
from linnet.runs import Run, RunError, RunStore
from tests.conftest import Said
from tests.runs.test_dialects import KAUN, MUNIN, TOY


@pytest.fixture
def run(root: Path) -> Path:
    with linnet.start(run_id="a", system_every=0) as session:
        session.log(1, loss=1.0)
    return root / "a"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", '{"name": "x"}'),
        ("run.json", "{}"),
        ("run.json", '{"run_id": "x", "version": 2}'),
        ("run.json", "not JSON"),
        ("events.jsonl", ""),
        ("events.jsonl", '{"event": "click", "kind": "mouse"}\n'),
        ("events.jsonl", '{"kind": "step", "t": 1, "step": 1, "loss": 1}\n'),
    ],
)
def test_a_folder_with_a_file_of_that_name_is_no_run(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proj/src").mkdir(parents=True)
    (tmp_path / "proj" / name).write_text(content)
    (tmp_path / "proj/src/main.py").write_text("code")
    for words in (["./proj", "-y"], ["./proj", "-y", "--force"], ["latest", "--runs", "proj", "-y", "--force"]):
        code, out, err = said("delete", *words)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
    assert (tmp_path / "proj/src/main.py").read_text() == "code"
    assert (tmp_path / "proj" / name).exists()


@pytest.mark.parametrize("source", [TOY, KAUN, MUNIN])
def test_an_ancestors_run_is_one(tmp_path: Path, said: Said, source: Path) -> None:
    shutil.copytree(source, tmp_path / "run")
    (tmp_path / "run/media").mkdir()
    assert said("delete", str(tmp_path / "run"), "--yes")[0] == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", [TOY, KAUN, MUNIN])
def test_the_stream_of_a_run_proves_it_where_its_manifest_is_broken(tmp_path: Path, source: Path) -> None:
    shutil.copytree(source, tmp_path / "run")
    (tmp_path / "run/run.json").write_text("{broken")
    RunStore(tmp_path).delete("run")
    assert not (tmp_path / "run").exists()


def test_all_that_a_run_writes_goes_with_it(run: Path, said: Said) -> None:
    for name in ("flow.json", ".run.json.x1y2", ".flow.json.tmp", ".DS_Store"):
        (run / name).touch()
    for folder in ("weights", "state", "artifacts/plots", ".cache"):
        (run / folder).mkdir(parents=True)
        (run / folder / "any.thing").touch()
    assert said("delete", "a", "--yes")[0] == 0
    assert not run.exists()


def test_files_that_no_run_writes_are_named_and_kept_without_force(run: Path, said: Said) -> None:
    (run / "thesis.tex").write_text("words")
    (run / "src").mkdir()
    (run / "src/main.py").write_text("code")
    code, _, err = said("delete", "a", "--yes")
    assert code == 1
    assert "no run writes thesis.tex, src/" in err
    assert "--force" in err
    with pytest.raises(RunError, match=r"thesis\.tex"):
        RunStore().delete("a")
    assert (run / "src/main.py").exists()
    assert (run / "events.jsonl").exists()
    assert said("delete", "a", "--yes", "--force")[0] == 0
    assert not run.exists()


def test_a_folder_that_holds_other_runs_is_never_deleted(root: Path, run: Path, said: Said) -> None:
    shutil.copy(run / "run.json", root / "run.json")  # now the folder of runs is a run itself
    for words in (["--yes"], ["--yes", "--force"]):
        code, _, err = said("delete", str(root), *words)
        assert code == 1
        assert "it holds other runs: a; delete those first" in err
    assert (run / "events.jsonl").exists()


def test_a_file_named_as_a_manifest_hides_no_runs_and_endangers_none(root: Path, run: Path, said: Said) -> None:
    (root / "run.json").write_text("{}")
    assert [found.run_id for found in RunStore().list()] == ["a"]
    assert said("delete", str(root), "--yes", "--force")[0] == 1
    assert (run / "events.jsonl").exists()


def test_of_a_linked_run_the_link_goes_and_the_target_stays(root: Path, run: Path, said: Said) -> None:
    outside = root.parent / "outside"
    run.rename(outside)
    (root / "link").symlink_to(outside)
    assert said("delete", "link", "--yes") == (0, f"deleted {root / 'link'}\n", "")
    assert not os.path.lexists(root / "link")
    assert (outside / "events.jsonl").exists()


def test_a_linked_subfolder_keeps_what_it_leads_to(run: Path) -> None:
    elsewhere = run.parent.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "step_1.gguf").touch()
    (run / "weights").symlink_to(elsewhere)
    RunStore().delete("a")
    assert not run.exists()
    assert (elsewhere / "step_1.gguf").exists()


def test_no_path_leads_back_out_of_a_run(run: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "weights").mkdir()
    monkeypatch.chdir(run / "weights")
    for path in ("..", "../../a/weights/..", str(run / "weights/..")):
        code, _, err = said("delete", path, "--yes")
        assert (code, "'..'" in err) == (1, True)
        with pytest.raises(RunError, match="goes back"):
            RunStore().delete(Run.load(path))
    assert (run / "events.jsonl").exists()
    assert said("delete", "../../a", "--yes")[0] == 0


def test_nothing_is_deleted_when_one_of_several_is_refused(root: Path, run: Path, said: Said) -> None:
    (root / "other").mkdir()
    (root / "other/run.json").write_text("{}")
    assert said("delete", "a", "other", "--yes")[0] == 1
    assert run.exists()


def test_the_question_names_files_and_bytes(run: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "weights").mkdir()
    (run / "weights/step_1.gguf").write_bytes(bytes(3_000_000))
    (run / "mine.txt").write_text("x")
    (run.parent / "link").symlink_to(run)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code, out, _ = said("delete", "a", "link", "--force")
    first, second = out.splitlines()[:2]
    assert first == f"{run}  (4 files, 3.0 MB, also mine.txt)"
    assert second == f"{run.parent / 'link'}  (a link to {run}, which stays)"
    assert (code, run.exists()) == (1, True)


def test_an_artifact_that_is_a_run_is_deleted_by_nobody_unasked(run: Path) -> None:
    (run / "artifacts/notes").mkdir(parents=True)
    (run / "artifacts/notes/run.json").write_text(json.dumps({"speed": 3}))
    kept = run / "artifacts/kept"
    shutil.copytree(TOY, kept)
    with pytest.raises(RunError, match="it holds other runs: artifacts/kept"):
        RunStore().delete("a", force=True)
    RunStore().delete(Run.load(kept))
    RunStore().delete("a")
    assert not run.exists()
