"""`Board`: what is on the screen and what a key does to it, without a terminal."""

from __future__ import annotations

from pathlib import Path

from linnet.board.terminal.curve import AXES, SMOOTHING
from linnet.board.terminal.fleet import Fleet, Row
from linnet.board.terminal.host import Host
from linnet.board.terminal.layout import Layout, arrange, in_groups
from linnet.board.terminal.listing import HEAD, SORTS, Table, arranged, window
from linnet.board.terminal.watch import Watch
from linnet.board.terminal.zoom import Zoom
from linnet.errors import LinnetError
from linnet.runs import RunStore, add_note

VIEWS = ("metrics", "system", "runs", "samples", "checkpoints", "config", "notes", "log")
MOST_OVERLAID = 8  # runs that are drawn over each other; there are as many colours


class Board:
    """The state of the board. Keys call `act`; whoever draws reads the rest.

    - `store`: where runs are listed from; `paths`: the runs to open.
    - `opening`: folders that the reader is to open next.
    - `asking`: what a text is being typed for: `filter`, `note` or nothing.
    """

    def __init__(self, store: RunStore, paths: list[Path] | None = None, view: str = "metrics") -> None:
        self.store = store
        self.fleet = Fleet(store, self._rows_on_screen)
        self.host = Host()
        self.watches: list[Watch] = []
        self.view = view
        self.detail: str | None = None
        self.overlay = ""  # `help` or `differences`
        self.asking = ""
        self.message = ""
        self.opening = self._to_draw(paths) if paths else None
        self.primary = 0
        self.selected: str | None = None
        self.smoothing = 0
        self._axis = AXES[0]
        self.log_scale = False
        self.clip = False
        self.side = True
        self.zoom = Zoom()
        self.table = Table()
        self.scroll: dict[str, int] = {}
        self.columns: tuple[str, ...] = SORTS  # of the table of runs, as it was last drawn
        self.top_line: dict[str, int] = {}  # of each page, where it was scrolled to when it was last drawn
        self.size = (80, 20)  # of the body
        self.leaving = False
        self._layout: tuple[object, Layout] | None = None

    # -- what is there ------------------------------------------------------------------------------------------

    @property
    def watch(self) -> Watch | None:
        """The run that the header and the other tabs are about."""
        return self.watches[self.primary % len(self.watches)] if self.watches else None

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
        histories = [watch.history for watch in self.watches if watch.history.names()]
        if axis == "tokens":
            return all("tokens" in history.names() for history in histories)
        return axis != "epoch" or all(history.last_epoch is not None for history in histories)

    def names(self) -> list[str]:
        """The metrics of all runs shown, grouped, without the machine's."""
        found = dict.fromkeys(name for watch in self.watches for name in watch.history.names())
        return in_groups([name for name in found if not name.startswith("sys/")])

    def layout(self) -> Layout:
        """Where each chart stands, for the present size."""
        width, height = self.grid_size()
        names = self.names()
        key = (tuple(names), width, height)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, arrange(names, width, height)
        return self._layout[1]

    def grid_size(self) -> tuple[int, int]:
        """What is left of the body for charts."""
        width, height = self.size
        return width - self.side_width(), height - (1 if len(self.watches) > 1 else 0)

    def side_width(self) -> int:
        """The width of the panel beside the charts; 0 where there is no room for it."""
        return 34 if self.side and self.size[0] >= 116 else 0

    def rows(self) -> list[Row]:
        """The runs of the table, filtered and sorted."""
        return arranged(self.fleet.rows, self.table)

    def _rows_on_screen(self, rows: list[Row]) -> list[Row]:
        """The runs whose best values and curves are needed: those that are shown, or all when sorted by them."""
        if self.table.sort == "best":
            return rows
        arranged_rows, height = arranged(rows, self.table), max(1, self.size[1] - HEAD)
        _, offset = window(arranged_rows, self.table, height)
        return arranged_rows[offset : offset + height]

    def marked(self) -> list[Row]:
        """The marked runs, in the order in which they were marked."""
        by_path = {row.path: row for row in self.fleet.rows}
        return [by_path[path] for path in self.table.marks if path in by_path]

    def needs_close_up(self) -> bool:
        """Somebody looks so closely that folded rows do not do."""
        return self.detail is not None and (self.zoom.window is not None or self.zoom.cursor is not None)

    def close(self) -> None:
        """Let go of all files; for the thread that reads, when it ends."""
        for watch in self.watches:
            watch.close()
        self.fleet.close()

    # -- keys ---------------------------------------------------------------------------------------------------

    def act(self, action: str) -> None:
        """Do what a key asks for; `action` may carry an argument behind a colon."""
        name, _, argument = action.partition(":")
        self.message = ""
        method = getattr(self, f"_do_{name}")
        method(argument) if argument else method()
        for watch in self.watches:
            watch.look_closely(self.needs_close_up())

    def answer(self, text: str) -> None:
        """A text was typed for what was asked."""
        asked, self.asking = self.asking, ""
        if asked == "filter":
            self.table.filter, self.table.offset = text.strip(), 0
        elif asked == "note" and self.watch is not None and text.strip():
            try:
                add_note(self.watch.run, text.strip(), self.watch.step())
                self.message = "noted"
            except LinnetError as error:
                self.message = str(error)

    def select(self, name: str) -> None:
        """Choose a chart."""
        self.selected = name

    def open_metric(self, name: str) -> None:
        """Show one metric on the whole screen."""
        self.view, self.detail, self.selected = "metrics", name, name
        self.zoom.reset()
        self.zoom.whole = None

    def open_runs(self, paths: list[str]) -> None:
        """Watch these runs instead."""
        self.opening = self._to_draw([Path(path) for path in paths])
        self.view, self.detail, self.primary, self.selected = "metrics", None, 0, None
        self.scroll.clear()

    def _to_draw(self, paths: list[Path]) -> list[Path] | None:
        """Each run once, and no more than there are colours and letters for."""
        found = list(dict.fromkeys(paths))
        if len(found) > MOST_OVERLAID:
            self.message = f"the first {MOST_OVERLAID} of {len(found)} runs are drawn"
        return found[:MOST_OVERLAID]

    def _do_view(self, view: str) -> None:
        self.view, self.detail, self.overlay = view, None, ""

    def _do_next_view(self) -> None:
        self._do_view(VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)])

    def _do_previous_view(self) -> None:
        self._do_view(VIEWS[(VIEWS.index(self.view) - 1) % len(VIEWS)])

    def _do_back(self) -> None:
        self.leaving = not self._step_back()

    def _do_back_only(self) -> None:
        self._step_back()

    def _step_back(self) -> bool:
        """Close what is open; False where nothing is, on the metrics themselves."""
        if self.overlay:
            self.overlay = ""
        elif self.detail is not None:
            self.detail = None
            self.zoom.reset()
        elif self.view == "runs" and self.table.filter:
            self.table.filter = ""
        elif self.view != "metrics" and self.watches:
            self._do_view("metrics")
        else:
            return False
        return True

    def _do_help(self) -> None:
        self.overlay = "" if self.overlay == "help" else "help"
        self.scroll["help"] = 0

    def _do_differences(self) -> None:
        self.overlay = "" if self.overlay == "differences" else "differences"
        self.scroll["differences"] = 0

    def _do_open(self) -> None:
        if self.overlay:
            self.overlay = ""
        elif self.view == "metrics" and self.detail is None:
            if (name := self._chosen()) is not None:
                self.open_metric(name)
        elif self.view == "runs":
            rows = self.marked() or ([row] if (row := self._row()) is not None else [])
            if rows:
                self.open_runs([row.path for row in rows])
        elif self.view == "notes":
            self._do_note()

    def _do_space(self) -> None:
        if self.view == "runs" and not self.overlay:
            if (row := self._row()) is not None:
                marks = self.table.marks
                marks.remove(row.path) if row.path in marks else marks.append(row.path)
                self._move_row(1)
        else:
            self._do_open()

    def _do_chart(self, number: str) -> None:
        if self.view != "metrics" or self.overlay:
            return
        cells = self.layout().page_of(self._chosen())
        if int(number) <= len(cells):
            self.open_metric(cells[int(number) - 1].name)

    def _do_left(self) -> None:
        self._move(-1, 0)

    def _do_right(self) -> None:
        self._move(1, 0)

    def _do_up(self) -> None:
        self._move(0, -1)

    def _do_down(self) -> None:
        self._move(0, 1)

    def _do_page_back(self) -> None:
        self._turn(-1)

    def _do_page_on(self) -> None:
        self._turn(1)

    def _do_first(self) -> None:
        if self.detail is not None and not self.overlay:
            self._to_end(0)
        else:
            self._far(-(10**9))

    def _do_last(self) -> None:
        if self.detail is not None and not self.overlay:
            self._to_end(1)
        else:
            self._far(10**9)

    def _do_smoothing(self) -> None:
        self.smoothing = (self.smoothing + 1) % len(SMOOTHING)

    def _do_axis(self) -> None:
        axes = [axis for axis in AXES if self._has_axis(axis)]
        self._axis = axes[(axes.index(self.axis) + 1) % len(axes)]
        self.zoom = Zoom()

    def _do_log_scale(self) -> None:
        self.log_scale = not self.log_scale

    def _do_clip(self) -> None:
        self.clip = not self.clip

    def _do_clip_or_sort(self) -> None:
        if self.view == "runs":
            self._do_sort()
        else:
            self._do_clip()

    def _do_zoom_in(self) -> None:
        if self.detail is not None:
            self.zoom.by(0.5)

    def _do_zoom_out(self) -> None:
        if self.detail is not None:
            self.zoom.by(2.0)

    def _do_zoom_all(self) -> None:
        self.zoom.reset()

    def _do_pan_left(self) -> None:
        self.zoom.move(-0.25)

    def _do_pan_right(self) -> None:
        self.zoom.move(0.25)

    def _do_side(self) -> None:
        self.side = not self.side

    def _do_next_run(self) -> None:
        if self.watches:
            self.primary = (self.primary + 1) % len(self.watches)

    def _do_newest(self) -> None:
        if (row := self.fleet.newest()) is not None:
            self.open_runs([row.path])

    def _do_sort(self, column: str = "") -> None:
        table = self.table
        if column == table.sort:
            table.reverse = not table.reverse
        else:
            after = SORTS.index(table.sort) + 1
            shown = [name for name in SORTS[after:] + SORTS[:after] if name in self.columns]
            table.sort = column or (shown[0] if shown else table.sort)
            table.reverse = False
        table.offset = 0

    def _do_reverse(self) -> None:
        self.table.reverse = not self.table.reverse

    def _do_unmark(self) -> None:
        self.table.marks.clear()

    def _do_filter(self) -> None:
        self._do_view("runs")
        self.asking = "filter"

    def _do_note(self) -> None:
        if self.watch is not None:
            self._do_view("notes")
            self.asking = "note"

    def _do_notes(self) -> None:
        if self.view == "notes":
            self._do_note()
        else:
            self._do_view("notes")

    # -- moving about -------------------------------------------------------------------------------------------

    def _chosen(self) -> str | None:
        names = self.names()
        if self.selected in names:
            return self.selected
        return names[0] if names else None

    def _row(self) -> Row | None:
        rows = self.rows()
        return next((row for row in rows if row.path == self.table.cursor), rows[0] if rows else None)

    def _move_row(self, by: int) -> None:
        rows = self.rows()
        if rows:
            now = self._row()
            at = next((i for i, row in enumerate(rows) if row is now), 0)
            self.table.cursor = rows[min(max(at + by, 0), len(rows) - 1)].path

    def _move(self, right: int, down: int) -> None:
        if self.overlay or self.view not in ("metrics", "runs"):
            self._scroll_by(right + down)
        elif self.view == "runs":
            self._move_row(right * 10 + down)
        elif self.detail is None:
            self.selected = self.layout().beside(self._chosen(), right, down)
        elif right:
            self.zoom.move_cursor(right)
        else:
            self.zoom.by(0.5 if down < 0 else 2.0)

    def _to_end(self, end: int) -> None:
        shown = self.zoom.shown() or self.zoom.whole
        if shown is not None:
            self.zoom.cursor = shown[end]

    def _turn(self, by: int) -> None:
        if self.overlay or self.view not in ("metrics", "runs"):
            self._scroll_by(by * max(1, self.size[1] - 2))
        elif self.view == "runs":
            self._move_row(by * max(1, self.size[1] - 3))
        elif self.detail is None:
            self.selected = self.layout().turn(self._chosen(), by)
        else:
            names = self.names()
            if self.detail in names:
                self.open_metric(names[(names.index(self.detail) + by) % len(names)])

    def _far(self, by: int) -> None:
        if self.overlay or self.view not in ("metrics", "runs"):
            self._scroll_by(by)
        elif self.view == "runs":
            self._move_row(by)
        else:
            names = self.names()
            if names:
                self.selected = names[0 if by < 0 else -1]

    def _scroll_by(self, lines: int) -> None:
        place = self.overlay or self.view
        at = self.scroll.get(place, self.top_line.get(place, 0))
        self.scroll[place] = max(0, at + lines)
