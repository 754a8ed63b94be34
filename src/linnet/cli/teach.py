"""`linnet data teach`: what a teacher says of a corpus, kept for trainings with `--teacher`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.completion import complete_model
from linnet.cli.options import AsJson, RunsFolder
from linnet.cli.printing import paint, print_facts, print_json

if TYPE_CHECKING:
    from linnet.data.teacher_logits import TeacherLogits
    from linnet.recipes.teach import TeachPlan


def teach(
    corpus: str = "python",
    /,
    *,
    teacher: Annotated[str, Parameter(completer=complete_model)],
    ctx: int = 256,
    documents: bool = False,
    top_k: int = 64,
    temperature_distill: float = 1.0,
    held_out: float = 0.02,
    field: tuple[str, ...] = (),
    dedup: bool = False,
    dedup_threshold: float | None = None,
    plain: bool = False,
    cache: Path | None = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Let a teacher pass once through a corpus and keep what it says: no training with it has to run it again.

    A training finds it by itself that has the same tokens, --ctx, --documents, --temperature-distill and --teacher.
    Broken off, the same command goes on where it was.

    Args:
        corpus: A file, a folder, a pattern, a URL (s3://bucket/texts), or `python`: the standard library of this
            interpreter.
        teacher: The MODEL; its tokenizer cuts the corpus.
        ctx: Tokens of a sequence, as in the training.
        documents: Keep documents from seeing each other, as in the training.
        top_k: So many of the likeliest tokens are kept of each place, with the probability of all others together.
        temperature_distill: The temperature of the probabilities that are kept.
        held_out: The share of documents kept from training, for evaluation: the teacher is not asked about them.
        field: Where the text is in JSONL, CSV and Parquet: text, a name, or '*.csv=name' for some files, several times.
        dedup: Drop documents that are equal, or nearly, to an earlier one.
        dedup_threshold: What --dedup takes for nearly equal: the share of common runs of five words (0.8); 1: equal.
        plain: Read HTML, CSV, notebooks and other documents as the text they are written in.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from linnet.models.model_name import model_path
    from linnet.recipes.teach import TeachPlan
    from linnet.recipes.teach import teach as make_teacher_logits

    plan = TeachPlan.of(
        corpus, model_path(teacher, runs), ctx=ctx, documents=documents, top=top_k, temperature=temperature_distill,
        held_out=held_out, field=field, dedup=dedup, dedup_threshold=dedup_threshold, plain=plain, cache=cache,
    )  # fmt: skip
    was_there, began = plan.known is not None, time.monotonic()
    if not json:
        _announce(plan)
    with _progress() as progress:
        cached = make_teacher_logits(plan, device, progress)
    seconds = time.monotonic() - began
    if json:
        print_json(_as_json(plan, cached, made=not was_there))
    else:
        when = "made before, unchanged" if was_there else f"made in {words.duration(seconds)}"
        print_facts({"cache": f"{words.shown_path(cached.path)} ({words.size(plan.header.size)})", "": when})
    return 0


def _announce(plan: TeachPlan) -> None:
    """What it will take, before it begins."""
    header = plan.header
    print(f"{paint(words.plain(plan.prepared.record.corpus), 'bold')}  taught by {words.plain(plan.name)}")
    apart = ", documents apart" if header.documents else ""
    print_facts(
        {
            "tokens": f"{header.rows:,} in windows of {header.ctx:,}{apart}",
            "kept": f"the {header.top} likeliest of {header.vocab:,}, and all others as one, at temperature"
            f" {header.temperature:g}",
            "size": f"{words.size(header.size)}, {header.dtype.itemsize} bytes a token",
        }
    )


def _as_json(plan: TeachPlan, cached: TeacherLogits, made: bool) -> dict[str, object]:
    header = plan.header
    return {
        "corpus": plan.prepared.record.corpus,
        "teacher": plan.name,
        "teacher_sha256": header.key.teacher,
        "path": str(cached.path),
        "made": made,
        "size": header.size,
        "tokens": header.rows,
        "ctx": header.ctx,
        "documents": header.documents,
        "top_k": header.top,
        "temperature_distill": header.temperature,
        "fingerprint": cached.fingerprint,
    }


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("tokens"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("tokens", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
