"""What a description of an architecture consists of; each file beside this one holds one. No torch, no numpy.

Our models keep ggml's own layout, so a checkpoint is a matter of names. Only two things differ in memory: matrices
that are applied to the same input are one (`attn_qkv`, `ffn_gate_up`), and a block is `blocks.3`, not `blk.3`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Literal, Protocol

# ruff: noqa: D102 (the attributes of the protocol are described where they are defined, in the configs)

Task = Literal["text", "images"]


class Config(Protocol):
    """The hyper-parameters that every language model has; a frozen dataclass."""

    arch: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def vocab(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def n_kv(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def ctx(self) -> int: ...
    @property
    def tied(self) -> bool: ...
    @property
    def head_size(self) -> int: ...


def unless(flag: str, help: str) -> Any:
    """A field of a config that is true unless `linnet train` is given a flag."""
    return field(default=True, metadata={"flag": flag, "help": help})


@dataclass(frozen=True)
class Key:
    """A metadata key of a GGUF file, `llama.attention.head_count`, by what comes after the architecture's name.

    - `field`: of the config, which the key holds; None for a key that follows from other fields.
    - `type`: that which llama.cpp checks for: u32, f32, string, bool, array:f32, array:string.
    - `required`: llama.cpp refuses a file without it. `per_layer`: it takes an array of one number a block as well.
    - `value`: what is written, where that is not the field as it is; None and () are not written.
    - `says`: a field and the value that it has when the key is there (and is not false); for another it is not written.
    - `default`: what a file without it means, from the fields known so far; else the field's own default.
    - `rows_of`: a tensor whose rows are this number, whatever the key says.
    """

    name: str
    field: str | None = None
    type: str = "u32"
    required: bool = False
    per_layer: bool = False
    value: Callable[[Any], Any] | None = None
    says: tuple[str, str] | None = None
    default: Callable[[Mapping[str, Any]], int | None] | None = None
    rows_of: str | None = None

    def written(self, config: object) -> Any:
        """The value for this config; None: the key is left out."""
        if self.says is not None and getattr(config, self.says[0]) != self.says[1]:
            return None
        value = self.value(config) if self.value is not None else getattr(config, str(self.field))
        return None if value == () else value


# What every language model states.
TEXT_KEYS = (
    Key("vocab_size", "vocab", rows_of="token_embd.weight"),
    Key("context_length", "ctx", required=True),
    Key("embedding_length", "d_model", required=True),
    Key("block_count", "n_layers", required=True),
    Key("feed_forward_length", "d_ff", required=True, per_layer=True),
    Key("attention.head_count", "n_heads", required=True, per_layer=True),
)


@dataclass(frozen=True)
class Transformers:
    """How to take over a model of the library `transformers` whose `model_type` is the architecture's name.

    That library is not imported. It rotates the first half of a head against the second where ggml rotates neighbours,
    so rows of Q and K may change places.

    - `config`: its config as ours; what our models cannot do is refused by name.
    - `names`: a table, a line each, of our modules and theirs; `{q,k,v}` for several stacked by rows.
    - `transposed`: the matrices of blocks are [in, out], as in its GPT-2.
    """

    config: Callable[[Any], Any]
    names: str
    transposed: bool = False


@dataclass(frozen=True)
class Architecture:
    """One description that `gguf`, `models`, `recipes` and the command line all read.

    `parameters` is a table, a line each, columns apart by two spaces or more:

    - our name; `?` after it: may be absent, `?bias`: is there where that field of the config is true, `?!tied`: false;
      `#` is the block's number
    - its shape in words of `sizes`; `q+kv` are two heights one after the other
    - how it is initialised: to a value (`0`, `1`), from N(0, std²) (`~0.02`), or from N(0, init_scale² / d) (`~/d`)
    - the tensors of the file, `attn_{q,k,v}` for several stacked by rows: writing slices the parameter, reading fills
      it, no value moves
    """

    name: str  # `general.architecture`, and the module of `linnet.models` that computes it
    model: str  # the class in that module
    config: type[Any]
    task: Task
    keys: tuple[Key, ...]
    parameters: str
    sizes: Callable[[Any], dict[str, int]]
    presets: Mapping[str, Any]
    transformers: Transformers
    runs_in_llama_cpp: bool = True
    rope: Literal["pairs", "halves"] | None = None  # which values of a head are rotated together: 0 and 1, or 0 and d/2
    toy_format: str | None = None  # `toy.checkpoint_format`: Toy's label for such a file
    tied_by_copy: bool = False  # old files carry a tied head as a copy of the embedding
