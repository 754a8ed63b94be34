"""The architectures there are: a line each. The model of one is the module of `linnet.models` of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from linnet.architectures.description import Architecture, Config, Task
from linnet.architectures.gpt2 import GPT2
from linnet.architectures.llama import LLAMA
from linnet.architectures.qwen2 import QWEN2
from linnet.architectures.qwen3 import QWEN3
from linnet.architectures.vit import VIT, ViTConfig
from linnet.errors import UsageError, suggestion

AnyConfig: TypeAlias = Config | ViTConfig

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": LLAMA,
        "gpt2": GPT2,
        "qwen2": QWEN2,
        "qwen3": QWEN3,
        "vit": VIT,
    }
)

PRESETS: Mapping[str, Any] = MappingProxyType(
    {name: config for described in ARCHITECTURES.values() for name, config in described.presets.items()}
)


def describe(config: AnyConfig) -> Architecture:
    """The description that a config belongs to."""
    return ARCHITECTURES[config.arch]


def names_for(task: Task | None = None) -> tuple[str, ...]:
    """The architectures that do a task, or all."""
    return tuple(name for name, described in ARCHITECTURES.items() if task in (None, described.task))


def task_of(name: str) -> Task | None:
    """What the models of an architecture do; None for one that is not ours."""
    return ARCHITECTURES[name].task if name in ARCHITECTURES else None


def presets_for(task: Task) -> dict[str, Any]:
    """The configs by name of all architectures that do a task."""
    return {name: config for name, config in PRESETS.items() if describe(config).task == task}


def preset(name: str, presets: Mapping[str, Any] = PRESETS, **changes: Any) -> Any:
    """A config by name, with some of its fields changed: `preset("nano", vocab=4096, ctx=512)`."""
    if name not in presets:
        raise UsageError(f"there is no preset {name!r}{suggestion(name, presets)}")
    config = presets[name]
    known = [field.name for field in fields(config)]
    for change in changes:
        if change not in known:
            raise UsageError(f"a {config.arch} has no field {change!r}{suggestion(change, known)}")
    return replace(config, **changes)
