"""Pieces of a corpus as token ids, each sent to the training or the held-out side by a hash of what it holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.corpus import Corpus
from linnet.data.documents import Piece
from linnet.data.packs import sequences

if TYPE_CHECKING:
    from linnet.data.encoder import Encoder

_JOB = 1 << 19  # characters encoded at a time
_SAMPLE = 1 << 11  # characters of each job that are held against `tokenizers`: costs 2 %


@dataclass(frozen=True)
class Share:
    """Which pieces are held out: those whose hash is low. So a document's side depends on nothing but itself."""

    held_out: float
    seed: int
    limit: int = -1
    passage: int | None = None  # cut documents into passages of this size, where there are too few to choose from

    def __post_init__(self) -> None:
        if self.limit < 0:
            object.__setattr__(self, "limit", int(self.held_out * 2**64))

    def hash(self, content: bytes) -> int:
        """A number below 2^64 that `limit` is compared with."""
        salt = hashlib.blake2b(str(self.seed).encode(), digest_size=16).digest()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=salt).digest(), "little")

    def takes(self, content: bytes) -> bool:
        """Whether a piece is held out."""
        return self.hash(content) < self.limit

    def cut(self, passage: int) -> Share:
        """The same share of passages instead of documents."""
        return replace(self, passage=passage)

    def fitted(self, hashes: set[int]) -> Share:
        """Moved so that of these pieces at least one, but not all, is held out."""
        low, high = min(hashes), max(hashes)
        return replace(self, limit=min(max(self.limit, low + 1), high))


@dataclass
class Encoded:
    """Pieces after encoding, in order."""

    opens: list[bool] = field(default_factory=list)
    held_out: list[bool] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    n_bytes: list[int] = field(default_factory=list)
    proven: bool = True  # the sample of it gave the ids that `tokenizers` gives

    def add(self, opens: bool, held_out: bool, ids: bytes, n_bytes: int) -> None:
        """Append one piece."""
        self.opens.append(opens)
        self.held_out.append(held_out)
        self.ids.append(ids)
        self.n_bytes.append(n_bytes)

    def pieces(self) -> Iterator[tuple[bool, bool, bytes, int]]:
        """What was added."""
        return zip(self.opens, self.held_out, self.ids, self.n_bytes, strict=True)


def encode(pieces: Iterable[Piece], encoder: Encoder, share: Share) -> Encoded:
    """Encode some pieces, the beginning of the first of them with `tokenizers` too."""
    pieces = list(pieces)
    out = Encoded(proven=encoder.agrees(pieces[0].text[:_SAMPLE]))
    for piece in pieces:
        content = piece.text.encode("utf-8")
        out.add(piece.opens, share.takes(content), encoder.encode(piece.text), len(content))
    return out


def encode_pack(corpus: Corpus, vocab: int, end: int | None, share: Share) -> Iterator[Encoded]:
    """The sequences of a pack, as they are."""
    kind = np.dtype("<u2" if vocab <= 1 << 16 else "<u4")
    for ids, opens in sequences(corpus, vocab, end, share.passage):
        content, out = ids.astype(kind).tobytes(), Encoded()
        out.add(opens, share.takes(content), content, 0)
        yield out


def jobs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in bundles that are worth handing over."""
    bundle: list[Piece] = []
    size = 0
    for piece in pieces:
        bundle.append(piece)
        size += len(piece.text)
        if size >= _JOB:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle
