"""A look at a corpus: its files and documents, their lengths, what is there twice and what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappush, heapreplace

import numpy as np

from linnet.data.corpus import Corpus
from linnet.data.corpus_file import ReadingReport
from linnet.data.documents import passages
from linnet.data.duplicates import THRESHOLD, DocumentName, DuplicateFinder, Duplicates
from linnet.data.packs import id_passages, pack_vocab

HEAD = 4000  # characters of a document that are kept to be shown
_REPORTED_EVERY = 1 << 20


@dataclass(frozen=True)
class Sample:
    """A document that is shown: its name, its bytes of text, its first letters; of a pack the first ids."""

    number: int  # among all documents, from 0
    name: str
    size: int
    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass
class Overview:
    """What there is to say of a corpus. Sizes are bytes of text, or tokens where it is a pack of ids."""

    corpus: Corpus
    sizes: list[int] = field(default_factory=list)  # of each document
    samples: list[Sample] = field(default_factory=list)
    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)  # files and sizes by how they are read
    left_out: tuple[str, ...] = ()
    encodings: dict[str, list[str]] = field(default_factory=dict)
    duplicates: Duplicates = field(default_factory=Duplicates)
    duplicate_names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """All of it."""
        return sum(self.sizes)

    def quantile(self, share: float) -> int:
        """The size that this share of the documents does not exceed."""
        return int(np.quantile(self.sizes, share, method="inverted_cdf")) if self.sizes else 0

    def histogram(self) -> list[tuple[int, int, int]]:
        """How many documents there are by size: from, below, and their number; each class twice as wide as the last."""
        if not self.sizes:
            return []
        classes = np.array([max(0, size).bit_length() for size in self.sizes])
        counts = np.bincount(classes)
        first = int(classes.min())
        return [(0 if k == 0 else 1 << (k - 1), 1 << k, int(counts[k])) for k in range(first, len(counts))]


def look_at(
    corpus: Corpus,
    *,
    samples: int = 5,
    named: Iterable[str] = (),
    threshold: float = THRESHOLD,
    progress: Callable[[int, int], None] | None = None,
    head: int = HEAD,
) -> Overview:
    """Read a corpus once and say what is in it.

    `samples` documents are chosen by a hash of their text, so from all over the corpus and always the same; or those
    that are `named`. Nothing of the corpus is held but their beginnings, `head` letters, and 300 bytes a document.
    """
    corpus.complete()
    overview = Overview(corpus)
    chooser = _Chooser(samples, set(named), head)
    if corpus.is_pack:
        _look_at_pack(overview, chooser)
    else:
        _look_at_text(overview, chooser, threshold, progress or (lambda *_: None))
    overview.samples = chooser.samples()
    return overview


def _look_at_text(
    overview: Overview, chooser: _Chooser, threshold: float, progress: Callable[[int, int], None]
) -> None:
    corpus, report = overview.corpus, ReadingReport(overview.corpus.strict)
    finder = DuplicateFinder(threshold)
    total = sum(file.path.stat().st_size for file in corpus.files)
    sizes_of_files = [0] * len(corpus.files)
    documents_of_file, file, done, reported = 0, -1, 0, 0
    for passage in passages(corpus, None, report):
        finder.add(passage, report.number)
        size = len(passage.text.encode("utf-8"))
        if passage.opens:
            documents_of_file = documents_of_file + 1 if report.number == file else 1
            file = report.number
            overview.sizes.append(0)
            name = corpus.document_name(DocumentName(file, documents_of_file))
            chooser.open(len(overview.sizes) - 1, name, passage.text)
        overview.sizes[-1] += size
        sizes_of_files[file] += size
        chooser.grow(size)
        done += size
        if done - reported >= _REPORTED_EVERY:
            reported = done
            progress(min(done, total), total)
    _, overview.duplicates = finder.found()
    overview.duplicate_names = tuple(corpus.duplicate_names(overview.duplicates))
    read = [f"{corpus.shown_name(number)}: {why}" for number, why in sorted(report.left_out.items())]
    overview.left_out = (*corpus.left_out, *read)
    overview.encodings = corpus.encodings(report.encodings.items())
    for number, one in enumerate(corpus.files):
        if number in report.left_out and not sizes_of_files[number]:
            continue  # nothing of it was read
        files, size = overview.kinds.get(one.kind, (0, 0))
        overview.kinds[one.kind] = (files + 1, size + sizes_of_files[number])


def _look_at_pack(overview: Overview, chooser: _Chooser) -> None:
    corpus = overview.corpus
    for ids, opens in id_passages(corpus, pack_vocab(corpus), None):
        if opens:
            overview.sizes.append(0)
            number = len(overview.sizes) - 1
            chooser.open(number, f"document {number + 1}", "", tuple(ids[:64].tolist()))
        overview.sizes[-1] += len(ids)
        chooser.grow(len(ids))
    for file in corpus.files:
        files, size = overview.kinds.get(file.kind, (0, 0))
        overview.kinds[file.kind] = (files + 1, size + file.path.stat().st_size)
    overview.left_out = corpus.left_out


class _Chooser:
    """Keeps some documents out of a stream: those of the lowest hashes, or those of some names."""

    def __init__(self, count: int, named: set[str], head: int) -> None:
        self._count, self._named, self._head = count, named, head
        self._heap: list[tuple[int, int]] = []  # the highest hash first, negated; and the number
        self._kept: dict[int, Sample] = {}
        self._open: int | None = None

    def open(self, number: int, name: str, text: str, ids: tuple[int, ...] = ()) -> None:
        """The next document begins."""
        self._open = None
        content = f"{text[:HEAD]}{ids}".encode("utf-8", "replace")
        rank = -int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
        if self._named:
            if name not in self._named:
                return
        elif len(self._heap) < self._count:
            heappush(self._heap, (rank, number))
        elif self._heap and rank > self._heap[0][0]:
            _, replaced = heapreplace(self._heap, (rank, number))
            self._kept.pop(replaced, None)
        else:
            return
        self._open = number
        self._kept[number] = Sample(number, name, 0, text[: self._head], ids)

    def grow(self, size: int) -> None:
        """More of the document at hand."""
        if self._open is not None:
            sample = self._kept[self._open]
            self._kept[self._open] = Sample(sample.number, sample.name, sample.size + size, sample.text, sample.ids)

    def samples(self) -> list[Sample]:
        """In their order."""
        return [self._kept[number] for number in sorted(self._kept)]
