"""`AttentionRequest`: what the heads of a run's model look at in a prompt, computed by a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.board.watched_run import WatchedRun
from linnet.files import step_of

_LONGEST_ERROR = 400
_PATIENCE = 2.0  # seconds that a process gets to end


class _Layer(msgspec.Struct):
    layer: int
    heads: list[list[list[float]]]


class _Answer(msgspec.Struct):
    tokens: list[str]
    layers: list[_Layer]
    model: str = ""


@dataclass(frozen=True)
class AttentionMaps:
    """Weights of every head, `weights_LHTS`: how much each token looks at each; `layers`: their numbers."""

    tokens: list[str]
    layers: list[int]
    weights_LHTS: list[NDArray[np.float64]]

    @property
    def heads(self) -> int:
        """Heads of a layer."""
        return len(self.weights_LHTS[0])

    def map(self, layer: int, head: int | None) -> NDArray[np.float64]:
        """One head of the n-th layer, or the mean of all."""
        weights_HTS = self.weights_LHTS[min(layer, len(self.layers) - 1)]
        shown: NDArray[np.float64] = weights_HTS.mean(0) if head is None else weights_HTS[min(head, self.heads - 1)]
        return shown


def newest_checkpoint(watched: WatchedRun) -> int | None:
    """The step of a run's newest checkpoint; None where there is none."""
    files = [] if watched.gone else watched.run.checkpoints()
    return step_of(files[-1]) if files else None


def read_maps(content: bytes) -> AttentionMaps | None:
    """What `linnet attention --json` prints; None where that does not fit together."""
    try:
        answer = msgspec.json.decode(content, type=_Answer)
        weights = [np.array(layer.heads, np.float64) for layer in answer.layers]
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    count = len(answer.tokens)
    if not count or not weights or any(one.ndim != 3 or one.shape[2] != count or not one.size for one in weights):
        return None
    return AttentionMaps(answer.tokens, [layer.layer for layer in answer.layers], weights)


class AttentionRequest:
    """`linnet attention` for a prompt, started at once; `maps` or `trouble` come when it has ended.

    - `run`: the run's folder; `step`: of the checkpoint. `began`: by the monotonic clock.
    """

    def __init__(self, run: Path, step: int, prompt: str) -> None:
        self.run, self.step, self.prompt = run, step, prompt
        self.maps: AttentionMaps | None = None
        self.trouble = ""
        self.began = time.monotonic()
        self._told = False
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        # A thread: its pipes have to be emptied while it computes, and nobody who draws may wait for it.
        self._thread = threading.Thread(target=self._wait, name="linnet-board-attention", daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        """It still computes."""
        return self.maps is None and not self.trouble

    def has_news(self) -> bool:
        """Has it ended since this was last asked?"""
        if self.runs or self._told:
            return False
        self._told = True
        return True

    def stop(self) -> None:
        """End the process; nothing comes of it any more."""
        self._stopped = True
        if (process := self._process) is not None and process.poll() is None:
            process.terminate()
            self._thread.join(_PATIENCE)
            if process.poll() is None:
                process.kill()

    def _command(self) -> list[str]:
        model = f"{self.run.name}@{self.step}"
        words = ["attention", model, "--prompt", self.prompt, "--json", "--runs", str(self.run.parent)]
        return [sys.executable, "-m", "linnet", *words]

    def _wait(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            if self._stopped:
                self._process.terminate()
            printed, said = self._process.communicate()
        except OSError as error:
            self.trouble = f"linnet attention did not start: {error.strerror or error}"
            return
        maps = read_maps(printed) if self._process.returncode == 0 else None
        if maps is None:
            text = said.decode("utf-8", "replace").strip() or "linnet attention said nothing that can be drawn"
            self.trouble = text.splitlines()[-1][:_LONGEST_ERROR]
        self.maps = maps
