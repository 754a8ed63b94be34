"""`Llama`: RMSNorm, rotary positions, grouped-query attention, SwiGLU; Q, K, V one matrix, gate and up another."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from linnet.architectures.rotary import RotaryConfig, rope_scaling_of
from linnet.gguf.config import rope_divisors
from linnet.kernels import Residual, ops
from linnet.models.cache import Span
from linnet.models.layers import Device, Embedding, Linear, RMSNorm
from linnet.models.transformer import DecoderBlock, LanguageModel

_ANGLES_AT_ONCE = 1 << 20  # held in float64 while a rotary table is made


class Block(DecoderBlock):
    """One layer: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: RotaryConfig, layer: int, device: Device | None) -> None:
        super().__init__(layer)
        self.n_heads, self.n_kv = config.n_heads, config.n_kv
        d, head = config.d_model, config.head_size
        self.attn_norm = RMSNorm(d, config.rms_eps, device)
        self.attn_qkv = Linear(d, (self.n_heads + 2 * self.n_kv) * head, bias=config.qkv_bias, device=device)
        self.attn_output = Linear(self.n_heads * head, d, bias=config.output_bias, device=device)
        self.ffn_norm = RMSNorm(d, config.rms_eps, device)
        self.ffn_gate_up = Linear(d, 2 * config.d_ff, bias=config.ffn_bias, device=device)
        self.ffn_down = Linear(config.d_ff, d, bias=config.ffn_bias, device=device)

    def forward(self, x: Residual, rope_TP2: Tensor, mask_TS: Tensor | None, span: Span | None) -> Residual:
        """The residual stream [B, T, d_model] → the same."""
        x, qkv_BTE = ops.norm_linear(x, self.attn_norm, self.attn_qkv)
        q_BTHD, k_BTKD, v_BTKD = self.heads(qkv_BTE, rope_TP2)
        x = ops.add_linear(x, self.attention(q_BTHD, k_BTKD, v_BTKD, mask_TS, span), self.attn_output, self.dropout)
        return ops.swiglu_mlp(x, self.ffn_norm, self.ffn_gate_up, self.ffn_down, self.dropout)

    def heads(self, qkv_BTE: Tensor, rope_TP2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The fused projection as q [B, T, H, D], k and v [B, T, K, D], with q and k rotated by their positions."""
        return ops.split_rope(qkv_BTE, rope_TP2, self.n_heads, self.n_kv)


class Llama(LanguageModel):
    """A llama as llama.cpp runs it."""

    block: type[Block] = Block  # its kin differ in their layers
    config: RotaryConfig
    rotary_CP2: Tensor

    def __init__(self, config: RotaryConfig, device: Device | None = None) -> None:
        super().__init__(config)
        self.token_embd = Embedding(config.vocab, config.d_model, device)
        self.blocks = nn.ModuleList(self.block(config, layer, device) for layer in range(config.n_layers))
        self.output_norm = RMSNorm(config.d_model, config.rms_eps, device)
        self.output = None if config.tied else Linear(config.d_model, config.vocab, device=device)
        self.rope_freqs: nn.Module | None = None
        empty_CP2 = torch.empty(0, config.head_size // 2, 2, device=device or "cpu")
        self.register_buffer("rotary_CP2", empty_CP2, persistent=False)
        self._outgrown_tables: list[Tensor] = []

    def use_divisors(self, divisors: Tensor) -> None:
        """Rotate by a file's `rope_freqs.weight` [head_size / 2] instead of what the config says."""
        self.rope_freqs = nn.Module()  # under the tensor's name, to be written back; not trained
        self.rope_freqs.register_buffer("weight", divisors.to(self.rotary_CP2.device))
        self._make_table(len(self.rotary_CP2))

    def reserve(self, positions: int) -> None:
        """Make the rotary table long enough for sequences of `positions` tokens.

        A file may state a context of a million tokens; only what is used of it is computed, in steps that double.
        """
        if min(positions, self.config.ctx) > len(self.rotary_CP2):
            # Not by the decorator: to decorate loads the compiler, 2 s before anything is computed.
            make = torch.compiler.disable(self._make_table) if torch.compiler.is_compiling() else self._make_table
            make(min(1 << (positions - 1).bit_length(), self.config.ctx))

    def _make_table(self, positions: int) -> None:
        # A captured step reads the table where it lay at the capture.
        self._outgrown_tables.append(self.rotary_CP2)
        divisors = None if self.rope_freqs is None else self.rope_freqs.get_buffer("weight")
        with torch.inference_mode(False):  # a model that has generated can be trained
            self.rotary_CP2 = rotary_table(self.config, divisors, positions).to(self.rotary_CP2.device)

    def positions(self, T: int, span: Span | None) -> tuple[None, tuple[Tensor]]:
        """Rotary positions: cosine and sine for every block, [T, head_size / 2, 2]."""
        self.reserve(T if span is None else span.cache.slots)
        return None, (self.rotary_CP2[:T] if span is None else self.rotary_CP2[span.positions_T],)


def rotary_table(config: RotaryConfig, divisors: Tensor | None = None, positions: int | None = None) -> Tensor:
    """[positions, head_size / 2, 2]: cosine and sine of each position and pair, in float32 from float64 angles.

    `positions` is the config's `ctx` where it is not given. `divisors` [head_size / 2] (a file's `rope_freqs.weight`)
    replace those of llama-3 scaling.
    """
    head, scaling = config.head_size, rope_scaling_of(config)
    angles = config.rope_base ** (-np.arange(0, head, 2, dtype=np.float64) / head)
    if scaling is not None and scaling.kind == "linear":
        angles = angles / scaling.factor
    if divisors is not None:
        angles = angles / divisors.double().cpu().numpy()
    elif scaling is not None and scaling.kind == "llama3":
        angles = angles / rope_divisors(scaling, head, config.rope_base)
    table_CP2 = np.empty((config.ctx if positions is None else positions, len(angles), 2), np.float32)
    step = max(1, _ANGLES_AT_ONCE // len(angles))
    for start in range(0, len(table_CP2), step):
        part = table_CP2[start : start + step]
        rotations = np.arange(start, start + len(part), dtype=np.float64)[:, None] * angles
        part[..., 0], part[..., 1] = np.cos(rotations), np.sin(rotations)
    return torch.from_numpy(table_CP2)
