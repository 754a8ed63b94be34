"""What `linnet plan` calculates against what was measured: step times within 10 %, memory within 15 %.

python bench/cost.py            # a few seconds: nothing is trained, the measured figures are those of RESULTS.md
python bench/cost.py --gpu      # whole steps and watts of more shapes on this GPU, whose figures are measured first

Every row of RESULTS.md is compared that is a step of ours on a device of `train/devices.py`. The rows of `train_gpu`,
`run_gpu`, `train_gpu_vit`, `deterministic_costs` and `warm_vocab` were measured on other machines and days than the
device's figures; what is not compared is named below the table, with the reason.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sample
from report import Report

RESULTS = Path(__file__).with_name("RESULTS.md")
STEP, MEMORY = 10, 15  # per cent that a calculated figure may be off

_WARM = {"d_model": 256, "n_layers": 6, "n_heads": 4, "n_kv": 2, "d_ff": 704}
_SMALL = {"d_model": 192, "n_layers": 6, "n_heads": 3, "n_kv": 1, "d_ff": 512, "tied": False}


@dataclass(frozen=True)
class Row:
    """A row of RESULTS.md and the step it is of. `unit`: of its figure; a rate is of `per_step` tokens or images."""

    section: str
    label: str
    column: str
    unit: str
    preset: str
    batch: int
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = "H200"
    beside: str = ""  # a word of another cell, where several rows have the label

    @property
    def name(self) -> str:
        """The section and the row."""
        return f"{self.section}: {self.label}"


def gpu_row(label: str, unit: str, preset: str, batch: int, changes: dict[str, Any] | None = None) -> Row:
    """A row of a GPU's section, of ours among peers."""
    sections = {"images/s": "train_gpu_vit", "ms a step": "train_gpu", "tok/s": "run_gpu"}
    beside = "" if unit == "tok/s" else "linnet"
    kind = "ms" if unit == "ms a step" else "rate"
    return Row(sections[unit], label, unit, kind, preset, batch, changes or {}, beside=beside)


ROWS = [
    gpu_row("llama 135M, 32×1024", "ms a step", "smollm2-135m", 32, {"ctx": 1024}),
    gpu_row("GPT-2 124M, 64×1024", "ms a step", "gpt2-124m", 64, {"ctx": 1024}),
    gpu_row("llama 15M, 8×256", "ms a step", "nano", 8, {"ctx": 256}),
    gpu_row("llama 135M, small steps, 1×128", "ms a step", "smollm2-135m", 1, {"ctx": 128}),
    gpu_row("135M, nothing compiled or prepared", "tok/s", "smollm2-135m", 32, {"ctx": 1024, "vocab": 8192}),
    gpu_row("135M, again", "tok/s", "smollm2-135m", 32, {"ctx": 1024, "vocab": 8192}),
    Row("run_gpu", "15M, --compile off --graph off", "tok/s", "rate", "nano", 8, {"ctx": 256, "vocab": 8192},
        {"compile": "off", "graph": "off"}),
    gpu_row("15M, --compile on --graph on", "tok/s", "nano", 8, {"ctx": 256, "vocab": 8192}),
    gpu_row("vit-tiny, 224 px, 512 images", "images/s", "vit-tiny", 512, {"num_classes": 1000}),
    gpu_row("vit-tiny-28, 1,024 images", "images/s", "vit-tiny-28", 1024),
    *(
        Row("deterministic_costs", label, "ordered ms", "ms", preset, batch, changes, beside="time of a step")
        for label, preset, batch, changes in (
            ("llama 135M, 32×1024", "smollm2-135m", 32, {"ctx": 1024}),
            ("GPT-2 124M, 64×1024", "gpt2-124m", 64, {"ctx": 1024}),
            ("llama 135M, 1×128", "smollm2-135m", 1, {"ctx": 128}),
            ("llama 15M, 8×256", "nano", 8, {"ctx": 256}),
            ("vit-tiny-28, 1,024 images", "vit-tiny-28", 1024, {}),
        )
    ),
    *(
        Row("warm_vocab", "python", "ms a step", "ms", "smollm2-135m", 16, {"ctx": 256, "vocab": vocab, **_SMALL},
            {"compile": "off"}, beside=word)
        for word, vocab in (("the donor's", 49_152), ("2,048", 2048), ("4,096", 4096), ("8,192", 8192))
    ),
    Row("train_cpu", "llama 3M, 8×256", "linnet tok/s", "rate", "demo", 8, {"ctx": 256}, device="EPYC"),
    Row("train_cpu", "llama 15M, 8×256", "linnet tok/s", "rate", "nano", 8, {"ctx": 256}, device="EPYC"),
    Row("train_cpu", "tiny, 1×32", "linnet tok/s", "rate", "tiny", 1, {"ctx": 32}, device="EPYC"),
    Row("warm_start", "a step, own embedding and head", "seconds", "s", "smollm2-135m", 4,
        {"ctx": 256, "tied": False, **_WARM}, device="EPYC"),
    Row("warm_start", "a step, tied", "seconds", "s", "smollm2-135m", 4, {"ctx": 256, **_WARM}, device="EPYC"),
]  # fmt: skip

