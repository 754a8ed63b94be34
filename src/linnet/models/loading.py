"""Weights that are there already: `load` a GGUF file, take over a model of `transformers`; and the device for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch import Tensor

from linnet.architectures.description import Architecture, Config, Task
from linnet.architectures.parameters import layout, modules
from linnet.architectures.registry import ARCHITECTURES, AnyConfig, describe, names_for
from linnet.architectures.rotary import RotaryConfig, rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.gguf.adapter import AdapterFile
from linnet.gguf.checkpoint import read_params
from linnet.gguf.config import config_of, rope_divisors
from linnet.gguf.errors import GGUFError
from linnet.gguf.file import GGUFFile, resolve_link
from linnet.gguf.toy import LENS
from linnet.kernels.packed import PackedMatrix
from linnet.models.adapters import merge_adapter
from linnet.models.initial import allocate
from linnet.models.layers import Device
from linnet.models.llama import Llama
from linnet.models.transformer import LanguageModel, Transformer
from linnet.models.vit import ViT

DEVICES = ("auto", "cpu", "cuda", "mps")
_EMBEDDING, _OUTPUT, _POSITIONS = "token_embd.weight", "output.weight", "position_embd.weight"
_ROPE_FREQS = "rope_freqs.weight"
_TABLE_VALUES = 1 << 20  # of the rotary table that a loaded model begins with: 16,384 positions of heads of 64

Source = str | os.PathLike[str] | GGUFFile
Adapters = Sequence[tuple[AdapterFile, float]]


@overload
def load(
    source: Source,
    device: Device = "cpu",
    ctx: int | None = None,
    *,
    task: Literal["text"],
    dtype: torch.dtype = torch.float32,
    adapters: Adapters = (),
) -> LanguageModel: ...
@overload
def load(source: Source, device: Device = "cpu", ctx: int | None = None, *, task: Literal["images"]) -> ViT: ...
@overload
def load(
    source: Source, device: Device = "cpu", ctx: int | None = None, *, task: None = None, adapters: Adapters = ()
) -> LanguageModel | ViT: ...
def load(
    source: Source,
    device: Device = "cpu",
    ctx: int | None = None,
    *,
    task: Task | None = None,
    dtype: torch.dtype = torch.float32,
    adapters: Adapters = (),
) -> LanguageModel | ViT:
    """Load a model of any of our architectures and any file type as float32; `ctx` replaces a text model's context.

    With `task` a file whose model does something else is refused: "text" for a language model, "images" for a
    classifier. `dtype`: of the matrices, for a model that is not trained and computes in it; vectors stay in float32.
    `adapters`, each with a scale, are merged into the weights; that they were made for this base is made sure of before
    (`model_files.find_files`).
    """
    if not isinstance(source, GGUFFile):
        with GGUFFile.open(resolve_link(source)) as file:
            return _load(file, torch.device(device), ctx, task, dtype, adapters)
    return _load(source, torch.device(device), ctx, task, dtype, adapters)


def _load(
    file: GGUFFile, device: torch.device, ctx: int | None, task: Task | None, dtype: torch.dtype, adapters: Adapters
) -> LanguageModel | ViT:
    config: AnyConfig = config_of(file, ctx, task=task)
    params = _read(file, device, dtype)  # first: sizes that the tensors do not have are found here
    if isinstance(config, ViTConfig):
        vit = allocate(config, device)
        _assign(vit, params, file)
        return vit
    for adapter, scale in adapters:
        adapter.require_fits(config, file.path)
        merge_adapter(config, params, adapter, scale)
    return _language_model(config, params, file, device)


def _language_model(config: Config, params: dict[str, Tensor], file: GGUFFile, device: torch.device) -> LanguageModel:
    if _POSITIONS in params:
        params[_POSITIONS] = params[_POSITIONS][: config.ctx]
    config = retied(config, params)
    divisors = params.pop(_ROPE_FREQS, None)
    try:
        model = allocate(config, device)
    except UsageError as error:
        raise GGUFError(f"these sizes cannot be: {error}", path=file.path, place="metadata") from None
    _assign(model, params, file)
    finish_language_model(model, divisors)
    return model


def retied(config: Config, weights: dict[str, Any]) -> Config:
    """The config of a model whose file carries a tied head as a copy of the embedding; the copy is taken out."""
    if not describe(config).tied_by_copy or config.tied or not _equal(weights[_OUTPUT], weights[_EMBEDDING]):
        return config
    del weights[_OUTPUT]
    return replace(config, tied=True)


def _equal(weight: Tensor | PackedMatrix, other: Tensor | PackedMatrix) -> bool:
    exact, exact_other = (w if isinstance(w, Tensor) else w.unpacked() for w in (weight, other))
    return torch.equal(exact, exact_other)


def finish_language_model(model: LanguageModel, divisors: Tensor | None) -> None:
    """What a model that has its weights needs besides: rotary divisors out of its file, and the table of positions."""
    config = model.config
    if divisors is not None and isinstance(model, Llama) and not _follows(divisors, model.config):
        model.use_divisors(divisors)
    model.reserve(min(config.ctx, max(1, _TABLE_VALUES // config.head_size)))


def _read(file: GGUFFile, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters on the device; Toy's lens is folded into the embedding."""
    params = {
        name: torch.from_numpy(array).to(device, dtype if array.ndim > 1 else torch.float32)
        for name, array in read_params(file)
    }
    lens = params.pop(LENS, None)
    if lens is not None:
        params[_EMBEDDING] = params[_EMBEDDING] @ lens.T
    return params


