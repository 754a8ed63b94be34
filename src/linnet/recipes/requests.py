"""Flags become a job: everything that was asked for, checked, with paths that hold in any folder."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from linnet.architectures import ARCHITECTURES, AnyConfig, preset, presets_for
from linnet.data.corpus import expanded
from linnet.errors import UsageError
from linnet.recipes.flags import DonorFlags, ImageFlags, ModelFlags, ShapeFlags, TextFlags, VitFlags
from linnet.recipes.job import ImageData, Job, TextData
from linnet.recipes.options import VitOptions, WarmOptions
from linnet.train.settings import TrainSettings


def scratch_job(model: ModelFlags, text: TextFlags, settings: TrainSettings) -> Job:
    """A llama or a GPT-2 that knows nothing yet."""
    if model.vocab is not None and text.tokenizer is not None:
        _check_vocab(model.vocab, text.tokenizer)
    return Job(model_config(model), _text_data(text), settings, prompts_of(text), model.init_scale)


def warm_job(donor: DonorFlags, shape: ShapeFlags, text: TextFlags, settings: TrainSettings) -> Job:
    """A llama that begins with what a donor knows; the donor travels in the job, open."""
    from linnet.recipes.donor import Donor
    from linnet.recipes.inheritance import Init
    from linnet.recipes.shape import shape_from

    init = Init.parse(donor.init)
    if donor.lens is not None and not init.has_lens:
        raise UsageError(f"`lens` does not go with `init={init}`: only pca and warm look through one")
    if donor.train_table and not init.has_lens:
        raise UsageError(f"`train_table` does not go with `init={init}`: only pca and warm have a table")
    asked: dict[str, Any] = {field.name: getattr(shape, field.name) for field in fields(shape)}
    untied, scale = asked.pop("untied"), asked.pop("init_scale")
    asked = {name: value for name, value in asked.items() if value is not None}
    if untied:
        asked["tied"] = False
    opened = Donor(donor.donor)
    try:
        config = shape_from(opened.config, init, **asked)
    except BaseException:
        opened.close()
        raise
    options = WarmOptions(
        donor=absolute(donor.donor),
        init=str(init),
        lens=absolute(donor.lens) if donor.lens else None,
        tokens=donor.tokens,
        layers=donor.layers,
        rescale=donor.rescale,
        train_table=donor.train_table,
    )
    data = _text_data(text, tokenizer=donor.donor)
    return Job(config, data, settings, prompts_of(text), scale, recipe="warm-start", options=options, donor=opened)


def vit_job(model: VitFlags, images: ImageFlags, options: VitOptions, settings: TrainSettings) -> Job:
    """A vision transformer that tells classes of images."""
    given = {field.name: getattr(images, field.name) for field in fields(images)}
    data = ImageData(**{**given, "images": absolute_source(images.images)})
    if options.donor is not None:
        options = replace(options, donor=absolute(options.donor))
    config = _vit_config(model, images.images)
    return Job(config, data, settings, init_scale=model.init_scale, recipe="vit-tiny", options=options)


def _text_data(text: TextFlags, tokenizer: Path | None = None) -> TextData:
    """`tokenizer` is taken where none was given."""
    chosen = text.tokenizer or tokenizer
    return TextData(
        corpus=absolute_source(text.corpus),
        tokenizer=absolute(chosen) if chosen else None,
        held_out=text.held_out,
        documents=text.documents,
        cache=absolute(text.cache) if text.cache else None,
        field=text.field,
    )


def prompts_of(text: TextFlags) -> tuple[str, ...]:
    """What samples begin with; by default something that fits the corpus."""
    return text.prompt or (("def __init__(self",) if text.corpus == "python" else ("The",))


def absolute(path: str | Path) -> str:
    """A path as a run keeps it: `linnet resume` may be called in another folder."""
    return str(expanded(path).absolute())


def absolute_source(name: str) -> str:
    """The same for a corpus or images; words for what is built in, and patterns, stay as they are."""
    path = absolute(name)
    return path if Path(path).exists() else name


def _check_vocab(vocab: int, tokenizer: Path) -> None:
    from linnet.data.tokenizer import Vocabulary

    rows = Vocabulary(tokenizer).rows
    if rows != vocab:
        raise UsageError(f"`vocab={vocab}` does not go with a tokenizer of {rows} tokens: leave it out")


def model_config(flags: ModelFlags) -> AnyConfig:
    """The preset with the given fields changed; flags of another architecture are refused by name."""
    presets = presets_for("text")
    given = {f.name: getattr(flags, f.name) for f in fields(flags) if f.name not in ("preset", "arch", "init_scale")}
    changes = {name: value for name, value in given.items() if value is not None and value is not False}
    if changes.pop("untied", False):
        changes["tied"] = False
    base = preset(flags.preset, presets)
    if flags.arch is not None and flags.arch != base.arch:
        return _other_architecture(flags.arch, base, changes)
    known = {f.name for f in fields(base)}
    for name in changes:
        if name not in known:
            raise UsageError(f"`{name}` does not belong to a {base.arch}")
    config: AnyConfig = preset(flags.preset, presets, **changes)
    return config


def _other_architecture(arch: str, base: AnyConfig, changes: dict[str, Any]) -> AnyConfig:
    """A preset's sizes in another architecture: `--arch gpt2` with a llama's preset, or the other way round."""
    kind = ARCHITECTURES[arch].config
    known = [f.name for f in fields(kind)]
    shared = {name: getattr(base, name) for name in known if hasattr(base, name)}  # a GPT-2 has an n_kv, too
    for name in changes:
        if name not in known:
            raise UsageError(f"`{name}` does not belong to a {arch}")
    config: AnyConfig = kind(**{**shared, **changes})
    return config


def _vit_config(flags: VitFlags, source: str) -> AnyConfig:
    """The preset with the given fields changed."""
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
    config: AnyConfig = preset(name, presets, **{name: value for name, value in changes.items() if value is not None})
    return config
