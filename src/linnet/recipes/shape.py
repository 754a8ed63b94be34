"""The shape of a model that begins with a donor: what was asked for, and for the rest what the donor suggests."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from linnet.models import LlamaConfig
from linnet.recipes.inheritance import Init

_CTX = 256  # unless asked for more: a donor's own context is for running it, not for training it
_STEP = 32  # hidden units come in so many


def shape_from(donor: LlamaConfig, init: Init, **asked: Any) -> LlamaConfig:
    """A config for `--init`; `asked` are fields of it that were given.

    - `full`, `inherit:K` and `widen:N` have the donor's sizes, of which K and N say what is changed.
    - `select` keeps the donor's head size and gives a narrower model fewer heads, hidden units and as many layers.
    - `embed`, `pca`, `warm` and `scratch` take no layers, so the sizes are a suggestion only.
    """
    unknown = sorted(asked.keys() - {field.name for field in fields(LlamaConfig)})
    assert not unknown, f"not fields of a llama: {unknown}"
    base = replace(donor, ctx=min(donor.ctx, _CTX))
    if init.kind == "inherit":
        base = replace(base, n_layers=init.number)
    elif init.kind == "widen":
        n = init.number
        sizes = {name: n * getattr(donor, name) for name in ("d_model", "n_heads", "n_kv", "d_ff")}
        base = replace(base, **sizes)
    elif init.kind != "full":
        base = _narrowed(base, init, asked)
    return replace(base, **asked)


def _narrowed(donor: LlamaConfig, init: Init, asked: dict[str, Any]) -> LlamaConfig:
    """Heads, keys and hidden units for the width that was asked for."""
    width = asked.get("d_model", donor.d_model)
    if init.kind == "select":
        head = donor.head_size
    else:
        if "n_heads" in asked and "head_dim" not in asked:
            head = width // asked["n_heads"] if width % asked["n_heads"] == 0 else 0
        else:
            head = asked.get("head_dim") or donor.head_size
        donor = replace(donor, rope_scaling=None, qkv_bias=False, output_bias=False, ffn_bias=False)
    n_heads = asked.get("n_heads") or max(1, round(width / head))
    hidden = max(1, round(donor.d_ff * width / donor.d_model / _STEP)) * _STEP if width != donor.d_model else donor.d_ff
    fresh = {
        "d_model": width,
        "n_heads": n_heads,
        "n_kv": asked.get("n_kv") or _keys(donor, n_heads),
        "head_dim": head if head * n_heads != width else 0,
        "d_ff": min(hidden, donor.d_ff) if init.kind == "select" else hidden,
        "tied": donor.tied and not init.has_lens,
    }
    return replace(donor, **{**fresh, **asked})


def _keys(donor: LlamaConfig, n_heads: int) -> int:
    """Heads of keys: the fewest that no more queries share than in the donor."""
    group = donor.n_heads // donor.n_kv
    return next(n for n in range(1, n_heads + 1) if n_heads % n == 0 and n_heads // n <= group)
