"""`Gate`: who may ask. It stands before everything else, and every answer carries its headers.

- `Host` must be a name of this machine that no stranger can point here: no DNS rebinding.
- `Origin`, where a browser sends one, must be this server; writes need a header that other sites cannot send.
- On another address than the loopback every request needs the token: in a cookie, or as a bearer.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linnet.board.web.answer_json import encoded
from linnet.listening import is_loopback

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; media-src 'self'; object-src 'none'; frame-src 'none'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), interest-cohort=()",
}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_READING = ("GET", "HEAD")
_ENTRANCE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Linnet</title>'
    '<meta http-equiv="refresh" content="0;url=./"></head><body><a href="./">the board</a></body></html>'
)


@dataclass(frozen=True)
class Access:
    """Where the server listens and what it takes to be let in. `token`: empty where none is needed."""

    host: str = "127.0.0.1"
    token: str = ""
    names: frozenset[str] = field(default=frozenset())

    @staticmethod
    def on(host: str) -> Access:
        """To a server on an address: on the loopback for whoever is on this machine, else with a new token."""
        if is_loopback(host):
            return Access(host)
        machine = socket.gethostname().lower()
        return Access(host, secrets.token_urlsafe(32), frozenset((host.lower(), machine, f"{machine}.local")))

    def knows_host(self, header: str) -> bool:
        """Is a `Host` header a name that only this machine can have? Its port does not matter: it may be forwarded."""
        name, _, port = header.rpartition(":") if not header.endswith("]") and ":" in header else (header, "", "")
        name = name.lower()
        if port and not (port.isascii() and port.isdecimal() and len(port) <= 5):
            return False
        if name in _LOOPBACK:
            return True
        return bool(self.token) and (name in self.names or _is_address(name))

    def lets_in(self, headers: Headers) -> bool:
        """Does a request know the token? The time that this takes tells nothing about it."""
        if not self.token:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and self.is_token(bearer.strip())
        return by_header or self._has_cookie(headers)

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    @property
    def cookie_name(self) -> str:
        """One for each token: cookies do not tell ports apart, and another board may be on the next one."""
        return f"linnet_{hashlib.sha256(b'name' + self.token.encode()).hexdigest()[:12]}"

    @property
    def _cookie_value(self) -> str:
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def set_cookie(self, response: Response) -> None:
        response.set_cookie(self.cookie_name, self._cookie_value, httponly=True, samesite="strict", path="/")

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return False
        value = "" if cookie is None else cookie.value
        return hmac.compare_digest(value.encode("utf-8", "replace"), self._cookie_value.encode())


def _is_address(name: str) -> bool:
    """A literal address cannot be pointed elsewhere by a name server."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Gate:
    """ASGI middleware that refuses, and sets the headers of what is answered. `end_streams`: before the server ends."""

    def __init__(self, app: ASGIApp, access: Access, end_streams: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._access = access
        self.end_streams = end_streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there is no WebSocket here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        response = self._refusal(scope)
        await (self._app if response is None else response)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is answered instead; None where a request may pass."""
        headers, access = Headers(scope=scope), self._access
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not access.knows_host(hosts[0]):
            return _problem(403, "this server does not answer to that name; open the address that was printed")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
            return _problem(403, "another site may not ask this server")
        is_page = not scope["path"].startswith("/api/")
        arrives = is_page and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not arrives:
            return _problem(403, "another site may not ask this server")
        if access.token and is_page and (token := _token_in(scope)) is not None:
            if not access.is_token(token):
                return _problem(401, "the token is another one; open the address that was printed when it began")
            response = HTMLResponse(_ENTRANCE)
            access.set_cookie(response)
            return response
        if not access.lets_in(headers):
            return _problem(401, "a token is needed: open the address that was printed when the server began")
        if scope["method"] not in _READING and headers.get("x-linnet") != "1":
            return _problem(403, "what changes something needs the header X-Linnet: 1")
        return None


def _token_in(scope: Scope) -> str | None:
    query = scope["query_string"]
    if b"token=" not in query or len(query) > 4096:
        return None
    tokens = parse_qs(query.decode("latin-1")).get("token")
    return tokens[0] if tokens else None


def _problem(status: int, text: str) -> Response:
    return Response(encoded({"error": text}), status, media_type="application/json")
