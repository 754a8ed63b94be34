"""Looking into a model while it computes: the activations of a forward pass by region, and its attention.

    with observe(model, observer):
        model(ids_BT)                      # or `model.hidden`, or a ViT on images; with gradients or without

    kept = activations(model, ids_BT, regions=("resid_post_block",))
    kept[Region("resid_post_block", 3)]    # [B, T, d_model]

Hooks on the modules see what the model computes eagerly, so no model knows of it, and nothing changes a number. A
compiled layer is one operation and shows nothing inside. A region's name is `<sublayer>_<phase>`, the same in all
architectures:

| region | |
|---|---|
| `patch_embd` | a vision transformer's patches, embedded |
| `embd` | what the first block reads: embedded tokens, with their positions where those are learned |
| `attn_norm`, `ffn_norm` | the residual stream, normed, as attention and the feed-forward part read it |
| `attn_q`, `attn_k`, `attn_v` | what attention reads (normed, rotated), [B, heads, T, head size] |
| `attn_out`, `ffn_out` | what attention and the feed-forward part add to the residual stream |
| `ffn_act` | the units of the feed-forward part: what `ffn_down` reads |
| `resid_post_attn`, `resid_post_block` | the residual stream after attention, and after the block |
| `class_token` | the class token of a vision transformer after the block |
| `output_norm`, `logits` | what the head reads and says; logits where the whole model is called |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.errors import UsageError, suggestion
from linnet.kernels import ops

# Modules by the last part of their names, and the regions that they put out, or that they read.
_PUT_OUT = {
    "attn_norm": "attn_norm",
    "ln1": "attn_norm",
    "attn_output": "attn_out",
    "attn_out": "attn_out",
    "ffn_norm": "ffn_norm",
    "ln2": "ffn_norm",
    "ffn_down": "ffn_out",
    "patch_embd": "patch_embd",
    "output_norm": "output_norm",
    "post_ln": "output_norm",
}
_READ = {"ffn_norm": "resid_post_attn", "ln2": "resid_post_attn", "ffn_down": "ffn_act"}
_FIRST_OF_BLOCK = ("attn_norm", "ln1")  # they read what the block before, or the embedding, has put out
_AFTER_BLOCKS = ("output_norm", "post_ln")

# The regions of a block in the order of the pass, and those that similarity is measured by.
BLOCK_REGIONS = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_out", "resid_post_attn"),
    *("ffn_norm", "ffn_act", "ffn_out", "resid_post_block", "class_token"),
)
REGIONS = ("patch_embd", "embd", *BLOCK_REGIONS, "output_norm", "logits")
CKA_REGIONS = ("attn_norm", "ffn_out", "resid_post_block")


class Region(NamedTuple):
    """A place in a model: a name of `REGIONS`, and its layer where it is one of a block."""

    name: str
    layer: int | None = None

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name}.{self.layer}"


class Attention(NamedTuple):
    """The inputs of one attention. Shapes: H heads, K key heads, of which each serves H / K heads, S keys.

    A mask is true where a token sees, or is what is added to its scores; without one a `causal` attention sees what
    comes before.
    """

    q_BHTD: Tensor
    k_BKSD: Tensor
    v_BKSD: Tensor
    mask: Tensor | None
    causal: bool

    @torch.no_grad()
    def probabilities(self, queries: slice = slice(None)) -> Tensor:
        """[B, H, T, S] in float32: how much each of some queries attends to each key."""
        q_BHTD, k_BKSD = self.q_BHTD[:, :, queries].float(), self.k_BKSD.float()
        groups = q_BHTD.shape[1] // k_BKSD.shape[1]
        k_BHSD = k_BKSD.repeat_interleave(groups, 1) if groups > 1 else k_BKSD
        scores_BHTS = (q_BHTD @ k_BHSD.mT) * q_BHTD.shape[-1] ** -0.5
        mask = self.mask
        if mask is None and self.causal:
            T, S = self.q_BHTD.shape[2], k_BKSD.shape[2]
            mask = torch.ones(T, S, dtype=torch.bool, device=q_BHTD.device).tril(S - T)
        if mask is not None:
            mask = mask[..., queries, :]
            scores_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores_BHTS + mask
        return scores_BHTS.softmax(-1)


class Observer:
    """Is told what a forward pass computes; by default it does nothing with it.

    Tensors are the model's own, in its dtype, with their gradients where the pass has any: look, and change nothing.
    """

    def activation(self, region: Region, x: Tensor) -> None:
        """The values of a region: [B, T, width]; of queries, keys and values [B, heads, T, head size]."""

    def attention(self, layer: int, attention: Attention) -> None:
        """The inputs of a layer's attention."""


