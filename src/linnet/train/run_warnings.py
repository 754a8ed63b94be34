"""`RunWarnings`: what goes wrong in a training, as far as it shows in what is logged anyway, with its cause.

Of each kind a warning is told once of the run, or once of each layer or tensor it is about, and a few times at most.

Of the whole run by the loss, the norm of the gradient and the time of each step: a few operations on floats. Of a layer
where the training is inspected. A held-out loss that rises is judged by `overfitting.py`, and told the same way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
_MOST = 8  # warnings of a kind: layers that go one by one, spikes that come again
_NAMED = 4  # tensors that a warning names
_TINY = 1e-300
_SATURATED = 100.0  # the greatest logit: a probability of it is 0 or 1 to any precision


@dataclass(frozen=True)
class TrainingWarning:
    """What was found: of which kind, in words, and the metric on whose curve it is marked.

    `subjects`: the layers, tensors or steps that it is about; none: the run.
    """

    kind: Warned
    text: str
    metric: str | None = None
    subjects: tuple[str, ...] = ()

    @property
    def record(self) -> str:
        """How a run remembers it: `slow`, `layer_gradient:layer 0|layer 2`."""
        return f"{self.kind}:{'|'.join(self.subjects)}" if self.subjects else self.kind


@dataclass(frozen=True)
class _PartsInTrouble:
    """Layers or tensors of which one look found the same; `describe` puts those that were not told of into words."""

    kind: Warned
    metric: str
    subjects: Sequence[str]
    describe: Callable[[Sequence[str]], str]


_Finding: TypeAlias = TrainingWarning | _PartsInTrouble | None


class RunWarnings:
    """Looks at what comes by, and calls `announce(step, warning)` with what was not told before.

    - `announced`: records of what was told in an earlier session; whoever is told adds to them. A kind alone: it is
      told no more, as in states of before subjects were kept.
    - `first_loss`: that of the run's first step, where it is known from an earlier session.
    """

    def __init__(
        self,
        announce: Callable[[int, TrainingWarning], None],
        announced: Sequence[str] = (),
        first_loss: float | None = None,
    ) -> None:
        self._on_warning, self._announced = announce, announced
        self._loss, self._norm = _LossLevel(), _NormLevel(first_loss)
        self._speed = _Speed()
        self._looks = 0

    def stepped(self, metrics: StepMetrics, *, looked: bool) -> None:
        """A step is done; one that was `looked` at took its own time."""
        spike = self._loss.after(metrics.loss)
        if spike is not None:
            spike = replace(spike, subjects=(f"step {metrics.step}",))
        findings = [spike, self._norm.after(metrics.grad_norm, metrics.loss)]
        if not looked:
            findings.append(self._speed.after(metrics.values["wall_us"] / 1e6, metrics.unit))
        self._announce(metrics.step, findings)

    def looked(self, step: int, events: Iterable[InspectedEvent]) -> None:
        """What was seen inside the training in a step. Its first look is at weights that have learnt nothing."""
        fields: dict[str, list[Mapping[str, Any]]] = {}
        for event in events:
            fields.setdefault(event.kind, []).append(event.fields)
        if "grad" in fields:
            self._announce(step, of_gradients(fields["grad"], begun=step > 1))
        if "tap" in fields:
            self._announce(step, of_taps(fields["tap"]) if step > 1 else [])

    def _announce(self, step: int, findings: Iterable[_Finding]) -> None:
        for finding in findings:
            if finding is None or finding.kind in self._announced:
                continue
            prefix = f"{finding.kind}:"
            before = [record.removeprefix(prefix) for record in self._announced if record.startswith(prefix)]
            known = {subject for subjects in before for subject in subjects.split("|")}
            fresh = tuple(subject for subject in finding.subjects if subject not in known)
            of_run = isinstance(finding, TrainingWarning) and not finding.subjects
            if not (fresh or of_run) or len(before) >= _MOST:
                continue
            text = finding.text if isinstance(finding, TrainingWarning) else finding.describe(fresh)
            if len(before) == _MOST - 1:
                text += f" ({_MOST} warnings of this kind; no more are told)"
            self._on_warning(step, TrainingWarning(finding.kind, text, finding.metric, fresh))


class _LossLevel:
    """The usual loss, and how much it differs from step to step, as they were lately."""

    def __init__(self) -> None:
        self._steps = self._high = 0
        self._quiet = _SETTLED  # steps since the last spike
        self._level = self._noise = self._last = 0.0

    def after(self, loss: float) -> TrainingWarning | None:
        if not math.isfinite(loss):
            return None
        level, self._steps, self._quiet = self._level, self._steps + 1, self._quiet + 1
        times, share, nats = _SPIKE
        settled = self._steps > _SETTLED
        if settled and loss - level > max(times * self._noise, share * level, nats):
            self._high += 1
            if self._high < _SPIKE_STEPS:
                return None  # the usual level stays what it was until this is decided
            is_another, self._quiet = self._quiet >= _SETTLED, 0
            self._high, self._level = 0, loss
            if not is_another:
                return None
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


def of_gradients(grads: list[Mapping[str, Any]], *, begun: bool) -> list[_Finding]:
    """What is wrong with gradients of layers. `begun`: weights have been moved; some begin with a gradient of 0."""
    of_tensors = [event for event in grads if "head" not in event]
    odd = {event["param"]: event["nan_count"] for event in of_tensors if event["nan_count"]}
    if odd:

        def of_odd(params: Sequence[str]) -> str:
            numbers = f"{odd[params[0]]:,} numbers" if len(params) == 1 else "numbers"
            return f"{_gradients(params, 'has', 'have')} {numbers} that are not finite; lower `lr`"

        return [_PartsInTrouble("layer_gradient", "grad_norm", list(odd), of_odd)]
    if not begun:
        return []
    zeros = _zero_parts(of_tensors)
    return [
        _PartsInTrouble("layer_gradient", "grad_norm", zeros, _of_zeros),
        *_unlike_the_median(of_tensors, set(zeros)),
    ]


def _zero_parts(of_tensors: list[Mapping[str, Any]]) -> list[str]:
    """Layers, and tensors of others, whose gradient is 0."""
    zeros: dict[str, None] = {}
    matrices = [event for event in of_tensors if len(event["shape"]) > 1]
    whole = {_layer_of(event) for event in matrices} - {_layer_of(event) for event in matrices if event["l2"] != 0}
    for event in matrices:
        if event["l2"] == 0:
            layer = _layer_of(event)
            zeros[f"layer {layer}" if layer is not None and layer in whole else event["param"]] = None
    return list(zeros)


def _of_zeros(parts: Sequence[str]) -> str:
    learns, masked = ("it learns", "is it") if len(parts) == 1 else ("they learn", "are they")
    return f"{_gradients(parts, 'is', 'are')} 0: {learns} nothing; {masked} masked, or cut off from the loss?"


def _unlike_the_median(of_tensors: list[Mapping[str, Any]], zeros: Container[str]) -> Iterator[_PartsInTrouble]:
    """Layers whose gradient is very small or very large beside that of the others."""
    squares: dict[str, float] = {}
    for event in of_tensors:
        layer = f"layer {_layer_of(event)}"
        if _layer_of(event) is not None and layer not in zeros:
            squares[layer] = squares.get(layer, 0.0) + event["l2"] ** 2
    usual = math.sqrt(statistics.median(squares.values())) if len(squares) > 2 else 0.0
    if not usual or not math.isfinite(usual):
        return
    norms = {layer: math.sqrt(square) for layer, square in squares.items()}
    low, high = (times * usual for times in _OTHER_LAYERS)

    def describe(layers: Sequence[str]) -> str:
        worst = max((norms[layer] for layer in layers), key=lambda norm: max(norm / usual, usual / max(norm, _TINY)))
        word = "vanished" if worst < usual else "exploded"
        which = "its norm is" if len(layers) == 1 else "the norm that is furthest off is"
        return f"{_gradients(layers, 'has', 'have')} {word}: {which} {worst:.3g}, the median layer's {usual:.3g}"

    for layers in ([one for one in norms if norms[one] < low], [one for one in norms if norms[one] > high]):
        yield _PartsInTrouble("layer_gradient", "grad_norm", layers, describe)


def _gradients(parts: Sequence[str], one: str, several: str) -> str:
    """`the gradients of layers 0–2, output.weight are`: the beginning of a sentence."""
    numbers = [int(part.removeprefix("layer ")) for part in parts if part.startswith("layer ")]
    tensors = [part for part in parts if not part.startswith("layer ")]
    names = [_layers(numbers)] if numbers else []
    names += tensors[:_NAMED] + ([f"{len(tensors) - _NAMED} more tensors"] if len(tensors) > _NAMED else [])
    return f"the gradient{'s'[: len(parts) > 1]} of {_listed(names)} {one if len(parts) == 1 else several}"


def _layers(numbers: Iterable[int]) -> str:
    """`layer 3`, `layers 0–2 and 5`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    names = [f"{some[0]}–{some[-1]}" if len(some) > 1 else f"{some[0]}" for some in ranges]
    return f"layer{'s'[: sum(map(len, ranges)) > 1]} {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _layer_of(event: Mapping[str, Any]) -> int | None:
    path = event["param"].removeprefix("v.").split(".")
    return int(path[1]) if path[0] == "blk" else None


