"""`linnet train vit-tiny`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from linnet.cli.options import AsJson, absolute, absolute_source, unless_off
from linnet.cli.train import RunFlags, run_job
from linnet.recipes.options import VitOptions, VitSettings

# ruff: noqa: B008 (the defaults are frozen)

_MODEL, _IMAGES, _VARIATION, _TRAINING, _RUN = (
    Group.create_ordered(name) for name in ("Model", "Images", "Beginning and variation", "Training", "Run")
)
_Hidden = Parameter(parse=False)  # a setting that images have no use for


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


@dataclass(frozen=True)
class Settings(VitSettings):
    """The settings of the loop that images have a use for.

    Parameters
    ----------
    batch
        Images of a step.
    eval_every
        Steps between evaluations on held-out images; ten times a run by default, 0: never.
    """

    batch: int = VitSettings.batch
    eval_every: int | None = None
    batch_tokens: Annotated[int | None, _Hidden] = None
    eval_tokens: Annotated[int | None, _Hidden] = None
    sample_every: Annotated[int | None, _Hidden] = None
    sample_tokens: Annotated[int, _Hidden] = VitSettings.sample_tokens


def vit_tiny(
    *,
    model: Annotated[VitFlags, Parameter(name="*", group=_MODEL)] = VitFlags(),
    images: Annotated[ImageFlags, Parameter(name="*", group=_IMAGES, show_default=unless_off)] = ImageFlags(),
    options: Annotated[VitOptions, Parameter(name="*", group=_VARIATION, show_default=unless_off)] = VitOptions(),
    settings: Annotated[Settings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = Settings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a vision transformer to tell classes of images.

    With no flags at all it learns the 1,797 scanned digits that come with scikit-learn. Photographs want more
    variation: --flip 0.5 --crop 0.3 --rand-augment 2 --cutmix 0.5.
    """
    from linnet.recipes import ImageData, Job

    given = {field.name: getattr(images, field.name) for field in fields(images)}
    data = ImageData(**{**given, "images": absolute_source(images.images)})
    if options.donor is not None:
        options = replace(options, donor=absolute(options.donor))
    job = Job(
        _config(model, images.images), data, settings, init_scale=model.init_scale, recipe="vit-tiny", options=options
    )
    return run_job(job, run, json)


def _config(flags: VitFlags, source: str) -> Any:
    """The preset with the given fields changed."""
    from linnet.architectures import preset, presets_for
    from linnet.data.images import native_size

    given = {field.name: getattr(flags, field.name) for field in fields(flags)}
    changes = {name: value for name, value in given.items() if name not in ("preset", "init_scale", "no_bias")}
    presets, name = presets_for("images"), flags.preset
    if name is None:
        size = changes["image_size"] = flags.image_size or native_size(source)
        small = "vit-tiny" if size is None or size > 64 else "vit-tiny-32"  # its patches suit small images
        name = next((name for name, shape in presets.items() if shape.image_size == size), small)
    if flags.no_bias:
        changes["bias"] = False
    return preset(name, presets, **{name: value for name, value in changes.items() if value is not None})
