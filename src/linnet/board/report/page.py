"""`Page`: the built page that waits for data: one HTML file with its script and style in it."""

from __future__ import annotations

import base64
import html
import zlib
from pathlib import Path

from linnet.board.web.static_files import REPORT, STATIC
from linnet.errors import LinnetError

TEMPLATE = STATIC / REPORT
# What `web/build.py` writes into the template, where data goes.
_TITLE, _DATA, _THEME = b"<title>Linnet</title>", b'<script id="data" type="application/octet-stream">', b"<html "
_MARK = b'<meta name="generator" content="linnet report">'
_HEAD = 1_000  # bytes of a file in which the mark stands


class Page:
    """The page without data, as it was built."""

    def __init__(self, template: Path = TEMPLATE) -> None:
        try:
            content = template.read_bytes()
        except OSError:
            raise LinnetError(
                "the page that a report is made of is not built; in a source checkout: make web,"
                " else install Linnet again: pip install --force-reinstall --no-deps linnet"
            ) from None
        self._before, title, below_title = content.partition(_TITLE)
        self._between, data, self._after = below_title.partition(_DATA)
        if not title or not data:
            raise LinnetError(f"{template} is no page that a report is made of; build it anew: make web")
        self.size = len(content)

    def filled(self, title: str, data: bytes, theme: str | None = None) -> bytes:
        """The page with data; it is text of sixty-four letters there, none of which is markup."""
        before = self._before if theme is None else self._before.replace(_THEME, _THEME + _theme(theme), 1)
        named = f"<title>{html.escape(title)}</title>".encode("utf-8", "replace")
        packed = base64.b64encode(zlib.compress(data, 9))
        return b"".join((before, named, self._between, _DATA, packed, self._after))


def _theme(theme: str) -> bytes:
    return f'data-theme="{html.escape(theme)}" '.encode()


def is_report(path: Path) -> bool:
    """Was this file written by `linnet report`?"""
    try:
        with path.open("rb") as file:
            return _MARK in file.read(_HEAD)
    except OSError:
        return False
