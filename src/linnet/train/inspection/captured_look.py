"""`CapturedLook`: a look whose operations a GPU is handed at once, as those of a captured step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from linnet.kernels import Graph
from linnet.kernels.replay import Work
from linnet.train.hardware import Hardware
from linnet.train.inspection.late_events import EventRow, Look
from linnet.train.settings import TrainSettings

log = logging.getLogger("linnet")

Looker = Callable[..., Look]
_Kinds = tuple[torch.Size | None, ...]


def captured_looks(model: nn.Module, settings: TrainSettings, hardware: Hardware) -> Callable[[Looker], Looker]:
    """How looks at a model are captured: on a GPU, where graphs are asked for (`graph="on"`).

    A look is a thousand small operations even where a step is a few large ones. Not by `auto`, until it was measured on
    a GPU: a capture that CUDA refuses may cost more than the look (docs/decisions.md).
    """
    if not are_captured(settings, hardware):
        return lambda look: look
    return lambda look: CapturedLook(look, model, lambda work: Graph(work, plain_calls=1))


def are_captured(settings: TrainSettings, hardware: Hardware) -> bool:
    """Are looks replayed as CUDA graphs? The plan of a training asks too, for the memory that they keep."""
    return hardware.device.type == "cuda" and settings.graph == "on"


class CapturedLook:
    """The same look, captured. Which events it gives follows from its inputs' shapes; their figures from the replay.

    What cannot be captured is done without: it takes longer, and gives the same.

    - `model`: what is looked at. A capture reads its weights where they lay: where somebody has laid them elsewhere
      meanwhile, it is made anew. Where a program has hooks in the model, which may ask the device, there is none.
    """

    def __init__(self, look: Looker, model: nn.Module, capture: Callable[[Work], Work]) -> None:
        self._look, self._model, self._capture = look, model, capture
        self._rows: dict[_Kinds, Sequence[EventRow]] = {}
        self._captured: Work | None = None
        self._addresses: list[int] = []  # of the weights that the capture reads
        self._is_capturable = True

    def __call__(self, *inputs: Tensor | None) -> Look:
        """The look at these inputs: replayed, or taken as any other where that cannot be."""
        if self._is_capturable and not _has_hooks(self._model):
            addresses = [parameter.data_ptr() for parameter in self._model.parameters()]
            if self._captured is None or addresses != self._addresses:
                self._captured, self._addresses = self._capture(self._figures), addresses
            try:
                figures = self._captured(*inputs)
            except Exception as error:  # also where its memory, which it keeps, is too much
                log.info("a look is not captured (%s: %s)", type(error).__name__, error)
                self._captured, self._is_capturable = None, False
            else:
                return self._rows[_kinds(inputs)], figures
        return self._look(*inputs)

    def _figures(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        rows, figures = self._look(*inputs)
        self._rows[_kinds(inputs)] = rows
        return (torch.cat([tensor.reshape(-1) for tensor in figures]),)


def _kinds(inputs: Sequence[Tensor | None]) -> _Kinds:
    return tuple(None if tensor is None else tensor.shape for tensor in inputs)


def _has_hooks(model: nn.Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
