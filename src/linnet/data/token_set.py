"""A token set on disk: one file, memory-mapped, or several that are read as one. docs/data.md has the formats.

magic "LINNETTK" · u32 version · u32 bytes a token · u64 tokens · u64 documents · u64 bytes of text
u32 vocabulary · u32 end-of-text id · 32 bytes BLAKE2b of tokens and offsets
version 1: zeros up to byte 128 · tokens, u16 or u32 · zeros to a multiple of 8
version 2: u32 segments · 32 bytes BLAKE2b of this file · zeros up to byte 128 · for each segment the tokens taken of
           it, u64, and its BLAKE2b; the tokens themselves lie in files of version 1 beside it, `<name>.<number>.tokens`
both:      document offsets, u64, one more than there are documents
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet.data.errors import DataError, reason
from linnet.data.segments import Segment, SegmentedTokens
from linnet.files import sync_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"LINNETTK"
VERSION, JOINED_VERSION = 1, 2
NO_END = 0xFFFFFFFF  # the set has no end-of-text token (a pack whose vocabulary is unknown)
_HEADER = struct.Struct("<8sIIQQQII32s")
_INDEX = struct.Struct("<I32s")  # behind the header of a joined set
_SEGMENT = struct.Struct("<Q32s")
_START = 128
_BLOCK = 1 << 20


class TokenSetHeader(NamedTuple):
    """What the first 128 bytes of a token set say."""

    version: int
    width: int  # bytes a token
    tokens: int
    documents: int
    text_bytes: int
    vocab: int
    end: int | None
    digest: bytes
    segments: int = 0
    checksum: bytes = b""

    @property
    def offsets_at(self) -> int:
        """Where the offsets of the documents begin."""
        if self.version == JOINED_VERSION:
            return _START + self.segments * _SEGMENT.size
        return _aligned(_START + self.tokens * self.width)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.offsets_at + (self.documents + 1) * 8

    def to_bytes(self) -> bytes:
        """The first 128 bytes."""
        end = NO_END if self.end is None else self.end
        counts = (self.width, self.tokens, self.documents, self.text_bytes, self.vocab, end)
        head = _HEADER.pack(MAGIC, self.version, *counts, self.digest)
        if self.version == JOINED_VERSION:
            head += _INDEX.pack(self.segments, self.checksum)
        return head.ljust(_START, b"\0")


def read_header(path: Path) -> TokenSetHeader:
    """The header of a token set; a file that is none, or whose size does not follow from it, is a DataError."""
    try:
        with path.open("rb") as file:
            head = file.read(_START)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DataError(f"{path}: the token set cannot be read: {reason(error)}") from None
    if len(head) < _START or head[:8] != MAGIC:
        raise DataError(f"{path}: not a token set of Linnet; expected it to begin with {MAGIC.decode()}")
    _, version, width, tokens, documents, n_bytes, vocab, end, digest = _HEADER.unpack_from(head)
    if version not in (VERSION, JOINED_VERSION) or width not in (2, 4):
        raise DataError(
            f"{path}: token set version {version} with {width} bytes a token;"
            f" expected version {VERSION} or {JOINED_VERSION} with 2 or 4: prepare the corpus again"
        )
    index = _INDEX.unpack_from(head, _HEADER.size) if version == JOINED_VERSION else (0, b"")
    last = None if end == NO_END else end
    header = TokenSetHeader(version, width, tokens, documents, n_bytes, vocab, last, digest, *index)
    if size != header.size:
        raise DataError(
            f"{path}: the token set is cut short or grown: {tokens} tokens and {documents} documents"
            f" take {header.size} bytes, found {size}; delete it and prepare the corpus again"
        )
    return header


class TokenSet:
    """Tokens and where their documents lie.

    Document `i` is opened by the end-of-text token at `documents[i]` and runs up to `documents[i + 1]`, where the next
    one is opened; the last token of all closes the last document. So `tokens[d : e]` are what the model reads of a
    document and `tokens[d + 1 : e + 1]` what it has to say.

    - `files`: all files of the set; `digests`: what each states to hold.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        header = read_header(self.path)
        self.bytes, self.vocab, self.end = header.text_bytes, header.vocab, header.end
        self.fingerprint: str = header.digest.hex()
        self.files, self.digests = [self.path], [self.fingerprint]
        self.tokens: NDArray[Any] | SegmentedTokens
        if header.version == VERSION:
            self.segments = [_mapped(self.path, header)]
            self.tokens = self.segments[0].tokens
        else:
            self.segments = self._joined(header)
            self.tokens = SegmentedTokens([segment.tokens for segment in self.segments], _dtype(header.width))
        self.documents: NDArray[np.uint64] = np.memmap(
            self.path, "<u8", "r", header.offsets_at, (header.documents + 1,)
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<TokenSet {self.path}: {len(self)} tokens in {len(self.documents) - 1} documents>"

    @property
    def longest(self) -> int:
        """Tokens of the longest document, with what opens it."""
        begins = np.asarray(self.documents).astype(np.int64)
        return int(np.diff(begins).max(initial=0)) + 1

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of one document, without the end-of-text tokens round it."""
        first, last = int(self.documents[index]), int(self.documents[index + 1])
        if self.end is not None:
            return self.tokens[first + 1 : last]
        return self.tokens[first : last + 1] if index + 2 == len(self.documents) else self.tokens[first:last]

    def _joined(self, header: TokenSetHeader) -> list[Segment]:
        """The files that a joined set consists of; one that is not the one it was joined from is a DataError."""
        with self.path.open("rb") as file:
            file.seek(_START)
            table = list(_SEGMENT.iter_unpack(file.read(header.segments * _SEGMENT.size)))
        segments = []
        for number, (tokens, digest) in enumerate(table, 1):
            path = segment_path(self.path, number)
            part = read_header(path)
            own = (part.version, part.width, part.vocab, part.end, part.digest)
            if own != (VERSION, header.width, header.vocab, header.end, digest) or tokens > part.tokens:
                raise DataError(f"{path}: it is not the part that {self.path.name} was joined from")
            self.files.append(path)
            self.digests.append(digest.hex())
            segments.append(_mapped(path, part._replace(tokens=tokens)))
        if sum(len(segment.tokens) for segment in segments) != header.tokens:
            raise DataError(f"{self.path}: its parts do not hold {header.tokens} tokens together")
        return segments


def _mapped(path: Path, header: TokenSetHeader) -> Segment:
    tokens = np.memmap(path, _dtype(header.width), "r", _START, (header.tokens,))
    return Segment(tokens, tokens._mmap, _START)  # type: ignore[attr-defined]


def segment_path(path: Path, number: int) -> Path:
    """Where a part of a joined set lies: `train.tokens` has `train.1.tokens`, `train.2.tokens`, …"""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def token_dtype(vocab: int) -> np.dtype[Any]:
    """What the ids of a vocabulary are stored as."""
    return _dtype(2 if vocab <= 1 << 16 else 4)


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{width}")


def content_digest(path: Path) -> str:
    """The BLAKE2b-256 of the tokens and offsets a file holds, which its header should state.

    That of a joined set is vouched for by the checksum of its index, which has the digest of each part.
    """
    header = read_header(path)
    if header.version == JOINED_VERSION:
        content = path.read_bytes()[_START:]
        return header.digest.hex() if header.checksum == _checksum(header, content) else "damaged"
    digest = hashlib.blake2b(digest_size=32)
    hash_tokens(digest, path, header.tokens * header.width)
    with path.open("rb") as file:
        file.seek(header.offsets_at)
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def hash_tokens(digest: hashlib.blake2b, path: Path, n_bytes: int) -> None:
    """Add the first bytes of a file's tokens to a digest."""
    with path.open("rb") as file:
        file.seek(_START)
        while n_bytes and (block := file.read(min(n_bytes, _BLOCK))):
            digest.update(block)
            n_bytes -= len(block)


def _checksum(header: TokenSetHeader, content: bytes) -> bytes:
    counts = header._replace(checksum=bytes(32)).to_bytes()
    return hashlib.blake2b(counts + content, digest_size=32).digest()


def write_joined(path: Path, parts: Sequence[TokenSet]) -> None:
    """Make one set of several, which lie at `segment_path(path, number)`: an index of them, and their documents.

    It reads every token once, for the digest that one file of all of them would have, and writes none. Between two
    parts the end-of-text token that closes the one is that which opens the next.
    """
    first, used = parts[0], [part for part in parts if len(part)]
    shared = int(first.end is not None)
    digest, table, offsets, position = hashlib.blake2b(digest_size=32), b"", [], 0
    for part in parts:
        tokens = len(part) - shared if used and part is not used[-1] and len(part) else len(part)
        hash_tokens(digest, part.path, tokens * part.tokens.dtype.itemsize)
        table += _SEGMENT.pack(tokens, bytes.fromhex(part.fingerprint))
        if len(part):
            offsets.append(np.asarray(part.documents[:-1]) + np.uint64(position))
        position += tokens
    offsets.append(np.array([max(position - 1, 0)], np.uint64))
    documents = np.concatenate(offsets).astype("<u8").tobytes()
    digest.update(documents)
    header = TokenSetHeader(
        JOINED_VERSION,
        first.tokens.dtype.itemsize,
        position,
        len(documents) // 8 - 1,
        sum(part.bytes for part in parts),
        first.vocab,
        first.end,
        digest.digest(),
        len(parts),
    )
    content = table + documents
    with path.open("wb") as file:
        file.write(header._replace(checksum=_checksum(header, content)).to_bytes() + content)
        sync_file(file)


class TokenSetWriter:
    """Writes a token set passage by passage, whole after `close`; the caller sees to it that it appears only then."""

    def __init__(self, path: Path, *, vocab: int, end: int | None) -> None:
        self.path, self.vocab, self.end = path, vocab, end
        self.dtype = token_dtype(vocab)
        self._file = path.open("wb")
        self._file.write(bytes(_START))
        self._hash = hashlib.blake2b(digest_size=32)
        self._mark = b"" if end is None else np.array([end], self.dtype).tobytes()
        self._offsets = array("Q")
        self.tokens = self.bytes = 0

    def open_document(self) -> None:
        """Begin the next document."""
        self._offsets.append(self.tokens)
        self._write(self._mark)

    def add(self, ids: bytes | memoryview, n_bytes: int) -> None:
        """Append tokens, as bytes of `dtype`, which `n_bytes` bytes of text were."""
        self._write(ids)
        self.bytes += n_bytes

    def close(self) -> None:
        """Close the last document, complete the file and force it to the disk."""
        if self._offsets:
            self._write(self._mark)
        self._offsets.append(max(self.tokens - 1, 0))
        written = _START + self.tokens * self.dtype.itemsize
        offsets = np.frombuffer(self._offsets, np.uint64).astype("<u8").tobytes()
        self._hash.update(offsets)
        self._file.write(bytes(_aligned(written) - written) + offsets)
        self._file.seek(0)
        counts = (self.tokens, len(self._offsets) - 1, self.bytes)
        header = TokenSetHeader(VERSION, self.dtype.itemsize, *counts, self.vocab, self.end, self._hash.digest())
        self._file.write(header.to_bytes())
        sync_file(self._file)
        self._file.close()

    def __enter__(self) -> TokenSetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.tokens += len(data) // self.dtype.itemsize


def _aligned(position: int) -> int:
    return -(-position // 8) * 8
