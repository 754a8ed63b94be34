"""Overfitting: a held-out loss that has clearly risen from its best, and more passes over a corpus than teach anything.

`best` is kept while a run goes on (`Progress`); what is said of it is here, as pure functions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.train.plan import Plan
    from linnet.train.protocols import EvalResult

MANY_EPOCHS = 8.0  # passes over a text, above which a plan is warned of
_RISE = 0.01  # of the best held-out loss: less than that comes and goes with the order of the batches
_FIRST_RISE = 0.05  # within the first pass over the data, where it falls again while the rate is high
_NOISE = 1.5  # nats over √tokens: three times the spread of a mean of so many differences, each of half a nat
ENOUGH_TOKENS = 1024  # held-out tokens whose loss can be gone by


def compared_loss(result: EvalResult) -> float:
    """The held-out loss by which evaluations are compared: that of what every evaluation of the run scores.

    The last evaluation of images scores all of them, those before it a part.
    """
    return float(getattr(result, "compared_loss", result.loss))


def has_risen(best: float, loss: float, scored: int, *, repeats: bool) -> bool:
    """Has the held-out loss risen from its best by more than noise?

    `scored`: tokens or images of an evaluation; `repeats`: the data have been passed through more than once.
    """
    share = _RISE if repeats else _FIRST_RISE
    return loss - best > max(share * best, _noise(scored))


def margin_of_best(scored: int, unit: str) -> float:
    """By how much an earlier evaluation must have been the better one, so that its checkpoint stays the best.

    Where few tokens are held out, the lowest of many losses is the lowest by chance, and the longer training is worth
    more than that. `scored`: of an evaluation, in `unit`s.
    """
    return _noise(scored) if unit == "tokens" and scored < ENOUGH_TOKENS else 0.0


def _noise(scored: int) -> float:
    return _NOISE / math.sqrt(max(1, scored))


def rise_sentence(best: float, best_step: int, loss: float, *, repeats: bool, unit: str) -> str:
    """What a user is told of a rise. `repeats`: the data have been passed through more than once."""
    sentence = f"the held-out loss has risen to {loss:.4g}, from its best of {best:.4g} at step {best_step:,}"
    if not repeats:
        return f"{sentence}, within the first pass over the data: a lower `lr` may help"
    data = "text" if unit == "tokens" else "images"
    return f"{sentence}: the model learns its {data} by heart; that step is kept as best"


def will_overfit(plan: Plan) -> bool:
    """Are more passes over a text planned than teach anything, in a run that does not end by itself before?

    Of images a model sees another variation each time, so their passes are not counted.
    """
    return plan.unit == "tokens" and (plan.epochs or 0.0) >= MANY_EPOCHS and not plan.stops_early
