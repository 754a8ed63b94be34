"""Tensors of a file by ggml's names, also where another program named or split them otherwise.

Toy wrote the attention of its training graph head by head (`blk.0.attn_q.head_2.weight`), named its ViT after
timm and kept a donor's projection in a file of its own, a lens. Other converters fuse q, k and v into
`attn_qkv` or take it apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tensor import GGMLType, TensorInfo
from linnet.gguf.writer import GGUFWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

EMBEDDING = "token_embd.weight"
LENS = "lens.proj.weight"

_VIT_NAMES = {
    "v.patch_embd.weight": "patch_embed.proj.weight",
    "v.patch_embd.bias": "patch_embed.proj.bias",
    "v.class_embd": "cls_token",
    "v.position_embd.weight": "pos_embed",
    "v.post_ln.weight": "norm.weight",
    "cls.output.weight": "head.weight",
}
_VIT_BLOCK_NAMES = {"attn_out": "attn_output", "ffn_up": "mlp_up", "ffn_down": "mlp_down"}
_HEAD = re.compile(r"(.+\.attn_[qkv])\.head_(\d+)\.(weight|bias)")


@dataclass(frozen=True)
class Joined:
    """Tensors of a file that are one tensor by their rows."""

    name: str
    parts: tuple[TensorInfo | Joined, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """In torch's order."""
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    @property
    def type(self) -> GGMLType:
        """The type of the parts; of the first, where they differ."""
        return self.parts[0].type

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """The values as float32; with `rows`, only those of the first dimension are read."""
        start, stop, _ = (rows or slice(None)).indices(self.shape[0])
        out = np.empty((max(0, stop - start), *self.shape[1:]), np.float32)
        self.read_into(out, start)
        return out

    def read_into(self, out: NDArray[np.float32], start: int = 0) -> None:
        """Fill `out` with as many rows as it has, from row `start`."""
        done, first = 0, 0
        for part in self.parts:
            skip = max(0, start + done - first)
            rows = min(part.shape[0] - skip, len(out) - done)
            if rows > 0:
                part.read_into(out[done : done + rows], skip)
                done += rows
            first += part.shape[0]


class Tensors(Mapping[str, TensorInfo | Joined]):
    """The tensors of a file by ggml's names. Asking for a name joins what the file has split."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        heads: dict[str, dict[int, TensorInfo]] = {}
        for name, tensor in file.tensors.items():
            if match := _HEAD.fullmatch(name):
                heads.setdefault(_whole(name), {})[int(match[2])] = tensor
        self._heads = {name: self._in_order(name, parts) for name, parts in heads.items()}

    def __getitem__(self, name: str) -> TensorInfo | Joined:
        parts = self._find(name)
        if not parts:
            raise KeyError(name)
        return parts[0] if len(parts) == 1 else Joined(name, parts)

    def __iter__(self) -> Iterator[str]:
        """The names of the file, with `attn_q.weight` in place of its heads."""
        return iter(dict.fromkeys(map(_whole, self._file.tensors)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, name: str) -> tuple[TensorInfo, ...]:
        if name in self._file.tensors:
            return (self._file.tensors[name],)
        if name in self._heads:
            return self._heads[name]
        if ".attn_qkv." in name:
            q, k, v = (self._find(name.replace("attn_qkv", part)) for part in ("attn_q", "attn_k", "attn_v"))
            return q + k + v if q and k and v else ()
        other = _VIT_NAMES.get(name)
        if other is None and name.startswith("v.blk."):
            head, stem, tail = name.rsplit(".", 2)
            other = f"{head.removeprefix('v.')}.{_VIT_BLOCK_NAMES.get(stem, stem)}.{tail}"
        return self._find(other) if other else ()

    def _in_order(self, name: str, heads: dict[int, TensorInfo]) -> tuple[TensorInfo, ...]:
        parts = [heads[number] for number in sorted(heads)]
        if sorted(heads) != list(range(len(heads))) or len({part.shape for part in parts}) != 1:
            place, expected = f"tensor {quoted(name)}", "heads 0, 1, 2 … of one shape"
            found = f"{sorted(heads)[:16]} of {sorted({part.shape for part in parts})[:4]}"
            raise GGUFError("the heads do not make one tensor", place, expected, found, self._file.path)
        return tuple(parts)


def _whole(name: str) -> str:
    """The tensor that a head belongs to, `blk.0.attn_q.weight`; any other name as it is."""
    match = _HEAD.fullmatch(name)
    return f"{match[1]}.{match[3]}" if match else name


@dataclass(frozen=True)
class Lens:
    """A projection of a donor's embedding onto a model's width: embedding [vocab, donor_d_in] @ proj.T."""

    proj: NDArray[np.float32]  # [d_model, donor_d_in]
    donor_source: str

    @property
    def d_model(self) -> int:
        """The width it projects onto."""
        return int(self.proj.shape[0])

    @property
    def donor_d_in(self) -> int:
        """The donor's width."""
        return int(self.proj.shape[1])


