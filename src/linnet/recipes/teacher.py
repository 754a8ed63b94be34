"""`TeacherFile`: a GGUF that a student learns from, checked before anything is made: kind, tokenizer, context, memory.

What is wrong with one is said in a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from linnet.board.words import bounded, size
from linnet.data.cache import cache_folder, teacher_logits_folder
from linnet.errors import UsageError
from linnet.recipes.job import Job, TeacherOptions, TextData
from linnet.recipes.text_model_file import TOKENS, TextModelFile

if TYPE_CHECKING:
    from linnet.recipes.training import JobData
    from linnet.train.distillation import LiveTeacher
    from linnet.train.hardware import Hardware


class TeacherFile(TextModelFile):
    """The file of a teacher: of a text model, with a tokenizer, quantised or not."""

    role = "teacher"

    def flops_per_token(self, ctx: int) -> float:
        """Of its forward pass: a third of what `LanguageModel.flops_per_token` counts."""
        config = self.config
        table = 0 if config.tied else config.vocab * config.d_model  # is only read, where the head is another matrix
        return 2.0 * (sum(self.sizes) - table) + 4.0 * config.n_layers * config.n_heads * config.head_size * ctx

    def require_ctx(self, ctx: int) -> None:
        """Refuse a student that looks back further than its teacher can."""
        if self.config.ctx < ctx:
            raise UsageError(
                f"the teacher {self.path} sees {self.config.ctx:,} tokens and the model {ctx:,}: choose"
                f" `ctx={self.config.ctx}` or less"
            )

    def require_same_tokens(self, vocabulary: Mapping[str, object] | None, whose: str, advice: str) -> None:
        """Refuse a student with another tokenizer. `whose`: the model's, in words; `advice`: what to do."""
        other: Any = None if vocabulary is None else vocabulary.get(TOKENS)
        if other is None or tuple(other) == self.tokens:
            return
        raise UsageError(
            f"the teacher {self.path} has another tokenizer ({len(self.tokens):,} tokens) than {whose}"
            f" ({len(other):,}), and knows its own alone: {advice}"
        )

    def require_memory(self, hardware: Hardware) -> None:
        """Refuse a teacher that does not fit into the memory that is free, before it is read."""
        from linnet.train.memory import free_memory

        matrices, vectors = self.sizes
        needed, free = matrices * hardware.dtype.itemsize + 4 * vectors, free_memory(hardware.device)
        if free is not None and needed > free:
            dtype = str(hardware.dtype).removeprefix("torch.")
            raise UsageError(
                f"the teacher {self.path} takes {size(needed)} of memory in {dtype}, and {hardware.device.type} has"
                f" {size(free)} free: take a smaller one, or let one that fits a larger machine speak once"
                " (linnet data teach)"
            )

    def loaded(self, hardware: Hardware, vocab: int) -> LiveTeacher:
        """The teacher itself, on the device and in the precision of the run."""
        from linnet import models
        from linnet.train.distillation import LiveTeacher

        if self.config.vocab < vocab:
            raise UsageError(
                f"the teacher {self.path} has rows for {self.config.vocab:,} of its {vocab:,} tokens: it is damaged"
            )
        model = models.load(self.file, hardware.device, task="text", dtype=hardware.dtype)
        model.set_compute_dtype(hardware.dtype)
        return LiveTeacher(model, vocab)


def admitted(job: Job, hardware: Hardware, *, force: bool = False) -> Job:
    """The job with what its teacher is, once that is found to be a teacher for it; nothing is loaded yet.

    A run that goes on has the same one: another file under its name is an error, unless `force` says so.
    """
    options = job.teacher
    if options is None:
        return job
    if job.loss_name is not None:
        raise UsageError("`teacher` does not go with a loss of one's own, which has no place for it: leave one out")
    if options.teacher_cache is not None:
        return job  # a run that goes on, with what the teacher said before it began
    file = TeacherFile(options.teacher)
    file.require_ctx(job.ctx)
    if not _may_have_cache(job):  # else the teacher may not have to run: it is known when the tokens are
        file.require_memory(hardware)
    digest = file.sha256(options.teacher_sha256, force=force)
    if options.teacher_sha256 is not None:
        return job
    return replace(job, teacher=replace(options, teacher_name=bounded(file.name), teacher_sha256=digest))


def _may_have_cache(job: Job) -> bool:
    """Is there any cache of a teacher where the job's would be?"""
    if not isinstance(job.data, TextData) or job.teacher is None or job.teacher.top_k_distill == 0:
        return False
    return next(teacher_logits_folder(cache_folder(job.data.cache)).glob("*.taught"), None) is not None


def prepare_teacher(data: JobData, hardware: Hardware, *, begun: bool) -> None:
    """Once the data are read: the teacher's tokens must be theirs, and a cache may stand for it.

    `begun`: the run goes on from a checkpoint, with what it began with.
    """
    from linnet.recipes.token_data import TextRunData

    if data.job.teacher is None:
        return
    file = None if data.job.teacher.teacher_cache is not None else TeacherFile(data.job.teacher.teacher)
    if file is not None:
        advice = f"take its tokenizer, `tokenizer={data.job.teacher.teacher}`"
        file.require_same_tokens(data.vocabulary, "the data", advice)
    if isinstance(data, TextRunData):
        data.use_cache(begun=begun)
    if file is not None and data.job.teacher.teacher_cache is None:
        file.require_memory(hardware)


def teacher_remark(options: TeacherOptions, vocab: int) -> str:
    """What is learnt from whom, in a line."""
    top = options.top_k_distill or None
    scope = f"all {vocab:,} tokens" if top is None else f"its {top} likeliest tokens, the others as one"
    read = " out of a cache" if options.teacher_cache else ""
    return (
        f"teacher {options.teacher_name}: {options.distill:.0%} of the loss is its distribution over {scope}{read}, at"
        f" temperature {options.temperature_distill:g}"
    )
