from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.runs import Artifact, examine
from linnet.runs.session import Session


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Every line of a stream, each of which must be strict JSON."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    lines = (folder / "events.jsonl").read_bytes().splitlines()  # of a text more than \n ends a line
    return [json.loads(line, parse_constant=refuse) for line in lines]


def logged(call: Callable[[Session], object]) -> list[Artifact]:
    """What a call leaves in a run that is sound."""
    with linnet.start(run_id="a", system_every=0) as run:
        call(run)
    opened = linnet.open(run.run_dir)
    assert examine(opened).sound
    return opened.artifacts()


def _mount(folder: Path, options: str) -> bool:
    """A file system of our own, where this user may mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 256 kB; only root can have one, for others the same fault is injected in another test."""
    folder = tmp_path / "disk"
    if not _mount(folder, "size=256k"):
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody may write in: root is stopped by a read-only disk, others by the folder's mode."""
    folder = tmp_path / "sealed"
    mounted = os.geteuid() == 0 and _mount(folder, "ro,size=64k")
    if not mounted:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o500)
    yield folder
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)
    else:
        folder.chmod(0o700)
