"""The comparison with scratch does what its first lines say, and draws the same again without training."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import linnet

EXAMPLE = Path(__file__).parents[2] / "examples/warm_vs_scratch.py"


def test_the_comparison_trains_every_arm_and_reports_it(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["--donor", str(trained), "--corpus", str(corpus), "--cache", str(cache), "--out", str(out)]
    words += [
        "--budget",
        "3072",
        "--d-model",
        "48",
        "--n-layers",
        "2",
        "--ctx",
        "32",
        "--batch",
        "4",
        "--device",
        "cpu",
    ]
    words += ["--lr", "1e-3", "3e-3", "--seeds", "2", "--arms", "scratch", "pca", "select", "--eval-tokens", "256"]
    monkeypatch.setattr("sys.argv", ["warm_vs_scratch.py", *words])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    results = json.loads((out / "results.json").read_text())
    assert {arm: len(runs) for arm, runs in results["arms"].items()} == {"scratch": 2, "pca": 2, "select": 2}
    assert results["lr"] in (1e-3, 3e-3)
    assert results["arms"]["select"][0]["tokens"][-1] == 3072
    assert len(list(linnet.list_runs(out / "runs"))) == 7  # two rates for scratch, of which one is an arm's first
    table, picture = (out / "table.md").read_text(), (out / "curves.svg").read_text()
    assert table.count("\n| `") == 3
    assert picture.count("<polyline") == 3
    monkeypatch.setattr("sys.argv", ["warm_vs_scratch.py", *words])
    again = runpy.run_path(str(EXAMPLE))
    again["main"]()
    assert len(list(linnet.list_runs(out / "runs"))) == 7, "what is done is not done again"
    again["ARMS"]["select"]["layers"] = "first"
    again["main"]()
    assert len(list(linnet.list_runs(out / "runs"))) == 9, "under the same name something else"
    assert json.loads((out / "results.json").read_text())["arms"]["pca"] == results["arms"]["pca"]
    table, picture = (out / "table.md").read_text(), (out / "curves.svg").read_text()
    monkeypatch.setattr("sys.argv", ["warm_vs_scratch.py", "--report", str(out)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ((out / "table.md").read_text(), (out / "curves.svg").read_text()) == (table, picture)


def test_the_names_of_lines_that_end_together_do_not_overlap() -> None:
    apart = runpy.run_path(str(EXAMPLE))["_apart"]
    assert apart([50, 200], 0, 300) == [50, 200]
    assert apart([100, 101, 102], 0, 300) == [84, 101, 118]
    assert apart([50, 100, 101], 0, 300) == [50, 92, 109]
    assert apart([80, 100, 101, 102], 0, 300) == pytest.approx([70.25, 87.25, 104.25, 121.25])
    assert apart([299, 300], 0, 300) == [283, 300], "none below the plot"
    assert apart([0, 1], 0, 300) == [0, 17], "and none above it"


def test_tokens_to_a_loss_lie_between_evaluations() -> None:
    reached = runpy.run_path(str(EXAMPLE))["reached"]
    run = {"tokens": [100, 200, 300], "loss": [5.0, 4.0, 3.0]}
    assert reached(run, 3.5) == 250
    assert reached(run, 5.5) == 100
    assert reached(run, 2.9) is None