# What the runs of a section were measured with, as `bench/plan.py` has it.
_MEASURED_WITH = {"plan_gpu": {"optimizer": "adamw"}, "plan": {"optimizer": "muon"}}
# Peaks of whole runs; the settings decide what an evaluation holds.
MEMORY_ROWS = [
    Row(section, label, "peak MB", "MB", preset, batch, changes, {"steps": steps, **_MEASURED_WITH[section]}, device)
    for section, device, label, preset, batch, changes, steps in (
        ("plan_gpu", "H200", "llama 135M, 32×1024", "smollm2-135m", 32, {"ctx": 1024}, 120),
        ("plan_gpu", "H200", "GPT-2 124M, 64×1024", "gpt2-124m", 64, {"ctx": 1024, "vocab": 49_152}, 80),
        ("plan_gpu", "H200", "llama 135M, small steps, 1×128", "smollm2-135m", 1, {"ctx": 128}, 1500),
        ("plan_gpu", "H200", "llama 15M, 8×256", "nano", 8, {"ctx": 256}, 4000),
        ("plan", "EPYC", "llama 3M, 8×256", "demo", 8, {"ctx": 256}, 60),
        ("plan", "EPYC", "llama 15M, 8×256", "nano", 8, {"ctx": 256}, 24),
        ("plan", "EPYC", "tiny, 1×32", "tiny", 1, {"ctx": 32}, 6000),
        ("plan", "EPYC", "GPT-2 3M, 8×256", "demo", 8, {"ctx": 256, "arch": "gpt2"}, 60),
        ("plan", "EPYC", "SmolLM2's vocabulary, from scratch, 4×256", "smollm2-135m", 4, {"ctx": 256, **_WARM}, 20),
    )
]
# Rows of the section `ranks` that a plan has figures for: steps, then sums.
RANKS = (
    *("15M, 8×256: one rank, launched", "15M, 8×256: 2 ranks, a core each"),
    *("sum of 15M gradients, 2 ranks", "sum of 15M gradients, 4 ranks"),
)
PLAIN, RANK_STEPS = "one process, 2 threads", RANKS[:2]
# Shapes that a GPU is measured with besides.
_BILLION = {"d_model": 2048, "n_layers": 16, "n_heads": 32, "n_kv": 8, "d_ff": 8192}
_WIDE = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "n_kv": 4, "d_ff": 2816, "vocab": 32_000}
GPU_SHAPES: dict[str, dict[str, Any]] = {
    "llama 135M, 8×1024": {"preset": "smollm2-135m", "batch": 8, "ctx": 1024},
    "llama 135M, 8×2048": {"preset": "smollm2-135m", "batch": 8, "ctx": 2048},
    "llama 135M, 4×4096": {"preset": "smollm2-135m", "batch": 4, "ctx": 4096},
    "llama 135M, 4×1024, 4 passes": {"preset": "smollm2-135m", "batch": 4, "ctx": 1024, "passes": 4},
    "llama 135M, 8×1024, Muon": {"preset": "smollm2-135m", "batch": 8, "ctx": 1024, "optimizer": "muon"},
    "llama 360M, 16×1024": {"preset": "smollm2-360m", "batch": 16, "ctx": 1024},
    "llama 1B, 8×1024": {"preset": "smollm2-135m", "batch": 8, "ctx": 1024, "changes": _BILLION},
    "llama 15M, 64×256": {"preset": "nano", "batch": 64, "ctx": 256},
    "llama 15M, 8×256, Muon": {"preset": "nano", "batch": 8, "ctx": 256, "optimizer": "muon"},
    "llama 3M, 8×256": {"preset": "demo", "batch": 8, "ctx": 256},
    "llama 3M, 64×256, Muon": {"preset": "demo", "batch": 64, "ctx": 256, "optimizer": "muon"},
    "GPT-2 124M, 8×1024": {"preset": "gpt2-124m", "batch": 8, "ctx": 1024},
    # Calculated before they were measured.
    "qwen3 0.6B, 4×1024": {"preset": "qwen3-0.6b", "batch": 4, "ctx": 1024},
    "llama 348M, 1024 wide, 16×512": {"preset": "smollm2-135m", "batch": 16, "ctx": 512, "changes": _WIDE},
    "GPT-2 124M, 32×512": {"preset": "gpt2-124m", "batch": 32, "ctx": 512},
    "llama 15M, 32×1024": {"preset": "nano", "batch": 32, "ctx": 1024},
    "llama 360M, 2×2048": {"preset": "smollm2-360m", "batch": 2, "ctx": 2048},
    "GPT-2 124M, 16×1024, Muon": {"preset": "gpt2-124m", "batch": 16, "ctx": 1024, "optimizer": "muon"},
}