def of_taps(taps: list[Mapping[str, Any]]) -> list[_Finding]:
    """Units that do nothing, and logits that say 0 or 1."""
    dead = {f"layer {event['layer']}": float(event["dead"]) for event in taps if event.get("dead", 0) > _DEAD}

    def of_dead(layers: Sequence[str]) -> str:
        worst, *others = sorted(layers, key=dead.__getitem__, reverse=True)
        numbers = [int(layer.removeprefix("layer ")) for layer in others]
        further = f", and more than {_DEAD:.0%} of {_layers(numbers)}" if others else ""
        return (
            f"{dead[worst]:.0%} of the feed-forward units of {worst} do nothing for any token{further}: the learning"
            f" rate may have been too high (`lr`, `warmup`), or the layer{'s are' if others else ' is'} wider than the"
            " data want"
        )

    findings: list[_Finding] = [_PartsInTrouble("dead_units", "loss", list(dead), of_dead)]
    logits = next((event for event in taps if event["region"] == "logits" and event.get("max") is not None), None)
    if logits is not None and max(abs(logits["min"] or 0.0), abs(logits["max"])) > _SATURATED:
        greatest = max(logits["min"], logits["max"], key=abs)
        text = (
            f"logits are saturated: they reach {greatest:.3g}, which leaves probabilities of 0 and 1; a lower rate of"
            " the head (`lr_head`), or more `weight_decay`, holds them"
        )
        findings.append(TrainingWarning("logits", text, "loss"))
    return findings
