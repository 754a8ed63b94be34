"""Checkpoints off the critical path: training pauses for a copy, a thread writes the files."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from linnet import gguf
from linnet.runs import RunBundle
from linnet.train import state
from linnet.train.copies import Copies, copies

log = logging.getLogger("linnet")


@dataclass(frozen=True)
class Snapshot:
    """A model and its optimiser as they stood after a step: copies."""

    step: int
    parameters: Copies
    moments: Copies
    facts: dict[str, Any]
    provenance: gguf.Provenance
    validation_loss: float | None


class Checkpointer:
    """Writes `weights/step_<N>.gguf` and `state/step_<N>.safetensors`, moves `latest` and `best`, removes old ones.

    - `keep`: how many checkpoints stay besides the best one; 0: all.
    - `file_type`: how the weights are stored; below f32 the state holds them exactly too.

    The state is written before the weights it belongs to, so weights with a name always have a state, or had one.
    """

    def __init__(
        self,
        run: RunBundle,
        config: Any,
        tokenizer: gguf.MetadataBlock | None,
        *,
        keep: int,
        file_type: str,
        best: float | None = None,
    ) -> None:
        self._run = run
        self._config = config
        self._tokenizer = tokenizer
        self._keep = keep
        self._type = file_type
        self.best_loss = best
        self.latest: Path | None = None
        self.failure: str | None = None
        self._work: queue.Queue[Snapshot | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._write_all, name="linnet-checkpoint", daemon=True)
        self._thread.start()

    def save(
        self,
        step: int,
        parameters: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        facts: dict[str, Any],
        provenance: gguf.Provenance,
        validation_loss: float | None,
    ) -> None:
        """Copy everything now; it is written while training goes on. Waits only while the last one is being written."""
        self._work.put(Snapshot(step, copies(parameters), copies(moments), facts, provenance, validation_loss))

    def finish(self) -> None:
        """Wait until everything is written."""
        self._work.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while (snapshot := self._work.get()) is not None:
            try:
                self._write(snapshot)
                self.failure = None
            except Exception as error:  # training goes on; were this thread to end, the next `save` would wait for ever
                why = str(error) or type(error).__name__
                self.failure = f"checkpoint of step {snapshot.step} was not written: {why}"
                log.warning("run %s: %s", self._run.run_id, self.failure)
            del snapshot  # else its memory is held until the next one

    def _write(self, snapshot: Snapshot) -> None:
        parameters = snapshot.parameters.on_host()
        exact = self._type == "f32"
        beside = gguf.unfolded(parameters) if exact else parameters
        kept = state.State(snapshot.facts, snapshot.moments.on_host(), beside)
        state.save(state.state_path(self._run.run_dir, snapshot.step), kept)
        path = gguf.write_step(
            self._config,
            parameters,
            self._run.weights_dir,
            self._run.run_id,
            snapshot.step,
            type=self._type,
            tokenizer=self._tokenizer,
            provenance=snapshot.provenance,
        )
        self.latest = path
        loss = snapshot.validation_loss
        if loss is not None and (self.best_loss is None or loss < self.best_loss):
            self.best_loss = loss
            gguf.point_link(self._run.weights_dir / "best", path.name)
        self._run.checkpoint(path, snapshot.step, loss=loss)
        self._remove_old(snapshot.step)

    def _remove_old(self, newest: int) -> None:
        for step in state.steps_with_state(self._run.run_dir):
            if step < newest:
                state.state_path(self._run.run_dir, step).unlink(missing_ok=True)
        if self._keep <= 0:
            return
        weights = self._run.weights_dir
        best = _best(weights)
        found = sorted(
            (int(number), path)
            for path in weights.glob("step_*.gguf")
            if (number := path.stem.removeprefix("step_")).isdigit()
        )
        for _, path in found[: -self._keep]:
            if best is None or path.name != best.name:
                path.unlink(missing_ok=True)


def _best(weights: Path) -> Path | None:
    try:
        return gguf.resolve_link(weights / "best")
    except gguf.GGUFError:  # there is none yet
        return None
