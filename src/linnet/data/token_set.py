"""A token set on disk: one file, memory-mapped. docs/data.md has the format byte by byte.

magic "LINNETTK" · u32 version · u32 bytes a token · u64 tokens · u64 documents · u64 bytes of text
u32 vocabulary · u32 end-of-text id · 32 bytes BLAKE2b of tokens and offsets · zeros up to byte 128
tokens, u16 or u32 · zeros to a multiple of 8 · document offsets, u64, one more than there are documents
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.errors import DataError, reason
from linnet.files import sync_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"LINNETTK"
VERSION = 1
NO_END = 0xFFFFFFFF  # the set has no end-of-text token (a pack whose vocabulary is unknown)
_HEADER = struct.Struct("<8sIIQQQII32s")
_START = 128
_BLOCK = 1 << 20


class TokenSet:
    """Tokens and where their documents lie.

    Document `i` is opened by the end-of-text token at `documents[i]` and runs up to `documents[i + 1]`, where the next
    one is opened; the last token of all closes the last document. So `tokens[d : e]` are what the model reads of a
    document and `tokens[d + 1 : e + 1]` what it has to say.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                header = file.read(_START)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise DataError(f"{self.path}: the token set cannot be read: {reason(error)}") from None
        if len(header) < _START or header[:8] != MAGIC:
            raise DataError(f"{self.path}: not a token set of Linnet; expected it to begin with {MAGIC.decode()}")
        _, version, width, count, n_documents, self.bytes, self.vocab, end, digest = _HEADER.unpack_from(header)
        if version != VERSION or width not in (2, 4):
            raise DataError(
                f"{self.path}: token set version {version} with {width} bytes a token;"
                f" expected version {VERSION} with 2 or 4: prepare the corpus again"
            )
        offsets = _aligned(_START + count * width)
        if size != offsets + (n_documents + 1) * 8:
            raise DataError(
                f"{self.path}: the token set is cut short or grown: {count} tokens and {n_documents} documents"
                f" take {offsets + (n_documents + 1) * 8} bytes, found {size}; delete it and prepare the corpus again"
            )
        self.end: int | None = None if end == NO_END else end
        self.fingerprint: str = digest.hex()
        self.tokens: NDArray[Any] = np.memmap(self.path, f"<u{width}", "r", _START, (count,))
        self.documents: NDArray[np.uint64] = np.memmap(self.path, "<u8", "r", offsets, (n_documents + 1,))

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<TokenSet {self.path}: {len(self)} tokens in {len(self.documents) - 1} documents>"

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of one document, without the end-of-text tokens round it."""
        first, last = int(self.documents[index]), int(self.documents[index + 1])
        if self.end is not None:
            return self.tokens[first + 1 : last]
        return self.tokens[first : last + 1] if index + 2 == len(self.documents) else self.tokens[first:last]


def token_dtype(vocab: int) -> np.dtype[Any]:
    """What the ids of a vocabulary are stored as."""
    return np.dtype("<u2" if vocab <= 1 << 16 else "<u4")


def content_digest(path: Path) -> str:
    """The BLAKE2b-256 of the tokens and offsets a file holds, which its header should state."""
    content = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        _, _, width, count, *_ = _HEADER.unpack_from(file.read(_START))
        file.seek(_START)
        left = count * width
        while left and (block := file.read(min(left, _BLOCK))):
            content.update(block)
            left -= len(block)
        file.seek(_aligned(_START + count * width))
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()


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
        ids = (self.vocab, NO_END if self.end is None else self.end)
        self._file.write(_HEADER.pack(MAGIC, VERSION, self.dtype.itemsize, *counts, *ids, self._hash.digest()))
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