def table_rows(section: str, results: str) -> Iterator[tuple[list[str], list[str]]]:
    """Head and cells of each row of the tables of a section."""
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", results, re.MULTILINE | re.DOTALL)
    head: list[str] = []
    for line in found[1].splitlines() if found else ():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and head:
            yield head, cells
        head = head or cells if cells else []


def measured(row: Row, results: str) -> float | None:
    """The figure of a row, as the tables of RESULTS.md have it: milliseconds, seconds, a rate, or megabytes."""
    for head, cells in table_rows(row.section, results):
        if row.column in head and cells[0] == row.label and (not row.beside or row.beside in cells):
            return float(cells[head.index(row.column)].replace(",", ""))
    return None


def measured_ranks(results: str) -> dict[str, float]:
    """Milliseconds of the section `ranks`, by their labels, and those of a plain process beside them."""
    figures = {}
    for _, cells in table_rows("ranks", results):
        if cells[0] in RANKS and cells[3].replace(",", "").replace(".", "").isdigit():
            figures |= {cells[0]: float(cells[1].replace(",", "")), cells[2]: float(cells[3].replace(",", ""))}
    return figures


def calculated_ranks(plain_ms: float) -> tuple[dict[str, float], float]:
    """Milliseconds of the rows of `RANKS`, and how many times as quick as the EPYC's figures the machine was then.

    That follows from one step of a plain process, measured beside them. A rank of two has a core, and so half of
    what a process with both has; ranks that share cores add up after the backward pass.
    """
    from linnet.architectures import preset
    from linnet.train.cluster import Cluster
    from linnet.train.devices import EPYC
    from linnet.train.forecast import CostModel
    from linnet.train.settings import TrainSettings

    config, settings = preset("nano", ctx=256), TrainSettings(batch=8, optimizer="adamw")

    def milliseconds(device: Any, ranks: int) -> float:
        model = CostModel(config, settings, device, overlap="off")
        return 1e3 * (model.forecast(Cluster(ranks, 1, 1e9, device.link)).step_seconds or 0.0)

    quicker = milliseconds(EPYC, 1) / plain_ms
    speeds = ("products", "bandwidth", "elementwise", "link")
    machine = replace(EPYC, kernel=EPYC.kernel / quicker, **{name: quicker * getattr(EPYC, name) for name in speeds})
    halves = {name: getattr(machine, name) / 2 for name in ("products", "bandwidth", "elementwise")}
    gradients = 4.0 * CostModel(config, settings, EPYC).parameters
    sums = [1e3 * Cluster(ranks, 1, 1e9, machine.link).sum_seconds(gradients) for ranks in (2, 4)]
    steps = [milliseconds(machine, 1), milliseconds(replace(machine, threads=1, **halves), 2)]
    return dict(zip(RANKS, (*steps, *sums), strict=True)), quicker


