"""LoRA: an adapter is trained beside a base that is frozen and stays quantised; checkpoints are the adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from linnet import gguf
from linnet.errors import LinnetError, UsageError
from linnet.gguf.adapter import AdapterFile, adapter_layout
from linnet.recipes.adapter_format import AdapterFormat, MergedFormat
from linnet.recipes.base_file import BaseFile, BaseOptions, known_base, refuse_shared_weights
from linnet.recipes.flags import FlagGroups, ModelName, fill, flags_of, with_model_files
from linnet.recipes.from_scratch import PROMPT, FromScratch, text_job
from linnet.recipes.job import Job, RowData, TextData, settings_flags, teacher_flags, teacher_of
from linnet.train import rates
from linnet.train.settings import OptimizerName, TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.models.adapter_shape import AdapterShape
    from linnet.models.adapters import Adapter
    from linnet.train import Hardware, RunData
    from linnet.train.checkpoint import WeightsFormat
    from linnet.train.state import State
    from linnet.train.step import LossFunction

DEFAULT_BETA = 0.1  # of the paper, and of everybody since


@dataclass(frozen=True)
class LoraOptions(BaseOptions):
    """What of the base is adapted, and how.

    Args:
        targets: The projections that are adapted, with commas: q, k, v, o, gate, up, down (of a gpt2 qkv, o, up, down);
            all: every one of the blocks; besides embed and head, where these are two matrices.
        rank: How many directions each projection can be changed in.
        alpha: What the change is multiplied by, over the rank; twice the rank by default.
        dropout: The share of its inputs that an adapter does not see in training.
        rslora: Divide alpha by the root of the rank, not by the rank: for high ranks.
        dora: Train the length of each row apart from its direction. GGUF adapters have no room for that, so checkpoints
            are merged models.
        adapter: The MODEL of an adapter to go on with, made for this base; its targets and rank are taken.
        any_base: Go on with an adapter that was made for another file, if only the shapes fit.
        loss: dpo: learn from rows of prompt, chosen and rejected which answer is the better one, by direct preference
            optimization; the base without the adapter is the reference.
        beta: How much dpo holds the model to the base, 0.1 by default: the higher, the closer it stays.
    """

    targets: str = "all"
    rank: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    rslora: bool = False
    dora: bool = False
    adapter: ModelName | None = None
    any_base: bool = False
    loss: Literal["dpo"] | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if self.beta is not None and self.loss is None:
            raise UsageError("`beta` belongs to learning from preferences: give `loss=dpo` too, or leave it out")
        if self.beta is not None and not 0 < self.beta < float("inf"):
            raise UsageError(f"`beta` must be above 0, found {self.beta:g}")

    @property
    def reward_scale(self) -> float:
        """What an answer is worth by a nat of its log probability over the base's."""
        return DEFAULT_BETA if self.beta is None else self.beta


@dataclass(frozen=True)
class LoraSettings(TrainSettings):
    """The settings of the loop, as they are right for an adapter.

    Args:
        lr: The highest learning rate; 1e-3 by default.
        optimizer: adamw, or muon for the pairs of the blocks.
        weight_decay: On the pairs; none by default.
    """

    optimizer: OptimizerName = "adamw"


