"""What a tree computes: every case trained by its code, its numbers and files written down."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.golden.cases import command, write_corpus

Record = dict[str, list[str]]  # of each case: a line for every number and file, in order

_NUMBERS = (
    "loss",
    "lr",
    "grad_norm",
    "accuracy",
    "tokens",
    "images",
    "name",
    "prompt",
    "text",
    "train_loss",
    "validation_loss",
)
_KINDS = ("step", "eval", "sample", "checkpoint")


def record(tree: Path, cases: Iterable[str], folder: Path) -> Record:
    """Train the cases with the code of a tree, in a new `folder`; the same for both trees, since files may name it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_corpus(folder / "corpus")
    return {name: _train(tree, name, folder) for name in cases}


def _train(tree: Path, name: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "linnet", *command(name)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
    )
    run = folder / "runs" / name
    if done.returncode != 0:
        return [f"exit code {done.returncode}", *done.stderr.splitlines()]
    return [*_events(run), *_files(run)]


def _events(run: Path) -> list[str]:
    """The numbers of every step, evaluation, sample and checkpoint, written exactly; nothing that a clock says.

    Kind by kind: a checkpoint is announced when it is on the disk, between any two steps.
    """
    lines: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["kind"] in _KINDS:
            fields = {name: event[name] for name in _NUMBERS if name in event}
            lines[event["kind"]].append(f"{event['kind']} {event.get('step')} {json.dumps(fields, ensure_ascii=False)}")
    return [line for kind in _KINDS for line in lines[kind]]


def _files(run: Path) -> list[str]:
    files = sorted(path for path in (run / "weights").iterdir() if path.suffix == ".gguf" and not path.is_symlink())
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
