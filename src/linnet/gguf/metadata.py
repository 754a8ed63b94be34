"""A file's metadata: `Metadata` reads it key by key, `MetadataBlock` is what will be written.

A block is kept as the bytes that go into the file. A tokenizer of fifty thousand tokens is therefore made
once and joined to every checkpoint of a run by copying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.source import Source
from linnet.gguf.values import (
    Scalar,
    Value,
    ValueType,
    decode,
    decode_array,
    encode,
    encode_array,
    encode_text,
)

if TYPE_CHECKING:
    from linnet.gguf.header import Entry


class Metadata(Mapping[str, Value]):
    """Key to value, as in the file; a value is read and decoded when asked for, and arrays come as tuples."""

    def __init__(self, source: Source, entries: Mapping[str, Entry]) -> None:
        self._source = source
        self._entries = entries
        self._known: dict[str, Value] = {}

    def __getitem__(self, key: str) -> Value:
        if key not in self._known:
            self._known[key] = self._decode(key)
        return self._known[key]

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
        data = self._source.read(entry.start, entry.stop - entry.start, f"metadata {quoted(key)}")
        if entry.element is None:
            return data
        return encode(ValueType.U32, entry.element, key) + encode(ValueType.U64, entry.count, key) + data

    def _decode(self, key: str) -> Value:
        entry = self._entries[key]
        place = f"metadata {quoted(key)}"
        data = self._source.read(entry.start, entry.stop - entry.start, place)
        try:
            if entry.element is None:
                return decode(entry.kind, data, place)
            return decode_array(entry.element, entry.count, data, place)
        except GGUFError as error:
            raise self._source.error(error.problem, place, error.expected, error.found) from None


class MetadataBlock:
    """Metadata to be written, with the exact type of each value. A key may be given once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._kinds: dict[str, tuple[ValueType, ValueType | None, int]] = {}

    @classmethod
    def of(cls, values: Mapping[str, tuple[str, Any]]) -> MetadataBlock:
        """A block from values with their types in words: `{"n": ("u32", 2), "ids": ("array:i32", [1])}`."""
        block = cls()
        for key, (kind, value) in values.items():
            word = kind.removeprefix("array:")
            try:
                element = ValueType[word.upper()]
            except KeyError:
                place, expected = f"metadata {quoted(key)}", ", ".join(each.label for each in ValueType)
                raise GGUFError("unknown type", place=place, expected=expected, found=quoted(kind)) from None
            if word == kind:
                block.add(key, element, value)
            else:
                block.add_array(key, element, value)
        return block

    def add(self, key: str, kind: ValueType, value: Scalar) -> MetadataBlock:
        """Add one value of exactly this type."""
        self._append(key, kind, None, 1, encode(kind, value, f"metadata {quoted(key)}"))
        return self

    def add_array(self, key: str, element: ValueType, values: Sequence[Scalar | bytes]) -> MetadataBlock:
        """Add an array whose elements all have this type."""
        data = encode_array(element, values, f"metadata {quoted(key)}")
        self._append(key, ValueType.ARRAY, element, len(values), data)
        return self

    def u32(self, key: str, value: int) -> MetadataBlock:
        """Add a u32: llama.cpp's type for counts and token ids."""
        return self.add(key, ValueType.U32, value)

    def u64(self, key: str, value: int) -> MetadataBlock:
        """Add a u64."""
        return self.add(key, ValueType.U64, value)

    def i32(self, key: str, value: int) -> MetadataBlock:
        """Add an i32."""
        return self.add(key, ValueType.I32, value)

    def i64(self, key: str, value: int) -> MetadataBlock:
        """Add an i64."""
        return self.add(key, ValueType.I64, value)

    def f32(self, key: str, value: float) -> MetadataBlock:
        """Add an f32: llama.cpp's type for epsilons and factors."""
        return self.add(key, ValueType.F32, value)

    def f64(self, key: str, value: float) -> MetadataBlock:
        """Add an f64."""
        return self.add(key, ValueType.F64, value)

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
            kind, element = metadata.type(key), metadata.element_type(key)
            self._append(key, kind, element, metadata.length(key), metadata.raw(key))
        return self

    def extend(self, other: MetadataBlock) -> MetadataBlock:
        """Add all of another block, without encoding it again."""
        for key in other._kinds:
            self._refuse_twice(key)
        self._kinds.update(other._kinds)
        self._parts.extend(other._parts)
        return self

    def length(self, key: str) -> int:
        """The number of elements under `key` (1 for a value that is no array)."""
        return self._kinds[key][2]

    def to_bytes(self) -> bytes:
        """The block as it stands in a file."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def __contains__(self, key: object) -> bool:
        return key in self._kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def _append(self, key: str, kind: ValueType, element: ValueType | None, count: int, data: bytes) -> None:
        self._refuse_twice(key)
        name = key.encode("utf-8")
        if not 1 <= len(name) <= 65535:
            problem = "the key's length is wrong"
            raise GGUFError(problem, place=f"metadata {quoted(key)}", expected="1 to 65535 bytes", found=str(len(name)))
        self._kinds[key] = (kind, element, count)
        self._parts.append(encode_text(name) + encode(ValueType.U32, int(kind), key) + data)

    def _refuse_twice(self, key: str) -> None:
        if key in self._kinds:
            place = f"metadata {quoted(key)}"
            raise GGUFError("the key was given twice", place=place, expected="keys that differ", found=quoted(key))
