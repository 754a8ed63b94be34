"""Drift: how far each layer of a run moved from its first value, from checkpoint to checkpoint; and each token's row.

Shapes: L layers, S checkpoints, V vocabulary.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linnet.analysis.beginning import Beginning, weights_of
from linnet.analysis.checkpoint import Checkpoint, Model
from linnet.analysis.held_out import TOKENS, Progress, prepared_text, reading_of
from linnet.architectures import AnyConfig
from linnet.errors import LinnetError, UsageError
from linnet.files import step_files, step_of
from linnet.gguf import GGUFFile
from linnet.models.model_name import find_model, names_checkpoint
from linnet.runs import Run
from linnet.runs.folder import WEIGHTS
from linnet.train.inspection.drift import EMBEDDING, drift_figures, frequency_correlation
from linnet.train.inspection.pieces import TensorPiece, l2_of, tensor_pieces

_AFTER = ("output_norm", "output", "post_ln", "head")  # modules behind the last layer; what else is in none is before
_COUNTED = 1 << 24  # tokens of a corpus that are counted at a time
_PLACE = re.compile(r"^(v\.)?blk\.\d+\.")  # of a tensor in its file
_BINS = 8  # of tokens by their frequency


@dataclass(frozen=True)
class TensorDrift:
    """How far a tensor is from its first value.

    - `distance`: as a share of its first norm; NaN of one that was zero. `cosine`: of the two; `layer`: None of none.
    """

    tensor: str
    layer: int | None
    distance: float
    cosine: float


@dataclass(frozen=True)
class TokenBin:
    """Tokens that came about as often in the corpus: the mean drift of their rows."""

    tokens: int
    fewest: int
    most: int
    distance: float
    cosine: float


@dataclass(frozen=True)
class TokenDrift:
    """The drift of an embedding's rows against how often their tokens come in the run's corpus.

    `correlation`: Pearson's r of the logarithm of the count and the cosine, over the tokens that come at all.
    """

    correlation: float
    bins: tuple[TokenBin, ...]


@dataclass(frozen=True)
class Drift:
    """How far a run's weights are from where they began.

    - `origin`: what they are measured from; `steps`: of the checkpoints.
    - `layers`: what the rows are: what lies before the first layer, each layer, what lies behind the last.
    - `distances_LS`, `cosines_LS`: of all weights of a row taken together; a distance is a share of the first norm.
    - `tensors`: each tensor by itself, at the last of the steps. `tokens`: None where the corpus is not to be had.
    """

    run: str
    origin: str
    steps: tuple[int, ...]
    layers: tuple[str, ...]
    distances_LS: NDArray[np.float64]
    cosines_LS: NDArray[np.float64]
    tensors: tuple[TensorDrift, ...]
    tokens: TokenDrift | None

    def table(self) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.float64]]:
        """The tensors of the layers as a table: the layers, the kinds of tensor, their distances."""
        inside = [drift for drift in self.tensors if drift.layer is not None]
        kinds = tuple(dict.fromkeys(_kind(drift) for drift in inside))
        layers = sorted({drift.layer for drift in inside if drift.layer is not None})
        values = np.full((len(layers), len(kinds)), np.nan)
        for drift in inside:
            assert drift.layer is not None
            values[layers.index(drift.layer), kinds.index(_kind(drift))] = drift.distance
        return tuple(map(str, layers)), kinds, values

    def as_fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        tokens = self.tokens
        return {
            "run": self.run,
            "origin": self.origin,
            "steps": self.steps,
            "layers": self.layers,
            "distance": self.distances_LS.tolist(),
            "cosine": self.cosines_LS.tolist(),
            "tensors": [vars(drift) for drift in self.tensors],
            "tokens": None
            if tokens is None
            else {"correlation": tokens.correlation, "bins": [vars(part) for part in tokens.bins]},
        }


def drift(
    run: Model,
    *,
    cache: Path | None = None,
    runs: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Drift:
    """How far each layer of a run moved from its first value, over the checkpoints there are.

    moved = linnet.analysis.drift("warm")
    moved.distances_LS[:, -1]                 # of each layer, at the last checkpoint

    - `run`: a RUN, over all its checkpoints; `RUN@200`: that one alone.
    - The first value is that of the seed, of the donor or the base (which must still be there, unless the run was
      trained with `inspect=drift`), or of the checkpoint that a fork began with.
    - Of an adapter's run the base is compared with the base and the adapter.
    """
    path = find_model(run, runs, of_run="latest")
    folder = path.parent.parent
    if path.parent.name != WEIGHTS or step_of(path) is None:
        raise UsageError(f"{path} is no checkpoint of a run, so nobody knows where it began: give a RUN or RUN@200")
    opened = Run.load(folder)
    is_one = not isinstance(run, Run) and (names_checkpoint(os.fspath(run)) or os.fspath(run).endswith(".gguf"))
    files = [(step, file) for step, file in step_files(folder / WEIGHTS) if not is_one or file == path]
    beginning = Beginning.of(opened)
    newest = Checkpoint(path, opened, step_of(path))
    config = newest.config
    files = [(step, file) for step, file in files if step > beginning.step or beginning.step == 0]
    if not files:
        raise UsageError(
            f"run {opened.id} has one checkpoint, and what came before it is gone: there is no way to measure"
        )
    first = beginning.weights
    layers = _layer_names(config.n_layers)
    distances, cosines = np.full((2, len(layers), len(files)), np.nan)
    tensors: list[TensorDrift] = []
    now: Mapping[str, Tensor] = {}
    for column, (_, checkpoint) in enumerate(files):
        now = weights_of(checkpoint)
        pieces = _pieces(config, now, first)
        distances[:, column], cosines[:, column] = _by_layer(pieces, now, first, len(layers))
        tensors = [_tensor_drift(piece, now, first) for piece in pieces]
        if progress is not None:
            progress("checkpoints", column + 1, len(files))
    tokens = None
    if EMBEDDING in first and not torch.equal(now[EMBEDDING], first[EMBEDDING]):
        counts_V = _counts(opened, newest.files.model, len(now[EMBEDDING]), cache, progress)
        tokens = None if counts_V is None else token_drift(counts_V, now[EMBEDDING], first[EMBEDDING])
    steps = tuple(step for step, _ in files)
    return Drift(opened.id, beginning.origin, steps, layers, distances, cosines, tuple(tensors), tokens)


def _layer_names(count: int) -> tuple[str, ...]:
    return ("embedding", *map(str, range(count)), "head")


def _row_of(piece: TensorPiece, rows: int) -> int:
    if piece.layer >= 0:
        return piece.layer + 1
    return rows - 1 if piece.parameter.split(".")[0] in _AFTER else 0


def _kind(drift: TensorDrift) -> str:
    """`attn_q` of `blk.3.attn_q.weight`; a bias keeps its name."""
    return _PLACE.sub("", drift.tensor).removesuffix(".weight")


def _pieces(config: AnyConfig, now: Mapping[str, Tensor], first: Mapping[str, Tensor]) -> list[TensorPiece]:
    """The tensors that both have, of the same shape."""
    named = [(name, tensor) for name, tensor in now.items() if name in first and first[name].shape == tensor.shape]
    return tensor_pieces(config, named)


def _tensor_drift(piece: TensorPiece, now: Mapping[str, Tensor], first: Mapping[str, Tensor]) -> TensorDrift:
    cosine, distance = drift_figures(piece, now[piece.parameter], first[piece.parameter]).tolist()
    norm = float(l2_of(piece.of(first[piece.parameter])))
    layer = piece.layer if piece.layer >= 0 else None
    return TensorDrift(piece.tensor, layer, distance / norm if norm > 0 else float("nan"), cosine)


def _by_layer(
    pieces: Sequence[TensorPiece], now: Mapping[str, Tensor], first: Mapping[str, Tensor], rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distance and cosine of all weights of each row, as if they were one vector."""
    sums = np.zeros((4, rows))  # squares of the difference, of the first values, of those now; products of the two
    for piece in pieces:
        a, b = (piece.of(weights[piece.parameter]).double() for weights in (first, now))
        figures = ((b - a).square().sum(), a.square().sum(), b.square().sum(), (a * b).sum())
        sums[:, _row_of(piece, rows)] += [float(figure) for figure in figures]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(sums[0] / sums[1]), sums[3] / np.sqrt(sums[1] * sums[2])


