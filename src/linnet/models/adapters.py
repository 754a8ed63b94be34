"""Adapters: what is trained of a frozen model. `add_adapter` puts a product of low rank beside its projections.

LoRA: y = x Wᵀ + b + scale · dropout(x) Aᵀ Bᵀ. DoRA besides trains the length of each row of W + scale · B A. What is
one matrix here has a pair for each of the matrices within, as a file has them: q, k and v; gate and up.
Shapes: M outputs of a projection, K inputs, R ranks of all its pairs together, r of one.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.architectures.description import Config
from linnet.architectures.parameters import layout
from linnet.errors import UsageError, suggestion
from linnet.gguf.adapter import AdapterFile, adapter_layout, adapter_targets, stem_of, target_of
from linnet.kernels import ops
from linnet.kernels.dropout import row_keys
from linnet.kernels.packed import PackedMatrix
from linnet.models.initial import fill_normal
from linnet.models.layers import Device, Embedding, Linear, PackedEmbedding, PackedLinear
from linnet.models.transformer import LanguageModel

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
_EMBEDDING, _HEAD = "token_embd", "output"


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
    there = adapter_targets(config)
    of_blocks = [name for name in there if name not in (_EMBEDDING, _HEAD)]
    targets: dict[str, None] = {}
    for word in words:
        name = TARGETS.get(word, word)
        _refuse_tied(name, config)
        if word == "all":
            targets.update(dict.fromkeys(of_blocks))
        elif name in there:
            targets[name] = None
        else:
            adaptable = [name for name in there if not (config.tied and name in (_EMBEDDING, _HEAD))]
            known = ["all", *(short for short, name in TARGETS.items() if name in adaptable)]
            raise UsageError(f"`targets`: a {config.arch} has no projection {word!r}{suggestion(word, known)}")
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
    if shape.dora and {_EMBEDDING, _HEAD} & set(shape.targets):
        raise UsageError("`dora` is for the projections of the blocks: leave embed and head out of `targets`")


def _refuse_tied(target: str, config: Config) -> None:
    if config.tied and target in (_EMBEDDING, _HEAD):
        raise UsageError(
            "`targets`: embedding and head of this base are one matrix, and llama.cpp applies no adapter to such a one:"
            f" leave {_word(target)} out"
        )


def _word(target: str) -> str:
    return next((word for word, name in TARGETS.items() if name == target), target)


class LowRank(nn.Module):
    """A pair as a file has it: `lora_a` and `lora_b`; of DoRA also `lora_magnitude`, the lengths of the rows."""

    def __init__(self, a_shape: Iterable[int], b_shape: Iterable[int], device: Device) -> None:
        super().__init__()
        self.lora_a = nn.Parameter(torch.zeros(*a_shape, device=device))
        self.lora_b = nn.Parameter(torch.zeros(*b_shape, device=device))
        self.lora_magnitude: nn.Parameter | None = None


@dataclass(frozen=True)
class Dropout:
    """The share of an input that a pair does not see, and what tells this layer's masks from others'."""

    share: float
    salt: int

    @classmethod
    def at(cls, name: str, share: float) -> Dropout:
        """For the layer of a name."""
        digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
        return cls(share, int.from_bytes(digest, "little") >> 1)


class AdaptedLinear(nn.Module):
    """A frozen projection and its pairs, by the names of the matrices within it and the rows that they have."""

    def __init__(
        self,
        base: Linear | PackedLinear,
        pairs: Mapping[str, LowRank],
        rows: Mapping[str, slice],
        scale: float,
        dropout: Dropout,
    ) -> None:
        super().__init__()
        self.base, self.pairs = base, nn.ModuleDict(pairs)
        self._rows, self._scale, self._dropout = dict(rows), scale, dropout
        self.squares_M: Tensor | None  # of each row of the base, summed: for DoRA
        self.register_buffer("squares_M", None, persistent=False)

    @property
    def weight(self) -> Tensor | PackedMatrix:
        """The base's matrix."""
        return self.base.weight

    @property
    def bias(self) -> Tensor | None:
        """The base's bias."""
        return self.base.bias

    def forward(self, x: Tensor, mask_keys_B: Tensor | None = None) -> Tensor:
        """[…, K] → […, M]."""
        a_RK, b_MR = self.low_rank()
        dropped = ops.dropout(x, mask_keys_B, self._dropout.salt, self._dropout.share)
        if self.squares_M is None:
            return ops.adapted_linear(x, self.base, a_RK, b_MR, dropped)
        y = ops.adapted_linear(x, _Unbiased(self.weight), a_RK, b_MR, dropped)
        y = y * self._stretch(a_RK, b_MR).to(y.dtype)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def low_rank(self) -> tuple[Tensor, Tensor]:
        """All pairs as one: A [R, K], and B [M, R] with zeros where a pair has no rows, times the scale."""
        pairs = self.named_pairs()
        a_RK = torch.cat([pair.lora_a for _, pair in pairs]) if len(pairs) > 1 else pairs[0][1].lora_a
        width, left, top, parts = len(a_RK), 0, 0, []
        for name, pair in pairs:
            rows, rank = self._rows[name], len(pair.lora_a)
            if rows.start > top:
                parts.append(a_RK.new_zeros(rows.start - top, width))
            parts.append(F.pad(pair.lora_b, (left, width - left - rank)) if width > rank else pair.lora_b)
            left, top = left + rank, rows.stop
        if top < (height := self.weight.shape[0]):
            parts.append(a_RK.new_zeros(height - top, width))
        return a_RK, (torch.cat(parts) if len(parts) > 1 else parts[0]) * self._scale

    def named_pairs(self) -> list[tuple[str, LowRank]]:
        """The pairs by the names of the matrices within the projection, in the order of their rows."""
        return [(name, pair) for name, pair in self.pairs.items() if isinstance(pair, LowRank)]

    @torch.no_grad()
    def train_magnitudes(self) -> None:
        """DoRA: let each row's length be trained, from what it is."""
        weight = self.weight if isinstance(self.weight, Tensor) else self.weight.unpacked()
        self.squares_M = weight.float().square().sum(1)
        for name, pair in self.named_pairs():
            pair.lora_magnitude = nn.Parameter(self.squares_M[self._rows[name]].sqrt())

    def _stretch(self, a_RK: Tensor, b_MR: Tensor) -> Tensor:
        """[M]: what brings each row of W + B A to its length. The length it has is taken for a constant, as in DoRA."""
        assert self.squares_M is not None
        with torch.no_grad():
            a_RK, b_MR = a_RK.detach(), b_MR.detach()
            base = self.weight
            crossed_RM = ops.packed_linear(a_RK, base) if isinstance(base, PackedMatrix) else ops.linear(a_RK, base)
            lengths_M = self.squares_M + 2 * (crossed_RM.T.float() * b_MR).sum(1)
            lengths_M = (lengths_M + (b_MR @ (a_RK @ a_RK.T) * b_MR).sum(1)).clamp(min=1e-12).sqrt()
        parts, top = [], 0
        for name, pair in self.named_pairs():
            rows, magnitude = self._rows[name], pair.lora_magnitude
            assert magnitude is not None
            parts += [torch.ones_like(lengths_M[top : rows.start]), magnitude / lengths_M[rows]]
            top = rows.stop
        return torch.cat([*parts, torch.ones_like(lengths_M[top:])])


