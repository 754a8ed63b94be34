"""A connection of the server: one that does not say what it wants is closed, and so is one that takes nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_REQUEST_SECONDS = 10.0  # from the first byte of a request, or from a connection, to the end of its head
_TAKING_SECONDS = 20.0  # for which what was sent may not be acknowledged


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with an end to waiting."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connected: socket.socket | None = transport.get_extra_info("socket")
        if connected is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_TAKING_SECONDS * 1000))
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.abort()


class _Expected(logging.Filter):
    """A page that left, or was dropped, is no fault of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in str(record.msg)


def quiet() -> None:
    """Keep uvicorn from telling of pages that were dropped."""
    logger: Any = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, _Expected) for known in logger.filters):
        logger.addFilter(_Expected())
