"""An adapter as the library `peft` keeps it: a folder with `adapter_model.safetensors` and `adapter_config.json`.

That library names tensors after the modules of `transformers`, divides by the rank itself and rotates the halves of a
head against each other where a llama's file has neighbours: rows of what q and k are changed by change places.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.architectures.description import Config
from linnet.architectures.parameters import layout, modules
from linnet.architectures.registry import ARCHITECTURES, describe, names_for
from linnet.errors import UsageError, error_text
from linnet.files import write_file
from linnet.gguf.adapter import AdapterFile, Pair, stem_of, target_of, write_adapter
from linnet.gguf.errors import GGUFError, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_HALVES = {
    ".lora_A.weight": "down",
    ".lora_B.weight": "up",
    ".lora_embedding_A": "flipped up",
    ".lora_embedding_B": "flipped down",
}
_EMBEDDING = "token_embd.weight"
_MOST = 1e30  # that an alpha can be; float32 ends a little above it
# Ways to begin by which the base is another one afterwards.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


def is_peft_folder(path: str | os.PathLike[str]) -> bool:
    """Is it a folder in which `peft` has kept an adapter?"""
    return (Path(path) / CONFIG).is_file()


def from_peft(
    folder: str | os.PathLike[str],
    config: Config,
    target: str | os.PathLike[str],
    *,
    base: str,
    base_sha256: str,
    type: str = "f32",
) -> Path:
    """Write an adapter of `peft`, made for a base of this shape, as a GGUF; what has no place there is refused."""
    folder = Path(folder)
    settings = _settings(folder)
    pairs = _pairs(folder, config)
    rank = max(pair.rank for pair in pairs.values())
    scales = {tensor: _scale(settings, module, pair.rank) for (tensor, module), pair in pairs.items()}
    alpha = max(scales.values(), key=abs) * rank or float(rank)  # in a file 0 means that nothing is divided
    params: dict[str, NDArray[np.float32]] = {}
    for (tensor, _), pair in pairs.items():
        missing = ((0, rank - pair.rank), (0, 0))  # pairs of a lower rank get directions that are nothing
        down = np.pad(pair.down, missing)
        up = np.pad(pair.up.T, missing).T * np.float32(scales[tensor] * rank / alpha)
        a, b = (up, down.T) if tensor == _EMBEDDING else (down, up)
        params[f"{stem_of(tensor)}.lora_a"], params[f"{stem_of(tensor)}.lora_b"] = map(np.ascontiguousarray, (a, b))
    name = folder.resolve().name
    return write_adapter(
        config, params, target, "peft", 0, alpha=alpha, base=base, base_sha256=base_sha256, type=type, name=name
    )


def to_peft(adapter: AdapterFile, target: str | os.PathLike[str], heads: tuple[int, int] | None = None) -> Path:
    """Write an adapter as a folder that `peft` loads. `heads`: of queries and of keys, where the file does not say."""
    from safetensors.numpy import save

    described = ARCHITECTURES.get(adapter.architecture)
    if described is None or described.task != "text":
        expected = " or ".join(names_for("text"))
        raise GGUFError("peft's names are not known", "metadata 'general.architecture'", expected, path=adapter.path)
    heads = adapter.head_counts or heads
    if described.rope == "pairs" and heads is None:
        raise UsageError(f"{adapter.path} does not say how many heads its base has: give the base with `base`")
    counts = dict(zip(("attn_q", "attn_k"), heads or (), strict=False)) if described.rope == "pairs" else {}
    tensors: dict[str, NDArray[np.float32]] = {}
    targets: set[str] = set()
    ranks: dict[str, int] = {}  # other than the largest
    for tensor, pair in adapter.pairs.items():
        module = _their_module(described, tensor)
        targets.add(module.rpartition(".")[2])
        if pair.rank != adapter.rank:
            ranks[module] = pair.rank
        if tensor == _EMBEDDING:
            tensors[f"{_PREFIX}{module}.lora_embedding_A"] = np.ascontiguousarray(pair.up.T)
            tensors[f"{_PREFIX}{module}.lora_embedding_B"] = np.ascontiguousarray(pair.down.T)
            continue
        count = counts.get(target_of(tensor))
        up = pair.up if count is None else _as_halves(pair.up, count)
        tensors[f"{_PREFIX}{module}.lora_A.weight"], tensors[f"{_PREFIX}{module}.lora_B.weight"] = pair.down, up
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS, save(tensors, {"format": "pt"}))
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base or None,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha or adapter.rank,
        "lora_dropout": 0.0,
        "rank_pattern": ranks,
        "alpha_pattern": {} if adapter.alpha else ranks,
        "target_modules": sorted(targets),
        "fan_in_fan_out": described.transformers.transposed,
        "bias": "none",
        "inference_mode": True,
    }
    write_file(folder / CONFIG, (json.dumps(settings, indent=2) + "\n").encode())
    return folder


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise GGUFError(f"cannot be read: {error_text(error)}", CONFIG, path=folder) from None
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        kind = quoted(str(settings.get("peft_type"))) if isinstance(settings, dict) else "no object"
        raise GGUFError("not a LoRA adapter", f"{CONFIG}: peft_type", "'LORA'", kind, folder)
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if not isinstance(rank, int) or not _is_number(rank) or rank < 1 or not _is_number(alpha):
        stated = f"{rank!r}, {alpha!r}"[:80]
        raise GGUFError("rank and alpha are no numbers", CONFIG, "r and lora_alpha", stated, folder)
    patterns = settings.get("alpha_pattern") or {}
    if not (isinstance(patterns, dict) and all(_is_pattern(name) and _is_number(a) for name, a in patterns.items())):
        problem, expected = "the value is wrong", "numbers by patterns of modules' names"
        raise GGUFError(problem, f"{CONFIG}: alpha_pattern", expected, quoted(str(patterns)[:80]), folder)
    start = str(settings.get("init_lora_weights")).lower()
    if start.startswith(_CHANGES_BASE):
        problem = (
            f"training began with {start}, which changed the base too: save it for the base as it was"
            " (path_initial_model_for_weight_conversion), or merge it there"
        )
        raise GGUFError(problem, f"{CONFIG}: init_lora_weights", path=folder)
    refused = {
        "use_dora": "DoRA's lengths of rows have no place in a GGUF adapter: merge it there (merge_and_unload)",
        "alora_invocation_tokens": "an adapter that acts from certain tokens on only has no place in a GGUF",
        "modules_to_save": "modules that were trained whole have no place in a GGUF adapter: merge it there",
    }
    for name, problem in refused.items():
        if settings.get(name):
            raise GGUFError(problem, f"{CONFIG}: {name}", path=folder)
    if settings.get("bias", "none") != "none":
        raise GGUFError("trained biases have no place in a GGUF adapter", f"{CONFIG}: bias", "'none'", path=folder)
    return settings


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def _is_pattern(text: str) -> bool:
    try:
        return bool(re.compile(text))
    except re.error:
        return False


def _pairs(folder: Path, config: Config) -> dict[tuple[str, str], Pair]:
    """The pairs by tensor of the base and module of theirs."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        stored = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise GGUFError(f"cannot be read: {error_text(error)}", WEIGHTS, path=folder) from None
    described = describe(config)
    ours = {_their_module(described, tensor): tensor for tensor in _matrices(config)}
    halves: dict[str, dict[str, NDArray[np.float32]]] = {}
    for key, value in stored.items():
        if not np.isfinite(value).all():
            raise GGUFError("numbers are not finite", f"tensor {quoted(key)}", "finite", "NaN or infinite", folder)
        suffix = next((end for end in _HALVES if key.endswith(end)), None)
        module = key.removesuffix(suffix or "").removeprefix(_PREFIX)
        if suffix is None or module not in ours:
            expected = f"a part of a pair of a {config.arch}"
            raise GGUFError("the tensor has no place in a GGUF adapter", f"tensor {quoted(key)}", expected, path=folder)
        halves.setdefault(module, {})[_HALVES[suffix]] = value.astype(np.float32)
    pairs = {}
    counts = {"attn_q": config.n_heads, "attn_k": config.n_kv} if described.rope == "pairs" else {}
    tensors = layout(config).tensors
    for module, stored_halves in halves.items():
        tensor = ours[module]
        down, up = stored_halves.get("down"), stored_halves.get("up")
        if "flipped up" in stored_halves and "flipped down" in stored_halves:
            down, up = stored_halves["flipped down"].T, stored_halves["flipped up"].T
        shape = tensors[tensor][1].shape
        is_pair = down is not None and up is not None and down.ndim == up.ndim == 2 and len(down) == up.shape[1]
        if down is None or up is None or not is_pair or (len(up), down.shape[1]) != shape:
            shapes = " and ".join(str(list(half.shape)) for half in stored_halves.values())
            problem, place = "the adapter was made for another base", f"module {quoted(module)}"
            raise GGUFError(problem, place, f"a pair for {list(shape)}", shapes, folder)
        count = counts.get(target_of(tensor))
        pairs[tensor, module] = Pair(down, up if count is None else _as_neighbours(up, count))
    if not pairs:
        raise GGUFError("there is no LoRA pair", WEIGHTS, "….lora_A.weight and ….lora_B.weight", "none", folder)
    return pairs


