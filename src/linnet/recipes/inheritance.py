"""What a new model takes over from a donor: `embed`, `select`, `inherit:K`, `widen:N`, `full`.

A mode is a function of the donor, the new model's config and what was asked; it gives tensors by our names and says
in a line what it took. What a mode does not give keeps its fresh values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from linnet.errors import UsageError
from linnet.models import LlamaConfig
from linnet.models.initial import EMBEDDING_STD
from linnet.models.lens import SEEN_STD
from linnet.recipes.donor import Donor, DonorError
from linnet.recipes.token_rows import TokenRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
    Index = NDArray[np.int64]

LENS_MODES = ("warm", "pca")
_NUMBERED = ("inherit", "widen")
# The fields that decide what the donor's layers compute; a model that takes layers over must have them too.
_KIND = ("head_size", "rope_base", "rms_eps", "rope_scaling", "qkv_bias", "output_bias", "ffn_bias")
_SIZES = ("d_model", "n_heads", "n_kv", "d_ff")
_EMBEDDING, _OUTPUT, _NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_NOISE = 0.1  # of a matrix's own spread: what keeps the copies of `widen` from learning the same for ever


@dataclass(frozen=True)
class Init:
    """How a model begins: `pca`, `select`, `inherit:4`."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Init:
        """Read a `--init`."""
        kind, colon, number = text.partition(":")
        known = ("scratch", *LENS_MODES, *MODES)
        if kind not in known:
            shown = ", ".join(f"{name}:N" if name in _NUMBERED else name for name in known)
            raise UsageError(f"`init` {text!r} is not known; choose from {shown}")
        if (kind in _NUMBERED) != bool(colon):
            wanted = f"{kind}:N, such as {kind}:2" if kind in _NUMBERED else f"{kind} alone"
            raise UsageError(f"`init` {text!r} is not understood; say {wanted}")
        if colon and (not number.isdigit() or int(number) < 1):
            raise UsageError(f"`init` {text!r}: expected a whole number from 1 after the colon, found {number!r}")
        return cls(kind, int(number or 0))

    @property
    def has_lens(self) -> bool:
        """The embedding stays as wide as the donor's, behind a lens."""
        return self.kind in LENS_MODES

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind


@dataclass(frozen=True)
class Asked:
    """What goes with a mode: its number, whose rows the vocabulary has, and how to take them."""

    number: int
    rows: TokenRows
    layers: Literal["even", "first"]  # of `select`
    rescale: bool  # of `embed`: give its rows the mean and spread of new ones
    seed: int


@dataclass(frozen=True)
class Taken:
    """Tensors for the new model by our names, and what they are in a line."""

    tensors: dict[str, Array]
    words: str


