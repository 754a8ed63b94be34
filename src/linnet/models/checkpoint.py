"""A model out of a GGUF file: `load(path)`, quantised or not, to train on or to run."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from torch import Tensor

from linnet.gguf.checkpoint import read_params
from linnet.gguf.errors import GGUFError
from linnet.gguf.file import GGUFFile
from linnet.gguf.link import resolve_link
from linnet.gguf.rope import rope_divisors, rope_scaling_of
from linnet.gguf.toy import LENS
from linnet.models.config import LlamaConfig, config_of
from linnet.models.initial import allocate
from linnet.models.language_model import LanguageModel
from linnet.models.llama import Llama
from linnet.models.vit import ViT
from linnet.models.vit_config import vit_config_of

_ROPE_FREQS = "rope_freqs.weight"
_TABLE_VALUES = 1 << 20  # of the rotary table that a loaded model begins with: 16,384 positions of heads of 64


def load(
    source: str | os.PathLike[str] | GGUFFile, device: str | torch.device = "cpu", ctx: int | None = None
) -> LanguageModel:
    """Load a llama or GPT-2 of any file type as float32; `ctx` replaces the file's context."""
    if isinstance(source, GGUFFile):
        return _load(source, torch.device(device), ctx)
    with GGUFFile.open(resolve_link(source)) as file:
        return _load(file, torch.device(device), ctx)


def load_vit(source: str | os.PathLike[str] | GGUFFile, device: str | torch.device = "cpu") -> ViT:
    """Load a vision transformer of any file type as float32."""
    if not isinstance(source, GGUFFile):
        with GGUFFile.open(resolve_link(source)) as file:
            return load_vit(file, device)
    config = vit_config_of(source)
    params = _read(source, torch.device(device))  # first: sizes that the tensors do not have are found here
    model = ViT(config, torch.device(device))
    _assign(model, params, source)
    return model


def _load(file: GGUFFile, device: torch.device, ctx: int | None) -> LanguageModel:
    config = config_of(file, ctx)
    params = _read(file, device)
    if config.arch == "gpt2":
        params["position_embd.weight"] = params["position_embd.weight"][: config.ctx]
        if not config.tied and torch.equal(params["output.weight"], params["token_embd.weight"]):
            # Files of 2024 carry a tied head as a copy.
            config = replace(config, tied=True)
            del params["output.weight"]
    divisors = params.pop(_ROPE_FREQS, None)
    model = allocate(config, device)
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
        params["token_embd.weight"] = params["token_embd.weight"] @ lens.T
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


def _follows(divisors: Tensor, config: LlamaConfig) -> bool:
    """The divisors are those that the config's own llama-3 scaling gives."""
    scaling = rope_scaling_of(config)
    if scaling is None or scaling.kind != "llama3":
        return False
    own = torch.from_numpy(rope_divisors(scaling, config.head_size, config.rope_base))
    return torch.equal(divisors.cpu(), own)
