"""`AdapterShape`: which projections of a model an adapter changes and how; what a model cannot have is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linnet.architectures.description import Config
from linnet.errors import UsageError, suggestion
from linnet.gguf.adapter import adapter_targets

# What users call the projections, and the names that they have in a file.
TARGETS: Mapping[str, str] = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "qkv": "attn_qkv",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "embed": "token_embd",
    "head": "output",
}
EMBEDDING, HEAD = "token_embd", "output"


@dataclass(frozen=True)
class AdapterShape:
    """What an adapter changes and how. `targets`: projections by the names of a file, `attn_q`.

    `rslora`: the product is divided by the root of the rank, not by the rank; `dora`: lengths of rows are trained too.
    """

    targets: tuple[str, ...]
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    rslora: bool = False
    dora: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UsageError(f"`rank` must be 1 or more, found {self.rank}")
        if not 0 < self.alpha < float("inf"):
            raise UsageError(f"`alpha` must be above 0, found {self.alpha:g}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"`dropout` is a share of the inputs, from 0 to below 1, found {self.dropout:g}")

    @property
    def scale(self) -> float:
        """What the product is multiplied by."""
        return self.alpha / self.rank**0.5 if self.rslora else self.alpha / self.rank

    @property
    def file_alpha(self) -> float:
        """The alpha that llama.cpp, which divides by the rank, is to be told."""
        return self.scale * self.rank


def parse_targets(words: Iterable[str], config: Config) -> tuple[str, ...]:
    """`q`, `gate`, `all` (the projections of the blocks) or `attn_q` as the names of the model's file, each once."""
    known = adapter_targets(config)
    of_blocks = [name for name in known if name not in (EMBEDDING, HEAD)]
    targets: dict[str, None] = {}
    for word in words:
        name = TARGETS.get(word, word)
        _refuse_tied(name, config)
        if word == "all":
            targets.update(dict.fromkeys(of_blocks))
        elif name in known:
            targets[name] = None
        else:
            adaptable = [name for name in known if not (config.tied and name in (EMBEDDING, HEAD))]
            choices = ["all", *(short for short, name in TARGETS.items() if name in adaptable)]
            raise UsageError(f"`targets`: a {config.arch} has no projection {word!r}{suggestion(word, choices)}")
    if not targets:
        raise UsageError("`targets` names no projection: give some of q, k, v, o, gate, up, down, or all")
    return tuple(targets)


def check_shape(shape: AdapterShape, config: Config) -> None:
    """Refuse an adapter that the model cannot have."""
    for target in shape.targets:
        _refuse_tied(target, config)
        out, into = adapter_targets(config)[target]
        if shape.rank > min(out, into):
            raise UsageError(
                f"`rank={shape.rank}` is more than {target} has, a matrix of {out} × {into}: choose"
                f" {min(out, into)} or less, or leave {_word(target)} out of `targets`"
            )
    if shape.dora and {EMBEDDING, HEAD} & set(shape.targets):
        raise UsageError("`dora` is for the projections of the blocks: leave embed and head out of `targets`")


def _refuse_tied(target: str, config: Config) -> None:
    if config.tied and target in (EMBEDDING, HEAD):
        raise UsageError(
            "`targets`: embedding and head of this base are one matrix, and llama.cpp applies no adapter to such a one:"
            f" leave {_word(target)} out"
        )


def _word(target: str) -> str:
    return next((word for word, name in TARGETS.items() if name == target), target)
