"""`Taps`: figures of the activations of a pass, region by region, in one go over each.

Shapes: R regions of one shape, N tokens of all sequences, D width, H heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.models.observation import CKA_REGIONS, Activations, Attention, Observer, Region, observe
from linnet.train.inspection.late_events import EventRow, Look
from linnet.train.inspection.pieces import l2_of
from linnet.train.process import threads
from linnet.train.state import DTYPES

BINS = 32
SMALL = 1e-6  # smaller numbers count as zeros
_TAIL = 5.0  # standard deviations round the mean that a histogram shows; what lies beyond is in its outer bins
_RANKED = 256  # tokens, evenly spaced, whose effective rank is taken
LOGIT_TOKENS = 128  # likewise, whose logits are made
_DEAD = 1e-3  # times the layer's root mean square: a unit that never comes above that does nothing
MOST_TOKENS = 1024  # of a batch, that are looked at; one whole sequence at least
_SCORES = 1 << 20  # attention scores of a layer whose entropy is taken: of queries that are evenly spaced
STACKED_BYTES = 64 << 20  # of activations that wait on a GPU to be looked at together: a capture keeps many times that
_PROBE, _PROBE_BYTES, _GRAM_DIGITS = 32, 256 << 10, 7  # tokens of a Gram matrix, all of them in the stream, a number

_FIGURES = (
    *(("mean", 0), ("std", 0), ("l2", 0), ("abs_mean", 0), ("min", 0), ("max", 0), ("sparsity", 0), ("nan_count", 0)),
    *(("edges", 2), ("histogram", BINS), ("effective_rank", 0)),
)


class Taps(Observer):
    """Takes the figures of every region of a pass; `rows` and `values` are what it found.

    - `stacked`: are regions of one shape looked at in one go, without a question to the device? None: on a GPU.
    """

    def __init__(self, *, stacked: bool | None = None) -> None:
        self._stacked = stacked
        self.rows: list[EventRow] = []
        self.values: list[Tensor] = []
        self._waiting: dict[tuple[torch.Size, torch.dtype], list[tuple[Region, Tensor]]] = {}
        self._entropies: dict[int, Tensor] = {}

    def activation(self, region: Region, x: Tensor) -> None:
        """Look at it now; on a GPU with others of its shape, since there each operation costs its launch."""
        x = x.detach()
        key = (x.shape, x.dtype)
        waiting = self._waiting.setdefault(key, [])
        waiting.append((region, x))
        stacked = x.is_cuda if self._stacked is None else self._stacked
        if not stacked or len(waiting) * x.nbytes > STACKED_BYTES:
            self._look(self._waiting.pop(key))

    def attention(self, layer: int, attention: Attention) -> None:
        """The entropy of each head, told with what attention puts out."""
        with threads(1):
            self._entropies[layer] = entropies(attention)

    def finish(self) -> None:
        """Look at what is waiting still."""
        for waiting in self._waiting.values():
            self._look(waiting)
        self._waiting.clear()

    @torch.no_grad()
    def _look(self, waiting: list[tuple[Region, Tensor]]) -> None:
        """Figures of activations of one shape, a row each."""
        with threads(1):  # a second one would be waited for at each of a thousand small operations
            self._look_at(waiting)

    def _look_at(self, waiting: list[tuple[Region, Tensor]]) -> None:
        shape = waiting[0][1].shape
        heads = shape[1] if len(shape) == 4 else 0
        x_RND = torch.stack([_by_token(x) for _, x in waiting]) if len(waiting) > 1 else _by_token(waiting[0][1])[None]
        figures_RF = figures(x_RND, stacked=x_RND.is_cuda if self._stacked is None else self._stacked)
        by_head_RH = _by_head_l2(x_RND, heads) if heads else None
        dead_R = dead_shares(x_RND) if any(region.name == "ffn_act" for region, _ in waiting) else None
        dtype = DTYPES.get(waiting[0][1].dtype, "F32").lower()
        for number, (region, _) in enumerate(waiting):
            names, values = list(_FIGURES), [figures_RF[number]]
            if by_head_RH is not None:
                names.append(("per_head_l2", heads))
                values.append(by_head_RH[number])
            if dead_R is not None and region.name == "ffn_act":
                names.append(("dead", 0))
                values.append(dead_R[number])
            if region.name == "attn_out" and (entropy := self._entropies.pop(region.layer or 0, None)) is not None:
                names.append(("entropy", len(entropy)))
                values.append(entropy)
            known = {"region": region.name, "layer": region.layer, "head": None, "dtype": dtype}
            self.rows.append(EventRow("tap", {**known, "shape": [x_RND.shape[2], x_RND.shape[1]]}, tuple(names)))
            self.values += values


def _by_token(x: Tensor) -> Tensor:
    """[N, D] in float32, heads side by side; of logits and classes [B, K] as they are."""
    if x.ndim == 4:
        x = x.transpose(1, 2).flatten(2)
    return x.float().reshape(-1, x.shape[-1])


def figures(x_RND: Tensor, *, stacked: bool) -> Tensor:
    """[R, F]: the figures of `_FIGURES`; a region with a number that is not finite has no histogram and no rank."""
    flat_RM = x_RND.flatten(1)
    least_R, most_R = flat_RM.amin(1), flat_RM.amax(1)  # aminmax takes twenty times as long on a CPU
    mean_R, size_RM = flat_RM.mean(1), flat_RM.abs()
    std_R = l2_of(flat_RM - mean_R[:, None], 1) / flat_RM.shape[1] ** 0.5
    size_R = size_RM.mean(1)
    if not stacked and size_R.isfinite().all():  # a sum of them all says it, where asking is free
        nonfinite_R = torch.zeros_like(size_R)
    else:
        nonfinite_R = torch.isfinite(flat_RM).logical_not().sum(1).float()
    low_R = torch.maximum(least_R, mean_R - _TAIL * std_R)
    high_R = torch.minimum(most_R, mean_R + _TAIL * std_R)
    columns = (
        *(mean_R, std_R, l2_of(flat_RM, 1), size_R, least_R, most_R),
        *((size_RM < SMALL).sum(1) / flat_RM.shape[1], nonfinite_R, low_R, high_R),
    )
    counts_RB = histograms(flat_RM, low_R, high_R, stacked=stacked)
    return torch.cat([torch.stack(columns, 1), counts_RB, effective_rank(x_RND)[:, None]], 1)


def histograms(x_RM: Tensor, low_R: Tensor, high_R: Tensor, *, stacked: bool) -> Tensor:
    """[R, 32]: how many numbers lie in each of equal bins between two edges; those beyond are in the outer bins."""
    scale_R = BINS / (high_R - low_R).clamp(min=torch.finfo(x_RM.dtype).tiny)
    place_RM = (x_RM - low_R[:, None]).mul_(scale_R[:, None]).nan_to_num_(0.0).clamp_(0, BINS - 1)
    if not stacked:  # on a CPU a byte holds a bin, and such bytes are counted in a quarter of the time
        counts_RB = torch.stack([torch.bincount(row, minlength=BINS) for row in place_RM.to(torch.uint8)]).float()
    else:
        counts_RB = counts_together(place_RM)
    return torch.where(torch.isfinite(low_R + high_R)[:, None], counts_RB, torch.nan)


def counts_together(place_RM: Tensor) -> Tensor:
    """[R, 32]: the bins of all rows are counted as one histogram; on a GPU in memory that threads share.

    Each number is put in the middle of its bin. Sums of ones are exact in any order, up to 2²⁴ numbers in a bin.
    """
    rows = torch.arange(len(place_RM), device=place_RM.device)[:, None] * BINS + 0.5
    bins = len(place_RM) * BINS
    return torch.histc(place_RM.floor() + rows, bins, 0, bins).view(-1, BINS)


def effective_rank(x_RND: Tensor) -> Tensor:
    """[R]: (Σλ)² / Σλ², of the eigenvalues λ of the covariance of the tokens (their participation ratio).

    As many dimensions of equal spread would give it. It takes no decomposition: the trace of the covariance, and its
    norm. Of at most 256 tokens, evenly spaced.
    """
    x_RND = x_RND[:, :: max(1, -(-x_RND.shape[1] // _RANKED))]
    x_RND = x_RND - x_RND.mean(1, keepdim=True)
    x_RND = x_RND / x_RND.abs().amax((1, 2), keepdim=True).clamp(min=torch.finfo(x_RND.dtype).tiny)  # no overflow
    small_Rnn = x_RND.mT @ x_RND if x_RND.shape[2] <= x_RND.shape[1] else x_RND @ x_RND.mT
    trace_R = small_Rnn.diagonal(dim1=1, dim2=2).sum(1)
    return trace_R.square() / small_Rnn.square().sum((1, 2))


def dead_shares(x_RND: Tensor) -> Tensor:
    """[R]: the share of units (columns) that do next to nothing for any token."""
    greatest_RD, mean_R = x_RND.abs().amax(1), x_RND.square().mean((1, 2)).sqrt()
    return (greatest_RD < _DEAD * mean_R[:, None]).float().mean(1)


def _by_head_l2(x_RND: Tensor, heads: int) -> Tensor:
    """[R, H]."""
    norms: Tensor = torch.linalg.vector_norm(x_RND.view(*x_RND.shape[:2], heads, -1), dim=(1, 3))
    return norms


def entropies(attention: Attention) -> Tensor:
    """[H]: the mean entropy of a head's attention, in nats; 0 where each token looks at one other."""
    B, H, T, _ = attention.q_BHTD.shape
    step = min(T, max(1, -(-B * H * T * attention.k_BKSD.shape[2] // _SCORES)))
    entropy_BHT: Tensor = torch.special.entr(attention.probabilities(slice(step - 1, None, step))).sum(3)
    return entropy_BHT.mean((0, 2))


def looked_at(model: Any, inputs: tuple[Tensor | None, ...], most_rows: int) -> tuple[Tensor | None, ...]:
    """Of a batch's inputs what is looked at: some rows of sequences with their documents, or of images."""
    first, *others = inputs
    assert first is not None
    rows = _rows(first.shape[1] if hasattr(model, "hidden") else model.config.tokens, most_rows)
    documents = others[1] if hasattr(model, "hidden") and len(others) > 1 else None
    return first[:rows], None if documents is None else documents[:rows]


@torch.no_grad()
def look_at_batch(model: Any, first: Tensor, documents_BT: Tensor | None, *, stacked: bool | None = None) -> Look:
    """The taps of a pass over sequences and their documents, or images."""
    taps = Taps(stacked=stacked)
    with observe(model, taps):
        if not hasattr(model, "hidden"):
            model(first)
        else:
            hidden_ND = model.hidden(first, documents_BT).flatten(0, 1)
            spaced_ND = hidden_ND[:: max(1, -(-len(hidden_ND) // LOGIT_TOKENS))]
            taps.activation(Region("logits"), model.logits(spaced_ND))
    taps.finish()
    return taps.rows, taps.values


def _rows(per_row: int, most: int) -> int:
    return max(1, min(most, MOST_TOKENS // per_row))


@torch.no_grad()
def look_at_probe(model: Any, probe: Tensor) -> Look:
    """Gram matrices of a fixed probe, of the regions by which similarity is measured.

    A probe is one sequence, whose tokens are compared (some of them, evenly spaced), or images, which are compared
    each by the mean over its tokens.
    """
    of_text = hasattr(model, "hidden")
    matrices = len(CKA_REGIONS) * model.config.n_layers
    side = max(8, min(_PROBE, int((_PROBE_BYTES / (_GRAM_DIGITS * matrices)) ** 0.5)))
    kept = Activations(CKA_REGIONS)
    with observe(model, kept):
        if of_text:
            model.hidden(probe)
        else:
            model(probe[:side])
    rows, values = [], []
    for region, x in kept.items():
        x_ND = (x[0, :: max(1, -(-x.shape[1] // side))] if of_text else x.mean(1)).float()
        gram_NN = gram(x_ND)
        shape = [gram_NN.shape[1], gram_NN.shape[0]]
        known = {"region": region.name, "layer": region.layer, "head": None, "dtype": "f32", "shape": shape}
        summary = torch.stack([torch.linalg.vector_norm(x_ND), x_ND.abs().mean(), (~torch.isfinite(x_ND)).sum()])
        names = (("l2", 0), ("abs_mean", 0), ("nan_count", 0), ("gram", gram_NN.numel()))
        rows.append(EventRow("tap", known, names))
        values += [summary, gram_NN]
    return rows, values


def gram(x_ND: Tensor) -> Tensor:
    """[N, N]: products of centred activations, which is what linear CKA compares."""
    x_ND = x_ND - x_ND.mean(0)
    return x_ND @ x_ND.T
