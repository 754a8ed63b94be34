"""A LoRA adapter as a GGUF file, as llama.cpp applies it: written, read, and checked against a base.

A pair of the file, `blk.3.attn_q.weight.lora_a` [rank, in] and `.lora_b` [out, rank], adds scale · B A to the base's
tensor. For `token_embd.weight` llama.cpp expects the pair flipped: lora_a [vocab, rank], lora_b [width, rank].
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.architectures.description import Config
from linnet.architectures.parameters import Layout, Param, Piece, layout
from linnet.architectures.registry import AnyConfig
from linnet.gguf.chat_families import AUTO
from linnet.gguf.checkpoint import (
    Provenance,
    add_origin,
    check_shapes,
    general_keys,
    write_params,
    wrong_param,
)
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile, resolve_link
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.writer import writable_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLIPPED = "token_embd.weight"
_HALVES = ("lora_a", "lora_b")
_CHAT_FORMAT = "linnet.adapter.chat_format"
# Sizes by which rows are put in the order of another library (`peft.py`); llama.cpp passes them over.
_HEADS = ("attention.head_count", "attention.head_count_kv")


def adapter_layout(config: AnyConfig, rank: int, targets: Iterable[str]) -> Layout:
    """The pairs of a LoRA adapter; a target is a projection of the file: `attn_q`, `ffn_up`, `token_embd`.

    `blocks.3.attn_q.lora_a` [rank, in] and `blocks.3.attn_q.lora_b` [out, rank] are in the file
    `blk.3.attn_q.weight.lora_a` and `.lora_b`. There is one pair for each of q, k and v although the base
    matrix is fused: that is what llama.cpp applies. For `token_embd` it expects the pair transposed:
    [vocab, rank] and [d, rank].
    """
    wanted = set(targets)
    known = adapter_targets(config)
    for target in sorted(wanted - set(known)):
        raise wrong_param(target, "no such LoRA target", " or ".join(sorted(known)), quoted(target))
    params = []
    for tensor, (_, piece) in layout(config).tensors.items():
        if target_of(tensor) not in wanted or len(piece.shape) != 2:
            continue
        out, into = piece.shape
        pair = {"lora_a": (rank, into), "lora_b": (out, rank)}
        if tensor == _FLIPPED:
            pair = {"lora_a": (out, rank), "lora_b": (into, rank)}
        stem = stem_of(tensor)
        for half, shape in pair.items():
            params.append(Param(f"{stem}.{half}", shape, (Piece(f"{tensor}.{half}", 0, shape[0], shape),)))
    return Layout(params)


def adapter_targets(config: AnyConfig) -> dict[str, tuple[int, int]]:
    """The matrices of a model that an adapter can change, by their names in its file, with a shape of each."""
    return {
        target_of(tensor): (piece.shape[0], piece.shape[1])
        for tensor, (param, piece) in layout(config).tensors.items()
        if len(piece.shape) == 2 and target_of(tensor) != "position_embd" and param.belongs_to(config)
    }


def target_of(tensor: str) -> str:
    """`blk.3.attn_q.weight` → `attn_q`."""
    return tensor.removesuffix(".weight").rsplit(".", 1)[-1]


def stem_of(tensor: str) -> str:
    """`blk.3.attn_q.weight` → `blocks.3.attn_q`, which the names of its pair begin with."""
    return tensor.removesuffix(".weight").replace("blk.", "blocks.", 1)


def write_adapter(
    config: Config,
    params: Mapping[str, Any],
    path: str | os.PathLike[str],
    run_id: str,
    step: int,
    *,
    alpha: float,
    base: str,
    base_sha256: str | None = None,
    chat_format: str | None = None,
    type: str = "f32",
    name: str | None = None,
    provenance: Provenance | None = None,
    extra: MetadataBlock | None = None,
) -> Path:
    """Write a LoRA adapter that llama.cpp applies to `base`; `params` holds pairs as in `adapter_layout`.

    `base`: what the base is called; `base_sha256`: the digest of its file, by which it is known again.
    `chat_format`: how the chats are written that it was trained on, where the base's own are written otherwise.
    """
    wanted = writable_type(type)
    targets = {name.rsplit(".", 2)[-2] for name in params if name.endswith((".lora_a", ".lora_b"))}
    firsts = [params[name] for name in sorted(params) if name.endswith(".lora_b")]
    if not targets or not firsts:
        given = f"{len(params)} parameters without one"
        raise GGUFError("there is no LoRA pair", "params", "….lora_a and ….lora_b", given, path)
    rank = int(firsts[0].shape[1])
    plan = adapter_layout(config, rank, targets)
    # A pair may be trained in some blocks only, so only what is there is checked, and that pairs are whole.
    present = Layout(param for key, param in plan.params.items() if _other_half(key) in params or key in params)
    check_shapes(present, params)
    metadata = general_keys(config, "adapter", name if name is not None else run_id, wanted)
    metadata.u32("general.base_model.count", 1).text("general.base_model.0.name", base)
    metadata.text("adapter.type", "lora").f32("adapter.lora.alpha", float(alpha))
    for key, count in zip(_HEADS, (config.n_heads, config.n_kv), strict=True):
        metadata.u32(f"{config.arch}.{key}", count)
    metadata.text("linnet.adapter.base", base).u32("linnet.adapter.rank", rank)
    metadata.texts("linnet.adapter.targets", sorted(targets))
    if base_sha256 is not None:
        metadata.text("linnet.adapter.base_sha256", base_sha256)
    if chat_format is not None:
        metadata.text(_CHAT_FORMAT, chat_format)
    add_origin(metadata, run_id, step, len(params), provenance, extra)
    return write_params(metadata, present, params, wanted, path)


def _other_half(name: str) -> str:
    return name.removesuffix("_a") + "_b" if name.endswith("_a") else name.removesuffix("_b") + "_a"


@dataclass(frozen=True)
class Pair:
    """What an adapter adds to a matrix [out, in]: up [out, rank] · down [rank, in], times a scale."""

    down: NDArray[np.float32]
    up: NDArray[np.float32]

    @property
    def rank(self) -> int:
        """How many directions it has."""
        return len(self.down)


@dataclass(frozen=True)
class AdapterFile:
    """An adapter that was read: its pairs by the base's tensors, and what it says of itself.

    - `alpha`: 0 where the file has none: pairs then are not divided by their rank.
    - `base`, `base_sha256`: what it was made for, empty where the file does not say.
    - `head_counts`: of queries and of keys and values, where the file says.
    - `chat_format`: how the chats are written that it was trained on; empty: as the base's are.
    """

    path: Path
    name: str
    architecture: str
    alpha: float
    pairs: Mapping[str, Pair]
    base: str = ""
    base_sha256: str = ""
    head_counts: tuple[int, int] | None = None
    chat_format: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> AdapterFile:
        """Read an adapter; a file that is none, or whose pairs are not whole, is a GGUFError."""
        with GGUFFile.open(resolve_link(path)) as file:
            metadata = file.metadata
            kind = metadata.get("general.type", "model")
            if kind != "adapter":
                problem, place = "is no adapter", "metadata 'general.type'"
                raise GGUFError(problem, place, "'adapter'", quoted(str(kind)), file.path)
            if (form := metadata.get("adapter.type")) != "lora":
                problem, place = "the adapter is of a kind that is not known", "metadata 'adapter.type'"
                raise GGUFError(problem, place, "'lora'", quoted(str(form)), file.path)
            alpha = metadata.get("adapter.lora.alpha", 0.0)
            if not isinstance(alpha, int | float) or not math.isfinite(alpha):
                place = "metadata 'adapter.lora.alpha'"
                raise GGUFError("the value is wrong", place, "a number", quoted(str(alpha)), file.path)
            arch = file.architecture
            counts = tuple(count for key in _HEADS if isinstance(count := metadata.get(f"{arch}.{key}"), int))
            return cls(
                path=file.path,
                name=metadata.text("general.name") or file.path.name,
                architecture=arch,
                alpha=float(alpha),
                pairs=_pairs(file),
                base=metadata.text("linnet.adapter.base") or metadata.text("general.base_model.0.name"),
                base_sha256=metadata.text("linnet.adapter.base_sha256"),
                head_counts=(counts[0], counts[1]) if len(counts) == len(_HEADS) else None,
                chat_format=metadata.text(_CHAT_FORMAT),
            )

    @property
    def rank(self) -> int:
        """The rank of its pairs, the largest where they differ."""
        return max(pair.rank for pair in self.pairs.values())

    @property
    def targets(self) -> tuple[str, ...]:
        """The projections that it changes, by the file's names: `attn_q`."""
        return tuple(sorted({target_of(tensor) for tensor in self.pairs}))

    def scale(self, pair: Pair) -> float:
        """What llama.cpp multiplies a pair by, where it is asked for with a scale of 1."""
        return self.alpha / pair.rank if self.alpha else 1.0

    def require_fits(self, config: AnyConfig, base: str | os.PathLike[str]) -> None:
        """Refuse a base of another architecture or shape."""
        if self.architecture != config.arch:
            expected, found = f"a base of the architecture {self.architecture}", f"{os.fspath(base)}, a {config.arch}"
            raise self._misfit("metadata 'general.architecture'", expected, found)
        tensors = layout(config).tensors
        for tensor, pair in self.pairs.items():
            of_base = tensors[tensor][1].shape if tensor in tensors else None
            if of_base != (shape := (len(pair.up), pair.down.shape[1])):
                found = "no such tensor" if of_base is None else f"one of {list(of_base)}"
                raise self._misfit(
                    f"tensor {quoted(tensor)}", f"a base with one of {list(shape)}", f"{found} in {base}"
                )

    def require_base(self, sha256: str, base: str | os.PathLike[str]) -> None:
        """Refuse another base than the adapter was made for, as far as it says."""
        if self.base_sha256 and self.base_sha256 != sha256:
            expected = f"{self.base or 'its base'} (sha256 {self.base_sha256[:12]}…)"
            found = f"{os.fspath(base)} ({sha256[:12]}…); apply it all the same with `any_base`"
            raise self._misfit("metadata 'linnet.adapter.base_sha256'", expected, found)

    def _misfit(self, place: str, expected: str, found: str) -> GGUFError:
        return GGUFError("the adapter was made for another base", place, expected, found, self.path)


