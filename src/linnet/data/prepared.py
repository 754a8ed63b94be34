"""`prepare`: a corpus becomes two token sets and a tokenizer, made once and found again by what is in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from linnet.data.cache import cache_folder, content_hash, file_digests, folder_in_making
from linnet.data.chat_encoding import VALUES_OF_AN_ID, value_count
from linnet.data.corpus import PYTHON, Corpus, RowKind
from linnet.data.errors import (
    DataError,
    duplicates_sentence,
    encodings_sentence,
    left_out_sentence,
    reason,
)
from linnet.data.preparation import HELD_OUT, RECORD, TOKENIZER, TRAIN, PrepareProgress, Record, fingerprint
from linnet.data.request import DEFAULT_HELD_OUT, DEFAULT_PRE, PrepareOptions, Request, vocabulary_rows
from linnet.data.token_set import TokenSet, content_digest
from linnet.data.tokenizer import FewTokensError, Vocabulary
from linnet.errors import LinnetError, mismatch
from linnet.gguf.chat_families import AUTO

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf.file import GGUFFile
    from linnet.gguf.metadata import MetadataBlock


class Prepared:
    """A corpus ready to train on, opened from its folder.

    - `left_out`: files of the corpus that were not read, or not to their end, each with the reason.
    - `encodings`: files that are in another encoding than UTF-8, by the encoding.
    - `dropped`: documents that were dropped because they are like others: `b.txt: equal to a.txt`.
    - `damage`: what was wrong with the folder that was found in the cache, where one was made anew; else empty.
    - `remark_of_rows`: what its owner should know of what its rows were taken for.
    - `note`: what else its owner should know of how it was made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out: tuple[str, ...] = ()
        self.encodings: dict[str, list[str]] = {}
        self.dropped: tuple[str, ...] = ()
        self.damage = self.note = self.remark_of_rows = ""
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
        sentences = [
            damage,
            self.note,
            self.remark_of_rows,
            left_out_sentence(self.left_out, self.record.corpus),
            encodings_sentence(self.encodings),
        ]
        if self.record.duplicates is not None:
            sentences.append(duplicates_sentence(self.record.duplicates, self.dropped))
        return tuple(sentence for sentence in sentences if sentence)

    def tell(self, corpus: Corpus) -> None:
        """Name what the record says of the files of its corpus, which may lie elsewhere by now."""
        read = [f"{corpus.shown_name(number)}: {problem}" for number, problem in self.record.left_out]
        self.left_out = (*corpus.left_out, *read)
        self.encodings = corpus.encodings(self.record.encodings)
        self.remark_of_rows = corpus.remark
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
    def is_chat(self) -> bool:
        """Whether it holds conversations, whose sets tell which tokens are trained on."""
        return self.rows == "conversations"

    @property
    def rows(self) -> RowKind:
        """What it holds: the values that its sets can have tell."""
        times = self.train.vocab // self.vocab if self.vocabulary is not None else 1
        return next((kind for kind, values in VALUES_OF_AN_ID.items() if values == times), "text")

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
    rows: RowKind | None = None,
    chat_format: str = AUTO,
) -> Prepared:
    """Prepare a corpus, or open it where that was done before.

    `tokenizer` is a GGUF whose tokenizer is taken; without one a byte-level BPE of `vocab` tokens (4096) is trained
    that cuts words as `pre` says. `held_out` is the share of documents kept from training, chosen by a hash of their
    text. `field` names the text in JSONL, CSV and Parquet; `("*.csv=text", "body")` has another one for some files.
    `dedup` drops documents that are like an earlier one: whose runs of five words agree to `dedup_threshold` (0.8); 1:
    equal ones only. `plain` reads HTML, CSV and other documents as the text they are written in.
    `rows` says what rows of JSONL, CSV and Parquet are, texts, conversations or preferences; else it is told by the
    keys of the first. Conversations are written in `chat_format`, that of the tokenizer by default, and their set tells
    which tokens are trained on (`chat_encoding`).
    `progress(stage, done, total)` is told bytes, now and then.
    """
    options: PrepareOptions = {
        "vocab": vocab,
        "tokenizer": tokenizer,
        "pre": pre,
        "held_out": held_out,
        "field": field,
        "dedup": dedup,
        "dedup_threshold": dedup_threshold,
        "plain": plain,
        "cache": cache,
        "workers": workers,
        "progress": progress,
        "seed": seed,
        "rows": rows,
        "chat_format": chat_format,
    }
    return prepare_whole(Request.of(corpus, options))


