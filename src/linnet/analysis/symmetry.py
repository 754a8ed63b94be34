"""What may change places in a model without changing what it computes: hidden units, heads, the residual stream.

The units of a feed-forward part have no order, nor have the heads of an attention; with grouped queries whole groups of
heads may change places, and heads within their group. The channels of the residual stream have none either, since
RMSNorm and LayerNorm treat all alike: embedding, norms, and every matrix that reads or writes the stream are permuted
together. All of this follows from the table in which an architecture names its parameters and their axes
(`linnet.architectures`), so an architecture that is added has it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.architectures import AnyConfig, ViTConfig, describe
from linnet.architectures.parameters import Row, rows

_HEAD_ROWS, _HEAD_COLUMNS = ("attn_qkv",), ("attn_output", "attn_out")  # modules whose rows, or columns, are heads


@dataclass(frozen=True)
class Places:
    """Where interchangeable units lie in a parameter: row u of `places_UM` has unit u's places along an axis."""

    parameter: str
    axis: int
    places_UM: Tensor

    def of(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """[U, numbers of a unit]."""
        moved = parameters[self.parameter].movedim(self.axis, 0)
        return moved[self.places_UM.to(moved.device)].flatten(1)

    def permuted(self, parameters: Mapping[str, Tensor], order_U: Tensor) -> Tensor:
        """The parameter with unit `order_U[u]` in the places of unit u."""
        parameter = parameters[self.parameter]
        index = torch.arange(parameter.shape[self.axis], device=parameter.device)
        index[self.places_UM.flatten().to(index.device)] = self.places_UM[order_U.cpu()].flatten().to(index.device)
        return parameter.index_select(self.axis, index)


@dataclass(frozen=True)
class Units:
    """Units of which any may take any other's place, in all parameters together."""

    name: str
    count: int
    places: tuple[Places, ...]

    def permute(self, parameters: dict[str, Tensor], order_U: Tensor) -> None:
        """Let unit `order_U[u]` take the place of unit u."""
        for place in self.places:
            parameters[place.parameter] = place.permuted(parameters, order_U)


@dataclass(frozen=True)
class Heads:
    """The heads of a layer: `groups` share keys and values, `queries` are the heads, as many in each group."""

    name: str
    groups: Units
    queries: Units

    def permute(self, parameters: dict[str, Tensor], group_order_K: Tensor, order_H: Tensor) -> None:
        """Let groups and heads take others' places; `order_H` keeps the heads of a group together."""
        self.groups.permute(parameters, group_order_K)
        self.queries.permute(parameters, order_H)


@dataclass(frozen=True)
class Symmetries:
    """All that may change places in a model of one shape."""

    residual: Units
    hidden: tuple[Units, ...]
    heads: tuple[Heads, ...]

    @classmethod
    def of(cls, config: AnyConfig, parameters: Mapping[str, Tensor]) -> Symmetries:
        """Those of a model with these parameters (some are optional)."""
        table = rows(describe(config).parameters)
        residual = [
            Places(name, axis, _units(config.d_model))
            for row in table
            for name in _present(row, config, parameters)
            for axis in _residual_axes(row)
        ]
        hidden, heads = [], []
        for layer in range(config.n_layers):
            block = f"blocks.{layer}."
            of_block = [(row, name) for row in table if (name := row.name.replace("#", str(layer))).startswith(block)]
            of_block = [(row, name) for row, name in of_block if name in parameters]
            hidden.append(_hidden_units(config, f"{block}ffn", of_block))
            heads.append(_heads(config, f"{block}heads", of_block))
        return cls(Units("residual", config.d_model, tuple(residual)), tuple(hidden), tuple(heads))

    def others(self) -> Iterator[str]:
        """The parameters in which units or heads have places."""
        for units in (*self.hidden, *(part for heads in self.heads for part in (heads.groups, heads.queries))):
            yield from (places.parameter for places in units.places)


def _present(row: Row, config: AnyConfig, parameters: Mapping[str, Tensor]) -> Iterator[str]:
    for layer in range(config.n_layers) if "#" in row.name else (0,):
        if (name := row.name.replace("#", str(layer))) in parameters:
            yield name


def _module(name: str) -> str:
    return name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]


def _residual_axes(row: Row) -> Iterator[int]:
    """The axes of a parameter that are the residual stream's channels."""
    for axis, word in enumerate(row.shape):
        of_heads = axis == 1 and _module(row.name) in _HEAD_COLUMNS
        if word == "d" and not of_heads:
            yield axis


def _hidden_units(config: AnyConfig, name: str, of_block: Sequence[tuple[Row, str]]) -> Units:
    """The units of a feed-forward part; of gate and up, which are one matrix, a unit has a row in each."""
    places = []
    for row, parameter in of_block:
        for axis, word in enumerate(row.shape):
            parts = word.split("+")
            if set(parts) == {"ff"}:
                places.append(Places(parameter, axis, _units(config.d_ff, len(parts))))
    return Units(name, config.d_ff, tuple(places))


def _heads(config: AnyConfig, name: str, of_block: Sequence[tuple[Row, str]]) -> Heads:
    """The heads of an attention: rows of queries, keys and values, and columns of what puts them together."""
    H, D = config.n_heads, config.head_size
    K = H if isinstance(config, ViTConfig) else config.n_kv
    head_HD = torch.arange(H * D).view(H, D)
    of_groups, of_queries = [], []
    for _, parameter in of_block:
        if _module(parameter) in _HEAD_ROWS:
            keys_KD = H * D + torch.arange(K * D).view(K, D)
            of_queries.append(Places(parameter, 0, head_HD))
            of_groups.append(Places(parameter, 0, torch.cat((keys_KD, K * D + keys_KD), 1)))
        elif _module(parameter) in _HEAD_COLUMNS and parameter.endswith(".weight"):
            of_queries.append(Places(parameter, 1, head_HD))
    return Heads(name, Units(name, K, tuple(of_groups)), Units(name, H, tuple(of_queries)))


def _units(count: int, parts: int = 1) -> Tensor:
    """[U, parts]: unit u has place u of each part."""
    return torch.arange(parts * count).view(parts, count).T.contiguous()
