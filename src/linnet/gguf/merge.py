"""A base and adapters as one model: `merge` writes it tensor by tensor, so that neither is ever in memory whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from linnet.gguf.adapter import AdapterFile, MergedRows
from linnet.gguf.config import config_of
from linnet.gguf.convert import convert_tensors, readable_tensors
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tensor import FILE_TYPES
from linnet.gguf.writer import WRITABLE

_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"
_MERGED = "linnet.merged.adapters"


def merge(
    base: str | os.PathLike[str],
    adapters: Sequence[tuple[AdapterFile, float]],
    target: str | os.PathLike[str],
    type: str | None = None,
) -> Path:
    """Write `base` with what adapters add to it, each times a scale, as a model of its own.

    `type`: of the matrices; by default the base's, f16 where that cannot be written. All else is the base's: sizes,
    tokenizer, chat template. Whether the adapters belong to the base the caller has made sure of.
    """
    with GGUFFile.open(base) as file:
        config = config_of(file, task="text")
        for adapter, _ in adapters:
            adapter.require_fits(config, base)
        tensors = dict(readable_tensors(file))
        for tensor in {tensor for adapter, _ in adapters for tensor in adapter.pairs}:
            if tensor not in tensors:
                problem = "the base keeps this tensor in another form, to which no adapter can be added"
                raise GGUFError(problem, f"tensor {quoted(tensor)}", "a tensor of its own", "none", file.path)
            added = tuple(
                (pair, scale * adapter.scale(pair))
                for adapter, scale in adapters
                if (pair := adapter.pairs.get(tensor)) is not None
            )
            tensors[tensor] = MergedRows(tensors[tensor], added)
        extra = MetadataBlock()
        if _MERGED not in file.metadata:
            extra.texts(_MERGED, [f"{adapter.name} × {scale:g}" for adapter, scale in adapters])
        return convert_tensors(file, tensors, target, type or writable_type_of(file), extra=extra)


def writable_type_of(file: GGUFFile) -> str:
    """The type of a file where it can be written; else f16, which holds what any smaller one decodes to."""
    stated = file.metadata.get("general.file_type")
    return next((word for word in WRITABLE if FILE_TYPES[word] == stated), "f16")