def prepare_whole(request: Request) -> Prepared:
    """Prepare what is asked for, or open it where that was done before."""
    source, root = request.source, request.root
    source.complete(progress=request.progress)
    content = content_hash(source, root)
    key = request.key(content)
    target, existing = request.folder(key), ExistingFolder(request, key)
    prepared = existing.opened()
    if prepared is None:
        with folder_in_making(root, target, key, existing.is_usable) as folder:
            if folder is not None:
                try:
                    request.preparation(folder).run(request.donor, request.pre, key)
                except MemoryError:
                    raise DataError(f"corpus {source.name}: there is not enough memory to prepare it") from None
                if content_hash(source, root) != content:
                    raise DataError(f"corpus {source.name}: it changed while it was prepared; start again")
        prepared = Prepared(target)
    prepared.damage = existing.damage
    prepared.tell(source)
    return prepared


class ExistingFolder:
    """The folder that a preparation would fill, where it was filled before; `damage`: what is wrong with it."""

    def __init__(self, request: Request, key: str) -> None:
        self._request, self._key = request, key
        self.damage = ""

    def opened(self) -> Prepared | None:
        """It, held against what was written; None where there is none, or it is damaged."""
        request = self._request
        try:
            return _opened(request, self._key)
        except (LinnetError, MemoryError) as error:
            self.damage = str(error).partition(";")[0] or "it needs more memory than there is"  # what to do is done
            return None

    def is_usable(self) -> bool:
        """Whether it is there and sound."""
        return self.opened() is not None


def corpus_vocabulary(
    source: Corpus,
    *,
    vocab: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> tuple[Vocabulary, bool]:
    """The vocabulary that `prepare` trains on a corpus, to look at; and whether it was found in the cache.

    Where the corpus cannot give so many tokens, it has as many as that gives. It is not kept.
    """
    source.complete()
    root, size = cache_folder(cache), vocabulary_rows(source, None, vocab)
    request = Request(source, root, size, workers=1)
    prepared = ExistingFolder(request, request.key(content_hash(source, root))).opened()
    if prepared is not None:
        assert prepared.vocabulary is not None
        return prepared.vocabulary, True
    with tempfile.TemporaryDirectory(prefix="linnet-") as name:
        preparation = request.preparation(Path(name))
        try:
            return preparation.train_vocabulary(DEFAULT_PRE), False
        except FewTokensError as error:
            return replace(preparation, vocab=error.reached).train_vocabulary(DEFAULT_PRE), False


def _opened(request: Request, key: str) -> Prepared | None:
    """A prepared folder, held against what was written; None when there is none, DataError when it is damaged.

    The tokens are held against the digests in their headers (and read for it only when the files changed, see
    `file_digests`), those and the tokenizer against the fingerprint of the record, and all against what is asked for.
    """
    target = request.folder(key)
    if not os.path.lexists(target):
        return None
    prepared = Prepared(target)
    sets = (prepared.train, prepared.held_out)
    try:
        require_intact(sets, request.root, key)
    except OSError as error:
        raise DataError(f"{target}: it cannot be read: {reason(error)}") from None
    if request.has_tokenizer != (prepared.vocabulary is not None):
        raise DataError(f"{target / TOKENIZER}: it is {'missing' if request.has_tokenizer else 'none of this corpus'}")
    end = prepared.vocabulary.end if prepared.vocabulary and request.chat_format is None else None
    text_bytes = tuple(tokens.bytes for tokens in sets)
    if (
        prepared.fingerprint != fingerprint(key, prepared.vocabulary, sets)
        or prepared.vocab != request.vocab
        or {tokens.vocab for tokens in sets} != {value_count(request.vocab, request.source.rows)}
        or {tokens.end for tokens in sets} != {end}
        or (prepared.record.text_bytes or text_bytes) != text_bytes
    ):
        raise DataError(f"{target / RECORD}: it does not belong to the files beside it")
    return prepared


def require_intact(sets: Iterable[TokenSet], root: Path, name: str) -> None:
    """Hold token sets against the digests that they state; read for it only when they have changed."""
    stated = [item for tokens in sets for item in zip(tokens.files, tokens.digests, strict=True)]
    digests = file_digests([path for path, _ in stated], root, name, content_digest)
    for (path, expected), digest in zip(stated, digests, strict=True):
        if digest != expected:
            raise DataError(f"{path}: it does not hold what was written")
