"""`linnet plan`: what a training would take on GPUs that need not be here, and how far more of them help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from linnet.board import words
from linnet.cli.options import AsJson
from linnet.cli.pictures import format_of, picture_size, print_chart, text_size, write_picture
from linnet.cli.printing import paint, print_json, print_table, theme_of_terminal
from linnet.errors import UsageError, suggestion
from linnet.recipes.flags import count_of

if TYPE_CHECKING:
    from linnet.architectures import AnyConfig
    from linnet.train.devices import Device
    from linnet.train.forecast import CostModel, Forecast
    from linnet.train.settings import TrainSettings

_LABEL = 11
_GIGA = 1e9
_LINK = 25.0  # GB/s between machines where none is given: 200 Gb/s
_CHART_LINES = 18
_COLUMNS = 80


def _count(kind: Any, tokens: Sequence[Token]) -> int:
    return count_of(tokens[-1].value)


_Number = Annotated[int | None, Parameter(converter=_count)]
_MODEL, _TRAINING, _MACHINES = (Group.create_ordered(name) for name in ("Model", "Training", "Machines"))


@Parameter(name="*", group=_MODEL)
@dataclass(frozen=True)
class ModelFlags:
    """The model.

    Args:
        preset: tiny, micro (1M), demo (3M), nano (15M), small (50M), smollm2-135m (the default), gpt2-124m,
            smollm2-360m, vit-tiny …
        arch: Another architecture, with the preset's sizes: llama, gpt2, qwen2, qwen3.
        vocab: Tokens of the vocabulary.
        ctx: Tokens of a sequence; 1,024 by default where the preset has more.
        d_model: Width.
        n_layers: Depth.
        n_heads: Attention heads.
        n_kv: Heads of keys and values.
        d_ff: Width of the feed-forward part.
    """

    preset: str = "smollm2-135m"
    arch: str | None = None
    vocab: int | None = None
    ctx: int | None = None
    d_model: int | None = None
    n_layers: int | None = None
    n_heads: int | None = None
    n_kv: int | None = None
    d_ff: int | None = None


@Parameter(name="*", group=_TRAINING)
@dataclass(frozen=True)
class TrainingFlags:
    """How it is trained, in the words of `linnet train`.

    Args:
        batch: Sequences (or images) that pass through the model of one GPU at once; 8 by default (64).
        batch_tokens: Tokens of one step, shared by all GPUs: 524288. Without it every GPU has one pass of --batch, and
            a step grows with the GPUs.
        optimizer: muon or adamw.
        steps: Train for so many steps: says how long that takes.
        tokens: Or on so many tokens: 10B.
        checkpoint_every: Steps between checkpoints; five times a run by default.
        shard: What GPUs keep a part of each: none, the optimiser's moments, or weights; auto: moments from 300M on.
        recompute: What the backward pass makes again instead of keeping it: off, what is cheap, or whole blocks.
        overlap: Gradients are summed while the backward pass goes on; off: after it.
    """

    batch: int | None = None
    batch_tokens: _Number = None
    optimizer: Literal["adamw", "muon"] = "muon"
    steps: _Number = None
    tokens: _Number = None
    checkpoint_every: int | None = None
    shard: Literal["auto", "none", "moments", "weights"] = "auto"
    recompute: Literal["off", "cheap", "blocks"] = "off"
    overlap: Literal["auto", "on", "off"] = "auto"


@Parameter(name="*", group=_MACHINES)
@dataclass(frozen=True)
class MachineFlags:
    """What it is trained on.

    Args:
        device: h200, h100, b200, a100, l40s, l4, a10, rtx-5090, rtx-4090, rtx-3090; cpu or cuda: this machine's,
            measured in two seconds. By default the GPU that is here, else h200, the one that was measured.
        gpus: GPUs of each machine.
        machines: Machines.
        link: GB/s that a machine sends to the others; 25 by default (200 Gb/s).
        gpu_link: GB/s that a GPU sends to the others of its machine; by default the device's.
        to: How far the curve goes: 1,024 GPUs.
    """

    device: str | None = None
    gpus: int = 1
    machines: int = 1
    link: float | None = None
    gpu_link: float | None = None
    to: int = 1024


def plan(
    *,
    model: ModelFlags = ModelFlags(),  # noqa: B008 (they are frozen)
    training: TrainingFlags = TrainingFlags(),  # noqa: B008
    on: MachineFlags = MachineFlags(),  # noqa: B008
    out: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    theme: Literal["light", "dark"] | None = None,
    json: AsJson = False,
) -> int:
    """Say what a training would take on GPUs that need not be here, and how far more of them help.

    Nothing is trained: memory, time and energy are calculated from figures that were measured on one device.

    Args:
        out: Write the scaling curve as a picture, .svg or .png, or - for SVG into a pipe.
        theme: Of the picture: light or dark.
    """
    from linnet.train.cluster import Cluster
    from linnet.train.forecast import CostModel, check_cluster

    kind = format_of(out)
    if on.gpus > 1 and on.device in ("cpu", "epyc"):
        raise UsageError("--gpus goes with GPUs: processes on one CPU share its cores; give --machines")
    device = _device(on)
    link = on.link if on.link is not None else _LINK
    inside = device.link if on.gpu_link is None else on.gpu_link * _GIGA
    cluster = Cluster(on.gpus, on.machines, link * _GIGA, inside)
    check_cluster(cluster, on.to)
    config = _config(model)
    costs = CostModel(
        config,
        _settings(training, config),
        device,
        per_rank=training.batch_tokens is None,
        shard=training.shard,
        recompute=training.recompute,
        overlap=training.overlap,
    )
    forecast, curve = costs.forecast(cluster), costs.curve(cluster, max(on.to, cluster.ranks))
    if forecast.why:
        raise UsageError(f"{forecast.why}: {_batch_advice(config, cluster.ranks)}")
    if json:
        print_json(_as_json(costs, forecast, curve))
        return 0
    if kind != "text":
        from linnet.board.figure.colours import THEMES
        from linnet.board.figure.scatter_scene import draw_scatter
        from linnet.cli.scaling_chart import scaling_chart

        chart = scaling_chart(curve, f"{costs.noun}s", _title(costs, curve))
        scene = draw_scatter(chart, *picture_size(None, None, 2.0), THEMES[theme or "light"])
        write_picture(scene, out or "-", 2.0)
        return 0
    _print_forecast(costs, forecast, assumed=on.link is None and on.machines > 1)
    _print_curve(costs, curve, forecast, theme)
    return 0


def _device(on: MachineFlags) -> Device:
    """The device that is named; else the GPU that is here, else the one that was measured."""
    from linnet.train.devices import H200, find_device, measure_device

    if on.device is None or on.device in ("cpu", "cuda"):
        import torch

        has_gpu = torch.cuda.is_available()
        if on.device == "cuda" and not has_gpu:
            raise UsageError("--device cuda: there is no GPU here; name one, as in --device h200")
        if on.device is None and not has_gpu:
            return H200
        return measure_device(torch.device("cuda" if has_gpu and on.device != "cpu" else "cpu"))
    return find_device(on.device)


def _config(model: ModelFlags) -> AnyConfig:
    from linnet.architectures import PRESETS, ViTConfig, names_for, preset
    from linnet.recipes.from_scratch import shaped_config

    values = asdict(model)
    name, arch = values.pop("preset"), values.pop("arch")
    changes = {field: value for field, value in values.items() if value is not None}
    base = preset(name)
    if isinstance(base, ViTConfig):
        if arch is not None:
            raise UsageError(f"--arch goes with text, and {name} is a vit")
        changed: AnyConfig = preset(name, PRESETS, **changes)
        return changed
    if arch is not None and arch not in names_for("text"):
        raise UsageError(f"--arch {arch!r}{suggestion(arch, names_for('text'))}")
    return shaped_config(name, arch, {"ctx": min(base.ctx, 1024), **changes})


def _settings(training: TrainingFlags, config: AnyConfig) -> TrainSettings:
    from linnet.architectures import ViTConfig
    from linnet.train.settings import TrainSettings

    if training.steps is not None and training.tokens is not None:
        raise UsageError("--steps and --tokens both say how long to train: give one of them")
    names = ("steps", "tokens", "batch", "batch_tokens", "checkpoint_every")
    values = {name: getattr(training, name) for name in names if getattr(training, name) is not None}
    if isinstance(config, ViTConfig):
        if training.batch_tokens is not None or training.tokens is not None:
            raise UsageError("--batch-tokens and --tokens go with text: of images a step has --batch on each GPU")
        values.setdefault("batch", 64)
    elif training.batch is None and training.batch_tokens is not None:
        rows = max(1, training.batch_tokens // config.ctx)
        values["batch"] = max(size for size in (1, 2, 4, 8) if rows % size == 0)
    return TrainSettings(optimizer=training.optimizer, **values)


def _batch_advice(config: AnyConfig, ranks: int) -> str:
    from linnet.architectures import ViTConfig

    if isinstance(config, ViTConfig):
        return f"choose --batch as a multiple of {ranks:,}, or fewer of them"
    return f"choose --batch-tokens as a multiple of {ranks * config.ctx:,}, or fewer of them"


def _as_json(costs: CostModel, forecast: Forecast, curve: Sequence[Forecast]) -> dict[str, Any]:
    return {
        "model": {"arch": costs.config.arch, "parameters": costs.parameters},
        "device": asdict(costs.device),
        "unit": forecast.plan.unit,
        "per_step": forecast.plan.per_step,
        "shard": costs.shard,
        "plan": _plan_fields(forecast),
        **forecast.fields(),
        "curve": [point.fields() for point in curve],
        "calculated": True,
    }


def _plan_fields(forecast: Forecast) -> dict[str, Any]:
    """As `--dry-run --json` has it, with the seconds that are calculated."""
    from dataclasses import replace

    plan, step = forecast.plan, forecast.step_seconds
    if step is not None and plan.steps is not None:
        plan = replace(plan, step_seconds=step, seconds=plan.rest(0, step))
    return {**plan.fields(), "saves": plan.saves, "save_seconds": plan.save_seconds}


def _title(costs: CostModel, curve: Sequence[Forecast]) -> str:
    plan = curve[0].plan
    size = words.compact(costs.parameters)
    on_each = f" on each {costs.noun}" if costs.per_rank else ""
    step = f"{words.compact(plan.per_step)} {plan.unit} a step{on_each}"
    return f"{costs.config.arch} {size} on {costs.device.name}, {step}"


def _print_forecast(costs: CostModel, forecast: Forecast, *, assumed: bool) -> None:
    """What one cluster makes of the training, a line a figure."""
    plan, cluster, device = forecast.plan, forecast.cluster, forecast.device
    unit = plan.unit
    size = f"{costs.config.arch} of {words.compact(costs.parameters)}"
    _fact("model", f"{size}, {_step_words(forecast, costs.noun)}")
    link = f", {cluster.link / _GIGA:g} GB/s between them{' (assumed)' if assumed else ''}"
    machines = f" in {cluster.machines:,} machines{link}" if cluster.machines > 1 else ""
    _fact("on", f"{cluster.ranks:,} × {device.name}{machines}")
    _fact("", device.source)
    assert forecast.step_seconds is not None
    shares = " · ".join(f"{name} {share:.0%}" for name, share in forecast.shares().items() if share >= 0.005)
    _fact("step", f"{_seconds(forecast.step_seconds)}: {shares}")
    mfu = f" · MFU {forecast.mfu:.0%}" if forecast.mfu is not None and device.kind == "cuda" else ""
    daily = f"{words.compact(forecast.per_day or 0.0)} a day"
    _fact("speed", f"{words.compact(forecast.speed or 0.0)} {unit}/s · {daily}{mfu}")
    room = f"{words.size(forecast.memory)} of {words.size(device.memory)} on each"
    shard = f", {costs.shard} shared out" if costs.shard != "none" and cluster.ranks > 1 else ""
    _fact("memory", room + shard if forecast.fits else paint(f"{room}: does not fit", "red"))
    if forecast.watts is not None:
        per_token = forecast.watts / (forecast.speed or 1.0) * _GIGA / 3.6e6
        count = f"{words.number(per_token, 3)} kWh a G {unit}"
        watts = f"{words.number(forecast.watts / 1e3, 3)} kW"
        _fact("energy", f"{watts} · {words.number(forecast.watts * 24 / 1e3, 3)} kWh a day · {count} (GPUs alone)")
    pause = f"each holds the steps up for {_seconds(forecast.pause)}"
    written = plan.save_seconds
    _fact("checkpoint", f"{pause}; written in {words.duration(written)} beside them")
    if plan.steps is not None:
        remaining = words.duration(plan.rest(0, forecast.step_seconds))
        _fact("time", f"{plan.steps:,} steps, {words.compact(plan.planned or 0)} {unit}: about {remaining}")
    _fact("limit", _limit_words(forecast, costs.noun))


def _step_words(forecast: Forecast, noun: str) -> str:
    plan = forecast.plan
    passes = f"{forecast.passes} × {forecast.at_once}" if forecast.passes > 1 else f"{forecast.rows:,}"
    kind = "images" if plan.unit == "images" else "sequences"
    return f"{words.compact(plan.per_step)} {plan.unit} a step ({passes} {kind} a {noun})"


def _limit_words(forecast: Forecast, noun: str) -> str:
    """What there is too much of in a step, and what to change."""
    advice: dict[str, str] = {
        "compute": f"each {noun} works most of the time: more of them are faster",
        "link": "they wait for each other: more tokens a step, a faster --link",
        "batch too small": f"too few tokens a {noun}: raise --batch-tokens or --batch",
        "memory": "lower --batch, or --recompute blocks, or --shard weights",
    }
    return f"{forecast.limit}: {advice[forecast.limit]}"


def _print_curve(costs: CostModel, curve: Sequence[Forecast], chosen: Forecast, theme: Any) -> None:
    from linnet.board.figure.text_scatter import scatter_lines
    from linnet.cli.scaling_chart import scaling_chart

    if len([point for point in curve if point.speed]) < 2:
        return
    columns = min(text_size(None, None)[0], _COLUMNS)
    print()
    print_chart(
        scatter_lines(scaling_chart(curve, f"{costs.noun}s", ""), columns, _CHART_LINES), theme or theme_of_terminal()
    )
    print()
    alone = next((point.speed for point in curve if point.speed), None) or 1.0
    first = next(point.cluster.ranks for point in curve if point.speed)
    unit = chosen.plan.unit
    head = (
        f"{costs.noun}s" if costs.noun == "GPU" else "CPUs",
        "machines",
        "step",
        f"{unit}/s",
        "efficiency",
        "memory",
        "limited by",
    )
    print_table(head, [_row(point, alone / first, point.cluster == chosen.cluster) for point in curve], right=range(6))
    print()
    if impossible := next((point for point in curve if point.why), None):
        print(f"{impossible.why}.")
    growth = "The batch grows with them; --batch-tokens shares out one of a given size." if costs.per_rank else ""
    measured = (
        "Calculated from one measured device" if costs.device.measured else "Calculated: this one was not measured"
    )
    print("\n".join(filter(None, (growth, paint(f"{measured}, and several of any kind never were.", "dim")))))


def _row(forecast: Forecast, alone: float, is_chosen: bool) -> tuple[str, ...]:
    ranks = f"{'→ ' if is_chosen else ''}{forecast.cluster.ranks:,}"
    machines, memory = f"{forecast.cluster.machines:,}", words.size(forecast.memory)
    if forecast.step_seconds is None or forecast.speed is None:
        return ranks, machines, "–", "–", "–", memory, forecast.limit
    efficiency = f"{forecast.speed / alone / forecast.cluster.ranks:.0%}"
    step, speed = _seconds(forecast.step_seconds), words.compact(forecast.speed)
    return ranks, machines, step, speed, efficiency, memory, forecast.limit


def _fact(label: str, text: str) -> None:
    print(f"{paint(f'{label:<{_LABEL}}', 'dim')}{text}")


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{words.number(1e3 * seconds, 3)} ms"
    return f"{words.number(seconds, 3)} s" if seconds < 60 else words.duration(seconds)
