"""`linnet data prepare`; `show` is in corpus.py, `list` and `rm` in cache.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder
from linnet.cli.printing import paint, print_facts, print_json, width, wrapped
from linnet.errors import UsageError
from linnet.gguf.chat_families import AUTO
from linnet.gguf.chat_format import ChatFormatName
from linnet.models.model_name import model_path

if TYPE_CHECKING:
    from linnet.data import Prepared, PreparedPart, TokenSet
    from linnet.data.request import PrepareOptions


def prepare(
    corpus: str = "python",
    /,
    *,
    vocab: int | None = None,
    tokenizer: str | None = None,
    pre: str = "gpt-2",
    held_out: float = 0.02,
    field: tuple[str, ...] = (),
    dedup: bool = False,
    dedup_threshold: float | None = None,
    plain: bool = False,
    rows: Literal["text", "conversations", "preferences"] | None = None,
    chat_format: ChatFormatName | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    seed: int = 0,
    part: str | None = None,
    join: Annotated[bool, Parameter(negative=())] = False,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Turn a corpus into tokens to train on, and keep them for the next time.

    Args:
        corpus: A file, a folder, a pattern, a URL (s3://bucket/texts), or `python`: the standard library of this
            interpreter.
        vocab: How many tokens the vocabulary trained on the corpus has; 4096 by default.
        tokenizer: The MODEL whose tokenizer is taken instead.
        pre: How words are cut before merging: gpt-2, smollm, llama-bpe or qwen2.
        held_out: The share of documents kept from training, for evaluation.
        field: Where the text is in JSONL, CSV and Parquet: text, a name, or '*.csv=name' for some files, several times.
        dedup: Drop documents that are equal, or nearly, to an earlier one.
        dedup_threshold: What --dedup takes for nearly equal: the share of common runs of five words (0.8); 1: equal.
        plain: Read HTML, CSV, notebooks and other documents as the text they are written in.
        rows: What rows of JSONL, CSV and Parquet are, text, conversations or preferences; else what the keys of the
            first say.
        chat_format: How conversations are written; by default as chats of the tokenizer.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        workers: Processes to encode with; by default as many as there are cores, fewer for little text.
        seed: Chooses which documents are held out.
        part: Prepare one of N parts, I/N from 1/N to N/N, each on any machine: 3/8 is the third of eight.
        join: Publish the parts, once all are there, as the set that one machine would have made.
    """
    from linnet.data import join_parts, prepare, prepare_part

    if part is not None and join:
        raise UsageError("--part makes a part and --join publishes them all: give one of them")
    started = time.monotonic()
    stages: list[str] = []
    with _progress(stages) as progress:
        options: PrepareOptions = {
            "vocab": vocab,
            "tokenizer": None if tokenizer is None else model_path(tokenizer, runs),
            "pre": pre,
            "held_out": held_out,
            "field": field,
            "dedup": dedup,
            "dedup_threshold": dedup_threshold,
            "plain": plain,
            "cache": cache,
            "workers": workers,
            "seed": seed,
            "progress": progress,
            "rows": rows,
            "chat_format": chat_format or AUTO,
        }
        if part is not None:
            prepared_part = prepare_part(corpus, part, **options)
        else:
            prepared = join_parts(corpus, **options) if join else prepare(corpus, **options)
    took = words.duration(time.monotonic() - started)
    if part is not None:
        _print_part(prepared_part, corpus, took, json)
    elif json:
        print_json(_as_json(prepared, is_new=bool(stages)))
    else:
        _print(prepared, f"joined in {took}" if join else f"made in {took}" if stages else "made before, unchanged")
    return 0


def _print_part(prepared: PreparedPart, corpus: str, took: str, json: bool) -> None:
    part = prepared.part
    if json:
        facts = {"corpus": corpus, "part": part.number, "parts": part.count, "made": prepared.made}
        print_json({**facts, "path": str(prepared.path), **_sets_as_json(prepared)})
        return
    when = f"made in {took}" if prepared.made else "made before, unchanged"
    print(f"{paint(words.plain(corpus), 'bold')}  part {part.number} of {part.count}  {when}")
    print_facts(
        {
            "train": _counts(prepared.train),
            "held out": _counts(prepared.held_out),
            "folder": f"{prepared.path} ({words.size(_size(prepared))})",
        }
    )
    print(f"  {wrapped('once all parts are there, the same command with --join publishes them', max(20, width() - 2))}")


def _print(prepared: Prepared, when: str) -> None:
    print(f"{paint(words.plain(prepared.record.corpus), 'bold')}  {when}")
    per_token = prepared.bytes_per_token
    noun = {"text": "document", "conversations": "conversation", "preferences": "pair"}[prepared.rows]
    print_facts(
        {
            "train": _counts(prepared.train, noun),
            "held out": _counts(prepared.held_out, noun),
            "vocabulary": f"{prepared.vocab:,} tokens"
            + (f", {per_token:.2f} bytes of text a token" if per_token is not None else ""),
            "encoding": f"with tokenizers alone: {prepared.record.encoding}" if prepared.record.encoding else "",
            "fingerprint": prepared.fingerprint,
            "folder": f"{prepared.path} ({words.size(_size(prepared))})",
        }
    )
    for remark in prepared.remarks:
        print(f"  {wrapped(words.flags(remark), max(20, width() - 2))}")


def _counts(tokens: TokenSet, noun: str = "document") -> str:
    documents = len(tokens.documents) - 1
    text = f" of {words.size(tokens.bytes)}" if tokens.bytes else ""
    return f"{len(tokens):,} tokens in {words.counted(documents, noun)}{text}"


def _size(prepared: Prepared | PreparedPart) -> int:
    return sum(file.stat().st_size for file in prepared.path.iterdir())


def _as_json(prepared: Prepared, is_new: bool) -> dict[str, object]:
    return {
        "corpus": prepared.record.corpus,
        "rows": prepared.rows,
        "path": str(prepared.path),
        "made": is_new,
        "size": _size(prepared),
        **_sets_as_json(prepared),
        "vocab": prepared.vocab,
        "bytes_per_token": prepared.bytes_per_token,
        "encoding": prepared.record.encoding or None,
        "fingerprint": prepared.fingerprint,
        "left_out": list(map(words.flags, prepared.left_out)),
        "encodings": prepared.encodings,
        "duplicates": _duplicates(prepared),
        "damage": prepared.damage or None,
    }


def _sets_as_json(prepared: Prepared | PreparedPart) -> dict[str, object]:
    sets = {"train": prepared.train, "held_out": prepared.held_out}
    return {
        name: {"tokens": len(tokens), "documents": len(tokens.documents) - 1, "bytes": tokens.bytes}
        for name, tokens in sets.items()
    }


def _duplicates(prepared: Prepared) -> dict[str, object] | None:
    duplicates = prepared.record.duplicates
    if duplicates is None:
        return None
    return {
        "equal": duplicates.equal,
        "near": duplicates.near,
        "bytes": duplicates.bytes,
        "dropped": list(prepared.dropped),
    }


@contextmanager
def _progress(stages: list[str]) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on a terminal, nothing elsewhere; `stages` collects those that had work to do."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None if stage in stages else stages.append(stage)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<11}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                stages.append(stage)
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield advance
