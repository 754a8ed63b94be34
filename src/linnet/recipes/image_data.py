"""Images as the data of a run: classes to tell, held-out images to score, pictures of what went wrong."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from linnet.data.errors import left_out_sentence
from linnet.data.flips import flip_keeps_class
from linnet.data.image_batches import ImageBatch, ImageBatches
from linnet.data.images import Images, load_images
from linnet.models import ViT, ViTConfig
from linnet.recipes.image_rules import RULED, ImageFacts, decide
from linnet.recipes.job import ImageData, Job, PrepareProgress
from linnet.recipes.vit_tiny import VitOptions
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.images import CONFUSION, WRONG, ImageEvaluation, draw_confusion, draw_wrong, evaluate_images
from linnet.train.protocols import EvalResult
from linnet.train.settings import TrainSettings

_PROBE = 64  # images, at most, by whose activations similarity is measured
_LEAST = 1024  # held-out images that tell something

log = logging.getLogger("linnet")


def _decided(
    images: Images, settings: TrainSettings, options: VitOptions, hardware: Hardware
) -> tuple[TrainSettings, VitOptions, str]:
    """Settings and variations with what was left to the images, and a line that says what that was."""
    open_names = options.by_rule or ()
    facts = ImageFacts(len(images.train), images.size, images.channels, flip_keeps_class(images.train))
    steps = None if "steps" in open_names else settings.steps
    batch = settings.batch_images or settings.batch
    values = decide(facts, batch, steps, on_gpu=hardware.device.type != "cpu")
    chosen = {name: values[name] for name in RULED if name in open_names}
    of_settings = {name: value for name, value in chosen.items() if name in ("steps", "lr")}
    of_options = {name: value for name, value in chosen.items() if name not in of_settings}
    used = [f"{name.replace('_', '-')} {value:g}" for name, value in chosen.items() if value]
    mirrored = ", never mirrored" if "flip" in chosen and not chosen["flip"] else ""
    line = f"by rule for {facts}: {', '.join(used)}{mirrored}"
    return replace(settings, **of_settings), replace(options, by_rule=None, **of_options), line


class ImageRunData:
    """Images with classes. `job` is the one that was given, with their shape and the names of the classes."""

    unit = "images"
    tokenizer = None
    vocabulary = None
    step_metrics = ("loss", "accuracy")
    loss_may_rise = False
    held_out_metrics = ("loss", "accuracy", "top5")

    def __init__(
        self, job: Job, hardware: Hardware, progress: PrepareProgress | None = None, tokenizer: Path | None = None
    ) -> None:
        model, data, settings, options = job.model, job.data, job.settings, job.options
        assert isinstance(model, ViTConfig) and isinstance(data, ImageData) and isinstance(options, VitOptions)
        images = load_images(
            data.images,
            size=model.image_size,
            channels=data.channels,
            num_classes=data.num_classes,
            held_out=data.held_out,
            strict=data.strict,
            progress=progress,
        )
        mean, std = images.brightness()
        shape = replace(
            model,
            num_classes=len(images.labels),
            num_channels=images.channels,
            labels=images.labels,
            image_mean=mean,
            image_std=std,
        )
        self.per_step = self.rows_per_step = settings.batch_images or settings.batch
        self.per_epoch = len(images.train)
        self._ranks = hardware.ranks
        self._share = self._ranks.share(self.per_step, f"a batch of {self.per_step} images")
        self.settings = settings.in_steps(self.per_step, self.per_epoch)
        rule = None
        if options.by_rule is not None:
            self.settings, options, rule = _decided(images, self.settings, options, hardware)
        self.job = replace(job, model=shape, settings=self.settings, options=options)
        self._images, self._options, self._device = images, options, hardware.device
        self.description = f"set of images {images.source!r}"
        self.fingerprint = images.fingerprint
        self.left_out: tuple[str, ...] = images.skipped
        self.remarks: tuple[str, ...] = (left_out_sentence(images.skipped),) if images.skipped else ()
        self.remarks += () if rule is None else (rule,)
        self._batches = ImageBatches(
            images.train,
            batch=self.per_step,
            classes=len(images.labels),
            seed=settings.seed,
            how=options,
            device=hardware.device,
            dtype=hardware.dtype,
            compile=hardware.compile,
        )

    @property
    def memory_settings(self) -> str:
        """The settings that save memory."""
        return f"`batch` (now {self.settings.batch})"

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""
        assert isinstance(model, ViT)
        return model.flops_per_image() * self.per_step

    def batch(self, index: int) -> ImageBatch:
        """The batch of a step, counted from 0."""
        batch = self._batches.at(index)  # whole: an image may be mixed with another one
        return batch if self._ranks.alone else batch.rows(self._share)

    def scored(self, step: int) -> int:
        """Held-out images: at the end all of them, before that so many that it costs about 2 % of the run."""
        if self._options.eval_images is None and step >= self.settings.steps:
            return len(self._images.held_out)
        return self._part

    @property
    def _part(self) -> int:
        """Held-out images that are scored every time."""
        most = self._options.eval_images
        if most is None:
            most = max(_LEAST, round(0.005 * self.settings.own_steps * self.per_step))
        return min(most, len(self._images.held_out))

    def evaluate(self, model: nn.Module, step: int) -> ImageEvaluation:
        """Score held-out images."""
        assert isinstance(model, ViT)
        result = evaluate_images(model, self._images.held_out, most=self.scored(step))
        if result.samples == self._part:
            return result
        return replace(result, part_loss=evaluate_images(model, self._images.held_out, most=self._part).loss)

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event, and the pictures, which always show the latest evaluation."""
        assert isinstance(result, ImageEvaluation)
        labels = self._images.labels
        by_class = {"per_class": result.per_class(labels), "confusion": result.confusion(labels)}
        run.eval(step, "validation", samples=result.samples, **by_class, **result.figures)
        try:
            folder = run.artifacts_dir
            draw_confusion(folder / CONFUSION, result, labels)
            draw_wrong(folder / WRONG, result, self._images.held_out, labels)
        except OSError as error:
            log.warning("run %s: no pictures were drawn: %s", run.run_id, error)
            return
        for name in (CONFUSION, WRONG):
            run.artifact(folder / name, step=step)

    def probe(self) -> Tensor:
        """Some of the held-out images, evenly spaced: a set may be sorted by class."""
        images_NCHW = self._images.held_out.images_NCHW
        return torch.from_numpy(images_NCHW[:: max(1, len(images_NCHW) // _PROBE)][:_PROBE]).to(self._device)

    def samples(self, model: nn.Module) -> tuple[tuple[str, str], ...]:
        """A classifier writes nothing."""
        return ()
