"""Shapes by name, from one that trains in a second to SmolLM2-360M."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from linnet.errors import UsageError
from linnet.models.config import Config, GPT2Config, LlamaConfig

PRESETS: Mapping[str, Config] = MappingProxyType(
    {
        # Toy's shape.
        "tiny": LlamaConfig(vocab=627, d_model=64, n_heads=4, n_kv=4, d_ff=128, n_layers=2, ctx=32),
        # About 3M at this vocabulary: learns visibly in a minute or two on two cores.
        "demo": LlamaConfig(vocab=4096, d_model=192, n_heads=6, n_kv=2, d_ff=512, n_layers=6, ctx=256),
        "nano": LlamaConfig(vocab=32000, d_model=288, n_heads=6, n_kv=6, d_ff=768, n_layers=6, ctx=512),
        "smollm2-135m": LlamaConfig(
            vocab=49152, d_model=576, n_heads=9, n_kv=3, d_ff=1536, n_layers=30, ctx=8192, rope_base=1e5
        ),
        "gpt2-124m": GPT2Config(vocab=50257, d_model=768, n_heads=12, d_ff=3072, n_layers=12, ctx=1024),
        "smollm2-360m": LlamaConfig(
            vocab=49152, d_model=960, n_heads=15, n_kv=5, d_ff=2560, n_layers=32, ctx=8192, rope_base=1e5
        ),
    }
)


def preset(name: str, **changes: Any) -> Config:
    """A config by name, with some of its fields changed: `preset("nano", vocab=4096, ctx=512)`."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}{meant(name, PRESETS)}")
    config = PRESETS[name]
    known = [field.name for field in fields(config)]
    for change in changes:
        if change not in known:
            raise UsageError(f"a {config.arch} has no field {change!r}{meant(change, known)}")
    return replace(config, **changes)


def meant(word: str, known: Mapping[str, Any] | list[str]) -> str:
    """What may have been meant by a word that is not known."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(known)}"
