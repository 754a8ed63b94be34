"""A new model: `build(config, seed)`, and where its weights start from.

Random numbers are a function of (seed, name, index): the same bits on every device, in any order, in any part. Only
operations that IEEE 754 rounds exactly are used (integers, + − × ÷ and √ in float64): a library's `log` or `cos`
differs in the last bit between a CPU with AVX2, one with AVX-512 and a GPU, and of 10⁸ draws a few would round to
another float32.
"""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from linnet.architectures.description import Config
from linnet.architectures.parameters import layout
from linnet.architectures.registry import AnyConfig, describe
from linnet.architectures.rotary import rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.models.layers import Device
from linnet.models.transformer import LanguageModel

if TYPE_CHECKING:
    from linnet.models.vit import ViT

EMBEDDING_STD = 0.02
_ROPE_SCALINGS = ("linear", "llama3")  # that `llama.rotary_table` computes
# Draws at a time. On a CPU the temporaries stay in a core's cache, and torch does not share out so little work
# between threads: whole parts are shared out instead, which on a busy machine is five times as fast.
_PART = {"cpu": 3 << 13, "cuda": 1 << 24}
_GAMMA = 0x9E3779B97F4A7C15


@overload
def build(config: Config, seed: int = 0, init_scale: float = 1.0, device: Device = "cpu") -> LanguageModel: ...
@overload
def build(
    config: ViTConfig, seed: int = 0, init_scale: float = 1.0, device: Device = "cpu", *, mimetic: bool = False
) -> ViT: ...
def build(
    config: AnyConfig, seed: int = 0, init_scale: float = 1.0, device: Device = "cpu", *, mimetic: bool = False
) -> LanguageModel | ViT:
    """Make a model with new weights: the same bits for the same seed, whatever the device.

    `mimetic`, of a vision transformer: attention starts as training leaves it (`vit_initial.mimic_attention`).
    """
    model = allocate(config, device)
    initialise(model, seed, init_scale)
    if isinstance(model, LanguageModel):
        if mimetic:
            raise UsageError(f"mimetic is for a vit, found a {config.arch}")
        model.reserve(model.config.ctx)
        return model
    from linnet.models.vit_initial import finish_vit

    finish_vit(model, seed, init_scale, mimetic=mimetic)
    return model


@overload
def allocate(config: Config, device: Device = "cpu") -> LanguageModel: ...
@overload
def allocate(config: ViTConfig, device: Device = "cpu") -> ViT: ...
def allocate(config: AnyConfig, device: Device = "cpu") -> LanguageModel | ViT:
    """A model whose weights have no value yet."""
    described, scaling = describe(config), rope_scaling_of(config)
    if scaling is not None and scaling.kind not in _ROPE_SCALINGS:
        raise UsageError(f"rope_scaling {scaling.kind!r} is not supported: use linear, llama3 or none")
    kind: Any = getattr(import_module(f"linnet.models.{described.name}"), described.model)
    model: LanguageModel | ViT = kind(config, device)
    return model


@torch.no_grad()
def initialise(model: LanguageModel | ViT, seed: int = 0, init_scale: float = 1.0) -> None:
    """Give every parameter its first value, by the table of its architecture, which is Toy's.

    Embeddings, positions and head: N(0, 0.02²). Matrices that read the residual stream, and the attention's
    output: N(0, init_scale² / d_model). The second matrix of the feed-forward: N(0, init_scale² / d_ff). Norms
    one, biases zero. A value depends on the seed, the parameter's name and its place in it, and on nothing else.
    """
    params = layout(model.config).params
    for name, parameter in model.named_parameters():
        init = params[name].init
        std = init.scaled_std(init_scale)
        if std is not None:
            fill_normal(parameter, std, seed, name)
        else:
            parameter.fill_(init.value)


def fill_normal(out: Tensor, std: float, seed: int, name: str) -> None:
    """Fill with draws of N(0, std²); element i depends on `seed`, `name` and i alone."""
    device = out.device if out.device.type in ("cpu", "cuda") else torch.device("cpu")  # Metal has no float64
    key = int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "little")
    flat, part = out.view(-1), _PART[device.type]

    def fill(start: int) -> None:
        index_N = torch.arange(start, min(start + part, flat.numel()), device=device)
        flat[start : start + part] = (_normal(_bits(index_N, key)) * std).float()

    starts = range(0, flat.numel(), part)
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    if workers == 1 or len(starts) == 1:
        for start in starts:
            fill(start)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(torch.no_grad()(fill), starts))


def _bits(index_N: Tensor, key: int) -> Tensor:
    """SplitMix64 at any place of its sequence: 64 well-mixed bits (as int64) for each index."""
    x = index_N * _signed(_GAMMA) + _signed(key)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, places: int) -> Tensor:
    """A right shift that brings in zeros, where torch's brings in the sign."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


# Wichura's AS 241 (PPND16): the inverse of the normal distribution, to 16 digits, by three rational functions.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_MIDDLE = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_TAIL = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _normal(bits_N: Tensor) -> Tensor:
    """The normal deviate at the quantile that 52 of the bits name."""
    quantile = ((bits_N >> 12).double() + 0.5) * 2.0**-52  # in (−½, ½), symmetric, never at an end
    deviate = quantile * _ratio(_CENTRE, 0.180625 - quantile * quantile)
    outer = (quantile.abs() > 0.425).nonzero().squeeze(1)
    beyond = quantile[outer]
    root = torch.sqrt(-_log(0.5 - beyond.abs()))
    tail = torch.where(root <= 5.0, _ratio(_MIDDLE, root - 1.6), _ratio(_TAIL, root - 5.0))
    deviate[outer] = torch.copysign(tail, beyond)
    return deviate


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Tensor) -> Tensor:
    above, below = (_polynomial(row, x) for row in coefficients)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total.mul_(x).add_(coefficient)
    return total


def _log(x: Tensor) -> Tensor:
    """The natural logarithm, from x = m·2ᵉ and the series of atanh in (m − 1) / (m + 1)."""
    mantissa, exponent = torch.frexp(x)  # m in [½, 1)
    low = mantissa < math.sqrt(0.5)
    mantissa = torch.where(low, mantissa * 2.0, mantissa)
    exponent = exponent.double() - low.double()
    s = (mantissa - 1.0) / (mantissa + 1.0)  # |s| < 0.172, so ten terms reach float64's last digits
    series = _polynomial(tuple(2.0 / (2 * k + 1) for k in range(11)), s * s)
    return s * series + exponent * math.log(2.0)
