"""The rule of learning rates: what a training takes where nobody says, from its width, the tokens of a step and steps.

Dropout follows from the passes over the data.

Fitted to the sweeps of `bench/learning.py` (docs/learning.md); a pure function of a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

from linnet.architectures import AnyConfig, layout
from linnet.train.settings import OptimizerName, TrainSettings

ParameterKind: TypeAlias = Literal["matrix", "embedding", "head", "vector"]

_WIDTH, _TOKENS, _STEPS = 384, 16_384, 1_000  # where the constants below were measured
_STEP_TOKENS = (1_024, 65_536)  # the rule goes no further than it was measured
_FEWEST_STEPS = 100  # fewer are taken for so many


@dataclass(frozen=True)
class Rule:
    """How the rates of an optimizer follow from the size of a training.

    - `matrix`: the rate of hidden matrices at a width of 384, 16,384 tokens a step and 1,000 steps.
    - `width`, `tokens`, `steps`: the powers by which it changes with each.
    - `embedding`, `head`, `vector`: the other rates at that size, in proportion to it.
    - `other_width`: the power by which these change with the width.
    - `weight_decay`: at that size; `decay_steps`: the power by which it changes with the steps.
    """

    matrix: float
    width: float
    tokens: float
    steps: float
    weight_decay: float
    embedding: float = 1.0
    head: float = 1.0
    vector: float = 1.0
    other_width: float = 0.0
    decay_steps: float = 0.0


RULES: dict[OptimizerName, Rule] = {
    # Embeddings and vectors want nearly the same at any width, matrices less of it the wider they are.
    "muon": Rule(
        6.2e-3, width=-0.7, tokens=0.33, steps=-0.2, embedding=1.3, vector=1.3, weight_decay=0.7, decay_steps=-0.5
    ),
    # One rate for all, as everyone knows it.
    "adamw": Rule(2e-3, width=-0.92, tokens=0.33, steps=-0.2, weight_decay=0.3, other_width=-0.92),
}
# Of adapters: one sweep on a small budget (docs/log.md); no rule of sizes is claimed.
ADAPTER_RATES: dict[OptimizerName, float] = {"adamw": 1e-3, "muon": 1e-3}
_OF_PREFERENCES = 0.1  # times these, where an adapter learns from pairs
_MOMENTUM_WARMUP = 150  # steps
# From so many passes over the data on, this share is dropped (docs/log.md). Least first; fewer passes: nothing.
_DROPOUT = ((10, 0.1), (50, 0.2))
PRETRAINED = 0.1  # times the rates, where the whole model comes from a donor: it is to be changed, not made anew


@dataclass(frozen=True)
class Rates:
    """The highest learning rate of each kind of parameter, and the weight decay."""

    matrix: float
    embedding: float
    head: float
    vector: float
    weight_decay: float


def derive(optimizer: OptimizerName, width: int, tokens: int, steps: int) -> Rates:
    """The rates of a model so wide that sees so many tokens (or patches of images) a step, for so many steps."""
    rule = RULES[optimizer]
    least, most = _STEP_TOKENS
    longer, wider = max(steps, _FEWEST_STEPS) / _STEPS, width / _WIDTH
    size = rule.matrix * (min(max(tokens, least), most) / _TOKENS) ** rule.tokens * longer**rule.steps
    other = size * wider**rule.other_width
    decay = _rounded(rule.weight_decay * longer**rule.decay_steps)
    return Rates(size * wider**rule.width, other * rule.embedding, other * rule.head, other * rule.vector, decay)


def settled(
    settings: TrainSettings,
    model: AnyConfig,
    tokens: int,
    *,
    steps: int | None = None,
    pretrained: bool = False,
    corpus: int | None = None,
) -> TrainSettings:
    """The settings with the rates, weight decay and dropout that the rule gives, where they are not given.

    A given `lr` is that of the matrices, and those that are not given keep their proportion to it.

    - `tokens`: of a step; `steps`: where `settings` do not know how many there will be.
    - `pretrained`: all weights come from a donor.
    - `corpus`: tokens of one pass over the data, where dropout is to follow from the passes.
    """
    steps = settings.own_steps if steps is None else steps
    rule = derive(settings.optimizer, model.d_model, tokens, steps)
    matrix = rule.matrix * (PRETRAINED if pretrained else 1.0) if settings.lr is None else settings.lr
    matrix = matrix if settings.lr is not None else _rounded(matrix)
    rates = {"lr_embedding": rule.embedding, "lr_vectors": rule.vector}
    if not getattr(model, "tied", True):
        rates["lr_head"] = rule.head
    changes: dict[str, Any] = {"lr": matrix}
    for name, rate in rates.items():
        if getattr(settings, name) is None:
            changes[name] = matrix if rate == rule.matrix else _rounded(matrix * rate / rule.matrix)
    if settings.weight_decay is None:
        changes["weight_decay"] = rule.weight_decay
    if settings.dropout is None and corpus:
        changes["dropout"] = dropout_of(model, corpus, steps * tokens / corpus)
    return replace(settings, **changes, **_of_muon(settings, steps))


def dropout_of(model: AnyConfig, corpus: int, epochs: float) -> float | None:
    """The share that is dropped in so many passes over a corpus of so many tokens; None: nothing.

    Only where the model has more weights than the corpus tokens: others have not been measured.
    """
    weights = sum(prod(param.shape) for param in layout(model).params.values() if not param.optional)
    if weights < corpus:
        return None
    return max((share for passes, share in _DROPOUT if epochs > passes - 0.01), default=None)


def settled_adapter(settings: TrainSettings, *, steps: int | None = None, preferences: bool = False) -> TrainSettings:
    """The settings of an adapter's training, with one rate for all pairs and no weight decay where nobody says."""
    steps = settings.own_steps if steps is None else steps
    usual = ADAPTER_RATES[settings.optimizer] * (_OF_PREFERENCES if preferences else 1.0)
    lr = usual if settings.lr is None else settings.lr
    decay = 0.0 if settings.weight_decay is None else settings.weight_decay
    return replace(settings, lr=lr, weight_decay=decay, **_of_muon(settings, steps))


def _of_muon(settings: TrainSettings, steps: int) -> dict[str, Any]:
    """What belongs to Muon alone, where it is not given."""
    if settings.optimizer != "muon":
        return {}
    warmup = min(_MOMENTUM_WARMUP, max(steps, _FEWEST_STEPS) // 4)
    given = settings.momentum_warmup
    return {"muon_norm": settings.muon_norm or "spectral", "momentum_warmup": warmup if given is None else given}


def kind_of(name: str, dimensions: int) -> ParameterKind:
    """Which of the rates a parameter is moved by: its name in `linnet.architectures`, and how many axes it has."""
    if dimensions < 2:
        return "vector"
    if name.startswith(("token_embd.", "position_embd.")):
        return "embedding"
    return "head" if name == "output.weight" else "matrix"


def shares(settings: TrainSettings) -> dict[ParameterKind, float]:
    """Each rate in proportion to that of the matrices; 1 where none was settled, as in runs from before the rule."""
    rates: dict[ParameterKind, float | None] = {
        "matrix": settings.lr,
        "embedding": settings.lr_embedding,
        "head": settings.lr_head,
        "vector": settings.lr_vectors,
    }
    top = settings.lr or 1.0
    return {kind: 1.0 if rate is None or rate == settings.lr else rate / top for kind, rate in rates.items()}


def _rounded(rate: float) -> float:
    """Two digits: a rate that can be read and typed."""
    return float(f"{rate:.2g}")
