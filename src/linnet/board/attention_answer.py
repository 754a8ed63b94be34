"""What `linnet attention` says of a prompt: the command, which boards start as a process of its own, and its answer.

So a board needs no torch and keeps no model, and a fault there ends nothing here. Nothing is written into the run.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.board.words import plain, shorten
from linnet.runs import Run

LINNET = (sys.executable, "-m", "linnet")


class _Layer(msgspec.Struct):
    layer: int
    heads: list[list[list[float]]]


class _Fields(msgspec.Struct):
    tokens: list[str]
    layers: list[_Layer]


@dataclass(frozen=True)
class AttentionAnswer:
    """`layers`: the number of each, with its weights by head, query and key (token)."""

    tokens: list[str]
    layers: dict[int, NDArray[np.float32]]

    @property
    def heads(self) -> int:
        """Heads of a layer."""
        return max(len(weights_HTS) for weights_HTS in self.layers.values())


def attention_command(file: Path, prompt: str, linnet: tuple[str, ...] = LINNET) -> list[str]:
    """The command. Not on the GPU: a training may be at work there, and a prompt is short."""
    return [*linnet, "attention", str(file), f"--prompt={prompt}", "--device", "cpu", "--json"]


def attention_environment() -> dict[str, str]:
    """The environment of that process: what it prints is for a program."""
    return {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def read_attention(printed: bytes) -> AttentionAnswer | None:
    """The answer of the command; None where it is none that fits together."""
    try:
        fields = msgspec.json.decode(printed, type=_Fields)
        layers = {layer.layer: np.array(layer.heads, np.float32) for layer in fields.layers}
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    fits = all(layer.ndim == 3 and layer.shape[2] == len(fields.tokens) and layer.size for layer in layers.values())
    return AttentionAnswer(fields.tokens, layers) if layers and fits else None


def attention_error(stderr: bytes) -> str:
    """Why there is none, as the command said it last."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return shorten(plain(lines[-1].removeprefix("linnet: ")), 500) if lines else "the maps could not be computed"


def can_attend(run: Run) -> bool:
    """Has it a checkpoint of a model of text?"""
    from linnet.architectures import task_of

    arch = run.manifest.model.get("arch")
    return isinstance(arch, str) and task_of(arch) == "text" and bool(run.checkpoints())
