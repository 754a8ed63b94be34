"""Checkpoints of a run, and what is in their GGUF files."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.board.checkpoint_kind import checkpoint_commands, metadata_text
from linnet.board.web.answer_json import figure
from linnet.board.web.answers import (
    Checkpoint,
    CheckpointDetail,
    MetadataInfo,
    RequestError,
    TensorHistogram,
    TensorInfo,
)
from linnet.board.web.board import WebBoard
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.safe_store import open_inside
from linnet.board.words import plain, shorten
from linnet.files import link_target, step_of
from linnet.runs.folder import WEIGHTS

if TYPE_CHECKING:
    from linnet.gguf import GGUFFile

_BINS = 64
_SHOWN = 8  # values of an array
_LONGEST = 500  # characters of a value
_MOST_VALUES = 128 << 20  # of a tensor that is looked at
_MOST = 10_000


def checkpoints(board: WebBoard, run_id: str) -> list[Checkpoint]:
    """Those there are, the newest first."""
    with board.open_whole(run_id) as run:
        files = run.run.checkpoints()[-_MOST:]
        links = {name: link_target(run.run.path / WEIGHTS / name) for name in ("latest", "best")}
        return [_checkpoint(run, file, links, with_commands=file is files[-1]) for file in reversed(files)]


def checkpoint_detail(board: WebBoard, run_id: str, step: int) -> CheckpointDetail:
    """Metadata and tensors of a checkpoint."""
    with board.open_whole(run_id) as run:
        file = checkpoint_file(run, step)
        links = {name: link_target(run.run.path / WEIGHTS / name) for name in ("latest", "best")}
        checkpoint = _checkpoint(run, file, links, with_commands=True)
    with _opened(file) as gguf:
        metadata = [
            MetadataInfo(key, gguf.metadata.label(key), metadata_text(gguf.metadata, key, _LONGEST, _SHOWN, 100))
            for key in gguf.metadata
        ]
        tensors = [TensorInfo(t.name, list(t.shape), t.type.name.lower(), t.nbytes) for t in gguf.tensors.values()]
    return CheckpointDetail(checkpoint, metadata, tensors)


def tensor_histogram(board: WebBoard, run_id: str, step: int, name: str) -> TensorHistogram:
    """How the values of one tensor are spread."""
    with board.open(run_id) as run:
        file = checkpoint_file(run, step)
    with _opened(file) as gguf:
        tensor = gguf.tensors.get(name)
        if tensor is None:
            raise RequestError(404, f"there is no tensor {shorten(plain(name), 100)!r} in step {step}")
        if tensor.values > _MOST_VALUES:
            raise RequestError(413, f"the tensor has more than {_MOST_VALUES >> 20} million values")
        values = np.asarray(tensor.read(), dtype=np.float32).ravel()
    return _histogram(name, values)


def _histogram(name: str, values: np.ndarray[Any, np.dtype[np.float32]]) -> TensorHistogram:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return TensorHistogram(name, [], [], None, None, None, None, 0, len(values))
    low, high = float(finite.min()), float(finite.max())
    counts, edges = np.histogram(finite, bins=_BINS, range=(low, high if high > low else low + 1.0))
    return TensorHistogram(
        name=name,
        counts=counts.tolist(),
        edges=edges.astype(float).tolist(),
        mean=figure(float(finite.mean(dtype=np.float64))),
        std=figure(float(finite.std(dtype=np.float64))),
        min=figure(low),
        max=figure(high),
        zeros=int(np.count_nonzero(finite == 0.0)),
        nonfinite=len(values) - len(finite),
    )


def checkpoint_file(run: OpenRun, step: int | None) -> Path:
    """The checkpoint of a step, or the newest, in the run's folder and nowhere else."""
    files = run.run.checkpoints()
    file = next((file for file in reversed(files) if step is None or step_of(file) == step), None)
    if file is None:
        raise RequestError(404, "there is no checkpoint" if step is None else f"there is no checkpoint of step {step}")
    os.close(open_inside(run.run.path, file.relative_to(run.run.path)))
    return file


def _opened(file: Path) -> GGUFFile:
    from linnet.gguf import GGUFError, GGUFFile

    try:
        return GGUFFile.open(file)
    except GGUFError as error:
        raise RequestError(422, plain(f"{file.name} cannot be read: {error}")) from None


def _checkpoint(run: OpenRun, file: Path, links: dict[str, str], *, with_commands: bool) -> Checkpoint:
    event, step = run.journal.checkpoint(f"{WEIGHTS}/{file.name}"), step_of(file) or 0
    try:
        size = file.stat().st_size
    except OSError:
        size = 0
    return Checkpoint(
        step=step,
        path=f"{WEIGHTS}/{file.name}",
        bytes=size,
        train_loss=figure(_logged(run, "loss", step, event.get("train_loss"))),
        validation_loss=figure(_logged(run, "validation/loss", step, event.get("validation_loss"))),
        tokens=_tokens(run, step),
        best=links["best"] == file.name,
        latest=links["latest"] == file.name,
        commands=checkpoint_commands(run.run, file) if with_commands else [],
    )


def _logged(run: OpenRun, metric: str, step: int, written: object) -> float | None:
    """What the run had logged by that step, else what it said when it wrote the checkpoint."""
    series = run.history.series(metric)
    row = int(np.searchsorted(series.step, step, "right")) - 1 if series is not None and len(series) else -1
    if series is not None and row >= 0:
        return float(series.value[row])
    return float(written) if isinstance(written, int | float) else None


def _tokens(run: OpenRun, step: int) -> int | None:
    """Tokens seen by the end of a step."""
    tokens = run.history.series("tokens")
    if tokens is None or not len(tokens):
        return None
    rows = int(np.searchsorted(tokens.step, step, "right"))
    trained_on = float(np.nansum(tokens.value[:rows]))
    return int(trained_on) if math.isfinite(trained_on) and abs(trained_on) < 2**53 else None
