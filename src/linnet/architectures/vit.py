"""ViT: a vision transformer with a class head. llama.cpp knows no such file; the keys are named as it would."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from linnet.architectures.checks import check_counts, check_heads, check_positive, divisors, require
from linnet.architectures.description import Architecture, Key, Transformers, unless
from linnet.errors import UsageError


@dataclass(frozen=True)
class ViTConfig:
    """A vision transformer with a class head.

    Toy's is `pooling="cls", norm="rms", norm_eps=1e-5, act="silu", bias=False`.

    Args:
        image_size: Pixels a side; images of another size are scaled.
        patch_size: Pixels a side of a patch.
        d_model: Width.
        n_layers: Depth.
        n_heads: Attention heads.
        d_ff: Width of the feed-forward part.
        pooling: What the head reads: the mean of all patches, or a class token.
        positions: Trained, or a fixed table of sines and cosines.
        norm: LayerNorm or RMSNorm.
        act: GELU or SiLU.
        norm_eps: What is added to the variance before a norm's root is taken; 1e-6 in the presets.
    """

    arch: ClassVar[str] = "vit"
    image_size: int
    patch_size: int
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    num_classes: int = 10
    num_channels: int = 3
    pooling: Literal["mean", "cls"] = "mean"
    positions: Literal["learned", "sincos"] = "learned"
    norm: Literal["layer", "rms"] = "layer"
    act: Literal["gelu", "silu"] = "gelu"  # gelu by tanh, as ggml has it
    bias: bool = unless(
        "no_bias",
        "Leave out all biases. Toy's model: `pooling=cls` `norm=rms` `norm_eps=1e-5` `act=silu` `no_bias` `init=seed`.",
    )
    norm_eps: float = 1e-6
    image_mean: tuple[float, ...] = ()  # of each channel, as a share of full brightness; (): a half
    image_std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = ("image_size", "patch_size", "d_model", "n_heads", "d_ff", "n_layers", "num_classes", "num_channels")
        check_counts(self, *counts)
        check_positive(self, "norm_eps")
        check_heads(self)
        if self.image_size % self.patch_size:
            raise UsageError(
                f"image_size {self.image_size} is no multiple of patch_size {self.patch_size}:"
                f" choose patch_size from {divisors(self.image_size)}, or image_size"
                f" {self.image_size // self.patch_size * self.patch_size or self.patch_size}"
            )
        if self.positions == "sincos" and self.d_model % 4:
            raise UsageError(f"sincos positions need a d_model that 4 divides, found {self.d_model}")
        for name in ("image_mean", "image_std"):
            if getattr(self, name) and len(getattr(self, name)) != self.num_channels:
                raise UsageError(f"{name} needs a number for each of {self.num_channels} channels")
        if self.labels and len(self.labels) != self.num_classes:
            raise UsageError(f"there are {len(self.labels)} labels for {self.num_classes} classes: give one for each")

    @property
    def grid(self) -> int:
        """Patches along a side."""
        return self.image_size // self.patch_size

    @property
    def tokens(self) -> int:
        """Patches, and the class token where there is one."""
        return self.grid**2 + (self.pooling == "cls")

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return self.d_model // self.n_heads

    @property
    def mean(self) -> tuple[float, ...]:
        """What is taken from each channel."""
        return self.image_mean or (0.5,) * self.num_channels

    @property
    def std(self) -> tuple[float, ...]:
        """What each channel is divided by."""
        return self.image_std or (0.5,) * self.num_channels


def _sizes(config: Any) -> dict[str, int]:
    return {
        "d": config.d_model,
        "ff": config.d_ff,
        "c": config.num_channels,
        "p": config.patch_size,
        "seq": config.tokens,
        "classes": config.num_classes,
    }


def _from_transformers(config: Any) -> ViTConfig:
    require(config, "hidden_act", "gelu_pytorch_tanh", "gelu_new")
    require(config, "qkv_bias", True)
    names = getattr(config, "id2label", None) or {}
    return ViTConfig(
        image_size=config.image_size,
        patch_size=config.patch_size,
        d_model=config.hidden_size,
        n_heads=config.num_attention_heads,
        d_ff=config.intermediate_size,
        n_layers=config.num_hidden_layers,
        num_classes=config.num_labels,
        num_channels=config.num_channels,
        pooling="cls",
        norm_eps=config.layer_norm_eps,
        labels=tuple(str(names[number]) for number in sorted(names)),
    )


# Which norm and which activation is said as llama.cpp says it of other models: by the key that is there.
_KEYS = (
    Key("image_size", "image_size"),
    Key("patch_size", "patch_size"),
    Key("num_channels", "num_channels"),
    Key("num_classes", "num_classes", default=lambda known: len(known["labels"]) or None),
    Key("embedding_length", "d_model"),
    Key("feed_forward_length", "d_ff"),
    Key("block_count", "n_layers"),
    Key("attention.head_count", "n_heads"),
    Key("attention.layer_norm_epsilon", "norm_eps", "f32", says=("norm", "layer")),
    Key("attention.layer_norm_rms_epsilon", "norm_eps", "f32", says=("norm", "rms")),
    Key("use_gelu", type="bool", value=lambda config: True, says=("act", "gelu")),
    Key("use_silu", type="bool", value=lambda config: True, says=("act", "silu")),
    Key("pooling", "pooling", "string"),
    Key("positions", "positions", "string"),
    Key("image_mean", "image_mean", "array:f32"),
    Key("image_std", "image_std", "array:f32"),
    Key("classifier.output_labels", "labels", "array:string"),
)

_TINY = ViTConfig(image_size=224, patch_size=16, d_model=192, n_heads=3, d_ff=768, n_layers=12)

VIT = Architecture(
    name="vit",
    model="ViT",
    config=ViTConfig,
    task="images",
    keys=_KEYS,
    parameters="""
        patch_embd.weight            d c p p    ~0.02  v.patch_embd.weight
        patch_embd.bias?bias         d          0      v.patch_embd.bias
        class_embd?                  d          0      v.class_embd
        position_embd.weight         seq d      ~0.02  v.position_embd.weight
        pre_ln.weight?               d          1      v.pre_ln.weight
        pre_ln.bias?                 d          0      v.pre_ln.bias
        post_ln.weight               d          1      v.post_ln.weight
        post_ln.bias?                d          0      v.post_ln.bias
        head.weight                  classes d  ~0.02  cls.output.weight
        head.bias?bias               classes    0      cls.output.bias
        blocks.#.ln1.weight          d          1      v.blk.#.ln1.weight
        blocks.#.ln1.bias?           d          0      v.blk.#.ln1.bias
        blocks.#.attn_qkv.weight     d+d+d d    ~/d    v.blk.#.attn_{q,k,v}.weight
        blocks.#.attn_qkv.bias?bias  d+d+d      0      v.blk.#.attn_{q,k,v}.bias
        blocks.#.attn_out.weight     d d        ~/d    v.blk.#.attn_out.weight
        blocks.#.attn_out.bias?bias  d          0      v.blk.#.attn_out.bias
        blocks.#.ln2.weight          d          1      v.blk.#.ln2.weight
        blocks.#.ln2.bias?           d          0      v.blk.#.ln2.bias
        blocks.#.ffn_up.weight       ff d       ~/d    v.blk.#.ffn_up.weight
        blocks.#.ffn_up.bias?bias    ff         0      v.blk.#.ffn_up.bias
        blocks.#.ffn_down.weight     d ff       ~/ff   v.blk.#.ffn_down.weight
        blocks.#.ffn_down.bias?bias  d          0      v.blk.#.ffn_down.bias
    """,
    sizes=_sizes,
    presets={
        "vit-tiny": _TINY,
        "vit-tiny-32": replace(_TINY, image_size=32, patch_size=4),
        "vit-tiny-28": replace(_TINY, image_size=28, patch_size=4),
        # For the digits, which are 8 × 8: learns them in a minute or two on two cores.
        "vit-tiny-8": ViTConfig(image_size=8, patch_size=2, d_model=96, n_heads=3, d_ff=384, n_layers=6),
    },
    transformers=Transformers(
        _from_transformers,
        """
        patch_embd         embeddings.patch_embeddings.projection
        class_embd         embeddings.cls_token
        position_embd      embeddings.position_embeddings
        post_ln            layernorm
        head               classifier
        blocks.#.ln1       layers.#.layernorm_before
        blocks.#.attn_qkv  layers.#.attention.{q,k,v}_proj
        blocks.#.attn_out  layers.#.attention.o_proj
        blocks.#.ln2       layers.#.layernorm_after
        blocks.#.ffn_up    layers.#.mlp.fc1
        blocks.#.ffn_down  layers.#.mlp.fc2
        """,
    ),
    runs_in_llama_cpp=False,
)
