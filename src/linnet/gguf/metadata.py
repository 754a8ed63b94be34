"""A file's metadata: `Metadata` reads it key by key, `MetadataBlock` is what will be written.

A block is kept as the bytes that go into the file. A tokenizer of fifty thousand tokens is therefore made
once and joined to every checkpoint of a run by copying.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from linnet.gguf.errors import GGUFError, quoted

if TYPE_CHECKING:
    from linnet.gguf.file import Source

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]

MAX_KEY_BYTES = (1 << 16) - 1  # the specification's limit
_U64 = struct.Struct("<Q")


class ValueType(IntEnum):
    """A type of metadata: its number in the file, and how `struct` packs a value of fixed size."""

    packing: struct.Struct

    def __new__(cls, number: int, format: str = "") -> ValueType:  # noqa: D102
        member = int.__new__(cls, number)
        member._value_ = number
        member.packing = struct.Struct(f"<{format}")
        return member

    U8 = 0, "B"
    I8 = 1, "b"
    U16 = 2, "H"
    I16 = 3, "h"
    U32 = 4, "I"
    I32 = 5, "i"
    F32 = 6, "f"
    BOOL = 7, "B"
    STRING = 8
    ARRAY = 9
    U64 = 10, "Q"
    I64 = 11, "q"
    F64 = 12, "d"

    @property
    def label(self) -> str:
        """The type as people write it: u32, string, bool."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one metadata value lies: its type, an array's element type and length, its bytes in the file."""

    kind: ValueType
    element: ValueType | None
    count: int
    start: int  # of the value itself: after the type, and after an array's element type and length
    stop: int


class Metadata(Mapping[str, Value]):
    """Key to value, as in the file; a value is read and decoded when asked for, and arrays come as tuples."""

    def __init__(self, source: Source, entries: Mapping[str, Entry]) -> None:
        self._source = source
        self._entries = entries
        self._decoded: dict[str, Value] = {}

    def __getitem__(self, key: str) -> Value:
        if key not in self._decoded:
            self._decoded[key] = self._decode(key)
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries  # Mapping's own would decode the value

    def __repr__(self) -> str:
        return f"<metadata of {self._source.path}: {len(self)} keys>"

    def type(self, key: str) -> ValueType:
        """The type of the value under `key`, without decoding it."""
        return self._entries[key].kind

    def element_type(self, key: str) -> ValueType | None:
        """The type of an array's elements; None for a value that is no array."""
        return self._entries[key].element

    def length(self, key: str) -> int:
        """The number of elements of an array (1 for any other value), without decoding them."""
        return self._entries[key].count

    def label(self, key: str) -> str:
        """The type for people: `u32`, `string`, `array of string`."""
        entry = self._entries[key]
        return entry.kind.label if entry.element is None else f"array of {entry.element.label}"

    def text(self, key: str, default: str = "") -> str:
        """The string under `key`; `default` where it is missing; an error where it is something else."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self._source.error("the type is wrong", f"metadata {quoted(key)}", "string", self.label(key))
        return value

    def raw(self, key: str) -> bytes:
        """The value's bytes after its type, as a `MetadataBlock` takes them."""
        entry = self._entries[key]
        data = self._read(key)
        return data if entry.element is None else struct.pack("<IQ", entry.element, entry.count) + data

    def _read(self, key: str) -> bytes:
        entry = self._entries[key]
        return self._source.read(entry.start, entry.stop - entry.start, f"metadata {quoted(key)}")

    def _decode(self, key: str) -> Value:
        entry, data = self._entries[key], self._read(key)
        try:
            if entry.element is None:
                return _decode_array(entry.kind, 1, data)[0]
            return _decode_array(entry.element, entry.count, data)
        except UnicodeDecodeError as error:
            place, found = f"metadata {quoted(key)}", repr(error.object[:40])
            raise self._source.error("the text is not valid UTF-8", place, "UTF-8", found) from None


def _decode_array(element: ValueType, count: int, data: bytes) -> tuple[Scalar, ...]:
    """`count` values out of exactly their bytes, whose extent has been checked."""
    if element is ValueType.STRING:
        texts: list[Scalar] = []
        end, length_of = 0, _U64.unpack_from
        for _ in range(count):
            start = end + _U64.size
            end = start + length_of(data, end)[0]
            texts.append(data[start:end].decode("utf-8"))
        return tuple(texts)
    if element is ValueType.BOOL:
        return tuple(map(bool, data))
    return struct.unpack(f"<{count}{element.packing.format[1:]}", data)