@dataclass(frozen=True)
class _Unbiased:
    weight: Tensor | PackedMatrix
    bias: None = None


class AdaptedEmbedding(nn.Module):
    """A frozen table of rows, and a pair beside it: lora_a [vocab, r], lora_b [width, r]."""

    def __init__(self, base: Embedding | PackedEmbedding, pair: LowRank, scale: float) -> None:
        super().__init__()
        self.base, self.pair, self._scale = base, pair, scale

    @property
    def weight(self) -> Tensor | PackedMatrix:
        """The base's table."""
        return self.base.weight

    def forward(self, ids_BT: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, width]: the rows, plus `plus_TD`, in `dtype`."""
        frozen_BTD: Tensor = self.base(ids_BT, dtype, plus_TD)
        low_BTr = ops.embedding(ids_BT, self.pair.lora_a, dtype)
        return frozen_BTD + F.linear(low_BTr, (self.pair.lora_b * self._scale).to(dtype))


class Adapter:
    """What is trained of a frozen model: all its pairs. `model.adapter` is one; `add_adapter` makes it."""

    def __init__(
        self, shape: AdapterShape, layers: Mapping[str, AdaptedLinear | AdaptedEmbedding], frozen: int
    ) -> None:
        self.shape, self._layers = shape, dict(layers)
        self.frozen_weights = frozen  # numbers that are multiplied and not trained
        device = next(iter(self._layers.values())).weight.device
        self._step = torch.zeros((), dtype=torch.int64, device=device)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The pairs by the names of `adapter_layout`: `blocks.3.attn_q.lora_a`."""
        named = {}
        for path, layer in self._layers.items():
            pairs = {_EMBEDDING: layer.pair} if isinstance(layer, AdaptedEmbedding) else dict(layer.named_pairs())
            prefix = path.rpartition(".")[0]
            for target, pair in pairs.items():
                for half, parameter in pair.named_parameters():
                    named[".".join(filter(None, (prefix, target, half)))] = parameter
        return named

    def begin_step(self, step: int) -> None:
        """The training step that comes, by which dropout's masks are chosen; written in place, for captured steps."""
        if self.shape.dropout:
            self._step.fill_(step)

    def mask_keys(self, ids_BT: Tensor) -> Tensor | None:
        """What the masks of these rows are made from; None where nothing is dropped."""
        return row_keys(ids_BT, self._step) if self.shape.dropout and torch.is_grad_enabled() else None

    @property
    def changes_head(self) -> bool:
        """Is there a pair beside the output head?"""
        return _HEAD in self._layers

    def read_by_head(self, hidden: Tensor, head_VD: Tensor | PackedMatrix) -> tuple[Tensor, Tensor | PackedMatrix]:
        """Hidden states and head with what the head's own pair adds as columns more: (h, h Aᵀ) · (W, B)."""
        layer = self._layers.get(_HEAD)
        if not isinstance(layer, AdaptedLinear):
            return hidden, head_VD
        a_RD, b_VR = layer.low_rank()
        frozen_VD = head_VD if isinstance(head_VD, Tensor) else head_VD.unpacked(hidden.dtype)
        low = F.linear(hidden, a_RD.to(hidden.dtype))
        return torch.cat((hidden, low), -1), torch.cat((frozen_VD.to(b_VR.dtype), b_VR), 1)


