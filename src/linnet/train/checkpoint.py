"""Checkpoints off the critical path: training pauses for a copy of its tensors, a thread writes the files."""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from linnet import gguf
from linnet.errors import LinnetError, error_text
from linnet.files import FileError, link_target, point_link, sha256_of, step_files, step_path, sweep
from linnet.runs import EventStream, RunBundle
from linnet.train import state
from linnet.train.moment_stream import MomentStream
from linnet.train.ranks import RankError

log = logging.getLogger("linnet")

_PINNED_BYTES = 8 << 20  # on their way to the host at a time
_ALIGNMENT = 64  # a copy begins at a multiple of so many numbers: odd places are slow to write to
_pinned_in_use = threading.Lock()
_NUMBER_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32}


_Kind = tuple[torch.device, torch.dtype]


@dataclass(frozen=True)
class TensorCopies:
    """Copies of tensors by name, side by side in one buffer for each device and dtype.

    On a GPU that is a few kernels and one allocation instead of hundreds.
    """

    buffers: dict[_Kind, Tensor]
    slices: dict[str, tuple[_Kind, int, torch.Size]]  # the buffer, where in it, and the shape

    def on_host(self) -> dict[str, Tensor]:
        """The copies by name. They leave the GPU for the host's memory, beside what the GPU is doing."""
        self.buffers.update({kind: _to_host(buffer) for kind, buffer in self.buffers.items() if buffer.is_cuda})
        return self.by_name()

    def by_name(self) -> dict[str, Tensor]:
        """The copies by name, where they are."""
        return {
            name: self.buffers[kind][start : start + math.prod(shape)].view(shape)
            for name, (kind, start, shape) in self.slices.items()
        }


@dataclass(frozen=True)
class TensorsInPlace:
    """Tensors of the host by name, in the place of copies: nobody changes them any more."""

    tensors: Mapping[str, Tensor]

    def on_host(self) -> dict[str, Tensor]:
        """The tensors themselves."""
        return {name: tensor.detach().cpu() for name, tensor in self.tensors.items()}


def copy_tensors(tensors: Mapping[str, Tensor]) -> TensorCopies:
    """Copies of tensors as they are now.

    A GPU takes a hundredth of the time that the way to the host takes; one without room pauses for the slow way.
    """
    try:
        return _copy_in_place(tensors)
    except torch.OutOfMemoryError:
        return _copy_in_place({name: tensor.detach().cpu() for name, tensor in tensors.items()})


