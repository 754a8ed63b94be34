"""`ColumnPool`: the columns of numbers in a report, each held once, in a form that compresses well.

The bytes of numbers are kept apart by their significance (all first bytes, then all second …): what neighbours have in
common, exponents and leading digits, then stands together. docs/report.md describes the form.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_POSITIONS = 1 << 20  # places that a rounded column tells apart between its least and its greatest number
_LARGEST = 1 << 31


class ColumnInfo(msgspec.Struct, omit_defaults=True):
    """Where a column stands in the pool and how it is written.

    - `f8`, `f4`: floats.
    - `i4`: base + scale · n, where the n are kept as differences to the one before, 32 bits with a sign.
    - `bytes`: a file.
    """

    kind: Literal["f8", "f4", "i4", "bytes"]
    offset: int
    rows: int
    base: float = 0.0
    scale: float = 1.0


class ColumnPool:
    """Columns one behind the other; each is known by its number."""

    def __init__(self) -> None:
        self.columns: list[ColumnInfo] = []
        self._content = bytearray()
        self._known: dict[bytes, int] = {}

    @property
    def content(self) -> bytes:
        return bytes(self._content)

    def add(self, values: NDArray[Any]) -> int:
        """A column as it is, to the bit."""
        if values.dtype == np.float32:
            return self._put("f4", len(values), _by_significance(values.astype("<f4")))
        values = np.asarray(values, np.float64)
        if _is_integral(values):
            return self._put_integers(values - values[0], float(values[0]), 1.0)
        return self._put("f8", len(values), _by_significance(values.astype("<f8")))

    def add_places(self, values: Numbers) -> int:
        """A column of places on an axis, to a millionth of the distance between the least and the greatest."""
        if not len(values) or not np.isfinite(values).all() or _is_integral(values):
            return self.add(values)
        base, width = float(values.min()), float(np.ptp(values))
        scale = width / _POSITIONS if width > 0 else 1.0
        return self._put_integers(np.rint((values - base) / scale), base, scale)

    def add_file(self, content: bytes) -> int:
        return self._put("bytes", len(content), content)

    def _put_integers(self, values: Numbers, base: float, scale: float) -> int:
        differences = np.diff(values, prepend=0.0).astype(np.int32)
        return self._put("i4", len(values), _by_significance(differences.astype("<i4")), base, scale)

    def _put(
        self,
        kind: Literal["f8", "f4", "i4", "bytes"],
        rows: int,
        content: bytes,
        base: float = 0.0,
        scale: float = 1.0,
    ) -> int:
        digest = hashlib.sha256(f"{kind} {base!r} {scale!r} ".encode() + content).digest()
        if digest not in self._known:
            self._known[digest] = len(self.columns)
            self.columns.append(ColumnInfo(kind, len(self._content), rows, base, scale))
            self._content += content
        return self._known[digest]


def _is_integral(values: Numbers) -> bool:
    """Whole numbers whose differences have 32 bits and a sign."""
    if not len(values) or not np.isfinite(values).all() or np.abs(values).max() >= 2.0**53:
        return False
    return bool((values == np.rint(values)).all() and np.ptp(values) < _LARGEST)


def _by_significance(values: NDArray[Any]) -> bytes:
    """All first bytes, then all second bytes …"""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize).T.tobytes()
