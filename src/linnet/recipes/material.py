"""A job's data, ready to train on, and the task that a recipe makes of it: text or images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Protocol

from linnet.architectures import AnyConfig, ViTConfig, layout
from linnet.data import Batches, Prepared, prepare
from linnet.data.image_batches import ImageBatches
from linnet.data.images import Images
from linnet.data.left_out import left_out_sentence
from linnet.recipes.job import ImageData, Job, TextData
from linnet.recipes.options import VitOptions
from linnet.recipes.vit_tiny import read_images
from linnet.train.hardware import Hardware
from linnet.train.image_task import ImageTask
from linnet.train.task import Task
from linnet.train.text_task import TextTask

PrepareProgress = Callable[[str, int, int], None]


class Material(Protocol):
    """What was read, and the job with what was found out by reading it.

    - `prepared`: the data itself, for a recipe that looks at it; `what`: in words; `remarks`: what to tell its owner.
    """

    job: Job
    prepared: Any
    what: str
    remarks: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """A word that changes with the data."""

    def task(self, recipe: Any, hardware: Hardware) -> Task:
        """The recipe at work on it."""


def read(job: Job, preparing: PrepareProgress | None = None, tokenizer: Path | None = None) -> Material:
    """Read the data of a job.

    `tokenizer` stands for the file that the job names: a checkpoint has a copy of it, and the file may be gone.
    """
    if isinstance(job.data, ImageData):
        return ImageMaterial(job, preparing)
    return TextMaterial(job, preparing, tokenizer)


def tokens_at_once(job: Job) -> int:
    """Tokens, or patches of images, that pass through the model together."""
    return job.settings.batch * (job.model.tokens if isinstance(job.model, ViTConfig) else job.model.ctx)


def weights_of_layers(model: AnyConfig) -> int:
    """A vocabulary is not counted: it may change while the text is read."""
    params = layout(model).params
    return sum(prod(p.shape) for name, p in params.items() if name.startswith("blocks.") and not p.optional)


class TextMaterial:
    """The tokens of a corpus, cut into batches; the job has their vocabulary."""

    def __init__(self, job: Job, preparing: PrepareProgress | None, tokenizer: Path | None = None) -> None:
        data, model, settings = job.data, job.model, job.settings
        assert isinstance(data, TextData) and not isinstance(model, ViTConfig)
        self.prepared: Prepared = prepare(
            data.corpus,
            vocab=None if data.tokenizer else model.vocab,
            tokenizer=(tokenizer or Path(data.tokenizer)) if data.tokenizer else None,
            held_out=data.held_out,
            field=data.field or "text",
            cache=data.cache,
            progress=preparing,
        )
        self.job = replace(job, model=replace(model, vocab=self.prepared.vocab))
        self.what = f"corpus {data.corpus!r}"
        self.remarks: tuple[str, ...] = self.prepared.remarks
        rows = settings.batch * settings.accumulate(model.ctx)
        self._batches = Batches(
            self.prepared.train, ctx=model.ctx, batch=rows, seed=settings.seed, documents=data.documents
        )

    @property
    def fingerprint(self) -> str:
        """A word that changes with the tokens."""
        return self.prepared.fingerprint

    def task(self, recipe: Any, hardware: Hardware) -> TextTask:
        """A recipe that predicts the next token."""
        batches = self._batches.to(hardware.device)
        return TextTask(recipe, self.prepared, batches, self.job.settings, hardware.device, self.job.prompts)


class ImageMaterial:
    """Images with classes; the job has their shape and the names of the classes."""

    def __init__(self, job: Job, preparing: PrepareProgress | None) -> None:
        images, self.job = read_images(job, preparing)
        self.prepared: Images = images
        self.what = f"set of images {images.source!r}"
        self.remarks: tuple[str, ...] = (left_out_sentence(images.skipped),) if images.skipped else ()

    @property
    def fingerprint(self) -> str:
        """A word that changes with the images."""
        return self.prepared.fingerprint

    def task(self, recipe: Any, hardware: Hardware) -> ImageTask:
        """A recipe that tells classes."""
        settings, options = self.job.settings, self.job.options
        assert isinstance(options, VitOptions)
        batches = ImageBatches(
            self.prepared.train,
            batch=settings.batch,
            classes=len(self.prepared.labels),
            seed=settings.seed,
            how=options,
            device=hardware.device,
            dtype=hardware.dtype,
            compile=hardware.compile,
        )
        return ImageTask(recipe, self.prepared, batches, settings, options.eval_images)