@contextmanager
def observe(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Tell an observer of the eager forward passes of a model, one at a time."""
    watch = _Watch(observer)
    with ExitStack() as stack:
        for name, module in model.named_modules():
            for hook in watch.hooks(name, module, model):
                stack.callback(hook.remove)
        stack.enter_context(ops.observed_attention(watch.attention))
        yield


class Activations(Observer, dict[Region, Tensor]):
    """Keeps the activations of the last pass, detached, of some regions (by name) or of all.

    - `keep`: what is kept of each; by default the tensor itself.
    """

    def __init__(self, regions: Collection[str] = REGIONS, keep: Callable[[Tensor], Tensor] | None = None) -> None:
        for name in regions:
            if name not in REGIONS:
                raise UsageError(f"a model has no region {name!r}{suggestion(name, REGIONS)}")
        self._regions, self._keep = frozenset(regions), keep

    def activation(self, region: Region, x: Tensor) -> None:
        """Keep it."""
        if region.name in self._regions:
            self[region] = x.detach() if self._keep is None else self._keep(x.detach())


@torch.no_grad()
def activations(model: Any, *inputs: Any, regions: Collection[str] = REGIONS) -> dict[Region, Tensor]:
    """The activations of one pass without gradients: `activations(model, ids_BT, regions=CKA_REGIONS)`.

    Inputs are what the model is called with: token ids [B, T], or a vision transformer's images.
    """
    recorded = Activations(regions)
    with observe(model, recorded):
        if "logits" in recorded._regions or not hasattr(model, "hidden"):
            model(*inputs)
        else:
            model.hidden(*inputs)
    return recorded


class _Watch:
    """The hooks that tell an observer, and which block is at work."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._layer: int | None = None

    def hooks(self, name: str, module: nn.Module, model: nn.Module) -> Iterator[torch.utils.hooks.RemovableHandle]:
        """Register what a module's place in the model asks for."""
        if module is model:
            yield module.register_forward_hook(lambda _m, _i, out: self._tell(Region("logits"), out))
            return
        *path, leaf = name.split(".")
        layer = int(path[1]) if len(path) == 2 and path[0] == "blocks" else None
        if len(path) == 1 and path[0] == "blocks":
            yield module.register_forward_pre_hook(lambda _m, _i: self._enter(int(leaf)))
            yield module.register_forward_hook(lambda _m, _i, _out: self._enter(None), always_call=True)
            return
        if path and layer is None:
            return
        if leaf in _FIRST_OF_BLOCK and layer is not None:
            yield module.register_forward_pre_hook(lambda _m, i: self._stream(layer, model, i[0]))
        elif leaf in _AFTER_BLOCKS:
            last: int = len(model.blocks)  # type: ignore[arg-type]
            yield module.register_forward_pre_hook(lambda _m, i: self._stream(last, model, i[0]))
        elif leaf in _READ:
            yield module.register_forward_pre_hook(lambda _m, i: self._tell(Region(_READ[leaf], layer), i[0]))
        if leaf in _PUT_OUT:
            yield module.register_forward_hook(lambda _m, _i, out: self._tell(Region(_PUT_OUT[leaf], layer), out))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> None:
        """Attention of a block of this model; that of any other model is none of it."""
        if self._layer is not None:
            for name, x in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
                self._observer.activation(Region(name, self._layer), x)
            self._observer.attention(self._layer, Attention(q, k, v, mask, causal))

    def _enter(self, layer: int | None) -> None:
        self._layer = layer

    def _stream(self, block: int, model: nn.Module, x_BTD: Tensor) -> None:
        """The residual stream as block number `block` reads it: what the one before has put out."""
        if block == 0:
            self._tell(Region("embd"), x_BTD)
            return
        self._tell(Region("resid_post_block", block - 1), x_BTD)
        if getattr(model.config, "pooling", None) == "cls":
            self._tell(Region("class_token", block - 1), x_BTD[:, :1])

    def _tell(self, region: Region, x: Tensor) -> None:
        self._observer.activation(region, x)