def calculated(row: Row) -> tuple[float, float]:
    """Seconds of a step and bytes at the peak, as `linnet plan` has them."""
    from linnet.architectures import preset
    from linnet.recipes.from_scratch import shaped_config
    from linnet.train.cluster import Cluster
    from linnet.train.devices import find_device
    from linnet.train.forecast import CostModel
    from linnet.train.settings import TrainSettings

    changes = dict(row.changes)
    arch = changes.pop("arch", None)
    config = shaped_config(row.preset, arch, changes) if arch else preset(row.preset, **changes)
    costs = CostModel(
        config, TrainSettings(**{"batch": row.batch, "optimizer": "adamw", **row.settings}), find_device(row.device)
    )
    forecast = costs.forecast(Cluster(1, 1, 1e9, 1e9))
    assert forecast.step_seconds is not None
    return forecast.step_seconds, forecast.memory


def seconds_of(row: Row, figure: float) -> float:
    """Seconds of a step, of a figure in the row's unit."""
    if row.unit == "rate":
        tokens = row.batch * row.changes.get("ctx", 1)
        return tokens / figure
    return figure / 1e3 if row.unit == "ms" else figure


def figures() -> dict[str, Any]:
    """Those of this GPU."""
    from dataclasses import asdict

    import torch

    from linnet.train.devices import measure_device

    return asdict(measure_device(torch.device("cuda")))


