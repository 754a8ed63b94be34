"""`GGUFParts`: a GGUF file taken apart, so that each number in it can be made to lie."""

import struct
from dataclasses import dataclass, field
from typing import Any

STRING, ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
SCALARS = tuple(_FORMATS)


@dataclass
class Key:
    """A metadata entry. `value`: bytes of a string, a number, or of an array (`kind` 9) a list of either.

    `length` and `count` are what the file states instead of the truth: of the name, and of the string or array.
    """

    name: bytes
    kind: int
    value: Any
    element: int = 0
    length: int | None = None
    count: int | None = None

    def to_bytes(self) -> bytes:
        """As the file holds it."""
        head = _text(self.name, self.length) + struct.pack("<I", self.kind & 0xFFFFFFFF)
        if self.kind == ARRAY:
            count = len(self.value) if self.count is None else self.count
            head += struct.pack("<IQ", self.element & 0xFFFFFFFF, count & (2**64 - 1))
            return head + b"".join(_scalar(self.element, value) for value in self.value)
        return head + (_text(self.value, self.count) if self.kind == STRING else _scalar(self.kind, self.value))


@dataclass
class Tensor:
    """A tensor with its data. `dims`: fastest first. `offset`: what the file states instead of the truth."""

    name: bytes
    dims: list[int]
    kind: int
    data: bytes
    offset: int | None = None
    n_dims: int | None = None


@dataclass
class GGUFParts:
    """Everything in a file. `n_keys` and `n_tensors` are what it states instead of the truth."""

    keys: list[Key]
    tensors: list[Tensor]
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    n_keys: int | None = None
    n_tensors: int | None = None
    tail: bytes = field(default=b"")

    @classmethod
    def of(cls, raw: bytes) -> "GGUFParts":
        """Take a sound file apart."""
        reader = _Reader(raw)
        magic, version, n_tensors, n_keys = reader.unpack("<4sIQQ")
        keys = [reader.key() for _ in range(n_keys)]
        rows = [(reader.text(), reader.dims(), *reader.unpack("<IQ")) for _ in range(n_tensors)]
        start = -(-reader.at // 32) * 32
        ends = [offset for *_, offset in rows[1:]] + [len(raw) - start]
        tensors = [
            Tensor(name, dims, kind, raw[start + offset : start + end])
            for (name, dims, kind, offset), end in zip(rows, ends, strict=True)
        ]
        return cls(keys, tensors, magic, version)

    def key(self, name: bytes) -> Key | None:
        """The entry of a name."""
        return next((key for key in self.keys if key.name == name), None)

    def to_bytes(self) -> bytes:
        """The file, lies included."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        most = 2**64 - 1
        parts = [self.magic, struct.pack("<IQQ", self.version & 0xFFFFFFFF, n_tensors & most, n_keys & most)]
        parts += [key.to_bytes() for key in self.keys]
        data, offset = [], 0
        for tensor in self.tensors:
            padded = tensor.data + bytes(-len(tensor.data) % self.alignment)
            stated = offset if tensor.offset is None else tensor.offset
            n_dims = len(tensor.dims) if tensor.n_dims is None else tensor.n_dims
            dims = [dim & most for dim in tensor.dims]
            numbers = struct.pack(f"<I{len(dims)}QIQ", n_dims, *dims, tensor.kind & 0xFFFFFFFF, stated & most)
            parts.append(_text(tensor.name, None) + numbers)
            data.append(padded)
            offset += len(padded)
        head = b"".join(parts)
        return head + bytes(-len(head) % self.alignment) + b"".join(data) + self.tail


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self) -> bytes:
        (length,) = self.unpack("<Q")
        self.at += length
        return self.raw[self.at - length : self.at]

    def dims(self) -> list[int]:
        (count,) = self.unpack("<I")
        return list(self.unpack(f"<{count}Q"))

    def scalar(self, kind: int) -> Any:
        return self.text() if kind == STRING else self.unpack("<" + _FORMATS[kind])[0]

    def key(self) -> Key:
        name = self.text()
        (kind,) = self.unpack("<I")
        if kind != ARRAY:
            return Key(name, kind, self.scalar(kind))
        element, count = self.unpack("<IQ")
        return Key(name, kind, [self.scalar(element) for _ in range(count)], element)


def _text(data: bytes, length: int | None) -> bytes:
    return struct.pack("<Q", (len(data) if length is None else length) & (2**64 - 1)) + data


def _scalar(kind: int, value: Any) -> bytes:
    """A value of a type; one of another kind than the type is made to fit it, as bytes would be read."""
    if kind == STRING:
        return _text(value if isinstance(value, bytes) else str(value).encode(), None)
    form = _FORMATS.get(kind)
    if form is None:
        return value if isinstance(value, bytes) else struct.pack("<Q", int(value) & (2**64 - 1))
    if isinstance(value, bytes):
        value = int.from_bytes(value[:8], "little")
    if form in "fd":
        try:
            return struct.pack("<" + form, value)
        except OverflowError:
            return struct.pack("<" + form, float("inf"))
    size = struct.calcsize(form)
    if isinstance(value, float):
        value = int(value) if abs(value) < 2**70 else 2**63  # NaN compares false
    return (int(value) & (256**size - 1)).to_bytes(size, "little")
