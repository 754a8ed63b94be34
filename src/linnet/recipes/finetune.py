"""Fine-tuning: all weights of a base go on learning, on other text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from linnet.recipes.base_file import BaseFile, BaseOptions, known_base
from linnet.recipes.flags import FlagGroups, fill, flags_of, with_model_files
from linnet.recipes.from_scratch import PROMPT, FromScratch, text_job
from linnet.recipes.job import Job, RowData, TextData, settings_flags, teacher_flags
from linnet.recipes.lora import check_teacher
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from linnet.train import Hardware, RunData
    from linnet.train.step import LossFunction


class Finetune(FromScratch):
    """The recipe in three phases: `realize` loads the base, `build` readies the step, `step` trains.

    recipe = Finetune(settings, hardware, BaseOptions("smollm2.gguf"))
    recipe.realize()
    recipe.build()
    result = recipe.step(batch, lr)
    """

    name = "finetune"
    flags: ClassVar[FlagGroups] = {
        "Base": flags_of(BaseOptions),
        "Text": (*flags_of(TextData, leave_out=("tokenizer", "pre")), PROMPT),
        "Teacher": teacher_flags(),
        "Training": settings_flags(TrainSettings),
    }
    data_types = (TextData, RowData)
    options_type = BaseOptions

    def __init__(
        self, settings: TrainSettings, hardware: Hardware, options: BaseOptions, *, loss: LossFunction | None = None
    ) -> None:
        super().__init__(settings, hardware, loss=loss)
        self.options = options

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """A job on the base's own tokens."""
        values = with_model_files(cls.flags, values)
        base = BaseFile(values["base"])
        options = fill(BaseOptions, {**values, "ctx": base.sequence(values["ctx"])})
        check_teacher(base, values)
        values = {**values, "tokenizer": values["base"], "pre": None, "init_scale": 1.0}
        return text_job(cls.name, base.config, values, options=options)

    @classmethod
    def admitted(cls, job: Job, *, force: bool = False) -> Job:
        """The job with the name and the hash of its base; a run that has begun needs it no more."""
        assert isinstance(job.options, BaseOptions)
        return job if job.options.base_sha256 else replace(job, options=known_base(job.options))

    @classmethod
    def begins_from_seed(cls, job: Job) -> bool:
        """All weights are the base's at first."""
        return False

    @staticmethod
    def _is_pretrained(job: Job) -> bool:
        return True

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[Finetune, Job]:
        """The recipe of a job, built. Going on needs no base: the checkpoint has all of it."""
        assert isinstance(job.options, BaseOptions)
        recipe = cls(job.settings, hardware, job.options, loss=job.loss)
        if resumed:
            recipe._allocate(job.model)
        else:
            recipe.realize()
        recipe.take_teacher(job)
        recipe.build()
        return recipe, replace(job, model=recipe.config)

    def realize(self, config: Any = None) -> None:
        """Load the base as float32, quantised or not."""
        from linnet.models import load

        device = "cpu" if self._hardware.shards_weights else self._hardware.device
        model = load(self.options.base, device, task="text")
        model.set_compute_dtype(self._hardware.dtype)
        self._trained = model

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        return {**self.options.origin, **super().origin}

    @property
    def remark(self) -> str | None:
        """What goes on learning."""
        return f"all weights of {self.options.base_name or self.options.base} go on learning"
