"""What a training would take on devices that are not here: calculated, held against what was measured."""

from __future__ import annotations

import math
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from linnet.architectures import preset
from linnet.errors import UsageError
from linnet.train.cluster import Cluster, curve_clusters
from linnet.train.devices import EPYC, H200, device_names, find_device, measure_device, stated_peak
from linnet.train.forecast import CostModel, Forecast
from linnet.train.settings import TrainSettings

BENCH = Path(__file__).parents[2] / "bench"
ONE = Cluster(1, 1, 25e9, 300e9)
_135M = preset("smollm2-135m", ctx=1024)
_BILLION = preset("smollm2-135m", ctx=1024, d_model=2048, n_layers=16, n_heads=32, n_kv=8, d_ff=8192)


def forecast(config: Any = _135M, cluster: Cluster = ONE, device: Any = H200, **flags: Any) -> Forecast:
    of_model = {name: flags.pop(name) for name in ("shard", "recompute", "overlap", "per_rank") if name in flags}
    settings = TrainSettings(**{"batch": 8, "optimizer": "adamw", **flags})
    return CostModel(config, settings, device, **of_model).forecast(cluster)


def bench(name: str) -> dict[str, Any]:
    """What stands in a script of bench/."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(BENCH))
    script = runpy.run_path(str(BENCH / name), run_name="bench")
    for module in ("machine", "peers", "report", "sample"):
        sys.modules.pop(module, None)
    patch.undo()
    return script


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """The rows of bench/RESULTS.md with what is calculated for them, as `bench/cost.py` has them."""
    return bench("cost.py")


def test_every_measured_step_is_met_within_ten_per_cent(compared: Any) -> None:
    results = (BENCH / "RESULTS.md").read_text()
    errors = {}
    for row in compared["ROWS"]:
        figure = compared["measured"](row, results)
        assert figure is not None, f"{row.name} is not in RESULTS.md"
        seconds, _ = compared["calculated"](row)
        errors[f"{row.name} {row.beside}"] = seconds / compared["seconds_of"](row, figure) - 1
    assert len(errors) == len(compared["ROWS"]) >= 24
    assert {name: error for name, error in errors.items() if abs(error) > 0.10} == {}
    assert sum(map(abs, errors.values())) / len(errors) < 0.04


def test_what_two_ranks_add_to_a_step_is_met_within_ten_per_cent(compared: Any) -> None:
    """And sums alone within a quarter: those of more than two ranks take turns on two cores."""
    figures = compared["measured_ranks"]((BENCH / "RESULTS.md").read_text())
    expected, _ = compared["calculated_ranks"](figures[compared["PLAIN"]])
    for label, milliseconds in expected.items():
        share = 0.10 if label in compared["RANK_STEPS"] else 0.25
        assert milliseconds == pytest.approx(figures[label], rel=share), label
    one, two = (expected[label] for label in compared["RANK_STEPS"])
    assert two > 1.01 * one  # ranks are never for nothing


def test_peaks_of_whole_runs_are_met_within_fifteen_per_cent(compared: Any) -> None:
    results = (BENCH / "RESULTS.md").read_text()
    for row in compared["MEMORY_ROWS"]:
        figure = compared["measured"](row, results)
        assert compared["calculated"](row)[1] / 1e6 == pytest.approx(figure, rel=0.15), row.name


def test_rows_of_the_plan_are_of_the_optimizer_they_were_measured_with(compared: Any) -> None:
    """The default has changed once: what a row says must not change with it."""
    shapes = bench("plan.py")
    of_shape = {("plan", label): flags.get("optimizer") for label, flags in shapes["CPU"].items()}
    of_shape |= {("plan_gpu", label): flags.get("optimizer") for label, flags in shapes["GPU"].items()}
    assert None not in of_shape.values()
    of_row = {(row.section, row.label): row.settings["optimizer"] for row in compared["MEMORY_ROWS"]}
    assert of_row == {key: of_shape[key] for key in of_row}


def test_a_step_has_parts_that_add_up_and_a_limit() -> None:
    large, small = forecast(batch=32), forecast(batch=1, config=preset("smollm2-135m", ctx=128))
    assert large.cost is not None and large.step_seconds == pytest.approx(sum(large.cost.parts().values()))
    assert large.limit == "compute" and sum(large.shares().values()) == pytest.approx(1)
    assert small.limit == "batch too small" and (small.mfu or 1) < 0.05 < (large.mfu or 0)
    assert large.watts == pytest.approx(693, rel=0.01)  # what it drew
    assert (large.per_day or 0) < 86_400 * (large.speed or 0)  # checkpoints hold it up
    assert {"ranks", "memory", "step_seconds", "per_day", "watts", "limit", "seconds"} <= large.fields().keys()


def test_a_batch_is_shared_and_never_multiplied() -> None:
    cluster = Cluster(8, 2, 25e9, 300e9)
    shared = forecast(cluster=cluster, batch=8, batch_tokens=524_288)
    assert shared.plan.per_step == 524_288 and shared.rows == 32 and shared.passes == 4
    few = forecast(cluster=cluster, batch=8, batch_tokens=32 * 1024)
    assert few.rows == few.at_once == 2 and few.passes == 1
    grown = forecast(cluster=cluster, batch=8, per_rank=True)
    assert grown.plan.per_step == 16 * 8 * 1024 and grown.rows == 8
    with pytest.raises(UsageError, match="`batch_tokens=1000` is no multiple of the 8192 tokens"):
        forecast(batch_tokens=1000)


def test_more_gpus_than_sequences_and_uneven_shares_are_no_steps() -> None:
    few = forecast(cluster=Cluster(8, 2, 25e9, 300e9), batch=8)
    assert few.step_seconds is None and few.speed is None and few.per_day is None and few.watts is None
    assert few.why == "8 sequences a step are too few for 16 GPUs" and few.limit == "batch too small"
    uneven = forecast(cluster=Cluster(3, 1, 25e9, 300e9), batch=8)
    assert uneven.why == "3 GPUs cannot share the 8 sequences of a step evenly" and uneven.limit == "batch uneven"


def test_the_link_is_waited_for_unless_the_backward_pass_hides_it() -> None:
    slow, quick = Cluster(8, 2, 1e9, 300e9), Cluster(8, 2, 400e9, 300e9)
    flags: dict[str, Any] = {"batch": 8, "batch_tokens": 131_072}
    waits = forecast(cluster=slow, **flags)
    assert waits.limit == "link" and waits.shares()["link"] > 0.9
    hidden, bare = forecast(cluster=quick, **flags), forecast(cluster=quick, overlap="off", **flags)
    assert hidden.link < 0.2 * bare.link and hidden.limit == "compute"
    assert bare.link == pytest.approx(quick.sum_seconds(4 * 134_515_008))
    # Four bytes a parameter, scattered and gathered: 2·(g−1)/g inside a machine and 2·(m−1)/m between two.
    assert bare.link == pytest.approx(4 * 134_515_008 * (2 * 7 / 8 / 300e9 + 2 / 2 / 400e9), rel=0.02)


def test_gloo_between_processes_of_one_machine_takes_what_was_measured() -> None:
    """Of 15.2M float32 numbers, bench of 2026-11-15 (docs/cost.md): 65 ms for two ranks, 104 for four."""
    for ranks, measured in ((2, 0.065), (4, 0.104)):
        assert Cluster(ranks, 1, 1e9, EPYC.link).sum_seconds(4 * 15.2e6) == pytest.approx(measured, rel=0.10)


def test_shards_spare_memory() -> None:
    eight = Cluster(8, 1, 25e9, 300e9)
    flags: dict[str, Any] = {"config": _BILLION, "cluster": eight, "batch": 4, "per_rank": True}
    whole, moments, weights = (forecast(shard=shard, **flags) for shard in ("none", "moments", "weights"))
    assert whole.memory > moments.memory > weights.memory
    assert whole.memory - moments.memory > 0.8 * 7 / 8 * 8 * 1.07e9  # two moments of four bytes, an eighth kept
    assert forecast(**flags).memory == moments.memory  # by default from 300M on
    assert forecast(cluster=eight, per_rank=True).memory == forecast(cluster=eight, per_rank=True, shard="none").memory
    card = replace(find_device("rtx-4090"), link=30e9)
    assert not forecast(shard="none", device=card, **flags).fits
    assert forecast(shard="moments", device=card, **{**flags, "batch": 2}).fits  # a billion on cards of 24 GB
    assert moments.cost is not None and weights.cost is not None
    assert weights.cost.elementwise > 4 * moments.cost.elementwise  # its layers are not compiled


def test_recomputation_spares_memory_and_costs_a_forward_pass() -> None:
    kept, cheap, blocks = (forecast(recompute=kind, batch=32) for kind in ("off", "cheap", "blocks"))
    assert kept.memory == cheap.memory and kept.step_seconds == cheap.step_seconds  # compiled: it does that anyway
    assert blocks.memory < 0.5 * kept.memory
    assert 1.2 < (blocks.step_seconds or 0) / (kept.step_seconds or 1) < 1.45  # a forward pass is a third
    plain: dict[str, Any] = {"config": preset("nano", ctx=256), "device": EPYC}
    kept, cheap, blocks = (forecast(recompute=kind, **plain) for kind in ("off", "cheap", "blocks"))
    assert blocks.memory < cheap.memory < kept.memory
    assert (kept.step_seconds or 0) < (cheap.step_seconds or 0) < (blocks.step_seconds or 0)


def test_buffers_of_gradients_are_counted_as_a_step_makes_them() -> None:
    """On a CPU shares are added up by a tree, which takes copies; several ranks keep a buffer between steps."""
    nano = preset("nano", ctx=256)
    numbers = 4 * 15_191_712
    flags: dict[str, Any] = {"config": nano, "device": EPYC, "batch": 2}
    one, eight = forecast(**flags), forecast(batch_tokens=8 * 2 * 256, **flags)
    assert eight.memory - one.memory == pytest.approx(1.2 * 3 * numbers, rel=0.02)  # beside the activations
    gpu: dict[str, Any] = {"config": _135M, "batch": 32, "per_rank": True}
    pair, alone = forecast(cluster=Cluster(2, 1, 25e9, 300e9), **gpu), forecast(**gpu)
    assert pair.memory - alone.memory == pytest.approx(4 * 134_515_008, rel=0.05)


def test_muon_is_shared_out_among_ranks() -> None:
    flags: dict[str, Any] = {"batch": 8, "per_rank": True}
    alone = forecast(optimizer="muon", **flags)
    eight = forecast(optimizer="muon", cluster=Cluster(8, 1, 25e9, 300e9), **flags)
    plain = forecast(**flags)
    assert alone.cost is not None and eight.cost is not None and plain.cost is not None
    assert alone.step_seconds is not None and plain.step_seconds is not None
    # What kernels of 135M took on an H200 beyond AdamW's: 3.4 ms, less the copies, norms and stacking that are gone.
    assert alone.step_seconds - plain.step_seconds == pytest.approx(2.5e-3, rel=0.15)
    assert alone.cost.optimiser > eight.cost.optimiser > plain.cost.optimiser
    assert alone.memory < plain.memory  # one moment less for most


def test_a_checkpoint_that_is_not_written_yet_is_waited_for() -> None:
    rare = forecast(_BILLION, steps=1000, checkpoint_every=500)
    often = forecast(_BILLION, steps=1000, checkpoint_every=5)
    assert rare.pause < 0.05 and often.pause > 20  # 13 GB go to the disk at 0.4 GB/s
    assert (often.per_day or 0) < 0.1 * (rare.per_day or 0)


def test_a_vision_transformer_has_images() -> None:
    shared = forecast(preset("vit-tiny"), batch=512)
    assert shared.plan.unit == "images" and shared.plan.per_step == 512
    assert shared.fields()["per_second"] == pytest.approx(28_604, rel=0.1)


def test_other_gpus_follow_from_their_makers_figures_and_say_so() -> None:
    for name in device_names()[2:]:
        device = find_device(name)
        assert device.measured == (device.name == "H200") and device.kind == "cuda"
        assert ("never measured" in device.source) != device.measured
        assert device.products < (stated_peak(device.name) or 0)
    h100, l4 = find_device("NVIDIA H100 80GB HBM3"), find_device("L4")
    assert h100.products == H200.products and h100.bandwidth < H200.bandwidth
    ratio = (forecast(device=l4).step_seconds or 0) / (forecast(device=H200).step_seconds or 1)
    assert 6 < ratio < 20 and l4.busy_watts < 80
    with pytest.raises(UsageError, match="no figures of a device 'h2000'; did you mean h200"):
        find_device("h2000")
    assert stated_peak("NVIDIA A1000") is None and stated_peak("NVIDIA L40S") == 362e12


def test_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import linnet.train.hardware as hardware

    monkeypatch.setattr(hardware, "measured_peak", lambda *_: 200e9)
    monkeypatch.setattr(hardware, "measured_bandwidth", lambda *_: 20e9)
    device = measure_device(torch.device("cpu"))
    assert device.products == 200e9 and device.bandwidth == 20e9 and device.threads == torch.get_num_threads()
    assert device.elementwise > 1e6 and 1e-7 < device.kernel < 1 and device.memory > 1e9
    assert "measured here" in device.source
    mine = forecast(preset("nano", ctx=256), device=device)
    assert mine.watts is None and (mine.step_seconds or 0) > 197e9 / 200e9


@given(
    gpus=some.integers(1, 16),
    machines=some.integers(1, 64),
    link=some.floats(0.01e9, 1e12),
    size=some.floats(1, 1e12),
)
def test_sums_take_longer_with_more_bytes_ranks_and_slower_links(
    gpus: int, machines: int, link: float, size: float
) -> None:
    cluster = Cluster(gpus, machines, link, 300e9)
    seconds = cluster.sum_seconds(size)
    assert math.isfinite(seconds) and (seconds > 0) == (cluster.ranks > 1)
    assert cluster.sum_seconds(2 * size) >= seconds
    assert Cluster(gpus, 2 * machines, link, 300e9).sum_seconds(size) >= seconds
    assert Cluster(gpus, machines, 2 * link, 300e9).sum_seconds(size) <= seconds
    assert cluster.gather_seconds(size) == seconds / 2


@given(gpus=some.integers(1, 40), machines=some.integers(1, 40), most=some.integers(1, 4096))
def test_a_curve_goes_from_one_to_the_most_and_holds_what_was_asked_for(gpus: int, machines: int, most: int) -> None:
    sizes = curve_clusters(gpus, machines, 1e9, 1e9, max(most, gpus * machines))
    ranks = [cluster.ranks for cluster in sizes]
    assert ranks[0] == 1 and ranks == sorted(ranks) and ranks[-1] <= max(most, gpus * machines)
    assert (gpus, machines) in {(cluster.gpus, cluster.machines) for cluster in sizes}
    assert all(cluster.gpus == gpus or cluster.machines == 1 for cluster in sizes)
    assert 2 * ranks[-1] > most or ranks[-1] == gpus * machines
