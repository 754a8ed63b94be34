"""`prepare`: a corpus becomes two token sets and a tokenizer, made once and found again by what is in it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from linnet.data.cache import cache_folder, content_hash, file_digests, folder_in_making
from linnet.data.corpus import PYTHON, Corpus, find_corpus
from linnet.data.crew import Crew, crew_size
from linnet.data.documents import Piece, pieces
from linnet.data.encoded import Encoded, Share, encode, encode_pack, jobs
from linnet.data.encoder import Encoder
from linnet.data.errors import DataError, reason
from linnet.data.left_out import left_out_sentence, printable
from linnet.data.packs import pack_vocab
from linnet.data.shard import TokenSet, TokenSetWriter, content_digest
from linnet.data.vocabulary import Vocabulary, train_vocabulary
from linnet.errors import LinnetError
from linnet.files import write_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf.file import GGUFFile
    from linnet.gguf.metadata import MetadataBlock

Progress = Callable[[str, int, int], None]
DEFAULT_VOCAB = 4096
_FORMAT = 1  # a part of the key: raised when the same input would give other tokens
_TRAINED_ON = 50_000_000  # bytes of text a vocabulary is trained on: more of it changes few merges
_MOST_TRAINED = 1 << 24  # tokens of a vocabulary; the trainer allocates for all that are asked for
_MOST_IDS = 1 << 31  # ids of 32 bits with a sign
_TOLD_EVERY = 1 << 20
_TRAIN, _HELD_OUT, _TOKENIZER, _RECORD = "train.tokens", "held_out.tokens", "tokenizer.gguf", "prepared.json"


class Record(msgspec.Struct):
    """What a prepared folder says of itself."""

    corpus: str
    fingerprint: str
    vocab: int
    held_out: float
    seed: int
    encoding: str = ""  # a remark when the quick encoder could not be used
    text_bytes: tuple[int, int] | None = None  # of both sets; None in records of older versions


class Prepared:
    """A corpus ready to train on, opened from its folder.

    - `left_out`: files of the corpus that were not read, each with the reason.
    - `damage`: what was wrong with the folder that was found in the cache, where one was made anew; else empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: tuple[str, ...] = ()
        self.damage = ""
        try:
            self.record = msgspec.json.decode((path / _RECORD).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not a prepared corpus: {error}; delete the folder and prepare it again") from None
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
        return tuple(sentence for sentence in (damage, left_out_sentence(self.left_out)) if sentence)

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
    field: str = "text",
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Prepared:
    """Prepare a corpus, or open it where that was done before.

    `tokenizer` is a GGUF whose tokenizer is taken; without one a byte-level BPE of `vocab` tokens (4096) is trained
    that cuts words as `pre` says. `held_out` is the share of documents kept from training, chosen by a hash of their
    text. `field` names the text in JSONL and Parquet. `progress(stage, done, total)` is told bytes, now and then.
    """
    if not 0 <= held_out < 1:
        raise DataError(f"held_out is the share of the text kept for evaluation, from 0 to below 1; found {held_out}")
    root, found = cache_folder(cache), find_corpus(corpus, field)
    donor = Vocabulary(tokenizer) if tokenizer is not None else None
    size = _vocab(found, donor, vocab)
    words = donor.fingerprint if donor else None if found.is_pack else pre
    content = content_hash(found, root)
    asked = msgspec.json.encode([_FORMAT, content, field, words, size, held_out, seed])
    key = hashlib.blake2b(asked, digest_size=12).hexdigest()
    target = root / f"{_slug(found.name)}-{key}"
    damage = ""

    def standing() -> Prepared | None:
        nonlocal damage
        try:
            return _opened(root, target, key, size, donor is not None or not found.is_pack)
        except (LinnetError, MemoryError) as error:
            damage = str(error).partition(";")[0] or "it needs more memory than there is"  # what to do is done
            return None

    prepared = standing()
    if prepared is None:
        with folder_in_making(root, target, key, lambda: standing() is not None) as folder:
            if folder is not None:
                making = _Making(found, folder, size, Share(held_out, seed), workers, progress or _silent)
                try:
                    making.run(donor, pre, key)
                except MemoryError:
                    raise DataError(f"corpus {found.name}: there is not enough memory to prepare it") from None
                if content_hash(found, root) != content:
                    raise DataError(f"corpus {found.name}: it changed while it was prepared; start again")
        prepared = Prepared(target)
    prepared.left_out, prepared.damage = found.left_out, damage
    return prepared


def _opened(root: Path, target: Path, key: str, vocab: int, has_words: bool) -> Prepared | None:
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
    if has_words != (prepared.vocabulary is not None):
        raise DataError(f"{target / _TOKENIZER}: it is {'missing' if has_words else 'none of this corpus'}")
    end = prepared.vocabulary.end if prepared.vocabulary else None
    counted = tuple(tokens.bytes for tokens in sets)
    if (
        prepared.fingerprint != _fingerprint(key, prepared.vocabulary, sets)
        or {prepared.vocab, *(tokens.vocab for tokens in sets)} != {vocab}
        or {tokens.end for tokens in sets} != {end}
        or (prepared.record.text_bytes or counted) != counted
    ):
        raise DataError(f"{target / _RECORD}: it does not belong to the files beside it")
    return prepared


def _fingerprint(key: str, vocabulary: Vocabulary | None, sets: Iterable[TokenSet]) -> str:
    parts = [key, vocabulary.fingerprint if vocabulary else "", *(tokens.fingerprint for tokens in sets)]
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()


class _OtherIdsError(Exception):
    """The quick encoder did not give what `tokenizers` gives."""


class _Making:
    """One preparation, in a folder that nobody sees yet."""

    def __init__(
        self, corpus: Corpus, folder: Path, vocab: int, share: Share, workers: int | None, progress: Progress
    ) -> None:
        self.corpus, self.folder, self.vocab, self.share = corpus, folder, vocab, share
        self.workers, self.progress = workers, progress
        self.size = sum(source.path.stat().st_size for source in corpus.sources)

    def run(self, donor: Vocabulary | None, pre: str, key: str) -> None:
        vocabulary = donor
        if donor is not None:
            donor.save(self.folder / _TOKENIZER)
        elif not self.corpus.is_pack:
            texts = (piece.text for piece in self._watched("vocabulary", pieces(self.corpus)))
            some = islice(texts, 0, None, -(-self.size // _TRAINED_ON))
            train_vocabulary(some, self.vocab, pre, self.folder / _TOKENIZER)
            vocabulary = Vocabulary(self.folder / _TOKENIZER)
        remark = self._write(vocabulary)
        sets = [TokenSet(self.folder / name) for name in (_TRAIN, _HELD_OUT)]
        if len(sets[0]) < 2:
            raise DataError(f"corpus {self.corpus.name}: it holds no text to train on")
        record = Record(
            corpus=printable(self.corpus.name),
            fingerprint=_fingerprint(key, vocabulary, sets),
            vocab=self.vocab,
            held_out=self.share.held_out,
            seed=self.share.seed,
            encoding=remark,
            text_bytes=(sets[0].bytes, sets[1].bytes),
        )
        write_file(self.folder / _RECORD, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")

    def _write(self, vocabulary: Vocabulary | None) -> str:
        """Both sets, by document; by passage where the documents are too few to hold one out. Returns a remark."""
        encoder = Encoder(vocabulary.tokenizer, vocabulary.metadata) if vocabulary and not self.corpus.is_pack else None
        end = vocabulary.end if vocabulary else None
        try:
            sides = self._write_sets(encoder, end, self.share)
        except _OtherIdsError:
            assert encoder is not None
            encoder.slow("the quick way gave other ids for a sample of this corpus")
            sides = self._write_sets(encoder, end, self.share)
        if self.share.held_out and not all(sides):
            share = self.share.cut(max(64, min(2048, int(sum(sides) * self.share.held_out / 2))))
            hashes = {share.hash(content) for content in self._contents(end, share)}
            if len(hashes) > 1:
                self._write_sets(encoder, end, share.fitted(hashes))
        return encoder.remark if encoder else ""

    def _write_sets(self, encoder: Encoder | None, end: int | None, share: Share) -> list[int]:
        """Write both files; returns the tokens of each side."""
        writers = [TokenSetWriter(self.folder / name, vocab=self.vocab, end=end) for name in (_TRAIN, _HELD_OUT)]
        side = -1
        try:
            with closing(self._encoded(encoder, end, share)) as parts:
                for part in parts:
                    if not part.proven:
                        raise _OtherIdsError
                    for opens, held_out, ids, n_bytes in part.pieces():
                        if opens or held_out != side:
                            side = int(held_out)
                            writers[side].open_document()
                        writers[side].add(ids, n_bytes)
            for writer in writers:
                writer.close()
        finally:
            for writer in writers:
                writer.discard()
        return [writer.tokens for writer in writers]

    def _encoded(self, encoder: Encoder | None, end: int | None, share: Share) -> Generator[Encoded, None, None]:
        if encoder is None:
            yield from encode_pack(self.corpus, self.vocab, end, share)
            return
        bundles = jobs(self._watched("tokens", pieces(self.corpus, share.passage)))
        size = crew_size(self.workers, self.size)
        if size == 1:
            yield from (encode(bundle, encoder, share) for bundle in bundles)
            return
        with Crew(size, self.folder / _TOKENIZER, share, encoder.remark) as crew:
            yield from crew.encode(bundles)

    def _contents(self, end: int | None, share: Share) -> Iterator[bytes]:
        if self.corpus.is_pack:
            yield from (ids for part in encode_pack(self.corpus, self.vocab, end, share) for ids in part.ids)
        else:
            yield from (piece.text.encode("utf-8") for piece in pieces(self.corpus, share.passage))

    def _watched(self, stage: str, found: Iterable[Piece]) -> Iterator[Piece]:
        """The same pieces, with progress told now and then."""
        done = told = 0
        self.progress(stage, 0, self.size)
        for piece in found:
            yield piece
            done += len(piece.text)
            if done - told >= _TOLD_EVERY:
                told = done
                self.progress(stage, min(done, self.size), self.size)
        self.progress(stage, self.size, self.size)


def _vocab(corpus: Corpus, donor: Vocabulary | None, vocab: int | None) -> int:
    """How many rows the embedding must have."""
    if donor is not None:
        if vocab is not None and vocab != donor.rows:
            raise DataError(f"--vocab {vocab} does not go with a tokenizer of {donor.rows} tokens: leave it out")
        return donor.rows
    if corpus.is_pack:
        size, most, kind = pack_vocab(corpus) if vocab is None else vocab, _MOST_IDS, "of a pack"
    else:
        size, most, kind = DEFAULT_VOCAB if vocab is None else vocab, _MOST_TRAINED, "trained on a corpus"
    if size > most:
        raise DataError(f"corpus {corpus.name}: a vocabulary {kind} has at most {most:,} tokens, found {size:,}")
    return size


def _slug(name: str) -> str:
    """A name for people, out of the corpus's."""
    return re.sub(r"[^A-Za-z0-9]+", "-", Path(name).name).strip("-").lower()[:40] or "corpus"


def _silent(stage: str, done: int, total: int) -> None:
    pass
