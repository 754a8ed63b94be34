"""Passages to token ids, on one core or on all, each for training or held out by a hash of what it holds.

Workers are plain child processes of this module, not of `multiprocessing`, which would run the user's script once more
in each of them. They read passages from a pipe and answer with ids, in order. A worker ends when its pipe ends, so none
outlives a killed parent.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol

from linnet.data.chat_encoding import ConversationEncoder, PreferenceEncoder
from linnet.data.documents import Passage
from linnet.data.errors import DataError
from linnet.data.tokenizer import Vocabulary
from linnet.gguf.chat_format import ChatFormat

if TYPE_CHECKING:
    from linnet.data.corpus import RowKind

BUNDLE = 1 << 19  # characters encoded at a time
_SAMPLE = 1 << 11  # characters of each bundle that are held against `tokenizers`: costs 2 %
_WORTH = 16 << 20  # bytes of text that repay the start of one more worker


@dataclass(frozen=True)
class HeldOutSplit:
    """Which passages are held out: those whose hash is below `limit`. So a document's side depends on itself alone."""

    limit: int  # of 2^64
    seed: int
    passage: int | None = None  # cut documents into passages of this size, where there are too few to choose from

    def hash(self, content: bytes) -> int:
        """A number below 2^64 that `limit` is compared with."""
        salt = hashlib.blake2b(str(self.seed).encode(), digest_size=16).digest()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=salt).digest(), "little")

    def takes(self, content: bytes) -> bool:
        """Whether a passage is held out."""
        return self.hash(content) < self.limit


class PassageEncoder(Protocol):
    """What makes ids of passages: an `Encoder` of texts, or a `ConversationEncoder`."""

    @property
    def remark(self) -> str:
        """Why all is left to `tokenizers`, where it is."""

    def slow(self, why: str) -> None:
        """Leave all to `tokenizers` from here on."""

    def agrees(self, text: str) -> bool:
        """Whether the ids of a text are those that `tokenizers` gives."""

    def encode(self, text: str) -> bytes:
        """The ids of a passage, as bytes."""


def passage_encoder(vocabulary: Vocabulary, chat_format: ChatFormat | None, rows: RowKind = "text") -> PassageEncoder:
    """What encodes the passages of a corpus: texts, or conversations or pairs of them in a format."""
    if chat_format is None:
        return vocabulary.encoder()
    return (PreferenceEncoder if rows == "preferences" else ConversationEncoder)(vocabulary, chat_format)


class Encoded(NamedTuple):
    """A passage as token ids."""

    opens: bool
    held_out: bool
    ids: bytes
    n_bytes: int  # of its text


def encode(bundle: list[Passage], encoder: PassageEncoder, split: HeldOutSplit) -> list[Encoded] | None:
    """Encode some passages; None where `tokenizers` gives other ids for the beginning of the first."""
    if not encoder.agrees(bundle[0].text[:_SAMPLE]):
        return None
    contents = (passage.text.encode("utf-8") for passage in bundle)
    return [
        Encoded(passage.opens, split.takes(content), encoder.encode(passage.text), len(content))
        for passage, content in zip(bundle, contents, strict=True)
    ]


def bundles(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    """Passages in lists that are worth handing over."""
    bundle: list[Passage] = []
    size = 0
    for passage in passages:
        bundle.append(passage)
        size += len(passage.text)
        if size >= BUNDLE:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle


def n_workers(requested: int | None, n_bytes: int) -> int:
    """How many processes to encode with: as asked, else by cores and text."""
    if requested is not None:
        return max(1, requested)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, n_bytes // _WORTH))


class Workers:
    """`with Workers(2, "tokenizer.gguf", split) as workers: for encoded in workers.encode(bundles): ...`

    `slow` is the encoder's remark where all is left to `tokenizers`, else empty; `chat_format`: of conversations, whose
    `rows` may be pairs of them.
    """

    def __init__(
        self,
        count: int,
        tokenizer: Path,
        split: HeldOutSplit,
        slow: str = "",
        chat_format: ChatFormat | None = None,
        rows: RowKind = "text",
    ) -> None:
        command = f"import sys; sys.path[:] = {sys.path!r}; from linnet.data.workers import work; work()"
        self._processes = [
            subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(count)
        for process in self._processes:
            _send(process, (tokenizer, split, slow, chat_format, rows))
            self._idle.put(process)

    def encode(self, bundles: Iterable[list[Passage]]) -> Iterator[list[Encoded] | None]:
        """Each bundle's ids, in the order of the bundles; a few are under way at a time."""
        under_way: deque[Future[list[Encoded] | None]] = deque()
        for bundle in bundles:
            under_way.append(self._threads.submit(self._encode, bundle))
            if len(under_way) > 2 * len(self._processes):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()  # nothing of theirs is needed any more, and a blocked pipe would keep the threads waiting
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def _encode(self, bundle: list[Passage]) -> list[Encoded] | None:
        process = self._idle.get()
        _send(process, bundle)
        assert process.stdout is not None
        try:
            answer: list[Encoded] | None = pickle.load(process.stdout)
            return answer
        except (EOFError, pickle.UnpicklingError):
            raise DataError(
                f"a worker process ended before its work was done (exit code {process.wait()}): out of memory?"
                " Try `workers=1`"
            ) from None
        finally:
            self._idle.put(process)


def work() -> None:
    """What a worker does until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        tokenizer, split, slow, chat_format, rows = pickle.load(requests)
        encoder = passage_encoder(Vocabulary(tokenizer), chat_format, rows)
        if slow:
            encoder.slow(slow)
        while True:
            pickle.dump(encode(pickle.load(requests), encoder, split), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        os._exit(0)  # the parent is gone or done; there is nothing to flush
    except MemoryError:
        os._exit(1)  # the parent says so


def _send(process: subprocess.Popen[bytes], value: object) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(value, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it is dead, and its missing answer says so
