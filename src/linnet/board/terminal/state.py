"""`Board`: what is on the screen, without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from linnet.board.curve import AXES, SMOOTHING
from linnet.board.downsampling import DownsamplingLimits
from linnet.board.figure.colours import ThemeName
from linnet.board.gallery import ArtifactSeries
from linnet.board.host import Host
from linnet.board.initial_scan import InitialScan
from linnet.board.run_list import SORTS, RunList
from linnet.board.run_table import Figures, RunRow, RunTable
from linnet.board.terminal.artifact_page import ArtifactPage
from linnet.board.terminal.chart_list import ChartList
from linnet.board.terminal.inside_page import InsidePage
from linnet.board.terminal.keys import VIEWS, View
from linnet.board.terminal.layout import Layout, arrange
from linnet.board.terminal.system_viewer import open_with_system
from linnet.board.terminal.zoom import Zoom
from linnet.board.watched_run import WatchedRun
from linnet.errors import LinnetError
from linnet.runs import RunStore, add_note
from linnet.runs.metric_names import held_out_of

if TYPE_CHECKING:
    from linnet.board.terminal.scatter_page import ScatterPage

Area = Literal["page", "runs", "inside", "artifacts", "grid", "detail"]
Overlay = Literal["", "help", "differences", "scatter"]
Question = Literal["", "filter", "columns", "charts", "figure", "prompt", "note"]
TABLE_HEAD = 2  # lines above the first run of the table
MOST_OVERLAID = 8  # runs that are drawn over each other; there are as many colours
_FAR = 10**9  # rows or lines: to the end


class Board:
    """The state of the board. `actions.act` changes it as a key asks for; whoever draws reads it.

    - `store`: where runs are listed from; `paths`: the runs to open.
    - `limits`: how much of a long run is held; `now`: the Unix time, by which the age of runs is told.
    - `initial_scan`: at the runs of the store, where it has begun already.
    - `opening`: folders that the reader is to open next.
    - `asking`: what a text is being typed for: `filter` (of runs), `columns` (of their list), `charts` (which of them),
      `figure` (of the inside), `prompt` (of attention), `note` or nothing.
    """

    def __init__(
        self,
        store: RunStore,
        paths: list[Path] | None = None,
        view: View = "metrics",
        *,
        limits: DownsamplingLimits | None = None,
        now: Callable[[], float] = time.time,
        initial_scan: InitialScan | None = None,
    ) -> None:
        self.store = store
        self.limits = limits
        self.now = now
        self.run_table = RunTable(store, self._rows_to_sum_up, initial_scan=initial_scan, figures=self._figures_needed)
        self.host = Host()
        self.watched_runs: list[WatchedRun] = []
        self.view: View = view
        self.detail: str | None = None
        self.overlay: Overlay = ""
        self.asking: Question = ""
        self.message = ""
        self.opening = self._to_draw(paths) if paths else None
        self.primary = 0
        self.selected: str | None = None
        self.smoothing = 0
        self._axis = AXES[0]
        self.log_scale = False
        self.clip = False
        self.family = True  # a fork's charts begin with its parent's lines
        self.side = True
        self.zoom = Zoom()
        self.table = RunList()
        self.charts = ChartList(store.root)
        self.artifact_page = ArtifactPage()
        self.inside = InsidePage()
        self.color = False  # pictures may be drawn in colours
        self.theme: ThemeName = "dark"  # of these
        self.scroll: dict[str, int] = {}
        self.columns = dict.fromkeys(SORTS, 0)  # of the table of runs and their widths, as it was last drawn
        self.top_line: dict[str, int] = {}  # of each page, where it was scrolled to when it was last drawn
        self.size = (80, 20)  # of the body
        self.leaving = False
        self.escaped = False  # the last key was an Esc that went back
        self._layout: tuple[object, Layout] | None = None
        self._groups: tuple[object, dict[str, list[str]]] | None = None
        self._metrics: tuple[list[list[str]], list[str]] = ([], [])  # as each run logged them, and all of them
        self._held_out: dict[str, str | None] = {}

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def area(self) -> Area:
        """What arrows and the mouse act on: a page that scrolls, a list, the grid of charts, or one metric."""
        if self.overlay or self.view not in ("metrics", "runs", "inside", "artifacts"):
            return "page"
        if self.view in ("runs", "inside", "artifacts"):
            return self.view
        return "grid" if self.detail is None else "detail"

    @property
    def watched(self) -> WatchedRun | None:
        """The run that the header and the other tabs are about."""
        return self.watched_runs[self.primary % len(self.watched_runs)] if self.watched_runs else None

    @property
    def alpha(self) -> float:
        """How much a new value weighs in the smoothed line."""
        return SMOOTHING[self.smoothing][1]

    @property
    def axis(self) -> str:
        """What stands on the x axis: as chosen, and steps where the runs shown do not tell it."""
        return self._axis if self._has_axis(self._axis) else AXES[0]

    def _has_axis(self, axis: str) -> bool:
        """Has every run shown figures for it?"""
        histories = [watched.history for watched in self.watched_runs if watched.history.names()]
        if axis == "tokens":
            return all("tokens" in history.names() for history in histories)
        return axis != "epoch" or all(history.last_epoch is not None for history in histories)

    @cached_property
    def scatter(self) -> ScatterPage:
        """The runs of the list as points; loaded when somebody asks for them."""
        from linnet.board.terminal.scatter_page import ScatterPage

        return ScatterPage(self.store.root, lambda: self.marked() or self.rows())

    def artifacts(self) -> list[ArtifactSeries]:
        """What the run has logged besides numbers, by name."""
        return self.watched.journal.artifacts() if self.watched is not None else []

    def metrics(self) -> list[str]:
        """The metrics of all runs shown, without the machine's."""
        logged = [watched.history.names() for watched in self.watched_runs]
        known = self._metrics[0]
        if len(logged) != len(known) or any(a is not b for a, b in zip(logged, known, strict=True)):
            names = dict.fromkeys(name for names in logged for name in names if not name.startswith("sys/"))
            self._metrics, self._held_out = (logged, list(names)), {}
        return self._metrics[1]

    def held_out(self, name: str) -> str | None:
        """The metric that is the same as another on held-out data; None where there is none."""
        metrics = self.metrics()
        if name not in self._held_out:
            self._held_out[name] = next(iter(held_out_of(name, metrics)), None)
        return self._held_out[name]

    def constants(self) -> dict[str, str]:
        """The metrics that never change, and their values."""
        return self.charts.constants(self.watched_runs, self.metrics())

    def groups(self) -> dict[str, list[str]]:
        """The metrics that have a chart, by group, in order."""
        metrics, constants, charts = self.metrics(), self.constants(), self.charts
        key = (tuple(metrics), tuple(constants), charts.preferences, charts.show_hidden, charts.filter)
        if self._groups is None or self._groups[0] != key:
            self._groups = key, charts.groups(metrics, constants)
        return self._groups[1]

    def names(self) -> list[str]:
        """The metrics that have a chart, in order."""
        return [name for members in self.groups().values() for name in members]

    def folded(self) -> dict[str, str]:
        """The constants that are told in a line instead of charts."""
        if self.charts.filter:
            return {}
        constants, hidden = self.constants(), self.charts.preferences.hidden
        return {
            name: value
            for name, value in constants.items()
            if name not in hidden and not self.charts.is_shown(name, constants)
        }

    def chosen(self) -> str | None:
        """The metric whose chart is selected; the first where none is."""
        names = self.names()
        return self.selected if self.selected in names else next(iter(names), None)

    def layout(self) -> Layout:
        """Where each chart stands, for the present size."""
        width, height = self.size[0] - self.side_width(), self.size[1] - (1 if len(self.watched_runs) > 1 else 0)
        groups, foot = self.groups(), self.has_foot()
        key = (tuple((group, *members) for group, members in groups.items()), width, height, foot)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, arrange(groups, width, height, foot=foot)
        return self._layout[1]

    def has_foot(self) -> bool:
        """Is there something to tell below the charts: constants, hidden metrics, a filter?"""
        return bool(
            self.folded() or self.charts.hidden(self.metrics()) or self.charts.filter or self.charts.show_hidden
        )

    def side_width(self) -> int:
        """The width of the panel beside the charts; 0 where there is no room for it."""
        return 34 if self.side and self.size[0] >= 116 else 0

    def rows(self) -> list[RunRow]:
        return self.table.select(self.run_table.rows)

    def _rows_to_sum_up(self, rows: list[RunRow]) -> list[RunRow]:
        """The runs whose best values and curves are needed: those that are shown, or all when sorted by them."""
        return rows if self.table.sort == "best" else self._rows_on_screen(rows)

    def _rows_on_screen(self, rows: list[RunRow]) -> list[RunRow]:
        in_order, height = self.table.select(rows), max(1, self.size[1] - TABLE_HEAD)
        _, offset = self.table.window(in_order, height)
        return in_order[offset : offset + height]

    def _figures_needed(self, rows: list[RunRow]) -> Figures:
        """Columns of metrics: those of the runs that are shown, or of all when these are filtered or sorted by them."""
        compared = [term for term in self.table.compared(rows) if term.kind == "metric"]
        shown = [term for term in self.table.terms(rows) if term.kind == "metric"]
        return (rows, compared) if compared else (self._rows_on_screen(rows), shown) if shown else ([], [])

    def marked(self) -> list[RunRow]:
        by_path = {row.path: row for row in self.run_table.rows}
        return [by_path[path] for path in self.table.marks if path in by_path]

    def needs_every_row(self) -> bool:
        """One metric is zoomed to, or has a cursor: the buckets of a downsampled run are too coarse for that."""
        return self.detail is not None and (self.zoom.window is not None or self.zoom.cursor is not None)

    def ask_for_rows(self) -> None:
        """Have the runs read what is needed for the present zoom."""
        for watched in self.watched_runs:
            watched.want_every_row(self.needs_every_row())

    def close(self) -> None:
        """Close all files; for the thread that reads, when it ends."""
        for watched in self.watched_runs:
            watched.close()
        self.run_table.close()
        self.inside.close()

    # -- what is opened -----------------------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """A text was typed for what was asked."""
        question, self.asking = self.asking, ""
        if question == "filter":
            self.table.filter, self.table.offset = text.strip(), 0
        elif question == "charts":
            self.charts.live_filter = None
            self.message = self.charts.set_filter(text)
        elif question == "columns":
            self.table.columns = text.strip()
        elif question == "figure":
            self.message = self.inside.choose(text)
        elif question == "prompt" and self.watched is not None:
            self.inside.ask_attention(self.watched, text)
        elif question == "note" and self.watched is not None and text.strip():
            try:
                add_note(self.watched.run, text.strip(), self.watched.step())
                self.message = "noted"
            except LinnetError as error:
                self.message = str(error)

    def open_metric(self, name: str) -> None:
        self.view, self.detail, self.selected = "metrics", name, name
        self.zoom.reset()
        self.zoom.whole = None

    def open_runs(self, paths: list[str]) -> None:
        self.opening = self._to_draw([Path(path) for path in paths])
        self.view, self.detail, self.primary, self.selected = "metrics", None, 0, None
        self.artifact_page = ArtifactPage()
        self.scroll.clear()

    def _to_draw(self, paths: list[Path]) -> list[Path] | None:
        """Each run once, and no more than there are colours and letters for."""
        distinct = list(dict.fromkeys(paths))
        if len(distinct) > MOST_OVERLAID:
            self.message = f"the first {MOST_OVERLAID} of {len(distinct)} runs are drawn"
        return distinct[:MOST_OVERLAID]

    def show(self, view: View) -> None:
        self.view, self.detail, self.overlay = view, None, ""

    def show_next(self, by: int) -> None:
        self.show(VIEWS[(VIEWS.index(self.view) + by) % len(VIEWS)])

    def lay_over(self, overlay: Overlay) -> None:
        """Show a page over the tab; take it away when it is there."""
        self.overlay = "" if self.overlay == overlay else overlay
        self.scroll[overlay] = 0

    def step_back(self) -> bool:
        """Close what is open; False where nothing is, on the metrics themselves."""
        if self.overlay:
            self.overlay = ""
        elif self.detail is not None:
            self.detail = None
            self.zoom.reset()
        elif self.view == "runs" and self.table.filter:
            self.table.filter = ""
        elif self.view == "metrics" and self.charts.filter:
            self.message = self.charts.set_filter("")
        elif self.view == "artifacts" and self.artifact_page.whole:
            self.artifact_page.whole = False
        elif self.view == "inside" and self.inside.opened:
            self.inside.whole = False
        elif self.view != "metrics" and self.watched_runs:
            self.show("metrics")
        else:
            return False
        return True

    def open_selected(self) -> None:
        if self.overlay:
            self.overlay = ""
        elif self.area == "grid" and (name := self.chosen()) is not None:
            self.open_metric(name)
        elif self.area == "runs":
            rows = self.marked() or ([row] if (row := self._row()) is not None else [])
            if rows:
                self.open_runs([row.path for row in rows])
        elif self.area == "artifacts":
            self.artifact_page.open()
        elif self.area == "inside":
            self.asking = self.inside.open()
        elif self.view == "notes":
            self.ask_for_note()

    def mark_or_open(self) -> None:
        """Mark the run that is chosen; elsewhere, open what is."""
        if self.area != "runs":
            self.open_selected()
        elif (row := self._row()) is not None:
            marks = self.table.marks
            marks.remove(row.path) if row.path in marks else marks.append(row.path)
            self._move_row(1)

    def open_chart(self, number: int) -> None:
        if self.area == "inside":
            self.inside.open_page(number)
        if self.area in ("grid", "detail"):
            cells = self.layout().page_of(self.chosen())
            if number <= len(cells):
                self.open_metric(cells[number - 1].name)

    def open_newest(self) -> None:
        if (row := self.run_table.newest()) is not None:
            self.open_runs([row.path])

    def next_run(self) -> None:
        """Of several runs, have the next one in the header and the tabs."""
        if self.watched_runs:
            self.primary = (self.primary + 1) % len(self.watched_runs)

    def open_file(self) -> None:
        """Open the artifact that is looked at with the system's viewer."""
        artifact = self.artifact_page.artifact(self.artifacts()) if self.area == "artifacts" else None
        if artifact is not None:
            opened, self.message = open_with_system(artifact.path)
            self.artifact_page.tells_path = not opened

    def stop_asking(self) -> None:
        self.asking, self.charts.live_filter = "", None

    def ask_for_note(self) -> None:
        if self.watched is not None:
            self.show("notes")
            self.asking = "note"

    # -- how it is drawn ----------------------------------------------------------------------------------------

    def toggle(self, mode: Literal["log_scale", "clip", "side", "family"]) -> None:
        page = self.scatter if self.overlay == "scatter" else self.inside if self.area == "inside" else None
        if page is not None and mode == "log_scale":
            page.log = not page.log
            return
        setattr(self, mode, not getattr(self, mode))

    def next_smoothing(self) -> None:
        self.smoothing = (self.smoothing + 1) % len(SMOOTHING)

    def next_axis(self) -> None:
        """The next x axis that the runs shown have figures for; of the points of a list, the next setting."""
        if self.overlay == "scatter":
            self.scatter.next_setting()
            return
        if self.area == "inside":
            self.inside.next_region(1)
            return
        axes = [axis for axis in AXES if self._has_axis(axis)]
        self._axis = axes[(axes.index(self.axis) + 1) % len(axes)]
        self.zoom = Zoom()

    def zoom_by(self, factor: float) -> None:
        """Show so many times as much of one metric."""
        if self.detail is not None:
            self.zoom.scale(factor)

    def sort_by(self, column: str = "") -> None:
        """Order the runs by a column, the other way round if they are; by the next one shown without."""
        table = self.table
        if column == table.sort:
            table.reverse = not table.reverse
        else:
            names = [*SORTS, *(name for name in self.columns if name not in SORTS and name != "curve")]
            after = names.index(table.sort) + 1 if table.sort in names else 0
            shown = [name for name in names[after:] + names[:after] if name in self.columns]
            table.sort = column or (shown[0] if shown else table.sort)
            table.reverse = False
        table.offset = 0

    def reverse_order(self) -> None:
        self.table.reverse = not self.table.reverse

    # -- moving about -------------------------------------------------------------------------------------------

    def _row(self) -> RunRow | None:
        rows = self.rows()
        return next((row for row in rows if row.path == self.table.cursor), rows[0] if rows else None)

    def _move_row(self, by: int) -> None:
        rows = self.rows()
        if rows:
            now = self._row()
            at = next((i for i, row in enumerate(rows) if row is now), 0)
            self.table.cursor = rows[min(max(at + by, 0), len(rows) - 1)].path

    def _scroll_by(self, lines: int) -> None:
        page = self.overlay or self.view
        at = self.scroll.get(page, self.top_line.get(page, 0))
        self.scroll[page] = max(0, at + lines)

    def move(self, right: int, down: int) -> None:
        """An arrow: select, scroll, zoom or move the cursor."""
        match self.area:
            case "page":
                self._scroll_by(right + down)
            case "runs":
                self._move_row(right * 10 + down)
            case "inside":
                self.inside.move(right, down)
            case "artifacts":
                self.artifact_page.move(self.artifacts(), right, down)
            case "grid":
                self.selected = self.layout().beside(self.chosen(), right, down)
            case "detail" if right:
                self.zoom.move_cursor(right)
            case "detail":
                self.zoom.scale(0.5 if down < 0 else 2.0)

    def turn_page(self, by: int) -> None:
        """The page before or the next; of one metric, the metric."""
        match self.area:
            case "page" if self.overlay == "scatter":
                self.scatter.next_metric(by)
            case "page":
                self._scroll_by(by * max(1, self.size[1] - 2))
            case "runs":
                self._move_row(by * max(1, self.size[1] - 3))
            case "inside":
                self.inside.turn(by)
            case "artifacts":
                self.artifact_page.scroll(by * max(1, self.size[1] - 3))
            case "grid":
                self.selected = self.layout().turn(self.chosen(), by)
            case "detail" if self.detail in (names := self.names()):
                self.open_metric(names[(names.index(self.detail) + by) % len(names)])

    def go_to_end(self, end: Literal[0, 1]) -> None:
        """To the first or the last of what there is."""
        by = _FAR if end else -_FAR
        match self.area:
            case "page":
                self._scroll_by(by)
            case "runs":
                self._move_row(by)
            case "inside":
                self.inside.go_to_end(end)
            case "artifacts":
                self.artifact_page.walk(self.artifacts(), by)
            case "grid" if names := self.names():
                self.selected = names[-end]
            case "detail" if shown := self.zoom.shown() or self.zoom.whole:
                self.zoom.cursor = shown[end]
