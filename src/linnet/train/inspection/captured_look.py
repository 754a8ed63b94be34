"""`CapturedLook`: a look whose operations a GPU is handed at once, as those of a captured step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from linnet.errors import is_out_of_memory
from linnet.kernels import Graph
from linnet.kernels.replay import Work
from linnet.train.hardware import Hardware
from linnet.train.inspection.late_events import EventRow, Look
from linnet.train.settings import TrainSettings

log = logging.getLogger("linnet")

Looker = Callable[..., Look]
_Kinds = tuple[torch.Size | None, ...]


def captured_looks(settings: TrainSettings, hardware: Hardware) -> Callable[[Looker], Looker]:
    """How looks are captured: on a GPU, whatever the steps are, unless nothing is to be.

    A look is a thousand small operations even where a step is a few large ones.
    """
    if hardware.device.type != "cuda" or settings.graph == "off":
        return lambda look: look
    return lambda look: CapturedLook(look, lambda work: Graph(work, plain_calls=1))


class CapturedLook:
    """The same look, captured. Which events it gives follows from its inputs' shapes; their figures from the replay.

    What cannot be captured is done without: it takes longer, and gives the same.
    """

    def __init__(self, look: Looker, captured: Callable[[Work], Work]) -> None:
        self._look = look
        self._rows: dict[_Kinds, Sequence[EventRow]] = {}
        self._captured: Work | None = captured(self._figures)

    def __call__(self, *inputs: Tensor | None) -> Look:
        """Look."""
        if self._captured is not None:
            try:
                figures = self._captured(*inputs)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                log.info("a look is not captured (%s: %s)", type(error).__name__, error)
                self._captured = None
            else:
                return self._rows[_kinds(inputs)], figures
        return self._look(*inputs)

    def _figures(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        rows, figures = self._look(*inputs)
        self._rows[_kinds(inputs)] = rows
        return (torch.cat([tensor.reshape(-1) for tensor in figures]),)


def _kinds(inputs: Sequence[Tensor | None]) -> _Kinds:
    return tuple(None if tensor is None else tensor.shape for tensor in inputs)
