"""Flags are the data's fields: what the docstring of a dataclass explains is a flag, a TOML key, an argument."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

import docstring_parser

from linnet.files import expanded

_Data = TypeVar("_Data")

# Names that a run keeps so that they hold in any folder: `linnet resume` may be called in another one.
FilePath = Annotated[str, "path"]
ModelName = Annotated[str, "model"]  # a GGUF's path, or a RUN's checkpoint, which is kept as the path of its file
SourceName = Annotated[str, "source"]  # a path, a pattern, or the word for something built in


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Flag:
    """A word that a training is asked for with: `--d-model 64`, `d_model = 64`, `linnet.train(d_model=64)`."""

    name: str
    type: Any
    default: Any  # MISSING: it must be given
    help: str
    turns_off: str | None = None  # a field that is true unless the flag is given

    @property
    def is_path(self) -> bool:
        """Is its value the name of a file?"""
        return "path" in _marks(self.type)

    @property
    def is_model(self) -> bool:
        """Is its value a MODEL: a file, or a checkpoint of a run?"""
        return "model" in _marks(self.type)

    @property
    def is_run(self) -> bool:
        """Is its value a RUN?"""
        return "run" in _marks(self.type)

    @property
    def is_count(self) -> bool:
        """May its value be written as 20M or 1e9?"""
        return "count" in _marks(self.type)


FlagGroups: TypeAlias = Mapping[str, tuple[Flag, ...]]  # by their titles in `--help`


def flags_of(kind: type[Any], leave_out: Iterable[str] = ()) -> tuple[Flag, ...]:
    """The flags of a dataclass: the fields that its docstring and those of its bases explain, in that order."""
    types, defaults = get_type_hints(kind, include_extras=True), {field.name: field.default for field in fields(kind)}
    help = {name: text for base in reversed(kind.__mro__) for name, text in _explained(base).items()}
    return tuple(Flag(name, types[name], defaults[name], help[name]) for name in help if name not in leave_out)


def config_flags(configs: Iterable[type[Any]], leave_out: Iterable[str] = (), **help: str) -> tuple[Flag, ...]:
    """The flags of some architectures' hyper-parameters, none of which must be given. `help`: other words for some."""
    flags: dict[str, Flag] = {}
    for config in configs:
        types, known = get_type_hints(config, include_extras=True), {field.name: field for field in fields(config)}
        for base in reversed(config.__mro__):
            for name, text in _explained(base).items():
                flags.setdefault(name, Flag(name, types[name] | None, None, text))
            for name in inspect.get_annotations(base):
                if name in known and (word := known[name].metadata.get("flag")):
                    flags.setdefault(word, Flag(word, bool, False, known[name].metadata["help"], turns_off=name))
    return tuple(replace(flag, help=help.get(name, flag.help)) for name, flag in flags.items() if name not in leave_out)


def changed_fields(flags: Iterable[Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config that were given with these flags."""
    changed = [flag for flag in flags if values[flag.name] is not None and values[flag.name] is not False]
    return {flag.turns_off or flag.name: False if flag.turns_off else values[flag.name] for flag in changed}


def fill(kind: type[_Data], values: Mapping[str, Any]) -> _Data:
    """A dataclass from the values of flags, with paths that hold in any folder."""
    types = get_type_hints(kind, include_extras=True)
    return kind(**{name: _kept(value, types[name]) for name, value in values.items() if name in types})


def with_model_files(flags: FlagGroups, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags, those that name a MODEL as the path of its file; `runs` among them is the folder of runs."""
    from linnet.models.model_name import model_path

    files = dict(values)
    for name in (flag.name for group in flags.values() for flag in group if flag.is_model):
        if (model := values.get(name)) is not None:
            files[name] = absolute(model_path(model, values.get("runs")))
    return files


def kept_values(flags: FlagGroups, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags as `run.json` holds them: paths that hold in any folder, lists for tuples."""
    known = {flag.name: flag.type for group in flags.values() for flag in group}
    kept = {name: _kept(value, known.get(name)) for name, value in values.items() if value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


def defaults_of(flags: Iterable[Flag]) -> dict[str, Any]:
    """The values of flags that are not given."""
    return {flag.name: flag.default for flag in flags if flag.default is not MISSING}


def count_of(text: str) -> int:
    """A large number as people write it: 20M, 1.5B, 1e9, 1_000_000; a ValueError where it is none."""
    match = re.fullmatch(
        r"\s*(\d[\d_]*(?:\.\d+)?(?:e\d{1,2})?)\s*([kmbgt]?)\s*", text.replace(",", "").lower(), re.ASCII
    )
    if match is None:
        raise ValueError(f"expected a number such as 20M, found {text!r}")
    number = match[1].replace("_", "")
    return int(number) * _UNITS[match[2]] if number.isdigit() else round(float(number) * _UNITS[match[2]])


def absolute(path: str | Path) -> str:
    """A path as a run keeps it."""
    return str(expanded(path).absolute())


def absolute_source(name: str) -> str:
    """The same for a corpus or images; words for what is built in, and patterns, stay as they are."""
    path = absolute(name)
    return path if Path(path).exists() else name


def _kept(value: Any, kind: Any) -> Any:
    marks = _marks(kind)
    if value is None:
        return value
    if "source" in marks:
        return absolute_source(value)
    return absolute(value) if {"path", "model"} & set(marks) else value


def _marks(kind: Any) -> list[str]:
    """`path` of `FilePath | None`."""
    return [mark for part in (kind, *get_args(kind)) for mark in getattr(part, "__metadata__", ())]


def _docstring(kind: type[Any]) -> str:
    """A class's docstring; under `python -OO`, which has none, that of its source."""
    if sys.flags.optimize < 2:
        return kind.__doc__ or ""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # a class without a source explains no field
        return ""
    return ast.get_docstring(node) or "" if isinstance(node, ast.ClassDef) else ""


def _explained(kind: type[Any]) -> dict[str, str]:
    """The help of fields, from a class's own docstring."""
    parameters = docstring_parser.parse(_docstring(kind)).params
    return {parameter.arg_name: " ".join((parameter.description or "").split()) for parameter in parameters}
