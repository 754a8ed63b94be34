"""Parts of a corpus, prepared on any number of machines: which files each has, and what is made once for all.

<cache>/<name>-<key>.parts/   plan.json, tokenizer.gguf: made by the first that comes, while the others wait
                    dropped.<part>.npy, duplicates.json: with `dedup`, which documents are dropped
                    <part>/                              train.tokens, held_out.tokens, part.json
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np

from linnet.data.cache import HashedFile, corpus_files_hashed, folder_in_making, link_or_copy
from linnet.data.compression import read_blocks
from linnet.data.corpus import Corpus
from linnet.data.corpus_file import CorpusFile, ReadingReport
from linnet.data.documents import passages
from linnet.data.duplicates import DuplicateFinder, Duplicates
from linnet.data.errors import DataError, printable, reason
from linnet.data.preparation import HELD_OUT, TOKENIZER, TRAIN, FoundDuplicates
from linnet.data.request import PrepareOptions, Request
from linnet.data.spans import border, can_be_cut
from linnet.data.token_set import TokenSet, content_digest
from linnet.data.tokenizer import Vocabulary
from linnet.errors import LinnetError
from linnet.files import write_file

PLAN, PART_RECORD, DUPLICATES = "plan.json", "part.json", "duplicates.json"
SUFFIX = ".parts"
_MOST_PARTS = 100_000
_DIGITS = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Part:
    """One of several parts, counted from 1: `3/8`."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """From `3/8`; anything else is a DataError."""
        match = _DIGITS.fullmatch(text)
        if match is None:
            raise DataError(f"`part={text[:40]}`: expected I/N, as in 3/8: the third of eight parts")
        number, count = int(match[1]), int(match[2])
        if not 1 <= number <= count <= _MOST_PARTS:
            raise DataError(
                f"`part={text.strip()}`: parts are counted from 1 to N, and N is at most {_MOST_PARTS:,}: 1/8 to 8/8"
            )
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class PartsPlan(msgspec.Struct, frozen=True):
    """What all parts of a preparation have in common."""

    corpus: str
    settings: list[Any]  # as of the key of a preparation, without what the files hold
    files: list[tuple[str, int, str]]  # name, bytes, how it is read
    parts: int

    @classmethod
    def of(cls, request: Request, parts: int) -> PartsPlan:
        """The plan of a corpus as it lies there."""
        source = request.source
        files = [(source.shown_name(k), file.path.stat().st_size, file.reading) for k, file in enumerate(source.files)]
        return cls(printable(source.name), request.settings(""), files, parts)

    @property
    def key(self) -> str:
        """A hash of it; the corpus may have another name on another machine."""
        content = msgspec.json.encode([self.settings, self.files, self.parts])
        return hashlib.blake2b(content, digest_size=12).hexdigest()

    def folder(self, request: Request) -> Path:
        """Where its parts are kept."""
        return request.root / f"{request.slug}-{self.key}{SUFFIX}"


class SharedSpan(msgspec.Struct, array_like=True):
    """What a part has of a file that it shares with others."""

    first: int
    last: int
    digest: str


class PartRecord(msgspec.Struct):
    """What the folder of a part says of itself; files go by their number in the corpus.

    - `files`: those whose first byte is in this part, with the digest of the whole file.
    - `spans`: of a file that is shared, the part's own bytes; where its first byte is here, those of every part.
    """

    part: int
    vocabulary: str
    encoding: str
    tokens: tuple[int, int]
    text_bytes: tuple[int, int]
    left_out: list[tuple[int, str]]
    encodings: list[tuple[int, str]]
    files: dict[int, HashedFile]
    spans: dict[int, list[SharedSpan]]


class PreparedPart:
    """A part that was prepared, opened from its folder; `made`: just now."""

    def __init__(self, path: Path, part: Part, made: bool = False) -> None:
        self.path, self.part, self.made = path, part, made
        try:
            self.record = msgspec.json.decode((path / PART_RECORD).read_bytes(), type=PartRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            raise DataError(f"{path}: not a part of a corpus; delete the folder and prepare it again") from None
        self.train, self.held_out = TokenSet(path / TRAIN), TokenSet(path / HELD_OUT)


def prepare_part(corpus: str | os.PathLike[str], part: str | Part, **options: Unpack[PrepareOptions]) -> PreparedPart:
    """Prepare one of N parts of a corpus (`3/8`), on any machine; `join_parts` makes one set of them.

    The options are those of `prepare`, and the same for all parts. A vocabulary is trained, and duplicates are looked
    for, on the whole corpus by the first that comes; in one cache the others wait for it, elsewhere each does so.
    """
    part = Part.parse(part) if isinstance(part, str) else part
    request = Request.of(corpus, options)
    plan = PartsPlan.of(request, part.count)
    folder, target = plan.folder(request), plan.folder(request) / str(part.number)
    if not (folder / PLAN).exists():
        with folder_in_making(request.root, folder, plan.key, lambda: (folder / PLAN).exists()) as shared:
            if shared is not None:
                _make_shared(request, plan, shared)
    if (existing := _existing(target, part)) is not None:
        return existing
    with folder_in_making(folder, target, str(part.number), lambda: _existing(target, part) is not None) as making:
        if making is not None:
            _make_part(request, part, folder, making)
    return PreparedPart(target, part, made=making is not None)


def shares(corpus: Corpus, part: Part) -> tuple[Corpus, list[int]]:
    """The files of a part, some of them cut, with the number of each in the corpus.

    Bytes are shared out evenly; a file that cannot be cut belongs to the part that its first byte falls into.
    """
    sizes = [file.path.stat().st_size for file in corpus.files]
    total, start = sum(sizes), 0
    low, high = (total * k // part.count for k in (part.number - 1, part.number))
    files, numbers = [], []
    for number, (file, size) in enumerate(zip(corpus.files, sizes, strict=True)):
        if low < start + size and start < high:
            corpus.complete([file])
        mine = _share_of(file, size, low - start, high - start)
        start += size
        if mine is not None:
            files.append(mine)
            numbers.append(number)
    return replace(corpus, files=tuple(files)), numbers


def _share_of(file: CorpusFile, size: int, low: int, high: int) -> CorpusFile | None:
    """What of a file lies between two of its bytes, at borders of documents; None: nothing."""
    if high <= 0 or low >= size:
        return None
    if (low <= 0 and high >= size) or not can_be_cut(file):
        return file if low <= 0 else None
    first, last = border(file, low), border(file, high)
    if first >= last:
        return None
    return file if (first, last) == (0, size) else replace(file, span=(first, last))


def _make_shared(request: Request, plan: PartsPlan, folder: Path) -> None:
    """What all parts need: the vocabulary, and which documents are dropped."""
    duplicates = _find_duplicates(request, plan, folder) if request.similarity is not None else None
    preparation = request.preparation(folder, duplicates=duplicates)
    if request.donor is not None:
        request.donor.save(folder / TOKENIZER)
    elif request.has_tokenizer:
        request.source.complete(progress=request.progress)
        preparation.train_vocabulary(request.pre)
    preparation.clear()
    write_file(folder / PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")


def _find_duplicates(request: Request, plan: PartsPlan, folder: Path) -> FoundDuplicates:
    """Which documents are dropped, by part: one is dropped for the sake of another of any part."""
    assert request.similarity is not None
    finder, report = DuplicateFinder(request.similarity), ReadingReport(request.source.strict)
    first_documents = []
    for part in (Part(number, plan.parts) for number in range(1, plan.parts + 1)):
        corpus, numbers = shares(request.source, part)
        first_documents.append(finder.count)
        for passage in passages(corpus, None, report):
            finder.add(passage, numbers[report.number])
    dropped, duplicates = finder.found()
    for number, part_dropped in enumerate(np.split(dropped, first_documents[1:]), 1):
        np.save(folder / f"dropped.{number}.npy", part_dropped)
    write_file(folder / DUPLICATES, msgspec.json.encode(duplicates))
    return dropped, duplicates


def _make_part(request: Request, part: Part, shared: Path, folder: Path) -> None:
    source, (corpus, numbers) = request.source, shares(request.source, part)
    vocabulary = Vocabulary(shared / TOKENIZER) if request.has_tokenizer else None
    if vocabulary is not None:
        link_or_copy(shared / TOKENIZER, folder / TOKENIZER)  # workers read it beside the tokens
    duplicates: FoundDuplicates | None = None
    if request.similarity is not None:
        duplicates = np.load(shared / f"dropped.{part.number}.npy"), Duplicates()
    before = _states(corpus)
    preparation = request.preparation(folder, corpus, duplicates)
    try:
        remark = preparation.write_by_document(vocabulary)
    except MemoryError:
        raise DataError(f"corpus {source.name}: there is not enough memory to prepare it") from None
    files, spans = _digests(request, part, corpus, numbers)
    if _states(corpus) != before:
        raise DataError(f"corpus {source.name}: it changed while it was prepared; start again")
    (folder / TOKENIZER).unlink(missing_ok=True)
    sets = [TokenSet(folder / name) for name in (TRAIN, HELD_OUT)]
    report = preparation.report
    record = PartRecord(
        part.number,
        vocabulary.fingerprint if vocabulary is not None else "",
        remark,
        (len(sets[0]), len(sets[1])),
        (sets[0].bytes, sets[1].bytes),
        [(numbers[k], problem) for k, problem in sorted(report.left_out.items())],
        [(numbers[k], encoding) for k, encoding in sorted(report.encodings.items())],
        files,
        spans,
    )
    write_file(folder / PART_RECORD, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def _states(corpus: Corpus) -> list[tuple[int, ...]]:
    """Size and times of the files, by which it is told whether one has changed."""
    states = [file.path.stat() for file in corpus.files]
    return [(state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for state in states]


def _digests(
    request: Request, part: Part, corpus: Corpus, numbers: Sequence[int]
) -> tuple[dict[int, HashedFile], dict[int, list[SharedSpan]]]:
    """What the files of a part hold: whole ones, and the bytes of those that are shared with other parts."""
    owned = [k for k, file in enumerate(corpus.files) if not file.span or not file.span[0]]
    whole = replace(corpus, files=tuple(corpus.files[k] for k in owned))
    hashed = corpus_files_hashed(whole, request.root, f"part-{PartsPlan.of(request, part.count).key}-{part.number}")
    spans: dict[int, list[SharedSpan]] = {}
    for k, file in enumerate(corpus.files):
        if file.span is not None:
            mine = [file] if file.span[0] else _all_spans(request.source, numbers[k], part.count)
            spans[numbers[k]] = [_span_digest(shared) for shared in mine]
    return {numbers[k]: file for k, file in zip(owned, hashed, strict=True)}, spans


def _all_spans(corpus: Corpus, number: int, parts: int) -> list[CorpusFile]:
    """What each part has of a file that several share."""
    sizes = [file.path.stat().st_size for file in corpus.files]
    file, size, start, total = corpus.files[number], sizes[number], sum(sizes[:number]), sum(sizes)
    first, last = (total and (place * parts) // total for place in (start, start + size))
    owners = (
        _share_of(file, size, total * k // parts - start, total * (k + 1) // parts - start)
        for k in range(first, min(last + 1, parts))
    )
    return [share for share in owners if share is not None]


def _span_digest(file: CorpusFile) -> SharedSpan:
    assert file.span is not None
    digest = hashlib.blake2b(digest_size=32)
    try:
        for block in read_blocks(file.path, span=file.span):
            digest.update(block)
    except OSError as error:
        raise DataError(f"corpus {file.path}: the file cannot be read: {reason(error)}") from None
    return SharedSpan(*file.span, digest.hexdigest())


def _existing(target: Path, part: Part) -> PreparedPart | None:
    """A part that is there and holds what was written."""
    if not target.exists():
        return None
    with suppress(LinnetError, OSError):
        prepared = PreparedPart(target, part)
        if all(content_digest(tokens.path) == tokens.fingerprint for tokens in (prepared.train, prepared.held_out)):
            return prepared
    return None


def planned(request: Request) -> Iterator[tuple[PartsPlan, Path]]:
    """The plans in the cache by which this corpus is prepared with these settings; they differ in the parts."""
    for folder in sorted(request.root.glob(f"{request.slug}-*{SUFFIX}")):
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=PartsPlan)
            if folder == PartsPlan.of(request, plan.parts).folder(request):
                yield plan, folder
