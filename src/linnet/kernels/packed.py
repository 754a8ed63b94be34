"""`PackedMatrix`: a matrix that is not trained, kept in the few bits that it came in and decoded at each use.

It lies in memory transposed, as codes and scales apart (`linnet.gguf.planes` makes them of a file's blocks), so that
decoding is a few passes over whole arrays: on a CPU a hundredth of the time of the product that follows. What is
decoded is dropped after that product; the backward pass decodes it again. Shapes: M rows of the matrix, K values of a
row, N rows looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Packing(NamedTuple):
    """How the planes of a part are read: w = (code − offset) · scale ± minimum (`linnet.gguf.planes.Planes`).

    - `bits`, `high_bits`: of a code, in the plane `low` and in `high`. 16 or more: `low` holds the numbers themselves.
    - `group`, `block`: values of a row with one sub-scale, and with one scale.
    - `minimum_sign`: 1 or −1: minima are added or subtracted; 0: there are none.
    - `levels`: a code is an index into these.
    """

    bits: int
    high_bits: int = 0
    group: int = 32
    block: int = 32
    offset: int = 0
    minimum_sign: int = 0
    levels: tuple[int, ...] = ()


class Planes(NamedTuple):
    """The arrays of a part, [·, M] each: codes as bytes, scales and minima as float16, their multipliers as int8."""

    low: Tensor
    high: Tensor | None = None
    scale: Tensor | None = None
    minimum: Tensor | None = None
    sub_scale: Tensor | None = None
    sub_minimum: Tensor | None = None


class PackedMatrix(nn.Module):
    """A matrix [M, K] of one or several parts, one below the other, each packed in its own way."""

    def __init__(self, parts: Sequence[tuple[Packing, Planes]]) -> None:
        super().__init__()
        self._packings = tuple(packing for packing, _ in parts)
        for number, (_, planes) in enumerate(parts):
            for name, plane in planes._asdict().items():
                self.register_buffer(f"{name}_{number}", plane, persistent=False)
        first, planes = parts[0]
        width = len(planes.low) * 8 // first.bits if first.bits <= 8 else len(planes.low)
        self.shape = torch.Size((sum(planes.low.shape[1] for _, planes in parts), width))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.get_buffer("low_0").device

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return sum(plane.nbytes for plane in self.buffers())

    @property
    def parts(self) -> list[tuple[Packing, Planes]]:
        """Its parts, from the first rows on."""
        names = Planes._fields
        return [
            (packing, Planes(*(getattr(self, f"{name}_{number}") for name in names)))
            for number, packing in enumerate(self._packings)
        ]

    def unpacked(
        self, dtype: torch.dtype = torch.float32, rows: slice | None = None, memory: Tensor | None = None
    ) -> Tensor:
        """The matrix [M, K], or some rows of it, decoded; it lies in memory transposed.

        `memory`: on a CPU, numbers of float32 that are written over, where the caller needs the last ones no more.
        """
        parts = self.parts if rows is None else self._parts_of(rows)
        return unpack(parts, dtype, memory=memory)

    def rows(self, ids: Tensor) -> Tensor:
        """[…, K] in float32: the row of each id."""
        flat_N, start = ids.flatten(), 0
        out_NK = torch.empty(len(flat_N), self.shape[1], device=flat_N.device)
        for packing, planes in self.parts:
            count = planes.low.shape[1]
            if len(self._packings) == 1:
                out_NK = unpack([(packing, _columns(planes, flat_N))], torch.float32)
            else:
                inside = (flat_N >= start) & (flat_N < start + count)
                local_N = (flat_N - start).clamp(0, count - 1)
                looked_up = unpack([(packing, _columns(planes, local_N))], torch.float32)
                out_NK = torch.where(inside[:, None], looked_up, out_NK)
            start += count
        return out_NK.reshape(*ids.shape, -1)

    def _parts_of(self, rows: slice) -> list[tuple[Packing, Planes]]:
        """Views of the parts, cut to some rows."""
        cut, start = [], 0
        for packing, planes in self.parts:
            count = planes.low.shape[1]
            first, last = max(rows.start - start, 0), min(rows.stop - start, count)
            if first < last:
                cut.append((packing, Planes._make(None if p is None else p[:, first:last] for p in planes)))
            start += count
        return cut


def unpack(
    parts: Sequence[tuple[Packing, Planes]],
    dtype: torch.dtype,
    after: Tensor | None = None,
    memory: Tensor | None = None,
) -> Tensor:
    """[M, K]: parts decoded, one below the other; a transposed view of [K, M].

    - `after`: on a GPU, a tensor that must be there first. The compiler would else decode a matrix once, forwards, and
      keep it for the backward pass: just what is not to be kept.
    - `memory`: on a CPU, where the numbers go.
    """
    first = parts[0][1].low
    if first.is_cuda:
        from linnet.kernels.cuda.unpack import unpack as unpack_on_cuda

        decoded = [unpack_on_cuda(packing, planes, dtype, after) for packing, planes in parts]
        return (decoded[0] if len(decoded) == 1 else torch.cat(decoded, 1)).T
    return _on_cpu(parts, memory).to(dtype).T


def _on_cpu(parts: Sequence[tuple[Packing, Planes]], memory: Tensor | None) -> Tensor:
    packing, planes = parts[0]
    K = len(planes.low) * 8 // packing.bits if packing.bits <= 8 else len(planes.low)
    M = sum(planes.low.shape[1] for _, planes in parts)
    if memory is None:
        memory = torch.empty(K * M, device=planes.low.device)
    out_KM = memory[: K * M].view(K, M)
    start = 0
    for packing, planes in parts:
        stop = start + planes.low.shape[1]
        _decode(packing, planes, out_KM if len(parts) == 1 else out_KM[:, start:stop])
        start = stop
    return out_KM


def _decode(packing: Packing, planes: Planes, out_KM: Tensor) -> None:
    """Fill `out` with the numbers of one part, in the order of ggml's float operations."""
    if packing.bits > 8:
        out_KM.copy_(planes.low)
        return
    codes_KM = _codes(packing, planes, out_KM.shape)
    if packing.levels:
        levels = torch.tensor(packing.levels, dtype=torch.float32, device=out_KM.device)
        out_KM.copy_(levels[codes_KM.int()])
    elif packing.offset:
        out_KM.copy_(codes_KM.view(torch.int8).sub_(packing.offset))
    else:
        out_KM.copy_(codes_KM.view(torch.int8) if packing.bits == 8 else codes_KM)
    groups_GgM = out_KM.unflatten(0, (-1, packing.group))
    scale_G1M = _scales(planes.scale, planes.sub_scale)[:, None]
    if packing.minimum_sign:
        minimum_G1M = _scales(planes.minimum, planes.sub_minimum)[:, None]
        if packing.minimum_sign < 0:
            minimum_G1M = minimum_G1M.neg()
        torch.addcmul(minimum_G1M, groups_GgM, scale_G1M, out=groups_GgM)
    else:
        groups_GgM.mul_(scale_G1M)


