"""Weights of a model of the library `transformers` under our names; that library is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import torch
from torch import Tensor

from linnet.architectures.description import Architecture, Config, Task
from linnet.architectures.parameters import layout, modules
from linnet.architectures.registry import ARCHITECTURES, AnyConfig, describe, names_for
from linnet.errors import UsageError


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
        parts = _turned(described, module, [state[their] for their in theirs], config)
        params[name] = (torch.cat(parts) if len(parts) > 1 else parts[0]).reshape(param.shape)
    return params


def _turned(described: Architecture, module: str, parts: list[Tensor], config: Any) -> list[Tensor]:
    """The parts of a parameter with their values where ours has them."""
    if described.transformers.transposed and module.startswith("blocks."):
        parts = [part.T.contiguous() if part.ndim == 2 else part for part in parts]
    if described.rope == "pairs" and module.endswith(".attn_qkv"):
        q, k, v = parts
        return [_neighbours(q, config.n_heads), _neighbours(k, config.n_kv), v]
    return parts


def _neighbours(rows: Tensor, heads: int) -> Tensor:
    """Rows of Q or K from half-split to interleaved pairs: row i of each half becomes rows 2i and 2i + 1."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
