"""docs/scale.md and the examples: every command in them is one that Linnet takes."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from linnet.cli.app import build_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scale.md").read_text()


def commands() -> list[str]:
    """The words after `linnet` of each command on the page."""
    joined = PAGE.replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```(?:yaml)?\n(.*?)```", joined, re.S))
    lists = [
        line.replace("[", "").replace("]", "").replace(",", " ") for line in blocks.splitlines() if "command:" in line
    ]
    lines = [
        line for line in [*blocks.splitlines(), *lists] if re.search(r"\blinnet (train|resume)\b|linnet +train ", line)
    ]
    return [line[re.search(r"\blinnet +(?=train|resume)", line).end() :] for line in lines]  # type: ignore[union-attr]


@pytest.mark.parametrize("words", commands())
def test_every_command_of_the_page_is_understood(words: str) -> None:
    command, bound, _ = build_app().parse_args(shlex.split(words), exit_on_error=False, print_error=False)
    assert command is not None
    assert bound is not None


def test_there_are_commands_for_every_launcher() -> None:
    assert len(commands()) >= 8
    for name in ("One box", "Two boxes", "SLURM", "Ray", "SkyPilot", "Kubeflow"):
        assert f"## {name}\n" in PAGE


def test_the_batch_script_is_sound() -> None:
    assert subprocess.run(["bash", "-n", ROOT / "examples/linnet.sbatch"], check=False).returncode == 0
    compile((ROOT / "examples/ray_train.py").read_text(), "ray_train.py", "exec")
