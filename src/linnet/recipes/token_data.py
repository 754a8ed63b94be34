"""Token ids as the data of a run, and the text of a corpus as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from linnet.architectures import ViTConfig
from linnet.data import Batch, Batches, DataError, Prepared, windows
from linnet.data.batches import send
from linnet.data.cache import cache_folder, teacher_logits_folder
from linnet.data.teacher_logits import TeacherLogits, TeacherLogitsKey, find_teacher_logits, other_windows
from linnet.kernels import drop_decode_weights
from linnet.models import LanguageModel
from linnet.recipes.job import Job, TextData
from linnet.recipes.teacher import TeacherFile
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.overfitting import ENOUGH_TOKENS
from linnet.train.protocols import EvalResult
from linnet.train.ranks import ALONE
from linnet.train.settings import TrainSettings
from linnet.train.text import Evaluation, evaluate, write_sample

if TYPE_CHECKING:
    from tokenizers import Tokenizer


PROBE_TOKENS = 256  # tokens, at most, by whose activations similarity is measured


class TokenRunData:
    """What a corpus and rows share. `job` is the one that was given, with the vocabulary of their tokenizer."""

    unit = "tokens"
    loss_may_rise = False
    job: Job
    _sampler: Tokenizer | None

    def __init__(self, job: Job, hardware: Hardware) -> None:
        assert not isinstance(job.model, ViTConfig)
        self._model, self.settings, self._device = job.model, job.settings, hardware.device
        self.ctx, self._ranks = job.ctx, hardware.ranks
        self.rows_per_step = job.settings.batch * job.settings.accumulate(self.ctx)
        # Each rank scores some of the batches; where weights are gathered for every pass, all of them together.
        self._scorers = ALONE if hardware.shards_weights else hardware.ranks
        self._share = self._ranks.share(self.rows_per_step, f"`batch_tokens={self.rows_per_step * self.ctx}`")
        self.per_step = self.rows_per_step * self.ctx

    @property
    def step_metrics(self) -> tuple[str, ...]:
        """What a step gives."""
        return ("loss",) if self.job.teacher is None else ("loss", "distill_loss")

    @property
    def memory_settings(self) -> str:
        """The settings that save memory."""
        return f"`batch` (now {self.settings.batch}) or `ctx` (now {self.ctx})"

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""
        assert isinstance(model, LanguageModel)
        teacher = self.job.teacher
        by_teacher = 0.0
        if teacher is not None and teacher.teacher_cache is None:  # it runs, forwards
            by_teacher = TeacherFile(teacher.teacher).flops_per_token(self.ctx)
        return (model.flops_per_token(self.ctx) + by_teacher) * self.per_step

    def samples(self, model: nn.Module) -> Iterator[tuple[str, str]]:
        """Each prompt with what the model writes after it; nothing without a tokenizer."""
        assert isinstance(model, LanguageModel)
        if self._sampler is not None:
            for prompt in self.job.prompts:
                yield prompt, self._written_after(prompt, model, self._sampler)
            drop_decode_weights(model)

    def _written_after(self, prompt: str, model: LanguageModel, tokenizer: Tokenizer) -> str:
        """What the model writes after a prompt."""
        return write_sample(model, tokenizer, prompt, self.settings.sample_tokens)


class TextRunData(TokenRunData):
    """The tokens of a corpus, cut into batches."""

    _teacher_logits: TeacherLogits | None = None  # what the teacher said, where it need not run

    def __init__(self, job: Job, hardware: Hardware, prepared: Prepared) -> None:
        super().__init__(job, hardware)
        data, self._prepared = job.data, prepared
        assert isinstance(data, TextData)
        self.per_epoch = len(self._prepared.train)
        self.settings = self.settings.in_steps(self.per_step, self.per_epoch)
        self.job = replace(job, model=replace(self._model, vocab=self._prepared.vocab), settings=self.settings)
        self.description = f"corpus {data.corpus!r}"
        self.fingerprint = self._prepared.fingerprint
        self.remarks: tuple[str, ...] = (
            *self._prepared.remarks,
            *too_few_held_out(len(self._prepared.held_out) - 1, data.held_out, self.settings),
        )
        self.left_out = (*self._prepared.left_out, *self._prepared.dropped)
        self.tokenizer = self._prepared.tokenizer_keys
        self._sampler = self._prepared.tokenizer
        self._batches = Batches(
            self._prepared.train,
            ctx=self.ctx,
            batch=self.rows_per_step,
            seed=self.settings.seed,
            documents=data.documents,
        ).to(hardware.device)

    def use_cache(self, *, begun: bool = False) -> None:
        """Let batches bring what the job's teacher said, where a cache has it (`linnet data teach`).

        A run that has `begun` goes on as it began: with the very cache, or with the teacher itself.
        """
        teacher, data = self.job.teacher, self.job.data
        assert teacher is not None and teacher.teacher_sha256 is not None and isinstance(data, TextData)
        if teacher.top_k_distill == 0 or (begun and teacher.teacher_cache is None):
            return
        root, tokens = cache_folder(data.cache), self._prepared.train.fingerprint
        key = TeacherLogitsKey(tokens, teacher.teacher_sha256, self.ctx, data.documents, teacher.temperature_distill)
        cached = find_teacher_logits(root, key, teacher.top_k_distill)
        if begun and (cached is None or cached.fingerprint != teacher.teacher_cache):
            raise DataError(
                f"the run began with what its teacher {teacher.teacher_name} had said, and there is no such cache any"
                f" more in {teacher_logits_folder(root)}: put it back, or make it again (linnet data teach)"
            )
        if cached is None:
            self.remarks = (*self.remarks, *other_windows(root, key))
            return
        cached.require_intact(root)
        self._teacher_logits = cached
        teacher = replace(teacher, teacher_cache=cached.fingerprint, top_k_distill=cached.top)
        self.job = replace(self.job, teacher=teacher)

    @property
    def vocabulary(self) -> Mapping[str, object] | None:
        """The keys of its tokenizer; None for a pack prepared without one."""
        return self._prepared.vocabulary.metadata if self._prepared.vocabulary is not None else None

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no text is held out."""
        if len(self._prepared.held_out) < 2:
            return ()
        return ("loss", "ppl", "bits_per_byte") if self._prepared.bytes_per_token else ("loss", "ppl")

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0."""
        batch = self._batches.at(index, self._ranks.rank, self._ranks.count)
        if self._teacher_logits is not None:
            numbers = self._batches.block_numbers(index, self._ranks.rank, self._ranks.count)
            teacher_blocks = self._teacher_logits.blocks(numbers)
            batch = replace(batch, teacher_top=tuple(send(array, self._device) for array in teacher_blocks))
        return batch if self._ranks.alone else replace(batch, n_targets=self._batches.n_targets(index))

    def scored(self, step: int) -> int:
        """The first of the held-out tokens."""
        return max(0, min(self.settings.tokens_to_score(self.per_step), len(self._prepared.held_out) - 1))

    def evaluate(self, model: nn.Module, step: int) -> Evaluation | None:
        """Score the first of the held-out tokens."""
        assert isinstance(model, LanguageModel)
        if not self.held_out_metrics:
            return None
        return evaluate(
            model,
            self._prepared.held_out,
            ctx=self.ctx,
            device=self._device,
            most=self.settings.tokens_to_score(self.per_step),
            bytes_per_token=self._prepared.bytes_per_token,
            ranks=self._scorers,
        )

    def probe(self) -> torch.Tensor | None:
        """The first of the held-out tokens."""
        if not self.held_out_metrics:
            return None
        return next(windows(self._prepared.held_out, min(self.ctx, PROBE_TOKENS), 1, device=self._device)).ids_BT

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event."""
        assert isinstance(result, Evaluation)
        extra = {"bits_per_byte": result.bits_per_byte}
        run.eval(step, "validation", loss=result.loss, ppl=result.ppl, samples=result.tokens, extra=extra)


def too_few_held_out(tokens: int, share: float, settings: TrainSettings) -> list[str]:
    """A remark where what is kept apart is so short that its loss says little."""
    if not 0 < tokens < ENOUGH_TOKENS or not settings.interval("eval"):
        return []
    cure = f"`held_out={max(0.1, 2 * share):g}`" if share < 0.25 else "a longer text"
    return [f"only {tokens:,} tokens are held out, and their loss says little: {cure} keeps more of them"]
