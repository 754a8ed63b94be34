"""A GGUF file again in another type, tensor by tensor."""

from __future__ import annotations

import os
from pathlib import Path

from linnet.gguf.checkpoint import FILE_TYPES
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.toy import Tensors
from linnet.gguf.types import GGMLType
from linnet.gguf.writer import WRITABLE, GGUFWriter, storage_type

# What depends on the type, and what is written only where it is not the default.
_OWN_KEYS = ("general.file_type", "general.quantization_version", "general.alignment")
_WHOLE_NUMBERS = (GGMLType.I8, GGMLType.I16, GGMLType.I32, GGMLType.I64)


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], type: str) -> Path:
    """Write `source` as `target` in f32, f16, bf16 or q8_0; all other metadata is copied byte for byte.

    Tensors already of the type go over as they are. Toy's heads are joined, so that llama.cpp can run the
    result.
    """
    if type not in WRITABLE:
        expected = " or ".join(WRITABLE)
        raise GGUFError(
            "the file type cannot be written",
            path=target,
            place="type",
            expected=expected,
            found=quoted(type),
        )
    wanted = WRITABLE[type]
    with GGUFFile.open(source) as file:
        metadata = MetadataBlock().copy(file.metadata, (key for key in file.metadata if key not in _OWN_KEYS))
        metadata.u32("general.file_type", FILE_TYPES[wanted])
        if wanted is GGMLType.Q8_0:
            metadata.u32("general.quantization_version", 2)
        writer = GGUFWriter(metadata)
        for name, tensor in Tensors(file).items():
            kept = tensor.type in _WHOLE_NUMBERS
            writer.add(name, tensor, tensor.type if kept else storage_type(name, tensor.shape, wanted))
        return writer.write(target)
