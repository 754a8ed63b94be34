"""`linnet board`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from linnet.board.initial_scan import InitialScan, without_collection
from linnet.board.terminal.keys import View
from linnet.cli.options import EVERY_RUN, RunFilters, RunsFolder, choose_runs, open_store, require_metrics
from linnet.cli.printing import theme_of_terminal
from linnet.errors import UsageError, missing_extra
from linnet.runs import RunStore


def board(
    *run: Annotated[str, Parameter(help="Runs to watch, overlaid: ids, names, paths, patterns; else the newest.")],
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
    view: View | None = None,
    key: str | None = None,
    theme: Literal["dark", "light"] | None = None,
    once: bool = False,
    size: str | None = None,
    web: bool = False,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    host: str | None = None,
    no_open: bool = False,
) -> int:
    """Watch runs while they train, in the terminal or in the browser.

    Args:
        view: The tab to begin with.
        key: The metric to begin with, on the whole screen.
        theme: dark or light; by default what the terminal says of itself, else dark.
        once: Print one frame and end: for pipes, logs and CI.
        size: Columns and lines of that frame, as in 120x40; by default the terminal's.
        web: In the browser, on this machine alone: print the address and open it.
        port: With --web, the port; by default 6464, or the next that is free.
        host: With --web, the address to listen on; any other than this machine's own needs a token.
        no_open: With --web, do not open the browser.
    """
    store = open_store(runs)
    if web:
        return _serve(store, run, filters, host or "127.0.0.1", port, not no_open)
    if port is not None or host is not None or no_open:
        raise UsageError("--port, --host and --no-open are of the board in the browser; say --web too")
    watched = choose_runs(store, run, filters) if run or filters else []
    listing = view == "runs" or (view is None and key is None and runs is not None)
    if not watched and not listing:
        newest = store.latest()
        watched = [newest] if newest is not None else []
    if key is not None:
        if not watched:
            raise UsageError(f"--key {key!r} needs a run to draw it of; name one, or start one")
        known = list(dict.fromkeys(name for watched_run in watched for name in watched_run.metrics().names()))
        require_metrics([key], known, "these runs have" if len(watched) > 1 else f"run {watched[0].id} has")
    frame = _size(size)
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the board needs a terminal; `linnet board --once` prints one frame into a pipe")

    view = view or ("runs" if listing and not watched else "metrics")
    initial_scan = InitialScan(store) if view == "runs" and not once else None  # before anything large is imported

    with without_collection():
        from linnet.board.terminal.state import Board
    state = Board(store, [watched_run.path for watched_run in watched], view, initial_scan=initial_scan)
    if key is not None:
        state.open_metric(key)
    if once:
        from linnet.board.terminal.views.screen import print_frame

        print_frame(state, *frame, theme or theme_of_terminal())
        return 0

    theme_name = "plain" if os.environ.get("NO_COLOR") else theme or theme_of_terminal()
    with without_collection():
        from linnet.board.terminal.preview import Preview
    with Preview(state, initial_scan, frame, theme_name) as preview:
        with without_collection():
            from linnet.board.terminal.app import BoardApp
        app = BoardApp(state, theme_name, before_start=preview.clear)
        app.run()
    return app.return_code or 0


def _serve(
    store: RunStore, run: tuple[str, ...], filters: RunFilters, host: str, port: int | None, open_browser: bool
) -> int:
    """The board in the browser, until Ctrl-C."""
    chosen = tuple(chosen_run.path for chosen_run in choose_runs(store, run, filters)) if run or filters else ()
    elsewhere = tuple(path for path in chosen if run)
    try:
        from linnet.board.web.safe_store import SafeStore

        safe = SafeStore(store.root, elsewhere)
        initial_scan = InitialScan(safe)  # before there are threads, and while the server is imported
        with without_collection():
            from linnet.board.web.serve import serve
    except ModuleNotFoundError as error:
        if needed := missing_extra(error, "linnet board --web"):
            raise UsageError(needed) from None
        raise

    def defaults(recipe: str) -> dict[str, Any]:
        from linnet.recipes.registry import default_settings

        return default_settings(recipe)

    return serve(
        safe, chosen, host=host, port=port, open_browser=open_browser, initial_scan=initial_scan, defaults=defaults
    )


def _size(text: str | None) -> tuple[int, int]:
    if text is None:
        columns, lines = shutil.get_terminal_size((100, 30))
        return max(20, columns), max(8, lines)
    parts = re.fullmatch(r"([0-9]{1,4})[x×]([0-9]{1,4})", text)
    if parts is None or not (20 <= int(parts[1]) <= 2000 and 8 <= int(parts[2]) <= 1000):
        raise UsageError(f"--size {text!r}: columns and lines, as in 120x40, from 20x8 to 2000x1000")
    return int(parts[1]), int(parts[2])
