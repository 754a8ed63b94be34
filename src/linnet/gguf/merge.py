"""A base and adapters as one model: `merge` writes it tensor by tensor, so that neither is ever in memory whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.gguf.adapter import AdapterFile, Pair, chat_format_beside
from linnet.gguf.chat_families import AUTO, chat_format_of
from linnet.gguf.checkpoint import Provenance, add_origin
from linnet.gguf.config import config_of
from linnet.gguf.convert import convert_tensors, readable_tensors
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tensor import FILE_TYPES, TensorInfo
from linnet.gguf.writer import WRITABLE, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def merge(
    base: str | os.PathLike[str],
    adapters: Sequence[tuple[AdapterFile, float]],
    target: str | os.PathLike[str],
    type: str | None = None,
) -> Path:
    """Write `base` with what adapters add to it, each times a scale, as a model of its own.

    `type`: of the matrices; by default the base's, f16 where that cannot be written. All else is the base's: sizes,
    tokenizer, and chat template, unless an adapter was trained on chats of another format. Whether the adapters belong
    to the base the caller has made sure of.
    """
    with GGUFFile.open(base) as file:
        config = config_of(file, task="text")
        for adapter, _ in adapters:
            adapter.require_fits(config, base)
        added: dict[str, list[tuple[Pair, float]]] = {}
        for adapter, scale in adapters:
            for tensor, pair in adapter.pairs.items():
                added.setdefault(tensor, []).append((pair, scale * adapter.scale(pair)))
        tensors = dict(readable_tensors(file))
        for tensor, pairs in added.items():
            merged = MergedRows(_tensor(file, tensors, tensor), tuple(pairs))
            tensors[tensor] = FiniteRows(merged, f"tensor {quoted(tensor)}", file.path)
        named = [f"{adapter.name} × {scale:g}" for adapter, scale in adapters]
        origin = MetadataBlock().texts("linnet.merged.adapters", named)
        template = _template_for(file, chat_format_beside(adapters))
        return convert_tensors(
            file, tensors, target, type or writable_type_of(file), chat_template=template, origin=origin
        )


def write_merged(
    base: str | os.PathLike[str],
    params: Mapping[str, NDArray[np.float32]],
    scale: float,
    path: str | os.PathLike[str],
    run_id: str,
    step: int,
    *,
    chat_format: str | None = None,
    type: str = "f32",
    provenance: Provenance | None = None,
) -> Path:
    """Write a base with pairs that are in training, by the names of `adapter_layout`; each with `lora_magnitude`.

    `chat_format`: how the chats are written that it is trained on, where the base's own are written otherwise.
    """
    with GGUFFile.open(base) as file:
        tensors = dict(readable_tensors(file))
        for stem in (name.removesuffix(".lora_a") for name in params if name.endswith(".lora_a")):
            tensor = f"{stem.replace('blocks.', 'blk.', 1)}.weight"
            pair = Pair(params[f"{stem}.lora_a"], params[f"{stem}.lora_b"])
            merged = MergedRows(_tensor(file, tensors, tensor), ((pair, scale),))
            tensors[tensor] = StretchedRows(merged, params[f"{stem}.lora_magnitude"])
        origin = MetadataBlock()
        add_origin(origin, run_id, step, len(tensors), provenance, None)
        template = _template_for(file, chat_format or AUTO)
        return convert_tensors(file, tensors, path, type, chat_template=template, origin=origin)


def _template_for(file: GGUFFile, chat_format: str) -> str | None:
    """A template that writes chats in a format; None: the file's own does, or there is none for it."""
    if chat_format == AUTO:
        return None
    written = chat_format_of(file.metadata, chat_format)
    return written.chat_template() if written.has_template else None


def _tensor(file: GGUFFile, tensors: Mapping[str, TensorInfo | Rows], name: str) -> TensorInfo | Rows:
    if name not in tensors:
        problem = "the base keeps this tensor in another form, to which no adapter can be added"
        raise GGUFError(problem, f"tensor {quoted(name)}", "a tensor of its own", "none", file.path)
    return tensors[name]


def writable_type_of(file: GGUFFile) -> str:
    """The type of a file where it can be written; else f16, which holds what any smaller one decodes to."""
    stated = file.metadata.get("general.file_type")
    return next((word for word in WRITABLE if FILE_TYPES[word] == stated), "f16")


@dataclass(frozen=True)
class MergedRows:
    """A tensor of a base with what adapters add to it, made when its turn to be written comes."""

    base: Rows
    added: tuple[tuple[Pair, float], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the base's tensor."""
        return self.base.shape

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """The values as float32."""
        values = self.base.read(rows)
        for pair, scale in self.added:
            values += np.float32(scale) * (pair.up[rows or slice(None)] @ pair.down)
        return values


@dataclass(frozen=True)
class FiniteRows:
    """Rows of which no number may be infinite or NaN, as an adapter with too large a scale makes them."""

    rows: Rows
    place: str
    path: Path

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the rows."""
        return self.rows.shape

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """The values as float32."""
        with np.errstate(all="ignore"):
            values = self.rows.read(rows)
        if not np.isfinite(values).all():
            problem = "with the adapters it has numbers that are not finite"
            raise GGUFError(problem, self.place, "finite", "NaN or infinite", self.path)
        return values


@dataclass(frozen=True)
class StretchedRows:
    """A tensor whose rows have been given other lengths, as DoRA trains them."""

    rows: Rows
    lengths: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the tensor."""
        return self.rows.shape

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """The values as float32."""
        values = self.rows.read(rows)
        lengths = self.lengths[rows or slice(None)] / np.maximum(np.linalg.norm(values, axis=1), 1e-6)
        values *= lengths[:, None]
        return values
