"""The tensors that a parameter holds, and the heads of each: what gradients and drift are told of.

Shapes: P pieces of one shape, H parts of each (its heads, or the whole of it), M numbers of a part, R rows of a table.

Queries, keys and values lie in one parameter, and so do gate and up. Each is told of under its name in the file
(`blk.0.attn_q.weight`), which is the seed's, and by its heads where it has some; an adapter's pairs too
(`blk.0.attn_q.weight.lora_a`). Other parameters that no architecture describes (a lens) are told of as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from linnet.architectures import AnyConfig, ViTConfig, layout
from linnet.architectures.parameters import Piece

_ADDED_UP = 1 << 14  # squares that a CPU adds up in one go
_STACKED_BYTES = 64 << 20  # of tensors that are looked at in one go on a GPU, where every operation costs its launch


@dataclass(frozen=True)
class TensorPiece:
    """One tensor of the file: some rows of a parameter.

    - `shape`: its own; `heads`: 0 where it has none; `by_columns`: heads are columns, as of attention's output.
    - `of_model`: it is a tensor that the architecture describes.
    """

    tensor: str
    parameter: str
    rows: slice
    shape: tuple[int, ...]
    heads: int = 0
    by_columns: bool = False
    of_model: bool = True

    def of(self, parameter: Tensor) -> Tensor:
        """This tensor of a parameter, as a view."""
        return parameter[self.rows]

    def by_head(self, parameter: Tensor) -> Tensor:
        """[heads, numbers of one], a view where that can be."""
        own = self.of(parameter)
        if self.by_columns:
            own = own.view(own.shape[0], self.heads, -1).movedim(1, 0)
        return own.reshape(self.heads, -1)

    @property
    def layer(self) -> int:
        """The block it is of; -1: of none."""
        path = self.parameter.split(".")
        return int(path[1]) if path[0] == "blocks" else -1

    @property
    def toy_shape(self) -> list[int]:
        """The shape as events have it: the fastest dimension first."""
        return list(reversed(self.shape))


def tensor_pieces(config: AnyConfig, named: Iterable[tuple[str, Tensor]]) -> list[TensorPiece]:
    """The pieces of some parameters, in their order."""
    described = layout(config).params
    pieces: list[TensorPiece] = []
    for name, parameter in named:
        shape, param = tuple(parameter.shape), described.get(name)
        if param is None or param.shape != shape:
            pieces.append(TensorPiece(_pair_name(name) or name, name, slice(None), shape, of_model=False))
            continue
        for piece in param.pieces:
            pieces += _split(config, name, piece)
    return pieces


def _pair_name(parameter: str) -> str | None:
    """`blocks.3.attn_qkv.pairs.attn_q.lora_a` → `blk.3.attn_q.weight.lora_a`; None of what is in no adapter."""
    if (match := re.fullmatch(r"(?:blocks\.(\d+)\.)?\w+\.pairs\.(\w+)\.(\w+)", parameter)) is None:
        return None
    layer, matrix, half = match.groups()
    return f"{matrix}.weight.{half}" if layer is None else f"blk.{layer}.{matrix}.weight.{half}"


def _split(config: AnyConfig, parameter: str, piece: Piece) -> Iterator[TensorPiece]:
    """A tensor of the file; GPT-2's file too has queries, keys and values in one, which are told of one by one."""
    prefix, _, module = piece.tensor.removesuffix(".weight").removesuffix(".bias").rpartition(".")
    kind = piece.tensor.removeprefix(f"{prefix}.{module}")
    heads = {"q": config.n_heads, "k": _key_heads(config), "v": _key_heads(config)}
    if module == "attn_qkv":
        start = piece.start
        for letter, count in heads.items():
            rows = slice(start, start := start + count * config.head_size)
            shape = (rows.stop - rows.start, *piece.shape[1:])
            yield TensorPiece(f"{prefix}.attn_{letter}{kind}", parameter, rows, shape, count)
        return
    by_columns = module in _OUTPUTS and kind == ".weight"
    count = config.n_heads if by_columns else heads.get(module.removeprefix("attn_"), 0)
    yield TensorPiece(piece.tensor, parameter, slice(piece.start, piece.stop), piece.shape, count, by_columns)