def _scale(settings: Mapping[str, Any], module: str, rank: int) -> float:
    """What a pair is multiplied by."""
    patterns = settings.get("alpha_pattern") or {}
    alpha = next((a for name, a in patterns.items() if re.fullmatch(rf"(.*\.)?({name})", module)), None)
    alpha = settings["lora_alpha"] if alpha is None else alpha
    return float(alpha) / (rank**0.5 if settings.get("use_rslora") else rank)


def _matrices(config: Config) -> list[str]:
    """The tensors that a pair may belong to."""
    return [
        tensor
        for tensor, (param, piece) in layout(config).tensors.items()
        if len(piece.shape) == 2 and target_of(tensor) != "position_embd" and param.belongs_to(config)
    ]


def _their_module(described: Any, tensor: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj`."""
    block = int(match[1]) if (match := re.match(r"blk\.(\d+)\.", tensor)) else 0
    ours = modules(described.transformers.names, block + 1)
    stem = stem_of(tensor)
    for fused, parts in (("attn_qkv", ("attn_q", "attn_k", "attn_v")), ("ffn_gate_up", ("ffn_gate", "ffn_up"))):
        prefix, _, last = stem.rpartition(".")
        if last in parts and f"{prefix}.{fused}" in ours:
            return ours[f"{prefix}.{fused}"][parts.index(last)]
    return ours[stem][0]


def _as_neighbours(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of q or k from halves of a head to neighbouring pairs."""
    return np.ascontiguousarray(rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape))


def _as_halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """The same back."""
    return np.ascontiguousarray(rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape))
