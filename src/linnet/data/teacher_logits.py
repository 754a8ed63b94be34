"""What a teacher said of a token set, on disk: of every token the likeliest ones after it. docs/data.md has the format.

magic "LINNETTC" · u32 version · u32 K · u32 bytes an id · u32 ctx · u32 1 where documents are apart · u32 vocabulary
u64 rows · u32 rows of a part · f64 temperature · 32 bytes BLAKE2b of the token set · 32 bytes SHA-256 of the teacher
32 bytes BLAKE2b of the sums · zeros up to byte 256
a row for each input of each block (`batches.py`): K ids, u16 or u32 · K + 1 logarithms of probabilities, f16
sums: BLAKE2b of each part of the rows, 16 bytes

The last logarithm is that of all other tokens together. While it is made, `<name>.partial` has the rows so far and
`<name>.partial.sums` the sums of whole parts: what was cut off goes on behind the last of them that agrees.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from linnet import files
from linnet.data.cache import file_digests, teacher_logits_folder
from linnet.data.errors import DataError, reason
from linnet.data.token_set import token_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"LINNETTC"
VERSION = 1
_HEADER = struct.Struct("<8sIIIIIIQId32s32s32s")
_START = 256
_SUM = 16
_PART_TOKENS = 8192  # rows of a part, about: as many as whole blocks make


@dataclass(frozen=True)
class TeacherLogitsKey:
    """What a cache must be of, to stand for a teacher: the token set, its windows, the teacher, the temperature."""

    tokens: str  # the set's fingerprint
    teacher: str  # SHA-256 of its file
    ctx: int
    documents: bool
    temperature: float

    @property
    def digest(self) -> str:
        """All of it as the beginning of a file's name."""
        facts = [VERSION, self.tokens, self.teacher, self.ctx, self.documents, float(self.temperature)]
        return hashlib.blake2b(msgspec.json.encode(facts), digest_size=12).hexdigest()

    def path(self, root: Path, top: int) -> Path:
        """Where the cache of the `top` likeliest tokens lies."""
        return teacher_logits_folder(root) / f"{self.digest}-{top}.taught"


