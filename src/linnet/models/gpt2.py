"""`GPT2`: LayerNorm, learned positions, GELU by tanh, a bias on every product."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.architectures.gpt2 import GPT2Config
from linnet.models.attention import attend, fused_heads
from linnet.models.cache import KVCache, Span
from linnet.models.compute import Compute, plain
from linnet.models.gate import gelu_product
from linnet.models.language_model import LanguageModel
from linnet.models.layers import Embedding, Linear
from linnet.models.norms import LayerNorm, normed_product


class Block(nn.Module):
    """One layer: attention, then the feed-forward, each added to what it read; the latter by the next layer."""

    def __init__(self, config: GPT2Config, layer: int, device: torch.device | str | None) -> None:
        super().__init__()
        self.layer = layer
        self.n_heads = config.n_heads
        d = config.d_model
        self.attn_norm = LayerNorm(d, config.norm_eps, device)
        self.attn_qkv = Linear(d, 3 * d, bias=True, device=device)
        self.attn_output = Linear(d, d, bias=True, device=device)
        self.ffn_norm = LayerNorm(d, config.norm_eps, device)
        self.ffn_up = Linear(d, config.d_ff, bias=True, device=device)
        self.ffn_down = Linear(config.d_ff, d, bias=True, device=device)

    def forward(
        self, x_BTD: Tensor, added_BTD: Tensor | None, mask_TS: Tensor | None, span: Span | None
    ) -> tuple[Tensor, Tensor]:
        """The stream [B, T, d_model] and what is to be added to it → the same."""
        x_BTD, qkv_BTE = normed_product(x_BTD, added_BTD, self.attn_norm, self.attn_qkv, bias_follows=True)
        seen_BTD = self.attention(qkv_BTE, mask_TS, span)
        x_BTD, up_BTF = normed_product(
            x_BTD, seen_BTD, self.ffn_norm, self.ffn_up, bias_follows=True, added_bias=self.attn_output.bias
        )
        return x_BTD, gelu_product(up_BTF, self.ffn_up.bias, self.ffn_down)

    def attention(self, qkv_BTE: Tensor, mask_TS: Tensor | None, span: Span | None) -> Tensor:
        """What each token takes from those it sees."""
        q_BTHD, k_BTHD, v_BTHD = fused_heads(qkv_BTE, self.attn_qkv.bias, self.n_heads)
        if span is None:
            k_BHSD, v_BHSD = k_BTHD.transpose(1, 2), v_BTHD.transpose(1, 2)
        else:
            k_BHSD, v_BHSD = span.put(self.layer, k_BTHD, v_BTHD)
        out_BHTD = attend(q_BTHD.transpose(1, 2), k_BHSD, v_BHSD, mask_TS)
        return self.attn_output(out_BHTD.transpose(1, 2).flatten(2), bias_follows=True)


class GPT2(LanguageModel):
    """A GPT-2 as llama.cpp runs it."""

    config: GPT2Config

    def __init__(self, config: GPT2Config, device: torch.device | str | None = None) -> None:
        super().__init__(config)
        self.token_embd = Embedding(config.vocab, config.d_model, device)
        self.position_embd = Embedding(config.ctx, config.d_model, device)
        self.blocks = nn.ModuleList(Block(config, layer, device) for layer in range(config.n_layers))
        self.output_norm = LayerNorm(config.d_model, config.norm_eps, device)
        self.output = None if config.tied else Linear(config.d_model, config.vocab, device=device)

    def hidden(
        self,
        ids_BT: Tensor,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
        compute: Compute = plain,
    ) -> Tensor:
        """[B, T, d_model]: what the output head reads, in the compute dtype."""
        span, mask_TS = self.sight(ids_BT, documents_BT, cache)
        place_CD = self.position_embd.weight
        place_TD = place_CD[: ids_BT.shape[1]] if span is None else place_CD[span.positions_T]
        return self.through_layers(self.embed(ids_BT, compute, place_TD), cache, compute, mask_TS, span)