def _codes(packing: Packing, planes: Planes, shape: torch.Size) -> Tensor:
    """[K, M] bytes: the codes of a part."""
    if packing.bits == 8:
        return planes.low
    codes_KM = torch.empty(shape, dtype=torch.uint8, device=planes.low.device)
    _spread(planes.low, packing.bits, codes_KM)
    if planes.high is not None:
        high_KM = torch.empty_like(codes_KM)
        _spread(planes.high, packing.high_bits, high_KM)
        codes_KM.bitwise_or_(high_KM.bitwise_left_shift_(packing.bits))
    return codes_KM


def _spread(plane: Tensor, bits: int, out_KM: Tensor) -> None:
    """Each byte's codes, as many as it holds, written apart: those of one slot of the bytes are neighbours."""
    slots = 8 // bits
    for slot, part in enumerate(out_KM.chunk(slots)):
        if slot:
            torch.bitwise_right_shift(plane, slot * bits, out=part)
        if slot < slots - 1:
            torch.bitwise_and(part if slot else plane, (1 << bits) - 1, out=part)


def _scales(scale: Tensor | None, sub: Tensor | None) -> Tensor:
    """[K / group, M] in float32."""
    assert scale is not None
    exact = scale.float()
    return exact if sub is None else (exact[:, None] * sub.unflatten(0, (len(exact), -1))).flatten(0, 1)


def _columns(planes: Planes, ids_N: Tensor) -> Planes:
    return Planes._make(None if plane is None else plane.index_select(1, ids_N) for plane in planes)


def packed_matrices(module: nn.Module) -> dict[str, PackedMatrix]:
    """All packed matrices in a module by their names; one that is shared is there once, as among parameters."""
    return {name: part for name, part in module.named_modules() if isinstance(part, PackedMatrix)}


def packed_bytes(module: nn.Module) -> int:
    """Bytes of all packed matrices in a module."""
    return sum(matrix.nbytes for matrix in packed_matrices(module).values())


def count_parameters(module: nn.Module) -> int:
    """Numbers of a model's weights, trained or not: those of packed matrices, which are no parameters of torch, too."""
    packed = sum(matrix.shape.numel() for matrix in packed_matrices(module).values())
    return packed + sum(parameter.numel() for parameter in module.parameters())
