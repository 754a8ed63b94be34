"""`run_start`: the first event of a stream, made from the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from linnet.runs import provenance
from linnet.runs.events import decode, iso_now
from linnet.runs.manifest import Manifest
from linnet.runs.tail import lines_backwards


class LlamaShape(Protocol):
    """What `run_start_llama` reads off a config."""

    vocab: int
    d_model: int
    n_layers: int
    ctx: int


class VitShape(Protocol):
    """What `run_start_vit` reads off a config."""

    image_size: int
    patch_size: int
    d_model: int
    n_layers: int
    num_classes: int


def run_start(manifest: Manifest, *, phase: str = "train", device: str | None = None, **more: Any) -> dict[str, Any]:
    """The event's fields in Toy's order; `more` are those the schema leaves open, None standing for absent."""
    fields = {
        "kind": "run_start",
        "schema": "toy/v1",
        "t": 0.0,
        "started_at": iso_now(),
        "run_id": manifest.run_id,
        "phase": phase,
        "host": provenance.host(),
        "backend": {"kind": device or provenance.backend()},
        "git": manifest.provenance.get("git") or None,
        "model": manifest.model,
        "config": manifest.config,
    }
    return {name: value for name, value in (fields | more).items() if value is not None}


def vit_shape(cfg: VitShape) -> dict[str, Any]:
    """A vision transformer's shape, as `model` of its `run_start` has it."""
    return {
        "arch": "vit",
        "image_size": cfg.image_size,
        "patch_size": cfg.patch_size,
        "d_model": cfg.d_model,
        "n_layers": cfg.n_layers,
        "num_classes": cfg.num_classes,
    }


def has_events(events: Path) -> bool:
    """Is there a whole event in the stream? A run that was made and never logged into has none."""
    return any(decode(line) is not None for line in lines_backwards(events))
