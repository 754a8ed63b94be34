"""What a new model takes over from a donor: `embed`, `select`, `inherit:K`, `widen:N`, `full`; and its shape.

A mode gives tensors by our names and says in a line what it took. What it does not give keeps its fresh values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from linnet.architectures import LlamaConfig
from linnet.errors import UsageError
from linnet.recipes.donor import Donor, DonorError
from linnet.recipes.token_rows import TokenRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
    Index = NDArray[np.int64]

_LENS_MODES = ("warm", "pca")
_MODES = ("embed", "select", "inherit", "widen", "full")  # methods of `Transfer`
_NUMBERED = ("inherit", "widen")
# The fields that decide what the donor's layers compute; a model that takes layers over must have them too.
_KIND = ("head_size", "rope_base", "rms_eps", "rope_scaling", "qkv_bias", "output_bias", "ffn_bias")
_SIZES = ("d_model", "n_heads", "n_kv", "d_ff")
_EMBEDDING, _OUTPUT, _NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_NOISE = 0.1  # of a matrix's own spread: what keeps the copies of `widen` from learning the same for ever
_CTX = 256  # unless asked for more: a donor's own context is for running it, not for training it
_HIDDEN_STEP = 32  # hidden units come in so many


@dataclass(frozen=True)
class Init:
    """How a model begins: `pca`, `select`, `inherit:4`."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Init:
        """Read what a warm start is asked for as its `init`."""
        kind, colon, number = text.partition(":")
        known = ("scratch", *_LENS_MODES, *_MODES)
        if kind not in known:
            shown = ", ".join(f"{name}:N" if name in _NUMBERED else name for name in known)
            raise UsageError(f"`init` {text!r} is not known; choose from {shown}")
        if (kind in _NUMBERED) != bool(colon):
            expected = f"{kind}:N, such as {kind}:2" if kind in _NUMBERED else f"{kind} alone"
            raise UsageError(f"`init` {text!r} is not understood; say {expected}")
        if colon and (not number.isdigit() or int(number) < 1):
            raise UsageError(f"`init` {text!r}: expected a whole number from 1 after the colon, found {number!r}")
        return cls(kind, int(number or 0))

    @property
    def has_lens(self) -> bool:
        """Does the embedding stay as wide as the donor's, behind a lens?"""
        return self.kind in _LENS_MODES

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind


@dataclass(frozen=True)
class TransferredTensors:
    """Tensors for the new model by our names, and what they are in a line."""

    tensors: dict[str, Array]
    words: str


