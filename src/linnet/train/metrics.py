"""A step's metrics by name, from the device to the log, the screen and callbacks; and the gate that judges one.

What a loss returns besides itself is logged and shown under the name it gives it: nothing here or after it knows the
names, so a new scalar is added where it is computed.
"""

from __future__ import annotations

import logging
import operator
import re
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import Tensor

from linnet.errors import UsageError, suggestion
from linnet.train.device_clock import Moment, moment_on, seconds_between

log = logging.getLogger("linnet")

_AHEAD = 16  # steps the host may run ahead of their metrics
_AHEAD_TOGETHER = 4  # the same where ranks must act on them at the same step
_RECENT = 25  # steps whose median duration is the speed that is shown
_NOTHING: Mapping[str, Tensor] = MappingProxyType({})
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class StepMetrics:
    """The metrics of one training step.

    - `values`: every scalar by its name, as the step's event has it: `loss`, `lr`, `grad_norm` …
    - `unit`: what is counted, tokens or images; `per_s`, `mfu`, `seconds_left`: by the median of the last steps.
    """

    step: int
    steps: int
    values: dict[str, float]
    unit: str
    per_s: float
    mfu: float | None  # None: the device's peak is not known
    seconds_left: float
    signals: dict[str, float] = field(default_factory=dict)  # what the ranks told each other with this step

    @property
    def loss(self) -> float:
        """The training loss, in nats."""
        return self.values["loss"]

    @property
    def lr(self) -> float:
        """The learning rate of the step."""
        return self.values["lr"]

    @property
    def grad_norm(self) -> float:
        """The norm of the gradient, before clipping."""
        return self.values["grad_norm"]

    def get(self, name: str) -> float | None:
        """A metric that not every model has, such as `accuracy`."""
        return self.values.get(name)


@dataclass(frozen=True)
class StepWork:
    """How much a step does: `count` tokens or images (`unit`), `flops` of arithmetic; `last`: the run's last step."""

    unit: str
    count: int
    flops: float
    last: int


class MetricQueue:
    """A queue of steps whose metrics are still on the device, so that the loop never waits for them.

    On the CPU nothing is ever late. A step's time is taken where it is spent: on a GPU by events in its stream, since
    the host runs ahead. `peak_flops` is that of all devices, for MFU.

    `together`: several ranks ask, and must be given the same steps at the same time, however quick each of them is.
    """

    def __init__(
        self,
        device: torch.device,
        work: StepWork,
        peak_flops: float | None,
        run_id: str = "",
        *,
        together: bool = False,
    ) -> None:
        self._device, self._together = device, together
        self._work, self._peak_flops, self._run_id = work, peak_flops, run_id
        self._pending: deque[_Pending] = deque()
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._began = moment_on(self._device)

    @property
    def step_seconds(self) -> float:
        """How long a step takes: the median of the last ones; 0 before the first has come back."""
        return statistics.median(self._seconds) if self._seconds else 0.0

    def set_last(self, step: int) -> None:
        """The run will have so many steps, as is known now."""
        self._work = replace(self._work, last=step)

    def begin(self) -> None:
        """The next step begins now: what was done since the last one is not its time."""
        self._began = moment_on(self._device)

    def add(
        self, step: int, lr: float, metrics: Mapping[str, Tensor], signals: Mapping[str, Tensor] = _NOTHING
    ) -> None:
        """Queue the metrics of a step that was just handed out, and what the ranks told each other with it."""
        values = torch.stack([value.float() for value in (*metrics.values(), *signals.values())])
        if self._device.type == "cuda":
            values = values.to("cpu", non_blocking=True)
        ended = moment_on(self._device)
        self._pending.append(_Pending(step, lr, self._began, ended, tuple(metrics), values, tuple(signals)))
        self._began = ended

    def ready(self, wait: bool = False) -> list[StepMetrics]:
        """The steps whose metrics have come; all of them with `wait`."""
        arrived = []
        while self._pending:
            first = self._pending[0]
            if isinstance(first.ended, torch.cuda.Event):
                ahead = _AHEAD_TOGETHER if self._together else _AHEAD
                is_late = self._together or not first.ended.query()  # type: ignore[no-untyped-call]
                if is_late and not wait and len(self._pending) < ahead:
                    break
                first.ended.synchronize()
            self._pending.popleft()
            arrived.append(self._metrics(first))
        return arrived

    def _metrics(self, pending: _Pending) -> StepMetrics:
        work, seconds = self._work, pending.seconds
        numbers = pending.values.tolist()
        values = dict(zip(pending.names, numbers[: len(pending.names)], strict=True))
        signals = dict(zip(pending.signals, numbers[len(pending.names) :], strict=True))
        grad_norm = values.pop("grad_norm")
        mfu = self._utilization(seconds)
        values |= {
            "lr": pending.lr,
            "grad_norm": grad_norm,
            work.unit: work.count,
            "wall_us": round(seconds * 1e6),
            f"{work.unit}_per_s": work.count / seconds,
            **({} if mfu is None else {"mfu": mfu}),
        }
        self._seconds.append(seconds)
        usual = statistics.median(self._seconds)  # a step in which something is compiled tells nothing
        return StepMetrics(
            pending.step,
            work.last,
            values,
            work.unit,
            per_s=work.count / usual,
            mfu=self._utilization(usual),
            seconds_left=(work.last - pending.step) * usual,
            signals=signals,
        )

    def _utilization(self, seconds: float) -> float | None:
        """The share of the device's peak that a step reached (MFU); None without a peak that can be trusted.

        A step that beats the peak shows that it was measured while others were busy: from then on there is none.
        """
        if self._peak_flops is None:
            return None
        share = self._work.flops / seconds / self._peak_flops
        if share > 1:
            self._peak_flops = None
            log.info("run %s: a step beat the measured peak; no MFU from here on", self._run_id)
            return None
        return share


@dataclass(frozen=True)
class _Pending:
    step: int
    lr: float
    began: Moment
    ended: Moment
    names: tuple[str, ...]
    values: Tensor
    signals: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the step took; the device must have done it."""
        return seconds_between(self.began, self.ended)


@dataclass(frozen=True)
class Gate:
    """What a run must reach: `loss<2.5`, `validation/ppl<=12`, `accuracy>0.97`."""

    metric: str
    comparison: str
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read a gate as people write it."""
        match = re.fullmatch(r"\s*([\w./+-]+?)\s*(<=|>=|<|>)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*", text)
        if match is None:
            raise UsageError(f"`gate` {text!r} is not understood; write it like loss<2.5 or validation/loss<=3")
        try:
            return cls(match[1], match[2], float(match[3]))
        except ValueError:
            raise UsageError(f"`gate` {text!r}: {match[3]!r} is not a number") from None

    def require(self, metrics: Sequence[str]) -> None:
        """Refuse a metric that the run will not have."""
        if self.metric not in metrics:
            hint = suggestion(self.metric, metrics)
            raise UsageError(f"`gate`: this run will have no metric {self.metric!r}{hint}")

    def verdict(self, value: float) -> dict[str, object]:
        """The `quality_gate` of a run's end. NaN never passes."""
        passed = bool(_COMPARISONS[self.comparison](value, self.threshold))
        return {"passed": passed, "metric": self.metric, "value": value, "threshold": self.threshold}
