"""The learning rate of every step, and the gate at the end: pure functions of the settings."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from linnet.errors import UsageError
from linnet.train.metrics import Gate
from linnet.train.settings import TrainSettings


def rates(**settings: object) -> list[float]:
    chosen = TrainSettings(steps=100, lr=1.0, **settings)  # type: ignore[arg-type]
    return [chosen.learning_rate(step) for step in range(100)]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "wsd"])
def test_warm_up_rises_in_equal_steps_to_the_full_rate(schedule: str) -> None:
    found = rates(schedule=schedule, warmup=10)
    assert found[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert max(found) == 1.0


def test_warm_up_is_a_twentieth_of_the_steps_unless_told() -> None:
    assert rates(schedule="constant")[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert rates(schedule="constant", warmup=0)[0] == 1.0
    assert TrainSettings(steps=100_000).warmup_steps == 500


def test_a_constant_rate_stays() -> None:
    assert set(rates(schedule="constant", warmup=5)[5:]) == {1.0}


def test_a_cosine_falls_to_the_least_rate_and_is_half_way_in_the_middle() -> None:
    found = rates(schedule="cosine", warmup=0, lr_min=0.2)
    assert found[0] == 1.0
    assert found[50] == pytest.approx(0.6)
    assert found[75] == pytest.approx(0.2 + 0.4 * (1 + math.cos(0.75 * math.pi)))
    assert all(a > b for a, b in pairwise(found))
    assert found[-1] == pytest.approx(0.2, abs=1e-3)
    settings = TrainSettings(steps=100, lr=1.0, schedule="cosine", warmup=0, lr_min=0.2)
    assert [settings.learning_rate(step) for step in (100, 150)] == [0.2, 0.2]  # also past the end


def test_the_least_rate_is_a_tenth_unless_told() -> None:
    assert TrainSettings(lr=0.5).least_lr == 0.05
    settings = TrainSettings(steps=10, lr=1.0, warmup=10)  # nothing is left after the warm-up
    assert settings.learning_rate(10) == pytest.approx(0.1)


def test_wsd_holds_its_rate_and_falls_in_a_line_at_the_end() -> None:
    found = rates(schedule="wsd", warmup=10, decay=0.2, lr_min=0.0)
    assert set(found[10:81]) == {1.0}
    assert found[80:] == pytest.approx([1 - n / 20 for n in range(20)])


def test_gates_are_read_as_people_write_them() -> None:
    assert Gate.parse("loss<2.5") == Gate("loss", "<", 2.5)
    assert Gate.parse(" validation/ppl <= 1.2e1 ") == Gate("validation/ppl", "<=", 12.0)
    assert Gate.parse("accuracy>0.97") == Gate("accuracy", ">", 0.97)
    assert Gate.parse("x>=-3").threshold == -3.0


@pytest.mark.parametrize("text", ["", "loss", "loss=2", "loss==2", "<2", "loss<", "loss<two", "loss<1.2.3", "loss<<2"])
def test_what_is_no_gate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="`gate`"):
        Gate.parse(text)


def test_a_gate_is_passed_or_missed_and_nan_never_passes() -> None:
    assert Gate.parse("loss<2").verdict(1.9) == {"passed": True, "metric": "loss", "value": 1.9, "threshold": 2.0}
    assert Gate.parse("loss<2").verdict(2.0)["passed"] is False
    assert Gate.parse("loss<=2").verdict(2.0)["passed"] is True
    for way in ("<", "<=", ">", ">="):
        assert Gate.parse(f"loss{way}2").verdict(math.nan)["passed"] is False
