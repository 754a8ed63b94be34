"""The board as a Textual application: keys and the mouse in, lines out."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from textual import events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Input

from linnet.board.terminal import palette, pointer
from linnet.board.terminal.actions import act
from linnet.board.terminal.canvas import Canvas
from linnet.board.terminal.keys import PRIORITY, SECTIONS, bindings
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import header, screen

_SHORTEST = 0.1  # seconds between two frames
_WHILE_READING = 0.4  # the same while a long run is being read for the first time, which drawing would slow down
_CLOCK = 1.0  # seconds after which the time in the header is drawn again
_ASKED = {"filter": "filter the runs: words, status:live, tag:…", "note": "a note on this run"}


class BoardApp(App[None]):
    """Draws a `Board` and hands it the keys. `theme_name`: dark or light; with `NO_COLOR` set, neither."""

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

    def __init__(self, board: Board, theme: str = palette.DARK) -> None:
        plain = bool(os.environ.get("NO_COLOR"))
        super().__init__(ansi_color=True if plain else None)
        self.title = "linnet board"
        self.board = board
        self.look = palette.PLAIN if plain else theme
        self.frames = 0  # drawn so far
        self._reader = Reader(board, self._tell)
        self._drawn = 0.0
        self._waiting, self._due = False, 0.0

    def compose(self) -> ComposeResult:
        """Three canvases, and a line to type in that is mostly hidden."""
        yield Canvas("header")
        yield Canvas("body")
        yield Canvas("footer")
        yield Input(id="asked", compact=True)

    def on_mount(self) -> None:
        """Begin to read."""
        for name in (palette.DARK, palette.LIGHT):
            self.register_theme(_theme(name))
        if self.look != palette.PLAIN:
            self.theme = f"linnet-{self.look}"
        self._leave_on_signals()
        self.draw()
        self._reader.start()
        self.set_interval(_CLOCK, self.draw)

    def on_unmount(self) -> None:
        """Stop reading."""
        self._reader.stop()

    def _leave_on_signals(self) -> None:
        """Somebody who ends the board from outside gets the terminal back as it was, too."""
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # Windows has no such handlers, and only the main thread can have any.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                if number is not None:
                    asyncio.get_running_loop().add_signal_handler(number, partial(self.exit, return_code=128 + number))

    def _tell(self) -> None:
        """Called by the reader, from its thread."""
        self.post_message(self.Fresh())

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
        """Another size, another frame."""
        self.draw(event.size.width, event.size.height)

    def draw(self, width: int = 0, height: int = 0) -> None:
        """Draw everything; what has not changed is not sent."""
        if not self.is_running or not self.screen_stack:
            return
        self._waiting = False
        width, height = width or self.size.width, height or self.size.height
        room = max(1, height - screen.HEAD - screen.FOOT)
        base = self.screen_stack[0]
        base.query_one("#body", Canvas).show(screen.body(self.board, width, room), self.look)
        base.query_one("#header", Canvas).show(header.draw(self.board, width), self.look)
        base.query_one("#footer", Canvas).show([header.footer(self.board, width)], self.look)
        has_content = self.board.run_table.looked or self.board.watched_runs
        self._drawn = (
            time.monotonic() if has_content else 0.0
        )  # the first frame with something in it waits for no other
        self.frames += 1

    def action_act(self, action: str) -> None:
        """A key: the board changes, and is drawn at once."""
        board = self.board
        if board.asking:
            if action == "back":
                self._stop_asking()
        elif action == "theme":
            self.action_theme()
        else:
            act(board, action)
            self._after_key()

    def _after_key(self) -> None:
        if self.board.leaving:
            self.exit()
            return
        if self.board.asking:
            self._ask()
        self._reader.wake()
        self.draw()

    def action_theme(self) -> None:
        """Light or dark."""
        if self.look != palette.PLAIN:
            self.look = palette.LIGHT if self.look == palette.DARK else palette.DARK
            self.theme = f"linnet-{self.look}"
            self.draw()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every key that does something, by what it does."""
        for title, keys in SECTIONS:
            for key in keys:
                command = key.command or key.action
                if command and command not in ("chart", "up", "left"):
                    where = f"key {key.shown}" + ("" if title == "everywhere" else f", for {title}")
                    yield SystemCommand(key.text, where, partial(self.action_act, command))

    def _ask(self) -> None:
        asked = self.query_one("#asked", Input)
        asked.value = self.board.table.filter if self.board.asking == "filter" else ""
        asked.placeholder = _ASKED[self.board.asking]
        asked.styles.display = "block"
        self.query_one("#footer").styles.display = "none"
        asked.focus()

    def _stop_asking(self) -> None:
        self.board.asking = ""
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

    @on(Canvas.Pointed)
    def _pointed(self, event: Canvas.Pointed) -> None:
        width, height = self.size
        room = max(1, height - screen.HEAD - screen.FOOT)
        if self.board.asking == "note":  # what is half written is not lost by a click
            return
        if self.board.asking and event.what in ("click", "double"):
            self.board.answer(self.query_one("#asked", Input).value)
            self._stop_asking()
        if event.canvas.id == "header":
            view = header.tab_at(self.board, width, event.x) if event.y == 2 and event.what == "click" else None
            if view is not None:
                self.action_act(f"view:{view}")
        elif event.canvas.id == "body":
            pointer.point(self.board, event.what, event.x, event.y, event.moved, width, room)
            self._reader.wake()
            self.draw()


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