def _copy_in_place(tensors: Mapping[str, Tensor]) -> TensorCopies:
    ends: dict[_Kind, int] = {}
    slices: dict[str, tuple[_Kind, int, torch.Size]] = {}
    for name, tensor in tensors.items():
        kind = tensor.device, tensor.dtype
        start = ends.get(kind, 0)
        slices[name] = kind, start, tensor.shape
        ends[kind] = start + -(-tensor.numel() // _ALIGNMENT) * _ALIGNMENT
    buffers = {kind: torch.empty(end, device=kind[0], dtype=kind[1]) for kind, end in ends.items()}
    if any(buffer.is_cuda for buffer in buffers.values()):
        _pinned_buffer()  # asked for now, while the GPU has nothing to do: it would be waited for
    copies = TensorCopies(buffers, slices)
    if slices:
        torch._foreach_copy_(list(copies.by_name().values()), [tensor.detach() for tensor in tensors.values()])
    return copies


def _on_a_gpu(*tensors_by_name: Mapping[str, Tensor]) -> bool:
    return any(tensor.is_cuda for tensors in tensors_by_name for tensor in tensors.values())


@cache
def _pinned_buffer() -> Tensor:
    return torch.empty(_PINNED_BYTES, dtype=torch.uint8, pin_memory=True)


def _to_host(buffer: Tensor) -> Tensor:
    """A copy on the host, by way of pinned memory. Straight there, no step could begin until it has arrived."""
    host = torch.empty(buffer.shape, dtype=buffer.dtype)
    source, target = buffer.view(torch.uint8), host.view(torch.uint8)
    # The copy was queued before this thread took it up, on the stream of the training: wait for that one.
    stream = torch.cuda.Stream(buffer.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.default_stream(buffer.device))
    with _pinned_in_use, torch.cuda.stream(stream):
        for part, goal in zip(torch.split(source, _PINNED_BYTES), torch.split(target, _PINNED_BYTES), strict=True):
            pinned = _pinned_buffer()[: len(part)]
            pinned.copy_(part, non_blocking=True)
            arrived = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            arrived.record()
            arrived.synchronize()
            goal.copy_(pinned)
    return host


@dataclass(frozen=True)
class Snapshot:
    """A model and its optimizer as they stood after a step."""

    step: int
    parameters: TensorCopies | TensorsInPlace
    moments: TensorCopies | TensorsInPlace
    facts: dict[str, Any]
    provenance: gguf.Provenance
    stream: MomentStream | None = None  # of moments that are shared out among ranks


class WeightsFormat(Protocol):
    """How checkpoints hold the weights of a recipe: as a model, or as an adapter of one.

    `has_tokenizer`: do they have the tokenizer too?
    """

    @property
    def has_tokenizer(self) -> bool: ...  # noqa: D102

    def write(
        self,
        parameters: Mapping[str, Tensor],
        path: Path,
        run_id: str,
        step: int,
        *,
        type: str,
        tokenizer: gguf.MetadataBlock | None,
        provenance: gguf.Provenance,
    ) -> Path:
        """Write what `Recipe.parameters` gave as a GGUF."""

    def beside(self, parameters: Mapping[str, Tensor], type: str) -> Mapping[str, Tensor]:
        """The parameters that such a file does not hold exactly, for the state."""

    def size(self, parameters: Iterable[Tensor], type: str) -> float:
        """Bytes of a file, without its tokenizer."""


@dataclass(frozen=True)
class ModelFormat:
    """A model, whole."""

    config: Any
    has_tokenizer = True

    def write(self, parameters: Mapping[str, Tensor], path: Path, run_id: str, step: int, **options: Any) -> Path:
        """Write the model."""
        return gguf.write(self.config, parameters, path, run_id, step, **options)

    def beside(self, parameters: Mapping[str, Tensor], type: str) -> Mapping[str, Tensor]:
        """A lens and the table behind it; below f32 everything."""
        return gguf.unfolded(parameters) if type == "f32" else parameters

    def size(self, parameters: Iterable[Tensor], type: str) -> float:
        """Bytes of the tensors."""
        return sum(stored_bytes(tensor, type) for tensor in parameters)


def stored_bytes(tensor: Tensor, type: str) -> float:
    """Bytes of a tensor in a file; vectors are always stored in full."""
    return tensor.numel() * (_NUMBER_BYTES[type] if tensor.ndim >= 2 else _NUMBER_BYTES["f32"])


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint with the lowest held-out loss so far; `best` points at it.

    Where so little is held out that differences are noise, it is the latest of those no worse than noise makes them.

    - `lowest`: the lowest held-out loss so far, if that is another checkpoint's.
    """

    step: int
    loss: float
    lowest: float | None = None

    def or_later(self, step: int, loss: float, margin: float) -> BestCheckpoint:
        """This one, or a later one that is better, or worse by no more than a margin than any was."""
        lowest = self.loss if self.lowest is None else self.lowest
        if loss < lowest + margin:
            return BestCheckpoint(step, loss, lowest if lowest < loss else None)
        return self


class CheckpointError(LinnetError):
    """A checkpoint did not reach the disk."""


class Checkpointer:
    """Writes `weights/step_<N>.gguf` and `state/step_<N>.safetensors`, moves `latest` and `best`, removes old ones.

    - `keep`: how many checkpoints stay besides the best one; 0: all.
    - `file_type`: how the weights are stored; below f32 the state holds them exactly too.
    - `best`: the best checkpoint of the sessions before.

    The state is written before the weights it belongs to, so weights with a name always have a state, or had one.
    """

    def __init__(
        self,
        run: RunBundle,
        weights_format: WeightsFormat,
        tokenizer: gguf.MetadataBlock | None,
        *,
        keep: int,
        file_type: str,
        best: BestCheckpoint | None = None,
    ) -> None:
        self._run, self._format, self._tokenizer = run, weights_format, tokenizer
        self._keep, self._type, self._best = keep, file_type, best
        self._own_files: set[Path] = set()
        self.latest: Path | None = None
        self.failure: LinnetError | None = None
        self._written: queue.SimpleQueue[tuple[int, Path]] = queue.SimpleQueue()
        self._snapshots: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        # One copy at a time: on a GPU it takes as much memory as weights and moments do.
        self._idle = threading.Semaphore(1)
        self._thread = threading.Thread(target=self._write_all, name="linnet-checkpoint", daemon=True)
        self._thread.start()

    def save(
        self,
        step: int,
        parameters: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        facts: dict[str, Any],
        provenance: gguf.Provenance,
        stream: MomentStream | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Copy everything now; it is written while training goes on. Waits only while the last one is being written.

        - `stream`: by which moments come from other ranks, or go to rank 0.
        - `last`: nothing trains any more, so what the host's memory holds is written from where it is.
        """
        self._idle.acquire()
        try:
            snapshot_of = TensorsInPlace if last and not _on_a_gpu(moments, parameters) else copy_tensors
            snapshot = Snapshot(step, snapshot_of(parameters), snapshot_of(moments), facts, provenance, stream)
        except BaseException:
            self._idle.release()
            raise
        self._snapshots.put(snapshot)

    @property
    def best_file(self) -> Path | None:
        """The checkpoint that `best` means; None where none was evaluated, or it is gone."""
        path = None if self._best is None else step_path(self._run.weights_dir, self._best.step)
        return path if path is not None and path.is_file() else None

    def written(self) -> list[tuple[int, Path]]:
        """Step and file of the checkpoints that reached the disk since the last call."""
        return [self._written.get() for _ in range(self._written.qsize())]

    def close(self) -> None:
        """Wait until everything is written, and end the thread."""
        self._snapshots.put(None)
        self._thread.join()

    def repair(self, step: int, train_loss: float | None, validation_loss: float | None) -> None:
        """Complete what a kill between the weights of a checkpoint and its event left undone.

        Called before training goes on from it, while nothing is being written.
        """
        path = step_path(self._run.weights_dir, step)
        self.latest = path
        state.remove_leftovers(self._run.run_dir)
        sweep(path.parent)  # the next checkpoint would; after the last one there is none
        self._link("latest", path)
        if self._best is not None and self._best.step == step:
            self._link("best", path)
        self._remove_old(step)
        if checkpoint_event(self._run.run_dir, step) is None:
            self._log(path, step, train_loss, validation_loss)

    def _write_all(self) -> None:
        while (snapshot := self._snapshots.get()) is not None:
            try:
                try:
                    self._write(snapshot)
                finally:
                    if snapshot.stream is not None:
                        snapshot.stream.drain()
                self.failure = None
            except Exception as error:  # training goes on; were this thread to end, the next `save` would wait for ever
                self._fail(snapshot.step, error)
            del snapshot  # else its memory is held until the next one
            self._idle.release()

    def _fail(self, step: int, error: Exception) -> None:
        failure = CheckpointError(
            f"checkpoint of step {step} was not written: {error_text(error) or type(error).__name__}"
        )
        log.warning("run %s: %s", self._run.run_id, failure)
        self.failure = error if isinstance(error, RankError) else failure

    def _write(self, snapshot: Snapshot) -> None:
        step, origin = snapshot.step, snapshot.provenance
        loss, best = snapshot.facts.get("compared_loss"), self._best
        if loss is not None and math.isfinite(loss):
            margin = snapshot.facts.get("loss_margin", 0.0)
            best = BestCheckpoint(step, loss) if best is None else best.or_later(step, loss, margin)
        parameters = snapshot.parameters.on_host()
        beside = self._format.beside(parameters, self._type)
        facts = {**snapshot.facts, "best": None if best is None else asdict(best)}
        state_file = state.state_path(self._run.run_dir, step)
        moments = snapshot.moments.on_host()
        streamed = {} if snapshot.stream is None else snapshot.stream.tensors(moments)
        state.save(state_file, state.State(facts, moments, beside), streamed)
        path = step_path(self._run.weights_dir, step)
        options: dict[str, Any] = {"type": self._type, "tokenizer": self._tokenizer, "provenance": origin}
        try:
            self._format.write(parameters, path, self._run.run_id, step, **options)
        except BaseException:
            state_file.unlink(missing_ok=True)  # nothing can go on from it, and on a full disk it is in the way
            raise
        self.latest, self._best = path, best
        self._own_files.add(path)
        self._link("latest", path)
        if best is not None and best.step == step:
            self._link("best", path)
        self._log(path, step, origin.train_loss, origin.validation_loss)
        self._written.put((step, path))
        self._remove_old(step)

    def _link(self, name: str, path: Path) -> None:
        """Let `latest` or `best` mean a checkpoint. One that cannot be moved costs a warning; the weights are safe."""
        try:
            point_link(self._run.weights_dir / name, path.name)
        except FileError as error:
            log.warning("run %s: %s", self._run.run_id, error)

    def _log(self, path: Path, step: int, train_loss: float | None, validation_loss: float | None) -> None:
        losses = {"train_loss": train_loss, "validation_loss": validation_loss}
        self._run.checkpoint(path, step, sha256=sha256_of(path), **losses)

    def _remove_old(self, newest: int) -> None:
        state.remove_other_states(self._run.run_dir, keep=newest)
        if self._keep <= 0:
            return
        weights = self._run.weights_dir
        best = link_target(weights / "best")
        own = [path for step, path in step_files(weights) if self._is_own(path, step)]
        for path in own[: -self._keep]:
            if path.name != best:
                path.unlink(missing_ok=True)
                self._own_files.discard(path)

    def _is_own(self, path: Path, step: int) -> bool:
        """Was this file written by this run, in this session or an earlier one? Nothing else is ever removed."""
        if path not in self._own_files and not path.is_symlink():
            try:
                with gguf.GGUFFile.open(path) as file:
                    origin = (file.metadata.get("general.run_id"), file.metadata.get("general.step"))
            except gguf.GGUFError:
                return False
            if origin == (self._run.run_id, step):
                self._own_files.add(path)
        return path in self._own_files


class SilentCheckpointer(Checkpointer):
    """That of the other ranks: rank 0 writes. Their share of the moments, which only they have, a thread sends."""

    def save(
        self,
        step: int,
        parameters: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        facts: dict[str, Any],
        provenance: gguf.Provenance,
        stream: MomentStream | None = None,
        *,
        last: bool = False,
    ) -> None:
        """Copy this rank's share of the moments, if they are shared out."""
        if stream is not None:
            super().save(step, {}, stream.of_this_rank(moments), facts, provenance, stream, last=last)

    def repair(self, step: int, train_loss: float | None, validation_loss: float | None) -> None:
        """Rank 0 does."""

    def _fail(self, step: int, error: Exception) -> None:
        # Nothing was to be written here. What ends the run is told by the loop, in one line and by one rank.
        self.failure = (
            error if isinstance(error, LinnetError) else RankError(f"{type(error).__name__}: {error_text(error)}")
        )

    def _write(self, snapshot: Snapshot) -> None:
        assert snapshot.stream is not None
        snapshot.stream.send(snapshot.moments.on_host())


def checkpoint_event(run_dir: Path, step: int) -> dict[str, Any] | None:
    """The newest `checkpoint` event of a step; None where the writer was killed before it could be written."""
    stream = EventStream(run_dir / "events.jsonl")
    events = stream.last(1, lambda event: event.kind == "checkpoint" and event.step == step)
    return events[0].data if events else None
