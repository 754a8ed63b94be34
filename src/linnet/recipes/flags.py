"""The words that a training is asked for with: the flags of `linnet train`, and the arguments of `linnet.train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from linnet.architectures import names_for

if TYPE_CHECKING:
    TextArchitecture = str
else:
    TextArchitecture = Literal[names_for("text")]


@dataclass(frozen=True)
class ModelFlags:
    """The shape of the model; what is not given is the preset's.

    Parameters
    ----------
    preset
        tiny, demo (3M), nano (15M), smollm2-135m, gpt2-124m or smollm2-360m.
    arch
        Another architecture, with the preset's sizes.
    vocab
        Tokens; a tokenizer of so many is trained, unless one is given.
    d_model
        Width.
    n_layers
        Depth.
    n_heads
        Attention heads.
    n_kv
        Heads of keys and values.
    d_ff
        Width of the feed-forward part.
    ctx
        Tokens of a sequence.
    head_dim
        Size of a head; d_model / n_heads by default.
    rope_base
        Base of the rotary angles.
    rms_eps
        Added under the root of the norm.
    untied
        Give the output a matrix of its own instead of the embedding's.
    qkv_bias
        Biases on queries, keys and values (llama; a qwen2 has them).
    init_scale
        Times the usual size of the first weights.
    """

    preset: str = "demo"
    arch: TextArchitecture | None = None
    vocab: int | None = None
    d_model: int | None = None
    n_layers: int | None = None
    n_heads: int | None = None
    n_kv: int | None = None
    d_ff: int | None = None
    ctx: int | None = None
    head_dim: int | None = None
    rope_base: float | None = None
    rms_eps: float | None = None
    untied: bool = False
    qkv_bias: bool = False
    init_scale: float = 1.0


@dataclass(frozen=True)
class TextFlags:
    """The text to learn from.

    Parameters
    ----------
    corpus
        A file, a folder, a pattern, or python: the standard library of this interpreter.
    field
        Where the text is in a JSONL line or a Parquet row; text by default.
    tokenizer
        A GGUF whose tokenizer is taken; by default the donor's where there is one, else one is trained.
    held_out
        The share of documents kept for evaluation.
    documents
        Keep documents from seeing each other.
    cache
        Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    prompt
        What samples begin with; may be given several times.
    """

    corpus: str = "python"
    field: str | None = None
    tokenizer: Path | None = None
    held_out: float = 0.02
    documents: bool = False
    cache: Path | None = None
    prompt: tuple[str, ...] = ()


@dataclass(frozen=True)
class DonorFlags:
    """What the model begins with.

    Parameters
    ----------
    donor
        A GGUF of the llama family, quantised or not.
    init
        select: layers, heads and channels of a larger donor; pca or warm: its embedding through a lens; embed: the
        rows of one as wide; inherit:K: its first K layers; widen:N: N times as wide, same function; full: all of it;
        scratch: nothing.
    lens
        A lens file (linnet lens) for pca or warm to begin with.
    tokens
        With another tokenizer than the donor's: tokens it does not have begin as the mean of their pieces, or anew.
    layers
        Which layers select takes: evenly spread ones, or the first ones.
    rescale
        Centre embedding rows and give every dimension one spread; --no-rescale leaves them as they are in the donor.
    train_table
        Train the table behind the lens too.
    """

    donor: Path
    init: str = "select"
    lens: Path | None = None
    tokens: Literal["pieces", "exact"] = "pieces"
    layers: Literal["even", "first"] = "even"
    rescale: bool = True
    train_table: bool = False


@dataclass(frozen=True)
class ShapeFlags:
    """The shape of the model; what is not given follows from the donor's.

    Parameters
    ----------
    d_model
        Width.
    n_layers
        Depth.
    n_heads
        Attention heads.
    n_kv
        Heads of keys and values.
    d_ff
        Width of the feed-forward part.
    ctx
        Tokens of a sequence; 256 by default.
    head_dim
        Size of a head.
    rope_base
        Base of the rotary angles.
    rms_eps
        Added under the root of the norm.
    untied
        Give the output a matrix of its own; a lens needs one and has it.
    init_scale
        Times the usual size of those first weights that are new.
    """

    d_model: int | None = None
    n_layers: int | None = None
    n_heads: int | None = None
    n_kv: int | None = None
    d_ff: int | None = None
    ctx: int | None = None
    head_dim: int | None = None
    rope_base: float | None = None
    rms_eps: float | None = None
    untied: bool = False
    init_scale: float = 1.0


@dataclass(frozen=True)
class VitFlags:
    """The shape of the model; what is not given is the preset's. Classes and channels are the images'.

    Parameters
    ----------
    preset
        vit-tiny (224 px), vit-tiny-32, vit-tiny-28 or vit-tiny-8; by default the one for the size of the images.
    image_size
        Pixels a side; images of another size are scaled.
    patch_size
        Pixels a side of a patch.
    d_model
        Width.
    n_layers
        Depth.
    n_heads
        Attention heads.
    d_ff
        Width of the feed-forward part.
    pooling
        What the head reads: the mean of all patches, or a class token.
    positions
        Trained, or a fixed table of sines and cosines.
    norm
        LayerNorm or RMSNorm.
    act
        GELU or SiLU.
    norm_eps
        What is added to the variance before a norm's root is taken; 1e-6 in the presets.
    no_bias
        Leave out all biases. Toy's model: --pooling cls --norm rms --norm-eps 1e-5 --act silu --no-bias --init seed.
    init_scale
        Times the usual size of the first weights.
    """

    preset: str | None = None
    image_size: int | None = None
    patch_size: int | None = None
    d_model: int | None = None
    n_layers: int | None = None
    n_heads: int | None = None
    d_ff: int | None = None
    pooling: Literal["mean", "cls"] | None = None
    positions: Literal["learned", "sincos"] | None = None
    norm: Literal["layer", "rms"] | None = None
    act: Literal["gelu", "silu"] | None = None
    norm_eps: float | None = None
    no_bias: bool = False
    init_scale: float = 1.0


@dataclass(frozen=True)
class ImageFlags:
    """The images to learn from.

    Parameters
    ----------
    images
        A folder of class folders, of IDX files, or of train and test with class folders in them; an .npz; or digits.
    held_out
        The share kept for evaluation where there is no test set.
    num_classes
        Refuse labels from this one on; by default there are as many classes as labels.
    channels
        1: grey, 3: colour; by default as the images are.
    strict
        Stop at a file that is no image, instead of leaving it out.
    """

    images: str = "digits"
    held_out: float = 0.2
    num_classes: int | None = None
    channels: Literal[1, 3] | None = None
    strict: bool = False
