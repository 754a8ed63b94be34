"""What is computed of every row of a run and kept while it is asked for: smoothed lines, places on an axis, blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from linnet.board.curve import Curve, Floats, smooth
from linnet.board.web.reduction import Placed
from linnet.board.web.row_blocks import LEAST_ROWS, RowBlocks
from linnet.board.whole_history import WholeHistory

_MOST_ROWS = 8 << 20  # of all columns of a kind that are kept
_MOST_BLOCKED_ROWS = 256 << 20  # blocks take a twentieth of the rows

Column = TypeVar("Column")


class KeptColumns(Generic[Column]):
    """Columns by key, each as of a version of the run's rows; those that were not asked for longest are let go."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._columns: OrderedDict[Hashable, tuple[int, int, Column]] = OrderedDict()  # version, rows, column

    def get(self, key: Hashable, version: int) -> Column | None:
        """None where it is to be worked out."""
        known = self._columns.get(key)
        if known is None or known[0] != version:
            return None
        self._columns.move_to_end(key)
        return known[2]

    def put(self, key: Hashable, version: int, rows: int, column: Column) -> Column:
        self._columns[key] = version, rows, column
        self._columns.move_to_end(key)
        held = sum(rows for _, rows, _ in self._columns.values())
        while len(self._columns) > 1 and held > self._most_rows:
            held -= self._columns.popitem(last=False)[1][1]
        return column


class SmoothedColumns:
    """The exponential moving averages of one run, by metric and weight."""

    def __init__(self) -> None:
        self._lines = KeptColumns[Floats]()

    def get(self, curve: Curve, alpha: float, version: int) -> Floats:
        """The smoothed values of all rows of a curve. `version`: changes when the run's rows do."""
        key = (curve.name, alpha)
        known = self._lines.get(key, version)
        return known if known is not None else self._lines.put(key, version, len(curve), smooth(curve.mean, alpha))


Tables = tuple[tuple[str, ...], ...]


class PlacedColumns:
    """Where rows stand on an axis, by the tables that they are in and the axis."""

    def __init__(self) -> None:
        self._columns = KeptColumns[Placed]()

    def get(self, tables: Tables, axis: str, history: WholeHistory) -> Placed | None:
        """Those of some tables on an axis; None where they are to be worked out."""
        return self._columns.get((tables, axis, id(history)), history.changes)

    def put(self, tables: Tables, axis: str, history: WholeHistory, x: Floats) -> Placed:
        """Keep where rows stand."""
        return self._columns.put((tables, axis, id(history)), history.changes, len(x), Placed(x))


class BlockedColumns:
    """The blocks of one run's long series, by metric."""

    def __init__(self) -> None:
        self._blocks = KeptColumns[RowBlocks](_MOST_BLOCKED_ROWS)

    def get(self, curve: Curve, version: int) -> RowBlocks | None:
        """Those of a curve; None of one that is reduced as fast without. `version`: as for `SmoothedColumns`."""
        if len(curve) < LEAST_ROWS:
            return None
        known = self._blocks.get(curve.name, version)
        return known if known is not None else self._blocks.put(curve.name, version, len(curve), RowBlocks(curve.mean))
