"""Weight matching: a model with its units in the order in which they are most like another model's.

Two trainings put the same unit in different places, so between them nothing lies on a straight line. `align` looks for
the permutations that bring the weights of one nearest to those of the other, one symmetry after the other, until none
of them helps any more (Ainsworth, Hayase, Srinivasa: Git Re-Basin, 2022). What the model computes stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linnet.analysis.symmetry import Heads, Symmetries, Units
from linnet.architectures import AnyConfig

_MOST_SWEEPS = 30  # through all symmetries; most pairs settle within ten
_ENOUGH = 1e-7  # of the similarity: a sweep that gains less was the last


@dataclass(frozen=True)
class Aligned:
    """A model whose units were put in another's order.

    - `parameters`: as the other's.
    - `before`, `after`: the cosine of all weights of the two models.
    - `moved`: the share of units that have another place, by kind: residual, hidden, heads.
    """

    parameters: dict[str, Tensor]
    before: float
    after: float
    moved: dict[str, float]


@torch.no_grad()
def align(config: AnyConfig, target: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Aligned:
    """Put the units of a model of the same shape into the order of the `target`'s."""
    matching = _Matching(config, target, parameters)
    similarity = matching.similarity()
    before = similarity
    matching.begin()
    for _ in range(_MOST_SWEEPS):
        matching.sweep()
        gained, similarity = matching.similarity() - similarity, matching.similarity()
        if gained <= _ENOUGH:
            break
    return Aligned(matching.parameters, before, similarity, matching.moved())


class _Matching:
    """The model that is brought nearer to the target, a symmetry at a time."""

    def __init__(self, config: AnyConfig, target: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
        self.parameters = {name: tensor.detach().clone() for name, tensor in parameters.items()}
        self._target = target
        self._symmetries = Symmetries.of(config, parameters)
        self._orders = {"residual": [np.arange(config.d_model)]}
        self._orders["hidden"] = [np.arange(units.count) for units in self._symmetries.hidden]
        self._orders["heads"] = [np.arange(heads.queries.count) for heads in self._symmetries.heads]
        self._norm = _norm(target) * _norm(parameters)

    def similarity(self) -> float:
        """The cosine of all weights of the two models."""
        dot = sum(float((self._target[name].double() * own.double()).sum()) for name, own in self.parameters.items())
        return dot / self._norm if self._norm else 0.0

    def begin(self) -> None:
        """Order the stream by what has no other order: embedding and norms.

        By all of its matrices it would be matched to units and heads that stand in any order, and hold them there.
        """
        residual, others = self._symmetries.residual, {*self._symmetries.others()}
        alone = tuple(places for places in residual.places if places.parameter not in others)
        self._put("residual", 0, residual, _assign(self._similarities(Units("alone", residual.count, alone))))

    def sweep(self) -> None:
        """Each symmetry once."""
        for layer, units in enumerate(self._symmetries.hidden):
            self._match_heads(layer, self._symmetries.heads[layer])
            self._put("hidden", layer, units, _assign(self._similarities(units)))
        residual = self._symmetries.residual
        self._put("residual", 0, residual, _assign(self._similarities(residual)))

    def moved(self) -> dict[str, float]:
        """The share of units that have another place than they had."""
        return {
            kind: float(np.mean(np.concatenate([order != np.arange(len(order)) for order in orders])))
            for kind, orders in self._orders.items()
        }

    def _put(self, kind: str, layer: int, units: Units, order: NDArray[np.int64]) -> None:
        units.permute(self.parameters, torch.from_numpy(order))
        self._orders[kind][layer] = self._orders[kind][layer][order]

    def _match_heads(self, layer: int, heads: Heads) -> None:
        """Groups by their keys and values and the best order of their heads; then the heads of each in that order."""
        groups, of_heads = self._similarities(heads.groups), self._similarities(heads.queries)
        K, r = len(groups), len(of_heads) // len(groups)
        inner = {
            (own, other): _assign(of_heads[own * r : (own + 1) * r, other * r : (other + 1) * r])
            for own in range(K)
            for other in range(K)
        }
        whole = groups.copy()
        for (own, other), order in inner.items():
            whole[own, other] += of_heads[own * r + np.arange(r), other * r + order].sum()
        group_order = _assign(whole)
        order = np.concatenate([other * r + inner[own, int(other)] for own, other in enumerate(group_order)])
        heads.permute(self.parameters, torch.from_numpy(group_order), torch.from_numpy(order))
        self._orders["heads"][layer] = self._orders["heads"][layer][order]

    def _similarities(self, units: Units) -> NDArray[np.float64]:
        """[U, U]: the products of each unit of the target with each of the model."""
        total = torch.zeros(units.count, units.count, dtype=torch.float64)
        for places in units.places:
            target, own = places.of(self._target).float(), places.of(self.parameters).float()
            total += (target @ own.T).double().cpu()
        return np.asarray(total.numpy())


def _assign(similarities: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each unit of the target the unit of the model that takes its place, the sum of similarities the largest."""
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(similarities, maximize=True)[1], np.int64)


def _norm(parameters: Mapping[str, Tensor]) -> float:
    return float(torch.stack([tensor.double().square().sum() for tensor in parameters.values()]).sum().sqrt())