def trained(
    preset: str, batch: int, ctx: int, passes: int = 1, optimizer: Any = "adamw", changes: dict[str, Any] | None = None
) -> dict[str, float]:
    """Seconds of a step on this GPU, the best of four stretches of a second, and the watts it drew meanwhile."""
    import statistics
    import subprocess
    import time

    import torch

    from linnet import models
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    config = models.preset(preset, ctx=ctx, **changes or {})
    settings = TrainSettings(batch=batch, device="cuda", optimizer=optimizer)
    model = models.build(config, seed=0, device="cuda")
    hardware = choose(settings, batch * ctx, weights_of_layers(config))
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, settings, hardware)
    ids = torch.randint(0, config.vocab, (batch * passes, ctx + 1), device="cuda")

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), batch * ctx * passes

    def stretch(count: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step(Batch(), 1e-3)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / count

    stretch(9)
    count = int(1 / stretch(2)) + 1
    question = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", "200"]
    with subprocess.Popen(question, stdout=subprocess.PIPE, text=True) as watching:
        seconds = min(stretch(count) for _ in range(4))
        watching.terminate()
        watts = [float(line) for line in (watching.stdout or ()) if line.strip().replace(".", "").isdigit()]
    return {"seconds": seconds, "watts": statistics.median(watts) if watts else 0.0}


def on_gpu() -> Report:
    """Steps and watts of this GPU, by its own measured figures."""
    from linnet.train.devices import Device

    sample.needs_cuda()
    device = Device(**sample.play(__file__, "figures", {}, None))
    report = Report(
        name="cost_gpu",
        claim="What `linnet plan` calculates against steps and watts of more shapes, by the figures of the same GPU.",
        columns={
            "shape": "", "calculated ms": ",.2f", "measured ms": ",.2f", "off": "+.1%", "calculated W": ",.0f",
            "drawn W": ",.0f",
        },
    )  # fmt: skip
    worst = 0.0
    for label, shape in GPU_SHAPES.items():
        expected, watts = gpu_forecast(shape, device)
        real = sample.play(__file__, "trained", shape, None)
        off = expected / real["seconds"] - 1
        worst = max(worst, abs(off))
        report.row(label, 1e3 * expected, 1e3 * real["seconds"], off, watts, real["watts"] or None)
    report.at_most("step: the worst", 100 * worst, STEP, "% off")
    report.note(
        f"{device.name}: products {device.products / 1e12:.0f} TFLOP/s, memory {device.bandwidth / 1e12:.2f} TB/s,"
        f" attention {device.attention / 1e12:.0f} TFLOP/s, a captured kernel {device.kernel * 1e6:.1f} µs."
    )
    return report


def gpu_forecast(shape: dict[str, Any], device: Any) -> tuple[float, float | None]:
    """Seconds of a step, and watts, as `linnet plan` has them."""
    from linnet.architectures import preset
    from linnet.train.cluster import Cluster
    from linnet.train.forecast import CostModel
    from linnet.train.settings import TrainSettings

    config = preset(shape["preset"], ctx=shape["ctx"], **shape.get("changes", {}))
    total = shape["batch"] * shape["ctx"] * shape.get("passes", 1)
    settings = TrainSettings(batch=shape["batch"], batch_tokens=total, optimizer=shape.get("optimizer", "adamw"))
    forecast = CostModel(config, settings, device).forecast(Cluster(1, 1, 1e9, 1e9))
    assert forecast.step_seconds is not None
    return forecast.step_seconds, forecast.watts


def main(chosen: argparse.Namespace) -> Report:
    if chosen.gpu:
        return on_gpu()
    results = RESULTS.read_text()
    report = Report(
        name="cost",
        claim=(__doc__ or "").splitlines()[0],
        columns={"row": "", "device": "", "calculated": "", "measured": "", "off": "+.1%"},
    )
    errors: dict[str, list[float]] = {"step": [], "memory": []}
    for row in ROWS:
        figure = measured(row, results)
        if figure is None:
            report.note(f"{row.name}: not in RESULTS.md any more.")
            continue
        took, expected = seconds_of(row, figure), calculated(row)[0]
        errors["step"].append(expected / took - 1)
        label = f"{row.name}{f' ({row.beside})' if row.section == 'warm_vocab' else ''}"
        report.row(label, row.device, f"{1e3 * expected:.2f} ms", f"{1e3 * took:.2f} ms", expected / took - 1)
    for row in MEMORY_ROWS:
        figure = measured(row, results)
        if figure is None:
            report.note(f"{row.name}: not in RESULTS.md any more.")
            continue
        expected = calculated(row)[1] / 1e6
        errors["memory"].append(expected / figure - 1)
        report.row(f"{row.name}, peak", row.device, f"{expected:,.0f} MB", f"{figure:,.0f} MB", expected / figure - 1)
    compare_ranks(report, errors, results)
    for what, most in (("step", STEP), ("memory", MEMORY)):
        report.at_most(
            f"{what}: the worst of {len(errors[what])} rows", 100 * max(map(abs, errors[what])), most, "% off"
        )
        report.at_most(f"{what}: the mean", 100 * sum(map(abs, errors[what])) / len(errors[what]), most, "% off")
    report.note(
        "Nothing is measured here. Device figures: one H200 on 2026-11-16, from a product, a copy, attention, a"
        " captured kernel and profiles of the shapes of `cost_gpu` and of `train_gpu`; the EPYC's are from the rows of"
        " `train_cpu`, so those show how well one formula fits, not how well it predicts."
    )
    report.note(
        "Not compared: `vit`, `vit_gpu`, `learning`, the times of `plan` and `plan_gpu` (whole runs, with evaluations,"
        " variations of images and an average of weights, which are not in the model: those of `vit` and `vit_gpu` are"
        " 17 and 27 % quicker than measured), `inspection_gpu` (its plain steps count tokens besides, and one and the"
        " same took 2.43 and 2.03 ms), documents kept apart (`deterministic_costs`), adapters (`lora_gpu`), of `ranks`"
        " what is no step and no sum (a simulated link, a killed rank, SIGTERM), peers, and everything that is no"
        " training step. Several GPUs were never measured."
    )
    return report


def compare_ranks(report: Report, errors: dict[str, list[float]], results: str) -> None:
    """The rows of `ranks`, of which steps count as such: a sum is a part of one."""
    figures = measured_ranks(results)
    if missing := {*RANKS, PLAIN} - figures.keys():
        report.note(f"ranks: {', '.join(sorted(missing))}: not in RESULTS.md any more.")
        return
    expected, quicker = calculated_ranks(figures[PLAIN])
    for label in RANKS:
        off = expected[label] / figures[label] - 1
        report.row(f"ranks: {label}", "EPYC", f"{expected[label]:.2f} ms", f"{figures[label]:.2f} ms", off)
        if label in RANK_STEPS:
            errors["step"].append(off)
    report.note(
        f"`ranks`: that machine was {quicker:.2f} × as quick as the one of the EPYC's figures, by the step of a plain"
        " process in the same minutes, and is calculated with all speeds so much higher, gloo's link among them: what"
        " is compared is what ranks add to a step. By the EPYC's figures as they are all four rows would be"
        f" {', '.join(f'{100 * (quicker * expected[label] / figures[label] - 1):+.0f}' for label in RANKS)} % off."
    )


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="measure steps and watts on this GPU")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"figures": figures, "trained": trained}, flags))
