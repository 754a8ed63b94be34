"""Training on a GPU, whole steps in bf16: ours beside the peers', the same shapes and the same tokens a step.

python bench/train_gpu.py                     # language models: eight minutes, most of them the peers' compiling
python bench/train_gpu.py --only "llama 15M"  # one shape
python bench/train_gpu.py --vit               # vision transformers: four minutes
"""

import argparse
import statistics
import sys
import time
from typing import Any

import sample
from report import Report

LLAMA, GPT2, SMALL, NANO = "llama 135M", "GPT-2 124M", "llama 135M, small steps", "llama 15M"
# What trains: preset, sequences, context.
SHAPES = {
    LLAMA: ("smollm2-135m", 32, 1024),
    GPT2: ("gpt2-124m", 64, 1024),
    SMALL: ("smollm2-135m", 1, 128),
    NANO: ("nano", 8, 256),
}


def ceiling() -> dict[str, Any]:
    import torch

    from linnet.train.hardware import measured_bandwidth, measured_peak

    device = torch.device("cuda")
    return {
        "peak": measured_peak(device, torch.bfloat16),
        "bandwidth": measured_bandwidth(device),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def ours(shape: str) -> dict[str, Any]:

    from linnet.models import build, preset
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    name, batch, ctx = SHAPES[shape]
    config = preset(name, ctx=ctx)
    settings = TrainSettings(batch=batch, device="cuda", optimizer="adamw")
    model = build(config, seed=0, device="cuda")
    weights = sum(p.numel() for name, p in model.named_parameters() if name.startswith("blocks."))
    hardware = choose(settings, tokens=batch * ctx, weights=weights)
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, settings, hardware)

    class Batch:
        def __init__(self, ids: Any) -> None:
            self.inputs, self.n_targets = (ids[:, :-1], ids[:, 1:], None), batch * ctx

    found = _timed(lambda ids: step(Batch(ids), 1e-3), config.vocab, batch, ctx)
    return {**found, "why": hardware.why, "flops": model.flops_per_token(ctx) * batch * ctx}


def theirs(shape: str, peer: str) -> dict[str, Any]:
    import gpu_peers
    from linnet.models import preset

    name, batch, ctx = SHAPES[shape]
    config = preset(name, ctx=ctx)
    if peer == "nanoGPT + compile":
        return _timed(gpu_peers.nanogpt_step(config, ctx), config.vocab, batch, ctx)
    step = gpu_peers.transformers_step(config, ctx + 1, compiled=peer.endswith("compile"))
    return _timed(lambda ids: step(ids[:, :-1]), config.vocab, batch, ctx)


def _timed(step: Any, vocab: int, batch: int, ctx: int) -> dict[str, Any]:
    """Milliseconds a step, over different batches, after everything is compiled; peak memory; the first step."""
    import torch

    batches = [torch.randint(0, vocab, (batch, ctx + 1), device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    step(batches[0])
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    for ids in batches:
        step(ids)
    torch.cuda.synchronize()
    each = max(2, min(50, round(16_384 / (batch * ctx)) * 5))
    times = []
    for turn in range(12):
        began = time.perf_counter()
        for i in range(each):
            step(batches[(turn + i) % 8])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / each)
    seconds = statistics.median(times)
    return {
        "ms": seconds * 1e3,
        "rate": batch * ctx / seconds,
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9,
        "first": first,
    }


def vit(shape: str, who: str) -> dict[str, Any]:
    import vit_gpu

    return {"rate": vit_gpu.ours(shape) if who == "linnet" else vit_gpu.theirs(shape)}


def main(chosen: argparse.Namespace) -> Report:
    sample.needs_cuda()
    return images() if chosen.vit else language(chosen.only)


def images() -> Report:
    import vit_gpu

    report = Report(
        name="train_gpu_vit",
        claim="Vision transformers on a GPU, whole training steps in bf16, images as bytes on the device.",
        columns={"what": "", "who": "", "images/s": ",.0f"},
    )
    for shape, wanted in vit_gpu.TO_REACH.items():
        rates = {}
        for who in ("linnet", "transformers + compile"):
            rates[who] = sample.play(__file__, "vit", {"shape": shape, "who": who}, None)["rate"]
            report.row(shape, who, rates[who])
        report.at_least(shape, rates["linnet"] / rates["transformers + compile"], wanted, "× transformers + compile")
    return report


def language(only: list[str]) -> Report:
    report = Report(
        name="train_gpu" if only == list(SHAPES) else "train_gpu_part",
        claim=(__doc__ or "").splitlines()[0],
        columns={"what": "", "who": "", "ms a step": ".2f", "tok/s": ",.0f", "peak GB": ".1f", "first step s": ".1f"},
    )
    top = sample.play(__file__, "ceiling", {}, None)
    report.note(
        f"{top['gpu']}, torch {top['torch']}. Measured ceilings: {top['peak'] / 1e12:.0f} TFLOP/s (a bf16 product of "
        f"8192 × 8192 matrices), {top['bandwidth'] / 1e12:.2f} TB/s (a copy of 1 GiB)."
    )
    compiled, eager, nano = "transformers + compile", "transformers eager", "nanoGPT + compile"
    peers = {
        LLAMA: [compiled],
        GPT2: [nano],
        SMALL: [compiled, eager],
        NANO: [compiled, eager],
    }
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for shape in only:
        names = peers[shape]
        _, batch, ctx = SHAPES[shape]
        for who in ["linnet", *names]:
            options = {"shape": shape} if who == "linnet" else {"shape": shape, "peer": who}
            each = sample.play(__file__, "ours" if who == "linnet" else "theirs", options, None)
            found[shape, who] = each
            report.row(f"{shape}, {batch}×{ctx}", who, each["ms"], each["rate"], each["gigabytes"], each["first"])
        mine = found[shape, "linnet"]
        share = mine["flops"] / (mine["ms"] / 1e3) / top["peak"]
        report.note(f"{shape}: {share:.0%} of the measured ceiling of products. Chosen: {mine['why']}.")
    _judge(report, found, compiled, nano)
    return report


def _judge(report: Report, found: dict[tuple[str, str], dict[str, Any]], compiled: str, nano: str) -> None:
    there = {shape for shape, _ in found}
    for shape, peer in ((LLAMA, compiled), (GPT2, nano)):
        if shape in there:
            memory = found[shape, "linnet"]["gigabytes"] / found[shape, peer]["gigabytes"]
            report.at_most(f"{shape}, peak memory against {peer}", memory, 0.6, "×")
    for shape, wanted in ((LLAMA, 1.45), (NANO, 6)):
        if shape in there:
            ratio = found[shape, "linnet"]["rate"] / found[shape, compiled]["rate"]
            report.at_least(f"{shape} against {compiled}", ratio, wanted, "×")
    if GPT2 in there:
        report.at_least(f"{GPT2}", found[GPT2, "linnet"]["rate"], 600_000, "tok/s")
    if SMALL in there:
        report.at_most("llama 135M, 1×128 tokens", found[SMALL, "linnet"]["ms"], 6, "ms a step")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="these shapes")
    parser.add_argument("--vit", action="store_true", help="vision transformers instead of language models")


ROLES = {"ceiling": ceiling, "ours": ours, "theirs": theirs, "vit": vit}

if __name__ == "__main__":
    sys.exit(sample.start(main, ROLES, flags))
