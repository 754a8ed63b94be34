"""Threads give their core away while they wait, where others use the machine; and what a training loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.train.process import wait_asleep_where_shared, waits_asleep


@pytest.mark.parametrize(
    ("load", "policy", "asleep"), [(0.0, None, False), (99.0, None, True), (99.0, "ACTIVE", False)]
)
def test_they_do_beside_other_work_unless_told_otherwise(
    load: float, policy: str | None, asleep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy or "")
    if policy is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load), raising=False)
    wait_asleep_where_shared()
    assert waits_asleep() == asleep


def test_once_torch_is_there_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0), raising=False)
    wait_asleep_where_shared()
    assert not waits_asleep()


COMMANDS = """
import sys
from linnet.cli import main

for words in sys.argv[1:]:
    assert main(words.split()) == 0, words
loaded = {"sympy", "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "triton", "transformers", "sklearn"}
print("loaded:", *sorted(loaded & set(sys.modules)))
"""


def test_neither_training_nor_what_comes_after_it_loads_the_compiler_or_sympy(corpus: Path) -> None:
    """Two seconds of every start, for what nobody asked for."""
    small = f"--corpus {corpus} --preset tiny --vocab 384 --batch 4 --steps 4 --eval-tokens 512 --sample-tokens 4"
    trained = [
        f"train from-scratch {small} --run-id a",  # by Muon, recorded
        f"train from-scratch {small} --optimizer adamw --graph off --arch gpt2 --run-id b",
        "resume b --steps 6",
        "generate a --max-tokens 4 --prompt the",
        f"eval a --corpus {corpus} --tokens 512",
    ]
    done = subprocess.run([sys.executable, "-c", COMMANDS, *trained], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
