"""The one JSON encoder: whatever a training loop hands over becomes one valid line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any

import msgspec

_DEEPEST = 32  # levels of nesting kept; below that a value is written as its text
_LONGEST = 65_536  # elements of one array kept
_MOST = 200_000  # values of one event; a structure that contains itself would have no end

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
    return msgspec.json.format(encode(jsonable_record(record)), indent=2) + b"\n"


def jsonable(value: object) -> tuple[Json, dict[str, str]]:
    """Convert any value to what JSON can hold, and list the numbers that it has no form for.

    The list maps the dotted path of each such number to `nan`, `inf` or `-inf`; the number itself becomes None.
    """
    converter = _JsonConverter()
    return converter.convert(value, "", 0), converter.nonfinite


def jsonable_record(record: Mapping[str, object]) -> dict[str, Json]:
    """Convert one event; its non-finite numbers are listed under `nonfinite`."""
    plain, nonfinite = jsonable(record)
    assert isinstance(plain, dict)
    if nonfinite:
        if "nonfinite" in plain:  # a metric of that name
            values = plain.setdefault("values", {})
            if isinstance(values, dict):
                values["nonfinite"] = plain["nonfinite"]
        plain["nonfinite"] = dict(nonfinite)
    return plain


def drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are there: in an event an absent one says the same as a null, and is shorter."""
    return {name: value for name, value in fields.items() if value is not None}


def flat_names(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Metrics under one name each: what lies in nested mappings is named by its path, `{"a": {"b": 1}}` as `a/b`."""
    return dict(islice(_flat(values, "", ()), _MOST))


def _flat(values: Mapping[Any, Any], prefix: str, within: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    within = (*within, id(values))
    for key, value in list(islice(values.items(), _MOST)):
        name = prefix + (key if type(key) is str else safe_text(key))
        if isinstance(value, Mapping) and id(value) not in within and len(within) < _DEEPEST:
            yield from _flat(value, f"{name}/", within)
        else:
            yield name, value


def whole_number(value: Any) -> int | None:
    """An integer of 64 bits, whichever library's number it is; None when it is none."""
    try:
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool | str | bytes):
            return None
        whole = int(number)
        return whole if whole == number and -(2**63) <= whole < 2**63 else None
    except Exception:
        return None


def safe_text(value: object) -> str:
    """The text of any value, cut to 1,000 characters; its type where it has none to give."""
    try:
        return str(value)[:1000].encode("utf-8", "replace").decode()
    except Exception:
        return f"<{type(value).__name__}>"


class _JsonConverter:
    """One value on its way to JSON: how many values were seen in it, and which of its numbers are not finite."""

    def __init__(self) -> None:
        self.nonfinite: dict[str, str] = {}
        self._seen = 0

    def convert(self, value: object, path: str, depth: int) -> Json:
        try:
            return self._convert(value, path, depth)
        except Exception:  # an object that raises when it is looked at
            return safe_text(value)

    def _convert(self, value: object, path: str, depth: int) -> Json:
        self._seen += 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if -(2**63) <= value < 2**64 else self.convert(_as_float(value), path, depth)
        if isinstance(value, float):
            if math.isfinite(value):
                return float(value)
            self.nonfinite[path] = "nan" if value != value else "inf" if value > 0 else "-inf"
            return None
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if depth >= _DEEPEST or self._seen > _MOST or isinstance(value, PurePath):
            return safe_text(value)
        inner = f"{path}." if path else ""
        if isinstance(value, Mapping):
            named = ((safe_text(k), v) for k, v in list(islice(value.items(), _LONGEST)))
            return {k: self.convert(v, inner + k, depth + 1) for k, v in named}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.convert(v, f"{inner}{i}", depth + 1) for i, v in enumerate(list(islice(value, _LONGEST)))]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            return self.convert(fields, path, depth + 1)
        return self._foreign(value, path, depth)

    def _foreign(self, value: object, path: str, depth: int) -> Json:
        """Tensors, arrays, fractions, by what they can do rather than by their class; else the text."""
        for unwrap in ("item", "tolist", "__float__"):
            try:
                plain = getattr(value, unwrap)()
            except Exception:  # no such method, or an array of several elements: the next way may do
                continue
            if type(plain) is not type(value):
                return self.convert(plain, path, depth + 1)
        return safe_text(value)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
