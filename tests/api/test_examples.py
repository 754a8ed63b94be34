"""The examples do what their first lines say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import linnet
from tests.conftest import Said

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_training_from_python_is_the_same_as_from_the_command_line(
    said: Said, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "train_library.py"))["main"](str(corpus), steps=4)
    assert "completed: loss" in capsys.readouterr().out
    run = linnet.open("latest")
    assert (run.status, run.manifest.name, run.manifest.tags) == ("completed", "from a script", ["example"])
    by_hand = ["--preset", "tiny", "--vocab", "1024", "--ctx", "64", "--batch", "16", "--lr", "3e-3", "--steps", "4"]
    words = ["train", "from-scratch", "--corpus", str(corpus), *by_hand, "--run-id", "by-hand", "--json"]
    assert said(*words)[0] == 0
    pair = [linnet.open(name).metrics()["loss"].value.tolist() for name in (run.id, "by-hand")]
    assert pair[0] == pair[1]


def test_every_file_of_the_training_room_has_its_line_in_the_documentation() -> None:
    page = (EXAMPLES.parent / "docs/train.md").read_text()
    files = [file.name for file in (EXAMPLES.parent / "src/linnet/train").glob("*.py") if file.name != "__init__.py"]
    assert [name for name in sorted(files) if f"`{name}`" not in page] == []


def test_the_three_phases_run_as_documented(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLES.parent / "docs/recipes.md").read_text()
    snippet = next(block for block in page.split("```python\n") if block.startswith("from linnet.data")).split("```")[0]
    assert "books/" in snippet and "range(100)" in snippet
    exec(snippet.replace("books/", str(corpus)).replace("range(100)", "range(3)"), {})
    assert 1 < float(capsys.readouterr().out) < 8


def test_a_loop_of_ones_own_leaves_a_run_that_every_command_takes(
    said: Said, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / "own_torch_loop.py"))["main"](str(corpus), steps=6)
    capsys.readouterr()
    run = linnet.open("latest")
    assert run.status == "completed"
    assert [file.stem for file in run.checkpoints()] == ["step_2", "step_4", "step_6"]
    assert run.manifest.model["d_model"] == 64
    assert len(run.metrics()["validation/loss"]) == 3
    code, out, err = said("generate", "latest", "--prompt", "def ", "--max-tokens", "4")
    assert (code, out.startswith("def ")) == (0, True), err
    assert said("check", "latest")[0] == 0
    assert said("check", str(run.checkpoints()[-1]))[0] == 0
    assert said("eval", "latest", "--tokens", "512")[0] == 0
