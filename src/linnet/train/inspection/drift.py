"""`DriftFigures`: how far each tensor is from where it began, by distance and by angle, its heads and its tokens too.

Shapes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from linnet.train.inspection.late_events import EventRow, Look
from linnet.train.inspection.pieces import PieceTable, TensorPiece, is_stacked, l2_of
from linnet.train.inspection.row_sums import Distances, RowTable
from linnet.train.process import threads

EMBEDDING = "token_embd.weight"
CORRELATION = "drift/token_frequency"  # the metric: Pearson's r of a token's log frequency and its cosine
_TOKENS = 256  # that are told of one by one
_PENDING = 1 << 18  # tokens that wait to be counted
_FIGURES = (("cos_to_init", 0), ("l2_to_init", 0))


def drift_rows(piece: TensorPiece) -> list[EventRow]:
    """The events of a tensor: the whole, then each head."""
    known = {"param": piece.tensor}
    of_heads = [EventRow("drift", {**known, "head": head}, _FIGURES) for head in range(piece.heads)]
    return [EventRow("drift", known, _FIGURES), *of_heads]


def drift_figures(piece: TensorPiece, now: Tensor, first: Tensor) -> Tensor:
    """[2]: cosine and distance of a tensor."""
    return _cosine_and_distance(piece.of(now).reshape(1, -1), piece.of(first).reshape(1, -1))[0]


def _cosine_and_distance(now_RM: Tensor, first_RM: Tensor) -> Tensor:
    """[R, 2]."""
    cosine_R = _cosine(torch.linalg.vecdot(now_RM, first_RM), l2_of(now_RM, 1), l2_of(first_RM, 1))
    return torch.stack((cosine_R, l2_of(now_RM - first_RM, 1)), 1)


def _cosine(dot: Tensor, norm: Tensor, first_norm: Tensor) -> Tensor:
    """0 where either norm is."""
    norms = norm * first_norm
    return torch.where(norms > 0, dot / norms, 0.0).clamp(-1, 1)


class DriftFigures:
    """Looks at the weights after a step.

    - `first`: their first values by the names of the parameters, on the same device.
    - `stacked`: are tensors of one shape looked at in one go? None: but on a CPU.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        pieces: Iterable[TensorPiece],
        first: Mapping[str, Tensor],
        *,
        stacked: bool | None = None,
    ) -> None:
        self._parameters, self._first = parameters, first
        self._trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        trained_pieces = [piece for piece in pieces if piece.parameter in self._trained]
        self._rows = [row for piece in trained_pieces for row in drift_rows(piece)]
        self._stacked = is_stacked(parameters) if stacked is None else stacked
        if self._stacked:
            self._table = PieceTable(trained_pieces, parameters)
        else:
            self._by_row = RowTable(trained_pieces, parameters)
            self._distances: Distances | None = None
        self._first_norm_R: Tensor | None = None
        self._log_spaced_K: Tensor | None = None  # places of the tokens that are told of

    @torch.no_grad()
    def look(self, counts_V: Tensor | None = None) -> Look:
        """Every tensor; with counts also tokens of the embedding, and how their drift goes with their frequency."""
        with threads(1):
            return self._look(counts_V)

    def _look(self, counts_V: Tensor | None) -> Look:
        of_tensors, of_tokens_V2 = self._of_tensors() if self._stacked else self._of_rows()
        values = [of_tensors]
        if counts_V is None or EMBEDDING not in self._trained:
            return self._rows, values
        counts_V = counts_V.to(self._first[EMBEDDING].device)
        if of_tokens_V2 is None:
            of_tokens_V2 = _cosine_and_distance(self._parameters[EMBEDDING].detach(), self._first[EMBEDDING])
        if self._log_spaced_K is None:
            self._log_spaced_K = log_spaced(len(counts_V)).to(counts_V.device)
        tokens_K = by_frequency(counts_V)[self._log_spaced_K]
        freq_K = counts_V[tokens_K].float()
        values.append(torch.cat((torch.stack((tokens_K.float(), freq_K), 1), of_tokens_V2[tokens_K]), 1))
        values.append(frequency_correlation(counts_V, of_tokens_V2[:, 0]))
        of_tokens = [EventRow("drift", {"param": EMBEDDING}, (("token_id", 0), ("freq", 0), *_FIGURES))] * len(tokens_K)
        return [*self._rows, *of_tokens, EventRow("scalars", {}, ((CORRELATION, 0),))], values

    def _of_rows(self) -> tuple[Tensor, Tensor | None]:
        """[R · 2]: cosine and distance of tensors and heads; of each token [V, 2]."""
        if self._distances is None:
            self._distances = Distances(self._by_row, self._first)
        figures_R2, of_rows_N2 = self._distances.figures(self._parameters, _cosine)
        if EMBEDDING not in self._trained:
            return figures_R2.flatten(), None
        start = self._by_row.starts[EMBEDDING]
        return figures_R2.flatten(), of_rows_N2[start : start + len(self._parameters[EMBEDDING])]

    def _of_tensors(self) -> tuple[Tensor, None]:
        """[R · 2]: the same of many tensors in one go."""
        table = self._table
        norms, dots, distances = [], [], []
        if self._first_norm_R is None:
            self._first_norm_R = table.by_row([l2_of(before, 2) for before in table.parts(self._first)], l2_of)
        for now_PHM, first_PHM in zip(table.parts(self._parameters), table.parts(self._first), strict=True):
            norms.append(l2_of(now_PHM, 2))
            dots.append(torch.linalg.vecdot(now_PHM, first_PHM))
            distances.append(l2_of(now_PHM - first_PHM, 2))
        cosine_R = _cosine(table.by_row(dots, torch.sum), table.by_row(norms, l2_of), self._first_norm_R)
        return torch.stack((cosine_R, table.by_row(distances, l2_of)), 1).flatten(), None


