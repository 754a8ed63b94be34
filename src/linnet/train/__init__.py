"""The one loop, its optimiser, schedule, device, checkpoints and resume; torch is loaded when one of them is used."""

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.train.evaluation import Evaluation as Evaluation
    from linnet.train.evaluation import evaluate as evaluate
    from linnet.train.hardware import Hardware as Hardware
    from linnet.train.hardware import choose as choose
    from linnet.train.loop import Loop as Loop
    from linnet.train.loop import Outcome as Outcome
    from linnet.train.settings import TrainSettings as TrainSettings
    from linnet.train.watch import StepReport as StepReport
    from linnet.train.watch import Watch as Watch

_HOMES = {
    "Evaluation": "linnet.train.evaluation",
    "Hardware": "linnet.train.hardware",
    "Loop": "linnet.train.loop",
    "Outcome": "linnet.train.loop",
    "StepReport": "linnet.train.watch",
    "TrainSettings": "linnet.train.settings",
    "Watch": "linnet.train.watch",
    "choose": "linnet.train.hardware",
    "evaluate": "linnet.train.evaluation",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