class TeacherLogitsHeader(NamedTuple):
    """What the first 256 bytes of a cache say."""

    top: int
    width: int  # bytes an id
    ctx: int
    documents: bool
    vocab: int
    rows: int
    part: int  # rows
    temperature: float
    tokens: bytes
    teacher: bytes
    digest: bytes

    @property
    def key(self) -> TeacherLogitsKey:
        """What it is a cache of."""
        return TeacherLogitsKey(self.tokens.hex(), self.teacher.hex(), self.ctx, self.documents, self.temperature)

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        return np.dtype([("ids", f"<u{self.width}", (self.top,)), ("log_p", "<f2", (self.top + 1,))])

    @property
    def parts(self) -> int:
        """How many sums there are."""
        return -(-self.rows // self.part)

    @property
    def sums_at(self) -> int:
        """Where they begin."""
        return _START + self.rows * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.sums_at + self.parts * _SUM

    def to_bytes(self) -> bytes:
        """The first 256 bytes."""
        counts = (self.top, self.width, self.ctx, int(self.documents), self.vocab, self.rows, self.part)
        head = _HEADER.pack(MAGIC, VERSION, *counts, self.temperature, self.tokens, self.teacher, self.digest)
        return head.ljust(_START, b"\0")

    @classmethod
    def of(cls, key: TeacherLogitsKey, top: int, vocab: int, blocks: int) -> TeacherLogitsHeader:
        """The header of a cache that is to be made, without its digest."""
        width = token_dtype(vocab).itemsize
        part = max(1, _PART_TOKENS // key.ctx) * key.ctx
        ids = (bytes.fromhex(key.tokens), bytes.fromhex(key.teacher))
        return cls(top, width, key.ctx, key.documents, vocab, blocks * key.ctx, part, key.temperature, *ids, bytes(32))


def read_header(path: Path) -> TeacherLogitsHeader:
    """The header of a cache; a file that is none is a DataError."""
    try:
        with path.open("rb") as file:
            head = file.read(_START)
    except OSError as error:
        raise DataError(f"{path}: the cache of a teacher cannot be read: {reason(error)}") from None
    if len(head) < _START or head[:8] != MAGIC:
        raise DataError(f"{path}: not the cache of a teacher; expected it to begin with {MAGIC.decode()}")
    _, version, top, width, ctx, documents, vocab, rows, part, temperature, *digests = _HEADER.unpack_from(head)
    if version != VERSION or width not in (2, 4) or not (top and ctx and part and rows % ctx == 0 and part % ctx == 0):
        raise DataError(f"{path}: its header is damaged, or of another version than {VERSION}: delete it")
    return TeacherLogitsHeader(top, width, ctx, bool(documents), vocab, rows, part, temperature, *digests)


class TeacherLogits:
    """A cache that is complete, memory-mapped. `fingerprint`: what its header states of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = header = read_header(path)
        size = path.stat().st_size
        if size != header.size:
            raise DataError(
                f"{path}: the cache of a teacher is cut short or grown: {header.size} bytes expected, found {size};"
                " delete it and teach again"
            )
        self.top, self.key, self.fingerprint = header.top, header.key, header.digest.hex()
        shape = (header.rows // header.ctx, header.ctx)
        self._rows: NDArray[Any] = np.memmap(path, header.dtype, "r", _START, shape)

    def blocks(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
        """Ids [B, ctx, K] and logarithms [B, ctx, K + 1] of some blocks of the token set."""
        rows = self._rows[numbers]
        return rows["ids"].astype(np.int32), np.ascontiguousarray(rows["log_p"])

    def require_intact(self, root: Path) -> None:
        """Hold it against its sums; it is read for that only when the file has changed since the last time."""
        (digest,) = file_digests([self.path], root, self.path.stem, content_digest)
        if digest != self.fingerprint:
            raise DataError(f"{self.path}: it does not hold what was written: delete it and teach again")


def content_digest(path: Path) -> str:
    """The BLAKE2b-256 of a cache's sums, once its rows are found to have them; `damaged` where they have not."""
    header, sums = read_header(path), hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        for number, (begin, end) in enumerate(_parts(header)):
            file.seek(begin)
            own = _sum(file.read(end - begin))
            file.seek(header.sums_at + number * _SUM)
            if file.read(_SUM) != own:
                return "damaged"
            sums.update(own)
    return sums.hexdigest()


def find_teacher_logits(root: Path, key: TeacherLogitsKey, top: int | None = None) -> TeacherLogits | None:
    """The cache that stands for a teacher: of so many tokens, or of the most there are; None where there is none."""
    paths = list((teacher_logits_folder(root)).glob(f"{key.digest}-*.taught")) if top is None else [key.path(root, top)]
    caches = [TeacherLogits(path) for path in paths if path.is_file()]
    return max(caches, key=lambda cache: cache.top, default=None)


def other_windows(root: Path, key: TeacherLogitsKey) -> list[str]:
    """A sentence for who has a cache of the teacher and the tokens, but of other windows or another temperature."""
    for path in sorted((teacher_logits_folder(root)).glob("*.taught")):
        with suppress(DataError):
            other = read_header(path).key
            if (other.tokens, other.teacher) != (key.tokens, key.teacher):
                continue
            pairs = {
                f"`ctx` {other.ctx:,}": other.ctx != key.ctx,
                f"{'' if other.documents else 'no '}`documents`": other.documents != key.documents,
                f"`temperature_distill` {other.temperature:g}": other.temperature != key.temperature,
            }
            differing = ", ".join(words for words, differs in pairs.items() if differs)
            if differing:
                return [f"the teacher runs: what a cache has of it was made with {differing}"]
    return []


class TeacherLogitsWriter:
    """Writes a cache part by part; cut off, it goes on behind the last whole part.

    with TeacherLogitsWriter(path, header) as writer:
        while writer.done < header.rows:
            writer.add(ids_NK, log_p_NK1)    # the rows after those that are done, up to a whole part
    """

    def __init__(self, path: Path, header: TeacherLogitsHeader) -> None:
        self.path, self.header = path, header
        self._partial, self._sums_path = (path.with_name(path.name + end) for end in (".partial", ".partial.sums"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise DataError(f"cache {path.parent}: it cannot be written: {reason(error)}") from None
        if files.lock(self._lock, wait=0) is False:
            os.close(self._lock)
            raise DataError(f"{path}: another process is writing it: wait for that one")
        self._sums = self._found()
        self.done = min(len(self._sums) * header.part, header.rows)
        self._file = self._partial.open("r+b" if self._sums else "w+b")
        self._file.write(header.to_bytes())
        self._file.seek(_START + self.done * header.dtype.itemsize)
        self._file.truncate()
        self._sums_file = self._sums_path.open("wb")
        self._sums_file.write(b"".join(self._sums))

    def add(self, ids_NK: NDArray[Any], log_p_NK1: NDArray[Any]) -> None:
        """Append the rows of the next part, all of them."""
        rows = np.empty(len(ids_NK), self.header.dtype)
        rows["ids"], rows["log_p"] = ids_NK, log_p_NK1
        assert len(rows) == min(self.header.part, self.header.rows - self.done), "a part comes whole"
        content = rows.tobytes()
        try:
            self._file.write(content)
            files.sync_file(self._file)
            self._sums.append(_sum(content))
            self._sums_file.write(self._sums[-1])
            files.sync_file(self._sums_file)
        except OSError as error:
            raise DataError(f"cache {self.path.parent}: {reason(error)}; what was written is kept") from None
        self.done += len(rows)

    def finish(self) -> None:
        """Complete the file and give it its name."""
        assert self.done == self.header.rows
        digest = hashlib.blake2b(b"".join(self._sums), digest_size=32).digest()
        self._file.write(b"".join(self._sums))
        self._file.seek(0)
        self._file.write(self.header._replace(digest=digest).to_bytes())
        files.sync_file(self._file)
        self.close()
        self._partial.replace(self.path)
        self._sums_path.unlink(missing_ok=True)
        files.sync_folder(self.path.parent)
        with suppress(OSError):
            self.path.with_name(self.path.name + ".lock").unlink()

    def close(self) -> None:
        """Close the files; what is written stays, to go on from."""
        self._file.close()
        self._sums_file.close()
        with suppress(OSError):
            os.close(self._lock)

    def __enter__(self) -> TeacherLogitsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._file.closed:
            self.close()

    def _found(self) -> list[bytes]:
        """The sums of parts that an earlier start has written whole."""
        try:
            if read_header(self._partial) != self.header:
                return []
            sums = self._sums_path.read_bytes()
        except (DataError, OSError):
            return []
        whole = []
        with self._partial.open("rb") as file:
            for number, (begin, end) in enumerate(_parts(self.header)):
                file.seek(begin)
                known = sums[number * _SUM : (number + 1) * _SUM]
                content = file.read(end - begin) if known else b""
                if len(content) < end - begin or _sum(content) != known:
                    break
                whole.append(known)
        return whole


def _parts(header: TeacherLogitsHeader) -> Iterator[tuple[int, int]]:
    """Where the parts of the rows begin and end, in bytes."""
    item = header.dtype.itemsize
    for first in range(0, header.rows, header.part):
        yield _START + first * item, _START + min(first + header.part, header.rows) * item


def _sum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SUM).digest()
