"""A config as metadata of a GGUF file, and back, by the description of its architecture."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints, overload

import numpy as np

from linnet.architectures.description import Architecture, Config, Key, Task
from linnet.architectures.parameters import rows
from linnet.architectures.registry import ARCHITECTURES, AnyConfig, describe, names_for
from linnet.architectures.rotary import ROPE_SCALINGS, RopeScaling, rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import Metadata, MetadataBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_TENSORS = 6  # of any block, at least: two norms, Q, K and V in one, the attention's output, two more matrices
_POSITIONS = "position_embd.weight"
_WRONG_TASK = {
    None: "this architecture can be neither trained nor run here",
    "text": "this architecture can be neither trained nor run here",
    "images": "this is no classifier of images",
}
# llama.cpp knows no rope scaling "llama3" (it aborts on the word) and would apply a bare factor linearly; the whole
# effect is in the tensor rope_freqs.weight. What it was made from is kept for resuming, under our own keys.
_LLAMA3 = "linnet.rope.llama3."


def hyper_parameters(config: AnyConfig) -> MetadataBlock:
    """The keys that llama.cpp needs for this config, with exactly the types it checks for."""
    described = describe(config)
    values = {f"{described.name}.{key.name}": (key.type, key.written(config)) for key in described.keys}
    values |= _rope_keys(described.name, rope_scaling_of(config))
    return MetadataBlock.of({name: value for name, value in values.items() if value[1] is not None})


def rope_divisors(scaling: RopeScaling, head_dim: int, base: float) -> NDArray[np.float32]:
    """For llama3 scaling, what `rope_freqs.weight` [head_dim / 2] holds: the divisor of each pair's angle."""
    angles = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelength = 2 * math.pi / angles
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((scaling.original_ctx / wavelength - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / scaling.factor + smooth)).astype(np.float32)


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
        found = quoted(file.architecture) if file.architecture else "none"
        raise _error(file, "general.architecture", _WRONG_TASK[task], " or ".join(known), found)
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
        raise GGUFError(f"these sizes cannot be: {error}", "metadata", path=file.path) from None
    return config


class _Stated:
    """The fields of a config that a file states, each there, of the right kind, and possible."""

    def __init__(self, file: GGUFFile, described: Architecture) -> None:
        self._file, self._metadata, self._described = file, file.metadata, described
        self._defaults = {field.name: field.default for field in fields(described.config)}

    def fields(self) -> dict[str, Any]:
        stated: dict[str, Any] = {}
        for key in sorted(self._described.keys, key=lambda key: key.default is not None):  # these follow from others
            if key.says is not None and self._metadata.get(self._name(key), False) is not False:
                stated[key.says[0]] = key.says[1]
            if key.field is not None and (key.says is None or self._name(key) in self._metadata):
                stated[key.field] = self._value(key, stated)
        if "head_dim" in stated and stated["head_dim"] * stated["n_heads"] == stated["d_model"]:
            stated["head_dim"] = 0
        stated |= self._flags_from_tensors()
        if "rope_scaling" in self._defaults:
            stated["rope_scaling"] = self._rope_scaling()
        return stated

    def _value(self, key: Key, stated: dict[str, Any]) -> Any:
        name, field = self._name(key), str(key.field)
        if field == "head_dim" and stated["n_heads"] > stated["d_model"]:
            heads, problem = f"{self._described.name}.attention.head_count", "there are more heads than values"
            raise self._error(heads, problem, f"at most {stated['d_model']}", str(stated["n_heads"]))
        default = self._defaults[field] if key.default is None else key.default(stated)
        if key.type == "u32":
            rows_of = self._file.tensors.get(key.rows_of) if key.rows_of else None
            return rows_of.shape[0] if rows_of is not None else self._count(name, default)
        if key.type == "f32":
            return _shortest(self._number(name, default))
        if key.type == "string":
            return self._word(name, default, get_args(get_type_hints(self._described.config)[field]))
        if key.type == "array:string":
            return self._several(name, str)
        return tuple(_shortest(number) for number in self._several(name, float))

    def _flags_from_tensors(self) -> dict[str, bool]:
        """Fields that are true where a parameter is there, in the first block, and those that are true where not."""
        present: dict[str, bool] = {}
        for row in rows(self._described.parameters):
            if row.condition:
                tensors = [tensor.replace("#", "0") for tensor in row.tensors]
                tensors += [tensor.replace("attn_q.", "attn_qkv.") for tensor in tensors]  # fused by other converters
                present.setdefault(row.condition, False)
                present[row.condition] |= any(tensor in self._file.tensors for tensor in tensors)
        return {field.removeprefix("!"): is_present != field.startswith("!") for field, is_present in present.items()}

    def _rope_scaling(self) -> RopeScaling | None:
        try:
            return _read_rope_keys(self._metadata, self._described.name)
        except UsageError as error:
            problem = str(error).removeprefix("rope_scaling: ")
            raise self._error(f"{self._described.name}.rope.scaling", problem) from None

    def _count(self, key: str, default: object) -> int:
        value = self._metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
            shown = _shown(value) if key in self._metadata else "None"
            raise self._error(key, "the value is missing or wrong", "a whole number from 1", shown)
        n_tensors = len(self._file.tensors)
        if key.endswith(".block_count") and value * _BLOCK_TENSORS > n_tensors:
            expected, found = f"at least {_BLOCK_TENSORS} tensors a block", f"{value} with {n_tensors} tensors"
            raise self._error(key, "the file cannot hold so many blocks", expected, found)
        return value

    def _number(self, key: str, default: Any) -> float:
        value = self._metadata.get(key, default)
        if not isinstance(value, float) or not 0 <= value < float("inf"):
            raise self._error(key, "the value is wrong", "a number from 0", _shown(value))
        return value

    def _word(self, key: str, default: Any, known: tuple[str, ...]) -> str:
        word = self._metadata.text(key, default)
        if word not in known:
            raise self._error(key, "the value is not known", " or ".join(known), quoted(word))
        return word

    def _several(self, key: str, kind: type) -> tuple[Any, ...]:
        values = self._metadata.get(key, ())
        if not isinstance(values, tuple):
            raise self._error(key, "the value is wrong", "an array", _shown(values))
        return tuple(value for value in values if isinstance(value, kind))

    def _name(self, key: Key) -> str:
        return f"{self._described.name}.{key.name}"

    def _error(self, key: str, problem: str, expected: str = "", found: str = "") -> GGUFError:
        return _error(self._file, key, problem, expected, found)