@dataclass(frozen=True)
class Transfer:
    """A donor, the model that begins with it, and how: a method a mode."""

    donor: Donor
    config: LlamaConfig  # of the new model
    rows: TokenRows  # the donor's rows that its vocabulary begins with
    layers: Literal["even", "first"] = "even"  # of `select`
    rescale: bool = True  # of `embed`: give its rows the mean and spread of new ones
    seed: int = 0

    def take(self, init: Init) -> TransferredTensors:
        """Take over what `init` says."""
        mode = getattr(self, f"_{init.kind}")
        transferred: TransferredTensors = mode(init.number) if init.kind in _NUMBERED else mode()
        return transferred

    def _embed(self) -> TransferredTensors:
        """The rows of an embedding of the same width."""
        from linnet.models.initial import EMBEDDING_STD
        from linnet.models.lens import SEEN_STD

        self._require("embed", {"d_model": self.donor.width}, "; another width goes with pca, warm or select")
        table = self.rows.take(self.donor.table(len(self.rows.counts) if self.rows.same else None), self.seed)
        if self.rescale:
            table = table - table.mean(0)
            # A tied head has the size of a head.
            table *= (EMBEDDING_STD if self.config.tied else SEEN_STD) / table.std(0)
        return TransferredTensors({_EMBEDDING: table}, f"embedding copied ({self.rows.words}); the rest is new")

    def _full(self) -> TransferredTensors:
        """Everything: training goes on."""
        self._require("full", self._theirs(*_SIZES, "n_layers", "tied", *_KIND))
        words = f"every tensor of its {self.config.n_layers} layers copied ({self.rows.words})"
        return TransferredTensors(dict(self._parameters()), words)

    def _inherit(self, layers: int) -> TransferredTensors:
        """The first layers, with embedding and head."""
        donor_layers = self.donor.config.n_layers
        if layers > donor_layers:
            raise self._error(f"inherit:{layers} takes more layers than there are", f"{layers} or more", donor_layers)
        self._require(f"inherit:{layers}", {**self._theirs(*_SIZES, *_KIND), "n_layers": layers})
        tensors = {name: array for name, array in self._parameters() if (_layer(name) or 0) < layers}
        last = f"layers 0 to {layers - 1}" if layers > 1 else "layer 0"
        words = f"{last} of {donor_layers} copied, with embedding and last norm ({self.rows.words})"
        return TransferredTensors(self._with_head(tensors), words)

    def _select(self) -> TransferredTensors:
        """Some layers, and evenly chosen heads and channels; one choice of channels for the whole residual stream."""
        theirs, config = self.donor.config, self.config
        self._require("select", self._theirs(*_KIND))
        for field in (*_SIZES, "n_layers"):
            if getattr(config, field) > getattr(theirs, field):
                problem = f"select chooses from what is there, and the donor's {field} is smaller"
                raise self._error(problem, f"{getattr(config, field)} or more", getattr(theirs, field))
        group, their_group = config.n_heads // config.n_kv, theirs.n_heads // theirs.n_kv
        if group > their_group:
            expected = f"{group} or more, as n_heads {config.n_heads} and n_kv {config.n_kv} say"
            problem = "select keeps query heads with their key head, and the donor's key heads serve too few"
            raise self._error(problem, expected, f"{their_group}; choose a larger n_kv")
        spread = _spread(theirs.n_layers, config.n_layers) if self.layers == "even" else range(config.n_layers)
        layers = {int(old): new for new, old in enumerate(spread)}
        chosen = _Chosen(theirs, config)
        tensors = {}
        for name, array in self._parameters():
            layer = _layer(name)
            if layer is None or layer in layers:
                ours = name if layer is None else name.replace(f".{layer}.", f".{layers[layer]}.", 1)
                tensors[ours] = chosen.cut(_stem(name), array)
        words = (
            f"layers {', '.join(map(str, layers))} of {theirs.n_layers}, {config.d_model} of {theirs.d_model} channels,"
            f" {config.n_heads} of {theirs.n_heads} heads, {config.d_ff} of {theirs.d_ff} hidden ({self.rows.words})"
        )
        return TransferredTensors(self._with_head(tensors), words)

    def _widen(self, n: int) -> TransferredTensors:
        """Every channel, head and hidden unit N times, and each matrix a share of itself: the function stays the same.

        RMSNorm sees the same mean square; a matrix reads N copies of its input, each through 1/N of itself. The N
        shares differ by noise that adds up to nothing, or the copies would get equal gradients and stay copies.
        """
        theirs = self.donor.config
        sizes = {field: n * getattr(theirs, field) for field in _SIZES}
        self._require(f"widen:{n}", {**sizes, **self._theirs("n_layers", "tied", *_KIND)})
        head, tensors = theirs.head_size, {}
        parts: dict[str, tuple[int, ...]] = {
            "attn_qkv": (theirs.n_heads * head, theirs.n_kv * head, theirs.n_kv * head),
            "ffn_gate_up": (theirs.d_ff, theirs.d_ff),
        }
        for name, array in self._parameters():
            stem = _stem(name)
            if stem == "rope_freqs":
                tensors[name] = array
            elif stem == "token_embd":
                tensors[name] = np.tile(array, (1, n))
            elif stem == "output":
                tensors[name] = _shares(array, n, name, self.seed)
            elif name == _NORM and self.config.tied:
                tensors[name] = np.tile(array, n) / np.float32(n)  # the head is the embedding, N copies of it
            else:
                cuts = np.cumsum(parts.get(stem, (len(array),)))[:-1]
                copies = np.concatenate([np.concatenate([part] * n) for part in np.split(array, cuts)])
                tensors[name] = copies if array.ndim == 1 else _shares(copies, n, name, self.seed)
        words = f"every channel, head and hidden unit {n} times: {theirs.d_model} → {self.config.d_model} wide"
        return TransferredTensors(tensors, f"{words}, same function ({self.rows.words})")

    def _parameters(self) -> Iterator[tuple[str, Array]]:
        """The donor's, with the rows of the new vocabulary."""
        for name, array in self.donor.parameters():
            yield name, self.rows.take(array, self.seed) if name in (_EMBEDDING, _OUTPUT) else array

    def _with_head(self, tensors: dict[str, Array]) -> dict[str, Array]:
        """A head of its own begins as the embedding where the donor had none; a tied one is dropped."""
        if self.config.tied:
            return {name: array for name, array in tensors.items() if name != _OUTPUT}
        return {_OUTPUT: tensors[_EMBEDDING], **tensors}

    def _theirs(self, *fields: str) -> dict[str, Any]:
        return {field: getattr(self.donor.config, field) for field in fields}

    def _require(self, mode: str, expected: dict[str, Any], hint: str = "") -> None:
        for field, value in expected.items():
            ours = getattr(self.config, field)
            if ours != value:
                raise self._error(f"`init={mode}` needs the model's {field} to fit the donor's", value, f"{ours}{hint}")

    def _error(self, problem: str, expected: object, found: object) -> DonorError:
        return self.donor.error(problem, "", str(expected), str(found))


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


