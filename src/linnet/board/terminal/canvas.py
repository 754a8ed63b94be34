"""`Canvas`: lines of the board on the screen. Only those that changed are sent."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from linnet.board.terminal.palette import look
from linnet.board.terminal.spans import Line


class Canvas(Widget):
    """Shows lines as they are."""

    DEFAULT_CSS = "Canvas { width: 100%; }"

    class Pointed(Message):
        """The mouse did something: `what` is `click`, `double`, `up`, `down` (the wheel) or `drag`."""

        def __init__(self, canvas: Canvas, what: str, x: int, y: int, moved: int = 0) -> None:
            super().__init__()
            self.canvas, self.what, self.x, self.y, self.moved = canvas, what, x, y, moved

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._theme = ""
        self._pressed = False
        self._dragged = False

    def show(self, lines: list[Line], theme: str) -> None:
        """Put these lines on the screen."""
        before, self._lines = self._lines, lines
        if theme != self._theme or len(before) != len(lines):
            self._theme = theme
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, lines, strict=True)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One line, as Textual asks for it."""
        width = self.size.width
        if y >= len(self._lines) or not self._theme:
            return Strip.blank(width, look("", self._theme) if self._theme else None)
        segments = [Segment(text, look(style, self._theme)) for text, style in self._lines[y] if text]
        return Strip(segments).adjust_cell_length(width, look("", self._theme))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A press may become a drag."""
        self._pressed, self._dragged = True, False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Dragging moves what is below the mouse."""
        if self._pressed and event.delta_x:
            self._dragged = True
            self.post_message(self.Pointed(self, "drag", event.x, event.y, event.delta_x))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """The end of a press."""
        self._pressed = False
        self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        """A press without a drag."""
        if not self._dragged:
            self.post_message(self.Pointed(self, "double" if event.chain >= 2 else "click", event.x, event.y))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel, away from the hand."""
        self.post_message(self.Pointed(self, "up", event.x, event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel, towards the hand."""
        self.post_message(self.Pointed(self, "down", event.x, event.y))
