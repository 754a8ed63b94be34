"""The golden comparison finds a bit that differs, and a tree is the same as itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from linnet.cli.app import build_app
from tests.golden.__main__ import TREE, report
from tests.golden.cases import CASES, command
from tests.golden.record import record


def test_a_tree_is_the_same_as_itself_and_not_as_one_that_computes_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(TREE / "src", other / "src", ignore=shutil.ignore_patterns("__pycache__"))
    settings = other / "src" / "linnet" / "train" / "settings.py"  # where the schedule is
    written = settings.read_text()
    settings.write_text(written.replace("math.pi", "3.14159265"))
    assert settings.read_text() != written
    here, again, there = (record(tree, ["llama"], tmp_path / "work") for tree in (TREE, TREE, other))
    assert sum(line.startswith("step ") for line in here["llama"]) == 30
    assert sum(".gguf " in line for line in here["llama"]) == 2
    assert report(here, again)
    assert not report(here, there)
    said = capsys.readouterr().out
    assert "the same to the bit" in said and "DIFFERS" in said


def test_cases_that_fail_in_both_trees_are_not_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"llama": ["exit code 2", "linnet: no such flag"]}
    assert not report(failed, failed)
    assert "no such flag" in capsys.readouterr().out


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_a_command(name: str) -> None:
    build_app().parse_args(command(name), print_error=False, exit_on_error=False)