def _assign(model: Transformer, params: dict[str, Tensor], file: GGUFFile) -> None:
    """Take the tensors over as they are: a model is held once in memory, not twice."""
    check_names(model, params, file)
    parameters = dict(model.named_parameters())
    for name, tensor in params.items():
        parameters[name].data = tensor.contiguous()


def check_names(model: Transformer, weights: Mapping[str, Any], file: GGUFFile) -> None:
    """Refuse weights that are not just those of the model."""
    parameters = dict(model.named_parameters())
    for name in parameters:
        if name not in weights:
            expected = str(list(parameters[name].shape))
            raise GGUFError("the parameter is missing", path=file.path, place=name, expected=expected, found="none")
    for name, tensor in weights.items():
        if name not in parameters:
            problem = "only some blocks have this parameter, and the first has not"
            raise GGUFError(problem, path=file.path, place=name, expected="none", found=str(list(tensor.shape)))


def _follows(divisors: Tensor, config: RotaryConfig) -> bool:
    """The divisors are those that the config's own llama-3 scaling gives."""
    scaling = rope_scaling_of(config)
    if scaling is None or scaling.kind != "llama3":
        return False
    own = torch.from_numpy(rope_divisors(scaling, config.head_size, config.rope_base))
    return torch.equal(divisors.cpu(), own)


@overload
def from_transformers(model: Any, *, task: Literal["text"]) -> tuple[Config, dict[str, Tensor]]: ...
@overload
def from_transformers(model: Any, *, task: Task | None = None) -> tuple[AnyConfig, dict[str, Tensor]]: ...
def from_transformers(model: Any, *, task: Task | None = None) -> tuple[AnyConfig, dict[str, Tensor]]:
    """The config and parameters of a `LlamaForCausalLM` or another of our kinds, as `linnet.gguf.write` takes them.

    With `task` a model that does something else is refused.
    """
    config = config_from_transformers(model.config, task)
    return config, params_from_transformers(config, model.state_dict())


def config_from_transformers(config: Any, task: Task | None = None) -> AnyConfig:
    """Our config for one of `transformers`; what our models cannot do is refused by name."""
    kind, known = str(getattr(config, "model_type", None)), names_for(task)
    if kind not in known:
        words = " and ".join(filter(None, (", ".join(known[:-1]), known[-1])))
        raise UsageError(f"a transformers model of type {kind!r} cannot be taken over: only {words} can")
    ours: AnyConfig = ARCHITECTURES[kind].transformers.config(config)
    return ours


def params_from_transformers(config: AnyConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A `state_dict` of `transformers` by our names; a KeyError is a tensor that it lacks."""
    described = describe(config)
    names = modules(described.transformers.names, config.n_layers)
    state = {name.removeprefix(f"{described.name}."): tensor for name, tensor in state.items()}
    params = {}
    for name, param in layout(config).params.items():
        module, _, kind = name.rpartition(".") if name.endswith((".weight", ".bias")) else (name, "", "")
        theirs = [their if their in state else f"{their}.{kind}" for their in names.get(module, ())]
        if not theirs or not param.belongs_to(config) or (param.optional and theirs[0] not in state):
            continue
        parts = _reordered(described, module, [state[their] for their in theirs], config)
        params[name] = (torch.cat(parts) if len(parts) > 1 else parts[0]).reshape(param.shape)
    return params


def _reordered(described: Architecture, module: str, parts: list[Tensor], config: Any) -> list[Tensor]:
    """The parts of a parameter with their rows and columns in our order."""
    if described.transformers.transposed and module.startswith("blocks."):
        parts = [part.T.contiguous() if part.ndim == 2 else part for part in parts]
    if described.rope == "pairs" and module.endswith(".attn_qkv"):
        q, k, v = parts
        return [_interleaved(q, config.n_heads), _interleaved(k, config.n_kv), v]
    return parts


def _interleaved(rows: Tensor, heads: int) -> Tensor:
    """Rows of Q or K from half-split to interleaved pairs: row i of each half becomes rows 2i and 2i + 1."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def pick_device(name: str = "auto") -> torch.device:
    """A device by its word: `auto` (the fastest there is), `cpu`, `cuda`, `cuda:1`, `mps`; an absent one is refused."""
    kind, _, number = name.partition(":")
    if kind not in DEVICES or (number and not (kind == "cuda" and number.isdigit())):
        raise UsageError(f"there is no device {name!r}; choose from {', '.join(DEVICES)}, or cuda:N")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if kind == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if kind == "cuda" and not cuda:
        built = "sees no GPU" if torch.version.cuda else "was built without CUDA"
        raise UsageError(f"device cuda was asked for, but torch {torch.__version__} {built}; use `device=cpu`")
    if number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"device {name} was asked for, but there are {torch.cuda.device_count()} GPUs, counted from 0")
    if kind == "mps" and not mps:
        raise UsageError("device mps was asked for, but this machine has no Metal; use `device=cpu`")
    device = torch.device(name)
    if number:
        torch.cuda.set_device(device)  # streams, events and kernels belong to the current one unless told otherwise
    return device
