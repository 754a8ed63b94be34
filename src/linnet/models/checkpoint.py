"""A model out of a GGUF file: `load(path)`, quantised or not, to train on or to run."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal, overload

import torch
from torch import Tensor

from linnet.architectures.description import Config, Task
from linnet.architectures.registry import AnyConfig, describe
from linnet.architectures.rotary import RotaryConfig, rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.gguf.checkpoint import read_params
from linnet.gguf.config import config_of, rope_divisors
from linnet.gguf.errors import GGUFError
from linnet.gguf.file import GGUFFile, resolve_link
from linnet.gguf.toy import LENS
from linnet.models.initial import allocate
from linnet.models.language_model import LanguageModel
from linnet.models.llama import Llama
from linnet.models.vit import ViT

_EMBEDDING, _OUTPUT, _POSITIONS = "token_embd.weight", "output.weight", "position_embd.weight"
_ROPE_FREQS = "rope_freqs.weight"
_TABLE_VALUES = 1 << 20  # of the rotary table that a loaded model begins with: 16,384 positions of heads of 64

Source = str | os.PathLike[str] | GGUFFile
Device = str | torch.device


@overload
def load(source: Source, device: Device = "cpu", ctx: int | None = None, *, task: Literal["text"]) -> LanguageModel: ...
@overload
def load(source: Source, device: Device = "cpu", ctx: int | None = None, *, task: Literal["images"]) -> ViT: ...
@overload
def load(
    source: Source, device: Device = "cpu", ctx: int | None = None, *, task: None = None
) -> LanguageModel | ViT: ...
def load(
    source: Source, device: Device = "cpu", ctx: int | None = None, *, task: Task | None = None
) -> LanguageModel | ViT:
    """Load a model of any of our architectures and any file type as float32; `ctx` replaces a text model's context.

    With `task` a file whose model does something else is refused: "text" for a language model, "images" for a
    classifier.
    """
    if not isinstance(source, GGUFFile):
        with GGUFFile.open(resolve_link(source)) as file:
            return _load(file, torch.device(device), ctx, task)
    return _load(source, torch.device(device), ctx, task)


def _load(file: GGUFFile, device: torch.device, ctx: int | None, task: Task | None) -> LanguageModel | ViT:
    config: AnyConfig = config_of(file, ctx, task=task)
    params = _read(file, device)  # first: sizes that the tensors do not have are found here
    if isinstance(config, ViTConfig):
        vit = allocate(config, device)
        _assign(vit, params, file)
        return vit
    return _language_model(config, params, file, device)


def _language_model(config: Config, params: dict[str, Tensor], file: GGUFFile, device: torch.device) -> LanguageModel:
    if _POSITIONS in params:
        params[_POSITIONS] = params[_POSITIONS][: config.ctx]
    copied = describe(config).tied_by_copy and not config.tied and torch.equal(params[_OUTPUT], params[_EMBEDDING])
    if copied:
        config = replace(config, tied=True)
        del params[_OUTPUT]
    divisors = params.pop(_ROPE_FREQS, None)
    try:
        model = allocate(config, device)
    except UsageError as error:
        raise GGUFError(f"these sizes cannot be: {error}", path=file.path, place="metadata") from None
    _assign(model, params, file)
    if divisors is not None and isinstance(model, Llama) and not _follows(divisors, model.config):
        model.use_divisors(divisors)
    model.reserve(min(config.ctx, max(1, _TABLE_VALUES // config.head_size)))
    return model


def _read(file: GGUFFile, device: torch.device) -> dict[str, Tensor]:
    """The parameters on the device; Toy's lens is folded into the embedding."""
    params = {name: torch.from_numpy(array).to(device) for name, array in read_params(file)}
    lens = params.pop(LENS, None)
    if lens is not None:
        params[_EMBEDDING] = params[_EMBEDDING] @ lens.T
    return params


def _assign(model: LanguageModel | ViT, params: dict[str, Tensor], file: GGUFFile) -> None:
    """Take the tensors over as they are: a model is held once in memory, not twice."""
    wanted = dict(model.named_parameters())
    for name in wanted:
        if name not in params:
            expected = str(list(wanted[name].shape))
            raise GGUFError("the parameter is missing", path=file.path, place=name, expected=expected, found="none")
    for name, tensor in params.items():
        if name not in wanted:
            problem = "only some blocks have this parameter, and the first has not"
            raise GGUFError(problem, path=file.path, place=name, expected="none", found=str(list(tensor.shape)))
        wanted[name].data = tensor.contiguous()


def _follows(divisors: Tensor, config: RotaryConfig) -> bool:
    """The divisors are those that the config's own llama-3 scaling gives."""
    scaling = rope_scaling_of(config)
    if scaling is None or scaling.kind != "llama3":
        return False
    own = torch.from_numpy(rope_divisors(scaling, config.head_size, config.rope_base))
    return torch.equal(divisors.cpu(), own)