def take(init: Init, donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """Take over what `init` says."""
    return MODES[init.kind](donor, config, asked)


def _embed(donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """The rows of an embedding of the same width."""
    _require(donor, "embed", {"d_model": donor.width}, config, "another width goes with pca, warm or select")
    table = asked.rows.take(donor.table(len(asked.rows.counts) if asked.rows.same else None), asked.seed)
    if asked.rescale:
        table = table - table.mean(0)
        table *= (EMBEDDING_STD if config.tied else SEEN_STD) / table.std(0)  # a tied head has the size of a head
    return Taken({_EMBEDDING: table}, f"embedding copied ({asked.rows.words}); the rest is new")


def _full(donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """Everything: training goes on."""
    _require(donor, "full", _fields(donor, *_SIZES, "n_layers", "tied", *_KIND), config)
    tensors = {name: _rows(name, array, asked) for name, array in donor.parameters()}
    return Taken(tensors, f"every tensor of its {config.n_layers} layers copied ({asked.rows.words})")


def _inherit(donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """The first layers, with embedding and head."""
    layers = asked.number
    if layers > donor.config.n_layers:
        raise _error(
            donor, f"inherit:{layers} takes more layers than there are", f"{layers} or more", donor.config.n_layers
        )
    _require(donor, f"inherit:{layers}", {**_fields(donor, *_SIZES, *_KIND), "n_layers": layers}, config)
    tensors = {}
    for name, array in donor.parameters():
        layer = _layer(name)
        if layer is None or layer < layers:
            tensors[name] = _rows(name, array, asked)
    _fit_head(tensors, config)
    last = f"layers 0 to {layers - 1}" if layers > 1 else "layer 0"
    words = f"{last} of {donor.config.n_layers} copied, with embedding and last norm ({asked.rows.words})"
    return Taken(tensors, words)


def _select(donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """Some layers, and evenly chosen heads and channels; one choice of channels for the whole residual stream."""
    theirs = donor.config
    _require(donor, "select", _fields(donor, *_KIND), config)
    for field in (*_SIZES, "n_layers"):
        if getattr(config, field) > getattr(theirs, field):
            problem = f"select chooses from what is there, and the donor's {field} is smaller"
            raise _error(donor, problem, f"{getattr(config, field)} or more", getattr(theirs, field))
    if config.n_heads // config.n_kv > theirs.n_heads // theirs.n_kv:
        expected = f"{config.n_heads // config.n_kv} or more, as n_heads {config.n_heads} and n_kv {config.n_kv} say"
        found = f"{theirs.n_heads // theirs.n_kv}; choose a larger n_kv"
        raise _error(donor, "select keeps heads with their keys, and too few share one", expected, found)
    spread = _spread(theirs.n_layers, config.n_layers) if asked.layers == "even" else range(config.n_layers)
    layers = {int(old): new for new, old in enumerate(spread)}
    chosen = _Chosen(theirs, config)
    tensors = {}
    for name, array in donor.parameters():
        layer = _layer(name)
        if layer is None or layer in layers:
            ours = name if layer is None else name.replace(f".{layer}.", f".{layers[layer]}.", 1)
            tensors[ours] = chosen.cut(_stem(name), _rows(name, array, asked))
    _fit_head(tensors, config)
    words = (
        f"layers {', '.join(map(str, layers))} of {theirs.n_layers}, {config.d_model} of {theirs.d_model} channels, "
        f"{config.n_heads} of {theirs.n_heads} heads, {config.d_ff} of {theirs.d_ff} hidden ({asked.rows.words})"
    )
    return Taken(tensors, words)


class _Chosen:
    """The chosen channels, heads and hidden units, as rows and columns of the donor's matrices."""

    def __init__(self, theirs: LlamaConfig, ours: LlamaConfig) -> None:
        head, group, ours_group = theirs.head_size, theirs.n_heads // theirs.n_kv, ours.n_heads // ours.n_kv
        keys = _spread(theirs.n_kv, ours.n_kv)
        heads = np.concatenate([key * group + _spread(group, ours_group) for key in keys])
        channels, hidden = _spread(theirs.d_model, ours.d_model), _spread(theirs.d_ff, ours.d_ff)
        query, key = _whole(heads, head), _whole(keys, head)
        past_query, past_key = theirs.n_heads * head, (theirs.n_heads + theirs.n_kv) * head
        qkv = np.concatenate((query, past_query + key, past_key + key))
        gate_up = np.concatenate((hidden, theirs.d_ff + hidden))
        self._rows = {
            "attn_qkv": qkv, "attn_output": channels, "ffn_gate_up": gate_up, "ffn_down": channels,
        }  # fmt: skip
        self._columns = {
            "attn_qkv": channels, "attn_output": query, "ffn_gate_up": channels, "ffn_down": hidden,
        }  # fmt: skip
        self._channels = channels

    def cut(self, stem: str, array: Array) -> Array:
        """The chosen part of a parameter, as it is: made larger for its fewer inputs it learns worse (docs/log.md)."""
        if stem in ("token_embd", "output"):
            return array[:, self._channels]
        if stem == "rope_freqs":
            return array
        if stem not in self._rows:  # norms
            return array[self._channels]
        part: Array = array[self._rows[stem]]
        return part[:, self._columns[stem]] if array.ndim == 2 else part


def _widen(donor: Donor, config: LlamaConfig, asked: Asked) -> Taken:
    """Every channel, head and hidden unit N times, and each matrix a share of itself: the function stays the same.

    RMSNorm sees the same mean square; a matrix reads N copies of its input, each through 1/N of itself. The N shares
    differ by noise that adds up to nothing, or the copies would get equal gradients and stay copies.
    """
    n, theirs = asked.number, donor.config
    wanted = {field: n * getattr(theirs, field) for field in _SIZES}
    _require(donor, f"widen:{n}", {**wanted, **_fields(donor, "n_layers", "tied", *_KIND)}, config)
    head, tensors = theirs.head_size, {}
    parts: dict[str, tuple[int, ...]] = {
        "attn_qkv": (theirs.n_heads * head, theirs.n_kv * head, theirs.n_kv * head),
        "ffn_gate_up": (theirs.d_ff, theirs.d_ff),
    }
    for name, array in donor.parameters():
        stem, array = _stem(name), _rows(name, array, asked)
        if stem == "rope_freqs":
            tensors[name] = array
        elif stem == "token_embd":
            tensors[name] = np.tile(array, (1, n))
        elif stem == "output":
            tensors[name] = _shares(array, n, name, asked.seed)
        elif name == _NORM and config.tied:
            tensors[name] = np.tile(array, n) / np.float32(n)  # the head is the embedding, N copies of it
        else:
            cuts = np.cumsum(parts.get(stem, (len(array),)))[:-1]
            copies = np.concatenate([np.concatenate([part] * n) for part in np.split(array, cuts)])
            tensors[name] = copies if array.ndim == 1 else _shares(copies, n, name, asked.seed)
    words = f"every channel, head and hidden unit {n} times: {theirs.d_model} → {config.d_model} wide, same function"
    return Taken(tensors, f"{words} ({asked.rows.words})")


def _shares(matrix: Array, n: int, name: str, seed: int) -> Array:
    """[out, N·in]: N shares side by side that add up to the matrix."""
    key = int.from_bytes(hashlib.blake2b(f"{seed} widen {name}".encode(), digest_size=8).digest(), "little")
    noise = np.random.default_rng(key).standard_normal((n, *matrix.shape), np.float32)
    noise -= noise.mean(0)
    noise *= np.float32(_NOISE) * matrix.std() / n
    noise += matrix / n
    return np.ascontiguousarray(noise.transpose(1, 0, 2).reshape(matrix.shape[0], -1))


MODES: dict[str, Callable[[Donor, LlamaConfig, Asked], Taken]] = {
    "embed": _embed,
    "select": _select,
    "inherit": _inherit,
    "widen": _widen,
    "full": _full,
}


def _spread(of: int, count: int) -> Index:
    """`count` of the numbers below `of`, evenly spread, the first and the last among them."""
    return np.round(np.linspace(0, of - 1, count)).astype(np.int64) if count > 1 else np.zeros(1, np.int64)


def _whole(heads: Index, size: int) -> Index:
    """All channels of some heads: rotary pairs lie next to each other and must stay so."""
    return (heads[:, None] * size + np.arange(size)).ravel()


def _rows(name: str, array: Array, asked: Asked) -> Array:
    return asked.rows.take(array, asked.seed) if name in (_EMBEDDING, _OUTPUT) else array


def _fit_head(tensors: dict[str, Array], config: LlamaConfig) -> None:
    """A head of its own begins as the embedding where the donor had none; a tied one is dropped."""
    if config.tied:
        tensors.pop(_OUTPUT, None)
    elif _OUTPUT not in tensors:
        tensors[_OUTPUT] = tensors[_EMBEDDING]


def _layer(name: str) -> int | None:
    return int(name.split(".")[1]) if name.startswith("blocks.") else None


def _stem(name: str) -> str:
    return name.rsplit(".", 2)[-2]


def _fields(donor: Donor, *names: str) -> dict[str, Any]:
    return {name: getattr(donor.config, name) for name in names}


def _require(donor: Donor, mode: str, wanted: dict[str, Any], config: LlamaConfig, hint: str = "") -> None:
    for field, value in wanted.items():
        found = getattr(config, field)
        if found != value:
            problem = f"`init={mode}` needs the model's {field} to fit the donor's"
            raise _error(donor, problem, value, f"{found}{f'; {hint}' if hint else ''}")


def _error(donor: Donor, problem: str, expected: object, found: object) -> DonorError:
    return DonorError(problem, path=donor.path, expected=str(expected), found=str(found))
