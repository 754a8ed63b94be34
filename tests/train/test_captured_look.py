"""A look that is captured tells what a plain one does. On a CPU a recording stands for a GPU's graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linnet.kernels import Graph, Recording, replay
from linnet.kernels.replay import Work
from linnet.models import Config, ViTConfig, build
from linnet.models.transformer import Transformer
from linnet.train.hardware import choose
from linnet.train.inspection.captured_look import CapturedLook, Looker
from linnet.train.inspection.drift import DriftFigures
from linnet.train.inspection.gradients import GradientFigures
from linnet.train.inspection.late_events import LateEvents
from linnet.train.inspection.pieces import tensor_pieces
from linnet.train.inspection.taps import look_at_batch, look_at_probe
from linnet.train.memory import Sharing, peak_memory
from linnet.train.settings import TrainSettings
from tests.train.test_recording import GPT2, LLAMA

VIT = ViTConfig(image_size=8, patch_size=2, d_model=32, n_heads=2, d_ff=48, n_layers=2, num_channels=1)
MODELS = pytest.mark.parametrize("config", [LLAMA, GPT2, VIT], ids=["llama", "gpt2", "vit"])
ON: dict[str, Any] = {"graph": "on"}
NOT_INSPECTED: dict[str, Any] = {"inspect": None}
IDS_BT = torch.arange(64).view(4, 16)


def copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def looks(model: Transformer, first: dict[str, Tensor]) -> dict[str, tuple[Looker, Callable[[int], list[Any]]]]:
    """Each look as a GPU takes it, and what its n-th call reads."""
    parameters = dict(model.named_parameters())
    pieces = tensor_pieces(model.config, parameters.items())
    drift = DriftFigures(parameters, pieces, first, stacked=True)
    device, of_images = model.device, isinstance(model.config, ViTConfig)

    def batch(number: int) -> list[Tensor | None]:
        if of_images:
            return [(torch.arange(4 * 64) * 7 + number).remainder(256).view(4, 1, 8, 8).to(device), None]
        return [((IDS_BT + number) % 97).to(device), (number % 16 < IDS_BT % 16).long().to(device)]

    return {
        "taps": (lambda *inputs: look_at_batch(model, *inputs, stacked=True), batch),
        "gram": (lambda probe: look_at_probe(model, probe), lambda _: batch(0)[:1]),
        "drift": (drift.look, lambda number: [] if of_images else [(torch.arange(97) * number).to(device)]),
    }


def moved(model: nn.Module, number: int) -> None:
    """The weights after another step, in the memory where they were."""
    dice = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=dice))


def said(events: LateEvents) -> list[Any]:
    return [(event.kind, dict(event.fields)) for event in events.events()]


@MODELS
@pytest.mark.parametrize("group", ["taps", "gram", "drift"])
def test_a_captured_look_tells_what_a_plain_one_does(config: Config | ViTConfig, group: str) -> None:
    model = build(config)
    look, inputs = looks(model, copies(model))[group]
    captured, made = CapturedLook(look, model, Recording), []
    for number in range(5):
        moved(model, number)
        made.append((LateEvents(number, *captured(*inputs(number))), LateEvents(number, *look(*inputs(number)))))
    for of_captured, plain in made:  # asked at the end: no later look has written over what an earlier one found
        assert said(of_captured) == said(plain)


def test_rows_of_another_shape_are_looked_at_too() -> None:
    model = build(LLAMA)
    look, _ = looks(model, copies(model))["taps"]
    captured = CapturedLook(look, model, Recording)
    for rows in (4, 4, 4, 2, 4):
        rest: list[Tensor | None] = [IDS_BT[:rows] + rows, None]
        assert said(LateEvents(1, *captured(*rest))) == said(LateEvents(1, *look(*rest)))


def test_weights_that_somebody_has_laid_elsewhere_are_captured_anew() -> None:
    model, made = build(LLAMA), 0

    def capture(work: Work) -> Work:
        nonlocal made
        made += 1
        return Recording(work)

    look, inputs = looks(model, copies(model))["taps"]
    captured = CapturedLook(look, model, capture)
    for number in range(6):
        if number == 4:
            for parameter in model.parameters():
                parameter.data = parameter.data * 0.5
        assert said(LateEvents(1, *captured(*inputs(number)))) == said(LateEvents(1, *look(*inputs(number))))
    assert made == 2


@pytest.mark.parametrize("error", [RuntimeError("capture invalidated"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_look_whose_capture_fails_is_taken_without(error: Exception) -> None:
    model, tried = build(LLAMA), 0

    def capture(work: Work) -> Work:
        def fails(*inputs: Tensor | None) -> tuple[Tensor, ...]:
            nonlocal tried
            tried += 1
            work(*inputs)
            raise error

        return fails

    look, inputs = looks(model, copies(model))["taps"]
    captured = CapturedLook(look, model, capture)
    for number in range(3):
        assert said(LateEvents(1, *captured(*inputs(number)))) == said(LateEvents(1, *look(*inputs(number))))
    assert tried == 1


def test_a_model_in_which_a_program_has_hooks_is_not_captured() -> None:
    model, seen = build(LLAMA), 0

    def hook(*_: Any) -> None:
        nonlocal seen
        seen += 1

    model.blocks[0].register_forward_hook(hook)
    look, inputs = looks(model, copies(model))["taps"]
    captured = CapturedLook(look, model, Recording)
    for number in range(4):
        captured(*inputs(number))
    assert seen == 4


def test_the_plan_counts_what_captured_looks_keep() -> None:
    recipe: Any = SimpleNamespace(model=build(LLAMA))
    settings = TrainSettings(batch=4, device="cpu", inspect="taps,drift")
    on_gpu = replace(choose(settings, 64, weights=20_000), device=torch.device("cuda"))
    planned = partial(peak_memory, recipe, hardware=on_gpu, scored=0, copies=0, sharing=Sharing(of_process=0))
    captured, plain, without = (planned(settings=replace(settings, **changed)) for changed in (ON, {}, NOT_INSPECTED))
    assert captured > plain == without


class _Questions(TorchDispatchMode):
    """Operations that a device cannot do by itself: copies to another one, and numbers for the host."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        devices = {leaf.device for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)}
        if len(devices) > 1 or func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero"):
            self.names.append(str(func))
        return result


@MODELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_look_asks_the_device_after_the_first_one(config: Config | ViTConfig, dtype: torch.dtype) -> None:
    """A question would break off its capture on a GPU. Here the other device is one that computes nothing."""
    model = build(config).to("meta")
    model.set_compute_dtype(dtype)
    if not isinstance(config, ViTConfig):
        model.reserve(16)
    first = {name: torch.empty_like(parameter) for name, parameter in model.named_parameters()}
    for group, (look, inputs) in looks(model, first).items():
        look(*inputs(0))
        arguments = inputs(1)
        with _Questions() as questions:
            look(*arguments)
        assert not questions.names, group
    parameters = dict(model.named_parameters())
    observer = GradientFigures(parameters, tensor_pieces(config, parameters.items()), stacked=True)
    for _ in range(2):
        with _Questions() as questions:
            observer.after_backward()
            observer.after_update()
    assert not questions.names


def test_a_capture_that_cannot_be_ended_leaves_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch does it: its context ends the capture, which fails, before it goes back to the stream there was."""
    on: list[str] = ["the training's"]

    class Stream:
        def wait_stream(self, _: object) -> None: ...

    class Unending:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> None:
            on[0] = "the capture's"

        def __exit__(self, *_: object) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    fakes: dict[str, Any] = {
        "current_device": lambda: 0, "current_stream": lambda: on[0], "CUDAGraph": object, "graph": Unending,
        "set_stream": lambda stream: on.__setitem__(0, stream),
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(replay, "_capture_stream", lambda _: Stream())
    with pytest.raises(RuntimeError, match="previous error during capture"):
        Graph(lambda x: (x,), plain_calls=0)(torch.ones(2))
    assert on == ["the training's"]
