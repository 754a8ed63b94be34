"""What `--record` of each analysis keeps is what the boards draw: a figure of its numbers, not its picture alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import linnet
from linnet.board.analysis_results import KINDS, AnalysisResult, analysis_results
from linnet.board.figure.analysis_figures import figure_of
from linnet.board.figure.heat_map import HeatMap
from linnet.board.journal import Journal
from tests.conftest import Said

TEXT = ("--prompt", "def main")
COMMANDS = {
    "cka": ("one@200",),
    "lmc": ("one@150", "one@200", "--alphas", "0,0.5,1"),
    "drift": ("one@200",),
    "lens-words": ("one@200", *TEXT, "--top", "2"),
    "attention": ("one@200", *TEXT),
}


def recorded(runs: Path) -> AnalysisResult:
    run = linnet.open("one", runs)
    journal, data = Journal(run), run.events_path.read_bytes()
    journal.take(data, 0, len(data))
    (result,) = analysis_results(journal, lambda artifact: artifact.read())
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_that_a_command_records_make_a_figure(trained: Path, tmp_path: Path, said: Said, kind: str) -> None:
    runs = tmp_path / "kept"
    shutil.copytree(trained / "one", runs / "one", symlinks=True)
    assert said(kind, *COMMANDS[kind], "--runs", str(runs), "--record")[0] == 0
    result = recorded(runs)
    figure = figure_of(kind, result.numbers)
    assert result.kind == kind and figure is not None
    if kind == "lens-words":
        assert isinstance(figure, HeatMap) and figure.texts is not None and result.numbers is not None
        likeliest = result.numbers["words_LTK"][-1][-1][0]
        assert figure.texts[-1][-1].endswith(f" {100 * likeliest['probability']:.0f}")
        assert list(figure.rows) == ["embd", "0", "1"]
