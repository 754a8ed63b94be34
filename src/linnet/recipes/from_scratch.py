"""From scratch: a model that knows nothing, trained on text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from linnet import data
from linnet.architectures import ARCHITECTURES, AnyConfig, names_for, preset, presets_for
from linnet.errors import UsageError
from linnet.recipes.flags import Flag, FlagGroups, changed_fields, config_flags, fill, flags_of, with_model_files
from linnet.recipes.job import Job, RowData, TextData, settings_flags, settings_of
from linnet.recipes.recipe import INIT_SCALE, ModelRecipe
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.models import LanguageModel  # noqa: F401
    from linnet.train.step import Batch, StepResult

_SHAPE = config_flags(ARCHITECTURES[name].config for name in names_for("text"))
_PROMPT = Flag("prompt", tuple[str, ...], (), "What samples begin with; may be given several times.")
TEXT_FLAGS = {"Text": (*flags_of(TextData), _PROMPT), "Training": settings_flags(TrainSettings)}


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
            Flag("preset", str, "demo", "tiny, demo (3M), nano (15M), smollm2-135m, gpt2-124m or smollm2-360m."),
            Flag("arch", Literal[names_for("text")] | None, None, "Another architecture, with the preset's sizes."),
            *_SHAPE,
            INIT_SCALE,
        ),
        **TEXT_FLAGS,
    }
    data_types: ClassVar[tuple[type[Any], ...]] = (TextData, RowData)

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """The preset with the given fields changed; fields of another architecture are refused by name."""
        values = with_model_files(cls.flags, values)
        if values["vocab"] is not None and values["tokenizer"] is not None:
            _check_vocab(values["vocab"], values["tokenizer"])
        config = shaped_config(values["preset"], values["arch"], changed_fields(_SHAPE, values))
        return text_job(cls.name, config, values)

    def step(self, batch: Batch, lr: float, *, is_first: bool = False) -> StepResult:
        """Train on one batch at the rate `lr`.

        `is_first`: forget the optimizer's moments, as the seed does at its first step.
        """
        return self._train(batch, lr, is_first)

    def train_on(self, batch: Batch, lr: float, index: int) -> StepResult:
        """The loop's step."""
        return self.step(batch, lr)

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
    prompts = values["prompt"] or (("def __init__(self",) if values["corpus"] == "python" else ("The",))
    data, settings = fill(TextData, values), settings_of(TrainSettings, values)
    return Job(config, data, settings, tuple(prompts), values["init_scale"], recipe, **more)


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
