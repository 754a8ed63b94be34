"""`ArtifactPage`: which of a run's artifacts is looked at, and which step of it."""

from __future__ import annotations

from dataclasses import dataclass

from linnet.board.gallery import ArtifactSeries
from linnet.runs import Artifact


@dataclass
class ArtifactPage:
    """The selection in the artifacts tab.

    - `key`: name and media; the first series without. `position`: which of it; None: the last, also when another comes.
    - `whole`: it has the whole screen; `top_line`: where a long text or table is scrolled to; `tells_path`: where the
      file lies is said above it.
    - `first_row`, `list_rows`, `list_width`: of the list of names, as it was last drawn.
    """

    key: tuple[str, str] | None = None
    position: int | None = None
    whole: bool = False
    tells_path: bool = False
    top_line: int = 0
    first_row: int = 0
    list_rows: int = 0
    list_width: int = 0

    def row(self, all_series: list[ArtifactSeries]) -> int:
        """The place of the selected name in the list."""
        return next((at for at, series in enumerate(all_series) if series.key == self.key), 0)

    def index(self, series: ArtifactSeries) -> int:
        """Which artifact of a series is looked at."""
        last = len(series.artifacts) - 1
        return last if self.position is None else min(self.position, last)

    def artifact(self, all_series: list[ArtifactSeries]) -> Artifact | None:
        """The artifact that is looked at; None where there is none."""
        if not all_series:
            return None
        series = all_series[self.row(all_series)]
        return series.artifacts[self.index(series)]

    def select(self, series: ArtifactSeries) -> None:
        self.key, self.position, self.top_line, self.tells_path = series.key, None, 0, False

    def open(self) -> None:
        """Give it the whole screen, or take it back."""
        self.whole, self.top_line = not self.whole, 0

    def move(self, all_series: list[ArtifactSeries], right: int, down: int) -> None:
        """An arrow: another step, another name; or scroll what has the whole screen."""
        if right:
            self.walk(all_series, right)
        elif self.whole:
            self.scroll(down)
        elif all_series:
            row = min(max(self.row(all_series) + down, 0), len(all_series) - 1)
            if all_series[row].key != self.key:
                self.select(all_series[row])

    def walk(self, all_series: list[ArtifactSeries], by: int) -> None:
        """So many steps on; at the last one it stays with the newest."""
        if not all_series:
            return
        series = all_series[self.row(all_series)]
        last = len(series.artifacts) - 1
        position = min(max(self.index(series) + by, 0), last)
        self.position, self.top_line = None if position == last else position, 0

    def scroll(self, lines: int) -> None:
        self.top_line = max(0, self.top_line + lines)
