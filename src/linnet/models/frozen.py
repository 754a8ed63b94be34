"""`load_frozen`: a GGUF as a model that is not trained itself, its matrices in the bits in which the file has them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

from linnet.gguf import planes
from linnet.gguf.blocks import Bytes
from linnet.gguf.checkpoint import stored_params
from linnet.gguf.config import config_of
from linnet.gguf.file import GGUFFile, resolve_link
from linnet.gguf.tensor import GGMLType, TensorInfo
from linnet.gguf.toy import EMBEDDING, LENS, Joined
from linnet.kernels.packed import PackedMatrix, Packing, Planes
from linnet.models.initial import allocate
from linnet.models.layers import Device, Embedding, Linear, PackedEmbedding, PackedLinear
from linnet.models.loading import check_names, finish_language_model, retied
from linnet.models.transformer import LanguageModel

_SIXTEEN_BITS = {GGMLType.F16: torch.float16, GGMLType.BF16: torch.bfloat16}


def load_frozen(
    source: str | os.PathLike[str], device: Device = "cpu", dtype: torch.dtype = torch.float32
) -> LanguageModel:
    """Load a text model for good: no parameter of it takes a gradient.

    Quantised matrices stay as they are and are decoded where they are multiplied, those of 16 bits likewise; plain ones
    are in `dtype`, which is what the model computes in. Vectors and positions are float32.
    """
    with GGUFFile.open(resolve_link(source)) as file:
        config = config_of(file, task="text")
        at = torch.device(device)
        weights = {name: _weight(name, stored, at, dtype) for name, stored in stored_params(file).items()}
        if (lens := weights.pop(LENS, None)) is not None:
            weights[EMBEDDING] = _plain(weights[EMBEDDING]) @ _plain(lens).T
        config = retied(config, weights)
        divisors = weights.pop("rope_freqs.weight", None)
        model = allocate(config, "meta")
        _assign_weights(model, weights, at, file)
        finish_language_model(model, None if divisors is None else _plain(divisors))
    model.set_compute_dtype(dtype)
    return model.requires_grad_(False)


def _weight(name: str, stored: TensorInfo | Joined, device: torch.device, dtype: torch.dtype) -> Tensor | PackedMatrix:
    """A parameter as it stays in memory."""
    leaves = list(_leaves(stored))
    packed_types = {leaf.type for leaf in leaves} & {
        *planes.SPLITTABLE,
        *(() if dtype.itemsize == 2 else _SIXTEEN_BITS),
    }
    if len(stored.shape) != 2 or name in (LENS, "position_embd.weight") or not packed_types:
        exact = torch.from_numpy(stored.read()).to(device)
        return exact.to(dtype) if len(stored.shape) == 2 and "position_embd" not in name else exact
    parts = [_part(leaf, device) for leaf in leaves]
    joined = [
        (packing, _side_by_side([arrays for _, arrays in alike]))
        for packing, alike in groupby(parts, lambda part: part[0])
    ]
    return PackedMatrix(joined)


def _leaves(stored: TensorInfo | Joined) -> Iterator[TensorInfo]:
    if isinstance(stored, TensorInfo):
        yield stored
        return
    for part in stored.parts:
        yield from _leaves(part)


def _part(tensor: TensorInfo, device: torch.device) -> tuple[Packing, Planes]:
    rows, width = tensor.shape
    if tensor.type in planes.SPLITTABLE:
        raw = np.frombuffer(tensor.read_raw(0, tensor.nbytes), np.uint8).reshape(rows, -1)
        return packed_rows(raw, tensor.type, device)
    if tensor.type in _SIXTEEN_BITS:
        bits = np.frombuffer(tensor.read_raw(0, tensor.nbytes), np.int16).reshape(rows, width)
        half_KM = torch.from_numpy(bits.T.copy()).view(_SIXTEEN_BITS[tensor.type])
        return Packing(16), Planes(half_KM.to(device))
    return Packing(32), Planes(torch.from_numpy(tensor.read().T.copy()).to(device))


def packed_rows(raw: Bytes, type: GGMLType, device: Device = "cpu") -> tuple[Packing, Planes]:
    """The rows of a quantised tensor as a part of a `PackedMatrix`."""
    split = planes.split(raw, type)
    packing = Packing(
        split.bits, split.high_bits, split.group, split.block, split.offset, split.minimum_sign, split.levels
    )
    return packing, Planes(**{name: torch.from_numpy(array).to(device) for name, array in split.arrays.items()})


def _side_by_side(parts: list[Planes]) -> Planes:
    """Parts that are packed alike as one."""
    if len(parts) == 1:
        return parts[0]
    return Planes._make(None if plane[0] is None else torch.cat(plane, 1) for plane in zip(*parts, strict=True))


def _plain(weight: Tensor | PackedMatrix) -> Tensor:
    return weight if isinstance(weight, Tensor) else weight.unpacked()


def _assign_weights(
    model: LanguageModel, weights: Mapping[str, Tensor | PackedMatrix], device: torch.device, file: GGUFFile
) -> None:
    """Give a model without memory its weights, and layers of its own to those that are packed."""
    check_names(model, weights, file)
    for name in (buffer for buffer, _ in model.named_buffers()):
        owner, attribute = _owner(model, name)
        owner.register_buffer(attribute, torch.empty_like(getattr(owner, attribute), device=device), persistent=False)
    for name, weight in weights.items():
        owner, attribute = _owner(model, name)
        if isinstance(weight, Tensor):
            setattr(owner, attribute, nn.Parameter(weight.contiguous(), requires_grad=False))
    for name, weight in weights.items():
        if isinstance(weight, PackedMatrix):
            layer, _ = _owner(model, name)
            owner, attribute = _owner(model, name.removesuffix(".weight"))
            assert isinstance(layer, Linear | Embedding), name
            packed = PackedEmbedding(weight) if isinstance(layer, Embedding) else PackedLinear(weight, layer.bias)
            setattr(owner, attribute, packed)


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that a tensor belongs to, and its name there."""
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute
