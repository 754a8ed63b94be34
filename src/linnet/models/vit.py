"""`ViT`: images in, classes out. Pixels are 0 … 255 in any dtype; normalising them is the model's own first step.

Shapes: B images, C channels, H and W pixels, T tokens, D width, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.kernels import Executor, Residual, eager, ops
from linnet.models.layers import Device, Embedding, LayerNorm, Linear, RMSNorm
from linnet.models.transformer import Transformer


def _norm(config: ViTConfig, device: Device | None) -> RMSNorm | LayerNorm:
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps, device)
    return LayerNorm(config.d_model, config.norm_eps, device, bias=config.bias)


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: ViTConfig, device: Device | None) -> None:
        super().__init__()
        self.n_heads, self.silu = config.n_heads, config.act == "silu"
        d, bias = config.d_model, config.bias
        self.ln1 = _norm(config, device)
        self.attn_qkv = Linear(d, 3 * d, bias=bias, device=device)
        self.attn_out = Linear(d, d, bias=bias, device=device)
        self.ln2 = _norm(config, device)
        self.ffn_up = Linear(d, config.d_ff, bias=bias, device=device)
        self.ffn_down = Linear(config.d_ff, d, bias=bias, device=device)

    def forward(self, x: Residual, first_only: bool = False) -> Residual:
        """The residual stream [B, T, d_model] → the same; `first_only`: of the first token."""
        x, out_BTD = ops.norm_attention(x, self.ln1, self.attn_qkv, self.n_heads, first_only)
        x = ops.add_linear(x, out_BTD, self.attn_out)
        if not self.silu:
            return ops.gelu_mlp(x, self.ln2, self.ffn_up, self.ffn_down)
        x, up_BTF = ops.norm_linear(x, self.ln2, self.ffn_up)
        return x.plus(self.ffn_down(F.silu(up_BTF)))


class PatchEmbedding(nn.Module):
    """A matmul with each patch: the convolution that a file's tensor describes, without the convolution."""

    def __init__(self, config: ViTConfig, device: Device | None) -> None:
        super().__init__()
        self.patch = config.patch_size
        shape = (config.d_model, config.num_channels, config.patch_size, config.patch_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device))
        self.bias = nn.Parameter(torch.empty(config.d_model, device=device)) if config.bias else None

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """[B, C, H, W] → [B, patches, d_model], row by row of the grid."""
        p = self.patch
        x_BTP = x_BCHW.unflatten(3, (-1, p)).unflatten(2, (-1, p)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        bias = None if self.bias is None else self.bias.to(x_BTP.dtype)
        return F.linear(x_BTP, self.weight.flatten(1).to(x_BTP.dtype), bias)


class ViT(Transformer):
    """A vision transformer with a class head; pooling, head and loss are in float32."""

    config: ViTConfig
    shift_C11: Tensor
    scale_C11: Tensor

    def __init__(self, config: ViTConfig, device: Device | None = None) -> None:
        super().__init__(config)
        self.patch_embd = PatchEmbedding(config, device)
        self.class_embd = nn.Parameter(torch.empty(config.d_model, device=device)) if config.pooling == "cls" else None
        self.position_embd = Embedding(config.tokens, config.d_model, device)
        self.position_embd.weight.requires_grad_(config.positions == "learned")
        self.blocks = nn.ModuleList(Block(config, device) for _ in range(config.n_layers))
        self.post_ln = _norm(config, device)
        self.head = Linear(config.d_model, config.num_classes, bias=config.bias, device=device)
        scale_C = torch.tensor(config.std, dtype=torch.float64, device="cpu") * 255
        shift_C = torch.tensor(config.mean, dtype=torch.float64, device="cpu") * 255
        self.register_buffer("shift_C11", shift_C.float().view(-1, 1, 1).to(device), persistent=False)
        self.register_buffer("scale_C11", scale_C.float().view(-1, 1, 1).to(device), persistent=False)

    def forward(self, images_BCHW: Tensor, executor: Executor = eager) -> Tensor:
        """Logits [B, classes] in float32. `executor` runs the layers: eagerly, or compiled."""
        logits_BK: Tensor = executor(ViT._classify, self, self._encode(images_BCHW, executor))
        return logits_BK

    def loss(
        self, images_BCHW: Tensor, targets: Tensor, *, divisor: Tensor | None = None, executor: Executor = eager
    ) -> tuple[Tensor, Tensor]:
        """Mean cross entropy in nats and mean accuracy; `targets` are classes [B] or shares of them [B, classes].

        `divisor` replaces the number of images in both means, so that parts of a batch add up.
        """
        x_BTD = self._encode(images_BCHW, executor)
        loss_and_accuracy: tuple[Tensor, Tensor] = executor(ViT._loss_and_accuracy, self, x_BTD, targets, divisor)
        return loss_and_accuracy

    def _encode(self, images_BCHW: Tensor, executor: Executor) -> Tensor:
        """[B, T, D]: the images through all blocks; with a class token, that token alone: [B, 1, D]."""
        config = self.config
        if images_BCHW.shape[1:] != (config.num_channels, config.image_size, config.image_size):
            raise UsageError(
                f"an image is {' × '.join(map(str, images_BCHW.shape[1:]))}: the model takes"
                f" {config.num_channels} × {config.image_size} × {config.image_size}"
            )
        x = ops.residual(executor(ViT._embed, self, images_BCHW), executor)
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            # Nobody looks at the other tokens of the last layer.
            x = executor(block, x, index == last and config.pooling == "cls")
        return x.total()

    def _embed(self, images_BCHW: Tensor) -> Tensor:
        x_BCHW = ((images_BCHW.float() - self.shift_C11) / self.scale_C11).to(self.compute_dtype)
        x_BTD = self.patch_embd(x_BCHW)
        if self.class_embd is not None:
            first_B1D = self.class_embd.to(x_BTD.dtype).expand(len(x_BTD), 1, -1)
            x_BTD = torch.cat((first_B1D, x_BTD), dim=1)
        return x_BTD + self.position_embd.weight.to(x_BTD.dtype)

    def _classify(self, x_BTD: Tensor) -> Tensor:
        return self.head(self.post_ln(x_BTD.float()).mean(1))

    def _loss_and_accuracy(self, x_BTD: Tensor, targets: Tensor, divisor: Tensor | None) -> tuple[Tensor, Tensor]:
        logits_BK = self._classify(x_BTD)
        total = F.cross_entropy(logits_BK, targets, reduction="sum")
        likeliest_B = targets if targets.ndim == 1 else targets.argmax(1)
        right = (logits_BK.detach().argmax(1) == likeliest_B).sum()
        count: Tensor | int = len(x_BTD) if divisor is None else divisor
        return total / count, right / count

    def n_params(self) -> int:
        """How many numbers the model has."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_image(self) -> float:
        """Of forward and backward: 6N a token and 12·L·d·T² for attention, as for text; N without positions."""
        config = self.config
        N = sum(p.numel() for name, p in self.named_parameters() if name.startswith(("blocks.", "patch_embd.")))
        return 6.0 * N * config.tokens + 12.0 * config.n_layers * config.d_model * config.tokens**2
