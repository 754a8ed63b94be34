"""The same bits on a GPU: a second run, and one that was killed and resumed, loss by loss; and what that costs.

python bench/deterministic.py                 # five minutes on an H200
python bench/deterministic.py --only runs     # or costs
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sample
from report import Report

TEXT = "from-scratch --vocab 8192 --sample-every 0 --eval-every 0 --keep 1"
# What trains: the flags, and at which step a run is killed that saves itself a little before.
RUNS = {
    "llama 135M, 500 steps": (
        f"{TEXT} --preset smollm2-135m --ctx 1024 --batch 16 --steps 500 --checkpoint-every 150",
        330,
    ),
    "GPT-2 124M, 150 steps": (
        f"{TEXT} --preset gpt2-124m --ctx 1024 --batch 8 --steps 150 --checkpoint-every 60",
        80,
    ),
    "llama 15M, Muon, documents, 200 steps": (
        f"{TEXT} --preset nano --ctx 512 --batch 16 --documents --optimizer muon --steps 200 --checkpoint-every 60",
        90,
    ),
    "ViT-Tiny 28 px, 300 steps": (
        "vit-tiny --preset vit-tiny-28 --images IMAGES --batch 256 --steps 300 --checkpoint-every 100 --eval-every 0"
        " --keep 1",
        150,
    ),
}
UNORDERED = "llama 135M, deterministic = false"
# Whose step is timed: preset, sequences, context, documents.
COSTS = {
    "llama 135M, 32×1024": ("smollm2-135m", 32, 1024, False),
    "GPT-2 124M, 64×1024": ("gpt2-124m", 64, 1024, False),
    "llama 135M, 16×1024, documents": ("smollm2-135m", 16, 1024, True),
    "llama 135M, 1×128": ("smollm2-135m", 1, 128, False),
    "llama 15M, 8×256": ("nano", 8, 256, False),
}
VITS = ("vit-tiny-28, 1,024 images",)
AT_ONCE = 6  # runs that share the GPU


def a_run(folder: str, flags: str, kill_at: int | None) -> dict[str, Any]:
    """A run from the command line, killed once at that step and resumed: its losses, a digest of its last weights."""
    arguments = [*flags.split(), "--runs", folder, "--run-id", "run"]
    stream = Path(folder) / "run" / "events.jsonl"
    process = subprocess.Popen(
        _linnet("train", *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if kill_at is not None:
        # The state is written before the weights it belongs to; without weights there is nothing to go on from.
        weights = Path(folder) / "run" / "weights"
        while process.poll() is None and not (_last_step(stream) >= kill_at and any(weights.glob("step_*.gguf"))):
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        resumed_after = _last_step(stream)
        process = subprocess.Popen(
            _linnet("resume", str(Path(folder) / "run")), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    printed, _ = process.communicate()
    assert process.returncode == 0, printed[-3000:]
    events = [json.loads(line) for line in stream.read_text().splitlines()]
    losses = {event["step"]: (event["loss"], event["grad_norm"]) for event in events if event["kind"] == "step"}
    checkpoints = [event for event in events if event["kind"] == "checkpoint"]
    return {
        "losses": [losses[step] for step in sorted(losses)],
        "weights": checkpoints[-1]["sha256"],
        "killed": None if kill_at is None else resumed_after,
        "chosen": next(event["chosen"] for event in events if event["kind"] == "run_start"),
    }


def _linnet(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "linnet", *arguments]


def _last_step(stream: Path) -> int:
    if not stream.exists():
        return 0
    steps = [
        json.loads(line) for line in stream.read_text().splitlines() if line.startswith("{") and line.endswith("}")
    ]
    return max((event["step"] for event in steps if event.get("kind") == "step"), default=0)


def cost(shape: str, rounds: int, folder: str) -> dict[str, Any]:
    """Milliseconds a step, ordered and by the quickest forms, taken in turns in one process, alone on the GPU."""
    import fcntl

    import torch

    steps = {flag: (_vit_step if shape in VITS else _text_step)(shape, flag) for flag in (None, False)}
    times: dict[bool | None, list[float]] = {None: [], False: []}
    many = 3
    for _ in range(4):
        for step in steps.values():
            step()
    torch.cuda.synchronize()
    Path(folder, shape.replace(" ", "-")).touch()
    while len(list(Path(folder).iterdir())) < len(COSTS) + len(VITS):  # the others are still compiling
        time.sleep(0.1)
    turns = Path(folder).with_suffix(".lock").open("w")
    fcntl.flock(turns, fcntl.LOCK_EX)
    for turn in range(rounds):
        for flag, step in steps.items():
            began = time.perf_counter()
            for _ in range(many):
                step()
            torch.cuda.synchronize()
            times[flag].append((time.perf_counter() - began) / many * 1e3)
        if turn == 1:  # three seconds' worth of steps in all the turns to come
            many = max(3, round(1500 / rounds / min(times[None])))
    ordered, quickest = times[None][2:], times[False][2:]
    ratio = statistics.median(a / b for a, b in zip(ordered, quickest, strict=True))
    return {"ordered": statistics.median(ordered), "quickest": statistics.median(quickest), "ratio": ratio}


def _text_step(shape: str, flag: bool | None) -> Any:
    import torch

    from linnet.models import build, preset
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    name, batch, ctx, documents = COSTS[shape]
    config = preset(name, ctx=ctx)
    settings = TrainSettings(batch=batch, device="cuda", deterministic=flag, optimizer="adamw")
    model = build(config, seed=0, device="cuda")
    weights = sum(p.numel() for name, p in model.named_parameters() if name.startswith("blocks."))
    hardware = choose(settings, tokens=batch * ctx, weights=weights, head_size=config.head_size)
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, settings, hardware)
    dice = torch.Generator("cuda").manual_seed(0)
    share = torch.rand(batch, ctx + 1, device="cuda", generator=dice)
    ids = (share**3 * config.vocab).long()  # some tokens are frequent, as in text
    numbers = (torch.arange(ctx, device="cuda") // 300).expand(batch, -1).contiguous() if documents else None

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], numbers), batch * ctx

    return lambda: step(Batch(), 1e-3)


def _vit_step(shape: str, flag: bool | None) -> Any:
    import vit_gpu
    from linnet.models import preset
    from linnet.recipes import VitOptions, VitSettings, VitTiny
    from linnet.train.hardware import choose

    name, batch = vit_gpu.SHAPES[shape]
    config = preset(name, num_classes=10)
    settings = VitSettings(batch=batch, optimizer="adamw", lr=1e-3, device="cuda", deterministic=flag)
    weights = config.n_layers * (4 * config.d_model + 2 * config.d_ff) * config.d_model
    hardware = choose(settings, tokens=batch * config.tokens, weights=weights, head_size=config.head_size)
    recipe = VitTiny(settings, hardware, VitOptions(init="seed", ema=0.0))
    recipe.realize(config)
    recipe.build()
    images, labels = vit_gpu._data(batch, config.num_channels, config.image_size, config.num_classes)
    return lambda: recipe.step(images, labels, 1e-3)


def _make_images(path: Path) -> None:
    """Images that can be learnt: the class is where the bright square is."""
    import numpy as np

    dice = np.random.default_rng(0)
    labels = dice.integers(0, 10, 8192)
    images = dice.integers(0, 120, (8192, 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 8, 4:24] += 100
    np.savez(path, images=images, labels=labels)


def _runs(report: Report, folder: Path) -> None:
    """Several at once: they share the GPU, which changes when each of them gets how far, and must change nothing."""
    images = folder / "images.npz"
    _make_images(images)
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    for name, (flags, kill_at) in RUNS.items():
        given = flags.replace("IMAGES", str(images))
        for way, at in (("first", None), ("second", None), ("killed", kill_at)):
            jobs[name, way] = {"flags": given, "kill_at": at}
    unordered = folder / "unordered.toml"
    unordered.write_text("deterministic = false\n")
    short = RUNS["llama 135M, 500 steps"][0].replace("--steps 500", f"--steps 60 --config {unordered}")
    for way in ("first", "second"):
        jobs[UNORDERED, way] = {"flags": short, "kill_at": None}
    a_run(str(folder / "corpus"), f"{TEXT} --preset nano --steps 1", None)  # reads the text, which the others find

    def answer(job: tuple[str, str]) -> dict[str, Any]:
        found = sample.play(__file__, "a_run", {"folder": str(folder / "-".join(job)), **jobs[job]}, None)
        print(*job, found["killed"], found["losses"][-1], found["weights"][:16], file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(jobs, pool.map(answer, jobs), strict=True))
    for name in RUNS:
        first = answers[name, "first"]
        for way in ("second", "killed"):
            other = answers[name, way]
            equal = sum(a == b for a, b in zip(first["losses"], other["losses"], strict=True))
            same = first["weights"] == other["weights"]
            words = "a second run" if way == "second" else f"killed after step {other['killed']}, resumed"
            report.row(name, words, equal, "equal" if same else "other", None, None, None)
            report.at_least(f"{name}: {words}: equal losses", equal, len(first["losses"]), "steps")
            report.at_least(f"{name}: {words}: equal GGUF", int(same), 1, "file")
        assert first["chosen"]["repeatable"], first["chosen"]
    losses = [[loss for loss, _ in answers[UNORDERED, way]["losses"]] for way in ("first", "second")]
    equal = sum(a == b for a, b in zip(*losses, strict=True))
    apart = max(abs(a - b) / a for a, b in zip(*losses, strict=True))
    report.row(f"{UNORDERED}, 60 steps", "a second run", equal, "", None, None, None)
    report.note(f"{UNORDERED}: after {equal} equal losses of 60, up to {apart:.2%} apart.")


def _costs(report: Report, folder: Path) -> None:
    shapes = [*COSTS, *VITS]
    ready = folder / "ready"
    ready.mkdir()
    options = [{"shape": shape, "rounds": 14, "folder": str(ready)} for shape in shapes]
    with ThreadPoolExecutor(len(shapes)) as pool:  # all compile at once, each is measured alone
        answers = pool.map(lambda chosen: sample.play(__file__, "cost", chosen, None), options)
    for shape, ms in zip(shapes, answers, strict=True):
        report.row(shape, "time of a step", None, "", ms["ordered"], ms["quickest"], 100 * (ms["ratio"] - 1))
        report.at_most(f"{shape}: cost of the order", 100 * (ms["ratio"] - 1), 2, "%")


def main(chosen: argparse.Namespace) -> Report:
    sample.needs_cuda()
    import torch

    report = Report(
        name="deterministic" if chosen.only is None else f"deterministic_{chosen.only}",
        claim=(__doc__ or "").splitlines()[0],
        columns={
            "what": "",
            "how": "",
            "equal losses": ",",
            "last GGUF": "",
            "ordered ms": ".3f",
            "quickest ms": ".3f",
            "cost %": "+.2f",
        },
    )
    report.note(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}. A loss is compared with its gradient norm."
    )
    with sample.scratch() as folder:
        for cache in ("LINNET_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ.setdefault(cache, str(folder / cache.lower()))
        if chosen.only != "costs":
            _runs(report, folder)
        if chosen.only != "runs":
            _costs(report, folder)
    return report


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("runs", "costs"), help="one half of it")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"a_run": a_run, "cost": cost}, flags))
