"""The examples that prepare a corpus on many machines, with a scheduler that is not there."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from linnet.data import prepare

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_slurm_array_makes_a_part_each_and_queues_the_join_once(stories: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    queue = tmp_path / "queue"
    (tools / "linnet").write_text(f'#!/bin/sh\nexec {sys.executable} -m linnet "$@"\n')
    # Its --wrap is what SLURM hands to a shell when all parts are there.
    (tools / "sbatch").write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done >> {queue}\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    corpus = stories / "stories"
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "LINNET_CACHE": str(tmp_path / "cache"),
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_COUNT": "2",
        "SLURM_ARRAY_JOB_ID": "77",
    }
    for number in ("1", "2"):
        subprocess.run(
            ["bash", str(EXAMPLES / "prepare.sbatch"), str(corpus), "--vocab", "300", "--held-out", "0.1"],
            env={**environment, "SLURM_ARRAY_TASK_ID": number},
            check=True,
            timeout=120,
        )
    words = queue.read_text().splitlines()
    assert words.count("--dependency=afterok:77") == 1
    (join,) = (word.removeprefix("--wrap=") for word in words if word.startswith("--wrap="))
    told = subprocess.run(["bash", "-c", join], env=environment, check=True, timeout=120, capture_output=True)
    alone = prepare(corpus, vocab=300, held_out=0.1, cache=stories / "cache")
    assert alone.fingerprint in told.stdout.decode()


def test_ray_tasks_make_a_part_each(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray itself is 600 MB; what the example asks of it is done here by calls."""

    class Remote:
        def __init__(self, function: Callable[..., Any]) -> None:
            self.remote = function

    ray: Any = ModuleType("ray")
    ray.remote = lambda **_: Remote
    ray.init = lambda: None
    ray.get = list
    monkeypatch.setitem(sys.modules, "ray", ray)
    words = [str(stories / "stories"), "--parts", "3", "--vocab", "300", "--cpus", "1", "--cache", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["ray_prepare.py", *words])
    runpy.run_path(str(EXAMPLES / "ray_prepare.py"), run_name="__main__")
    alone = prepare(stories / "stories", vocab=300, cache=tmp_path / "alone")
    told = capsys.readouterr().out
    assert "part 3 of 3" in told and alone.fingerprint in told
