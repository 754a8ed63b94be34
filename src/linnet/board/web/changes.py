"""The stream of changes (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from linnet.board.web.board import WebBoard


class Changes:
    """Tells the pages that look what is new."""

    def __init__(self, board: WebBoard) -> None:
        self._board = board

    async def endpoint(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield b": here\n\n"
                await asyncio.sleep(15)

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def look_now(self) -> None:
        """Something was changed through this server."""

    async def close(self) -> None:
        """End all streams."""
