"""Start the server: take a port, say where it is, open the browser, run until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from linnet.board.initial_scan import InitialScan
from linnet.board.web.ahead import read_ahead
from linnet.board.web.app import make_app
from linnet.board.web.board import WebBoard
from linnet.board.web.connection import Connection, quiet
from linnet.board.web.gate import Access, Gate
from linnet.board.web.safe_store import SafeStore
from linnet.listening import address, listen

USUAL_PORT = 6464
_MOST_CONNECTIONS = 512


def serve(
    store: SafeStore,
    chosen: tuple[Path, ...] = (),
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = True,
    initial_scan: InitialScan | None = None,
    defaults: Callable[[str], dict[str, Any]] = lambda recipe: {},
) -> int:
    """Serve the board until Ctrl-C; the exit code.

    `port`: None for the usual one or the next that is free; `initial_scan`, `defaults`: as for `WebBoard`.
    """
    listening = listen(host, port, USUAL_PORT)
    access = Access.on(host)
    entrance = address(host, listening.getsockname()[1])
    if access.token:
        entrance += f"?token={access.token}"
    print(f"The board is at {entrance}", flush=True)
    if access.token:
        print("Whoever has this address may look at the runs, name and delete them. It is shown only once.", flush=True)
    print("Ctrl-C ends it.", flush=True)
    board = WebBoard(store, chosen, initial_scan, defaults)
    threading.Thread(target=read_ahead, args=[board], name="linnet-board-ahead", daemon=True).start()
    server = Server(make_app(board, access))
    if open_browser and _has_browser():
        threading.Timer(0.1, webbrowser.open, [entrance]).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    return 0


class Server(uvicorn.Server):
    """Ends its streams before it waits for connections to close: a page that looks holds up no Ctrl-C."""

    def __init__(self, app: Gate) -> None:
        super().__init__(configured(app))
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # what a second Ctrl-C breaks off is no news
        await self._app.end_streams()
        await super().shutdown(sockets)


def configured(app: Gate) -> uvicorn.Config:
    """A server that logs nothing of what is asked, and holds no connection that does nothing."""
    quiet()
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=64 << 10,
    )


def _has_browser() -> bool:
    """Is there a screen that a browser could open on? Over ssh, or without a display, the address is enough."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
