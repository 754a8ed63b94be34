"""From scratch: a model that knows nothing, trained on text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from linnet import data
from linnet.architectures import ARCHITECTURES, AnyConfig, names_for, preset, presets_for
from linnet.errors import UsageError
from linnet.recipes.flags import Flag, FlagGroups, changed_fields, config_flags, fill, flags_of, with_model_files
from linnet.recipes.job import (
    DEFAULT_PROMPTS,
    Job,
    RowData,
    TeacherOptions,
    TextData,
    settings_flags,
    settings_of,
    teacher_flags,
    teacher_of,
)
from linnet.recipes.recipe import INIT_SCALE, AnyRecipe, ModelRecipe
from linnet.recipes.teacher import TeacherFile
from linnet.train import rates
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.models import LanguageModel  # noqa: F401
    from linnet.train import Hardware, RunData
    from linnet.train.distillation import LiveTeacher
    from linnet.train.step import Batch, StepObserver, StepResult

_SHAPE = config_flags(ARCHITECTURES[name].config for name in names_for("text"))
PROMPT = Flag("prompt", tuple[str, ...], (), "What samples begin with; may be given several times.")
TEXT_FLAGS = {
    "Text": (*flags_of(TextData), PROMPT),
    "Teacher": teacher_flags(),
    "Training": settings_flags(TrainSettings),
}


class FromScratch(ModelRecipe["LanguageModel"]):
    """The recipe in three phases: `realize` allocates and initialises, `build` readies the step, `step` trains.

    recipe = FromScratch(settings, hardware)
    recipe.realize(config)
    recipe.build()
    result = recipe.step(batch, lr)
    """

    name = "from-scratch"
    flags: ClassVar[FlagGroups] = {
        "Model": (
            Flag(
                "preset",
                str,
                "demo",
                "tiny, micro (1M), demo (3M), nano (15M), small (50M), smollm2-135m, gpt2-124m or smollm2-360m.",
            ),
            Flag("arch", Literal[names_for("text")] | None, None, "Another architecture, with the preset's sizes."),
            *_SHAPE,
            INIT_SCALE,
        ),
        **TEXT_FLAGS,
    }
    data_types: ClassVar[tuple[type[Any], ...]] = (TextData, RowData)
    teacher: LiveTeacher | None = None  # where it runs beside the model
    _teacher_options: TeacherOptions | None = None

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """The preset with the given fields changed; fields of another architecture are refused by name."""
        values = with_model_files(cls.flags, values)
        if (teacher := teacher_of(values)) is not None:
            values = {**values, "tokenizer": _teachers_tokenizer(teacher, values)}
        if values["vocab"] is not None and values["tokenizer"] is not None:
            _check_vocab(values["vocab"], values["tokenizer"])
        config = shaped_config(values["preset"], values["arch"], changed_fields(_SHAPE, values))
        return text_job(cls.name, config, values)

    @classmethod
    def settled(cls, job: Job, tokens: int, steps: int | None = None, *, corpus: int | None = None) -> TrainSettings:
        """The settings with rates, weight decay and dropout by the rule (`train/rates.py`), where they are not given.

        Dropout follows only where it was measured: new models that learn from the text alone.
        """
        is_plain = cls.begins_from_seed(job) and job.teacher is None and job.loss_name is None
        pretrained, corpus = cls._is_pretrained(job), corpus if is_plain else None
        return rates.settled(job.settings, job.model, tokens, steps=steps, pretrained=pretrained, corpus=corpus)

    @staticmethod
    def _is_pretrained(job: Job) -> bool:
        """Do all weights come from a model that was trained before?"""
        return False

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[AnyRecipe, Job]:
        """The recipe of a job, built, with its teacher."""
        recipe = cls(job.settings, hardware, init_scale=job.init_scale, loss=job.loss)
        recipe.realize(job.model)
        recipe.take_teacher(job)
        recipe.build()
        return recipe, job

    def take_teacher(self, job: Job) -> None:
        """Let the model learn from the job's teacher, which is read now, unless a cache stands for it."""
        if job.teacher is not None:
            runs = job.teacher.teacher_cache is None
            file = TeacherFile(job.teacher.teacher) if runs else None
            self.learn_from(job.teacher, None if file is None else file.loaded(self._hardware, self.config.vocab))

    def learn_from(self, options: TeacherOptions, teacher: LiveTeacher | None) -> None:
        """Let the model learn from a teacher that is loaded; None: batches bring what it said. Before `build`."""
        self._teacher_options, self.teacher = options, teacher

    def _step_loss(self) -> Callable[..., Any] | None:
        if self._teacher_options is None:
            return super()._step_loss()
        from linnet.train.distillation import DistillationLoss

        how = self._teacher_options
        return DistillationLoss(
            self.trained, self.teacher, how.distill, how.temperature_distill, how.top_k_distill or None
        )

    @property
    def origin(self) -> Mapping[str, Any]:
        """Who taught the model, for its checkpoints."""
        if self._teacher_options is None:
            return {}
        how = self._teacher_options
        known = {"teacher": how.teacher_name, "teacher_sha256": how.teacher_sha256, "distill": how.distill}
        return {key: value for key, value in known.items() if value is not None}

    def build(self) -> None:
        """Make optimizer and step, with dropout where the settings have it; an adapter has its own."""
        if self._settings.dropout:
            self.trained.use_dropout(self._settings.dropout, self._settings.seed)
        super().build()

    def _train(self, batch: Batch, lr: float, is_first: bool, observer: StepObserver | None = None) -> StepResult:
        if self._step is not None:
            self.trained.begin_step(0 if is_first else self.step_index)
        return super()._train(batch, lr, is_first, observer)

    def step(
        self, batch: Batch, lr: float, *, is_first: bool = False, observer: StepObserver | None = None
    ) -> StepResult:
        """Train on one batch at the rate `lr`.

        `is_first`: forget the optimizer's moments, as the seed does at its first step. `observer` looks at the step.
        """
        return self._train(batch, lr, is_first, observer)

    def train_on(self, batch: Batch, lr: float, index: int, observer: StepObserver | None = None) -> StepResult:
        """The loop's step."""
        return self.step(batch, lr) if observer is None else self.step(batch, lr, observer=observer)

    @staticmethod
    def batch_of(ids_BT: Tensor, targets_BT: Tensor, documents_BT: Tensor | None) -> data.Batch:
        """Some rows as a batch, for a loss of one's own; their targets are counted on the device's own time."""
        return data.Batch(ids_BT, targets_BT, documents_BT, int((targets_BT >= 0).sum()))


