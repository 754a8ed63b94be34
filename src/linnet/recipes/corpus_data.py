"""A corpus as the data of a run: read once, and then texts, conversations or pairs, by what its rows are."""

from __future__ import annotations

from pathlib import Path

from linnet.data.prepared import prepare_whole
from linnet.data.request import PrepareOptions, Request
from linnet.data.rows import ROW_READERS
from linnet.errors import UsageError
from linnet.gguf.chat_families import AUTO
from linnet.recipes.conversation_data import ConversationRunData
from linnet.recipes.job import Job, PrepareProgress, TextData
from linnet.recipes.preference_data import PreferenceRunData, check_pairs
from linnet.recipes.token_data import TextRunData
from linnet.train.hardware import Hardware


def read_corpus(
    job: Job, hardware: Hardware, progress: PrepareProgress | None = None, tokenizer: Path | None = None
) -> TextRunData | ConversationRunData | PreferenceRunData:
    """Prepare the corpus of a job, or open it where that was done before.

    `tokenizer` stands for the file that the job names: a checkpoint has a copy of it, and the file may be gone.
    """
    data = job.data
    assert isinstance(data, TextData)
    vocab = job.model.vocab  # type: ignore[union-attr]
    options: PrepareOptions = {
        "vocab": None if data.tokenizer else vocab,
        "tokenizer": (tokenizer or job.tokenizer_source) if data.tokenizer else None,
        "pre": data.pre or "gpt-2",
        "held_out": data.held_out,
        "field": data.field or (),
        "dedup": bool(data.dedup),
        "dedup_threshold": data.dedup_threshold,
        "plain": data.plain,
        "cache": data.cache,
        "progress": progress,
        "rows": data.rows,
        "chat_format": data.chat_format or AUTO,
    }
    request = Request.of(data.corpus, options)
    has_rows = any(file.kind in ROW_READERS for file in request.source.files)
    if job.learns_preferences and data.rows is None and request.source.rows == "text" and has_rows:
        request = Request.of(data.corpus, {**options, "rows": "preferences"})  # whose reading says what is wrong
    check_pairs(job, request.source.rows, hardware.ranks.count)
    prepared = prepare_whole(request)
    if prepared.rows == "preferences":
        return PreferenceRunData(job, hardware, prepared)
    if prepared.is_chat:
        return ConversationRunData(job, hardware, prepared)
    for name in ("chat_format", "train_on"):
        if getattr(data, name) is not None:
            raise UsageError(
                f"`{name}` is for conversations, and corpus {data.corpus} is text: leave it out, or see `rows`"
            )
    return TextRunData(job, hardware, prepared)
