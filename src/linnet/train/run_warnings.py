"""`RunWarnings`: what goes wrong in a training, as far as it shows in what is logged anyway; told once, with its cause.

Of the whole run by the loss, the norm of the gradient and the time of each step: a few operations on floats. Of a layer
where the training is inspected. A held-out loss that rises is judged by `overfitting.py`, and told the same way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from linnet.train.inspection.late_events import InspectedEvent
from linnet.train.metrics import StepMetrics

Warned: TypeAlias = Literal[
    "held_out_rise", "loss_spike", "gradient_explodes", "gradient_vanishes", "slow", "layer_gradient", "dead_units",
    "logits",
]  # fmt: skip

_SETTLED = 40  # steps after which it is known what is usual
_MEMORY = 32  # steps over which it is averaged
_SPIKE = (5.0, 0.2, 0.2)  # times the noise, share of the usual loss, nats: a spike is beyond all three
_SPIKE_STEPS = 3  # in a row: one batch alone may be unlike the others
_EXPLODES, _VANISHES = 30.0, 1e-4  # times the usual norm
_BLOWN_UP = 2.0  # times the first loss: what gives that is no fresh model, and was not cut off from its weights
_LEARNT = 0.1  # of the first loss: below it gradients vanish since there is nothing left to learn
_BIN_SECONDS, _BIN_STEPS, _SLOW_BINS = 10.0, 4, 3  # in which speed is measured, and how many must be slow in a row
_OTHER_LAYERS = (1e-4, 100.0)  # times the median layer's gradient: less, or more, is a layer's own trouble
_DEAD = 0.25  # of a layer's units
_SATURATED = 100.0  # the greatest logit: a probability of it is 0 or 1 to any precision


@dataclass(frozen=True)
class TrainingWarning:
    """What was found: of which kind, in words, and the metric on whose curve it is marked."""

    kind: Warned
    text: str
    metric: str | None = None


class RunWarnings:
    """Looks at what comes by, and calls `announce(step, warning)` with what was not told before.

    - `announced`: kinds that were told in an earlier session, or meanwhile.
    - `first_loss`: that of the run's first step, where it is known from an earlier session.
    """

    def __init__(
        self,
        announce: Callable[[int, TrainingWarning], None],
        announced: Container[str] = (),
        first_loss: float | None = None,
    ) -> None:
        self._on_warning, self._announced = announce, announced
        self._loss, self._norm = _LossLevel(), _NormLevel(first_loss)
        self._speed = _Speed()
        self._looks = 0

    def stepped(self, metrics: StepMetrics, *, looked: bool) -> None:
        """A step is done; one that was `looked` at took its own time."""
        findings = [self._loss.after(metrics.loss), self._norm.after(metrics.grad_norm, metrics.loss)]
        if not looked:
            findings.append(self._speed.after(metrics.values["wall_us"] / 1e6, metrics.unit))
        self._announce(metrics.step, findings)

    def looked(self, step: int, events: Iterable[InspectedEvent]) -> None:
        """What was seen inside the training in a step. Its first look is at weights that have learnt nothing."""
        fields: dict[str, list[Mapping[str, Any]]] = {}
        for event in events:
            fields.setdefault(event.kind, []).append(event.fields)
        if "grad" in fields:
            self._announce(step, [of_gradients(fields["grad"], begun=step > 1)])
        if "tap" in fields:
            self._announce(step, of_taps(fields["tap"]) if step > 1 else [])

    def _announce(self, step: int, found: Iterable[TrainingWarning | None]) -> None:
        for warning in found:
            if warning is not None and warning.kind not in self._announced:
                self._on_warning(step, warning)


class _LossLevel:
    """The usual loss, and how much it differs from step to step, as they were lately."""

    def __init__(self) -> None:
        self._steps = self._high = 0
        self._level = self._noise = self._last = 0.0

    def after(self, loss: float) -> TrainingWarning | None:
        if not math.isfinite(loss):
            return None
        level, self._steps = self._level, self._steps + 1
        times, share, nats = _SPIKE
        settled = self._steps > _SETTLED
        if settled and loss - level > max(times * self._noise, share * level, nats):
            self._high += 1
            if self._high < _SPIKE_STEPS:
                return None  # the usual level stays what it was until this is decided
            self._high, self._level = 0, loss
            text = (
                f"the loss has jumped to {loss:.4g}, from about {level:.4g}, for {_SPIKE_STEPS} steps: the learning"
                " rate may be too high (`lr`), or the data of these steps unlike all before"
            )
            return TrainingWarning("loss_spike", text, "loss")
        self._high = 0
        weight = 1 / min(self._steps, _MEMORY)
        if self._steps > 1:  # from step to step, so that a loss that falls quickly is not taken for a noisy one
            self._noise += weight * (abs(loss - self._last) - self._noise)
        self._level, self._last = level + weight * (loss - level), loss
        return None


class _NormLevel:
    """The usual norm of the gradient, in logarithms."""

    def __init__(self, first_loss: float | None) -> None:
        self._steps = 0
        self._level = self._recent = 0.0
        self._highest = -math.inf
        self._first_loss = first_loss

    def after(self, norm: float, loss: float) -> TrainingWarning | None:
        if self._first_loss is None and math.isfinite(loss):
            self._first_loss = loss
        has_learnt = self._first_loss is not None and loss < _LEARNT * self._first_loss
        if norm == 0 and not has_learnt:
            cause = "is the loss cut off from the weights (`loss`), or all masked?"
            if self._first_loss is not None and not loss <= _BLOWN_UP * self._first_loss:
                cause = f"the loss is {loss:.4g}, so the weights have grown too large: lower the learning rate (`lr`)"
            text = f"the gradient is 0: nothing is learnt; {cause}"
            return TrainingWarning("gradient_vanishes", text, "grad_norm")
        if not math.isfinite(norm) or norm <= 0:
            return None
        log, level, self._steps = math.log(norm), self._level, self._steps + 1
        self._level += (log - level) / min(self._steps, _MEMORY)
        self._recent += (log - self._recent) / min(self._steps, _MEMORY // 4)
        if self._steps <= _SETTLED:
            return None
        self._highest = max(self._highest, level)
        if log - level > math.log(_EXPLODES):
            text = (
                f"the gradient has exploded: its norm is {norm:.3g}, {math.exp(log - level):,.0f} times the usual; the"
                " learning rate may be too high (`lr`), or a batch unlike all others"
            )
            return TrainingWarning("gradient_explodes", text, "grad_norm")
        if self._recent - self._highest < math.log(_VANISHES) and not has_learnt:
            text = (
                f"the gradient has vanished: its norm is {norm:.3g}, and was {math.exp(self._highest):.3g}, though the"
                " loss is high; look with `inspect=grads`, and try a lower `lr`"
            )
            return TrainingWarning("gradient_vanishes", text, "grad_norm")
        return None


class _Speed:
    """Seconds of a step, the mean of ten seconds each, and the best of them."""

    def __init__(self) -> None:
        self._seconds, self._steps = 0.0, 0
        self._best = math.inf
        self._slow = self._bins = 0

    def after(self, seconds: float, unit: str) -> TrainingWarning | None:
        self._seconds, self._steps = self._seconds + seconds, self._steps + 1
        if self._seconds < _BIN_SECONDS or self._steps < _BIN_STEPS:
            return None
        mean, self._seconds, self._steps = self._seconds / self._steps, 0.0, 0
        self._bins += 1
        if self._bins > 1:  # in the first one things are compiled
            self._best = min(self._best, mean)
        self._slow = self._slow + 1 if mean > 2 * self._best else 0
        if self._slow < _SLOW_BINS:
            return None
        text = (
            f"a step takes {mean:.3g} s, and took {self._best:.3g} s before: less than half of the throughput is left;"
            " something else may use the device, or it is too hot"
        )
        return TrainingWarning("slow", text, f"{unit}_per_s")


def of_gradients(grads: list[Mapping[str, Any]], *, begun: bool) -> TrainingWarning | None:
    """What is wrong with the gradient of a layer. `begun`: weights have been moved; some begin with a gradient of 0."""
    of_tensors = [event for event in grads if "head" not in event]
    for event in of_tensors:
        if event["nan_count"]:
            text = (
                f"the gradient of {event['param']} has {event['nan_count']:,} numbers that are not finite; lower `lr`"
            )
            return TrainingWarning("layer_gradient", text, "grad_norm")
    if not begun:
        return None
    zeros = [event for event in of_tensors if event["l2"] == 0 and len(event["shape"]) > 1]
    if zeros:
        layer = _layer_of(zeros[0])
        all_of_it = [event for event in of_tensors if _layer_of(event) == layer and len(event["shape"]) > 1]
        is_whole = layer is not None and all(event["l2"] == 0 for event in all_of_it)
        where = f"layer {layer}" if is_whole else zeros[0]["param"]
        text = f"the gradient of {where} is 0: it learns nothing; is it masked, or cut off from the loss?"
        return TrainingWarning("layer_gradient", text, "grad_norm")
    layers: dict[int, float] = {}
    for event in of_tensors:
        if (layer := _layer_of(event)) is not None:
            layers[layer] = layers.get(layer, 0.0) + event["l2"] ** 2
    usual = math.sqrt(statistics.median(layers.values())) if len(layers) > 2 else 0.0
    low, high = _OTHER_LAYERS
    for layer, square in layers.items():
        norm = math.sqrt(square)
        if usual and not low * usual <= norm <= high * usual:
            word = "vanished" if norm < usual else "exploded"
            text = f"the gradient of layer {layer} has {word}: its norm is {norm:.3g}, the median layer's {usual:.3g}"
            return TrainingWarning("layer_gradient", text, "grad_norm")
    return None


def _layer_of(event: Mapping[str, Any]) -> int | None:
    path = event["param"].removeprefix("v.").split(".")
    return int(path[1]) if path[0] == "blk" else None


def of_taps(taps: list[Mapping[str, Any]]) -> list[TrainingWarning | None]:
    """Units that do nothing, and logits that say 0 or 1."""
    dead = max((event for event in taps if "dead" in event), key=lambda event: float(event["dead"]), default=None)
    warnings: list[TrainingWarning | None] = []
    if dead is not None and dead["dead"] > _DEAD:
        text = (
            f"{dead['dead']:.0%} of the feed-forward units of layer {dead['layer']} do nothing for any token: the"
            " learning rate may have been too high (`lr`, `warmup`), or the layer is wider than the data want"
        )
        warnings.append(TrainingWarning("dead_units", text, "loss"))
    logits = next((event for event in taps if event["region"] == "logits" and event.get("max") is not None), None)
    if logits is not None and max(abs(logits["min"] or 0.0), abs(logits["max"])) > _SATURATED:
        greatest = max(logits["min"], logits["max"], key=abs)
        text = (
            f"logits are saturated: they reach {greatest:.3g}, which leaves probabilities of 0 and 1; a lower rate of"
            " the head (`lr_head`), or more `weight_decay`, holds them"
        )
        warnings.append(TrainingWarning("logits", text, "loss"))
    return warnings
