"""A training job: everything that decides what a run does, as data that `run.json` holds and resume reads back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

from linnet.architectures import ARCHITECTURES, AnyConfig, ViTConfig, layout
from linnet.errors import LinnetError, UsageError, mismatch
from linnet.gguf.chat_format import ChatFormatName
from linnet.recipes.flags import FilePath, Flag, ModelName, SourceName, absolute, fill, flags_of
from linnet.recipes.registry import recipe_type
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from linnet.gguf import GGUFFile
    from linnet.recipes.donor import Donor
    from linnet.train.step import LossFunction

_Settings = TypeVar("_Settings", bound=TrainSettings)

PrepareProgress = Callable[[str, int, int], None]  # of what, how much is done, how much there is

# What may change between a run and its continuation without making it another run.
FREE = (
    "steps",
    "minutes",
    "patience",
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
    "deterministic",
    "rank_timeout",
    "shard",
    "overlap",
    "recompute",
    "profile",
    "inspect",
    "on_nan",
    "baseline",
    "abort_behind",
    "mirror",
    "cache",
    "prompts",
    "eval_images",
)

BUDGETS = ("steps", "minutes", "tokens", "epochs")  # what says how long to train: one of them
_TURNED_INTO_STEPS = ("tokens", "epochs")  # so no run keeps them; under `tokens` a warm start has something else
DEFAULT_PROMPTS = ("The",)  # what samples of a text begin with; of conversations it is a held-out question
_LABELS = 32  # names of classes that `run.json` lists


@dataclass(frozen=True)
class TextData:
    """Where the text comes from and how it becomes tokens.

    Args:
        corpus: A file, a folder, a pattern, a URL (s3://bucket/texts), or python: the standard library of this
            interpreter.
        field: Where the text is in rows of JSONL, CSV, TSV and Parquet: a name, text by default, or '*.csv=name' for
            some files; may be given several times.
        dedup: Drop documents that are equal, or nearly, to an earlier one.
        dedup_threshold: How alike `dedup` takes for nearly equal: the share of common runs of five words, 0.8 by
            default; 1: equal only.
        plain: Read HTML, CSV, notebooks and other documents as the text they are written in.
        tokenizer: The MODEL whose tokenizer is taken; by default the donor's where there is one, else one is trained.
        pre: How a vocabulary that is trained on the corpus cuts words; by default as the donor's, else as GPT-2's.
        held_out: The share of documents kept for evaluation.
        documents: Keep documents from seeing each other; conversations never do.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        rows: What rows of JSONL, CSV and Parquet are, text, conversations or preferences; by default what the keys of
            the first say.
        chat_format: How conversations are written: chatml, llama-3, gemma, phi-3, zephyr, llama-2, mistral or plain; by
            default as the chat template of the tokenizer, which is never run, or its tokens tell.
        train_on: Of conversations: answers, which is the default, or all, the questions too.
    """

    run_data: ClassVar[str] = "linnet.recipes.corpus_data:read_corpus"
    corpus: SourceName = "python"
    tokenizer: ModelName | None = None
    held_out: float = 0.02
    documents: bool = False
    cache: FilePath | None = None
    field: tuple[str, ...] | None = None
    pre: Literal["gpt-2", "smollm", "llama-bpe", "qwen2"] | None = None
    dedup: bool | None = None
    dedup_threshold: float | None = None
    # None: a run from before other formats than JSONL and Parquet were read, which goes on as it began
    plain: bool | None = False
    # of texts none of them is ever set: their runs are what they were before there were conversations
    rows: Literal["text", "conversations", "preferences"] | None = None
    chat_format: ChatFormatName | None = None
    train_on: Literal["answers", "all"] | None = None

    def __post_init__(self) -> None:
        field: object = self.field
        if isinstance(field, str):  # one name, as a program says it
            object.__setattr__(self, "field", (field,))


@dataclass(frozen=True)
class ImageData:
    """Where the images come from; classes, channels and brightness are found out when they are read.

    Args:
        images: A folder of class folders, of IDX files, or of train and test with class folders in them; an .npz;
            or digits.
        held_out: The share kept for evaluation where there is no test set.
        num_classes: Refuse labels from this one on; by default there are as many classes as labels.
        channels: 1: grey, 3: colour; by default as the images are.
        strict: Stop at a file that is no image, instead of leaving it out.
    """

    run_data: ClassVar[str] = "linnet.recipes.image_data:ImageRunData"
    images: SourceName = "digits"
    held_out: float = 0.2
    channels: Literal[1, 3] | None = None
    num_classes: int | None = None
    strict: bool = False


@dataclass(frozen=True)
class RowData:
    """Rows of token ids that a program gives: `rows` names their type, since `run.json` cannot hold them."""

    run_data: ClassVar[str] = "linnet.recipes.row_data:RowRunData"
    rows: str
    held_out: float = 0.02  # of a map-style dataset


@dataclass(frozen=True)
class Rows:
    """The rows themselves: a map-style dataset or an iterable, those to evaluate on, and what their ids stand for."""

    rows: Any
    eval_rows: Any = None
    tokenizer: Any = None  # a GGUF's path, or an object of tokenizers or transformers


@dataclass(frozen=True)
class TeacherOptions:
    """The teacher of a text model. The fields from `teacher_name` on are found out when the run starts.

    Args:
        teacher: A MODEL with the same tokenizer, quantised or not: besides the text, what it expects after every token
            is learnt. A model from scratch takes its tokenizer.
        distill: How much of the loss is the teacher's, from 0 to 1; 0.5 by default.
        temperature_distill: The temperature at which its probabilities and the model's are compared; 1 by default.
        top_k_distill: Its likeliest tokens that are learnt from, all others as one; by default the whole vocabulary, or
            as many as a cache of it holds (linnet data teach). 0: the whole vocabulary, whatever there is.
    """

    teacher: ModelName
    distill: float = 0.5
    temperature_distill: float = 1.0
    top_k_distill: int | None = None
    teacher_name: str | None = None
    teacher_sha256: str | None = None
    teacher_cache: str | None = None  # the digest of the cache that stands for it

    def __post_init__(self) -> None:
        if not 0 <= self.distill <= 1:
            raise UsageError(f"`distill` is the teacher's share of the loss, from 0 to 1, found {self.distill:g}")
        if not 0 < self.temperature_distill < float("inf"):
            raise UsageError(f"`temperature_distill` must be above 0, found {self.temperature_distill:g}")
        if self.top_k_distill is not None and self.top_k_distill < 0:
            raise UsageError(f"`top_k_distill` must be 0 or more, found {self.top_k_distill}")


@dataclass(frozen=True)
class Job:
    """Model, data and settings of a run.

    `donor`, `rows` and `loss` are objects that travel with it where a program has them; `run.json` holds none of them.
    """

    model: AnyConfig
    data: TextData | ImageData | RowData
    settings: TrainSettings
    prompts: tuple[str, ...] = ()
    init_scale: float = 1.0
    recipe: str = "from-scratch"  # a name of `registry.RECIPES`
    options: DataclassInstance | None = None  # what only this recipe is asked for, and found out when it was realised
    loss_name: str | None = None  # of a program's own loss
    teacher: TeacherOptions | None = None
    donor: Donor | None = field(default=None, compare=False, repr=False)  # where it is open already
    rows: Rows | None = field(default=None, compare=False, repr=False)
    loss: LossFunction | None = field(default=None, compare=False, repr=False)

    @property
    def tokenizer_source(self) -> Path | GGUFFile | None:
        """Where the tokenizer is read from: the donor's file where that is open and has it."""
        path = self.data.tokenizer if isinstance(self.data, TextData) else None
        if path is None:
            return None
        is_donors = self.donor is not None and not self.donor.closed and absolute(self.donor.path) == path
        return self.donor.file if self.donor is not None and is_donors else Path(path)

    @property
    def ctx(self) -> int:
        """Tokens of a sequence, or patches of an image. A base that is trained on may have room for more."""
        if isinstance(self.model, ViTConfig):
            return self.model.tokens
        return getattr(self.options, "ctx", None) or self.model.ctx

    @property
    def tokens_at_once(self) -> int:
        """Tokens, or patches of images, that pass through the model together."""
        return self.settings.batch * self.ctx

    @property
    def learns_preferences(self) -> bool:
        """Does it learn from pairs of a chosen and a rejected answer?"""
        return getattr(self.options, "loss", None) == "dpo"

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
            own = {"context": self.ctx, "prompts": list(self.prompts), **own}
        if self.loss_name is not None:
            own["own_loss"] = self.loss_name
        options = asdict(self.options) if self.options is not None else {}
        teacher = asdict(self.teacher) if self.teacher is not None else {}
        fields = {**asdict(self.settings), **asdict(self.data), **own, **options, **teacher}
        if isinstance(self.data, TextData) and self.data.field is not None and len(self.data.field) < 2:
            fields["field"] = next(iter(self.data.field), None)
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_fields(cls, model: Mapping[str, Any], config: Mapping[str, Any], recipe: str | None = None) -> Job:
        """Read a job back from a manifest."""
        recipe = recipe or "from-scratch"
        kind = recipe_type(recipe)
        # What a recipe asks for under a word of the settings is its own: the dropout of an adapter.
        own = () if kind.options_type is None else tuple(field.name for field in fields(kind.options_type))
        try:
            return cls(
                model=_read_fields(ARCHITECTURES[model["arch"]].config, model),
                data=_read_data(_data_type(kind.data_types, config), config),
                settings=_read_fields(TrainSettings, config, leave_out=(*_TURNED_INTO_STEPS, *own)),
                prompts=msgspec.convert(config.get("prompts", ()), tuple[str, ...]),
                init_scale=float(config.get("init_scale", 1.0)),
                recipe=recipe,
                options=_read_fields(kind.options_type, config) if kind.options_type is not None else None,
                loss_name=config.get("own_loss"),
                teacher=_read_fields(TeacherOptions, config) if "teacher" in config else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else mismatch(error)
            raise LinnetError(f"run.json does not describe a run that can be resumed: {reason}") from error

    def fingerprint(self) -> str:
        """A hash of everything that would make the continuation another run."""
        fixed = {name: v for name, v in {**self.model_fields(), **self.config_fields()}.items() if name not in FREE}
        if fixed.get("plain") is False:  # the usual case, which it was before there was a word for it
            del fixed["plain"]
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def settings_of(kind: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """The settings that the values of flags ask for; two that both say how long to train are refused."""
    budgets = [name for name in BUDGETS if values.get(name) is not None]
    if len(budgets) > 1:
        raise UsageError(f"`{budgets[0]}` and `{budgets[1]}` both say how long to train: give one of them")
    return fill(kind, {name: value for name, value in values.items() if name != "steps" or value is not None})


def teacher_flags() -> tuple[Flag, ...]:
    """The flags of a teacher. None of them has a default: whether they were given decides."""
    flags = flags_of(TeacherOptions)
    return tuple(replace(flag, type=flag.type | None, default=None) for flag in flags)


def teacher_of(values: Mapping[str, Any]) -> TeacherOptions | None:
    """The teacher that the values of flags ask for; what speaks of one where there is none is refused."""
    names = [flag.name for flag in teacher_flags()]
    fields = {name: values[name] for name in names if values.get(name) is not None}
    if fields and "teacher" not in fields:
        raise UsageError(f"`{next(iter(fields))}` says how to learn from a teacher: name one with `teacher`")
    return fill(TeacherOptions, fields) if fields else None


def settings_flags(kind: type[TrainSettings], leave_out: Iterable[str] = ()) -> tuple[Flag, ...]:
    """The flags of some settings. Steps have no default among them: whether they were given decides."""
    flags = flags_of(kind, leave_out)
    return tuple(replace(flag, default=None) if flag.name == "steps" else flag for flag in flags)


def weights_of_layers(model: AnyConfig) -> int:
    """Parameters of the blocks. A vocabulary is not counted: it may change while the text is read."""
    params = layout(model).params
    return sum(prod(p.shape) for name, p in params.items() if name.startswith("blocks.") and not p.optional)


def _data_type(kinds: tuple[type[Any], ...], config: Mapping[str, Any]) -> type[Any]:
    """The kind of data that a manifest holds: by the field that says where it comes from."""
    return next((kind for kind in kinds if fields(kind)[0].name in config), kinds[0])


def _read_data(kind: type[Any], config: Mapping[str, Any]) -> Any:
    """The data of a run; what older runs do not say was not there when they were made."""
    if kind is TextData:
        field = config.get("field")
        config = {"plain": None, **config, "field": [field] if isinstance(field, str) else field}
    return _read_fields(kind, config)


def _read_fields(kind: Any, values: Mapping[str, Any], leave_out: Iterable[str] = ()) -> Any:
    """A dataclass from what a manifest holds; a value of another type is a ValueError that names its field."""
    names = [field.name for field in fields(kind) if field.name in values and field.name not in leave_out]
    given = {name: values[name] for name in names}
    return msgspec.convert(given, kind)


def vocabulary_size(tokenizer: Any) -> int | None:
    """How many tokens a tokenizer object has; None where it is none."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    size = getattr(backend, "get_vocab_size", None)
    return None if size is None else int(size(with_added_tokens=True))
