"""Keeping house among many runs, as people type it."""

from __future__ import annotations

import builtins
import io
import json
import re
import sys
from pathlib import Path

import pytest

import linnet
from linnet.cli import main
from linnet.files import point_link
from linnet.runs import Manifest, RunStore
from linnet.runs.trash import Trash
from tests.conftest import Printed, Said


@pytest.fixture
def three(root: Path) -> Path:
    """Three runs of a grid, each with three checkpoints."""
    for number, lr in enumerate((1e-4, 1e-3, 1e-2)):
        name = f"grid-{number}"
        about = {"experiment": "grid", "config": {"lr": lr, "seed": number}, "tags": ["todo"]}
        with linnet.start(root, run_id=name, system_every=0, **about) as run:
            for step in (10, 20, 30):
                run.log(step, loss=lr * 100 / step)
                file = run.weights_dir / f"step_{step}.gguf"
                file.write_bytes(b"w" * 1000 * step)
                run.checkpoint(file, step)
            (run.run_dir / "state").mkdir()
            (run.run_dir / "state" / "step_30.safetensors").write_bytes(b"s" * 500)
            point_link(run.weights_dir / "best", "step_20.gguf")
            point_link(run.weights_dir / "latest", "step_30.gguf")
    return root


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    """Somebody sits at the terminal; the questions they were asked come back."""
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda question: asked.append(question) or text)  # type: ignore[func-returns-value]
    return asked


def names(root: Path) -> list[str]:
    return [summary.run_id for summary in RunStore(root).list()]


# -- labels --------------------------------------------------------------------------------------------------------


def test_a_run_gets_a_name_and_is_found_by_it(three: Path, printed: Printed) -> None:
    assert printed("rename", "grid-1", "the good one") == "grid-1 is called the good one\n"
    assert json.loads(printed("show", "the good one", "--json"))["run_id"] == "grid-1"
    assert printed("rename", "grid-1", "") == "grid-1 has no name\n"


