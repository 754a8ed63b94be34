"""The shape of a model: `LlamaConfig` and `GPT2Config`. No torch here, so that a command line can list the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from linnet.errors import UsageError
from linnet.gguf.architecture import GPT2, Llama, architecture_of, head_size
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.rope import RopeScaling, rope_scaling_of

ARCHITECTURES = ("llama", "gpt2")


@dataclass(frozen=True)
class LlamaConfig:
    """A llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

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
    tied: bool = True  # the output head is the embedding
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    ffn_bias: bool = False

    def __post_init__(self) -> None:
        check_counts(self, "vocab", "d_model", "n_heads", "n_kv", "d_ff", "n_layers", "ctx")
        check_positive(self, "rope_base", "rms_eps")
        if self.head_dim < 0:
            raise UsageError(f"head_dim is {self.head_dim}: give an even number, or 0 for d_model / n_heads")
        if not self.head_dim:
            check_heads(self)
        if self.n_heads % self.n_kv:
            fits = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            raise UsageError(
                f"n_kv {self.n_kv} does not divide n_heads {self.n_heads}: choose n_kv from {', '.join(map(str, fits))}"
            )
        if self.head_size % 2:
            raise UsageError(
                f"the head size is {self.head_size}, and rotary positions turn pairs: make it even, with another"
                f" n_heads ({_divisors(self.d_model, even=True)} fit d_model {self.d_model}) or with head_dim"
            )
        scaling = rope_scaling_of(self)
        if scaling is not None and scaling.kind not in ("linear", "llama3"):
            raise UsageError(f"rope_scaling {scaling.kind!r} is not supported: use linear, llama3 or none")

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return head_size(self)


@dataclass(frozen=True)
class GPT2Config:
    """A GPT-2: LayerNorm, learned positions, GELU, biases everywhere."""

    arch: ClassVar[str] = "gpt2"
    vocab: int
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    ctx: int
    norm_eps: float = 1e-5
    tied: bool = True  # the output head is the embedding

    def __post_init__(self) -> None:
        check_counts(self, "vocab", "d_model", "n_heads", "d_ff", "n_layers", "ctx")
        check_positive(self, "norm_eps")
        check_heads(self)

    @property
    def n_kv(self) -> int:
        """Every head has keys and values of its own."""
        return self.n_heads

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return self.d_model // self.n_heads


Config: TypeAlias = LlamaConfig | GPT2Config


def config_of(file: GGUFFile, ctx: int | None = None) -> Config:
    """The config a GGUF file states; `ctx` replaces its context."""
    if file.architecture not in ARCHITECTURES:
        found = quoted(file.architecture) if file.architecture else "none"
        raise GGUFError(
            "this architecture can be neither trained nor run here",
            path=file.path,
            place="metadata 'general.architecture'",
            expected=" or ".join(ARCHITECTURES),
            found=found,
        )
    stated = architecture_of(file)
    tied = "output.weight" not in file.tensors
    if isinstance(stated, GPT2):
        if ctx is not None and ctx > stated.ctx:
            raise UsageError(
                f"ctx {ctx} is more than the {stated.ctx} learned positions of {file.path}: ask for"
                f" {stated.ctx} or less"
            )
        return GPT2Config(
            stated.vocab,
            stated.d_model,
            stated.n_heads,
            stated.d_ff,
            stated.n_layers,
            ctx or stated.ctx,
            shortest(stated.norm_eps),
            tied=tied,
        )
    assert isinstance(stated, Llama)
    return LlamaConfig(
        vocab=stated.vocab,
        d_model=stated.d_model,
        n_heads=stated.n_heads,
        n_kv=stated.n_kv,
        d_ff=stated.d_ff,
        n_layers=stated.n_layers,
        ctx=ctx or stated.ctx,
        rope_base=shortest(stated.rope_base),
        rms_eps=shortest(stated.rms_eps),
        head_dim=stated.head_dim,
        rope_scaling=stated.rope_scaling,
        tied=tied,
        qkv_bias=_has(file, "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"),
        output_bias=_has(file, "attn_output.bias"),
        ffn_bias=_has(file, "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"),
    )


def shortest(value: float) -> float:
    """A file's f32 as it was meant: 1e-05, not 9.999999747378752e-06; a config written and read is the same."""
    return float(str(np.float32(value)))


def _has(file: GGUFFile, *tensors: str) -> bool:
    return any(f"blk.0.{tensor}" in file.tensors for tensor in tensors)


def check_counts(config: object, *fields: str) -> None:
    """Whole numbers from 1."""
    for field in fields:
        value = getattr(config, field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{field} is {value!r}: give a whole number from 1")


def check_positive(config: object, *fields: str) -> None:
    """Numbers above 0."""
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{field} is {value!r}: give a number above 0")


def check_heads(config: Any) -> None:
    """The heads share the width."""
    if config.d_model % config.n_heads:
        raise UsageError(
            f"n_heads {config.n_heads} does not divide d_model {config.d_model}:"
            f" choose n_heads from {_divisors(config.d_model, even=config.arch == 'llama')}, or change d_model"
        )


def _divisors(width: int, *, even: bool) -> str:
    """Head counts that fit a width, the usual ones first: up to eight, in order."""
    fits = [n for n in range(1, width + 1) if width % n == 0 and (not even or (width // n) % 2 == 0)]
    return ", ".join(map(str, fits[:8]))