class Lora(FromScratch):
    """The recipe in three phases: `realize` loads the base and puts the adapter beside it, `build` readies the step.

    recipe = Lora(settings, hardware, LoraOptions("smollm2.gguf", rank=8))
    recipe.realize()
    recipe.build()
    result = recipe.step(batch, lr)
    """

    name = "lora"
    flags: ClassVar[FlagGroups] = {
        "Base": flags_of(LoraOptions),
        "Text": (*flags_of(TextData, leave_out=("tokenizer", "pre")), PROMPT),
        "Teacher": teacher_flags(),
        "Training": settings_flags(LoraSettings, leave_out=("dropout",)),
    }
    data_types = (TextData, RowData)
    options_type = LoraOptions

    def __init__(
        self, settings: TrainSettings, hardware: Hardware, options: LoraOptions, *, loss: LossFunction | None = None
    ) -> None:
        super().__init__(settings, hardware, loss=loss)
        self.options = options
        self._chat_format: str | None = None  # of what it is trained on, where it is not the base's own

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """A job on the base's own tokens; what cannot be adapted is refused before anything is made."""
        values = with_model_files(cls.flags, values)
        refuse_shared_weights(values)
        base = BaseFile(values["base"])
        options = fill(LoraOptions, {**values, "ctx": base.sequence(values["ctx"])})
        if options.adapter is not None:
            options = _continued(options, base, values)
        shape = shape_of(options, base.config)
        from linnet.models.adapter_shape import check_shape

        check_shape(shape, base.config)
        check_teacher(base, values)
        # The dropout is the adapter's, of the options; the settings' would be the model's.
        values = {**values, "tokenizer": values["base"], "pre": None, "init_scale": 1.0, "dropout": None}
        return text_job(cls.name, base.config, values, options=options)

    @classmethod
    def admitted(cls, job: Job, *, force: bool = False) -> Job:
        """The job with the name and the hash of its base, by which it is known again."""
        options = job.options
        assert isinstance(options, LoraOptions)
        if job.learns_preferences:
            _check_preferences(job)
            options = replace(options, beta=options.reward_scale)
        known = known_base(options, force=force)
        if known.adapter is not None and options.base_sha256 is None and not known.any_base:
            AdapterFile.read(known.adapter).require_base(known.base_sha256 or "", known.base)
        return replace(job, options=known)

    @classmethod
    def begins_from_seed(cls, job: Job) -> bool:
        """What is trained lies beside a base that no seed gives, and may go on from another adapter."""
        return False

    @classmethod
    def settled(cls, job: Job, tokens: int, steps: int | None = None, *, corpus: int | None = None) -> TrainSettings:
        """The settings with the rates of adapters, where they are not given."""
        return rates.settled_adapter(job.settings, steps=steps, preferences=job.learns_preferences)

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[Lora, Job]:
        """The recipe of a job, built. Going on needs the base again, and no adapter that it began with."""
        assert isinstance(job.options, LoraOptions)
        options = replace(job.options, adapter=None) if resumed else job.options
        recipe = cls(job.settings, hardware, options, loss=job.loss)
        recipe.realize()
        recipe.options = job.options
        if isinstance(job.data, TextData):
            recipe._chat_format = BaseFile(options.base).other_chat_format(job.data.chat_format)
        recipe.take_teacher(job)
        recipe.build()
        return recipe, job

    def realize(self, config: Any = None) -> None:
        """Load the base, frozen, and put the adapter beside it, which at first changes nothing, or goes on with one."""
        from linnet.models.adapters import add_adapter, load_pairs
        from linnet.models.frozen import load_frozen

        options = self.options
        model = load_frozen(options.base, self._hardware.device, self._hardware.dtype)
        adapter = add_adapter(model, shape_of(options, model.config), self._settings.seed)
        if options.adapter is not None:
            load_pairs(adapter, AdapterFile.read(options.adapter))
        self._trained = model

    @property
    def adapter(self) -> Adapter:
        """What is trained."""
        if self.trained.adapter is None:
            raise LinnetError("the recipe has no adapter yet; call realize() first")
        return self.trained.adapter

    def _step_loss(self) -> Callable[..., Any] | None:
        if self.options.loss is None:
            return super()._step_loss()
        from linnet.train.preferences import PreferenceLoss

        return PreferenceLoss(self.trained, self.options.reward_scale)

    def parameters(self) -> dict[str, Tensor]:
        """The pairs by the names of `gguf.adapter_layout`."""
        return {name: parameter.detach() for name, parameter in self.adapter.parameters().items()}

    @cached_property
    def weights_format(self) -> WeightsFormat:
        """How checkpoints hold the pairs: as an adapter of the base; those of DoRA as a model."""
        options, shape = self.options, self.adapter.shape
        if shape.dora:
            return MergedFormat(BaseFile(options.base).file, shape.scale, self._chat_format)
        base = options.base_name or Path(options.base).name
        return AdapterFormat(self.config, shape.file_alpha, base, options.base_sha256, self._chat_format)

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        return {**(self.options.origin if self.options.dora else {}), **super().origin}

    def chosen(self, rows: int) -> dict[str, Any]:
        """With alpha, which follows from the rank where it is not given."""
        return {**super().chosen(rows), "alpha": self.adapter.shape.alpha}

    @property
    def remark(self) -> str | None:
        """What is trained of which base."""
        shape, options = self.adapter.shape, self.options
        kind = "DoRA, kept as merged models" if shape.dora else "LoRA"
        dropped = f", dropout {shape.dropout:g}" if shape.dropout else ""
        words = f"rank {shape.rank}, scale {shape.scale:g}{dropped}, of {', '.join(shape.targets)}"
        learns = f"; DPO, beta {options.reward_scale:g}, with the base as reference" if options.loss else ""
        if options.loss and options.adapter is not None:
            learns += ", which the adapter it goes on with is no part of (merge it first where it should be)"
        return f"{kind} of {options.base_name or options.base}: {words}{learns}"

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint's pairs back, and the optimizer's state, to the bit."""
        import torch

        from linnet.train.state import check_parameters

        parameters = self.adapter.parameters()
        with ExitStack() as opened, torch.no_grad():
            kept: dict[str, Any] = dict(state.parameters)
            if not parameters.keys() <= kept.keys():
                file = opened.enter_context(gguf.GGUFFile.open(weights))
                kept = {**_stored_pairs(file, self.config, self.adapter.shape), **kept}
            check_parameters(parameters, kept)
            for name, parameter in parameters.items():
                value = kept[name]
                parameter.copy_(value if isinstance(value, torch.Tensor) else torch.from_numpy(value.read()))
        self._built.optimizers.load(state.moments)
        self.step_index = int(state.facts.get("step", 0))


def shape_of(options: LoraOptions, config: Any) -> AdapterShape:
    """What is adapted of a base of this shape."""
    from linnet.models.adapter_shape import AdapterShape

    targets = _named_targets(options, config)
    alpha = 2.0 * options.rank if options.alpha is None else options.alpha
    return AdapterShape(targets, options.rank, alpha, options.dropout, options.rslora, options.dora)


def _continued(options: LoraOptions, base: BaseFile, values: Mapping[str, Any]) -> LoraOptions:
    """The options with rank and targets of the adapter to go on with; others that were asked for are refused."""
    assert options.adapter is not None
    file = AdapterFile.read(options.adapter)
    file.require_fits(base.config, base.path)
    if len({pair.rank for pair in file.pairs.values()}) > 1:
        raise UsageError(f"the adapter {file.path} has pairs of several ranks, which are not trained together")
    if options.dora:
        raise UsageError("`dora` does not go with `adapter`: lengths of rows were not trained in it")
    if values["rank"] not in (LoraOptions.rank, file.rank):
        raise UsageError(f"`rank` does not go with `adapter`: that of {file.path} is {file.rank}")
    targets = ",".join(file.targets)
    if values["targets"] != LoraOptions.targets and set(_named_targets(options, base.config)) != set(file.targets):
        raise UsageError(f"`targets` does not go with `adapter`: those of {file.path} are {targets}")
    alpha = options.alpha if options.alpha is not None or not file.alpha else file.alpha
    return replace(options, targets=targets, rank=file.rank, alpha=alpha)


def _named_targets(options: LoraOptions, config: Any) -> tuple[str, ...]:
    from linnet.models.adapter_shape import parse_targets

    return parse_targets(options.targets.replace(",", " ").split(), config)


def _check_preferences(job: Job) -> None:
    """Refuse what has no place where pairs of answers are compared."""
    if job.teacher is not None:
        raise UsageError("`teacher` does not go with `loss=dpo`: the base is what is compared with; leave one out")
    if job.loss_name is not None:
        raise UsageError("`loss=dpo` does not go with a loss of one's own: leave one out")
    if isinstance(job.data, RowData):
        raise UsageError(
            "`loss=dpo` learns from pairs: give a corpus of rows of prompt, chosen and rejected, not data="
        )


def check_teacher(base: BaseFile, values: Mapping[str, Any]) -> None:
    """Refuse a teacher with other tokens than the base's."""
    if (teacher := teacher_of(values)) is None:
        return
    from linnet.data.tokenizer import Vocabulary
    from linnet.recipes.teacher import TeacherFile

    advice = "take one with the base's"
    TeacherFile(teacher.teacher).require_same_tokens(Vocabulary(base.path).metadata, f"the base {base.path}", advice)


def _stored_pairs(file: gguf.GGUFFile, config: Any, shape: AdapterShape) -> dict[str, Any]:
    """The pairs of a checkpoint by our names, still to be read."""
    layout = adapter_layout(config, shape.rank, shape.targets)
    return {
        name: file.tensors[param.pieces[0].tensor]
        for name, param in layout.params.items()
        if param.pieces[0].tensor in file.tensors
    }