def add_adapter(model: LanguageModel, shape: AdapterShape, seed: int = 0) -> Adapter:
    """Freeze a model and put pairs beside its projections: at first they add nothing, whatever the seed."""
    check_shape(shape, model.config)
    if model.adapter is not None or model.lens is not None:
        raise UsageError("the model has an adapter or a lens already: merge it first, or load the base again")
    model.requires_grad_(False)
    params = adapter_layout(model.config, shape.rank, shape.targets).params
    by_projection: dict[str, dict[str, slice]] = {}  # the matrices within each projection of the model, and their rows
    stems: dict[tuple[str, str], str] = {}
    for tensor, (param, piece) in layout(model.config).tensors.items():
        if (target := target_of(tensor)) in shape.targets and len(piece.shape) == 2:
            path = param.name.removesuffix(".weight")
            by_projection.setdefault(path, {})[target] = slice(piece.start, piece.stop)
            stems[path, target] = stem_of(tensor)
    layers: dict[str, AdaptedLinear | AdaptedEmbedding] = {}
    for path, rows in by_projection.items():
        pairs = {}
        for target in rows:
            stem = stems[path, target]
            pair = LowRank(params[f"{stem}.lora_a"].shape, params[f"{stem}.lora_b"].shape, model.device)
            # As the usual uniform draws of a linear layer. An embedding's rows begin at zero, and B then does not.
            start, name = (pair.lora_b, "lora_b") if target == _EMBEDDING else (pair.lora_a, "lora_a")
            fill_normal(start.data, (3 * start.shape[1]) ** -0.5, seed, f"{stem}.{name}")
            pairs[target] = pair
        layers[path] = _adapted(model.get_submodule(path), pairs, rows, shape, path)
        owner, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(owner), attribute, layers[path])
    model.adapter = Adapter(shape, layers, _multiplied(model))
    return model.adapter


def _adapted(
    base: nn.Module, pairs: Mapping[str, LowRank], rows: Mapping[str, slice], shape: AdapterShape, path: str
) -> AdaptedLinear | AdaptedEmbedding:
    if isinstance(base, Embedding | PackedEmbedding):
        return AdaptedEmbedding(base, pairs[_EMBEDDING], shape.scale)
    assert isinstance(base, Linear | PackedLinear), path
    layer = AdaptedLinear(base, pairs, rows, shape.scale, Dropout.at(path, shape.dropout))
    if shape.dora:
        layer.train_magnitudes()
    return layer


def _multiplied(model: LanguageModel) -> int:
    """Numbers of the matrices that a token is multiplied by."""
    layers = (part for part in model.modules() if isinstance(part, Linear | PackedLinear))
    weights = {id(layer.weight): layer.weight for layer in layers}
    head = model.head_VD
    weights[id(head)] = head
    return sum(weight.shape[0] * weight.shape[1] for weight in weights.values())


def without_adapter(model: LanguageModel) -> LanguageModel:
    """The base alone, as a model of its own that shares all weights with the adapted one and takes no memory.

    What it says is what the adapted model said before its first step: the reference of preference learning.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    base = copy.deepcopy(model, shared)
    for path, layer in list(base.named_modules()):
        if isinstance(layer, AdaptedLinear | AdaptedEmbedding):
            owner, _, attribute = path.rpartition(".")
            setattr(base.get_submodule(owner), attribute, layer.base)
    base.adapter = None
    return base


@torch.no_grad()
def merge_adapter(config: Config, params: Mapping[str, Tensor], adapter: AdapterFile, scale: float = 1.0) -> None:
    """Add what an adapter adds to a model's parameters, in place. Whether it fits has been made sure of."""
    tensors = layout(config).tensors
    for tensor, pair in adapter.pairs.items():
        param, piece = tensors[tensor]
        weight = params[param.name][piece.start : piece.stop]
        up, down = (torch.from_numpy(half).to(weight.device) for half in (pair.up, pair.down))
        weight.add_((up @ down).to(weight.dtype), alpha=scale * adapter.scale(pair))


@torch.no_grad()
def load_pairs(adapter: Adapter, file: AdapterFile) -> None:
    """Begin with the pairs of a file: what they add is the same, whatever scale the file has."""
    parameters = adapter.parameters()
    for tensor, pair in file.pairs.items():
        stem = stem_of(tensor)
        up, down = torch.from_numpy(pair.up), torch.from_numpy(pair.down)
        a, b = (up, down.T) if target_of(tensor) == _EMBEDDING else (down, up)
        parameters[f"{stem}.lora_a"].copy_(a)
        parameters[f"{stem}.lora_b"].copy_(b * (file.scale(pair) / adapter.shape.scale))
