"""What is computed of every row of a run and kept while it is asked for: smoothed lines, places on an axis."""

from __future__ import annotations

from collections import OrderedDict

from linnet.board.curve import Curve, Floats, smooth
from linnet.board.web.reduction import Placed
from linnet.board.whole_history import WholeHistory

_MOST_ROWS = 8 << 20  # of all lines that are kept


class SmoothedColumns:
    """The exponential moving averages of one run, by metric and weight; each as of so many rows."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[str, float], tuple[int, Floats]] = OrderedDict()

    def get(self, curve: Curve, alpha: float, version: int) -> Floats:
        """The smoothed values of all rows of a curve. `version`: changes when the run's rows do."""
        key = (curve.name, alpha)
        known = self._lines.get(key)
        if known is None or known[0] != version:
            known = version, smooth(curve.mean, alpha)
            self._lines[key] = known
        self._lines.move_to_end(key)
        rows = sum(len(line) for _, line in self._lines.values())
        while len(self._lines) > 1 and rows > _MOST_ROWS:
            rows -= len(self._lines.popitem(last=False)[1][1])
        return known[1]


Tables = tuple[tuple[str, ...], ...]


class PlacedColumns:
    """Where rows stand on an axis, by the tables that they are in and the axis; each as of a state of the run."""

    def __init__(self) -> None:
        self._columns: OrderedDict[tuple[Tables, str, int], tuple[int, Placed]] = OrderedDict()

    def get(self, tables: Tables, axis: str, history: WholeHistory) -> Placed | None:
        """Those of some tables on an axis; None where they are to be worked out."""
        key = (tables, axis, id(history))
        known = self._columns.get(key)
        if known is None or known[0] != history.changes:
            return None
        self._columns.move_to_end(key)
        return known[1]

    def put(self, tables: Tables, axis: str, history: WholeHistory, x: Floats) -> Placed:
        """Keep where rows stand."""
        placed = Placed(x)
        self._columns[tables, axis, id(history)] = history.changes, placed
        rows = sum(len(column.x) for _, column in self._columns.values())
        while len(self._columns) > 1 and rows > _MOST_ROWS:
            rows -= len(self._columns.popitem(last=False)[1][1].x)
        return placed
