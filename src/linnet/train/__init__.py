"""The one loop, its optimizer, schedule, device, checkpoints and resume; torch is loaded when one of them is used."""

from typing import TYPE_CHECKING

from linnet._lazy import callable_room as _callable_room
from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.train.callback import Callback as Callback
    from linnet.train.callback import CallbackError as CallbackError
    from linnet.train.hardware import Hardware as Hardware
    from linnet.train.hardware import choose as choose
    from linnet.train.loop import Loop as Loop
    from linnet.train.metrics import StepMetrics as StepMetrics
    from linnet.train.plan import Plan as Plan
    from linnet.train.progress import Outcome as Outcome
    from linnet.train.protocols import EvalResult as EvalResult
    from linnet.train.protocols import Recipe as Recipe
    from linnet.train.protocols import RunData as RunData
    from linnet.train.settings import TrainSettings as TrainSettings
    from linnet.train.text import Evaluation as Evaluation
    from linnet.train.text import evaluate as evaluate

__all__, __getattr__, __dir__ = _lazy(__name__)

_callable_room(__name__, "linnet.api", "train")  # `linnet.train("from-scratch", …)` trains
