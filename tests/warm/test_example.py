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
    monkeypatch.setattr("sys.argv", ["warm_vs_scratch.py", "--report", str(out)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ((out / "table.md").read_text(), (out / "curves.svg").read_text()) == (table, picture)


def test_tokens_to_a_loss_lie_between_evaluations() -> None:
    reached = runpy.run_path(str(EXAMPLE))["reached"]
    run = {"tokens": [100, 200, 300], "loss": [5.0, 4.0, 3.0]}
    assert reached(run, 3.5) == 250
    assert reached(run, 5.5) == 100
    assert reached(run, 2.9) is None
