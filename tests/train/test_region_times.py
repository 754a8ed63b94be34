"""Where the time of a step goes: regions nested as the model is, and as they really ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.models import Config, GPT2Config, LlamaConfig, build
from linnet.train import TrainSettings
from linnet.train.hardware import Hardware, choose
from linnet.train.inspection.region_times import RegionTimer
from linnet.train.step import Step, StepObserver
from tests.kernels.conftest import without_inductor as without_inductor
from tests.train.test_recording import GPT2, LLAMA, Batch, batch

BLOCK = ("attn_norm", "attn_qkv", "attention", "attn_output", "ffn_norm", "ffn_gate_up", "ffn_down")


def timed(config: Config, settings: TrainSettings, hardware: Hardware, data: Batch) -> list[tuple[str, float, float]]:
    """The regions of the second of two steps, in the order in which they began: path, beginning and end."""
    model = build(config)
    step = Step(model, settings, hardware)
    step(data, 1e-2)
    timer = RegionTimer(model, torch.device("cpu"), 2, compiled=hardware.compile)
    result = step(data, 1e-2, observer=StepObserver(timer=timer))
    assert torch.isfinite(result.loss) and timer.are_here()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    regions: list[list[Any]] = []
    stack: list[list[Any]] = []
    for event in timer.events():
        if event.kind == "region_enter":
            stack.append([event.fields["region"], event.fields["us"], 0.0])
            regions.append(stack[-1])
        else:
            region = stack.pop()
            assert region[0] == event.fields["region"], "what began last ends first"
            region[2] = event.fields["us"]
    assert not stack and regions[0][0] == "step" and regions[0][1] == 0.0
    return [(path, begin, end) for path, begin, end in regions]


def tree(regions: list[tuple[str, float, float]], within: str = "") -> list[str]:
    """The names of the regions just below a path."""
    depth = within.count("/") + 1 if within else 0
    return [path.rpartition("/")[2] for path, _, _ in regions if path.startswith(within) and path.count("/") == depth]


def cpu(**settings: Any) -> tuple[TrainSettings, Hardware]:
    given = TrainSettings(**{"batch": 2, "device": "cpu", "optimizer": "adamw", **settings})
    return given, choose(given, 32, weights=20_000)


def test_an_eager_step_is_timed_to_its_linear_layers() -> None:
    regions = timed(LLAMA, *cpu(graph="off"), batch(0, 2, False))
    assert tree(regions) == ["step", "forward", "backward", "update"]
    assert tree(regions, "forward") == ["token_embd", "blocks.0", "blocks.1", "output_norm", "loss"]
    assert tree(regions, "forward/blocks.1") == list(BLOCK)
    assert tree(regions, "backward") == ["loss", "blocks.1", "blocks.0", "embedding"]
    assert tree(regions, "backward/blocks.0") == ["feed_forward", "attention"]
    spans = {path: (begin, end) for path, begin, end in regions}
    for path, (begin, end) in spans.items():
        outer = path.rpartition("/")[0] or "step"
        assert spans[outer][0] <= begin <= end <= spans[outer][1], path
    inner = sum(spans[path][1] - spans[path][0] for path in ("forward", "backward", "update"))
    assert inner > 0.5 * spans["step"][1]


@pytest.mark.parametrize("graph", ["on", "off"])
def test_of_several_passes_the_first_is_timed_captured_or_not(graph: str) -> None:
    regions = timed(GPT2, *cpu(graph=graph), batch(0, 6, True))
    assert tree(regions) == ["step", "passes", "update"]
    assert tree(regions, "passes") == ["forward", "backward"]
    assert tree(regions, "passes/forward/blocks.0") == [name.replace("gate_up", "up") for name in BLOCK]
    spans = {path: end - begin for path, begin, end in regions}
    assert spans["passes"] > spans["passes/forward"] + spans["passes/backward"]


def test_of_two_halves_side_by_side_the_first_is_timed() -> None:
    settings, hardware = cpu(graph="off", batch=4)
    side_by_side = replace(hardware, halves=True, threads=2)
    assert side_by_side.halves_in_parallel
    regions = timed(LLAMA, settings, side_by_side, batch(0, 4, False))
    assert tree(regions, "passes/forward/blocks.0") == list(BLOCK)
    assert tree(regions, "passes/backward") == ["loss", "blocks.1", "blocks.0", "embedding"]


def test_activations_that_are_computed_again_are_time_of_the_backward_pass() -> None:
    regions = timed(LLAMA, *cpu(graph="off", recompute="blocks"), batch(0, 2, False))
    assert tree(regions, "forward/blocks.0") == list(BLOCK)
    assert tree(regions, "backward/blocks.0") == ["feed_forward", "attention"]


@pytest.mark.usefixtures("without_inductor")
@pytest.mark.parametrize("recompute", ["off", "blocks"])
def test_a_compiled_layer_is_one_region(recompute: str) -> None:
    settings, hardware = cpu(graph="off", recompute=recompute)
    config = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=16)
    regions = timed(config, settings, replace(hardware, compile=True), batch(0, 2, False))
    assert tree(regions, "forward") == ["token_embd", "blocks.0", "blocks.1", "output_norm", "loss"]
    assert tree(regions, "backward") == ["loss", "blocks.1", "blocks.0", "embedding"]
    assert not tree(regions, "forward/blocks.0")


def test_a_run_tells_of_regions_and_operations_where_it_is_asked_to(corpus: Path, capfd: Any) -> None:
    def doubled(model: Any, batch: Any) -> torch.Tensor:
        return 2 * model.loss(batch.ids_BT, batch.targets_BT)  # type: ignore[no-any-return]

    flags: dict[str, Any] = {
        "corpus": str(corpus),
        "preset": "tiny",
        "vocab": 384,
        "batch": 4,
        "steps": 3,
        "inspect": "regions,ops@2",
    }
    for name, more in {"model's own": {}, "a program's": {"loss": doubled}}.items():
        run = linnet.train(**flags, **more, run_id=name.replace(" ", "-").replace("'", ""))
        events = [event.data for event in run.events().read_events()]
        regions = [event["region"] for event in events if event["kind"] == "region_enter" and event["step"] == 2]
        assert "forward/blocks.1/attention" in regions and "backward/blocks.0/feed_forward" in regions, name
        timings = [event for event in events if event["kind"] == "op_timing"]
        assert [event["step"] for event in timings] == [1, 2, 3]
        assert 0 < sum(timings[1]["buckets"].values()) <= 1.05 * timings[1]["compute_us"]
    assert "USDT" not in capfd.readouterr().err, "the profiler says nothing by itself"


def test_a_profile_and_a_look_at_operations_do_not_meet(corpus: Path) -> None:
    flags: dict[str, Any] = {"corpus": str(corpus), "preset": "tiny", "vocab": 384, "batch": 4, "sample_every": 0}
    run = linnet.train(**flags, steps=18, profile=True, inspect="ops@5", eval_every=0)
    timings = [event.step for event in run.events().read_events() if event.kind == "op_timing"]
    assert timings == [1, 5, 16, 18], "ten steps from the sixth on are --profile's"


def test_gpt2_has_its_own_words() -> None:
    config = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=1, ctx=16)
    regions = timed(config, *cpu(graph="off"), batch(0, 2, False))
    assert "ffn_up" in tree(regions, "forward/blocks.0")
