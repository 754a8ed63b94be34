"""`RunList`: how the table of runs stands on the screen."""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.board.run_order import arranged
from linnet.board.run_table import RunRow

HEAD = 2  # lines above the first run


@dataclass
class RunList:
    """What of the table of runs is shown: order, filter, the row that is chosen, and those that are marked."""

    sort: str = "age"
    reverse: bool = False
    filter: str = ""
    cursor: str = ""  # path of the run
    marks: list[str] = field(default_factory=list)
    offset: int = 0


def listed(rows: list[RunRow], table: RunList) -> list[RunRow]:
    """The rows that are in the table, in its order."""
    return arranged(rows, table.sort, table.reverse, table.filter)


def window(rows: list[RunRow], table: RunList, height: int) -> tuple[int, int]:
    """Where in `rows` the cursor stands, and the first row of a screen of so many lines that shows it."""
    at = next((i for i, row in enumerate(rows) if row.summary.path == table.cursor), 0)
    return at, min(max(table.offset, at - height + 1), at, max(0, len(rows) - height))
