"""The head of a GGUF file: magic, counts, where each metadata value lies, and the table of tensors.

Nothing in it is believed. Every count, length, offset and size is compared with what the file can hold, in
Python's unbounded integers, before anything of that size is made. Values of metadata are only located; they
are decoded when somebody asks. Limits that no real file comes near keep the work on a hostile one small:
opening never takes more than a few tens of megabytes, whatever the file says.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.metadata import MAX_KEY_BYTES, Entry, ValueType
from linnet.gguf.tensor import GGMLType, TensorInfo

if TYPE_CHECKING:
    from linnet.gguf.file import Source

# The largest vocabularies in use (262 thousand tokens, with scores and merges) take some 16 MB of metadata.
MAX_METADATA = 128 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_ALL_KEY_BYTES = 8 << 20
MAX_NAME_BYTES = 63  # ggml keeps a name in 64 bytes with its end mark
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32

_WINDOW = 1 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_HEAD = struct.Struct("<4sIQQ")


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a file says, after every check."""

    version: int
    alignment: int
    entries: dict[str, Entry]
    tensors: dict[str, TensorInfo]
    data_start: int


def read_header(source: Source) -> Header:
    """Read and check the head of a file."""
    cursor = _Cursor(source)
    version, n_tensors, n_keys = _counts(source, cursor)
    entries: dict[str, Entry] = {}
    key_bytes = 0
    for number in range(n_keys):
        place = f"metadata key {number}"
        key = cursor.text(place, MAX_KEY_BYTES)
        key_bytes += len(key)
        if key_bytes > MAX_ALL_KEY_BYTES:
            raise source.error("too many long keys", place, f"{MAX_ALL_KEY_BYTES} bytes in all", f"{key_bytes}")
        if key in entries:
            raise source.error("the key is there twice", place, "keys that differ", quoted(key))
        entries[key] = _value(cursor, f"metadata {quoted(key)}")
    alignment = _alignment(source, entries)
    rows = [_tensor_row(source, cursor, number) for number in range(n_tensors)]
    data_start = _padded(cursor.at, alignment)
    tensors = _place_tensors(source, rows, data_start, alignment)
    return Header(version, alignment, entries, tensors, data_start)


