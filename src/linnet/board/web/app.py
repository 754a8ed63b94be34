"""The routes: each takes a request apart, asks one function, and sends what it says. docs/web-api.md lists them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from linnet.board.web import artifacts, checkpoints, detail, inside_answers, results, series, tabs, writes
from linnet.board.web.answer_json import encoded
from linnet.board.web.answers import Deleted, NewNote, RequestError, RunChange
from linnet.board.web.attention import AttentionMaps
from linnet.board.web.board import WebBoard
from linnet.board.web.changes import Changes
from linnet.board.web.gate import Access, Gate
from linnet.board.web.inside_answer_types import AttentionQuestion
from linnet.board.web.parameters import Parameters
from linnet.board.web.static_files import StaticFiles
from linnet.board.web.table import Tables
from linnet.board.words import flags, plain
from linnet.errors import LinnetError, mismatch
from linnet.listening import is_loopback

DESCRIPTION = Path(__file__).parent / "openapi.json"
_LARGEST_BODY = 64 << 10
_BODY_SECONDS = 10.0
_PACKED_FROM = 2_000  # bytes of an answer that is worth compressing, for a reader who is not on this machine
_MOST_ATTENDING = 4  # each waits in a thread, of which the other answers need some
_LARGEST_STEP = (1 << 63) - 1


class Api:
    """The endpoints. Those that read files are plain functions: Starlette calls them in a thread."""

    def __init__(self, board: WebBoard, changes: Changes) -> None:
        self._board = board
        self._tables = Tables(board)
        self._changes = changes
        self._static = StaticFiles()
        self._attention = AttentionMaps()
        self._attending = 0  # requests that wait for maps

    def routes(self) -> list[BaseRoute]:
        run = "/api/runs/{run_id}"
        return [
            Route("/api/board", self._get(lambda request: self._board.info())),
            Route("/api/runs", self._get(lambda request: self._tables.table(_query(request)))),
            Route("/api/curves", self._get(lambda request: self._tables.curves(_query(request)))),
            Route("/api/metrics", self._get(lambda request: detail.metrics(self._board, _query(request)))),
            Route("/api/sizes", self._get(lambda request: detail.sizes(self._board, _query(request)))),
            Route("/api/openapi.json", self.description),
            Route("/api/series", self.series),
            Route("/api/changes", self._changes.endpoint),
            Route(run, self._of_run(detail.detail), methods=["GET"]),
            Route(run, self.change, methods=["PATCH"]),
            Route(run, self.delete, methods=["DELETE"]),
            Route(f"{run}/restore", self.restore, methods=["POST"]),
            Route(f"{run}/notes", self._of_run(tabs.notes), methods=["GET"]),
            Route(f"{run}/notes", self.note, methods=["POST"]),
            Route(f"{run}/samples", self._of_run(tabs.samples)),
            Route(f"{run}/log", self._of_run(tabs.log)),
            Route(f"{run}/evaluations", self._of_run(tabs.evaluations)),
            Route(f"{run}/profile", self._of_run(tabs.profile)),
            Route(f"{run}/flow", self._of_run(tabs.flow)),
            Route(f"{run}/inside", self._of_run(inside_answers.contents)),
            Route(f"{run}/inside/map", self._asked_of_run(inside_answers.heat_map)),
            Route(f"{run}/inside/histograms", self._asked_of_run(inside_answers.histograms)),
            Route(f"{run}/inside/regions", self._asked_of_run(inside_answers.regions)),
            Route(f"{run}/inside/tokens", self._asked_of_run(inside_answers.tokens)),
            Route(f"{run}/inside/similarity", self._asked_of_run(inside_answers.similarity)),
            Route(f"{run}/inside/results", self._of_run(results.results)),
            Route(f"{run}/attention", self.attention, methods=["POST"]),
            Route(f"{run}/events", self._asked_of_run(tabs.events)),
            Route(f"{run}/checkpoints", self._of_run(checkpoints.checkpoints)),
            Route(f"{run}/checkpoints/{{step}}", self.checkpoint),
            Route(f"{run}/checkpoints/{{step}}/tensor", self.tensor),
            Route(f"{run}/artifacts", self._of_run(artifacts.artifacts)),
            Route(f"{run}/artifacts/{{number}}", self.artifact),
            Route("/{path:path}", self.static),
        ]

    def read_ahead(self) -> None:
        """Look at all runs before somebody asks, so that the first page need not wait for it."""
        with suppress(OSError, LinnetError):
            self._tables.table(Parameters(QueryParams()))

    def _get(self, answer: Callable[[Request], object]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            return _json(request, answer(request))

        return endpoint

    def _of_run(self, answer: Callable[[WebBoard, str], object]) -> Callable[[Request], Response]:
        return self._get(lambda request: answer(self._board, _run(request)))

    def _asked_of_run(self, answer: Callable[[WebBoard, str, Parameters], object]) -> Callable[[Request], Response]:
        return self._get(lambda request: answer(self._board, _run(request), _query(request)))

    def description(self, request: Request) -> Response:
        return _sent(request, DESCRIPTION.read_bytes(), "application/json")

    def series(self, request: Request) -> Response:
        content = series.answer(self._board, series.SeriesQuestion.of(_query(request)))
        return _sent(request, content, "application/octet-stream")

    def checkpoint(self, request: Request) -> Response:
        return _json(request, checkpoints.checkpoint_detail(self._board, _run(request), _number(request, "step")))

    def tensor(self, request: Request) -> Response:
        name = _query(request).text("name")
        step = _number(request, "step")
        return _json(request, checkpoints.tensor_histogram(self._board, _run(request), step, name))

    def artifact(self, request: Request) -> Response:
        as_page = request.headers.get("sec-fetch-dest", "image") in ("document", "iframe", "frame", "object", "embed")
        file = artifacts.artifact_content(
            self._board,
            _run(request),
            _number(request, "number"),
            request.headers.get("range"),
            as_page=as_page,
            download=_query(request).flag("download"),
        )
        return StreamingResponse(file.pieces(), file.status, file.headers)

    async def change(self, request: Request) -> Response:
        change = await _body(request, RunChange)
        row = await run_in_threadpool(writes.change, self._board, _run(request), change)
        await self._changes.scan_now()
        return _json(request, row)

    async def note(self, request: Request) -> Response:
        note = await _body(request, NewNote)
        await run_in_threadpool(writes.note, self._board, _run(request), note)
        return _json(request, {}, status=201)

    async def attention(self, request: Request) -> Response:
        question = await _body(request, AttentionQuestion)
        if self._attending >= _MOST_ATTENDING:
            raise RequestError(503, "maps of other texts are being computed; ask again in a while")
        self._attending += 1
        try:
            maps = await run_in_threadpool(self._attention.answer, self._board, _run(request), question)
        finally:
            self._attending -= 1
        return _json(request, maps)

    async def delete(self, request: Request) -> Response:
        size = await run_in_threadpool(writes.delete, self._board, _run(request))
        await self._changes.scan_now()
        return _json(request, Deleted(size))

    async def restore(self, request: Request) -> Response:
        row = await run_in_threadpool(writes.restore, self._board, _run(request))
        await self._changes.scan_now()
        return _json(request, row)

    async def static(self, request: Request) -> Response:
        path = request.path_params["path"]
        if path.startswith("api/"):
            raise RequestError(404, "there is no such address; docs/web-api.md lists them")
        file = self._static.get(path)
        if file is None:
            raise RequestError(404, "there is no such file")
        cache_control = "public, max-age=31536000, immutable" if file.lasting else "no-cache"
        headers = {"cache-control": cache_control, "vary": "accept-encoding"}
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.mime)
        return Response(file.content, headers=headers, media_type=file.mime)


def make_app(board: WebBoard, access: Access | None = None) -> Gate:
    """The server's application, behind its gate."""
    changes = Changes(board)
    api = Api(board, changes)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(run_in_threadpool(api.read_ahead))
        yield
        looking.cancel()
        await changes.close()
        await run_in_threadpool(board.close)

    handlers: dict[Any, Any] = {
        LinnetError: _refused,
        OSError: _refused,
        HTTPException: _refused,
        ClientDisconnect: _refused,
    }
    app = Starlette(routes=api.routes(), exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Gate(app, access or Access(), changes.close)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return Response(encoded({"error": error.detail}), error.status_code, error.headers, "application/json")
    status = error.status if isinstance(error, RequestError) else 409 if isinstance(error, LinnetError) else 503
    text = flags(str(error)) if isinstance(error, LinnetError) else "the run's files cannot be read just now"
    return Response(encoded({"error": plain(text)[:2_000]}), status, media_type="application/json")


def _query(request: Request) -> Parameters:
    return Parameters(request.query_params)


def _run(request: Request) -> str:
    return str(request.path_params["run_id"])


def _number(request: Request, name: str) -> int:
    text = str(request.path_params[name])
    if not (text.isascii() and text.isdecimal() and len(text) < 20) or int(text) > _LARGEST_STEP:
        raise RequestError(404, f"{name} is an integer that is not negative")
    return int(text)


def _json(request: Request, answer: object, status: int = 200) -> Response:
    return _sent(request, encoded(answer), "application/json", status)


def _sent(request: Request, content: bytes, mime: str, status: int = 200) -> Response:
    """An answer, compressed for a reader who is not on this machine."""
    is_remote = request.client is not None and not is_loopback(request.client.host)
    if is_remote and len(content) >= _PACKED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        packed = gzip.compress(content, 1)
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        return Response(packed, status, headers, mime)
    return Response(content, status, media_type=mime)


async def _body(request: Request, kind: type[Any]) -> Any:
    """The body of a write, of bounded size, as JSON of the right shape."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the body is JSON: Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > _LARGEST_BODY:
                    raise RequestError(413, f"the body is larger than {_LARGEST_BODY >> 10} kB")
    except TimeoutError:
        raise RequestError(408, "the body did not come") from None
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"the body does not fit: {mismatch(error)}") from None