def _rope_keys(arch: str, scaling: RopeScaling | None) -> dict[str, tuple[str, Any]]:
    if scaling is None:
        return {}
    if scaling.kind == "llama3":
        return {
            f"{_LLAMA3}factor": ("f32", scaling.factor),
            f"{_LLAMA3}low_freq_factor": ("f32", scaling.low_freq_factor),
            f"{_LLAMA3}high_freq_factor": ("f32", scaling.high_freq_factor),
            f"{_LLAMA3}original_context_length": ("u32", scaling.original_ctx),
        }
    return {
        f"{arch}.rope.scaling.type": ("string", scaling.kind),
        f"{arch}.rope.scaling.factor": ("f32", scaling.factor),
        f"{arch}.rope.scaling.original_context_length": ("u32", scaling.original_ctx or None),
    }


def _read_rope_keys(metadata: Metadata, arch: str) -> RopeScaling | None:
    """The scaling a file states, in our keys, in llama.cpp's, or in those Toy's loader knows for llama3."""
    for prefix in (_LLAMA3, f"{arch}.rope.scaling."):
        kind = "llama3" if prefix == _LLAMA3 else metadata.text(f"{prefix}type", "linear")
        factor = metadata.get(prefix + "factor")
        if not isinstance(factor, float) or kind not in ROPE_SCALINGS or kind == "none":
            continue
        original = metadata.get(prefix + "original_context_length", 0)
        low, high = metadata.get(prefix + "low_freq_factor", 1.0), metadata.get(prefix + "high_freq_factor", 4.0)
        if isinstance(original, int) and isinstance(low, float) and isinstance(high, float):
            return RopeScaling(kind, factor, original, low, high)
    return None


def _error(file: GGUFFile, key: str, problem: str, expected: str, found: str) -> GGUFError:
    return GGUFError(problem, f"metadata {quoted(key)}", expected, found, file.path)


def _shown(value: object) -> str:
    """A value of a file for an error: what it is, quoted where it is text."""
    if isinstance(value, str):
        return quoted(value)
    return f"{len(value)} values" if isinstance(value, tuple) else str(value)


def _shortest(value: float) -> float:
    """A file's f32 as it was meant: 1e-05, not 9.999999747378752e-06; a config written and read is the same."""
    with np.errstate(over="ignore"):  # an f64 beyond f32 is infinite, and refused as that
        return float(str(np.float32(value)))
