"""What is asked of a preparation: the corpus as it lies there, and all settings that decide its tokens."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec

from linnet.data.cache import cache_folder
from linnet.data.corpus import Corpus, RowKind, find_corpus
from linnet.data.documents import END_OF_TEXT
from linnet.data.duplicates import THRESHOLD, check_threshold
from linnet.data.errors import DataError
from linnet.data.packs import pack_vocab
from linnet.data.preparation import FoundDuplicates, Preparation, PrepareProgress
from linnet.data.row_kinds import with_rows
from linnet.data.tokenizer import Vocabulary
from linnet.gguf.chat_families import AUTO, chat_format_of, family_of_template, own_format
from linnet.gguf.chat_format import ChatFormat
from linnet.gguf.errors import GGUFError

if TYPE_CHECKING:
    from linnet.gguf.file import GGUFFile

DEFAULT_VOCAB, DEFAULT_PRE, DEFAULT_HELD_OUT = 4096, "gpt-2", 0.02
_FORMAT = 1  # a part of the key: raised when the same input would give other tokens
_MOST_TRAINED = 1 << 24  # tokens of a vocabulary; the trainer allocates for all that are asked for
_MOST_IDS = 1 << 31  # ids of 32 bits with a sign


class PrepareOptions(TypedDict, total=False):
    """The arguments of `prepare` besides the corpus; explained there."""

    vocab: int | None
    tokenizer: str | os.PathLike[str] | GGUFFile | None
    pre: str
    held_out: float
    field: str | Sequence[str]
    dedup: bool
    dedup_threshold: float | None
    plain: bool | None
    cache: str | os.PathLike[str] | None
    workers: int | None
    progress: PrepareProgress | None
    seed: int
    rows: RowKind | None
    chat_format: str


@dataclass(frozen=True)
class Request:
    """A corpus that was found, and how it is to be prepared."""

    source: Corpus
    root: Path  # of the cache
    vocab: int
    donor: Vocabulary | None = None
    pre: str = DEFAULT_PRE
    held_out: float = DEFAULT_HELD_OUT
    seed: int = 0
    similarity: float | None = None  # of documents that are dropped; None: none are
    workers: int | None = None
    progress: PrepareProgress = lambda *_: None
    chat_format: ChatFormat | None = None  # of conversations

    @classmethod
    def of(cls, corpus: str | os.PathLike[str], options: PrepareOptions) -> Request:
        """From the arguments of `prepare`; what cannot be done is a DataError."""
        held_out, tokenizer = options.get("held_out", DEFAULT_HELD_OUT), options.get("tokenizer")
        if not 0 <= held_out < 1:
            raise DataError(
                f"held_out is the share of the text kept for evaluation, from 0 to below 1; found {held_out}"
            )
        root = cache_folder(options.get("cache"))
        field, name = options.get("field", "text"), options.get("chat_format", AUTO)
        source = find_corpus(corpus, field, plain=options.get("plain", False), cache=root)
        source = with_rows(source, options.get("rows"), has_field=bool(field) and field != "text")
        similarity = _similarity(source, options.get("dedup", False), options.get("dedup_threshold"))
        donor = Vocabulary(tokenizer) if tokenizer is not None else None
        chat_format = None
        if source.rows != "text":
            donor, chat_format = _with_chats(donor, tokenizer, name)
        return cls(
            source,
            root,
            vocabulary_rows(source, donor, options.get("vocab")),
            donor,
            options.get("pre", DEFAULT_PRE),
            held_out,
            options.get("seed", 0),
            similarity,
            options.get("workers"),
            options.get("progress") or cls.progress,
            chat_format,
        )

    @property
    def has_tokenizer(self) -> bool:
        """Whether the result has one: a pack that was given none has none."""
        return self.donor is not None or not self.source.is_pack

    def settings(self, content: str) -> list[object]:
        """All that decides the tokens, with what the files hold."""
        words = self.donor.fingerprint if self.donor else None if self.source.is_pack else self.pre
        settings = [_FORMAT, content, self.source.field, words, self.vocab, self.held_out, self.seed]
        if self.similarity is not None:
            settings.append({"dedup": self.similarity})
        if self.chat_format is not None:
            settings.append({self.source.rows: self.chat_format})
        return settings

    def key(self, content: str) -> str:
        """The name of a preparation: a hash of what the files hold and of all settings."""
        return hashlib.blake2b(msgspec.json.encode(self.settings(content)), digest_size=12).hexdigest()

    def folder(self, key: str) -> Path:
        """Where a preparation is kept."""
        return self.root / f"{self.slug}-{key}"

    @property
    def slug(self) -> str:
        """The corpus's name as a part of a file's."""
        return re.sub(r"[^A-Za-z0-9]+", "-", Path(self.source.name).name).strip("-").lower()[:40] or "corpus"

    def preparation(
        self, folder: Path, corpus: Corpus | None = None, duplicates: FoundDuplicates | None = None
    ) -> Preparation:
        """What fills a folder, with the whole corpus or a part of it."""
        return Preparation(
            self.source if corpus is None else corpus,
            folder,
            self.vocab,
            self.held_out,
            self.seed,
            self.workers,
            self.progress,
            self.similarity,
            duplicates,
            self.chat_format,
        )


def vocabulary_rows(corpus: Corpus, donor: Vocabulary | None, vocab: int | None) -> int:
    """How many rows the embedding must have."""
    if donor is not None:
        if vocab is not None and vocab != donor.rows:
            raise DataError(f"`vocab={vocab}` does not go with a tokenizer of {donor.rows} tokens: leave it out")
        return donor.rows
    if corpus.is_pack:
        corpus.complete()
        size, most, kind = pack_vocab(corpus) if vocab is None else vocab, _MOST_IDS, "of a pack"
    else:
        size, most, kind = DEFAULT_VOCAB if vocab is None else vocab, _MOST_TRAINED, "trained on a corpus"
    if size > most:
        raise DataError(f"corpus {corpus.name}: a vocabulary {kind} has at most {most:,} tokens, found {size:,}")
    return size


def _with_chats(
    donor: Vocabulary | None, tokenizer: str | os.PathLike[str] | GGUFFile | None, name: str
) -> tuple[Vocabulary | None, ChatFormat]:
    """How conversations are written: as the donor's chats, else with special tokens of their own.

    The donor's vocabulary gets a template for other programs where its own is not of this format, or missing.
    """
    try:
        if donor is None or tokenizer is None:
            return None, own_format(name, END_OF_TEXT)
        written = chat_format_of(donor.metadata, name)
    except GGUFError as error:
        raise DataError(f"{error}") from None
    template = donor.metadata.get("tokenizer.chat_template")
    is_told = isinstance(template, str) and family_of_template(template) == written.name
    if is_told or not written.has_template:
        return donor, written
    return Vocabulary(tokenizer, written.chat_template()), written


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
