"""A training job: everything that decides what a run does, as data that `run.json` holds and resume reads back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from linnet.architectures import ARCHITECTURES, AnyConfig, ViTConfig
from linnet.errors import LinnetError
from linnet.recipes.options import OPTIONS, Options
from linnet.train.settings import TrainSettings

# What may change between a run and its continuation without making it another run.
_FREE = (
    "steps",
    "eval_every",
    "eval_tokens",
    "sample_every",
    "sample_tokens",
    "checkpoint_every",
    "keep",
    "gate",
    "device",
    "compile",
    "graph",
    "profile",
    "on_nan",
    "cache",
    "prompts",
    "eval_images",
)

_LABELS = 32  # names of classes that `run.json` lists


@dataclass(frozen=True)
class TextData:
    """Where the text comes from and how it becomes tokens."""

    corpus: str = "python"
    tokenizer: str | None = None  # a GGUF whose tokenizer is taken; None: one is trained
    held_out: float = 0.02
    documents: bool = False  # documents do not see each other
    cache: str | None = None
    field: str | None = None  # of JSONL lines and Parquet rows; None: text


@dataclass(frozen=True)
class ImageData:
    """Where the images come from; classes, channels and brightness are found out when they are read."""

    images: str = "digits"
    held_out: float = 0.2  # where the data has no test set of its own
    channels: int | None = None  # 1: grey, 3: colour; None: as the images are
    num_classes: int | None = None  # refuse labels from this one on
    strict: bool = False  # a file that is no image is an error


@dataclass(frozen=True)
class Job:
    """Model, data and settings of a run."""

    model: AnyConfig
    data: TextData | ImageData
    settings: TrainSettings
    prompts: tuple[str, ...] = ()
    init_scale: float = 1.0
    recipe: str = "from-scratch"  # a name of `training.RECIPES`
    options: Options = None  # what only this recipe is asked for, and what it found when it was realised

    def model_fields(self) -> dict[str, Any]:
        """The model as `run.json` holds it."""
        fields = {"arch": self.model.arch, **asdict(self.model)}
        if len(fields.get("labels", ())) > _LABELS:  # every checkpoint has them
            del fields["labels"]
        return {name: value for name, value in fields.items() if value is not None}

    def config_fields(self) -> dict[str, Any]:
        """Everything else as `run.json` holds it; `context` is Toy's word, and images have none."""
        own: dict[str, Any] = {"init_scale": self.init_scale}
        if not isinstance(self.model, ViTConfig):
            own = {"context": self.model.ctx, "prompts": list(self.prompts), **own}
        options = asdict(self.options) if self.options is not None else {}
        fields = {**asdict(self.settings), **asdict(self.data), **own, **options}
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_fields(cls, model: Mapping[str, Any], config: Mapping[str, Any], recipe: str | None = None) -> Job:
        """Read a job back from a manifest."""
        recipe = recipe or "from-scratch"
        try:
            described = ARCHITECTURES[model["arch"]]
            return cls(
                model=_read_fields(described.config, model),
                data=_read_fields(ImageData if described.task == "images" else TextData, config),
                settings=_read_fields(TrainSettings, config),
                prompts=msgspec.convert(config.get("prompts", ()), tuple[str, ...]),
                init_scale=float(config.get("init_scale", 1.0)),
                recipe=recipe,
                options=_read_fields(OPTIONS[recipe], config) if recipe in OPTIONS else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise LinnetError(f"run.json does not describe a run that can be resumed: {reason}") from error

    def fingerprint(self) -> str:
        """A word that changes with anything that would make the continuation another run."""
        kept = {name: v for name, v in {**self.model_fields(), **self.config_fields()}.items() if name not in _FREE}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _read_fields(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from what a manifest holds; a value of another type is a ValueError that names its field."""
    given = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    return msgspec.convert(given, kind)
