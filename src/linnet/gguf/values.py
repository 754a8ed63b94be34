"""The thirteen kinds of value a GGUF file's metadata can hold, to and from bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from linnet.gguf.errors import GGUFError

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]


class ValueType(IntEnum):
    """Type numbers as they stand in the file."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12

    @property
    def label(self) -> str:
        """The type as people write it: u32, string, bool."""
        return self.name.lower()


_U64 = struct.Struct("<Q")
_FORMATS: dict[ValueType, struct.Struct] = {
    ValueType.U8: struct.Struct("<B"),
    ValueType.I8: struct.Struct("<b"),
    ValueType.U16: struct.Struct("<H"),
    ValueType.I16: struct.Struct("<h"),
    ValueType.U32: struct.Struct("<I"),
    ValueType.I32: struct.Struct("<i"),
    ValueType.F32: struct.Struct("<f"),
    ValueType.BOOL: struct.Struct("<B"),
    ValueType.U64: struct.Struct("<Q"),
    ValueType.I64: struct.Struct("<q"),
    ValueType.F64: struct.Struct("<d"),
}
SIZES: dict[ValueType, int] = {kind: form.size for kind, form in _FORMATS.items()}


def encode_text(text: str | bytes) -> bytes:
    """A string as the file holds it: its length in bytes (u64), then the bytes."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    return _U64.pack(len(data)) + data


def encode(kind: ValueType, value: Scalar | bytes, place: str) -> bytes:
    """One value of exactly this type; a value the type cannot hold is an error, never a silent change."""
    try:
        if kind is ValueType.STRING:
            if not isinstance(value, str | bytes):
                raise TypeError
            return encode_text(value)
        if isinstance(value, str | bytes) or (kind is ValueType.BOOL) is not isinstance(
            value, bool | np.bool_
        ):
            raise TypeError
        return _FORMATS[kind].pack(value)
    except (TypeError, ValueError, OverflowError, struct.error):
        raise GGUFError(
            "the value does not fit its type", place=place, expected=f"a {kind.label}", found=repr(value)[:80]
        ) from None


def encode_array(element: ValueType, values: Sequence[Scalar | bytes], place: str) -> bytes:
    """An array as the file holds it: element type (u32), length (u64), the elements."""
    if element is ValueType.ARRAY:
        problem = "an array of arrays is refused by llama.cpp"
        raise GGUFError(problem, place=place, expected="elements of a plain type", found="arrays")
    parts = [struct.pack("<IQ", element, len(values))]
    parts.extend(encode(element, value, place) for value in values)
    return b"".join(parts)


def decode(kind: ValueType, data: bytes, place: str) -> Scalar:
    """One value out of exactly its bytes."""
    if kind is ValueType.STRING:
        return _text(data[8:], place)
    value: Scalar = _FORMATS[kind].unpack(data)[0]
    return bool(value) if kind is ValueType.BOOL else value


def decode_array(element: ValueType, count: int, data: bytes, place: str) -> tuple[Scalar, ...]:
    """The elements of an array whose extent has been checked."""
    if element is ValueType.STRING:
        texts: list[Scalar] = []
        at, length_of = 0, _U64.unpack_from
        for _ in range(count):
            start = at + 8
            at = start + length_of(data, at)[0]
            texts.append(_text(data[start:at], place))
        return tuple(texts)
    if element is ValueType.BOOL:
        return tuple(map(bool, data))
    return struct.unpack(f"<{count}{_FORMATS[element].format[1:]}", data)


def _text(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise GGUFError(
            "the text is not valid UTF-8", place=place, expected="UTF-8", found=repr(data[:40])
        ) from None