def _shares(matrix: Array, n: int, name: str, seed: int) -> Array:
    """[out, N·in]: N shares side by side that add up to the matrix."""
    key = int.from_bytes(hashlib.blake2b(f"{seed} widen {name}".encode(), digest_size=8).digest(), "little")
    noise = np.random.default_rng(key).standard_normal((n, *matrix.shape), np.float32)
    noise -= noise.mean(0)
    noise *= np.float32(_NOISE) * matrix.std() / n
    noise += matrix / n
    return np.ascontiguousarray(noise.transpose(1, 0, 2).reshape(matrix.shape[0], -1))


def _spread(of: int, count: int) -> Index:
    """`count` of the numbers below `of`, evenly spread, the first and the last among them."""
    return np.round(np.linspace(0, of - 1, count)).astype(np.int64) if count > 1 else np.zeros(1, np.int64)


def _whole(heads: Index, size: int) -> Index:
    """All channels of some heads: rotary pairs lie next to each other and must stay so."""
    return (heads[:, None] * size + np.arange(size)).ravel()


def _layer(name: str) -> int | None:
    return int(name.split(".")[1]) if name.startswith("blocks.") else None


def _stem(name: str) -> str:
    return name.rsplit(".", 2)[-2]


def shape_from(donor: LlamaConfig, init: Init, **sizes: Any) -> LlamaConfig:
    """The config of a model that begins with a donor; `sizes` are fields of it that were given.

    - `full`, `inherit:K` and `widen:N` have the donor's sizes, of which K and N say what is changed.
    - `select` keeps the donor's head size and gives a narrower model fewer heads, hidden units and as many layers.
    - `embed`, `pca`, `warm` and `scratch` take no layers, so the sizes are a suggestion only.
    """
    base = replace(donor, ctx=min(donor.ctx, _CTX))
    if init.kind == "inherit":
        base = replace(base, n_layers=init.number)
    elif init.kind == "widen":
        base = replace(base, **{field: init.number * getattr(donor, field) for field in _SIZES})
    elif init.kind != "full":
        base = _narrowed(base, init, sizes)
    return replace(base, **sizes)


def _narrowed(donor: LlamaConfig, init: Init, sizes: dict[str, Any]) -> LlamaConfig:
    """Heads, keys and hidden units for the width that was asked for."""
    width = sizes.get("d_model", donor.d_model)
    if init.kind == "select":
        head = donor.head_size
    else:
        if "n_heads" in sizes and "head_dim" not in sizes:
            head = width // sizes["n_heads"] if width % sizes["n_heads"] == 0 else 0
        else:
            head = sizes.get("head_dim") or donor.head_size
        donor = replace(donor, rope_scaling=None, qkv_bias=False, output_bias=False, ffn_bias=False)
    n_heads = sizes.get("n_heads") or max(1, round(width / head))
    hidden = donor.d_ff
    if width != donor.d_model:
        hidden = max(1, round(donor.d_ff * width / donor.d_model / _HIDDEN_STEP)) * _HIDDEN_STEP
    fresh = {
        "d_model": width,
        "n_heads": n_heads,
        "n_kv": sizes.get("n_kv") or _keys(donor, n_heads),
        "head_dim": head if head * n_heads != width else 0,
        "d_ff": min(hidden, donor.d_ff) if init.kind == "select" else hidden,
        "tied": donor.tied and not init.has_lens,
    }
    return replace(donor, **{**fresh, **sizes})


def _keys(donor: LlamaConfig, n_heads: int) -> int:
    """Heads of keys: the fewest that no more queries share than in the donor."""
    group = donor.n_heads // donor.n_kv
    return next(n for n in range(1, n_heads + 1) if n_heads % n == 0 and n_heads // n <= group)
