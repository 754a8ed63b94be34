"""A config as metadata of a GGUF file, and back, by the description of its architecture."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_type_hints, overload

import numpy as np

from linnet.architectures.description import Architecture, Config, Key, Task
from linnet.architectures.parameters import rows
from linnet.architectures.registry import ARCHITECTURES, AnyConfig, describe, names_for
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.rope import add_rope_keys, read_rope_keys
from linnet.gguf.values import ValueType

_BLOCK_TENSORS = (
    6  # of any block, at least: two norms, Q, K and V in one, the attention's output, and two more products
)
_POSITIONS = "position_embd.weight"
_WRONG_TASK = {
    None: "this architecture can be neither trained nor run here",
    "text": "this architecture can be neither trained nor run here",
    "images": "this is no classifier of images",
}


def hyper_parameters(config: AnyConfig) -> MetadataBlock:
    """The keys that llama.cpp needs for this config, with exactly the types it checks for."""
    block, described = MetadataBlock(), describe(config)
    for key in described.keys:
        value = key.written(config)
        if value is None:
            continue
        name, kind = f"{described.name}.{key.name}", key.type.removeprefix("array:")
        if kind == key.type:
            block.add(name, ValueType[kind.upper()], value)
        else:
            block.add_array(name, ValueType[kind.upper()], value)
    add_rope_keys(block, described.name, config)
    return block


@overload
def config_of(file: GGUFFile, ctx: int | None = None, *, task: Literal["text"]) -> Config: ...
@overload
def config_of(file: GGUFFile, ctx: int | None = None, *, task: Literal["images"]) -> ViTConfig: ...
@overload
def config_of(file: GGUFFile, ctx: int | None = None, *, task: None = None) -> AnyConfig: ...
def config_of(file: GGUFFile, ctx: int | None = None, *, task: Task | None = None) -> AnyConfig:
    """The config a GGUF file states; what is missing or cannot be is a GGUFError.

    `ctx` replaces its context; with `task` a file whose model does something else is refused.
    """
    known = names_for(task)
    if file.architecture not in known:
        place, found = "general.architecture", quoted(file.architecture) if file.architecture else "none"
        raise _error(file, place, _WRONG_TASK[task], " or ".join(known), found)
    described = ARCHITECTURES[file.architecture]
    if ctx is not None and ctx < 1:
        raise UsageError(f"ctx is {ctx}: give a whole number from 1")
    values = _Stated(file, described).fields()
    if ctx is not None:
        if "ctx" not in values:
            raise UsageError(f"{file.path} is a {described.name} and has no ctx to change")
        if ctx > values["ctx"] and any(row.name == _POSITIONS for row in rows(described.parameters)):
            raise UsageError(
                f"ctx {ctx} is more than the {values['ctx']} learned positions of {file.path}: ask for"
                f" {values['ctx']} or less"
            )
        values["ctx"] = ctx
    try:
        config: AnyConfig = described.config(**values)
    except UsageError as error:
        raise GGUFError(f"these sizes cannot be: {error}", path=file.path, place="metadata") from None
    return config


class _Stated:
    """The fields of a config that a file states, each there, of the right kind, and possible."""

    def __init__(self, file: GGUFFile, described: Architecture) -> None:
        self._file, self._described = file, described
        self._defaults = {field.name: field.default for field in fields(described.config)}

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in sorted(self._described.keys, key=lambda key: key.default is not None):  # these follow from others
            if key.says is not None and self._file.metadata.get(self._name(key), False) is not False:
                found[key.says[0]] = key.says[1]
            if key.field is not None and (key.says is None or self._name(key) in self._file.metadata):
                found[key.field] = self._value(key, found)
        if "head_dim" in found and found["head_dim"] * found["n_heads"] == found["d_model"]:
            found["head_dim"] = 0
        found |= self._told_by_tensors()
        if "rope_scaling" in self._defaults:
            found["rope_scaling"] = self._rope_scaling()
        return found

    def _value(self, key: Key, found: dict[str, Any]) -> Any:
        name = self._name(key)
        if key.field == "head_dim" and found["n_heads"] > found["d_model"]:
            place, problem = f"{self._described.name}.attention.head_count", "there are more heads than values"
            raise self._error(place, problem, f"at most {found['d_model']}", str(found["n_heads"]))
        default = self._defaults[key.field or ""] if key.default is None else key.default(found)
        if key.type == "u32":
            rows_of = self._file.tensors.get(key.rows_of) if key.rows_of else None
            return rows_of.shape[0] if rows_of is not None else self._count(name, default)
        if key.type == "f32":
            return _shortest(self._number(name, default))
        if key.type == "string":
            known = get_args(get_type_hints(self._described.config)[key.field or ""])
            return self._word(name, default, known)
        kind = str if key.type == "array:string" else float
        numbers = self._several(name, kind)
        return numbers if kind is str else tuple(_shortest(number) for number in numbers)

    def _told_by_tensors(self) -> dict[str, bool]:
        """Fields that are true where a parameter is there, in the first block, and those that are true where not."""
        there: dict[str, bool] = {}
        for row in rows(self._described.parameters):
            if row.told_by:
                tensors = [tensor.replace("#", "0") for tensor in row.tensors]
                tensors += [tensor.replace("attn_q.", "attn_qkv.") for tensor in tensors]  # fused by other converters
                present = any(tensor in self._file.tensors for tensor in tensors)
                there[row.told_by] = there.get(row.told_by, False) or present
        return {field.removeprefix("!"): found != field.startswith("!") for field, found in there.items()}

    def _rope_scaling(self) -> Any:
        try:
            return read_rope_keys(self._file.metadata, self._described.name)
        except UsageError as error:
            problem = str(error).removeprefix("rope_scaling: ")
            raise self._error(f"{self._described.name}.rope.scaling", problem) from None

    def _count(self, key: str, default: object) -> int:
        value = self._file.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
            shown = None if key not in self._file.metadata else value
            raise self._error(key, "the value is missing or wrong", "a whole number from 1", _shown(shown))
        if key.endswith(".block_count") and value * _BLOCK_TENSORS > len(self._file.tensors):
            expected, found = f"at least {_BLOCK_TENSORS} tensors a block", f"{value} with {len(self._file.tensors)}"
            raise self._error(key, "the file cannot hold so many blocks", expected, f"{found} tensors")
        return value

    def _number(self, key: str, default: Any) -> float:
        value = self._file.metadata.get(key, default)
        if not isinstance(value, float) or not 0 <= value < float("inf"):
            raise self._error(key, "the value is wrong", "a number from 0", _shown(value))
        return value

    def _word(self, key: str, default: Any, known: tuple[str, ...]) -> str:
        word = self._file.metadata.text(key, default)
        if word not in known:
            raise self._error(key, "the value is not known", " or ".join(known), quoted(word))
        return word

    def _several(self, key: str, kind: type) -> tuple[Any, ...]:
        values = self._file.metadata.get(key, ())
        if not isinstance(values, tuple):
            raise self._error(key, "the value is wrong", "an array", _shown(values))
        return tuple(value for value in values if isinstance(value, kind))

    def _name(self, key: Key) -> str:
        return f"{self._described.name}.{key.name}"

    def _error(self, key: str, problem: str, expected: str = "", found: str = "") -> GGUFError:
        return _error(self._file, key, problem, expected, found)


def _error(file: GGUFFile, key: str, problem: str, expected: str, found: str) -> GGUFError:
    return GGUFError(problem, path=file.path, place=f"metadata {quoted(key)}", expected=expected, found=found)


def _shown(value: object) -> str:
    """A value of a file for an error: what it is, quoted where it is text."""
    if isinstance(value, str):
        return quoted(value)
    return f"{len(value)} values" if isinstance(value, tuple) else str(value)


def _shortest(value: float) -> float:
    """A file's f32 as it was meant: 1e-05, not 9.999999747378752e-06; a config written and read is the same."""
    with np.errstate(over="ignore"):  # an f64 beyond f32 is infinite, and refused as that
        return float(str(np.float32(value)))
