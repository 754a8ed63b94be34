"""Text as a task: next tokens to predict, held-out documents to score, prompts to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from linnet.data import Batches, Prepared
from linnet.models import LanguageModel
from linnet.runs import Session
from linnet.train.evaluation import Evaluation, evaluate
from linnet.train.sampling import write_sample
from linnet.train.settings import TrainSettings
from linnet.train.step import Batch, StepResult
from linnet.train.task import Held


class TextRecipe(Protocol):
    """A recipe whose model predicts the next token."""

    @property
    def model(self) -> LanguageModel:
        """The model being trained."""

    def step(self, batch: Batch, lr: float) -> StepResult:
        """One training step."""


class TextTask:
    """A recipe that learns from a prepared corpus."""

    unit = "tokens"
    step_metrics = ("loss",)

    def __init__(
        self,
        recipe: TextRecipe,
        prepared: Prepared,
        batches: Batches,
        settings: TrainSettings,
        device: torch.device,
        prompts: tuple[str, ...] = (),
    ) -> None:
        self._recipe, self._prepared, self._batches = recipe, prepared, batches
        self._settings, self._device, self._prompts = settings, device, prompts
        self.tokenizer = prepared.tokenizer_keys
        self.per_step = batches.batch * batches.ctx
        self.flops = recipe.model.flops_per_token(batches.ctx) * self.per_step

    @property
    def to_lower(self) -> str:
        """The flags that save memory."""
        return f"--batch (now {self._settings.batch}) or --ctx (now {self._batches.ctx})"

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no text is held out."""
        if len(self._prepared.held_out) < 2:
            return ()
        return ("loss", "ppl", "bits_per_byte") if self._prepared.bytes_per_token else ("loss", "ppl")

    def step(self, index: int, lr: float) -> StepResult:
        """Train on the batch of a step, counted from 0."""
        return self._recipe.step(self._batches.at(index), lr)

    def evaluate(self) -> Evaluation | None:
        """Score the first of the held-out tokens."""
        if not self.held_out_metrics:
            return None
        return evaluate(
            self._recipe.model,
            self._prepared.held_out,
            ctx=self._batches.ctx,
            device=self._device,
            most=self._settings.tokens_to_score(self.per_step),
            bytes_per_token=self._prepared.bytes_per_token,
        )

    def report(self, run: Session, step: int, found: Held, last: bool) -> None:
        """One `eval` event."""
        assert isinstance(found, Evaluation)
        extra = {"bits_per_byte": found.bits_per_byte}
        run.eval(step, "validation", loss=found.loss, ppl=found.ppl, samples=found.tokens, extra=extra)

    def samples(self) -> Iterator[tuple[str, str]]:
        """Each prompt with what the model writes after it."""
        tokenizer = self._prepared.tokenizer
        for prompt in self._prompts if tokenizer is not None else ():
            assert tokenizer is not None
            yield prompt, write_sample(self._recipe.model, tokenizer, prompt, self._settings.sample_tokens)
