"""What the benchmark of adapters says of sides that did not run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SECONDS = {"linnet": 0.016, "linnet, quantised base": 0.017, "peft": 0.2, "peft + compile": 0.05}


@pytest.fixture
def lora(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`bench/lora.py`, which measures nothing."""
    monkeypatch.syspath_prepend(str(BENCH))
    import lora

    monkeypatch.setattr(lora.sample, "needs_cuda", lambda: None)
    monkeypatch.setattr(lora.sample, "scratch", lambda: nullcontext(Path()))
    monkeypatch.setattr(lora, "prepare", lambda folder, device: None)
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    monkeypatch.setattr(lora.metadata, "version", lambda name: "1.0")
    yield lora
    for name in ("lora", "machine", "peers", "report", "sample"):
        sys.modules.pop(name, None)


def report_of(lora: ModuleType, monkeypatch: pytest.MonkeyPatch, *, without: str = "") -> Any:
    sides = {
        name: {"seconds": seconds, "peak": 1e9 * (1 if "linnet" in name else 4), "losses": [2.0, 1.0]}
        for name, seconds in SECONDS.items()
        if name != without
    }
    monkeypatch.setattr(lora, "turns", lambda names, device, folder: sides)
    return lora.main(argparse.Namespace(gpu=True))


def test_without_compiled_peft_its_figures_are_open_and_all_that_is_left_out_is_named(
    lora: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of(lora, monkeypatch, without="peft + compile")
    open_figures = [check for check in report.checks if "loss" not in check.what]
    assert len(open_figures) == 4 and not any(check.reached for check in open_figures)
    assert {(check.measured, check.unit) for check in open_figures} == {(None, "× peft + compile")}
    assert report.notes[0] == "Not among them: peft + compile, unsloth."
    assert any(
        "Beside peft uncompiled, which decides no figure: linnet has 12.5 × the" in note for note in report.notes
    )
    assert [row[0] for row in report.rows][-1] == "peft, uncompiled"


def test_beside_compiled_peft_they_are_judged(lora: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(lora, monkeypatch)
    assert report.reached and report.checks[0].measured == pytest.approx(0.05 / 0.016)
    assert report.notes[0] == "Not among them: unsloth."
