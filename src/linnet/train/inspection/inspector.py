"""`Inspector`: what `inspect` asks for, looked at beside the steps of a training, and written into its run.

A step that is looked at computes what any other does. Activations come from a pass of their own, without gradients,
before it; gradients, updates and times are read off the step itself; the distance from the first weights after it. Only
the profiler waits for the device: figures are written when they have come.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from linnet.errors import error_text, is_out_of_memory
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.inspection.captured_look import captured_looks
from linnet.train.inspection.drift import EMBEDDING, DriftFigures, TokenCounts
from linnet.train.inspection.gradients import GradientFigures
from linnet.train.inspection.late_events import InspectedEvent, LateEvents, Look, PendingEvents, write
from linnet.train.inspection.op_times import OpTimes
from linnet.train.inspection.pieces import TensorPiece, tensor_pieces
from linnet.train.inspection.region_times import RegionTimer
from linnet.train.inspection.taps import look_at_batch, look_at_probe, looked_at
from linnet.train.settings import TrainSettings
from linnet.train.step import Batch, StepObserver, StepResult

log = logging.getLogger("linnet")

TOKEN_COUNTS = "inspect/token_counts"  # in a state, among the moments

TrainOn = Callable[[StepObserver | None], StepResult]
OnEvents = Callable[[int, list[InspectedEvent]], None]


class Inspector:
    """Looks inside a training; rank 0 does, of several.

    - `model`: the one that is trained. `probe`: a fixed sequence, or images, for Gram matrices.
    - `first`: the first weights, where drift is asked for; `kept`: what a state holds of an earlier session.
    - `on_events`: is told of what was seen in a step.
    """

    def __init__(
        self,
        model: Any,
        settings: TrainSettings,
        hardware: Hardware,
        run: Session,
        *,
        probe: Tensor | None = None,
        first: Mapping[str, Tensor] | None = None,
        kept: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._model, self._hardware, self._run = model, hardware, run
        self._probe = probe
        self.on_events: OnEvents = lambda step, events: None
        self._rows = settings.batch
        self._parameters = dict(model.named_parameters())
        self._drift = None if first is None else DriftFigures(self._parameters, self._pieces, first)
        self._counts: TokenCounts | None = None
        table = self._parameters.get(EMBEDDING)
        if self._drift is not None and table is not None and table.requires_grad:
            counted = None if kept is None else kept.get(TOKEN_COUNTS)
            self._counts = TokenCounts(len(table), table.device, counted)
        self._late: deque[PendingEvents] = deque()
        self._given_up: set[str] = set()
        captured = captured_looks(model, settings, hardware)
        self._look_at_batch = captured(partial(look_at_batch, model))
        self._look_at_probe = captured(partial(look_at_probe, model))
        self._look_at_drift = None if self._drift is None else captured(self._drift.look)

    @cached_property
    def _pieces(self) -> list[TensorPiece]:
        return tensor_pieces(self._model.config, self._parameters.items())

    @cached_property
    def _gradients(self) -> GradientFigures:
        return GradientFigures(self._parameters, self._pieces)

    def count(self, batch: Batch) -> None:
        """A batch is trained on: its tokens are counted, where their drift is told."""
        if self._counts is not None and (ids_BT := batch.inputs[0]) is not None:
            self._counts.add(ids_BT)

    def before(self, groups: frozenset[str], step: int, batch: Batch) -> None:
        """Look at what the model makes of the step's batch, and of the probe, before the step moves its weights."""
        if "taps" in groups:
            self._try("taps", step, self._look_at_batch, *looked_at(self._model, batch.inputs, self._rows))
        if "gram" in groups and self._probe is not None:
            self._try("gram", step, self._look_at_probe, self._probe)

    def during(self, groups: frozenset[str], step: int, train_on: TrainOn, *, profiling: bool = False) -> StepResult:
        """Train on the step's batch, and look at its gradients, its update and its time where they are asked for.

        `profiling`: torch's profiler is at work already, and there is one at a time.
        """
        timer = op_times = None
        if "regions" in groups:
            timer = RegionTimer(self._model, self._hardware.device, step, compiled=self._hardware.compile)
            self._late.append(timer)
        if "ops" in groups and not profiling:
            op_times = OpTimes(self._hardware, step)
        gradients = self._gradients if "grads" in groups else None
        with nullcontext() if op_times is None else op_times.profiled():
            result = train_on(StepObserver(gradients, timer))
        if result.observed is not None:
            self._late.append(LateEvents(step, self._gradients.rows, [result.observed]))
        if op_times is not None:
            self._late.append(op_times)
        return result

    def after(self, groups: frozenset[str], step: int) -> None:
        """Look at the weights that the step has moved."""
        if "drift" in groups and self._look_at_drift is not None:
            self._try("drift", step, self._look_at_drift, *([] if self._counts is None else [self._counts.now()]))

    def write(self, *, wait: bool = False) -> None:
        """Write the events whose figures have come; all of them with `wait`."""
        while self._late and (wait or self._late[0].are_here()):
            pending = self._late.popleft()
            events = list(pending.events())
            write(self._run, pending.step, events)
            self.on_events(pending.step, events)

    def kept(self) -> dict[str, Tensor]:
        """What a state must hold so that another session goes on counting."""
        return {} if self._counts is None else {TOKEN_COUNTS: self._counts.kept()}

    def _try(self, group: str, step: int, look: Callable[..., Look], *inputs: Tensor | None) -> None:
        """Look; what goes wrong is told once, and the training goes on without that group: it is not worth a run."""
        if group in self._given_up:
            return
        try:
            self._late.append(LateEvents(step, *look(*inputs)))
        except Exception as error:
            self._given_up.add(group)
            if is_out_of_memory(error):
                why = "there is too little memory for it"
                torch.cuda.empty_cache() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
            else:
                why = f"{type(error).__name__}: {error_text(error)}"
            log.warning("run %s: no %s are inspected from step %d on (%s)", self._run.run_id, group, step, why)
            self._run.note(f"no {group} are inspected from step {step} on: {why}", step=step, level="warning")
