"""What the heads of a run's model look at in a prompt: computed on demand, by a process of its own.

So the server needs no torch and keeps no model, and a fault there ends nothing here. Nothing is written into the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.board.web.answers import AttentionMap, AttentionQuestion, RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.checkpoints import checkpoint_file
from linnet.board.words import plain, shorten
from linnet.files import step_of
from linnet.runs import Run

_LONGEST = 2_000  # characters of a prompt
_SECONDS = 180.0
_LARGEST = 96 << 20  # bytes of what the command says
_KEPT = 4  # prompts whose maps are kept
_DIGITS = 5


@dataclass(frozen=True)
class _Maps:
    """`layers`: the number of each, with its weights by head, query and key."""

    tokens: list[str]
    layers: dict[int, NDArray[np.float32]]


class _LayerFields(msgspec.Struct):
    layer: int
    heads: list[list[list[float]]]


class _Fields(msgspec.Struct):
    """What `linnet attention --json` says, as far as it is wanted."""

    tokens: list[str]
    layers: list[_LayerFields]


class AttentionMaps:
    """The maps of the latest prompts. One is computed at a time."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "linnet")) -> None:
        self._command = command
        self._computing = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _Maps] = OrderedDict()

    def answer(self, board: WebBoard, run_id: str, question: AttentionQuestion) -> AttentionMap:
        """The maps of one layer; those of the others are there then, too."""
        prompt = question.prompt
        if not prompt or len(prompt) > _LONGEST or "\0" in prompt:
            raise RequestError(400, f"prompt is a text of 1 to {_LONGEST:,} characters, found {len(prompt)}")
        with board.open(run_id) as run:
            if not can_attend(run.run):
                raise RequestError(409, "the run has no checkpoint of a language model yet")
            file = checkpoint_file(run, question.step)
        maps = self._maps(file, prompt)
        if question.layer not in maps.layers:
            raise RequestError(404, f"there is no layer {question.layer}; there are {len(maps.layers)}, from 0")
        heads = np.round(maps.layers[question.layer].astype(np.float64), _DIGITS).tolist()
        return AttentionMap(step_of(file) or 0, maps.tokens, sorted(maps.layers), question.layer, heads)

    def _maps(self, file: Path, prompt: str) -> _Maps:
        status = file.stat()
        key = str(file), status.st_mtime_ns, status.st_size, prompt
        with self._computing:
            maps = self._kept.pop(key, None) or self._computed(file, prompt)
            self._kept[key] = maps
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return maps

    def _computed(self, file: Path, prompt: str) -> _Maps:
        # Not on the GPU: a training may be at work there, and a prompt is short.
        command = [*self._command, "attention", str(file), f"--prompt={prompt}", "--device", "cpu", "--json"]
        environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, timeout=_SECONDS
                )
            except subprocess.TimeoutExpired:
                raise RequestError(503, f"the maps were not there after {_SECONDS:.0f} s: try a shorter text") from None
            if done.returncode != 0:
                errors.seek(0)
                raise RequestError(409, _last_line(errors.read(1 << 20)))
            if output.tell() > _LARGEST:
                raise RequestError(413, "the maps of so long a text are more than a page can show: try a shorter one")
            output.seek(0)
            try:
                fields = msgspec.json.decode(output.read(), type=_Fields)
                layers = {one.layer: np.array(one.heads, np.float32) for one in fields.layers}
            except (msgspec.MsgspecError, ValueError):
                raise RequestError(503, "the command that computes the maps said something else") from None
        return _Maps(fields.tokens, layers)


def can_attend(run: Run) -> bool:
    """Has it a checkpoint of a model of text?"""
    from linnet.architectures import task_of

    arch = run.manifest.model.get("arch")
    return isinstance(arch, str) and task_of(arch) == "text" and bool(run.checkpoints())


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return shorten(plain(lines[-1].removeprefix("error: ")), 500) if lines else "the maps could not be computed"
