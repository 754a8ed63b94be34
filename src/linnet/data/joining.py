"""`join_parts`: the parts of a corpus become one prepared corpus, the one that a single machine would have made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Unpack

import msgspec

from linnet.data.cache import combined_hash, content_hash, folder_in_making, link_or_copy
from linnet.data.duplicates import Duplicates
from linnet.data.errors import DataError, printable, shown_some
from linnet.data.parts import DUPLICATES, PART_RECORD, Part, PartsPlan, PreparedPart, SharedSpan, planned
from linnet.data.preparation import HELD_OUT, OTHER_IDS, TOKENIZER, TRAIN, Record, fingerprint
from linnet.data.prepared import ExistingFolder, Prepared, prepare_whole
from linnet.data.request import PrepareOptions, Request
from linnet.data.token_set import TokenSet, content_digest, segment_path, write_joined
from linnet.data.tokenizer import Vocabulary

_NAMED = 8  # parts that an error names


def join_parts(corpus: str | os.PathLike[str], **options: Unpack[PrepareOptions]) -> Prepared:
    """Publish the parts that `prepare_part` made as one prepared corpus; the options are those of the parts.

    No token is written anew: the files of the parts get their place in the prepared corpus, with an index before them.
    Ids, key and fingerprint are those that `prepare` gives on one machine.
    """
    request = Request.of(corpus, options)
    request.source.complete(progress=request.progress)
    complete_parts = _complete_parts(request)
    if complete_parts is None:
        return _joined_before(request)
    plan, folder = complete_parts
    parts = _opened_parts(plan, folder)
    content = _content(request, parts)
    key = request.key(content)
    target, existing = request.folder(key), ExistingFolder(request, key)
    why_whole = _why_whole(request, parts)
    if why_whole:
        prepared = prepare_whole(request)
        prepared.note = f"the parts are not used: {why_whole}, so the corpus was prepared whole"
    else:
        if not existing.is_usable():
            with folder_in_making(request.root, target, key, existing.is_usable) as making:
                if making is not None:
                    _join(request, key, parts, folder, making)
        prepared = Prepared(target)
        prepared.tell(request.source)
    shutil.rmtree(folder, ignore_errors=True)
    for hashes in (request.root / "hashes").glob(f"part-{plan.key}-*.json"):
        hashes.unlink(missing_ok=True)
    return prepared


def _complete_parts(request: Request) -> tuple[PartsPlan, Path] | None:
    """The plan all of whose parts are there; None where nothing is planned. Missing parts are an error."""
    problems = []
    for plan, folder in planned(request):
        missing = [k for k in range(1, plan.parts + 1) if not (folder / str(k) / PART_RECORD).is_file()]
        if not missing:
            return plan, folder
        names = shown_some([str(Part(k, plan.parts)) for k in missing], _NAMED)
        problems.append(f"{len(missing)} of {plan.parts} parts are missing: {names}")
    if problems:
        raise DataError(f"corpus {request.source.name}: {'; '.join(problems)}; prepare them with `part`, then join")
    return None


def _joined_before(request: Request) -> Prepared:
    """What an earlier join published; an error where there is none."""
    prepared = ExistingFolder(request, request.key(content_hash(request.source, request.root))).opened()
    if prepared is None:
        raise DataError(
            f"corpus {request.source.name}: the cache {request.root} has no parts of it with these settings: prepare"
            " them with `part`, with the same options and the same cache"
        )
    prepared.tell(request.source)
    return prepared


def _opened_parts(plan: PartsPlan, folder: Path) -> list[PreparedPart]:
    """All parts, each held against what was written; they must agree on the vocabulary."""
    parts = [PreparedPart(folder / str(k), Part(k, plan.parts)) for k in range(1, plan.parts + 1)]
    sets = [tokens for part in parts for tokens in (part.train, part.held_out)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        digests = threads.map(content_digest, (tokens.path for tokens in sets))
        for tokens, digest in zip(sets, digests, strict=True):
            if digest != tokens.fingerprint:
                raise DataError(f"{tokens.path}: it does not hold what was written: prepare this part again")
    tokenizer = folder / TOKENIZER
    expected = Vocabulary(tokenizer).fingerprint if tokenizer.exists() else ""
    for part in parts:
        if part.record.vocabulary != expected:
            raise DataError(
                f"{part.path}: it was encoded with another vocabulary than the one beside it: delete this folder and"
                f" prepare part {part.part} again"
            )
    return parts


def _content(request: Request, parts: Sequence[PreparedPart]) -> str:
    """The hash of all files' contents; a file that is not what the parts read is an error."""
    source = request.source
    known = {number: hashed for part in parts for number, hashed in part.record.files.items()}
    missing = [source.shown_name(k) for k in range(len(source.files)) if k not in known]
    if missing:
        raise DataError(f"corpus {source.name}: no part has {shown_some(missing)}: prepare the parts again")
    hashed = [known[k] for k in range(len(source.files))]
    content = content_hash(source, request.root, hashed)
    if combined_hash(source, [file.digest for file in hashed]) != content:
        raise DataError(f"corpus {source.name}: it has changed since its parts were prepared: prepare them again")
    spans: dict[int, list[SharedSpan]] = {}
    for part in parts:
        for number, own in part.record.spans.items():
            known_spans = spans.setdefault(number, own)  # the part of its first byte comes first, and has them all
            if not all(span in known_spans for span in own):
                raise DataError(
                    f"corpus {source.name}: part {part.part} read another {source.shown_name(number)} than the parts"
                    " before it: prepare it again where the files are the same"
                )
    return content


