"""`teach`: a teacher passes once through a corpus, and its logits are kept (data/teacher_logits.py) for trainings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.board.words import bounded, size
from linnet.data import Prepared, prepare
from linnet.data.cache import cache_folder
from linnet.data.errors import DataError
from linnet.data.teacher_logits import (
    TeacherLogits,
    TeacherLogitsHeader,
    TeacherLogitsKey,
    TeacherLogitsWriter,
    find_teacher_logits,
)
from linnet.errors import UsageError
from linnet.recipes.job import TeacherOptions
from linnet.recipes.teacher import TeacherFile

if TYPE_CHECKING:
    from linnet.data.request import PrepareOptions
    from linnet.train.distillation import LiveTeacher
    from linnet.train.hardware import Hardware

DEFAULT_TOP, DEFAULT_CTX = 64, 256
_AT_ONCE = {"cpu": 2048, "cuda": 8192}  # tokens that pass through the teacher together

TeachProgress = Callable[[int, int], None]  # tokens done, tokens in all


@dataclass(frozen=True)
class TeachPlan:
    """What is to be made: of which tokens, how large, and where it lies then."""

    prepared: Prepared
    file: TeacherFile
    header: TeacherLogitsHeader
    path: Path

    @property
    def known(self) -> TeacherLogits | None:
        """The cache, where it is there and sound."""
        if not self.path.is_file():
            return None
        try:
            cached = TeacherLogits(self.path)
            cached.require_intact(self.path.parent.parent)
        except DataError:
            return None  # it is made anew
        return cached

    @property
    def name(self) -> str:
        """What the teacher is called."""
        return bounded(self.file.name)

    @classmethod
    def of(
        cls,
        corpus: str | os.PathLike[str],
        teacher: str | os.PathLike[str],
        *,
        ctx: int = DEFAULT_CTX,
        documents: bool = False,
        top: int = DEFAULT_TOP,
        temperature: float = 1.0,
        **options: Any,
    ) -> TeachPlan:
        """Prepare the corpus in the teacher's tokens, or open it; `options`: those of `linnet.data.prepare`."""
        TeacherOptions(os.fspath(teacher), temperature_distill=temperature)
        file = TeacherFile(teacher)
        file.require_ctx(ctx)
        if not 1 <= top < len(file.tokens):
            raise UsageError(
                f"`top_k` must be from 1 to below the {len(file.tokens):,} tokens of the teacher, found {top}"
            )
        if ctx < 1:
            raise UsageError(f"`ctx` must be 1 or more, found {ctx}")
        words: PrepareOptions = {"tokenizer": teacher, **options}  # type: ignore[typeddict-item]
        prepared = prepare(corpus, **words)
        if prepared.rows != "text":
            raise DataError(
                f"corpus {corpus} holds {prepared.rows}, and what a teacher says is kept of text alone: let it run"
                " beside the training (`teacher`)"
            )
        blocks = -(-(len(prepared.train) - 1) // ctx)
        if len(prepared.train) <= ctx:
            raise DataError(
                f"the corpus is too small: {len(prepared.train):,} tokens to train on, but one context of {ctx} needs"
                f" {ctx + 1:,}; take more text or a smaller `ctx`"
            )
        key = TeacherLogitsKey(prepared.train.fingerprint, file.sha256(), ctx, documents, float(temperature))
        header = TeacherLogitsHeader.of(key, top, prepared.vocab, blocks)
        return cls(prepared, file, header, key.path(cache_folder(options.get("cache")), top))


def teach(plan: TeachPlan, device: str = "auto", progress: TeachProgress = lambda *_: None) -> TeacherLogits:
    """Let the teacher speak of every token, or of those that an earlier start has left."""
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings

    if (known := plan.known) is not None:
        return known
    header = plan.header
    hardware = choose(TrainSettings(device=device), tokens=header.part)
    plan.file.require_memory(hardware)
    with TeacherLogitsWriter(plan.path, header) as writer:
        missing = header.size - writer.done * header.dtype.itemsize
        if (free := shutil.disk_usage(plan.path.parent).free) < missing:
            raise DataError(
                f"the cache of this teacher takes {size(missing)}, and {plan.path.parent} has {size(free)} left: lower"
                " `top_k`, or choose another place with `cache`"
            )
        progress(writer.done, header.rows)
        if writer.done < header.rows:
            _write_logits(plan, writer, plan.file.loaded(hardware, header.vocab), hardware, progress)
        writer.finish()
    cached = find_teacher_logits(plan.path.parent.parent, header.key, header.top)
    assert cached is not None
    return cached


def _write_logits(
    plan: TeachPlan, writer: TeacherLogitsWriter, teacher: LiveTeacher, hardware: Hardware, progress: TeachProgress
) -> None:
    """Write part by part what the teacher says."""
    import numpy as np

    from linnet.data import windows
    from linnet.kernels import eager

    header = plan.header
    ctx, blocks_of_part = header.ctx, header.part // header.ctx
    at_once = min(blocks_of_part, max(1, _AT_ONCE.get(hardware.device.type, 2048) // ctx))
    while blocks_of_part % at_once:
        at_once -= 1
    batches = windows(
        plan.prepared.train, ctx, at_once, documents=header.documents, device=hardware.device, first=writer.done // ctx
    )
    ids, log_p = [], []
    for batch in batches:
        top = teacher.top(batch.ids_BT, batch.documents_BT, eager, header.top, header.temperature)
        ids.append(top.ids_NK.cpu().numpy())
        log_p.append(top.log_p_NK1.half().cpu().numpy())
        end = min(header.part, header.rows - writer.done)
        if sum(map(len, ids)) >= end:
            writer.add(np.concatenate(ids)[:end], np.concatenate(log_p)[:end])
            ids, log_p = [], []
            progress(writer.done, header.rows)