def test_a_reader_that_has_had_enough_leaves_nothing_half_done(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        """A pipe whose reader has ended."""

        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    for words in (["rename", "grid-*", "{seed}"], ["tag", "grid-*", "--add", "x"], ["archive", "grid-*"]):
        assert main(words) == 0
    assert [(run.name, run.tags, run.archived) for run in _labels(three)] == [
        (seed, ["todo", "x"], True) for seed in ("0", "1", "2")
    ]
    assert main(["delete", "grid-*", "--yes"]) == 0
    assert names(three) == []
    assert main(["delete", "--undo"]) == 0
    assert len(_labels(three)) == 3


def _labels(root: Path) -> list[Manifest]:
    return [run.manifest for run in RunStore(root).find_all("grid-*")]


def test_many_runs_are_named_by_their_settings(three: Path, printed: Printed) -> None:
    printed("rename", "--experiment", "grid", "lr{lr}-seed{seed}")
    assert [RunStore(three).find(f"grid-{n}").name for n in range(3)] == [
        "lr0.0001-seed0",
        "lr0.001-seed1",
        "lr0.01-seed2",
    ]


def test_a_setting_that_is_not_there_renames_nothing(three: Path, said: Said) -> None:
    code, _, err = said("rename", "--experiment", "grid", "{width}")
    assert code == 2
    assert "run grid-0 has no setting 'width' for its name; it has experiment, arch, lr, seed" in err
    assert RunStore(three).find("grid-0").name is None


def test_tags_by_a_query(three: Path, printed: Printed, said: Said) -> None:
    out = printed("tag", "--where", "lr<1e-2", "--add", "slow", "--remove", "todo")
    assert out == "grid-0  #slow\ngrid-1  #slow\n"
    assert RunStore(three).find("grid-2").tags == ["todo"]
    code, _, err = said("tag", "grid-0")
    assert (code, "tag needs --add TAG or --remove TAG" in err) == (2, True)


def test_archived_runs_leave_the_lists_and_keep_their_names(three: Path, printed: Printed) -> None:
    out = printed("archive", "grid-[01]")
    assert out.splitlines() == ["archived grid-0", "archived grid-1", "`linnet runs --where archived` lists them"]
    listed = printed("runs")
    assert "grid-2" in listed and "grid-0" not in listed
    assert "grid-0" in printed("runs", "--archived")
    assert json.loads(printed("show", "grid-0", "--json"))["run_id"] == "grid-0"
    printed("archive", "grid-2")
    assert "grid-2" in printed("show", "latest"), "of archived runs alone, the newest"
    printed("archive", "grid-0", "--undo")
    assert names(three) == ["grid-0"]


def test_archived_runs_are_marked_and_can_be_listed_alone(three: Path, printed: Printed) -> None:
    printed("archive", "grid-[01]")
    head, *rows = (line.split() for line in printed("runs", "--archived").splitlines())
    at = head.index("archived")
    assert [(row[0], row[at]) for row in rows] == [("grid-0", "yes"), ("grid-1", "yes"), ("grid-2", "–")]
    alone = printed("runs", "--where", "archived and lr<1e-2", "--json")
    assert [(run["run_id"], run["archived"]) for run in json.loads(alone)] == [("grid-0", True), ("grid-1", True)]
    assert "archived" not in printed("runs", "--where", "not archived")
    assert printed("archive", "--where", "archived", "--undo").count("listed again") == 2
    assert "archived" not in printed("runs", "--archived").splitlines()[0]


@pytest.mark.parametrize("command", [["delete"], ["archive"], ["tag", "--add", "x"], ["thin", "--keep", "best"]])
def test_no_word_never_means_every_run(three: Path, said: Said, command: list[str]) -> None:
    code, _, err = said(*command)
    assert code == 2
    assert f"{command[0]} needs the name of a run, or --where and what fits; `linnet runs` lists them" in err
    assert names(three) == ["grid-0", "grid-1", "grid-2"]


def test_rename_with_one_word_says_what_is_missing(three: Path, said: Said) -> None:
    code, _, err = said("rename", "grid-1")
    assert (code, names(three)) == (2, ["grid-0", "grid-1", "grid-2"])
    assert err == "linnet: the new name is missing, or the run: linnet rename grid-1 wide; `linnet runs` lists runs\n"


def test_where_nothing_fits_it_is_said(three: Path, said: Said) -> None:
    code, _, err = said("delete", "--where", "lr>5", "--yes")
    assert code == 1
    assert "no run in the folder" in err and "fits" in err


# -- deleting ------------------------------------------------------------------------------------------------------


def test_delete_asks_tells_the_bytes_and_can_be_undone(
    three: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer(monkeypatch, "y")
    out = printed("delete", "--where", "lr<1e-2")
    assert "grid-0  (" in out and "files, 6" in out
    assert len(asked) == 1 and re.fullmatch(r"Delete these 2 runs, 12\d kB\? \[y/N\] ", asked[0])
    assert names(three) == ["grid-2"]
    assert "`linnet delete --undo` takes back what was deleted last, for a day" in out
    assert printed("delete", "--undo").count("restored") == 2
    assert names(three) == ["grid-0", "grid-1", "grid-2"]
    assert (three / "grid-0/weights/best").resolve().name == "step_20.gguf"


def test_no_is_no(three: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "n")
    code, out, _ = said("delete", "grid-0")
    assert (code, out.splitlines()[-1]) == (1, "nothing was deleted")
    assert names(three) == ["grid-0", "grid-1", "grid-2"]


def test_where_nobody_can_be_asked_nothing_is_deleted(three: Path, said: Said) -> None:
    code, _, err = said("delete", "grid-0")
    assert (code, "say --yes" in err) == (2, True)
    assert names(three) == ["grid-0", "grid-1", "grid-2"]


def test_one_of_several_is_taken_back_by_name(three: Path, printed: Printed, said: Said) -> None:
    printed("delete", "grid-0", "--yes")
    printed("delete", "grid-1", "--yes")
    printed("delete", "--undo", "grid-0")
    assert names(three) == ["grid-0", "grid-2"]
    code, _, err = said("delete", "--undo", "grid-9")
    assert (code, "no run 'grid-9' was deleted in the last day; there is grid-1" in err) == (1, True)


def test_for_good_and_the_emptied_trash(three: Path, printed: Printed, said: Said) -> None:
    assert "--undo" not in printed("delete", "grid-0", "--yes", "--for-good")
    assert not (three / ".trash").exists()
    code, _, err = said("delete", "--undo")
    assert (code, "nothing was deleted from" in err) == (1, True)
    printed("delete", "grid-1", "--yes")
    assert "were deleted in the last day and are still there; `linnet delete --empty-trash` frees them" in printed("du")
    assert printed("delete", "--empty-trash", "--yes").startswith("removed 6")
    assert not (three / ".trash").exists()


# -- thinning and sizes --------------------------------------------------------------------------------------------


def test_thin_keeps_what_is_named(three: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, "yes")
    out = printed("thin", "grid-*", "--keep", "best,latest")
    assert asked == ["Delete 30.0 kB? [y/N] "]
    assert "grid-0: checkpoint of step 10, 10.0 kB" in out
    weights = sorted(path.name for path in (three / "grid-0" / "weights").iterdir())
    assert weights == ["best", "latest", "step_20.gguf", "step_30.gguf"]
    assert printed("thin", "grid-0", "--keep", "best,latest", "--yes") == "there is nothing to thin\n"
    printed("delete", "--undo")
    assert (three / "grid-2/weights/step_10.gguf").stat().st_size == 10_000


def test_thin_says_when_a_run_could_not_be_resumed_and_takes_the_links_along(three: Path, printed: Printed) -> None:
    out = printed("thin", "grid-0", "--keep", "best", "--yes")
    assert "2 checkpoints of steps 10, 30 (it cannot be resumed then), 40.5 kB" in out
    assert not (three / "grid-0/weights/latest").is_symlink()
    printed("delete", "--undo")
    assert (three / "grid-0/weights/latest").resolve().name == "step_30.gguf"


def test_a_run_that_is_being_written_is_not_thinned(root: Path, said: Said) -> None:
    with linnet.start(root, run_id="live", system_every=0) as run:
        run.log(1, loss=1.0)
        code, _, err = said("thin", "live", "--keep", "best", "--yes")
    assert (code, "run live is being written" in err) == (1, True)


def test_thin_explains_keep(three: Path, said: Said) -> None:
    code, _, err = said("thin", "grid-0", "--keep", "bestest")
    assert code == 2
    assert "--keep: 'bestest' is none of best, latest, last=3, every=1000, or a step" in err


def test_du_adds_up(three: Path, printed: Printed) -> None:
    lines = printed("du").splitlines()
    assert lines[0].split() == ["run", "weights", "state", "events", "artifacts", "other", "total"]
    assert lines[-1].startswith("3 in all")
    told = json.loads(printed("du", "--json"))
    total = sum(path.lstat().st_size for path in three.rglob("*") if path.is_symlink() or path.is_file())
    assert told["total"] == total == sum(run["total"] for run in told["runs"])
    assert told["runs"][0]["state"] == 500
    assert printed("du", "grid-0").splitlines()[-1].startswith("1 in all")


def test_du_of_an_empty_folder(root: Path, printed: Printed) -> None:
    root.mkdir()
    assert printed("du").startswith("There are no runs in the folder")


def test_what_is_older_than_a_day_goes_with_the_next_command(three: Path, printed: Printed) -> None:
    store = RunStore(three)
    store.delete("grid-0", at=1.0)
    assert len(Trash(three).deletions()) == 1
    printed("du")
    assert Trash(three).deletions() == []
