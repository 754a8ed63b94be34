"""`shard` "weights": each rank keeps its rows of every weight (FSDP2), for models that do not fit one device.

A block's weights are gathered when it is their turn, forwards and backwards, and gradients are added up straight into
the rows of the rank that keeps them. The optimizer moves rows; Muon, which needs whole matrices, gathers those of one
shape at a time. Layers run eagerly, neither compiled nor captured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from linnet.train.ranks import Ranks
from linnet.train.shards import Piece

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def shard_weights(model: nn.Module, device: torch.device, ranks: Ranks) -> None:
    """Let every rank keep its rows of each weight; a block at a time passes through the device whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    blocks: Any = model.blocks
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to(device)  # buffers, such as a rotary table
    for method in ("loss", "distilled_loss"):
        if hasattr(model, method):
            register_fsdp_forward_method(model, method)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)  # a sum: every rank has divided by the targets of the whole batch
            part.set_force_sum_reduction_for_comms(True)
            part.set_custom_all_gather(_WatchedAllGather(ranks))  # type: ignore[arg-type]  # its base class is private
            part.set_custom_reduce_scatter(_WatchedReduceScatter(ranks))  # type: ignore[arg-type]


class _Watched:
    """A collective of FSDP's, which names the rank that does not answer. On a CPU its time counts as waiting.

    On a GPU it runs beside the work, in a stream of its own: how much of it is waited for cannot be told.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what is gathered or added up."""
        return torch.empty(*size, dtype=dtype, device=device)


class _WatchedAllGather(_Watched):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 warns of that
        with self._ranks.collective(output_tensor, beside_work=True):
            return gather(output_tensor, input_tensor, group=group, async_op=async_op)


class _WatchedReduceScatter(_Watched):
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        with self._ranks.collective(output_tensor, beside_work=True):
            return scatter(output_tensor, input_tensor, group=group, op=op, async_op=async_op)


def is_sharded(parameter: Tensor) -> TypeGuard[DTensor]:
    """Does this rank keep a part of it only?"""
    # Not imported for the question: it brings sympy. Where nobody has, there is no such tensor.
    distributed_tensor = sys.modules.get("torch.distributed.tensor")
    return distributed_tensor is not None and isinstance(parameter, distributed_tensor.DTensor)


def own_rows(parameter: Tensor) -> Tensor:
    """The rows that this rank keeps; all of them where a weight is not shared out."""
    return parameter._local_tensor if is_sharded(parameter) else parameter


def own_piece(parameter: Tensor, rank: int, count: int) -> Piece:
    """Which of a parameter's numbers a rank keeps: as `torch.chunk` cuts rows."""
    rows = parameter.shape[0]
    share, width = -(-rows // count), parameter.numel() // max(rows, 1)
    return Piece(rank, min(rows, rank * share) * width, min(rows, (rank + 1) * share) * width)


def kept_rows(parameter: Tensor) -> slice:
    """The same as rows of the whole parameter; all of them where a weight is not shared out."""
    if not is_sharded(parameter):
        return slice(None)
    piece = own_piece(parameter, dist.get_rank(), dist.get_world_size())
    width = max(1, parameter.numel() // max(parameter.shape[0], 1))
    return slice(piece.start // width, piece.stop // width)


def assign(parameter: Tensor, values: Tensor) -> None:
    """Put a whole tensor into a parameter, of which this rank may keep a part."""
    assign_rows(parameter, values[kept_rows(parameter)] if is_sharded(parameter) else values)


@torch.no_grad()
def assign_rows(parameter: Tensor, rows: Tensor) -> None:
    """Put the rows that this rank keeps into a parameter."""
    own_rows(parameter).data.copy_(rows)


@torch.no_grad()
def gathered(parameters: dict[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """The whole parameters in rank 0's memory, gathered one after the other; nothing on the other ranks."""
    tensors = {}
    for name, parameter in parameters.items():
        tensor = parameter.full_tensor() if is_sharded(parameter) else parameter
        if ranks.is_first:
            tensors[name] = tensor.detach().cpu()
    return tensors


@dataclass(frozen=True)
class WholeMatrices:
    """Matrices of which every rank keeps some rows: gathered for Muon, and cut again. `shapes`: of the whole ones."""

    shapes: Mapping[nn.Parameter, torch.Size]
    ranks: Ranks

    def gathered(self, rows: Sequence[Tensor], shape: torch.Size) -> Tensor:
        """[N, R, C]: matrices of one shape, of each of which every rank gives its rows."""
        share = -(-shape[0] // self.ranks.count)
        outgoing = rows[0].new_zeros(len(rows), share, *shape[1:])
        for matrix, mine in zip(outgoing, rows, strict=True):
            matrix[: len(mine)] = mine
        incoming = outgoing.new_empty(self.ranks.count * outgoing.numel())
        self.ranks.all_gather(incoming, outgoing.view(-1))
        by_rank = incoming.view(self.ranks.count, len(rows), share, -1)
        return by_rank.transpose(0, 1).reshape(len(rows), self.ranks.count * share, -1)[:, : shape[0]]

    def rows(self, matrices_NRC: Tensor) -> Tensor:
        """[N, r, C]: this rank's rows of whole matrices."""
        share = -(-matrices_NRC.shape[1] // self.ranks.count)
        return matrices_NRC[:, self.ranks.rank * share : (self.ranks.rank + 1) * share]


def total_norm(gradients: list[Tensor], ranks: Ranks) -> Tensor:
    """The norm of gradients of which every rank has some rows."""
    square = nn.utils.get_total_norm([own_rows(gradient) for gradient in gradients]).square().reshape(1)
    ranks.sum_(square, ordered=False)
    return square[0].sqrt()
