"""What the heads of a run's model look at in a prompt: computed on demand, by a process of its own.

So the server needs no torch and keeps no model, and a fault there ends nothing here. Nothing is written into the run.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from linnet.board.attention_answer import (
    LINNET,
    AttentionAnswer,
    attention_command,
    attention_environment,
    attention_error,
    can_attend,
    read_attention,
)
from linnet.board.web.answers import RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.checkpoints import checkpoint_file
from linnet.board.web.inside_answer_types import AttentionMap, AttentionQuestion
from linnet.files import step_of

_LONGEST = 2_000  # characters of a prompt
_SECONDS = 180.0
_LARGEST = 96 << 20  # bytes of what the command says
_KEPT = 4  # prompts whose maps are kept
_DIGITS = 5


class AttentionMaps:
    """The maps of the latest prompts. One is computed at a time."""

    def __init__(self, command: tuple[str, ...] = LINNET) -> None:
        self._command = command
        self._computing = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], AttentionAnswer] = OrderedDict()

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

    def _maps(self, file: Path, prompt: str) -> AttentionAnswer:
        status = file.stat()
        key = str(file), status.st_mtime_ns, status.st_size, prompt
        with self._computing:
            maps = self._kept.pop(key, None) or self._computed(file, prompt)
            self._kept[key] = maps
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return maps

    def _computed(self, file: Path, prompt: str) -> AttentionAnswer:
        command, environment = attention_command(file, prompt, self._command), attention_environment()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, timeout=_SECONDS
                )
            except subprocess.TimeoutExpired:
                raise RequestError(503, f"the maps were not there after {_SECONDS:.0f} s: try a shorter text") from None
            if done.returncode != 0:
                errors.seek(0)
                raise RequestError(409, attention_error(errors.read(1 << 20)))
            if output.tell() > _LARGEST:
                raise RequestError(413, "the maps of so long a text are more than a page can show: try a shorter one")
            output.seek(0)
            maps = read_attention(output.read())
        if maps is None:
            raise RequestError(503, "the command that computes the maps said something else")
        return maps
