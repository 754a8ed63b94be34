"""`--profile`: ten steps are looked at closely, or as many as there are; the run goes on as if nothing had been."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
import torch

import linnet
from linnet.train import profile
from tests.conftest import Said


def op_timings() -> list[dict[str, Any]]:
    return [event.data for event in linnet.open("latest").events().read_events() if event.kind == "op_timing"]


def test_ten_steps_are_told_of_in_a_trace_an_event_and_lines(said: Said, small: list[str]) -> None:
    code, out, _ = said(*small, "--steps", "18", "--profile", "--eval-every", "4", "--sample-every", "0")
    assert code == 0
    assert "profile of 10 steps:" in out and "roofline:" in out
    assert len([line for line in out.splitlines() if "×  " in line]) == 5
    run = linnet.open("latest")
    with gzip.open(run.path / "artifacts" / profile.TRACE) as trace:
        assert json.load(trace)["traceEvents"]
    (event,) = op_timings()
    assert event["step"] == 16 and event["buckets"]["other"] >= 0
    # What was looked at stands for a step: evaluations in between are none of it.
    assert 0 < sum(event["buckets"].values()) <= 1.05 * event["compute_us"]


def test_a_run_too_short_for_ten_tells_of_those_it_has(said: Said, small: list[str]) -> None:
    code, out, _ = said(*small, "--steps", "9", "--profile")
    assert code == 0
    assert "profile of 3 steps:" in out
    assert len(op_timings()) == 1


@pytest.mark.parametrize("steps", ["2", "6"])
def test_a_run_too_short_for_any_says_so(steps: str, said: Said, small: list[str]) -> None:
    code, out, _ = said(*small, "--steps", steps, "--profile")
    assert code == 0
    assert f"no profile: it begins after 6 steps, and there were {steps}" in out
    assert not op_timings()


def test_the_step_after_it_is_not_charged_for_it(said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [0]
    true_time = time.perf_counter

    def slow(*_: object) -> float:
        hours.append(hours[-1] + 1)
        return 1e12

    monkeypatch.setattr(time, "perf_counter", lambda: true_time() + 3600 * hours[-1])  # an hour is longer than any step
    monkeypatch.setattr(profile, "measured_peak", slow)
    said(*small, "--steps", "18", "--profile", "--eval-every", "0", "--sample-every", "0", "--checkpoint-every", "0")
    assert hours == [0, 1]
    assert linnet.open("latest").metrics()["wall_us"].value[-2:].max() < 3600 * 1e6


def test_no_memory_for_the_roofline_is_no_reason_to_end(
    said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(profile, "measured_bandwidth", no_room)
    code, out, _ = said(*small, "--steps", "8", "--profile")
    assert code == 0
    assert "roofline: not measured, there is no memory left for it" in out
