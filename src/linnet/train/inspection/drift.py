"""`DriftFigures`: how far each tensor is from where it began, by distance and by angle, its heads and its tokens too.

Shapes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linnet.train.inspection.late_events import EventRow
from linnet.train.inspection.pieces import TensorPiece, l2_of
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
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], pieces: Iterable[TensorPiece], first: Mapping[str, Tensor]
    ) -> None:
        self._parameters, self._first = parameters, first
        self._trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        told = [piece for piece in pieces if piece.parameter in self._trained]
        self._rows = [row for piece in told for row in drift_rows(piece)]
        self._pieces = sorted(told, key=lambda piece: piece.heads)
        self._order = _places(told, self._pieces)  # of the rows among those of the pieces as they are looked at
        self._first_norms: Tensor | None = None  # of each row, in its order

    @torch.no_grad()
    def look(self, counts: TokenCounts | None = None) -> tuple[list[EventRow], list[Tensor]]:
        """Every tensor; with `counts` also tokens of the embedding, and how their drift goes with their frequency."""
        with threads(1):
            return self._look(counts)

    def _look(self, counts: TokenCounts | None) -> tuple[list[EventRow], list[Tensor]]:
        values = [self._of_tensors()]
        if counts is None or EMBEDDING not in self._trained:
            return self._rows, values
        counts_V = counts.now().to(self._first[EMBEDDING].device)
        of_tokens_V2 = _cosine_and_distance(self._parameters[EMBEDDING].detach(), self._first[EMBEDDING])
        tokens_K = by_log_rank(counts_V)
        freq_K = counts_V[tokens_K].float()
        values.append(torch.cat((torch.stack((tokens_K.float(), freq_K), 1), of_tokens_V2[tokens_K]), 1))
        values.append(frequency_correlation(counts_V, of_tokens_V2[:, 0]))
        of_tokens = [EventRow("drift", {"param": EMBEDDING}, (("token_id", 0), ("freq", 0), *_FIGURES))] * len(tokens_K)
        return [*self._rows, *of_tokens, EventRow("scalars", {}, ((CORRELATION, 0),))], values

    def _of_tensors(self) -> Tensor:
        """[R · 2]: cosine and distance row by row. Parts of a tensor are looked at once, whatever they are told of."""
        now, first = (
            [_parts(piece, values[piece.parameter].detach()) for piece in self._pieces]
            for values in (self._parameters, self._first)
        )
        pairs = list(zip(now, first, strict=True))
        if self._first_norms is None:
            self._first_norms = self._by_row([l2_of(part, 1) for part in first], l2_of)
        dot_R = self._by_row([torch.linalg.vecdot(part, before) for part, before in pairs], torch.sum)
        norm_R = self._by_row([l2_of(part, 1) for part in now], l2_of)
        distance_R = self._by_row([l2_of(part - before, 1) for part, before in pairs], l2_of)
        figures_R2 = torch.stack((_cosine(dot_R, norm_R, self._first_norms), distance_R), 1)
        self._order = self._order.to(figures_R2.device)
        return figures_R2[self._order].flatten()

    def _by_row(self, parts: list[Tensor], total: Callable[[Tensor, int], Tensor]) -> Tensor:
        """[R]: of each tensor the total of its parts, then these. Tensors of as many heads are neighbours."""
        rows = []
        for heads, alike in groupby(zip(self._pieces, parts, strict=True), lambda pair: pair[0].heads):
            part_PH = torch.stack([part for _, part in alike])
            rows.append((torch.cat((total(part_PH, 1)[:, None], part_PH), 1) if heads else part_PH).flatten())
        return torch.cat(rows)


def _places(told: Iterable[TensorPiece], looked_at: Iterable[TensorPiece]) -> Tensor:
    """[R]: where the rows of the one order are in the other."""
    start, begins = 0, {}
    for piece in looked_at:
        begins[piece.tensor] = start
        start += 1 + piece.heads
    return torch.tensor(
        [begins[piece.tensor] + row for piece in told for row in range(1 + piece.heads)], dtype=torch.int64
    )


def _parts(piece: TensorPiece, parameter: Tensor) -> Tensor:
    """[parts, numbers of one]: its heads, or all of it."""
    return piece.by_head(parameter) if piece.heads else piece.of(parameter).reshape(1, -1)


def by_log_rank(counts_V: Tensor) -> Tensor:
    """[K]: the tokens that are told of one by one, from the most frequent on: all of the first, fewer farther back."""
    order_V = torch.argsort(counts_V, descending=True, stable=True)
    return order_V[torch.from_numpy(_log_spaced(len(counts_V))).to(order_V.device)]


@cache
def _log_spaced(count: int) -> NDArray[np.int64]:
    """At most 256 places among so many, the first and the last with them, at nearly equal ratios."""
    if count <= _TOKENS:
        return np.arange(count, dtype=np.int64)
    finer = (np.unique(np.geomspace(1, count, n).round().astype(np.int64)) for n in range(4 * _TOKENS, 0, -1))
    return next(ranks for ranks in finer if len(ranks) <= _TOKENS) - 1


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
