"""`GPT2`: LayerNorm, learned positions, GELU by tanh, a bias on every linear layer."""

from __future__ import annotations

from torch import Tensor, nn

from linnet.architectures.gpt2 import GPT2Config
from linnet.kernels import Residual, ops
from linnet.models.cache import Span
from linnet.models.layers import Device, Embedding, LayerNorm, Linear
from linnet.models.transformer import DecoderBlock, LanguageModel


class Block(DecoderBlock):
    """One layer: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: GPT2Config, layer: int, device: Device | None) -> None:
        super().__init__(layer)
        self.n_heads = config.n_heads
        d = config.d_model
        self.attn_norm = LayerNorm(d, config.norm_eps, device)
        self.attn_qkv = Linear(d, 3 * d, bias=True, device=device)
        self.attn_output = Linear(d, d, bias=True, device=device)
        self.ffn_norm = LayerNorm(d, config.norm_eps, device)
        self.ffn_up = Linear(d, config.d_ff, bias=True, device=device)
        self.ffn_down = Linear(config.d_ff, d, bias=True, device=device)

    def forward(self, x: Residual, mask_TS: Tensor | None, span: Span | None) -> Residual:
        """The residual stream [B, T, d_model] → the same."""
        x, (q_BTHD, k_BTHD, v_BTHD) = ops.norm_heads(x, self.attn_norm, self.attn_qkv, self.n_heads)
        x = ops.add_linear(x, self.attention(q_BTHD, k_BTHD, v_BTHD, mask_TS, span), self.attn_output, self.dropout)
        return ops.gelu_mlp(x, self.ffn_norm, self.ffn_up, self.ffn_down, self.dropout)


class GPT2(LanguageModel):
    """A GPT-2 as llama.cpp runs it."""

    config: GPT2Config

    def __init__(self, config: GPT2Config, device: Device | None = None) -> None:
        super().__init__(config)
        self.token_embd = Embedding(config.vocab, config.d_model, device)
        self.position_embd = Embedding(config.ctx, config.d_model, device)
        self.blocks = nn.ModuleList(Block(config, layer, device) for layer in range(config.n_layers))
        self.output_norm = LayerNorm(config.d_model, config.norm_eps, device)
        self.output = None if config.tied else Linear(config.d_model, config.vocab, device=device)

    def positions(self, T: int, span: Span | None) -> tuple[Tensor, tuple[()]]:
        """Learned positions, added to the embeddings."""
        position_CD = self.position_embd.weight
        return position_CD[:T] if span is None else position_CD[span.positions_T], ()
