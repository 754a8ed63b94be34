"""`linnet train warm-start`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from linnet.cli.options import AsJson, absolute, unless_off
from linnet.cli.train import RunFlags, TextFlags, run_job
from linnet.errors import UsageError
from linnet.train.settings import TrainSettings

# ruff: noqa: B008 (the defaults are frozen)

_DONOR, _SHAPE, _TEXT, _TRAINING, _RUN = (
    Group.create_ordered(name) for name in ("Donor", "Model", "Text", "Training", "Run")
)


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
    rescale: Annotated[bool, Parameter(negative="--no-rescale")] = True
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


def warm_start(
    *,
    donor: Annotated[DonorFlags, Parameter(name="*", group=_DONOR, show_default=unless_off)],
    shape: Annotated[ShapeFlags, Parameter(name="*", group=_SHAPE)] = ShapeFlags(),
    text: Annotated[TextFlags, Parameter(name="*", group=_TEXT, show_default=unless_off)] = TextFlags(),
    settings: Annotated[TrainSettings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = TrainSettings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a llama that begins with what a donor GGUF knows.

    The donor's tokenizer is taken too, unless `--tokenizer` names another: then rows are found by the text of the
    tokens. The donor is needed once; `linnet resume` goes on without it.
    """
    from linnet.recipes import Job, WarmOptions
    from linnet.recipes.donor import Donor
    from linnet.recipes.inheritance import Init
    from linnet.recipes.shape import shape_from

    init = Init.parse(donor.init)
    if donor.lens is not None and not init.has_lens:
        raise UsageError(f"--lens does not go with --init {init}: only pca and warm look through one")
    if donor.train_table and not init.has_lens:
        raise UsageError(f"--train-table does not go with --init {init}: only pca and warm have a table")
    asked: dict[str, Any] = {field.name: getattr(shape, field.name) for field in fields(shape)}
    untied, scale = asked.pop("untied"), asked.pop("init_scale")
    asked = {name: value for name, value in asked.items() if value is not None}
    if untied:
        asked["tied"] = False
    with Donor(donor.donor) as opened:
        config = shape_from(opened.config, init, **asked)
    options = WarmOptions(
        donor=absolute(donor.donor),
        init=str(init),
        lens=absolute(donor.lens) if donor.lens else None,
        tokens=donor.tokens,
        layers=donor.layers,
        rescale=donor.rescale,
        train_table=donor.train_table,
    )
    data = text.data(tokenizer=donor.donor)
    job = Job(config, data, settings, text.prompts(), scale, recipe="warm-start", options=options)
    return run_job(job, run, json)
