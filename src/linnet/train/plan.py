"""`Plan`: what a training will take, before its first step: tokens, steps, arithmetic, disk, memory; later the time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.kernels.packed import count_parameters
from linnet.train.inspection.schedule import look_bytes
from linnet.train.memory import ALONE, Sharing, Weights, peak_memory, total_memory

if TYPE_CHECKING:
    from linnet.train.hardware import Hardware
    from linnet.train.protocols import PlannedData, TrainedModel
    from linnet.train.settings import Periodic, TrainSettings

WARM_STEPS = 3  # that compile, capture and fill caches; their time is not that of a step
_TRUSTED_STEPS, _TRUSTED_SECONDS = 5, 3.0  # after which the speed of a training is known
_TRUSTED_SHARE = 0.05  # or after this part of its steps
_STEP_BYTES = 200  # of a step's line in the stream
_LAYER_BYTES = 8000  # of a layer in flow.json
_TOKEN_BYTES = 40  # of a token and its merge in a checkpoint
_TOKEN_SECONDS, _LAYER_SECONDS = 1e-3, 60e-6  # that a token of a sample takes at least, and a layer for it
_WRITE_BYTES = 0.4e9  # a second, of a checkpoint: digests, writing and waiting for the disk
_READ_BYTES = {"cpu": 8e9, "cuda": 1e12}  # of weights, a second, that a token of a sample reads


@dataclass(frozen=True)
class Plan:
    """What a training will take, from the step it begins at to its last one.

    - `parameters`, `embedding`: numbers that are trained, and how many of them are rows of tokens or positions.
    - `corpus`: tokens or images (`unit`) to train on; None: nobody knows. `per_step`, `step_flops`: of a step.
    - `steps`: None in a run by the clock (`minutes`), until its speed is known.
    - `disk`: bytes of checkpoints, state and events at the end; `memory`: bytes at the peak, of the `device`.
    - `evaluation_steps`: what all evaluations cost, in steps; `sample_seconds`: what all samples take.
    - `stops_early`: the run ends by itself when its held-out loss no longer falls (`patience`).
    - `teacher`: bytes of a teacher's weights, a part of `memory`; 0: none runs.
    - `optimizer`, `rates`: what moves the weights, and how far: the highest rates by their settings, weight decay.
    - `saves`: how many checkpoints are written, each in `save_seconds`, beside the steps.
    - `seconds`, `step_seconds`: the expected time in all and of a step; None: not measured yet.
    """

    parameters: int
    embedding: int
    unit: str
    corpus: int | None
    per_step: int
    step_flops: float
    steps: int | None
    disk: int
    memory: int
    device: str
    minutes: float | None = None
    stops_early: bool = False
    teacher: int = 0
    evaluation_steps: float = 0.0
    sample_seconds: float = 0.0
    saves: int = 0
    save_seconds: float = 0.0
    seconds: float | None = None
    step_seconds: float | None = None
    optimizer: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def planned(self) -> int | None:
        """Tokens or images that will be trained on."""
        return None if self.steps is None else self.steps * self.per_step

    @property
    def epochs(self) -> float | None:
        """Passes through the corpus."""
        return None if self.planned is None or not self.corpus else self.planned / self.corpus

    @property
    def flops(self) -> float | None:
        """The arithmetic of all steps."""
        return None if self.steps is None else self.steps * self.step_flops

    def rest(self, done: int, step_seconds: float) -> float:
        """Seconds that are left after `done` steps, with evaluations, samples and checkpoints that are still to come.

        A checkpoint is written while the next steps are done; the next one waits for it, and the end for the last.
        """
        assert self.steps is not None
        remaining = self.steps - done
        share = remaining / self.steps
        steps = remaining * step_seconds + share * (self.evaluation_steps * step_seconds + self.sample_seconds)
        return max(steps, share * (self.saves - 1) * self.save_seconds) + self.save_seconds

    def cost(self, model: Any) -> dict[str, Any]:
        """As `run_start` has it, in Toy's words and some more: sizes, arithmetic, and how much is trained on.

        All parameters of a dense model are active: each of them works on every token.
        """
        total = count_parameters(model)
        unit = self.unit.removesuffix("s")
        cost: dict[str, Any] = {"total_params": total, "active_params": total, "trained_params": self.parameters}
        cost |= {f"flops_per_{unit}": self.step_flops / self.per_step, "flops_per_step": self.step_flops}
        cost |= {f"{self.unit}_per_step": self.per_step}
        return cost if self.planned is None else {**cost, f"planned_{self.unit}": self.planned}

    def fields(self) -> dict[str, Any]:
        """As `run.json`, `plan` events and `--json` have it."""
        named = {"planned": self.planned, "epochs": self.epochs, "steps": self.steps, "flops": self.flops}
        size = {"parameters": self.parameters, "embedding": self.embedding, "unit": self.unit, "corpus": self.corpus}
        takes = {"disk": self.disk, "memory": self.memory, "device": self.device, "minutes": self.minutes}
        takes["teacher"] = self.teacher or None
        time = {"seconds": self.seconds, "step_seconds": self.step_seconds}
        moved = {"optimizer": self.optimizer or None, "rates": dict(self.rates) or None}
        return {name: value for name, value in (size | named | takes | moved | time).items() if value is not None}


def is_trusted(steps_done: int, seconds: float, steps: int | None) -> bool:
    """Is the speed of so many steps that of the whole training? `seconds`: of those after the first, warm ones."""
    share = _TRUSTED_SHARE * steps if steps is not None else 0.0
    return steps_done >= _TRUSTED_STEPS and (seconds >= _TRUSTED_SECONDS or steps_done >= share)


def make_plan(
    recipe: TrainedModel,
    data: PlannedData,
    settings: TrainSettings,
    hardware: Hardware,
    *,
    prompts: int = 0,
    done: int = 0,
    sharing: Sharing = ALONE,
) -> Plan:
    """The plan of a training that is built, or only described.

    `prompts`: texts of a sample; `done`: the step it begins after; `sharing`: what ranks keep a part of.
    """
    model: Any = getattr(recipe, "trained", recipe.model)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    timed = settings.minutes is not None
    steps = settings.steps - done
    evaluations = _times(settings, "eval", done)
    scored = [data.scored(step) for step in evaluations] if data.held_out_metrics else []
    weights = Weights.of(model, settings, hardware)
    form, stored = recipe.weights_format, recipe.parameters()
    own = sharing.ranks if sharing.shard != "none" else 1  # what other ranks keep comes here in small pieces
    copies = sum(tensor.nbytes for tensor in stored.values()) + weights.moments // own + _ema_bytes(recipe)
    saved_at = {*_times(settings, "checkpoint", done), *_best_times(settings, data, evaluations)}
    saves = len(saved_at)
    checkpoints_kept = min(saves, settings.keep + 1) if settings.keep else saves
    file = form.size(stored.values(), settings.file_type)
    vocabulary = getattr(recipe.config, "vocab", 0) if data.tokenizer is not None and form.has_tokenizer else 0
    beside = sum(tensor.nbytes for tensor in form.beside(stored, settings.file_type).values())
    state = weights.moments + _ema_bytes(recipe) + beside
    layers = recipe.config.n_layers
    events = (0 if timed else _STEP_BYTES * steps + _look_bytes(recipe.config, settings, done)) + _LAYER_BYTES * layers
    device = hardware.device.type
    reading = (weights.parameters - _lookup_bytes(model)) / _READ_BYTES.get(device, 8e9)
    token_seconds = _TOKEN_SECONDS + layers * _LAYER_SECONDS + reading
    samples = len(_times(settings, "sample", done)) * prompts
    saved = file + _TOKEN_BYTES * vocabulary + state
    return Plan(
        parameters=sum(parameter.numel() for parameter in named.values()),
        embedding=sum(parameter.numel() for name, parameter in named.items() if "embd" in name and "patch" not in name),
        unit=data.unit,
        corpus=data.per_epoch,
        per_step=data.per_step,
        step_flops=data.flops(recipe.model),
        steps=None if timed else steps,
        disk=round(checkpoints_kept * (file + _TOKEN_BYTES * vocabulary) + state + events),
        memory=peak_memory(
            recipe,
            settings,
            hardware,
            scored=max(scored, default=0),
            copies=copies,
            sharing=sharing,
            tokens=getattr(data, "ctx", None),
        ),
        device=device,
        minutes=settings.minutes,
        stops_early=settings.patience is not None,
        teacher=teacher.weights if (teacher := getattr(recipe, "teacher", None)) is not None else 0,
        evaluation_steps=sum(scored) / data.per_step / 3,  # a pass forward is a third of a step
        sample_seconds=samples * settings.sample_tokens * token_seconds,
        saves=saves,
        save_seconds=saved / _WRITE_BYTES,
        optimizer=settings.optimizer,
        rates=settings.rates(),
    )


def shortages(plan: Plan, folder: Path) -> list[str]:
    """A line for each thing that the plan takes more of than there is."""
    lines = []
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = plan.disk
    if free < plan.disk:
        lines.append(
            f"the disk of {folder} has {free / 1e9:.1f} GB left, and {plan.disk / 1e9:.1f} GB are planned:"
            " lower `keep`, or choose another place with `runs`"
        )
    if (available := total_memory(plan.device)) and available < plan.memory:
        lines.append(
            f"{plan.memory / 1e9:.1f} GB of memory are planned, and {plan.device} has {available / 1e9:.1f} GB:"
            " lower `batch`, or choose a smaller model"
        )
    return lines


def _times(settings: TrainSettings, kind: Periodic, done: int) -> list[int]:
    """The steps after which an evaluation, a sample or a checkpoint is due; of very many, not each is named."""
    interval = settings.interval(kind)
    steps = list(range(done - done % interval + interval, settings.steps + 1, interval)) if interval else []
    last = [settings.steps] if interval or kind == "checkpoint" else []
    return steps if steps and steps[-1] == settings.steps else steps + last


def _look_bytes(config: Any, settings: TrainSettings, done: int) -> int:
    """Bytes of the events of all looks inside (`inspect`)."""
    schedule = settings.inspected
    if schedule is None:
        return 0
    heads = config.n_heads + getattr(config, "n_kv", config.n_heads)
    return sum(
        look_bytes(group, config.n_layers, heads)
        * schedule.looks(group, first=settings.first, last=settings.steps, done=done)
        for group in schedule.every
    )


def _best_times(settings: TrainSettings, data: PlannedData, evaluations: list[int]) -> list[int]:
    """The evaluations whose step is kept where it is the best so far: at most all, once the data repeat themselves."""
    if not data.held_out_metrics or settings.patience is not None:
        return evaluations if settings.patience is not None else []
    first = None if not data.per_epoch else data.per_epoch // data.per_step + 1
    return [] if first is None else [step for step in evaluations if step >= first]


def _lookup_bytes(model: Any) -> int:
    """Bytes of an embedding of which a token reads one row: it is not the output head too."""
    return model.token_embd.weight.nbytes if getattr(model, "output", None) is not None else 0


def _ema_bytes(recipe: TrainedModel) -> int:
    """Bytes of the weights that are trained, where a checkpoint holds their running average."""
    trained: Any = getattr(recipe, "trained", recipe.model)
    return 0 if trained is recipe.model else sum(parameter.nbytes for parameter in trained.parameters())