def _key_heads(config: AnyConfig) -> int:
    return config.n_heads if isinstance(config, ViTConfig) else config.n_kv


_OUTPUTS = ("attn_output", "attn_out")


def l2_of(numbers: Tensor, dim: int | None = None) -> Tensor:
    """The norm of all numbers, or of each row.

    A CPU adds up the squares of a long row one by one in float32, which is wrong by 1e-5 of a million numbers and by
    1e-3 of thirty million. So a row is cut into pieces there, whose norms are added up.
    """
    if dim is None:
        numbers, dim = numbers.flatten(), 0
    norm = partial(torch.linalg.vector_norm, dtype=torch.float32)
    count = numbers.shape[dim]
    if count > _ADDED_UP and numbers.device.type == "cpu":
        whole = count - count % _ADDED_UP
        cut = torch.unflatten(numbers.narrow(dim, 0, whole), dim, (-1, _ADDED_UP))
        rest = norm(numbers.narrow(dim, whole, count - whole), dim=dim, keepdim=True)
        numbers = torch.cat((norm(cut, dim=dim + 1), rest), dim)
    total: Tensor = norm(numbers, dim=dim)
    return total


def is_stacked(parameters: Mapping[str, Tensor]) -> bool:
    """Are tensors of one shape looked at in one go? On a CPU that costs more than it spares."""
    return any(parameter.device.type != "cpu" for parameter in parameters.values())


class PieceTable:
    """Figures of many tensors: a row for each, behind it one for each of its heads.

    Tensors of one shape are stacked, as those of all layers are, so that a look takes as many operations for thirty
    layers as for six. On a CPU each is read by itself (`row_sums.py`).
    """

    def __init__(self, pieces: Sequence[TensorPiece], parameters: Mapping[str, Tensor]) -> None:
        self.groups = _groups(pieces, _STACKED_BYTES)
        self._heads = [group[0].heads for group in self.groups]
        start, begins = 0, {}
        for piece in (piece for group in self.groups for piece in group):
            begins[piece.tensor] = start
            start += 1 + piece.heads
        self._order_R = torch.tensor(
            [begins[piece.tensor] + row for piece in pieces for row in range(1 + piece.heads)], dtype=torch.int64
        )

    def parts(self, values: Mapping[str, Tensor]) -> Iterator[Tensor]:
        """[P, H, M] of each group, one after the other, of values by the names of their parameters."""
        for group in self.groups:
            parts = [_parts(piece, values[piece.parameter].detach()) for piece in group]
            yield torch.stack(parts) if len(parts) > 1 else parts[0][None]

    def by_row(self, figures: Sequence[Tensor], total: Callable[[Tensor, int], Tensor]) -> Tensor:
        """[R, …], from [P, H, …] of each group: of each tensor the total of its parts, then these."""
        rows = []
        for heads, alike in groupby(zip(self._heads, figures, strict=True), lambda pair: pair[0]):
            figure_PH = torch.cat([figure for _, figure in alike])
            if heads:
                figure_PH = torch.cat((total(figure_PH, 1)[:, None], figure_PH), 1)
            rows.append(figure_PH.flatten(0, 1))
        figures_R = torch.cat(rows)
        self._order_R = self._order_R.to(figures_R.device)
        return figures_R[self._order_R]


def _groups(pieces: Iterable[TensorPiece], most_bytes: int) -> list[list[TensorPiece]]:
    """Neighbours have as many heads; those of a group also one shape, and together no more bytes than that."""
    groups: list[list[TensorPiece]] = []
    for piece in sorted(pieces, key=_kind):
        size = torch.Size(piece.shape).numel() * torch.float32.itemsize
        if groups and _kind(groups[-1][0]) == _kind(piece) and (len(groups[-1]) + 1) * size <= most_bytes:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _kind(piece: TensorPiece) -> tuple[int, tuple[int, ...], bool]:
    return piece.heads, piece.shape, piece.by_columns


def _parts(piece: TensorPiece, parameter: Tensor) -> Tensor:
    """[H, M]: its heads, or all of it as one."""
    return piece.by_head(parameter) if piece.heads else piece.of(parameter).reshape(1, -1)
