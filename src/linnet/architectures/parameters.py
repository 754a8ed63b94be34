"""A config's parameters: their shapes, how they are initialised, and the tensors of a GGUF file that hold them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from linnet.architectures.registry import AnyConfig, describe


@dataclass(frozen=True, slots=True)
class Init:
    """How a parameter is initialised: to one value, from N(0, std²), or from N(0, init_scale² / fan_in)."""

    value: float = 0.0
    std: float | None = None
    fan_in: int | None = None

    def scaled_std(self, init_scale: float = 1.0) -> float | None:
        """The standard deviation; None where every number is the same."""
        return self.std if self.fan_in is None else init_scale / math.sqrt(self.fan_in)


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the file, and the rows of our parameter that it holds."""

    tensor: str
    start: int
    stop: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Param:
    """One of our parameters: its shape, the pieces it is made of in the file, and its initial values.

    An `optional` one may be absent; `condition` is the config's field that decides, `!tied` where it must be false.
    """

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    optional: bool = False
    condition: str = ""
    init: Init = Init()

    def belongs_to(self, config: object) -> bool:
        """Whether the config's model has it, as far as a field says."""
        return not self.condition or bool(getattr(config, self.condition.lstrip("!"))) != self.condition.startswith("!")


class Layout:
    """Every parameter of a config by our name (`params`), and every tensor by ggml's (`tensors`)."""

    def __init__(self, params: Iterable[Param]) -> None:
        self.params: dict[str, Param] = {param.name: param for param in params}
        self.tensors: dict[str, tuple[Param, Piece]] = {
            piece.tensor: (param, piece) for param in self.params.values() for piece in param.pieces
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A line of an architecture's table of parameters, taken apart."""

    name: str
    shape: tuple[str, ...]
    init: str
    tensors: tuple[str, ...]
    optional: bool
    condition: str


def rows(table: str) -> list[Row]:
    """The lines of a table (see `Architecture.parameters`)."""
    parsed = []
    for line in table.strip().splitlines():
        name, shape, init, tensors = re.split(r"\s{2,}", line.strip())
        name, mark, condition = name.partition("?")
        parsed.append(Row(name, tuple(shape.split()), init, _expanded(tensors), bool(mark), condition))
    return parsed


def modules(table: str, n_layers: int) -> dict[str, tuple[str, ...]]:
    """Our modules and those that `transformers` has for them (see `Transformers.names`), block by block."""
    names = {}
    words = table.split()
    for ours, theirs in zip(words[::2], words[1::2], strict=True):
        for block in range(n_layers) if "#" in ours else (0,):
            names[ours.replace("#", str(block))] = _expanded(theirs.replace("#", str(block)))
    return names


def _expanded(column: str) -> tuple[str, ...]:
    """`attn_{q,k}.weight` stands for `attn_q.weight` and `attn_k.weight`."""
    before, brace, rest = column.partition("{")
    if not brace:
        return (column,)
    words, _, after = rest.partition("}")
    return tuple(f"{before}{word}{after}" for word in words.split(","))


def layout(config: AnyConfig) -> Layout:
    """The parameters and tensors of a config."""
    described = describe(config)
    sizes = described.sizes(config)
    params = []
    for row in rows(described.parameters):
        for block in range(config.n_layers) if "#" in row.name else (0,):
            params.append(_param(row, sizes, str(block)))
    return Layout(params)


def stacked_rows(config: AnyConfig) -> dict[str, tuple[int, ...]]:
    """The rows of each matrix, of parameters that hold several: queries, keys and values; gate and up."""
    return {
        name: tuple(piece.stop - piece.start for piece in param.pieces)
        for name, param in layout(config).params.items()
        if len(param.pieces) > 1 and len(param.shape) > 1
    }


def _param(row: Row, sizes: dict[str, int], block: str) -> Param:
    heights = [sizes[word] for word in row.shape[0].split("+")]
    tail = tuple(sizes[word] for word in row.shape[1:])
    pieces, top = [], 0
    for tensor, height in zip(row.tensors, heights, strict=True):
        pieces.append(Piece(tensor.replace("#", block), top, top + height, (height, *tail)))
        top += height
    name, init = row.name.replace("#", block), _init(row.init, sizes)
    return Param(name, (top, *tail), tuple(pieces), row.optional, row.condition, init)


def _init(word: str, sizes: dict[str, int]) -> Init:
    if word.startswith("~/"):
        return Init(fan_in=sizes[word[2:]])
    return Init(std=float(word[1:])) if word.startswith("~") else Init(value=float(word))
