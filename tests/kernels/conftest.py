"""Compiling without a compiler; and kernels that are interpreted.

The cases of `test_interpreted_kernels.py` run in one process of their own; each is reported as a test of this one.
Triton's interpreter must be asked for before Triton is imported, and other tests need the compiler.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

INTERPRETED = Path(__file__).with_name("test_interpreted_kernels.py")


@pytest.fixture
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace and take apart as the compiler would, but run the pieces as they are: seconds instead of a minute."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **flags: real(function, **flags, backend="aot_eager"))
    torch._dynamo.reset()


@pytest.hookimpl(trylast=True)  # when those that are not wanted are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        items[:] = [
            InterpretedCase.from_parent(item.parent, name=item.name) if item.path == INTERPRETED else item
            for item in items
        ]


class InterpretedCase(pytest.Item):
    def runtest(self) -> None:
        problem = outcomes(self.session).get(self.name, "the interpreter's process ended before this case")
        if problem is not None:
            pytest.fail(problem, pytrace=False)


@cache
def outcomes(session: pytest.Session) -> dict[str, str | None]:
    """What is wrong with each of the session's cases, None where it passed. Workers of one session share one run."""
    assert session.config.cache is not None
    folder = session.config.cache.mkdir("interpreted_kernels")
    kept, session_id = folder / "outcomes.json", os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists() or (outcome := json.loads(kept.read_text()))["session"] != session_id:
            names = [item.name for item in session.items if isinstance(item, InterpretedCase)]
            outcome = {"session": session_id, "problems": run_interpreted(names, folder / "report.xml")}
            kept.write_text(json.dumps(outcome))
    problems: dict[str, str | None] = outcome["problems"]
    return problems


def run_interpreted(names: list[str], report: Path) -> dict[str, str | None]:
    cases = [f"{INTERPRETED}::{name}" for name in names]
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *cases]
    report.unlink(missing_ok=True)
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    problems: dict[str, str | None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failures = [part.text for part in case if part.tag in ("failure", "error")]
        problems[case.attrib["name"]] = failures[0] if failures else None
    return problems
