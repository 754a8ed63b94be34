"""The shape of a vision transformer: `ViTConfig`, and its presets. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from linnet.errors import UsageError
from linnet.gguf.architecture import ViT, architecture_of
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.models.config import check_counts, check_heads, check_positive, divisors, of_file, shortest
from linnet.models.presets import meant


@dataclass(frozen=True)
class ViTConfig:
    """A vision transformer with a class head.

    The seed's is `pooling="cls", norm="rms", norm_eps=1e-5, act="silu", bias=False`.
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
    pooling: Literal["mean", "cls"] = "mean"  # of all patches, or a class token
    positions: Literal["learned", "sincos"] = "learned"  # sincos: a fixed table
    norm: Literal["layer", "rms"] = "layer"
    act: Literal["gelu", "silu"] = "gelu"  # gelu by tanh, as ggml has it
    bias: bool = True
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


_TINY = ViTConfig(image_size=224, patch_size=16, d_model=192, n_heads=3, d_ff=768, n_layers=12)

VIT_PRESETS: Mapping[str, ViTConfig] = MappingProxyType(
    {
        "vit-tiny": _TINY,
        "vit-tiny-32": replace(_TINY, image_size=32, patch_size=4),
        "vit-tiny-28": replace(_TINY, image_size=28, patch_size=4),
        # For the digits, which are 8 × 8: learns them in a minute or two on two cores.
        "vit-tiny-8": ViTConfig(image_size=8, patch_size=2, d_model=96, n_heads=3, d_ff=384, n_layers=6),
    }
)


def vit_preset(name: str, **changes: Any) -> ViTConfig:
    """A config by name, with some of its fields changed: `vit_preset("vit-tiny-28", num_channels=1)`."""
    if name not in VIT_PRESETS:
        raise UsageError(f"there is no preset {name!r}{meant(name, VIT_PRESETS)}")
    known = [field.name for field in fields(ViTConfig)]
    for change in changes:
        if change not in known:
            raise UsageError(f"a vit has no field {change!r}{meant(change, known)}")
    return replace(VIT_PRESETS[name], **changes)


def vit_config_of(file: GGUFFile) -> ViTConfig:
    """The config that a GGUF file of a vision transformer states."""
    if file.architecture != "vit":
        found = quoted(file.architecture) if file.architecture else "none"
        raise GGUFError(
            "this is no classifier of images",
            path=file.path,
            place="metadata 'general.architecture'",
            expected="vit",
            found=found,
        )
    stated = architecture_of(file)
    assert isinstance(stated, ViT)
    for key, found, known in (
        ("pooling", stated.pooling, ("mean", "cls")),
        ("positions", stated.positions, ("learned", "sincos")),
    ):
        if found not in known:
            raise GGUFError(
                "the value is not known",
                path=file.path,
                place=f"metadata 'vit.{key}'",
                expected=" or ".join(known),
                found=quoted(found),
            )
    return of_file(
        file,
        ViTConfig,
        image_size=stated.image_size,
        patch_size=stated.patch_size,
        d_model=stated.d_model,
        n_heads=stated.n_heads,
        d_ff=stated.d_ff,
        n_layers=stated.n_layers,
        num_classes=stated.num_classes,
        num_channels=stated.num_channels,
        pooling="cls" if stated.pooling == "cls" else "mean",
        positions="sincos" if stated.positions == "sincos" else "learned",
        norm="rms" if stated.norm == "rms" else "layer",
        act="silu" if stated.act == "silu" else "gelu",
        bias="v.blk.0.ffn_up.bias" in file.tensors,
        norm_eps=shortest(stated.norm_eps),
        image_mean=tuple(map(shortest, stated.image_mean)),
        image_std=tuple(map(shortest, stated.image_std)),
        labels=stated.labels,
    )
