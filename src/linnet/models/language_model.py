"""`LanguageModel`: what llama and GPT-2 have in common, from hidden states on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.architectures.description import Config
from linnet.errors import UsageError
from linnet.models.attention import document_mask
from linnet.models.cache import KVCache, Span
from linnet.models.compute import Compute, plain
from linnet.models.layers import Embedding, Linear
from linnet.models.loss import head_loss

if TYPE_CHECKING:
    from linnet.models.lens import Lens


class LanguageModel(nn.Module):
    """Token ids in, logits or a loss out. Its `state_dict` has exactly the names of `linnet.architectures`.

    Parameters are float32. With `set_compute_dtype(torch.bfloat16)` they are cast where they are used; norms,
    softmax and loss stay in float32.
    """

    token_embd: Embedding
    blocks: nn.ModuleList
    output_norm: nn.Module
    output: Linear | None
    head_ready: Callable[[Tensor], Tensor] | None = None  # the head's weight for decoding (ready.py)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype = torch.float32
        self.lens: Lens | None = None  # between an embedding of another width and the model; see `put_lens`

    def hidden(
        self,
        ids_BT: Tensor,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
        compute: Compute = plain,
    ) -> Tensor:
        """[B, T, d_model]: what the output head reads, in the compute dtype."""
        raise NotImplementedError

    def reserve(self, positions: int) -> None:
        """Prepare what the model computes once for sequences of `positions` tokens: nothing, with learned positions."""

    def embed(self, ids_BT: Tensor, compute: Compute = plain, place_TD: Tensor | None = None) -> Tensor:
        """[B, T, d_model]: the row of each token, through the lens where there is one, and what its place adds."""
        if self.lens is None:
            x_BTD: Tensor = compute(self.token_embd, ids_BT, self.compute_dtype, place_TD)
            return x_BTD
        x_BTD = compute(self.lens, compute(self.token_embd, ids_BT, self.compute_dtype))
        return x_BTD if place_TD is None else x_BTD + place_TD.to(x_BTD.dtype)

    def through_layers(self, x_BTD: Tensor, cache: KVCache | None, compute: Compute, *arguments: Any) -> Tensor:
        """[B, T, d_model]: what the layers, which take these arguments too, and the last norm make of the stream."""
        added_BTD = compute.nothing(x_BTD)
        for block in self.blocks:
            x_BTD, added_BTD = compute(block, x_BTD, added_BTD, *arguments)
        if cache is not None:
            cache.advance(x_BTD.shape[1])
        assert added_BTD is not None  # there are layers
        hidden_BTD: Tensor = compute(self.output_norm, x_BTD + added_BTD)
        return hidden_BTD

    def sight(
        self, ids_BT: Tensor, documents_BT: Tensor | None, cache: KVCache | None
    ) -> tuple[Span | None, Tensor | None]:
        """Where the ids stand in the cache, if there is one, and the mask of what they see (None: all before them)."""
        T = ids_BT.shape[1]
        if self.config.ctx < T:
            raise UsageError(f"the sequence has {T} tokens and the model's context {self.config.ctx}: shorten it")
        if cache is not None:
            assert documents_BT is None, "a cache holds one document"
            span = cache.span(T)
            return span, span.mask_TS
        return None, None if documents_BT is None else document_mask(documents_BT)

    def forward(self, ids_BT: Tensor, documents_BT: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Logits [B, T, V] in float32. With a cache the ids come after those it holds, and are added to it."""
        return self.logits(self.hidden(ids_BT, documents_BT, cache))

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """The output head, in float32."""
        if self.head_ready is not None:
            return self.head_ready(hidden_BTD).float()
        return F.linear(hidden_BTD, self.head_VD.to(hidden_BTD.dtype)).float()

    def loss(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor | None = None,
        *,
        divisor: Tensor | None = None,
        compute: Compute = plain,
    ) -> Tensor:
        """Mean cross entropy in nats over the targets that are not negative.

        `documents_BT` numbers the documents of a row: a token sees those before it with the same number.
        Positions go on through the row. `divisor` replaces the number of targets in the mean. `compute` runs the parts:
        as they stand, or compiled.
        """
        hidden_BTD = self.hidden(ids_BT, documents_BT, compute=compute)
        return head_loss(hidden_BTD.flatten(0, 1), self.head_VD, targets_BT.flatten(), divisor, compute)

    @property
    def head_VD(self) -> Tensor:  # noqa: N802 (the shape is part of a tensor's name)
        """The output head: the embedding itself where they are tied."""
        return self.token_embd.weight if self.output is None else self.output.weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.token_embd.weight.device

    def params(self) -> dict[str, Tensor]:
        """Every parameter by its name in `linnet.architectures`: what `linnet.gguf.write` takes (and folds a lens)."""
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}

    def set_compute_dtype(self, dtype: torch.dtype) -> None:
        """The dtype of activations and products; the parameters stay in float32."""
        self.compute_dtype = dtype

    def n_params(self) -> int:
        """How many numbers are trained; a tied head counts once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def flops_per_token(self, T: int) -> float:
        """Of forward and backward, in sequences of T tokens: 6N + 12·L·d·T.

        N is every trained parameter but learned positions; d is the width of attention (n_heads × head size).
        Attention is counted whole, not halved for causality: nanoGPT's convention, so that figures compare.
        """
        config = self.config
        trained = ((name, p) for name, p in self.named_parameters() if p.requires_grad)
        N = sum(p.numel() for name, p in trained if name != "position_embd.weight")
        return 6.0 * N + 12.0 * config.n_layers * config.n_heads * config.head_size * T
