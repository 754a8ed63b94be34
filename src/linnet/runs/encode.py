"""The one JSON encoder: whatever a training loop hands over becomes one valid line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import PurePath

import msgspec

_DEEPEST = 32  # levels of nesting kept; below that a value is written as its text
_LONGEST = 65_536  # elements of one array kept

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def _foreign(value: object) -> object:
    """msgspec's hook: tensors and numpy scalars know their Python number."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"no JSON form for {type(value).__name__}")
    return item()


_encoder = msgspec.json.Encoder(enc_hook=_foreign, decimal_format="number")
encode = _encoder.encode
encode_lines = _encoder.encode_lines  # the line end comes from the encoder: a copy of the line less


def encode_pretty(record: Mapping[str, object]) -> bytes:
    """An object for people: indented, with a final newline."""
    return msgspec.json.format(encode(spell_record(record)), indent=2) + b"\n"


def spell(value: object) -> tuple[Json, dict[str, str]]:
    """Turn any value into plain JSON, and list the numbers that JSON cannot spell.

    The list maps the dotted place of each such number to `nan`, `inf` or `-inf`; the number itself becomes None.
    """
    nonfinite: dict[str, str] = {}
    return _spell(value, "", nonfinite, 0), nonfinite


def spell_record(record: Mapping[str, object]) -> dict[str, Json]:
    """Spell one event; its non-finite numbers are listed under `nonfinite`."""
    plain, nonfinite = spell(record)
    assert isinstance(plain, dict)
    if nonfinite:
        plain["nonfinite"] = dict(nonfinite)
    return plain


def _spell(value: object, place: str, nonfinite: dict[str, str], depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else _spell(_as_float(value), place, nonfinite, depth)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        nonfinite[place] = "nan" if value != value else "inf" if value > 0 else "-inf"
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if depth >= _DEEPEST:
        return _text(value)
    if isinstance(value, Mapping):
        inner = f"{place}." if place else ""
        items = list(value.items())
        return {str(k): _spell(v, f"{inner}{k}", nonfinite, depth + 1) for k, v in items}
    if isinstance(value, list | tuple | set | frozenset):
        inner = f"{place}." if place else ""
        return [_spell(v, f"{inner}{i}", nonfinite, depth + 1) for i, v in enumerate(list(value)[:_LONGEST])]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        return _spell(fields, place, nonfinite, depth + 1)
    if isinstance(value, PurePath):
        return str(value)
    return _spell_foreign(value, place, nonfinite, depth)


def _spell_foreign(value: object, place: str, nonfinite: dict[str, str], depth: int) -> Json:
    """Tensors, numpy arrays and scalars, by what they can do rather than by their class; else the text."""
    for unwrap in ("item", "tolist"):
        try:
            plain = getattr(value, unwrap)()
        except Exception:  # no such method, or an array of several elements: the next way may do
            continue
        if type(plain) is not type(value):
            return _spell(plain, place, nonfinite, depth + 1)
    return _text(value)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _text(value: object) -> str:
    try:
        return str(value)[:1000].encode("utf-8", "replace").decode()
    except Exception:
        return f"<{type(value).__name__}>"
