"""What a metric measures, and whether on held-out data, by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.runs.metric_names import held_out_of, is_held_out, main_metrics, quantity_of


@pytest.mark.parametrize(
    ("name", "quantity", "held_out"),
    [
        ("loss", "loss", False),
        ("train/loss", "loss", False),
        ("train_loss", "loss", False),
        ("Loss/train", "loss", False),
        ("validation/loss", "loss", True),
        ("val_loss", "loss", True),
        ("valLoss", "loss", True),
        ("valloss", "loss", True),
        ("eval/loss", "loss", True),
        ("Loss/test", "loss", True),
        ("held_out/loss", "loss", True),
        ("validation/bits_per_byte", "bits per byte", True),
        ("val_acc", "acc", True),
        ("value_loss", "value loss", False),
        ("device/memory", "memory", False),
        ("developer", "developer", False),
        ("grad_norm", "grad norm", False),
        ("lr", "lr", False),
        ("validation", "validation", True),
        ("", "", False),
    ],
)
def test_a_name_says_the_quantity_and_the_data(name: str, quantity: str, held_out: bool) -> None:
    assert (quantity_of(name), is_held_out(name)) == (quantity, held_out)


def test_the_held_out_metrics_of_one() -> None:
    names = ["loss", "lr", "validation/loss", "test/loss", "validation/ppl", "acc", "val_acc"]
    assert held_out_of("loss", names) == ["validation/loss", "test/loss"]
    assert held_out_of("acc", names) == ["val_acc"]
    assert held_out_of("lr", names) == held_out_of("validation/loss", names) == []


def test_what_is_shown_when_there_is_room_for_one_chart() -> None:
    assert main_metrics(["lr", "loss", "validation/loss", "tokens"]) == ["loss", "validation/loss"]
    assert main_metrics(["epoch_acc", "val_acc"]) == ["epoch_acc"]
    assert main_metrics(["train/acc", "val/acc"]) == ["train/acc", "val/acc"]
    assert main_metrics(["validation/loss"]) == ["validation/loss"]
    assert main_metrics([]) == []


@given(st.text(max_size=300))
def test_any_name_has_an_answer(name: str) -> None:
    assert isinstance(quantity_of(name), str) and isinstance(is_held_out(name), bool)
    assert name not in held_out_of(name, [name])
