"""What goes wrong is told once, with its cause; what is healthy is not told at all."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import linnet
from linnet.board.journal import Journal
from linnet.train import Callback, StepMetrics
from linnet.train.inspection.late_events import InspectedEvent
from linnet.train.progress import Progress
from linnet.train.run_warnings import RunWarnings, TrainingWarning
from tests.conftest import losses

Told = list[tuple[int, TrainingWarning]]


def watched(values: Iterator[dict[str, float]], told: tuple[str, ...] = ()) -> Told:
    """What is told of steps with these losses, norms and seconds."""
    found: Told = []
    known = list(told)

    def tell(step: int, one: TrainingWarning) -> None:
        found.append((step, one))
        known.append(one.record)

    warnings = RunWarnings(tell, known)
    for step, one in enumerate(values, 1):
        fields = {"loss": 4.0, "grad_norm": 1.0, "wall_us": 1e5, **one}
        warnings.stepped(StepMetrics(step, 10_000, fields, "tokens", 1.0, None, 0.0), looked=False)
    return found


def noise(count: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(size=count).tolist()


def falling(steps: int, spread: float = 0.15) -> list[float]:
    """A loss as of a healthy run, from 8 to 3, with the noise of small batches."""
    return [3 + 5 * math.exp(-step / 80) + spread * one for step, one in enumerate(noise(steps))]


def test_a_healthy_run_is_told_nothing_of() -> None:
    norms = [math.exp(0.5 * one - step / 400) for step, one in enumerate(noise(2000, 1))]
    seconds = [1e5 * (1 + 0.3 * abs(one)) for one in noise(2000, 2)]
    steps = ({"loss": a, "grad_norm": b, "wall_us": c} for a, b, c in zip(falling(2000), norms, seconds, strict=True))
    assert watched(steps) == []


def test_a_loss_that_jumps_and_stays_is_told_of_once() -> None:
    losses = falling(300)
    losses[200:] = [one + 2.5 for one in losses[200:]]
    ((step, found),) = watched({"loss": one} for one in losses)
    assert step == 203 and (found.kind, found.metric) == ("loss_spike", "loss")
    assert found.text.startswith("the loss has jumped to ") and "for 3 steps" in found.text and "`lr`" in found.text


def test_each_further_jump_is_told_of_but_not_its_echo_and_not_for_ever() -> None:
    losses = falling(1200)
    for start in (200, 220, 500, 800):  # the second belongs to the first
        losses[start : start + 6] = [one + 3 for one in losses[start : start + 6]]
    found = watched({"loss": one} for one in losses)
    assert [(step, one.record) for step, one in found] == [
        (203, "loss_spike:step 203"), (503, "loss_spike:step 503"), (803, "loss_spike:step 803")
    ]  # fmt: skip
    losses = falling(3000)
    for start in range(200, 3000, 200):
        losses[start : start + 6] = [one + 3 for one in losses[start : start + 6]]
    found = watched({"loss": one} for one in losses)
    assert len(found) == 8 and found[-1][1].text.endswith(" (8 warnings of this kind; no more are told)")


def test_one_batch_unlike_the_others_is_no_spike() -> None:
    losses = falling(300)
    losses[200] = losses[201] = 9.0
    assert watched({"loss": one} for one in losses) == []


def test_a_gradient_that_explodes_is_told_of() -> None:
    norms = [1 + 0.2 * abs(one) for one in noise(100)]
    norms[70] = 50.0
    ((step, found),) = watched({"grad_norm": one} for one in norms)
    assert step == 71 and found.kind == "gradient_explodes" and "its norm is 50, 4" in found.text


def test_a_gradient_that_vanishes_is_told_of_unless_there_is_nothing_left_to_learn() -> None:
    norms = [math.exp(-step / 20) for step in range(400)]
    ((_, found),) = watched({"grad_norm": one} for one in norms)
    assert found.kind == "gradient_vanishes" and "was 1" not in found.text.split(", and was ")[0]
    assert watched({"grad_norm": one, "loss": max(1e-4, 4 * one)} for one in norms) == []
    ((step, found),) = watched({"grad_norm": one} for one in (1.0, 1.0, 0.0, 0.0))
    assert (step, found.metric) == (3, "grad_norm") and found.text.startswith("the gradient is 0")
    assert "cut off from the weights" in found.text
    for loss in (2e4, math.inf, math.nan):
        ((_, found),) = watched({"loss": one, "grad_norm": norm} for one, norm in ((4.0, 1.0), (loss, 0.0)))
        assert "cut off" not in found.text and "lower the learning rate (`lr`)" in found.text


def test_half_the_throughput_is_told_of_when_it_lasts() -> None:
    def seconds(*stretches: tuple[int, float]) -> Iterator[dict[str, float]]:
        return ({"wall_us": 1e6 * each} for steps, each in stretches for _ in range(steps))

    ((step, found),) = watched(seconds((60, 1.0), (60, 2.5)))
    assert step == 72 and found.metric == "tokens_per_s"
    assert found.text.startswith("a step takes 2.5 s, and took 1 s before: less than half of the throughput is left")
    assert watched(seconds((60, 1.0), (7, 2.5), (60, 1.0))) == [], "a short while"
    assert watched(seconds((5, 5.0), (60, 1.0), (60, 1.9))) == [], "the first steps compile; not yet half"
    assert watched(seconds((400, 0.01), (300, 0.03))) == [], "seconds of a run tell nothing"


def test_what_was_told_before_is_not_told_again() -> None:
    losses = falling(300)
    losses[200:] = [one + 2.5 for one in losses[200:]]
    assert watched(({"loss": one} for one in losses), told=("loss_spike",)) == []


def test_states_of_before_know_of_the_rise_that_was_told() -> None:
    assert Progress.from_facts(5, {"warned_of_rise": True}).warned == ["held_out_rise"]
    assert Progress.from_facts(5, {"warned_of_rise": False}).warned == []
    assert Progress.from_facts(5, {"warned": ["slow"]}).warned == ["slow"]


# -- of a layer -------------------------------------------------------------------------------------------------------


class Spoiled(Callback):
    """Does something to the model before its first step, and keeps doing so."""

    def __init__(self, spoil: Any) -> None:
        self._spoil = spoil

    def on_start(self) -> None:
        self._spoil(self.model)


class Stop(Callback):
    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == 5:
            signal.raise_signal(signal.SIGINT)


def without_gradient(*prefixes: str) -> Any:
    def spoil(model: Any) -> None:
        for name, parameter in model.named_parameters():
            if name.startswith(prefixes):
                parameter.register_hook(torch.zeros_like)

    return spoil


def with_huge_head(model: Any) -> None:
    with torch.no_grad():
        model.output.weight.mul_(2000)


def with_dead_units(model: Any) -> None:
    with torch.no_grad():
        model.blocks[1].ffn_gate_up.weight[:60].zero_()


def warnings_of(run: linnet.Run) -> list[dict[str, Any]]:
    return [event.data for event in run.events().read_events() if event.data.get("level") == "warning"]


FLAGS: dict[str, Any] = {
    "preset": "tiny", "vocab": 384, "batch": 4, "steps": 8, "n_layers": 3, "untied": True, "eval_every": 0,
    "sample_every": 0, "run_id": "a", "on_nan": "ignore", "lr": 1e-9, "inspect": "taps,grads@4", "optimizer": "adamw",
}  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (without_gradient("blocks.1."), "the gradient of layer 1 is 0: it learns nothing; is it masked, or cut off"),
        (without_gradient("blocks.2.ffn_down"), "the gradient of blk.2.ffn_down.weight is 0: it learns nothing"),
        (with_dead_units, "47% of the feed-forward units of layer 1 do nothing for any token: the learning rate"),
        (with_huge_head, "logits are saturated: they reach"),
    ],
)
def test_trouble_of_a_layer_is_told_of_where_it_is(corpus: Path, spoil: Any, text: str) -> None:
    run = linnet.train(**FLAGS, corpus=str(corpus), callbacks=[Spoiled(spoil)])
    warnings = warnings_of(run)
    assert [warning["step"] for warning in warnings] == [4], "at the second look, and once"
    assert warnings[0]["text"].startswith(text) and warnings[0]["metric"] in ("grad_norm", "loss")
    journal = Journal(run)
    block = run.events_path.read_bytes()
    journal.take(block, 0, len(block))
    assert [entry.text for entry in journal.log_entries() if entry.level == "warning"] == [warnings[0]["text"]]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "untied", "lora", "images"])
def test_a_healthy_training_is_told_nothing_of(corpus: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """As people train, with all that can be looked at, and long enough for every rule to have settled."""
    quick: dict[str, Any] = {"run_id": "a", "steps": 60, "inspect": "all@10", "progress": True}
    if kind == "images":
        shape = {"preset": "vit-tiny-8", "d_model": 24, "n_layers": 3, "d_ff": 48, "batch": 32}
        run = linnet.train("vit-tiny", **shape, **quick)
    else:
        text: dict[str, Any] = {"corpus": str(corpus), "batch": 4, "sample_every": 0, "eval_tokens": 512}
        shape = {"preset": "tiny", "vocab": 384, "n_layers": 3, "ctx": 32, "untied": kind == "untied"}
        shape |= {"arch": "gpt2"} if kind == "gpt2" else {}
        if kind == "lora":
            linnet.train(**shape, **text, run_id="base", steps=40)
            shape = {"base": "base"}
        run = linnet.train("lora" if kind == "lora" else "from-scratch", **shape, **text, **quick)
    assert run.status == "completed" and len(run.inspection().looks["taps"]) == 7
    assert warnings_of(run) == []
    assert "warning" not in capsys.readouterr().out


def test_a_warning_is_on_the_screen_and_a_resumed_run_does_not_say_it_again(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoiled = Spoiled(without_gradient("blocks.1."))
    linnet.train(**FLAGS, corpus=str(corpus), callbacks=[spoiled, Stop()], progress=True)
    assert capsys.readouterr().out.count("warning 4: the gradient of layer 1 is 0") == 1
    run = linnet.resume("a", callbacks=[spoiled], progress=True)
    assert "warning" not in capsys.readouterr().out and len(warnings_of(run)) == 1
    assert len(losses("a")) == 8


class Fading(Callback):
    """Takes the gradient from one layer after the other, from these steps on."""

    def __init__(self, **steps: int) -> None:
        self._steps = {f"blocks.{name.removeprefix('layer_')}.": step for name, step in steps.items()}
        self._step = 0

    def on_start(self) -> None:
        for name, parameter in self.model.named_parameters():
            for prefix, step in self._steps.items():
                if name.startswith(prefix):
                    parameter.register_hook(partial(self._faded, step))

    def _faded(self, first: int, gradient: Tensor) -> Tensor:
        return gradient * (self._step + 1 < first)

    def on_step(self, metrics: StepMetrics) -> None:
        self._step = metrics.step


def test_each_layer_that_dies_is_told_of_once_also_by_a_resumed_run(corpus: Path) -> None:
    flags = {**FLAGS, "steps": 12, "inspect": "grads@2", "graph": "off"}
    linnet.train(**flags, corpus=str(corpus), callbacks=[Fading(layer_0=4), Stop()])
    run = linnet.resume("a", callbacks=[Fading(layer_0=0, layer_2=9)])
    told = [(warning["step"], warning["text"].partition(":")[0]) for warning in warnings_of(run)]
    assert told == [(4, "the gradient of layer 0 is 0"), (10, "the gradient of layer 2 is 0")]


def grad(param: str, l2: float, nan_count: int = 0) -> InspectedEvent:
    return InspectedEvent("grad", {"param": param, "shape": [4, 4], "l2": l2, "nan_count": nan_count})


def looks(*events: list[InspectedEvent], known: tuple[str, ...] = ()) -> list[str]:
    """What is told of looks with these events."""
    texts: list[str] = []
    records = list(known)

    def tell(step: int, one: TrainingWarning) -> None:
        texts.append(one.text)
        records.append(one.record)

    warnings = RunWarnings(tell, records)
    for step, seen in enumerate(events, 2):
        warnings.looked(step, seen)
    return texts


def model(**norms: float) -> list[InspectedEvent]:
    """Six layers with these gradients (`_3=0.0`), else of 1."""
    layers = [grad(f"blk.{k}.attn_q.weight", norms.get(f"_{k}", 1.0)) for k in range(6)]
    return [*layers, grad("output.weight", norms.get("output", 1.0))]


def test_what_goes_at_once_is_one_line_and_what_goes_later_another() -> None:
    dead = model(_0=0, _1=0, _2=0, _4=0, output=0)
    (text,) = looks(dead, dead)
    assert text.startswith("the gradients of layers 0–2 and 4 and output.weight are 0: they learn nothing; are they")
    first, second = looks(model(_1=0), model(_1=0, _3=0), model(_3=0))
    assert first.startswith("the gradient of layer 1 is 0") and second.startswith("the gradient of layer 3 is 0")
    assert looks(model(_1=0), known=("layer_gradient:layer 1|layer 2",)) == []
    assert looks(model(_1=0), known=("layer_gradient",)) == [], "a state of before subjects were kept"


def test_layers_unlike_the_others_are_named_together_by_what_became_of_them() -> None:
    vanished, exploded = looks(model(_1=1e-7, _2=1e-9, _5=1e4), model(_1=1e-8, _5=1e5))
    assert vanished == (
        "the gradients of layers 1–2 have vanished: the norm that is furthest off is 1e-09, the median layer's 1"
    )
    assert exploded == "the gradient of layer 5 has exploded: its norm is 1e+04, the median layer's 1"


def test_many_tensors_of_numbers_that_are_not_finite_are_one_short_line() -> None:
    (text,) = looks([grad(f"blk.{k}.ffn_up.weight", math.nan, 16) for k in range(40)])
    assert text == (
        "the gradients of blk.0.ffn_up.weight, blk.1.ffn_up.weight, blk.2.ffn_up.weight, blk.3.ffn_up.weight and 36"
        " more tensors have numbers that are not finite; lower `lr`"
    )
    ones = [[grad(f"blk.{k}.ffn_up.weight", math.nan, 16)] for k in range(40)]
    texts = looks(*ones)
    assert len(texts) == 8 and texts[-1].endswith("(8 warnings of this kind; no more are told)")


def test_layers_with_dead_units_are_told_of_one_by_one() -> None:
    def taps(*dead: float) -> list[InspectedEvent]:
        return [InspectedEvent("tap", {"layer": k, "region": "ffn", "dead": x}) for k, x in enumerate(dead)]

    first, second = looks(taps(0.3, 0.6, 0.1), taps(0.3, 0.6, 0.4))
    assert first.startswith("60% of the feed-forward units of layer 1 do nothing for any token, and more than 25% of l")
    assert "layer 0: the learning rate" in first and second.startswith("40% of the feed-forward units of layer 2 do")


def test_a_gradient_that_is_not_finite_is_told_of_by_its_tensor(corpus: Path) -> None:
    def spoil(model: Any) -> None:
        model.blocks[1].attn_output.weight.register_hook(lambda gradient: gradient * torch.nan)

    flags = {**FLAGS, "on_nan": "stop", "inspect": "grads@1"}
    run = linnet.train(**flags, corpus=str(corpus), callbacks=[Spoiled(spoil)])
    assert run.status == "aborted"
    texts = [warning["text"] for warning in warnings_of(run)]
    assert texts == ["the gradient of blk.1.attn_output.weight has 4,096 numbers that are not finite; lower `lr`"]
