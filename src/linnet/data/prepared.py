"""`prepare`: a corpus becomes two token sets and a tokenizer, made once and found again by what is in it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from linnet.data.cache import cache_folder, content_hash, file_digests, folder_in_making
from linnet.data.corpus import PYTHON, Corpus, find_corpus
from linnet.data.corpus_file import ReadingReport
from linnet.data.documents import Passage, passages
from linnet.data.duplicates import THRESHOLD, DuplicateFinder, Duplicates, check_threshold, without
from linnet.data.errors import (
    DataError,
    duplicates_sentence,
    encodings_sentence,
    left_out_sentence,
    printable,
    reason,
)
from linnet.data.packs import id_passages, pack_vocab
from linnet.data.token_set import TokenSet, TokenSetWriter, content_digest, token_dtype
from linnet.data.tokenizer import Encoder, Vocabulary, train_vocabulary
from linnet.data.workers import Encoded, HeldOutSplit, Workers, bundles, encode, n_workers
from linnet.errors import LinnetError, mismatch
from linnet.files import write_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from linnet.gguf.file import GGUFFile
    from linnet.gguf.metadata import MetadataBlock

PrepareProgress = Callable[[str, int, int], None]  # a stage, how much of it is done, how much there is
DEFAULT_VOCAB = 4096
_FORMAT = 1  # a part of the key: raised when the same input would give other tokens
_TRAINED_ON = 50_000_000  # bytes of text that a tokenizer is trained on: more of it changes few merges
_MOST_TRAINED = 1 << 24  # tokens of a vocabulary; the trainer allocates for all that are asked for
_MOST_IDS = 1 << 31  # ids of 32 bits with a sign
_REPORTED_EVERY = 1 << 20  # characters
_TRAIN, _HELD_OUT, _TOKENIZER, _RECORD = "train.tokens", "held_out.tokens", "tokenizer.gguf", "prepared.json"
_KEPT = "texts"  # while a corpus is prepared


class Record(msgspec.Struct):
    """What a prepared folder says of itself."""

    corpus: str
    fingerprint: str
    vocab: int
    held_out: float
    seed: int
    encoding: str = ""  # a remark when the quick encoder could not be used
    text_bytes: tuple[int, int] | None = None  # of both sets; None in records of older versions
    left_out: list[tuple[int, str]] = []  # what was not read of a file, by its number in the corpus
    encodings: list[tuple[int, str]] = []  # those that showed only while a file was read
    duplicates: Duplicates | None = None  # that were dropped


class Prepared:
    """A corpus ready to train on, opened from its folder.

    - `left_out`: files of the corpus that were not read, or not to their end, each with the reason.
    - `encodings`: files that are in another encoding than UTF-8, by the encoding.
    - `dropped`: documents that were dropped because they are like others: `b.txt: equal to a.txt`.
    - `damage`: what was wrong with the folder that was found in the cache, where one was made anew; else empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: tuple[str, ...] = ()
        self.encodings: dict[str, list[str]] = {}
        self.dropped: tuple[str, ...] = ()
        self.damage = ""
        try:
            self.record = msgspec.json.decode((path / _RECORD).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}: not a prepared corpus: {mismatch(error)}; delete the folder and prepare it again"
            ) from None
        self.train = TokenSet(path / _TRAIN)
        self.held_out = TokenSet(path / _HELD_OUT)
        self.vocab: int = self.record.vocab
        self.fingerprint: str = self.record.fingerprint
        # None for a pack prepared without one
        self.vocabulary = Vocabulary(path / _TOKENIZER) if (path / _TOKENIZER).exists() else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What its owner should know: sentences, none in the usual case."""
        damage = f"the prepared corpus in the cache was damaged and is made anew: {self.damage}" if self.damage else ""
        sentences = [damage, left_out_sentence(self.left_out), encodings_sentence(self.encodings)]
        if self.record.duplicates is not None:
            sentences.append(duplicates_sentence(self.record.duplicates, self.dropped))
        return tuple(sentence for sentence in sentences if sentence)

    def tell(self, corpus: Corpus) -> None:
        """Name what the record says of the files of its corpus, which may lie elsewhere by now."""
        read = [f"{corpus.shown_name(number)}: {problem}" for number, problem in self.record.left_out]
        self.left_out = (*corpus.left_out, *read)
        self.encodings = corpus.encodings(self.record.encodings)
        if self.record.duplicates is not None:
            self.dropped = tuple(corpus.duplicate_names(self.record.duplicates))

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None for a pack prepared without one."""
        return self.vocabulary.tokenizer if self.vocabulary else None

    @property
    def tokenizer_keys(self) -> MetadataBlock | None:
        """What `gguf.write(tokenizer=…)` takes."""
        return self.vocabulary.keys if self.vocabulary else None

    @property
    def end(self) -> int | None:
        """The end-of-text token; None for a pack prepared without a tokenizer."""
        return self.train.end

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text a target stands for, to give a loss in bits per byte; None for a pack."""
        tokens = len(self.train) + len(self.held_out)
        n_bytes = self.train.bytes + self.held_out.bytes
        return n_bytes / tokens if n_bytes else None

    def __repr__(self) -> str:
        return f"<Prepared {self.path}: {len(self.train)} + {len(self.held_out)} tokens of {self.vocab}>"


def prepare(
    corpus: str | os.PathLike[str] = PYTHON,
    *,
    vocab: int | None = None,
    tokenizer: str | os.PathLike[str] | GGUFFile | None = None,
    pre: str = "gpt-2",
    held_out: float = 0.02,
    field: str | Sequence[str] = "text",
    dedup: bool = False,
    dedup_threshold: float | None = None,
    plain: bool | None = False,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: PrepareProgress | None = None,
    seed: int = 0,
) -> Prepared:
    """Prepare a corpus, or open it where that was done before.

    `tokenizer` is a GGUF whose tokenizer is taken; without one a byte-level BPE of `vocab` tokens (4096) is trained
    that cuts words as `pre` says. `held_out` is the share of documents kept from training, chosen by a hash of their
    text. `field` names the text in JSONL, CSV and Parquet; `("*.csv=text", "body")` has another one for some files.
    `dedup` drops documents that are like an earlier one: whose runs of five words agree to `dedup_threshold` (0.8); 1:
    equal ones only. `plain` reads HTML, CSV and other documents as the text they are written in.
    `progress(stage, done, total)` is told bytes, now and then.
    """
    if not 0 <= held_out < 1:
        raise DataError(f"held_out is the share of the text kept for evaluation, from 0 to below 1; found {held_out}")
    root, source = cache_folder(cache), find_corpus(corpus, field, plain=plain)
    similarity = _similarity(source, dedup, dedup_threshold)
    donor = Vocabulary(tokenizer) if tokenizer is not None else None
    size = _vocab(source, donor, vocab)
    words = donor.fingerprint if donor else None if source.is_pack else pre
    content = content_hash(source, root)
    chosen = [_FORMAT, content, source.field, words, size, held_out, seed]
    settings = msgspec.json.encode(chosen if similarity is None else [*chosen, {"dedup": similarity}])
    key = hashlib.blake2b(settings, digest_size=12).hexdigest()
    target = root / f"{_slug(source.name)}-{key}"
    damage = ""

    def existing() -> Prepared | None:
        nonlocal damage
        try:
            return _opened(root, target, key, size, donor is not None or not source.is_pack)
        except (LinnetError, MemoryError) as error:
            damage = str(error).partition(";")[0] or "it needs more memory than there is"  # what to do is done
            return None

    prepared = existing()
    if prepared is None:
        with folder_in_making(root, target, key, lambda: existing() is not None) as folder:
            if folder is not None:
                quiet: PrepareProgress = lambda *_: None  # noqa: E731
                preparation = _Preparation(source, folder, size, held_out, seed, workers, progress or quiet, similarity)
                try:
                    preparation.run(donor, pre, key)
                except MemoryError:
                    raise DataError(f"corpus {source.name}: there is not enough memory to prepare it") from None
                if content_hash(source, root) != content:
                    raise DataError(f"corpus {source.name}: it changed while it was prepared; start again")
        prepared = Prepared(target)
    prepared.damage = damage
    prepared.tell(source)
    return prepared


def _similarity(corpus: Corpus, dedup: bool, threshold: float | None) -> float | None:
    """From which similarity on documents are dropped; None: none are."""
    if not dedup:
        if threshold is not None:
            raise DataError("`dedup_threshold` says how alike documents are that `dedup` drops: give both")
        return None
    if corpus.is_pack:
        raise DataError(f"corpus {corpus.name}: `dedup` compares words, and this is a pack of token ids: leave it out")
    check_threshold(THRESHOLD if threshold is None else threshold)
    return THRESHOLD if threshold is None else threshold


def _opened(root: Path, target: Path, key: str, vocab: int, has_tokenizer: bool) -> Prepared | None:
    """A prepared folder, held against what was written; None when there is none, DataError when it is damaged.

    The tokens are held against the digests in their headers (and read for it only when the files changed, see
    `file_digests`), those and the tokenizer against the fingerprint of the record, and all against what is asked for.
    """
    if not os.path.lexists(target):
        return None
    prepared = Prepared(target)
    sets = (prepared.train, prepared.held_out)
    try:
        digests = file_digests([tokens.path for tokens in sets], root, key, content_digest)
    except OSError as error:
        raise DataError(f"{target}: it cannot be read: {reason(error)}") from None
    for tokens, digest in zip(sets, digests, strict=True):
        if tokens.fingerprint != digest:
            raise DataError(f"{tokens.path}: it does not hold what was written")
    if has_tokenizer != (prepared.vocabulary is not None):
        raise DataError(f"{target / _TOKENIZER}: it is {'missing' if has_tokenizer else 'none of this corpus'}")
    end = prepared.vocabulary.end if prepared.vocabulary else None
    text_bytes = tuple(tokens.bytes for tokens in sets)
    if (
        prepared.fingerprint != _fingerprint(key, prepared.vocabulary, sets)
        or {prepared.vocab, *(tokens.vocab for tokens in sets)} != {vocab}
        or {tokens.end for tokens in sets} != {end}
        or (prepared.record.text_bytes or text_bytes) != text_bytes
    ):
        raise DataError(f"{target / _RECORD}: it does not belong to the files beside it")
    return prepared


def _fingerprint(key: str, vocabulary: Vocabulary | None, sets: Iterable[TokenSet]) -> str:
    parts = [key, vocabulary.fingerprint if vocabulary else "", *(tokens.fingerprint for tokens in sets)]
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Preparation:
    """One preparation, in a folder that nobody sees yet."""

    corpus: Corpus
    folder: Path
    vocab: int
    held_out: float
    seed: int
    workers: int | None
    progress: PrepareProgress
    similarity: float | None = None  # of documents that are dropped

    @cached_property
    def report(self) -> ReadingReport:
        return ReadingReport(self.corpus.strict)

    @cached_property
    def duplicates(self) -> tuple[NDArray[np.bool_], Duplicates] | None:
        """Which documents are dropped; None: none are looked for."""
        if self.similarity is None:
            return None
        finder = DuplicateFinder(self.similarity)
        for passage in self._reported("duplicates", passages(self.corpus, None, self.report, self.kept)):
            finder.add(passage, self.report.number)
        return finder.found()

    @cached_property
    def kept(self) -> Path:
        """A folder for the text of documents that are read more than once."""
        kept = self.folder / _KEPT
        kept.mkdir()
        return kept

    def texts(self, size: int | None = None) -> Iterator[Passage]:
        """The passages of the corpus, without those of duplicates."""
        found = self.duplicates
        read = passages(self.corpus, size, self.report, self.kept)
        return read if found is None else without(read, found[0])

    @cached_property
    def size(self) -> int:
        return sum(file.path.stat().st_size for file in self.corpus.files)

    def run(self, donor: Vocabulary | None, pre: str, key: str) -> None:
        vocabulary = donor
        if donor is not None:
            donor.save(self.folder / _TOKENIZER)
        elif not self.corpus.is_pack:
            texts = (passage.text for passage in self._reported("vocabulary", self.texts()))
            some = islice(texts, 0, None, -(-self.size // _TRAINED_ON))
            train_vocabulary(some, self.vocab, pre, self.folder / _TOKENIZER)
            vocabulary = Vocabulary(self.folder / _TOKENIZER)
        remark = self._write(vocabulary)
        sets = [TokenSet(self.folder / name) for name in (_TRAIN, _HELD_OUT)]
        if len(sets[0]) < 2:
            raise DataError(f"corpus {self.corpus.name}: it holds no text to train on{self._why_nothing()}")
        shutil.rmtree(self.folder / _KEPT, ignore_errors=True)
        record = Record(
            corpus=printable(self.corpus.name),
            fingerprint=_fingerprint(key, vocabulary, sets),
            vocab=self.vocab,
            held_out=self.held_out,
            seed=self.seed,
            encoding=remark,
            text_bytes=(sets[0].bytes, sets[1].bytes),
            left_out=sorted(self.report.left_out.items()),
            encodings=sorted(self.report.encodings.items()),
            duplicates=self.duplicates[1] if self.duplicates is not None else None,
        )
        write_file(self.folder / _RECORD, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")

    def _why_nothing(self) -> str:
        left_out = [f"{self.corpus.shown_name(number)}: {why}" for number, why in self.report.left_out.items()]
        sentence = left_out_sentence([*self.corpus.left_out, *left_out])
        return f" ({sentence})" if sentence else ""

    def _write(self, vocabulary: Vocabulary | None) -> str:
        """Both sets, by document; by passage where the documents are too few to hold one out. Returns a remark."""
        encoder = vocabulary.encoder() if vocabulary and not self.corpus.is_pack else None
        end = vocabulary.end if vocabulary else None
        split = HeldOutSplit(int(self.held_out * 2**64), self.seed)
        counts = self._write_sets(encoder, end, split)
        if self.held_out and not all(counts):
            split = replace(split, passage=max(64, min(2048, int(sum(counts) * self.held_out / 2))))
            hashes = {split.hash(content) for content in self._contents(end, split)}
            if len(hashes) > 1:  # at least one of them is held out, but not all
                limit = min(max(split.limit, min(hashes) + 1), max(hashes))
                self._write_sets(encoder, end, replace(split, limit=limit))
        return encoder.remark if encoder else ""

    def _write_sets(self, encoder: Encoder | None, end: int | None, split: HeldOutSplit) -> list[int]:
        """Write both files; returns how many tokens each has."""
        side = -1
        with ExitStack() as stack:
            paths = [self.folder / name for name in (_TRAIN, _HELD_OUT)]
            writers = [stack.enter_context(TokenSetWriter(path, vocab=self.vocab, end=end)) for path in paths]
            for bundle in stack.enter_context(closing(self._encoded(encoder, end, split))):
                if bundle is None:
                    break
                for opens, held_out, ids, n_bytes in bundle:
                    if opens or held_out != side:
                        side = int(held_out)
                        writers[side].open_document()
                    writers[side].add(ids, n_bytes)
            else:
                for writer in writers:
                    writer.close()
                return [writer.tokens for writer in writers]
        assert encoder is not None
        encoder.slow("the quick way gave other ids for a sample of this corpus")
        return self._write_sets(encoder, end, split)

    def _encoded(
        self, encoder: Encoder | None, end: int | None, split: HeldOutSplit
    ) -> Generator[list[Encoded] | None, None, None]:
        if encoder is None:
            for ids, opens in id_passages(self.corpus, self.vocab, end, split.passage):
                content = ids.astype(token_dtype(self.vocab)).tobytes()
                yield [Encoded(opens, split.takes(content), content, 0)]
            return
        text = bundles(self._reported("tokens", self.texts(split.passage)))
        count = n_workers(self.workers, self.size)
        if count == 1:
            yield from (encode(bundle, encoder, split) for bundle in text)
        else:
            with Workers(count, self.folder / _TOKENIZER, split, encoder.remark) as workers:
                yield from workers.encode(text)

    def _contents(self, end: int | None, split: HeldOutSplit) -> Iterator[bytes]:
        """What the side of each passage is decided by."""
        if self.corpus.is_pack:
            yield from (encoded.ids for bundle in self._encoded(None, end, split) for encoded in bundle or ())
        else:
            yield from (passage.text.encode("utf-8") for passage in self.texts(split.passage))

    def _reported(self, stage: str, texts: Iterable[Passage]) -> Iterator[Passage]:
        """The same passages, with progress reported now and then."""
        done = reported = 0
        self.progress(stage, 0, self.size)
        for passage in texts:
            yield passage
            done += len(passage.text)
            if done - reported >= _REPORTED_EVERY:
                reported = done
                self.progress(stage, min(done, self.size), self.size)
        self.progress(stage, self.size, self.size)


def _vocab(corpus: Corpus, donor: Vocabulary | None, vocab: int | None) -> int:
    """How many rows the embedding must have."""
    if donor is not None:
        if vocab is not None and vocab != donor.rows:
            raise DataError(f"`vocab={vocab}` does not go with a tokenizer of {donor.rows} tokens: leave it out")
        return donor.rows
    if corpus.is_pack:
        size, most, kind = pack_vocab(corpus) if vocab is None else vocab, _MOST_IDS, "of a pack"
    else:
        size, most, kind = DEFAULT_VOCAB if vocab is None else vocab, _MOST_TRAINED, "trained on a corpus"
    if size > most:
        raise DataError(f"corpus {corpus.name}: a vocabulary {kind} has at most {most:,} tokens, found {size:,}")
    return size


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", Path(name).name).strip("-").lower()[:40] or "corpus"
