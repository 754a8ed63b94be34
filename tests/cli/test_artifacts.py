"""`linnet show`: what a run has besides numbers, and one artifact of it, drawn or written into a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from tests.conftest import Printed, Said

IMAGE = np.random.default_rng(5).integers(0, 256, (6, 9, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs in which one has logged everything."""
    root = tmp_path_factory.mktemp("runs")
    with linnet.start(root, run_id="a", system_every=0) as run:
        for step in (10, 20):
            run.log(step, loss=1 / step)
            run.image(step, "samples/cat", IMAGE + np.uint8(step))
            run.sample(step, "def main(", f"):\n    return {step}")
        run.table(20, "errors", [{"text": "a, b", "loss": 3.5}, {"text": "\x1b[2J", "loss": float("nan")}])
        run.histogram(20, "weights", np.arange(100.0))
        run.text(20, "plan", "first line\n\x1b[31msecond line")
        run.audio(20, "voice", np.zeros(800), 800)
        for number in range(5):
            run.note(f"remark {number}")
        for step in (10, 20):
            (run.weights_dir / f"step_{step}.gguf").write_bytes(bytes(1000))
            run.checkpoint(run.weights_dir / f"step_{step}.gguf", step)
    return root


@pytest.fixture(autouse=True)
def runs(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(kept))


def test_show_lists_artifacts_checkpoints_samples_and_notes(printed: Printed) -> None:
    lines = [" ".join(line.split()) for line in printed("show", "a").splitlines()]
    assert any(line.startswith("samples/cat image 2 10 … 20 9×6, ") for line in lines)
    assert any(line.startswith("errors table 1 20 2 rows × 2, ") for line in lines)
    assert any(line.startswith("checkpoints 2 (2.0 kB) of steps 10, 20") for line in lines)
    assert "sample 20 def main(): return 20" in lines
    assert [line for line in lines if line.startswith("note")] == ["note remark 2", "note remark 3", "note remark 4"]
    assert "2 earlier notes: --all" in lines
    assert "note remark 0" in [" ".join(line.split()) for line in printed("show", "a", "--all").splitlines()]


def test_show_json_has_them_all(printed: Printed) -> None:
    told = json.loads(printed("show", "a", "--json"))
    assert [(one["name"], one["media"], one["step"]) for one in told["artifacts"]][:2] == [
        ("samples/cat", "image", 10),
        ("samples/cat", "image", 20),
    ]
    assert [one["step"] for one in told["checkpoints"]] == [10, 20]
    assert [note["text"] for note in told["notes"]] == [f"remark {number}" for number in range(5)]
    assert told["samples"][1]["text"] == "):\n    return 20"


def test_a_run_without_any_says_nothing_of_them(printed: Printed, root: Path) -> None:
    with linnet.start(run_id="bare", system_every=0) as run:
        run.log(1, loss=1.0)
    shown = printed("show", "bare")
    assert all(word not in shown for word in ("artifact", "note", "checkpoint", "sample"))
    told = json.loads(printed("show", "bare", "--json"))
    assert (told["artifacts"], told["notes"], told["samples"], told["checkpoints"]) == ([], [], [], [])


def test_tail_tells_what_was_logged_in_a_few_words(printed: Printed) -> None:
    lines = [" ".join(line.split()[2:]) for line in printed("tail", "a", "-n", "40").splitlines()]
    assert any(line.startswith("artifact step 20 image samples/cat 9×6, ") for line in lines), lines


def test_many_names_are_cut_and_counted(printed: Printed, root: Path) -> None:
    with linnet.start(run_id="many", system_every=0) as run:
        for number in range(30):
            run.text(1, f"text {number:02}", "x")
    assert "10 more names: --all" in printed("show", "many")
    assert "text 29" in printed("show", "many", "--all")


def test_an_image_is_got_out_by_name_and_step(printed: Printed, tmp_path: Path) -> None:
    file = tmp_path / "cat.png"
    assert "cat.png" in printed("show", "a", "--artifact", "samples/cat@10", "--out", str(file))
    np.testing.assert_array_equal(np.asarray(Image.open(file)), IMAGE + np.uint8(10))
    printed("show", "a", "--artifact", "samples/cat", "--out", str(tmp_path))
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "samples-cat@20.png")), IMAGE + np.uint8(20))


def test_a_table_is_got_out_as_csv_and_as_it_is(printed: Printed, tmp_path: Path) -> None:
    printed("show", "a", "--artifact", "errors", "--out", str(tmp_path / "errors.csv"))
    assert (tmp_path / "errors.csv").read_bytes().splitlines()[:2] == [b"text,loss", b'"a, b",3.5']
    printed("show", "a", "--artifact", "errors", "--out", str(tmp_path / "errors.json"))
    assert json.loads((tmp_path / "errors.json").read_text())["columns"] == ["text", "loss"]


def test_an_artifact_goes_into_a_pipe_to_the_byte(printed: Printed) -> None:
    assert printed("show", "a", "--artifact", "plan", "--out", "-") == "first line\n\x1b[31msecond line"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("samples/cat", "9×6"),
        ("errors", "a, b   3.5"),
        ("weights", "100 values"),
        ("plan", "first line\n␛[31msecond line"),
        ("voice", "1.0 s, 800 Hz"),
    ],
)
def test_each_is_drawn_and_steers_nothing(printed: Printed, name: str, shown: str) -> None:
    out = printed("show", "a", "--artifact", name)
    assert shown in out
    assert "\x1b" not in out
    assert json.loads(printed("show", "a", "--artifact", name, "--json"))["name"] == name


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--artifact", "sample/cat"], 2, "there is no artifact 'sample/cat'; did you mean samples/cat?"),
        (["--artifact", "samples/cat@11"], 2, "'samples/cat' was not logged at step 11; there are steps 10, 20"),
        (["--out", "x.png"], 2, "--out needs --artifact NAME"),
        (["--artifact", "plan", "--out", "/no/such/folder/x"], 1, "/no/such/folder/x"),
    ],
)
def test_mistakes_are_answered_in_one_line(said: Said, words: list[str], code: int, why: str) -> None:
    ended, out, err = said("show", "a", *words)
    assert (ended, out) == (code, "")
    assert err.startswith("linnet: ")
    assert err.count("\n") == 1
    assert why in err


def test_a_file_that_is_gone_or_changed_is_said(said: Said, root: Path, tmp_path: Path) -> None:
    with linnet.start(run_id="b", system_every=0) as run:
        run.text(1, "gone", "x")
        run.text(1, "changed", "right")
    gone, changed = linnet.open("b").artifacts()
    gone.path.unlink()
    changed.path.write_text("wrong")
    assert said("show", "b", "--artifact", "gone", "--out", str(tmp_path / "x"))[0] == 1
    assert not (tmp_path / "x").exists()
    code, _, err = said("show", "b", "--artifact", "changed")
    assert code == 1
    assert "is not what was written: its SHA-256 differs" in err
    assert "SHA-256 differs" in said("check", "b")[1]
    with linnet.start(run_id="none", system_every=0):
        pass
    assert "run none has logged no artifacts" in said("show", "none", "--artifact", "x")[2]
