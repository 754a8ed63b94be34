"""The peers of `train_gpu.py` as their users run them: a `transformers` model, and a GPT-2 built as nanoGPT builds it.

nanoGPT is no package, so its model is written again here from its description: no biases, a vocabulary padded to
50,304, autocast to bf16, `torch.compile`, flash attention, fused AdamW, clipping.
"""

from collections.abc import Callable
from typing import Any


def transformers_step(config: Any, ctx: int, compiled: bool) -> Callable[[Any], None]:
    """A whole step of a llama of `transformers`, in bf16 by autocast."""
    import torch

    from peer_llama import peer_llama

    model = peer_llama(config, ctx, use_cache=False).cuda()
    called = torch.compile(model) if compiled else model
    return _stepper(model, lambda ids: called(input_ids=ids, labels=ids).loss)


def nanogpt_step(config: Any, ctx: int) -> Callable[[Any], None]:
    """A whole step of a GPT-2 as nanoGPT has it."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    d, heads = config.d_model, config.n_heads

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x: Any) -> Any:
            return F.layer_norm(x, (d,), self.weight, None, 1e-5)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

        def forward(self, x: Any) -> Any:
            B, T, _ = x.shape
            q, k, v = (part.view(B, T, heads, -1).transpose(1, 2) for part in self.qkv(self.first(x)).split(d, dim=2))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(B, T, d))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50_304, d), nn.Embedding(ctx, d)
            self.blocks = nn.Sequential(*(Block() for _ in range(config.n_layers)))
            self.norm = Norm()
            self.head = nn.Linear(d, 50_304, bias=False)
            self.head.weight = self.tokens.weight
            for p in self.parameters():
                if p.ndim > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids: Any, targets: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            logits = self.head(self.norm(self.blocks(x)))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.flatten())

    model = Model().cuda()
    called = torch.compile(model)
    return _stepper(model, lambda ids: called(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))


def _stepper(model: Any, loss_of: Callable[[Any], Any]) -> Callable[[Any], None]:
    import torch

    torch.set_float32_matmul_precision("high")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(ids: Any) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