def _why_whole(request: Request, parts: Sequence[PreparedPart]) -> str:
    """Why the parts are not what one machine would have made; empty in the usual case."""
    train, held_out = (sum(part.record.tokens[side] for part in parts) for side in (0, 1))
    if request.held_out and not (train and held_out):
        return "so few documents have none to hold out, or none to train on, and are cut into passages"
    slow = {part.record.encoding == OTHER_IDS for part in parts if any(part.record.tokens)}
    return "the quick way of encoding gave other ids in some of them" if len(slow) > 1 else ""


def _join(request: Request, key: str, parts: Sequence[PreparedPart], folder: Path, making: Path) -> None:
    vocabulary = Vocabulary(folder / TOKENIZER) if request.has_tokenizer else None
    if vocabulary is not None:
        link_or_copy(folder / TOKENIZER, making / TOKENIZER)
    sets = []
    for name in (TRAIN, HELD_OUT):
        segments = []
        for number, part in enumerate(parts, 1):
            path = segment_path(making / name, number)
            link_or_copy(part.path / name, path)
            segments.append(TokenSet(path))
        write_joined(making / name, segments)
        sets.append(TokenSet(making / name))
    if len(sets[0]) < 2:
        raise DataError(f"corpus {request.source.name}: it holds no text to train on")
    duplicates_file = folder / DUPLICATES
    records = [part.record for part in parts]
    Record(
        corpus=printable(request.source.name),
        fingerprint=fingerprint(key, vocabulary, sets),
        vocab=request.vocab,
        held_out=request.held_out,
        seed=request.seed,
        encoding=next((record.encoding for record in records if record.encoding), ""),
        text_bytes=(sets[0].bytes, sets[1].bytes),
        left_out=_merged([record.left_out for record in records]),
        encodings=sorted({item for record in records for item in record.encodings}),
        duplicates=msgspec.json.decode(duplicates_file.read_bytes(), type=Duplicates)
        if duplicates_file.exists()
        else None,
    ).write(making)


def _merged(lists: Sequence[Sequence[tuple[int, str]]]) -> list[tuple[int, str]]:
    """What was left out of each file; of one that parts share, what each of them says."""
    merged: dict[int, list[str]] = {}
    for number, problem in (item for items in lists for item in items):
        merged.setdefault(number, []).append(problem)
    return [(number, "; ".join(problems)) for number, problems in sorted(merged.items())]
