"""The shape of a model: `LlamaConfig` and `GPT2Config`. No torch here, so that a command line can list the fields."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from linnet.errors import UsageError
from linnet.gguf.architecture import GPT2, Llama, architecture_of, head_size
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.rope import RopeScaling, rope_scaling_of

ARCHITECTURES = ("llama", "gpt2")
_TRIED = 1 << 16  # numbers tried as divisors: all of them for 32 bits


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
            raise UsageError(
                f"n_kv {self.n_kv} does not divide n_heads {self.n_heads}: choose n_kv from {divisors(self.n_heads)}"
            )
        if self.head_size % 2:
            fits = divisors(self.d_model, even=True)
            other = f"another n_heads ({fits} fit d_model {self.d_model})" if fits else "another d_model"
            raise UsageError(
                f"the head size is {self.head_size}, and rotary positions turn pairs: make it even, with {other}"
                " or with head_dim"
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
_C = TypeVar("_C")


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
    if ctx is not None and ctx < 1:
        raise UsageError(f"ctx is {ctx}: give a whole number from 1")
    stated = architecture_of(file)
    tied = "output.weight" not in file.tensors
    if isinstance(stated, GPT2):
        if ctx is not None and ctx > stated.ctx:
            raise UsageError(
                f"ctx {ctx} is more than the {stated.ctx} learned positions of {file.path}: ask for"
                f" {stated.ctx} or less"
            )
        return of_file(
            file,
            GPT2Config,
            vocab=stated.vocab,
            d_model=stated.d_model,
            n_heads=stated.n_heads,
            d_ff=stated.d_ff,
            n_layers=stated.n_layers,
            ctx=ctx or stated.ctx,
            norm_eps=shortest(stated.norm_eps),
            tied=tied,
        )
    assert isinstance(stated, Llama)
    return of_file(
        file,
        LlamaConfig,
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


def of_file(file: GGUFFile, config: type[_C], **fields: Any) -> _C:
    """A config with what a file states; where that cannot be, the error is about the file."""
    try:
        return config(**fields)
    except UsageError as error:
        raise GGUFError(f"these sizes cannot be: {error}", path=file.path, place="metadata") from None


def shortest(value: float) -> float:
    """A file's f32 as it was meant: 1e-05, not 9.999999747378752e-06; a config written and read is the same."""
    with np.errstate(over="ignore"):  # an f64 beyond f32 is infinite, and refused as that
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
        fits = divisors(config.d_model, even=config.arch == "llama")
        advice = f"choose n_heads from {fits}, or change d_model" if fits else "change d_model, which is odd"
        raise UsageError(f"n_heads {config.n_heads} does not divide d_model {config.d_model}: {advice}")


def divisors(number: int, *, even: bool = False) -> str:
    """The divisors of a number for an error message, up to eight, in order; `even`: those that leave an even quotient.

    A file may state any number: no more is tried than is quick.
    """
    small = [n for n in range(1, min(math.isqrt(number), _TRIED) + 1) if number % n == 0]
    fits = sorted({*small, *(number // n for n in small)})
    return ", ".join([str(n) for n in fits if not even or number // n % 2 == 0][:8])
