"""`LayerSizes`: the widths of a model's layers, which its memory and its time are counted by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from linnet.architectures import ViTConfig

HEAD_ROWS = {"cpu": 128, "cuda": 8192}  # of logits at a time (kernels/head_loss.py)


@dataclass(frozen=True)
class LayerSizes:
    """Numbers a token at each place of a layer, and how many layers and tokens there are.

    - `qkv`: of the fused projection; `attended`: of the attention's output.
    - `gate_up`: what the first matrix of the feed-forward part gives: gate and up, or up alone; `d_ff`: what the second
      one reads.
    - `tokens`: of a sequence, or patches of an image. `vocab`: rows of the head, 0 for images.
    """

    width: int
    qkv: int
    attended: int
    gate_up: int
    d_ff: int
    heads: int
    layers: int
    tokens: int
    vocab: int
    pixels: int  # of an image, 0 for text

    @property
    def of_images(self) -> bool:
        """Is it a vision transformer, whose attention looks both ways?"""
        return self.pixels > 0

    @property
    def gated(self) -> bool:
        """Is the feed-forward part a SwiGLU?"""
        return self.gate_up > self.d_ff

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """What the products of a layer go from and to."""
        d = self.width
        return (d, self.qkv), (self.attended, d), (d, self.gate_up), (self.d_ff, d)

    @classmethod
    def of(cls, config: Any, tokens: int | None = None) -> LayerSizes:
        """The sizes of any config; `tokens` of a sequence, where they are fewer than the model's context."""
        d_ff, width = int(config.d_ff), int(config.d_model)
        common = {"width": width, "d_ff": d_ff, "heads": int(config.n_heads), "layers": int(config.n_layers)}
        if isinstance(config, ViTConfig):
            pixels = config.num_channels * config.image_size**2
            sizes = {"qkv": 3 * width, "attended": width, "gate_up": d_ff}
            return cls(**common, **sizes, tokens=config.tokens, vocab=0, pixels=pixels)
        head, gated = int(config.head_size), hasattr(config, "rms_eps")
        return cls(
            **common,
            qkv=(int(config.n_heads) + 2 * int(config.n_kv)) * head,
            attended=int(config.n_heads) * head,
            gate_up=d_ff * (2 if gated else 1),
            tokens=int(config.ctx) if tokens is None else tokens,
            vocab=int(config.vocab),
            pixels=0,
        )
