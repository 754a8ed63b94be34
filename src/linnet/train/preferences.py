"""Learning from preferences: direct preference optimization (DPO, arXiv 2305.18290) of an adapted model.

The reward of an answer is β · (log p − log p of the reference), summed over its tokens; the loss of a pair is
−log σ(chosen reward − rejected reward). The reference is the base without its adapter, which shares its weights: no
second model is in memory, and its pass takes no gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.data import Batch
from linnet.kernels import Executor, eager
from linnet.models import LanguageModel
from linnet.models.adapters import without_adapter
from linnet.train.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Rewards:
    """Of each pair of some blocks [N, P] what its answers are worth; `exists_NP`: is there such a pair?"""

    chosen_NP: Tensor
    rejected_NP: Tensor
    exists_NP: Tensor

    def means(self, divisor: Tensor) -> dict[str, Tensor]:
        """The loss, and what is told with it: sums over the pairs, divided by `divisor`."""
        margin_NP = self.chosen_NP - self.rejected_NP
        of_pairs = {
            "loss": F.softplus(-margin_NP),
            "accuracy": (margin_NP > 0).float(),
            "reward_margin": margin_NP,
            "reward_chosen": self.chosen_NP,
            "reward_rejected": self.rejected_NP,
        }
        return {name: torch.where(self.exists_NP, value_NP, 0.0).sum() / divisor for name, value_NP in of_pairs.items()}


class PreferenceLoss:
    """The loss of a model by pairs, in the place of its own: as `Step` calls it, with a `PreferenceBatch`.

    - `reference`: another model; without one it is the base of an adapted model.
    """

    def __init__(self, model: LanguageModel, beta: float, reference: LanguageModel | None = None) -> None:
        self._model, self._beta = model, beta
        self._reference = without_adapter(model) if reference is None else reference

    def __call__(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor,
        signs_BT: Tensor,
        pairs_BP: Tensor,
        *,
        divisor: Tensor,
        executor: Executor,
    ) -> dict[str, Tensor]:
        """The means over all pairs of the batch, of which these rows have a part."""
        return self.rewards(ids_BT, targets_BT, documents_BT, signs_BT, pairs_BP, executor=executor).means(divisor)

    def rewards(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor,
        signs_BT: Tensor,
        pairs_BP: Tensor,
        *,
        executor: Executor = eager,
    ) -> Rewards:
        """What the answers of each pair are worth."""
        with torch.no_grad():
            expected_BT = self._reference.target_log_probs(ids_BT, targets_BT, documents_BT, executor=executor)
        log_p_BT = self._model.target_log_probs(ids_BT, targets_BT, documents_BT, executor=executor)
        worth_NS = self._beta * _by_blocks(log_p_BT - expected_BT)
        signs_NS, pairs_NP1 = _by_blocks(signs_BT), pairs_BP[::2, :, None]
        # Sums by a mask: scattered, they would come in another order each time on a GPU.
        is_of_NPS = (_by_blocks(documents_BT)[:, None] == pairs_NP1) & (pairs_NP1 >= 0)
        chosen_NP, rejected_NP = (
            torch.where(is_of_NPS & (signs_NS == sign)[:, None], worth_NS[:, None], 0.0).sum(-1) for sign in (1, -1)
        )
        return Rewards(chosen_NP, rejected_NP, pairs_NP1[..., 0] >= 0)


def _by_blocks(rows_BT: Tensor) -> Tensor:
    """[B / 2, 2 T]: the two rows of each block one behind the other."""
    return rows_BT.reshape(len(rows_BT) // 2, -1)


@dataclass(frozen=True)
class PreferenceEvaluation:
    """Means over held-out pairs: the loss, the share whose chosen answer is worth more, and the rewards."""

    loss: float
    accuracy: float
    reward_margin: float
    reward_chosen: float
    reward_rejected: float
    pairs: int

    @property
    def figures(self) -> dict[str, float]:
        """Each metric by its name."""
        return {name: value for name, value in vars(self).items() if name != "pairs"}


@torch.no_grad()
def evaluate_preferences(
    loss: PreferenceLoss, batches: Iterable[Batch], most: int, ranks: Ranks = ALONE
) -> PreferenceEvaluation:
    """Score batches until at least `most` pairs are scored. Of several `ranks` each takes some of the batches."""
    sums: list[dict[str, Tensor]] = []
    numbers = pairs = 0
    for number, batch in enumerate(batches):
        if number % ranks.count == ranks.rank:
            inputs = [tensor for tensor in batch.inputs if tensor is not None]
            sums.append(loss.rewards(*inputs).means(torch.ones((), device=batch.ids_BT.device)))
        numbers, pairs = number + 1, pairs + batch.n_targets
        if pairs >= most:
            break
    mine = [{name: float(value) for name, value in one.items()} for one in sums]
    shares = ranks.gather(mine)
    ordered = [shares[number % ranks.count][number // ranks.count] for number in range(numbers)]
    means = {name: sum(one[name] for one in ordered) / max(1, pairs) for name in ordered[0]}
    return PreferenceEvaluation(**means, pairs=pairs)
