"""Samples: each is a fresh process, taken again while other people's processes disturb it.

A script has two lives. Started by a person it runs its `main`. Started by `take` with a role, perhaps by a
peer's interpreter, it plays that role once and answers with numbers. So a script, and what it imports at
the top, needs nothing but the standard library until it knows its role.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Role = Callable[..., dict[str, Any]]

DATA = Path(__file__).parent / ".data"
FOREIGN_CORES = 0.5  # a sample taken while others used more does not count
NOT_HERE = 3  # the exit code of a script for which this machine lacks something
_RETRIES = 4
_PATIENCE = 60.0  # seconds; no further sample of a role is begun after that


class RoleFailedError(Exception):
    """A process that should have answered with numbers ended otherwise."""


class Samples:
    """The answers of several processes that played the same role."""

    def __init__(self, answers: list[dict[str, Any]], disturbed: bool) -> None:
        self.answers = answers
        self.disturbed = disturbed

    def median(self, key: str) -> float:
        """The median of one number over the samples."""
        return float(statistics.median(answer[key] for answer in self.answers))

    def worst(self, key: str) -> float:
        """The largest of one number over the samples."""
        return float(max(answer[key] for answer in self.answers))


def take(
    script: str,
    role: str,
    options: Callable[[], dict[str, Any]],
    *,
    python: Path | None = None,
    repeats: int = 3,
) -> Samples:
    """Play `role` of `script` until `repeats` undisturbed samples are there, or the patience is at an end.

    `options` is called before each sample, outside the measured time, to clear the ground for it.
    """
    from machine import ForeignLoad

    calm: list[dict[str, Any]] = []
    others: list[tuple[float, dict[str, Any]]] = []
    began = time.monotonic()
    while len(calm) < repeats and len(others) < _RETRIES:
        if (calm or others) and time.monotonic() - began > _PATIENCE:
            break
        arguments = options()
        with ForeignLoad() as load:
            answer = play(script, role, arguments, python)
        if load.cores < FOREIGN_CORES:
            calm.append(answer)
        else:
            others.append((load.cores, answer))
    if calm:
        return Samples(calm, disturbed=False)
    # None was calm: the least disturbed ones, and the report says so.
    others.sort(key=lambda pair: pair[0])
    return Samples([answer for _, answer in others[:repeats]], disturbed=True)


def play(script: str, role: str, options: dict[str, Any], python: Path | None = None) -> dict[str, Any]:
    """One fresh process that plays the role and answers."""
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        answer = Path(folder) / "answer.json"
        done = subprocess.run(command(script, role, options, answer, python), capture_output=True, text=True)
        if done.returncode or not answer.exists():
            raise RoleFailedError(f"{role} in {Path(script).name} ended with {done.returncode}:\n{done.stderr}")
        return dict(json.loads(answer.read_text()))


def command(script: str, role: str, options: dict[str, Any], answer: Path, python: Path | None = None) -> list[str]:
    """The command line of a process that plays a role."""
    return [str(python or sys.executable), script, "--role", role, json.dumps(options), str(answer)]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the project's own disk (a system's temporary folder may be in memory), gone afterwards."""
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def needs_cuda() -> None:
    """End the script where there is no GPU for it; that is no failure."""
    import torch

    if not torch.cuda.is_available():
        print("this benchmark needs a CUDA device", file=sys.stderr)
        sys.exit(NOT_HERE)


def start(
    main: Callable[..., Any], roles: dict[str, Role], flags: Callable[[argparse.ArgumentParser], None] | None = None
) -> int:
    """The script's entry: play the role it was started for, or run `main`, print the report and judge it.

    `flags` adds flags of the script's own, with defaults; `main` is then given what was chosen.
    """
    if sys.argv[1:2] == ["--role"]:
        role, options, answer = sys.argv[2:5]
        Path(answer).write_text(json.dumps(roles[role](**json.loads(options))))
        return 0
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=form)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the result to FILE as a line of JSON; -: print it"
    )
    if flags is not None:
        flags(parser)
    chosen = parser.parse_args()
    report = main() if flags is None else main(chosen)
    if chosen.json == Path("-"):
        print(json.dumps(report.record()))
        return 0 if report.reached else 1
    print(f"\n{report.name}\n\n{report.markdown()}")
    if chosen.json:
        report.append_json(chosen.json)
    return 0 if report.reached else 1