def text_job(recipe: str, config: AnyConfig, values: Mapping[str, Any], **more: Any) -> Job:
    """A job on text; samples begin with something that fits the corpus where nothing is said."""
    if values["pre"] is not None and values["tokenizer"] is not None:
        raise UsageError(
            "`pre` cuts words for a vocabulary that is trained on the corpus, and here the tokenizer comes from a file:"
            " leave it out"
        )
    prompts = values["prompt"] or (("def __init__(self",) if values["corpus"] == "python" else DEFAULT_PROMPTS)
    data, settings = fill(TextData, values), settings_of(TrainSettings, values)
    teacher = teacher_of(values)
    return Job(config, data, settings, tuple(prompts), values["init_scale"], recipe, teacher=teacher, **more)


def _teachers_tokenizer(teacher: TeacherOptions, values: Mapping[str, Any]) -> str:
    """The file whose tokenizer a model from scratch has: the teacher's, or one with the same tokens."""
    file, other = TeacherFile(teacher.teacher), values["tokenizer"]
    if values["vocab"] is not None and values["vocab"] != len(file.tokens):
        raise UsageError(
            f"`vocab={values['vocab']}` trains another vocabulary than the {len(file.tokens):,} tokens of the teacher,"
            " which knows its own alone: leave it out, and the model has the teacher's tokenizer"
        )
    if other is None:
        return teacher.teacher
    from linnet.data.tokenizer import Vocabulary

    advice = "leave `tokenizer` out, and the model has the teacher's"
    file.require_same_tokens(Vocabulary(other).metadata, f"`tokenizer` {other}", advice)
    return str(other)


def _check_vocab(vocab: int, tokenizer: str | Path) -> None:
    from linnet.data.tokenizer import Vocabulary

    rows = Vocabulary(tokenizer).rows
    if rows != vocab:
        raise UsageError(f"`vocab={vocab}` does not go with a tokenizer of {rows} tokens: leave it out")


def shaped_config(name: str, arch: str | None, changes: dict[str, Any]) -> AnyConfig:
    """A preset, with its sizes in another architecture where `arch` names one."""
    base: AnyConfig = preset(name, presets_for("text"))
    kind = ARCHITECTURES[arch or base.arch].config
    known = [field.name for field in fields(kind)]
    for field in changes:
        if field not in known:
            raise UsageError(f"`{field}` does not belong to a {kind.arch}")
    sizes = {field: getattr(base, field) for field in known if hasattr(base, field)}  # a GPT-2 has an n_kv, too
    config: AnyConfig = kind(**{**sizes, **changes})
    return config
