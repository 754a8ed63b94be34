"""What the checkpoints of an adapter in training are: adapters that llama.cpp applies, or of DoRA merged models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet import gguf

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AdapterFormat:
    """Checkpoints that are adapters, which llama.cpp applies to the base."""

    config: Any
    alpha: float
    base: str
    base_sha256: str | None
    chat_format: str | None = None
    has_tokenizer = False

    def write(
        self, parameters: Mapping[str, Tensor], path: Path, run_id: str, step: int, *, tokenizer: object, **options: Any
    ) -> Path:
        """Write the adapter; the tokenizer is the base's."""
        return gguf.write_adapter(
            self.config,
            parameters,
            path,
            run_id,
            step,
            alpha=self.alpha,
            base=self.base,
            base_sha256=self.base_sha256,
            chat_format=self.chat_format,
            **options,
        )

    def beside(self, parameters: Mapping[str, Tensor], type: str) -> Mapping[str, Tensor]:
        """Below f32 everything."""
        return {} if type == "f32" else parameters

    def size(self, parameters: Iterable[Tensor], type: str) -> float:
        """Bytes of the pairs."""
        from linnet.train.checkpoint import stored_bytes

        return sum(stored_bytes(tensor, type) for tensor in parameters)


@dataclass(frozen=True)
class MergedFormat:
    """Checkpoints that are the base with what was trained added to it: DoRA's lengths fit no adapter."""

    base: Path
    scale: float
    chat_format: str | None = None
    has_tokenizer = True

    def write(
        self, parameters: Mapping[str, Tensor], path: Path, run_id: str, step: int, *, tokenizer: object, **options: Any
    ) -> Path:
        """Write the merged model, tensor by tensor out of the base's file."""
        from linnet.gguf.merge import write_merged

        arrays = {name: tensor.numpy() for name, tensor in parameters.items()}
        return write_merged(self.base, arrays, self.scale, path, run_id, step, chat_format=self.chat_format, **options)

    def beside(self, parameters: Mapping[str, Tensor], type: str) -> Mapping[str, Tensor]:
        """Everything: what a merged model was made of cannot be told from it."""
        return parameters

    def size(self, parameters: Iterable[Tensor], type: str) -> float:
        """Bytes of the whole model."""
        from linnet.gguf.writer import storage_type, writable_type

        stored_type = writable_type(type)
        with gguf.GGUFFile.open(self.base) as file:
            return sum(
                tensor.values
                // tensor.shape[-1]
                * storage_type(name, tensor.shape, stored_type).row_bytes(tensor.shape[-1])
                for name, tensor in file.tensors.items()
            )
