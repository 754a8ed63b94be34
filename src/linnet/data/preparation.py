"""The making of a prepared corpus: a vocabulary and two token sets, in a folder that nobody sees yet."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from linnet.data.chat_encoding import value_count
from linnet.data.conversations import from_json
from linnet.data.corpus import Corpus
from linnet.data.corpus_file import ReadingReport
from linnet.data.documents import Passage, passages
from linnet.data.duplicates import DuplicateFinder, Duplicates, without
from linnet.data.errors import DataError, left_out_sentence, printable
from linnet.data.packs import id_passages
from linnet.data.preferences import pair_from_json
from linnet.data.token_set import TokenSet, TokenSetWriter, token_dtype
from linnet.data.tokenizer import Vocabulary, train_vocabulary
from linnet.data.workers import (
    Encoded,
    HeldOutSplit,
    PassageEncoder,
    Workers,
    bundles,
    encode,
    n_workers,
    passage_encoder,
)
from linnet.files import write_file
from linnet.gguf.chat_format import ChatFormat, Message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PrepareProgress = Callable[[str, int, int], None]  # a stage, how much of it is done, how much there is
TRAIN, HELD_OUT, TOKENIZER, RECORD = "train.tokens", "held_out.tokens", "tokenizer.gguf", "prepared.json"
_TRAINED_ON = 50_000_000  # bytes of text that a tokenizer is trained on: more of it changes few merges
_REPORTED_EVERY = 1 << 20  # characters
_KEPT = "texts"  # of documents that are read more than once, while a corpus is prepared
OTHER_IDS = "the quick way gave other ids for a sample of this corpus"
FoundDuplicates: TypeAlias = "tuple[NDArray[np.bool_], Duplicates]"  # which documents are dropped, and what is told


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

    def write(self, folder: Path) -> None:
        """Write it into the folder it is about."""
        write_file(folder / RECORD, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def fingerprint(key: str, vocabulary: Vocabulary | None, sets: Iterable[TokenSet]) -> str:
    """A hash of all that a prepared folder holds."""
    parts = [key, vocabulary.fingerprint if vocabulary else "", *(tokens.fingerprint for tokens in sets)]
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Preparation:
    """One preparation, in a folder that nobody sees yet."""

    corpus: Corpus
    folder: Path
    vocab: int
    held_out: float
    seed: int
    workers: int | None
    progress: PrepareProgress
    similarity: float | None = None  # of documents that are dropped
    known_duplicates: FoundDuplicates | None = None  # found before, where the corpus is a part of another
    chat_format: ChatFormat | None = None  # of conversations

    @cached_property
    def report(self) -> ReadingReport:
        """What could not be read."""
        return ReadingReport(self.corpus.strict)

    @cached_property
    def duplicates(self) -> FoundDuplicates | None:
        """Which documents are dropped; None: none are looked for."""
        if self.similarity is None or self.known_duplicates is not None:
            return self.known_duplicates
        finder = DuplicateFinder(self.similarity)
        for passage in self._reported("duplicates", passages(self.corpus, None, self.report, self.kept)):
            finder.add(passage, self.report.number)
        return finder.found()

    @cached_property
    def kept(self) -> Path:
        """A folder for the text of documents that are read more than once."""
        kept = self.folder / _KEPT
        kept.mkdir(exist_ok=True)
        return kept

    def texts(self, size: int | None = None) -> Iterator[Passage]:
        """The passages of the corpus, without those of duplicates."""
        duplicates = self.duplicates
        read = passages(self.corpus, size, self.report, self.kept)
        return read if duplicates is None else without(read, duplicates[0])

    @cached_property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.corpus.files)

    def run(self, donor: Vocabulary | None, pre: str, key: str) -> None:
        """Fill the folder."""
        vocabulary = donor
        if donor is not None:
            donor.save(self.folder / TOKENIZER)
        elif not self.corpus.is_pack:
            vocabulary = self.train_vocabulary(pre)
        remark = self._write(vocabulary)
        sets = [TokenSet(self.folder / name) for name in (TRAIN, HELD_OUT)]
        if len(sets[0]) < 2:
            raise self._nothing_to_train_on()
        self.clear()
        record = Record(
            corpus=printable(self.corpus.name),
            fingerprint=fingerprint(key, vocabulary, sets),
            vocab=self.vocab,
            held_out=self.held_out,
            seed=self.seed,
            encoding=remark,
            text_bytes=(sets[0].bytes, sets[1].bytes),
            left_out=sorted(self.report.left_out.items()),
            encodings=sorted(self.report.encodings.items()),
            duplicates=self.duplicates[1] if self.duplicates is not None else None,
        )
        record.write(self.folder)

    def train_vocabulary(self, pre: str) -> Vocabulary:
        """A vocabulary of the corpus, or of every k-th passage of a large one."""
        texts = (passage.text for passage in self._reported("vocabulary", self.texts()))
        some: Iterable[str] = islice(texts, 0, None, -(-self.size // _TRAINED_ON))
        if self.chat_format is not None:
            first = next(iter(some), None)
            if first is None:
                raise self._nothing_to_train_on()
            some = (message.content for line in chain([first], some) for message in self._messages(line))
        train_vocabulary(some, self.vocab, pre, self.folder / TOKENIZER, self.chat_format)
        return Vocabulary(self.folder / TOKENIZER)

    def _messages(self, line: str) -> Iterator[Message]:
        """The messages of a conversation; of a pair those that both have once."""
        if self.corpus.rows != "preferences":
            yield from from_json(line)
            return
        pair = pair_from_json(line)
        yield from pair.chosen
        yield from pair.rejected[pair.shared :]

    def clear(self) -> None:
        """Remove the texts that were kept between passes."""
        shutil.rmtree(self.folder / _KEPT, ignore_errors=True)

    def _nothing_to_train_on(self) -> DataError:
        if len(self.corpus.files) == 1 and 0 in self.report.left_out:  # the reason first: there is one
            return DataError(f"corpus {self.corpus.name}: {self.report.left_out[0]}; nothing is left to train on")
        content = "text" if self.chat_format is None else "answers"
        left_out = [f"{self.corpus.shown_name(number)}: {why}" for number, why in self.report.left_out.items()]
        sentence = left_out_sentence([*self.corpus.left_out, *left_out], printable(self.corpus.name))
        why = f" ({sentence})" if sentence else ""
        return DataError(f"corpus {self.corpus.name}: it holds no {content} to train on{why}")

    def write_by_document(self, vocabulary: Vocabulary | None) -> str:
        """Both sets, by document, however few are held out: as of a part of a corpus. Returns a remark."""
        encoder = self._encoder(vocabulary)
        split = HeldOutSplit(int(self.held_out * 2**64), self.seed)
        self._write_sets(encoder, self._end(vocabulary), split)
        self.clear()
        return encoder.remark if encoder else ""

    def _write(self, vocabulary: Vocabulary | None) -> str:
        """Both sets, by document; by passage where the documents are too few to hold one out. Returns a remark."""
        encoder, end = self._encoder(vocabulary), self._end(vocabulary)
        split = HeldOutSplit(int(self.held_out * 2**64), self.seed)
        counts = self._write_sets(encoder, end, split)
        if self.held_out and not all(counts):
            split = replace(split, passage=max(64, min(2048, int(sum(counts) * self.held_out / 2))))
            hashes = {split.hash(content) for content in self._contents(end, split)}
            if len(hashes) > 1:  # at least one of them is held out, but not all
                limit = min(max(split.limit, min(hashes) + 1), max(hashes))
                self._write_sets(encoder, end, replace(split, limit=limit))
        return encoder.remark if encoder else ""

    def _encoder(self, vocabulary: Vocabulary | None) -> PassageEncoder | None:
        if vocabulary is None or self.corpus.is_pack:
            return None
        return passage_encoder(vocabulary, self.chat_format, self.corpus.rows)

    def _end(self, vocabulary: Vocabulary | None) -> int | None:
        """What stands between documents. Conversations begin and end as their format has it."""
        return vocabulary.end if vocabulary is not None and self.chat_format is None else None

    def _write_sets(self, encoder: PassageEncoder | None, end: int | None, split: HeldOutSplit) -> list[int]:
        """Write both files; returns how many tokens each has."""
        side = -1
        with ExitStack() as stack:
            paths = [self.folder / name for name in (TRAIN, HELD_OUT)]
            values = value_count(self.vocab, self.corpus.rows)
            writers = [stack.enter_context(TokenSetWriter(path, vocab=values, end=end)) for path in paths]
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
        encoder.slow(OTHER_IDS)
        return self._write_sets(encoder, end, split)

    def _encoded(
        self, encoder: PassageEncoder | None, end: int | None, split: HeldOutSplit
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
            tokenizer, rows = self.folder / TOKENIZER, self.corpus.rows
            with Workers(count, tokenizer, split, encoder.remark, self.chat_format, rows) as workers:
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
            if done - reported >= _REPORTED_EVERY and done < self.size:  # the end is told once
                reported = done
                self.progress(stage, done, self.size)
        self.progress(stage, self.size, self.size)
