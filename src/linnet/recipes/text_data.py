"""A corpus as the data of a run: next tokens to predict, held-out documents to score, prompts to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torch import nn

from linnet.data import Batch, Batches, Prepared, prepare
from linnet.models import LanguageModel, ViTConfig
from linnet.recipes.job import Job, PrepareProgress, TextData
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.protocols import EvalResult
from linnet.train.text import Evaluation, evaluate, write_sample


class TextRunData:
    """The tokens of a corpus, cut into batches. `job` is the one that was given, with their vocabulary.

    `tokenizer` stands for the file that the job names: a checkpoint has a copy of it, and the file may be gone.
    """

    unit = "tokens"
    step_metrics = ("loss",)

    def __init__(
        self, job: Job, hardware: Hardware, progress: PrepareProgress | None = None, tokenizer: Path | None = None
    ) -> None:
        data, model, settings = job.data, job.model, job.settings
        assert isinstance(data, TextData) and not isinstance(model, ViTConfig)
        self._prepared: Prepared = prepare(
            data.corpus,
            vocab=None if data.tokenizer else model.vocab,
            tokenizer=(tokenizer or job.tokenizer_source) if data.tokenizer else None,
            held_out=data.held_out,
            field=data.field or "text",
            cache=data.cache,
            progress=progress,
        )
        self.job = replace(job, model=replace(model, vocab=self._prepared.vocab))
        self.description = f"corpus {data.corpus!r}"
        self.fingerprint = self._prepared.fingerprint
        self.remarks: tuple[str, ...] = self._prepared.remarks
        self.tokenizer = self._prepared.tokenizer_keys
        self._settings, self._device = settings, hardware.device
        rows = settings.batch * settings.accumulate(model.ctx)
        self._batches = Batches(
            self._prepared.train, ctx=model.ctx, batch=rows, seed=settings.seed, documents=data.documents
        ).to(hardware.device)
        self.per_step = rows * model.ctx

    @property
    def vocabulary(self) -> Mapping[str, object] | None:
        """The keys of its tokenizer; None for a pack prepared without one."""
        return self._prepared.vocabulary.metadata if self._prepared.vocabulary is not None else None

    @property
    def memory_settings(self) -> str:
        """The flags that save memory."""
        return f"`batch` (now {self._settings.batch}) or `ctx` (now {self._batches.ctx})"

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no text is held out."""
        if len(self._prepared.held_out) < 2:
            return ()
        return ("loss", "ppl", "bits_per_byte") if self._prepared.bytes_per_token else ("loss", "ppl")

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""
        assert isinstance(model, LanguageModel)
        return model.flops_per_token(self._batches.ctx) * self.per_step

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0."""
        return self._batches.at(index)

    def evaluate(self, model: nn.Module, step: int) -> Evaluation | None:
        """Score the first of the held-out tokens."""
        assert isinstance(model, LanguageModel)
        if not self.held_out_metrics:
            return None
        return evaluate(
            model,
            self._prepared.held_out,
            ctx=self._batches.ctx,
            device=self._device,
            most=self._settings.tokens_to_score(self.per_step),
            bytes_per_token=self._prepared.bytes_per_token,
        )

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event."""
        assert isinstance(result, Evaluation)
        extra = {"bits_per_byte": result.bits_per_byte}
        run.eval(step, "validation", loss=result.loss, ppl=result.ppl, samples=result.tokens, extra=extra)

    def samples(self, model: nn.Module) -> Iterator[tuple[str, str]]:
        """Each prompt with what the model writes after it."""
        assert isinstance(model, LanguageModel)
        tokenizer = self._prepared.tokenizer
        for prompt in self.job.prompts if tokenizer is not None else ():
            assert tokenizer is not None
            yield prompt, write_sample(model, tokenizer, prompt, self._settings.sample_tokens)
