"""A model as a GGUF checkpoint: parameters and a config go in, a file that llama.cpp runs comes out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.architectures.description import Config
from linnet.architectures.parameters import Layout, Param, layout
from linnet.architectures.registry import AnyConfig, describe
from linnet.architectures.rotary import rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.files import step_path
from linnet.gguf.config import config_of, hyper_parameters, rope_divisors
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile, point_link
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tensor import FILE_TYPES, GGMLType, TensorInfo
from linnet.gguf.toy import EMBEDDING, LENS, Folded, Joined, Tensors
from linnet.gguf.writer import GGUFWriter, storage_type, writable_type

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Provenance:
    """Where weights come from; each field that is known becomes a key `linnet.<field>`."""

    recipe: str | None = None
    seed: int | None = None
    tokens_seen: int | None = None
    images_seen: int | None = None
    train_loss: float | None = None
    validation_loss: float | None = None
    config_fingerprint: str | None = None
    data_fingerprint: str | None = None
    git_sha: str | None = None
    donor: str | None = None
    donor_sha256: str | None = None
    init: str | None = None
    explained_variance: float | None = None
    coverage: float | None = None
    teacher: str | None = None
    teacher_sha256: str | None = None
    distill: float | None = None

    def block(self) -> MetadataBlock:
        """The keys: text as string, numbers as i64 and f64 (a loss may be NaN: it is said as it is)."""
        values: dict[str, tuple[str, object]] = {}
        for field in fields(self):
            value, key = getattr(self, field.name), f"linnet.{field.name}"
            if isinstance(value, str):
                values[key] = ("string", value)
            elif isinstance(value, float) or (field.name.endswith("loss") and value is not None):
                values[key] = ("f64", float(value))
            elif value is not None:
                values[key] = ("i64", int(value))
        return MetadataBlock.of(values)


def write(
    config: AnyConfig,
    params: Mapping[str, Any],
    path: str | os.PathLike[str],
    run_id: str,
    step: int,
    *,
    type: str = "f32",
    tokenizer: MetadataBlock | None = None,
    name: str | None = None,
    provenance: Provenance | None = None,
    extra: MetadataBlock | None = None,
) -> Path:
    """Write a model. `params` maps the names of `linnet.architectures` to numpy arrays or torch tensors on any device.

    `type` is f32, f16, bf16 or q8_0 (see `storage_type` for the tensors that keep another). `tokenizer` is a
    block of `tokenizer.*` keys, made once a run. A `lens.proj.weight` among the parameters is folded into the
    embedding.
    """
    wanted = writable_type(type)
    params = _complete(config, params)
    plan = layout(config)
    check_shapes(plan, params)
    metadata = general_keys(config, "model", name if name is not None else run_id, wanted)
    if wanted is GGMLType.Q8_0:
        metadata.u32("general.quantization_version", 2)
    metadata.extend(hyper_parameters(config))
    if not isinstance(config, ViTConfig):
        metadata.extend(_tokenizer(config, tokenizer))
    pieces = sum(len(plan.params[name].pieces) for name in params)
    add_origin(metadata, run_id, step, pieces, provenance, extra, toy_format=describe(config).toy_format)
    return write_params(metadata, plan, params, wanted, path)


def write_step(
    config: AnyConfig,
    params: Mapping[str, Any],
    weights_dir: str | os.PathLike[str],
    run_id: str,
    step: int,
    **options: Any,
) -> Path:
    """Write `step_<N>.gguf` into a run's weights, then let `latest` mean it. Options as for `write`."""
    folder = Path(weights_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason, expected = error.strerror or str(error), "a folder, or a place to make one"
        raise GGUFError("cannot be written to", "folder", expected, reason, folder) from None
    path = write(config, params, step_path(folder, step), run_id, step, **options)
    point_link(folder / "latest", path.name)
    return path


def unfolded(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a file does not hold as they are: a lens and the table behind it."""
    return {name: params[name] for name in (LENS, EMBEDDING)} if LENS in params else {}


def read_params(file: GGUFFile) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Our parameters out of a file, one at a time, as float32; Toy's heads and fused tensors are joined.

    A parameter that may be absent is left out where the file has none. A lens comes first, when there is one,
    and the embedding then has the donor's width. All shapes are compared with the sizes that the file states
    before anything is read.
    """
    for name, stored in stored_params(file).items():
        yield name, stored.read()


def stored_params(file: GGUFFile) -> dict[str, TensorInfo | Joined]:
    """The same parameters, still to be read: all of one, or rows of it."""
    stored: dict[str, TensorInfo | Joined] = {LENS: file.tensors[LENS]} if LENS in file.tensors else {}
    for param, _, sources in list(_stored_params(file)):
        stored[param.name] = sources[0] if len(sources) == 1 else Joined(param.name, tuple(sources))
    return stored


def _stored_params(file: GGUFFile) -> Iterator[tuple[Param, tuple[int, ...], list[TensorInfo | Joined]]]:
    """The parameters that a file holds, with their shapes and tensors; a missing or wrong one is a GGUFError."""
    tensors = Tensors(file)
    plan = layout(config_of(file))
    lens = file.tensors.get(LENS)
    if lens is not None:
        width = plan.params[EMBEDDING].shape[1] if EMBEDDING in plan.params else None
        if width is None or len(lens.shape) != 2 or lens.shape[0] != width:
            fitting = "none in a model without token_embd.weight" if width is None else f"[{width}, donor's width]"
            raise _wrong_tensor(file, LENS, fitting, lens)
    for param in plan.params.values():
        shape = param.shape
        if param.name == EMBEDDING and lens is not None:
            shape = (shape[0], lens.shape[-1])
        sources = [tensors.get(piece.tensor) for piece in param.pieces]
        fused = param.pieces[0].tensor.replace(".attn_q.", ".attn_qkv.")
        if len(sources) == 3 and not any(sources) and fused in file.tensors:
            sources = [file.tensors[fused]]
        if not any(sources) and param.optional:
            continue
        present: list[TensorInfo | Joined] = []
        for piece, source in zip(param.pieces, sources, strict=False):
            height = shape[0] if len(sources) == 1 else piece.stop - piece.start
            expected = (height, *shape[1:])
            rows_differ = isinstance(source, Joined) and len({part.shape[1:] for part in source.parts}) != 1
            if source is None or source.shape != expected or rows_differ:
                raise _wrong_tensor(file, piece.tensor, str(list(expected)), source)
            present.append(source)
        yield param, shape, present


def _wrong_tensor(file: GGUFFile, name: str, expected: str, source: TensorInfo | Joined | None) -> GGUFError:
    shapes = [] if source is None else [part.shape for part in getattr(source, "parts", (source,))]
    found = " and ".join(str(list(shape)) for shape in shapes[:4]) or "none"
    problem = "the tensor is missing or of the wrong shape"
    return GGUFError(problem, f"tensor {quoted(name)}", expected, found, file.path)


def check_shapes(plan: Layout, params: Mapping[str, Any]) -> None:
    """Refuse parameters that are unknown, missing or of another shape than the config says."""
    for name, param in params.items():
        shape = tuple(param.shape)
        if name not in plan.params:
            problem = "the model has no such parameter, and llama.cpp refuses extra tensors"
            raise wrong_param(name, problem, "a name of the table", quoted(name))
        if shape != plan.params[name].shape:
            raise wrong_param(name, "the shape is wrong", str(list(plan.params[name].shape)), str(list(shape)))
    for name, planned in plan.params.items():
        if name not in params and not planned.optional:
            raise wrong_param(name, "the parameter is missing", str(list(planned.shape)), "none")


def wrong_param(name: str, problem: str, expected: str, found: str) -> GGUFError:
    """What is wrong with a parameter that was to be written."""
    return GGUFError(problem, f"parameter {quoted(name)}", expected, found)


def _complete(config: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the file: the lens folded in, llama3's divisors added."""
    complete = dict(params)
    proj = complete.pop(LENS, None)
    if proj is not None and EMBEDDING in complete:
        complete[EMBEDDING] = Folded(complete[EMBEDDING], proj)
    scaling = rope_scaling_of(config)
    if scaling is not None and scaling.kind == "llama3" and "rope_freqs.weight" not in complete:
        complete["rope_freqs.weight"] = rope_divisors(scaling, config.head_size, config.rope_base)
    return complete


def general_keys(config: AnyConfig, kind: str, name: str, wanted: GGMLType) -> MetadataBlock:
    """The keys that every file begins with; `kind`: model or adapter."""
    metadata = MetadataBlock().text("general.architecture", config.arch).text("general.type", kind)
    return metadata.text("general.name", name).u32("general.file_type", FILE_TYPES[wanted.name.lower()])


def _tokenizer(config: Config, tokenizer: MetadataBlock | None) -> MetadataBlock:
    """The tokenizer's keys; without one, the word that lets llama.cpp load the file for token ids alone."""
    if tokenizer is None:
        return MetadataBlock().text("tokenizer.ggml.model", "none")
    key = "tokenizer.ggml.tokens"
    if key in tokenizer and tokenizer.length(key) != config.vocab:
        problem = "llama.cpp refuses a token list of another length than the embedding; pad it with unused tokens"
        found = f"{tokenizer.length(key)} tokens"
        raise GGUFError(problem, f"metadata {quoted(key)}", f"{config.vocab} tokens", found)
    return tokenizer


def add_origin(
    metadata: MetadataBlock,
    run_id: str,
    step: int,
    n_tensors: int,
    provenance: Provenance | None,
    extra: MetadataBlock | None,
    *,
    toy_format: str | None = None,
) -> None:
    """Toy's keys as Toy writes them, and ours."""
    metadata.text("general.run_id", run_id).u32("general.step", step)
    if toy_format is not None:
        metadata.text("toy.checkpoint_format", toy_format)
    metadata.u32("toy.n_params_written", n_tensors).flag("toy.ggml_native", True)
    metadata.extend((provenance or Provenance()).block())
    if extra is not None:
        metadata.extend(extra)


def write_params(
    metadata: MetadataBlock,
    plan: Layout,
    params: Mapping[str, Any],
    wanted: GGMLType,
    path: str | os.PathLike[str],
) -> Path:
    """Write the parameters that there are, piece by piece."""
    writer = GGUFWriter(metadata)
    for name, param in plan.params.items():
        if name not in params:
            continue
        for piece in param.pieces:
            whole = len(param.pieces) == 1
            data = params[name] if whole else params[name][piece.start : piece.stop]
            writer.add(piece.tensor, data, storage_type(piece.tensor, piece.shape, wanted))
    return writer.write(path)
