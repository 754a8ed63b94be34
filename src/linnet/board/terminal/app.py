"""The board as a Textual application: keys and the mouse in, the lines that changed out."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from textual import events, on
from textual.app import App, ComposeResult, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input

from linnet.board.terminal import palette
from linnet.board.terminal.actions import Gesture, act, point
from linnet.board.terminal.keys import PRIORITY, SECTIONS, bindings
from linnet.board.terminal.palette import style_of
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.spans import Line
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import screen

if TYPE_CHECKING:
    from linnet.board.terminal.graphics import Protocol

_SHORTEST = 0.1  # seconds between two frames
_WHILE_READING = 0.4  # the same while a long run is being read for the first time, which drawing would slow down
_CLOCK = 1.0  # seconds after which the time in the header is drawn again
_ASKED = {
    "filter": "filter the runs: words, tag:wide, loss<2 and lr>=1e-3",
    "columns": "columns: loss@200,best(validation/loss),lr",
    "charts": "only charts of metrics with these words, or a pattern: val*",
    "figure": "figure and region by name: update_ratio attn_q",
    "prompt": "a prompt: what each head of the newest checkpoint looks at in it",
    "note": "a note on this run",
}


class Canvas(Widget):
    """Shows lines as they are; only those that changed are sent."""

    DEFAULT_CSS = "Canvas { width: 100%; }"

    class Pointed(Message):
        """The mouse did something."""

        def __init__(self, canvas: Canvas, gesture: Gesture, x: int, y: int, moved: int = 0) -> None:
            super().__init__()
            self.canvas, self.gesture, self.x, self.y, self.moved = canvas, gesture, x, y, moved

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._theme = ""
        self._pressed = self._dragged = False

    def show(self, lines: list[Line], theme: str) -> None:
        before, self._lines = self._lines, lines
        if theme != self._theme or len(before) != len(lines):
            self._theme = theme
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, lines, strict=True)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines) or not self._theme:
            return Strip.blank(width, style_of("", self._theme) if self._theme else None)
        segments = [Segment(text, style_of(style, self._theme)) for text, style in self._lines[y] if text]
        return Strip(segments).adjust_cell_length(width, style_of("", self._theme))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pressed, self._dragged = True, False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed and event.delta_x:
            self._dragged = True
            self.post_message(self.Pointed(self, "drag", event.x, event.y, event.delta_x))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._pressed = False
        self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        if not self._dragged:
            self.post_message(self.Pointed(self, "double" if event.chain >= 2 else "click", event.x, event.y))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(self.Pointed(self, "up", event.x, event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(self.Pointed(self, "down", event.x, event.y))


class BoardApp(App[None]):
    """Draws a `Board` and hands it the keys.

    `look`: dark, light or plain; `before_start`: called when the application is about to take the terminal.
    """

    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #header { height: 3; }
    #body { height: 1fr; }
    #footer { height: 1; }
    #asked { height: 1; border: none; padding: 0 1; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        *(Binding(key, f"act('{action}')", show=False, priority=key in PRIORITY) for key, action in bindings().items()),
    ]
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = True

    class Fresh(Message):
        """There is something new to draw."""

    def __init__(self, board: Board, look: str = palette.DARK, before_start: Callable[[], None] = lambda: None) -> None:
        super().__init__(ansi_color=True if look == palette.PLAIN else None)
        self.title = "linnet board"
        self.board = board
        self.look = look
        board.color = look != palette.PLAIN
        board.theme = "light" if look == palette.LIGHT else "dark"
        self._protocol: Protocol | Literal["none", "unknown"] = "unknown"  # of the terminal's own graphics
        self._before_start = before_start
        self._reader = Reader(board, on_change=lambda: self.post_message(self.Fresh()))  # called from its thread
        self._drawn = 0.0
        self._waiting, self._due = False, 0.0

    def compose(self) -> ComposeResult:
        """Three canvases, and a line to type in that is mostly hidden."""
        yield Canvas("header")
        yield Canvas("body")
        yield Canvas("footer")
        yield Input(id="asked", compact=True)

    def on_load(self) -> None:
        self._before_start()

    def on_mount(self) -> None:
        for name in (palette.DARK, palette.LIGHT):
            self.register_theme(_theme(name))
        if self.look != palette.PLAIN:
            self.theme = f"linnet-{self.look}"
        self._leave_on_signals()
        self.draw()
        self._reader.start()
        self.set_interval(_CLOCK, self.draw)

    def on_unmount(self) -> None:
        self._reader.stop()
        self.board.inside.close()  # here, since the reader may not get to it any more

    def _leave_on_signals(self) -> None:
        """Somebody who ends the board from outside gets the terminal back as it was, too."""
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # Windows has no such handlers, and only the main thread can have any.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if number is not None:
                    asyncio.get_running_loop().add_signal_handler(number, partial(self.exit, return_code=128 + number))

    @on(Fresh)
    def _fresh(self) -> None:
        """Draw soon, but not more often than eyes can use."""
        ready = all(watched.history.caught_up for watched in self.board.watched_runs)
        now, due = time.monotonic(), self._drawn + (_SHORTEST if ready else _WHILE_READING)
        if due <= now:
            self.draw()
        elif not self._waiting or due < self._due:  # a run that has just been read whole waits less
            self._waiting, self._due = True, due
            self.set_timer(due - now, self.draw)

    def on_resize(self, event: events.Resize) -> None:
        self.draw(event.size.width, event.size.height)

    def draw(self, width: int = 0, height: int = 0) -> None:
        """Draw everything; what has not changed is not sent."""
        if not self.is_running or not self.screen_stack:
            return
        self._waiting = False
        width, height = width or self.size.width, height or self.size.height
        base = self.screen_stack[0]
        for name, lines in screen.parts(self.board, width, height).items():
            base.query_one(f"#{name}", Canvas).show(lines, self.look)
        has_content = self.board.run_table.scanned or self.board.watched_runs
        self._drawn = time.monotonic() if has_content else 0.0  # the first frame with content waits for no other

    def action_act(self, action: str) -> None:
        """A key: the board changes, and is drawn at once."""
        if self.board.asking:
            if action in ("back", "escape"):
                self._stop_asking()
                self.board.escaped = True
        elif action == "theme":
            self.action_theme()
        else:
            self._act(action)

    def _act(self, action: str) -> None:
        if not (action in ("open", "space") and self._show_image()):
            act(self.board, action)
        if self.board.leaving:
            self.exit()
            return
        if self.board.asking:
            self._ask()
        self._reader.wake()
        self.draw()

    def _show_image(self) -> bool:
        """Show the image that is selected in the terminal's own graphics; False where it has none."""
        board = self.board
        all_series = board.artifacts() if board.area == "artifacts" and self._protocol != "none" else []
        artifact = board.artifact_page.artifact(all_series)
        if artifact is None or artifact.media != "image" or board.artifact_page.whole:
            return False
        from linnet.board.terminal import full_screen, graphics

        terminal = full_screen.terminal_of_process()
        if terminal is None or graphics.has_none():
            self._protocol = "none"
            return False
        series = all_series[board.artifact_page.row(all_series)]
        try:
            with self.suspend(), terminal:
                if self._protocol == "unknown":
                    self._protocol = graphics.choose_protocol(terminal.ask) or "none"
                if self._protocol == "none":
                    return False
                outcome = full_screen.browse_images(
                    terminal, self._protocol, series.artifacts, board.artifact_page.index(series)
                )
        except (SuspendNotSupported, OSError):
            self._protocol = "none"
            return False
        board.artifact_page.position = None if outcome == len(series.artifacts) - 1 else outcome
        return True

    def action_theme(self) -> None:
        if self.look != palette.PLAIN:
            self.look = palette.LIGHT if self.look == palette.DARK else palette.DARK
            self.theme = f"linnet-{self.look}"
            self.board.theme = "light" if self.look == palette.LIGHT else "dark"
            self.draw()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every key that does something, by what it does."""
        for title, keys in SECTIONS.items():
            for key in keys:
                command = key.command or key.action
                if command and command not in ("chart", "up", "left"):
                    where = f"key {key.shown}" + ("" if title == "everywhere" else f", for {title}")
                    yield SystemCommand(key.text, where, partial(self.action_act, command))

    def _ask(self) -> None:
        field = self.query_one("#asked", Input)
        table = self.board.table
        typed = {"filter": table.filter, "columns": table.columns, "charts": self.board.charts.filter}
        field.value = typed.get(self.board.asking, "")
        field.placeholder = _ASKED[self.board.asking]
        field.styles.display = "block"
        self.query_one("#footer").styles.display = "none"
        field.focus()

    def _stop_asking(self) -> None:
        self.board.stop_asking()
        self.query_one("#asked").styles.display = "none"
        self.query_one("#footer").styles.display = "block"
        self.set_focus(None)
        self.draw()

    @on(Input.Submitted, "#asked")
    def _answered(self, event: Input.Submitted) -> None:
        self.board.answer(event.value)
        self._stop_asking()
        self._reader.wake()

    @on(Input.Changed, "#asked")
    def _typed(self, event: Input.Changed) -> None:
        if self.board.asking == "filter":
            self.board.table.filter = event.value
            self.draw()
        elif self.board.asking == "charts":
            self.board.charts.live_filter = event.value
            self.draw()

    @on(Canvas.Pointed)
    def _pointed(self, event: Canvas.Pointed) -> None:
        if self.board.asking in ("note", "prompt"):  # what is half written is not lost by a click
            return
        if self.board.asking and event.gesture in ("click", "double"):
            self.board.answer(self.query_one("#asked", Input).value)
            self._stop_asking()
        if event.canvas.id == "body":
            point(self.board, event.gesture, event.x, event.y, event.moved)
            self._reader.wake()
            self.draw()
        elif event.canvas.id == "header" and event.y == 2 and event.gesture == "click":
            view = screen.tab_at(self.board, self.size.width, event.x)
            if view is not None:
                self.action_act(f"view:{view}")


def _theme(name: str) -> Theme:
    """The same colours for what Textual itself draws: the command palette and the line to type in."""
    colours = palette.colours(name)
    return Theme(
        name=f"linnet-{name}",
        primary=colours["key"],
        secondary=colours["done"],
        warning=colours["care"],
        error=colours["bad"],
        success=colours["good"],
        foreground=colours["text"],
        background=colours["ground"],
        surface=colours["raised"],
        panel=colours["raised"],
        dark=name == palette.DARK,
    )