class MetadataBlock:
    """Metadata to be written, with the exact type of each value. A key may be given once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lengths: dict[str, int] = {}

    @classmethod
    def of(cls, values: Mapping[str, tuple[str, Any]]) -> MetadataBlock:
        """A block from values with their types in words: `{"n": ("u32", 2), "ids": ("array:i32", [1])}`."""
        block = cls()
        for key, (kind, value) in values.items():
            word = kind.removeprefix("array:")
            try:
                element = ValueType[word.upper()]
            except KeyError:
                place, expected = f"metadata {quoted(key)}", ", ".join(known.label for known in ValueType)
                raise GGUFError("unknown type", place, expected, quoted(kind)) from None
            if word == kind:
                block.add(key, element, value)
            else:
                block.add_array(key, element, value)
        return block

    def add(self, key: str, kind: ValueType, value: Scalar) -> MetadataBlock:
        """Add one value of exactly this type."""
        return self._append(key, kind, 1, _encode(kind, value, key))

    def add_array(self, key: str, element: ValueType, values: Sequence[Scalar | bytes]) -> MetadataBlock:
        """Add an array whose elements all have this type."""
        if element is ValueType.ARRAY:
            problem, place = "an array of arrays is refused by llama.cpp", f"metadata {quoted(key)}"
            raise GGUFError(problem, place, "elements of a plain type", "arrays")
        parts = [struct.pack("<IQ", element, len(values)), *(_encode(element, value, key) for value in values)]
        return self._append(key, ValueType.ARRAY, len(values), b"".join(parts))

    def u32(self, key: str, value: int) -> MetadataBlock:
        """Add a u32: llama.cpp's type for counts and token ids."""
        return self.add(key, ValueType.U32, value)

    def f32(self, key: str, value: float) -> MetadataBlock:
        """Add an f32: llama.cpp's type for epsilons and factors."""
        return self.add(key, ValueType.F32, value)

    def flag(self, key: str, value: bool) -> MetadataBlock:
        """Add a bool."""
        return self.add(key, ValueType.BOOL, value)

    def text(self, key: str, value: str) -> MetadataBlock:
        """Add a string."""
        return self.add(key, ValueType.STRING, value)

    def texts(self, key: str, values: Sequence[str | bytes]) -> MetadataBlock:
        """Add an array of strings."""
        return self.add_array(key, ValueType.STRING, values)

    def copy(self, metadata: Metadata, keys: Iterable[str]) -> MetadataBlock:
        """Add these keys of another file with their types and bytes unchanged."""
        for key in keys:
            self._append(key, metadata.type(key), metadata.length(key), metadata.raw(key))
        return self

    def extend(self, other: MetadataBlock) -> MetadataBlock:
        """Add all of another block, without encoding it again."""
        for key in other._lengths:
            self._refuse_twice(key)
        self._lengths.update(other._lengths)
        self._parts.extend(other._parts)
        return self

    def length(self, key: str) -> int:
        """The number of elements under `key` (1 for a value that is no array)."""
        return self._lengths[key]

    def to_bytes(self) -> bytes:
        """The block as it stands in a file."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def __contains__(self, key: object) -> bool:
        return key in self._lengths

    def __iter__(self) -> Iterator[str]:
        return iter(self._lengths)

    def __len__(self) -> int:
        return len(self._lengths)

    def _append(self, key: str, kind: ValueType, length: int, data: bytes) -> MetadataBlock:
        self._refuse_twice(key)
        name = key.encode("utf-8")
        if not 1 <= len(name) <= MAX_KEY_BYTES:
            place, expected = f"metadata {quoted(key)}", f"1 to {MAX_KEY_BYTES} bytes"
            raise GGUFError("the key's length is wrong", place, expected, str(len(name)))
        self._lengths[key] = length
        self._parts.append(encode_text(name) + ValueType.U32.packing.pack(kind) + data)
        return self

    def _refuse_twice(self, key: str) -> None:
        if key in self._lengths:
            raise GGUFError("the key was given twice", f"metadata {quoted(key)}", "keys that differ", quoted(key))


def encode_text(text: str | bytes) -> bytes:
    """A string as the file holds it: its length in bytes (u64), then the bytes."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    return _U64.pack(len(data)) + data


def _encode(kind: ValueType, value: Scalar | bytes, key: str) -> bytes:
    """One value of exactly this type; a value the type cannot hold is an error, never a silent change."""
    try:
        if kind is ValueType.STRING:
            if not isinstance(value, str | bytes):
                raise TypeError
            return encode_text(value)
        if isinstance(value, str | bytes) or (kind is ValueType.BOOL) is not isinstance(value, bool | np.bool_):
            raise TypeError
        return kind.packing.pack(value)
    except (TypeError, ValueError, OverflowError, struct.error):
        place = f"metadata {quoted(key)}"
        raise GGUFError("the value does not fit its type", place, f"a {kind.label}", repr(value)[:80]) from None