def token_drift(counts_V: Tensor, now_VD: Tensor, first_VD: Tensor) -> TokenDrift | None:
    """How the drift of a token's row goes with how often the token came; None where the rows are of another width."""
    if first_VD.shape != now_VD.shape:
        return None
    norms = l2_of(first_VD, 1)
    distance_V = torch.where(norms > 0, l2_of(now_VD - first_VD, 1) / norms, torch.nan)
    cosine_V = torch.nn.functional.cosine_similarity(now_VD, first_VD, dim=1)
    correlation = float(frequency_correlation(counts_V, cosine_V))
    order = torch.argsort(counts_V, descending=True, stable=True)
    came = int((counts_V > 0).sum())
    # Eight bins of the tokens that came, each twice as large as the one before; the rest in one.
    edges = sorted({0, came, len(order), *(round(came * (2**k - 1) / (2**_BINS - 1)) for k in range(1, _BINS))})
    bins = []
    for begin, end in pairwise(edges):
        part = order[begin:end]
        of_part = counts_V[part]
        figures = float(distance_V[part].nanmean()), float(cosine_V[part].mean())
        bins.append(TokenBin(len(part), int(of_part.min()), int(of_part.max()), *figures))
    return TokenDrift(correlation, tuple(bins))


def _counts(run: Run, model: Path, vocab: int, cache: Path | None, progress: Progress | None) -> Tensor | None:
    """[V]: how often each token comes in what the run was trained on."""
    own = run.config
    with GGUFFile.open(model) as file:
        has_tokens = TOKENS in file.metadata
    if not isinstance(own.get("corpus"), str) or not has_tokens:
        return None
    options = {"held_out": float(own.get("held_out", 0.02)), **reading_of(own, ())}
    options |= {"cache": cache or own.get("cache"), "progress": progress}
    try:
        prepared = prepared_text(own["corpus"], model, None, own, options)
    except (LinnetError, OSError):
        return None
    tokens, counts = prepared.train.tokens, np.zeros(vocab, np.int64)
    for begin in range(0, len(tokens), _COUNTED):
        ids = np.asarray(tokens[begin : begin + _COUNTED]) % prepared.vocab
        counts += np.bincount(ids[ids < vocab], minlength=vocab)
    return torch.from_numpy(counts)
