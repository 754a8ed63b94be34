"""The hyper-parameters of each architecture, and the metadata keys that carry them.

A config may be any object with the attributes of the protocols below; what a file states comes back as one of
the three dataclasses, which satisfy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.rope import RopeScaling, add_rope_keys, read_rope_keys, rope_scaling_of
from linnet.gguf.values import ValueType

# ruff: noqa: D102 (the attributes of the protocols are described where they are defined, below)

_T = TypeVar("_T")

_BLOCK_TENSORS = (
    6  # of any block, at least: two norms, Q, K and V in one, the attention's output, and two more products
)


class TextConfig(Protocol):
    """What llama and gpt2 have in common."""

    @property
    def vocab(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def ctx(self) -> int: ...


class LlamaConfig(TextConfig, Protocol):
    """A llama; `head_dim` (default d_model / n_heads) and `rope_scaling` are looked at where they exist."""

    @property
    def n_kv(self) -> int: ...
    @property
    def rope_base(self) -> float: ...
    @property
    def rms_eps(self) -> float: ...


@dataclass(frozen=True)
class Llama:
    """A llama as a file states it."""

    arch: ClassVar[str] = "llama"
    vocab: int
    d_model: int
    n_heads: int
    n_kv: int
    d_ff: int
    n_layers: int
    ctx: int
    rope_base: float = 10000.0
    rms_eps: float = 1e-5
    head_dim: int = 0  # 0: d_model / n_heads
    rope_scaling: RopeScaling | None = None


@dataclass(frozen=True)
class GPT2:
    """A GPT-2 as a file states it."""

    arch: ClassVar[str] = "gpt2"
    vocab: int
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    ctx: int
    norm_eps: float = 1e-5


@dataclass(frozen=True)
class ViT:
    """A vision transformer with a class head.

    `pooling` is "mean", or "cls" with a class token; `positions` "learned", or "sincos" for a table never trained;
    `norm` "layer" or "rms"; `act` "gelu" or "silu".
    """

    arch: ClassVar[str] = "vit"
    image_size: int
    patch_size: int
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    num_classes: int
    num_channels: int = 3
    norm_eps: float = 1e-6
    pooling: str = "mean"
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    positions: str = "learned"
    norm: str = "layer"
    act: str = "gelu"


def arch_of(cfg: Any) -> str:
    """The architecture a config is for: its `arch`, and `llama` where it has none."""
    arch = getattr(cfg, "arch", "llama")
    if arch not in ("llama", "gpt2", "vit"):
        expected = "llama or gpt2 or vit"
        raise GGUFError("the architecture is not known", place="config", expected=expected, found=quoted(str(arch)))
    return str(arch)


def head_size(cfg: Any) -> int:
    """Values of one attention head."""
    return int(getattr(cfg, "head_dim", 0) or cfg.d_model // cfg.n_heads)


def hyper_parameters(cfg: Any) -> MetadataBlock:
    """The keys that llama.cpp needs for this config, with exactly the types it checks for."""
    arch = arch_of(cfg)
    block = MetadataBlock()
    if arch == "vit":
        _vit_keys(block, cfg)
        return block
    block.u32(f"{arch}.vocab_size", cfg.vocab)
    block.u32(f"{arch}.context_length", cfg.ctx)
    block.u32(f"{arch}.embedding_length", cfg.d_model)
    block.u32(f"{arch}.block_count", cfg.n_layers)
    block.u32(f"{arch}.feed_forward_length", cfg.d_ff)
    block.u32(f"{arch}.attention.head_count", cfg.n_heads)
    if arch == "gpt2":
        block.f32("gpt2.attention.layer_norm_epsilon", getattr(cfg, "norm_eps", 1e-5))
        return block
    head = head_size(cfg)
    block.u32("llama.attention.head_count_kv", cfg.n_kv)
    block.f32("llama.attention.layer_norm_rms_epsilon", cfg.rms_eps)
    block.f32("llama.rope.freq_base", cfg.rope_base)
    block.u32("llama.rope.dimension_count", head)
    if head * cfg.n_heads != cfg.d_model:
        block.u32("llama.attention.key_length", head)
        block.u32("llama.attention.value_length", head)
    add_rope_keys(block, "llama", rope_scaling_of(cfg))
    return block


def _vit_keys(block: MetadataBlock, cfg: Any) -> None:
    block.u32("vit.image_size", cfg.image_size)
    block.u32("vit.patch_size", cfg.patch_size)
    block.u32("vit.num_channels", getattr(cfg, "num_channels", 3))
    block.u32("vit.num_classes", cfg.num_classes)
    block.u32("vit.embedding_length", cfg.d_model)
    block.u32("vit.feed_forward_length", cfg.d_ff)
    block.u32("vit.block_count", cfg.n_layers)
    block.u32("vit.attention.head_count", cfg.n_heads)
    # Which norm and which activation is said as llama.cpp says it of other models: by the key that is there.
    norm = "layer_norm_rms_epsilon" if getattr(cfg, "norm", "layer") == "rms" else "layer_norm_epsilon"
    block.f32(f"vit.attention.{norm}", getattr(cfg, "norm_eps", 1e-6))
    block.flag(f"vit.use_{getattr(cfg, 'act', 'gelu')}", True)
    block.text("vit.pooling", getattr(cfg, "pooling", "mean"))
    block.text("vit.positions", getattr(cfg, "positions", "learned"))
    for key in ("image_mean", "image_std"):
        if numbers := getattr(cfg, key, ()):
            block.add_array(f"vit.{key}", ValueType.F32, numbers)
    if labels := getattr(cfg, "labels", ()):
        block.texts("vit.classifier.output_labels", labels)


def architecture_of(file: GGUFFile) -> Llama | GPT2 | ViT:
    """The hyper-parameters a file states; what is missing or cannot be is a GGUFError."""
    keys = _Keys(file)
    arch = file.architecture
    if arch == "vit":
        return _vit(keys)
    if arch not in ("llama", "gpt2"):
        found = quoted(arch) if arch else "none"
        raise keys.error("general.architecture", "the architecture is not one of ours", "llama, gpt2 or vit", found)
    embedding = file.tensors.get("token_embd.weight")
    vocab = embedding.shape[0] if embedding else keys.count(f"{arch}.vocab_size")
    width, heads = keys.count(f"{arch}.embedding_length"), keys.count(f"{arch}.attention.head_count")
    hidden, layers = keys.count(f"{arch}.feed_forward_length"), keys.layers(f"{arch}.block_count")
    ctx = keys.count(f"{arch}.context_length")
    if arch == "gpt2":
        eps = keys.number("gpt2.attention.layer_norm_epsilon", 1e-5)
        return GPT2(vocab, width, heads, hidden, layers, ctx, eps)
    if heads > width:
        place, problem = "llama.attention.head_count", "there are more heads than values"
        raise keys.error(place, problem, f"at most {width}", str(heads))
    head = keys.count("llama.attention.key_length", width // heads)
    try:
        scaling = read_rope_keys(file.metadata, "llama")
    except GGUFError as error:
        raise keys.error("llama.rope.scaling", error.problem, error.expected, error.found) from None
    return Llama(
        vocab=vocab,
        d_model=width,
        n_heads=heads,
        n_kv=keys.count("llama.attention.head_count_kv", heads),
        d_ff=hidden,
        n_layers=layers,
        ctx=ctx,
        rope_base=keys.number("llama.rope.freq_base", 10000.0),
        rms_eps=keys.number("llama.attention.layer_norm_rms_epsilon", 1e-5),
        head_dim=0 if head * heads == width else head,
        rope_scaling=scaling,
    )


def _vit(keys: _Keys) -> ViT:
    labels = keys.several("vit.classifier.output_labels", str)
    metadata = keys.file.metadata
    rms = "vit.attention.layer_norm_rms_epsilon" in metadata
    return ViT(
        image_size=keys.count("vit.image_size"),
        patch_size=keys.count("vit.patch_size"),
        d_model=keys.count("vit.embedding_length"),
        n_heads=keys.count("vit.attention.head_count"),
        d_ff=keys.count("vit.feed_forward_length"),
        n_layers=keys.layers("vit.block_count"),
        num_classes=keys.count("vit.num_classes", len(labels) or None),
        num_channels=keys.count("vit.num_channels", 3),
        norm_eps=keys.number(f"vit.attention.layer_norm_{'rms_' if rms else ''}epsilon", 1e-6),
        pooling=metadata.text("vit.pooling", "mean"),
        image_mean=keys.several("vit.image_mean", float),
        image_std=keys.several("vit.image_std", float),
        labels=labels,
        positions=metadata.text("vit.positions", "learned"),
        norm="rms" if rms else "layer",
        act="silu" if metadata.get("vit.use_silu") is True else "gelu",
    )


def _stated(value: object) -> str:
    """A value of a file for an error: what it is, quoted where it is text."""
    if isinstance(value, str):
        return quoted(value)
    return f"{len(value)} values" if isinstance(value, tuple) else str(value)


class _Keys:
    """Metadata of a file that must be there, of the right kind, and possible."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file

    def count(self, key: str, default: int | None = None) -> int:
        value = self.file.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
            raise self.error(key, "the value is missing or wrong", "a whole number from 1", _stated(value))
        return value

    def layers(self, key: str) -> int:
        """A number of blocks that the file can hold."""
        layers = self.count(key)
        if layers * _BLOCK_TENSORS > len(self.file.tensors):
            expected, found = f"at least {_BLOCK_TENSORS} tensors a block", f"{layers} with {len(self.file.tensors)}"
            raise self.error(key, "the file cannot hold so many blocks", expected, f"{found} tensors")
        return layers

    def number(self, key: str, default: float) -> float:
        value = self.file.metadata.get(key, default)
        if not isinstance(value, float) or not 0 <= value < float("inf"):
            raise self.error(key, "the value is wrong", "a number from 0", _stated(value))
        return value

    def several(self, key: str, kind: type[_T]) -> tuple[_T, ...]:
        values = self.file.metadata.get(key, ())
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise self.error(key, "the value is wrong", "an array", _stated(values))
        return tuple(value for value in values if isinstance(value, kind))

    def error(self, key: str, problem: str, expected: str, found: str) -> GGUFError:
        place = f"metadata {quoted(key)}"
        return GGUFError(problem, path=self.file.path, place=place, expected=expected, found=found)