def chat_format_beside(adapters: Iterable[tuple[AdapterFile, float]]) -> str:
    """The format of chats with a base and adapters of these scales: the last that an adapter names, else the base's."""
    said = [adapter.chat_format for adapter, scale in adapters if adapter.chat_format and scale]
    return said[-1] if said else AUTO


def _pairs(file: GGUFFile) -> dict[str, Pair]:
    pairs = {}
    for name, tensor in file.tensors.items():
        base, _, half = name.rpartition(".")
        place = f"tensor {quoted(name)}"
        if half not in _HALVES or len(tensor.shape) != 2:
            if not name.endswith("_norm.weight"):  # llama.cpp passes those over
                raise GGUFError(
                    "not a part of a LoRA pair", place, "….lora_a or ….lora_b", str(tensor.shape), file.path
                )
            continue
        other = file.tensors.get(_other_half(name))
        if other is None or len(other.shape) != 2:
            raise GGUFError("the other half of the pair is missing", place, path=file.path)
        if half == "lora_b":
            continue
        down, up = (other.read().T, tensor.read()) if base == _FLIPPED else (tensor.read(), other.read())
        if down.shape[0] != up.shape[1]:
            problem, shapes = "the halves of the pair have different ranks", f"{tensor.shape} with {other.shape}"
            raise GGUFError(problem, place, "one rank", shapes, file.path)
        if not (np.isfinite(down).all() and np.isfinite(up).all()):
            raise GGUFError("the pair has numbers that are not finite", place, "finite", "NaN or infinite", file.path)
        pairs[base] = Pair(np.ascontiguousarray(down), np.ascontiguousarray(up))
    if not pairs:
        raise GGUFError("there is no LoRA pair", "tensors", "….lora_a and ….lora_b", "none", file.path)
    return pairs
