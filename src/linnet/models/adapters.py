"""Adapters: what is trained of a frozen model. `add_adapter` puts a product of low rank beside its projections.

The layers are in `adapted_layers.py`; which there are and how large, `adapter_shape.py` says.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.architectures.description import Config
from linnet.architectures.parameters import layout
from linnet.errors import UsageError
from linnet.gguf.adapter import AdapterFile, adapter_layout, stem_of, target_of
from linnet.kernels.dropout import row_keys
from linnet.kernels.packed import PackedMatrix
from linnet.models.adapted_layers import AdaptedEmbedding, AdaptedLinear, Dropout, LowRank, named_pairs
from linnet.models.adapter_shape import EMBEDDING, HEAD, AdapterShape, check_shape
from linnet.models.initial import fill_normal
from linnet.models.layers import Embedding, Linear, PackedEmbedding, PackedLinear
from linnet.models.transformer import LanguageModel


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
            prefix = path.rpartition(".")[0]
            for target, pair in named_pairs(layer):
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
        return HEAD in self._layers

    def read_by_head(self, hidden: Tensor, head_VD: Tensor | PackedMatrix) -> tuple[Tensor, Tensor | PackedMatrix]:
        """Hidden states and head with what the head's own pair adds as columns more: (h, h Aᵀ) · (W, B)."""
        layer = self._layers.get(HEAD)
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
            start, name = (pair.lora_b, "lora_b") if target == EMBEDDING else (pair.lora_a, "lora_a")
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
        return AdaptedEmbedding(base, pairs, shape.scale)
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
        a, b = (up, down.T) if target_of(tensor) == EMBEDDING else (down, up)
        parameters[f"{stem}.lora_a"].copy_(a)
        parameters[f"{stem}.lora_b"].copy_(b * (file.scale(pair) / adapter.shape.scale))
