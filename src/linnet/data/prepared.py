"""`prepare`: a corpus becomes two token sets and a tokenizer, made once and found again by what is in it."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from linnet.data.cache import cache_folder, content_hash, file_digests, folder_in_making
from linnet.data.corpus import PYTHON, Corpus, find_corpus
from linnet.data.duplicates import THRESHOLD, check_threshold
from linnet.data.errors import (
    DataError,
    duplicates_sentence,
    encodings_sentence,
    left_out_sentence,
    reason,
)
from linnet.data.packs import pack_vocab
from linnet.data.preparation import (
    HELD_OUT,
    RECORD,
    TOKENIZER,
    TRAIN,
    Preparation,
    PrepareProgress,
    Record,
    fingerprint,
)
from linnet.data.token_set import TokenSet, content_digest
from linnet.data.tokenizer import FewTokensError, Vocabulary
from linnet.errors import LinnetError, mismatch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf.file import GGUFFile
    from linnet.gguf.metadata import MetadataBlock

DEFAULT_VOCAB, DEFAULT_PRE, DEFAULT_HELD_OUT = 4096, "gpt-2", 0.02
_FORMAT = 1  # a part of the key: raised when the same input would give other tokens
_MOST_TRAINED = 1 << 24  # tokens of a vocabulary; the trainer allocates for all that are asked for
_MOST_IDS = 1 << 31  # ids of 32 bits with a sign


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
            self.record = msgspec.json.decode((path / RECORD).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}: not a prepared corpus: {mismatch(error)}; delete the folder and prepare it again"
            ) from None
        self.train = TokenSet(path / TRAIN)
        self.held_out = TokenSet(path / HELD_OUT)
        self.vocab: int = self.record.vocab
        self.fingerprint: str = self.record.fingerprint
        # None for a pack prepared without one
        self.vocabulary = Vocabulary(path / TOKENIZER) if (path / TOKENIZER).exists() else None

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
    pre: str = DEFAULT_PRE,
    held_out: float = DEFAULT_HELD_OUT,
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
    key = _key(source, content, words, size, held_out, seed, similarity)
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
                preparation = Preparation(source, folder, size, held_out, seed, workers, progress or quiet, similarity)
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


def corpus_vocabulary(
    source: Corpus,
    *,
    vocab: int | None = None,
    similarity: float | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: PrepareProgress | None = None,
) -> tuple[Vocabulary, bool]:
    """The vocabulary that `prepare` trains on a corpus, to look at; and whether it was found in the cache.

    Where the corpus cannot give so many tokens, it has as many as that gives. It is not kept.
    """
    root, size = cache_folder(cache), _vocab(source, None, vocab)
    key = _key(source, content_hash(source, root), DEFAULT_PRE, size, DEFAULT_HELD_OUT, 0, similarity)
    with suppress(LinnetError):
        if (prepared := _opened(root, root / f"{_slug(source.name)}-{key}", key, size, True)) is not None:
            assert prepared.vocabulary is not None
            return prepared.vocabulary, True
    with tempfile.TemporaryDirectory(prefix="linnet-") as name:
        quiet: PrepareProgress = lambda *_: None  # noqa: E731
        looked = Preparation(source, Path(name), size, 0.0, 0, 1, progress or quiet, similarity)
        try:
            return looked.train_vocabulary(DEFAULT_PRE), False
        except FewTokensError as error:
            return replace(looked, vocab=error.reached).train_vocabulary(DEFAULT_PRE), False


def _key(
    source: Corpus,
    content: str,
    words: str | None,
    size: int,
    held_out: float,
    seed: int,
    similarity: float | None,
) -> str:
    """The name of a preparation: a hash of what the files hold and of all settings."""
    settings = [_FORMAT, content, source.field, words, size, held_out, seed]
    if similarity is not None:
        settings.append({"dedup": similarity})
    return hashlib.blake2b(msgspec.json.encode(settings), digest_size=12).hexdigest()


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
        raise DataError(f"{target / TOKENIZER}: it is {'missing' if has_tokenizer else 'none of this corpus'}")
    end = prepared.vocabulary.end if prepared.vocabulary else None
    text_bytes = tuple(tokens.bytes for tokens in sets)
    if (
        prepared.fingerprint != fingerprint(key, prepared.vocabulary, sets)
        or {prepared.vocab, *(tokens.vocab for tokens in sets)} != {vocab}
        or {tokens.end for tokens in sets} != {end}
        or (prepared.record.text_bytes or text_bytes) != text_bytes
    ):
        raise DataError(f"{target / RECORD}: it does not belong to the files beside it")
    return prepared


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