class Folded:
    """A donor's embedding projected by its lens, `embedding @ proj.T`, computed as rows are read: [vocab, d_model].

    `embedding` is a numpy array, a torch tensor or a tensor of a file.
    """

    type = GGMLType.F32

    def __init__(self, embedding: Any, proj: Any) -> None:
        if len(embedding.shape) != 2 or embedding.shape[-1] != proj.shape[-1]:
            expected, found = f"an embedding [vocab, {proj.shape[-1]}]", str(list(embedding.shape))
            raise GGUFError("the lens does not fit", f"parameter {quoted(LENS)}", expected, found)
        self._embedding, self._proj = embedding, proj
        self.shape = (int(embedding.shape[0]), int(proj.shape[0]))

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """These rows as float32, or all."""
        rows = rows if rows is not None else slice(None)
        part = self._embedding.read(rows) if hasattr(self._embedding, "read") else self._embedding[rows]
        if hasattr(part, "detach"):
            proj = self._proj.detach().to(device=part.device, dtype=part.dtype)
            return np.asarray((part.detach() @ proj.T).float().cpu().numpy())
        return np.asarray(part @ np.asarray(self._proj).T, np.float32)


def read_lens(path: str | os.PathLike[str]) -> Lens:
    """Read a lens file of Toy's, or the lens in one of its checkpoints."""
    with GGUFFile.open(path) as file:
        return lens_of(file)


def lens_of(file: GGUFFile) -> Lens:
    """The lens of an open file; a file without one, or of another size than it states, is a GGUFError."""
    tensor = file.tensors.get(LENS)
    shape = tensor.shape if tensor else ()
    if tensor is None or len(shape) != 2:
        found = f"a tensor {list(shape)}" if tensor else f"{len(file.tensors)} tensors without it"
        problem, expected = "the file holds no lens", f"{LENS} [d_model, donor_d_in]"
        raise GGUFError(problem, f"tensor {quoted(LENS)}", expected, found, file.path)
    for key, size in (("lens.d_model", shape[0]), ("lens.donor_d_in", shape[1])):
        stated = file.metadata.get(key, size)
        if stated != size:
            problem = "the lens is not of the size the file states"
            raise GGUFError(problem, f"metadata {quoted(key)}", str(size), ascii(stated)[:40], file.path)
    return Lens(tensor.read(), file.metadata.text("lens.donor_source"))


def write_lens(lens: Lens, path: str | os.PathLike[str]) -> Path:
    """Write a lens file as Toy's are: three keys and one f32 tensor."""
    metadata = MetadataBlock().text("general.architecture", "lens")
    metadata.u32("lens.donor_d_in", lens.donor_d_in).u32("lens.d_model", lens.d_model)
    writer = GGUFWriter(metadata.text("lens.donor_source", lens.donor_source))
    writer.add(LENS, lens.proj)
    return writer.write(path)