def by_frequency(counts_V: Tensor) -> Tensor:
    """[V]: the tokens, from the most frequent on."""
    return torch.argsort(counts_V, descending=True, stable=True)


def log_spaced(count: int) -> Tensor:
    """[K]: at most 256 places among so many, the first and the last with them, at nearly equal ratios.

    By them tokens are told of one by one: all of the most frequent, fewer farther back.
    """
    if count <= _TOKENS:
        return torch.arange(count)
    finer = (np.unique(np.geomspace(1, count, n).round().astype(np.int64)) for n in range(4 * _TOKENS, 0, -1))
    return torch.from_numpy(next(ranks for ranks in finer if len(ranks) <= _TOKENS) - 1)


def frequency_correlation(counts_V: Tensor, cosines_V: Tensor) -> Tensor:
    """Pearson's r of the logarithm of a token's count and the cosine of its row, over the tokens that came."""
    came_V = (counts_V > 0).float()
    pair_V2 = torch.stack((counts_V.clamp(min=1).log(), cosines_V), 1)
    centred_V2 = (pair_V2 - (pair_V2 * came_V[:, None]).sum(0) / came_V.sum()) * came_V[:, None]
    norms_2 = torch.linalg.vector_norm(centred_V2, dim=0)
    correlation: Tensor = (centred_V2[:, 0] @ centred_V2[:, 1]) / norms_2.prod()
    return correlation


class TokenCounts:
    """How often each token was trained on: the inputs of every step, some steps at a time.

    `kept`: what an earlier session has counted.
    """

    def __init__(self, vocab: int, device: torch.device, kept: Tensor | None = None) -> None:
        at = device if device.type in ("cpu", "cuda") else torch.device("cpu")  # Metal adds no int64
        self._counts_V = torch.zeros(vocab, dtype=torch.int64, device=at)
        if kept is not None and kept.numel() == 2 * vocab:
            self._counts_V.copy_(kept.contiguous().view(torch.int64).reshape(-1))
        self._pending: list[Tensor] = []

    def add(self, ids_BT: Tensor) -> None:
        """A step's inputs."""
        self._pending.append(ids_BT)
        if sum(ids.numel() for ids in self._pending) >= _PENDING:
            self._count()

    def now(self) -> Tensor:
        """[V], on the device."""
        self._count()
        return self._counts_V

    def kept(self) -> Tensor:
        """[V, 2]: the same for a state, whose tensors are float32: the bits of the counts."""
        self._count()
        return self._counts_V.view(torch.float32).reshape(-1, 2)

    def _count(self) -> None:
        for ids in self._pending:
            flat = ids.reshape(-1).to(self._counts_V.device)
            self._counts_V.scatter_add_(0, flat, torch.ones_like(flat))
        self._pending = []
