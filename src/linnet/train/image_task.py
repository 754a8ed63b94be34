"""Images as a task: classes to tell, held-out images to score, pictures of what went wrong."""

from __future__ import annotations

import logging
from typing import Protocol

from torch import Tensor

from linnet.data.image_batches import ImageBatches
from linnet.data.images import Images
from linnet.models import ViT
from linnet.runs import Session
from linnet.train.image_evaluation import ImageEvaluation, evaluate_images
from linnet.train.image_report import CONFUSION, WRONG, draw_confusion, draw_wrong
from linnet.train.settings import TrainSettings
from linnet.train.step import StepResult
from linnet.train.task import Held

_LEAST = 1024  # held-out images that tell something

log = logging.getLogger("linnet")


class ImageRecipe(Protocol):
    """A recipe whose model tells the class of an image."""

    @property
    def model(self) -> ViT:
        """The model that is evaluated and kept."""

    def step(self, images: Tensor, labels: Tensor, lr: float, *, is_first: bool = False) -> StepResult:
        """One training step."""


class ImageTask:
    """A recipe that learns from images with classes."""

    unit = "images"
    tokenizer = None
    step_metrics = ("loss", "accuracy")
    held_out_metrics = ("loss", "accuracy", "top5")

    def __init__(
        self,
        recipe: ImageRecipe,
        images: Images,
        batches: ImageBatches,
        settings: TrainSettings,
        eval_images: int | None = None,
    ) -> None:
        self._recipe, self._images, self._batches, self._settings = recipe, images, batches, settings
        self._eval_images = eval_images
        self._step = 0
        self.per_step = batches.batch
        self.flops = recipe.model.flops_per_image() * self.per_step

    @property
    def to_lower(self) -> str:
        """The flags that save memory."""
        return f"--batch (now {self._settings.batch})"

    def step(self, index: int, lr: float) -> StepResult:
        """Train on the batch of a step, counted from 0."""
        batch = self._batches.at(index)
        self._step = index + 1
        return self._recipe.step(batch.images_BCHW, batch.targets, lr, is_first=index == 0)

    def evaluate(self) -> ImageEvaluation:
        """Score held-out images: at the end all of them, before that so many that it costs about 2 % of the run."""
        most = self._eval_images
        if most is None and self._step < self._settings.steps:
            most = max(_LEAST, round(0.005 * self._settings.steps * self.per_step))
        return evaluate_images(self._recipe.model, self._images.held_out, most=most)

    def report(self, run: Session, step: int, found: Held, last: bool) -> None:
        """One `eval` event, and the pictures, which always show the latest evaluation."""
        assert isinstance(found, ImageEvaluation)
        labels = self._images.labels
        run.eval(step, "validation", samples=found.samples, per_class=found.per_class(labels), **found.figures)
        try:
            folder = run.artifacts_dir
            draw_confusion(folder / CONFUSION, found, labels)
            draw_wrong(folder / WRONG, found, self._images.held_out, labels)
        except OSError as error:
            log.warning("run %s: no pictures were drawn: %s", run.run_id, error)
            return
        for name in (CONFUSION, WRONG):
            run.artifact(folder / name, step=step)

    def samples(self) -> tuple[tuple[str, str], ...]:
        """A classifier writes nothing."""
        return ()
