"""What a run must reach: `loss<2.5`, `validation/ppl<=12`, `accuracy>0.97`."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from linnet.errors import UsageError

_WAYS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Gate:
    """A metric, a way to compare, a threshold."""

    metric: str
    way: str
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
            close = difflib.get_close_matches(self.metric, metrics, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(metrics)}"
            raise UsageError(f"`gate`: this run will have no metric {self.metric!r}; {hint}")

    def verdict(self, value: float) -> dict[str, object]:
        """The `quality_gate` of a run's end. NaN never passes."""
        passed = bool(_WAYS[self.way](value, self.threshold))
        return {"passed": passed, "metric": self.metric, "value": value, "threshold": self.threshold}
