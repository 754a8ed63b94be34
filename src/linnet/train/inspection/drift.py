"""`DriftFigures`: how far each tensor is from where it began, by distance and by angle, its heads and its tokens too.

Shapes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from linnet.train.inspection.cpu_sums import Scratch, Sums, distance_sums, signed_heads, square_sums
from linnet.train.inspection.late_events import EventRow, Look
from linnet.train.inspection.pieces import PieceTable, TensorPiece, is_stacked, l2_of
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


def _cosine_and_distance(now_RM: Tensor, first_RM: Tensor, first_norm_R: Tensor | None = None) -> Tensor:
    """[R, 2]."""
    first_norm_R = l2_of(first_RM, 1) if first_norm_R is None else first_norm_R
    cosine_R = _cosine(torch.linalg.vecdot(now_RM, first_RM), l2_of(now_RM, 1), first_norm_R)
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
        self._pieces = [(piece, signed_heads(piece.heads, by_columns=piece.by_columns)) for piece in trained_pieces]
        self._table = PieceTable(trained_pieces, parameters) if self._stacked else None
        self._first_norm_R: Tensor | None = None
        self._first_norm_V: Tensor | None = None  # of tokens
        self._log_spaced_K: Tensor | None = None  # places of the tokens that are told of

    @torch.no_grad()
    def look(self, counts_V: Tensor | None = None) -> Look:
        """Every tensor; with counts also tokens of the embedding, and how their drift goes with their frequency."""
        with threads(1):
            return self._look(counts_V)

    def _look(self, counts_V: Tensor | None) -> Look:
        values = [self._of_tensors_one_by_one() if self._table is None else self._of_tensors(self._table)]
        if counts_V is None or EMBEDDING not in self._trained:
            return self._rows, values
        counts_V = counts_V.to(self._first[EMBEDDING].device)
        first_VD = self._first[EMBEDDING]
        if self._first_norm_V is None:
            self._first_norm_V = l2_of(first_VD, 1)
        of_tokens_V2 = _cosine_and_distance(self._parameters[EMBEDDING].detach(), first_VD, self._first_norm_V)
        if self._log_spaced_K is None:
            self._log_spaced_K = log_spaced(len(counts_V)).to(counts_V.device)
        tokens_K = by_frequency(counts_V)[self._log_spaced_K]
        freq_K = counts_V[tokens_K].float()
        values.append(torch.cat((torch.stack((tokens_K.float(), freq_K), 1), of_tokens_V2[tokens_K]), 1))
        values.append(frequency_correlation(counts_V, of_tokens_V2[:, 0]))
        of_tokens = [EventRow("drift", {"param": EMBEDDING}, (("token_id", 0), ("freq", 0), *_FIGURES))] * len(tokens_K)
        return [*self._rows, *of_tokens, EventRow("scalars", {}, ((CORRELATION, 0),))], values

    def _of_tensors_one_by_one(self) -> Tensor:
        """[R · 2]: cosine and distance row by row."""
        pairs = [
            (piece.of(self._parameters[piece.parameter].detach()), piece.of(self._first[piece.parameter]), heads)
            for piece, heads in self._pieces
        ]
        scratch = Scratch([now for now, _, _ in pairs], [heads for _, _, heads in pairs])
        if self._first_norm_R is None:
            own = [square_sums(first, heads, scratch) for _, first, heads in pairs]
            self._first_norm_R = torch.tensor([of_row for of_rows in own for of_row in of_rows]).sqrt()
        columns: tuple[Sums, Sums, Sums] = ([], [], [])
        for now, first, heads in pairs:
            for column, of_rows in zip(columns, distance_sums(now, first, heads, scratch), strict=True):
                column += of_rows
        dot_R, square_R, distance_R = torch.tensor(columns)
        return torch.stack((_cosine(dot_R, square_R.sqrt(), self._first_norm_R), distance_R.sqrt()), 1).flatten()

    def _of_tensors(self, table: PieceTable) -> Tensor:
        """The same, of many tensors in one go."""
        norms, dots, distances = [], [], []
        if self._first_norm_R is None:
            self._first_norm_R = table.by_row([l2_of(before, 2) for before in table.parts(self._first)], l2_of)
        for now_PHM, first_PHM in zip(table.parts(self._parameters), table.parts(self._first), strict=True):
            norms.append(l2_of(now_PHM, 2))
            dots.append(torch.linalg.vecdot(now_PHM, first_PHM))
            distances.append(l2_of(now_PHM - first_PHM, 2))
        cosine_R = _cosine(table.by_row(dots, torch.sum), table.by_row(norms, l2_of), self._first_norm_R)
        return torch.stack((cosine_R, table.by_row(distances, l2_of)), 1).flatten()


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