def _counts(source: Source, cursor: _Cursor) -> tuple[int, int, int]:
    if source.size < _HEAD.size:
        problem = "the file is empty" if source.size == 0 else "the file is too short to be GGUF"
        raise source.error(problem, "header", f"at least {_HEAD.size} bytes", f"{source.size}")
    magic, version, n_tensors, n_keys = _HEAD.unpack(cursor.take(_HEAD.size, "header"))
    if magic != b"GGUF":
        raise source.error("this is not a GGUF file", "magic", "b'GGUF'", repr(magic))
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in (1, 2, 3):
            problem = "the file is big-endian (made on or for another kind of machine)"
            raise source.error(problem, "version", "little-endian 2 or 3", f"big-endian {swapped}")
        raise source.error("this version of GGUF is not known", "version", "2 or 3", str(version))
    room = source.size - _HEAD.size
    # The least a key (length, one letter, type, one byte) and a tensor (length, letter, dims, dim, type,
    # offset) take.
    for noun, count, least, most in (("keys", n_keys, 14, MAX_KEYS), ("tensors", n_tensors, 33, MAX_TENSORS)):
        bound = min(most, room // least)
        if count > bound:
            problem = f"the file cannot hold so many {noun}"
            raise source.error(problem, f"number of {noun}", f"at most {bound}", str(count))
    return version, n_tensors, n_keys


def _value(cursor: _Cursor, place: str) -> Entry:
    kind = cursor.value_type(place)
    element, count = None, 1
    if kind is ValueType.ARRAY:
        element = cursor.value_type(place)
        if element is ValueType.ARRAY:
            problem = "arrays within arrays are refused (by llama.cpp too)"
            raise cursor.source.error(problem, place, "an array of plain values", "an array of arrays")
        count = cursor.u64(place)
    start = cursor.at
    plain = kind if element is None else element
    if plain is ValueType.STRING:
        cursor.skip_strings(count, place)
    else:
        cursor.skip(count * plain.packing.size, place)
    return Entry(kind, element, count, start, cursor.at)


def _alignment(source: Source, entries: dict[str, Entry]) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return DEFAULT_ALIGNMENT
    place = "metadata 'general.alignment'"
    if entry.kind is not ValueType.U32:
        raise source.error("the type is wrong", place, "u32", entry.kind.label)
    alignment: int = _U32.unpack(source.read(entry.start, 4, place))[0]
    if not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise source.error("this alignment is not possible", place, "a power of two, 8 to 1048576", str(alignment))
    return alignment


def _tensor_row(source: Source, cursor: _Cursor, number: int) -> tuple[str, tuple[int, ...], GGMLType, int]:
    place = f"tensor {number}"
    name = cursor.text(place, MAX_NAME_BYTES)
    place = f"tensor {quoted(name)}"
    n_dims = cursor.u32(place)
    if not 1 <= n_dims <= MAX_DIMS:
        raise source.error("the number of dimensions is wrong", place, f"1 to {MAX_DIMS}", str(n_dims))
    dims = [cursor.u64(place) for _ in range(n_dims)]  # fastest first
    if 0 in dims:
        raise source.error("a dimension is zero", place, "dimensions of at least 1", str(dims))
    number_of_type = cursor.u32(place)
    try:
        kind = GGMLType(number_of_type)
    except ValueError:
        raise source.error("the tensor type is not known", place, "a type of ggml", str(number_of_type)) from None
    if dims[0] % kind.block_values:
        expected = f"rows of a multiple of {kind.block_values} values for {kind.name}"
        raise source.error("the row does not fit the type's blocks", place, expected, str(dims[0]))
    return name, tuple(reversed(dims)), kind, cursor.u64(place)


def _place_tensors(
    source: Source, rows: list[tuple[str, tuple[int, ...], GGMLType, int]], data_start: int, alignment: int
) -> dict[str, TensorInfo]:
    """Check that the tensors lie one after the other, as llama.cpp demands, and within the file."""
    tensors: dict[str, TensorInfo] = {}
    due = 0
    for name, shape, kind, offset in rows:
        place = f"tensor {quoted(name)}"
        if name in tensors:
            raise source.error("the tensor is there twice", place, "names that differ", quoted(name))
        size = math.prod(shape) // kind.block_values * kind.block_bytes
        if offset % alignment:
            raise source.error("the offset is not aligned", place, f"a multiple of {alignment}", str(offset))
        if data_start + offset + size > source.size:
            expected = f"an end within {source.size} bytes"
            raise source.error("the data leaves the file", place, expected, f"byte {data_start + offset + size}")
        if offset != due:
            problem = "the data overlaps another tensor's" if offset < due else "there is a gap before the data"
            raise source.error(problem, place, f"offset {due}", str(offset))
        tensors[name] = TensorInfo(name, shape, kind, data_start + offset, size, source)
        due = _padded(offset + size, alignment)
    return tensors


def _padded(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment


class _Cursor:
    """Walks forward through the head, holding one window of it in memory."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0
        self._end = min(source.size, MAX_METADATA)
        self._window = b""
        self._window_start = 0

    def take(self, length: int, place: str) -> bytes:
        """The next `length` bytes (never more than a window)."""
        start = self._enter(length, place) - self._window_start
        self.at += length
        return self._window[start : start + length]

    def u32(self, place: str) -> int:
        value: int = _U32.unpack(self.take(4, place))[0]
        return value

    def u64(self, place: str) -> int:
        value: int = _U64.unpack(self.take(8, place))[0]
        return value

    def text(self, place: str, limit: int) -> str:
        length = self.u64(place)
        if not 1 <= length <= limit:
            raise self.source.error("the name's length is wrong", place, f"1 to {limit} bytes", str(length))
        data = self.take(length, place)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self.source.error("the name is not valid UTF-8", place, "UTF-8", quoted(data)) from None

    def value_type(self, place: str) -> ValueType:
        number = self.u32(place)
        try:
            return ValueType(number)
        except ValueError:
            raise self.source.error("the value's type is not known", place, "0 to 12", str(number)) from None

    def skip(self, length: int, place: str) -> None:
        self._bound(length, place)
        self.at += length

    def skip_strings(self, count: int, place: str) -> None:
        self._bound(8 * count, place)
        length_of = _U64.unpack_from
        while count:
            at = self._enter(8, place) - self._window_start
            window, last = self._window, len(self._window) - 8
            left = count
            # The one loop that runs once a token: it stays inside the window and checks where it came out.
            while left and at <= last:
                at += 8 + length_of(window, at)[0]
                left -= 1
            count = left
            position = self._window_start + at
            if position > self._end:
                raise self._too_long(position - self.at, place)
            self.at = position

    def _enter(self, length: int, place: str) -> int:
        """Make sure that the next `length` bytes are in the window."""
        self._bound(length, place)
        if not self._window_start <= self.at <= self._window_start + len(self._window) - length:
            self._window_start = self.at
            self._window = self.source.read(self.at, min(_WINDOW, self._end - self.at), place)
        return self.at

    def _bound(self, length: int, place: str) -> None:
        if length > self._end - self.at:
            raise self._too_long(length, place)

    def _too_long(self, length: int, place: str) -> GGUFError:
        left = self._end - self.at
        if self._end < self.source.size:
            problem = f"the metadata is larger than the {MAX_METADATA >> 20} MiB that any real file needs"
        else:
            problem = "the file ends too early, or a length in it is wrong"
        return self.source.error(problem, place, f"at most {left} bytes", f"a length of {length}")
