"""The page itself: the files that were built of `web/`, held in memory, compressed once."""

from __future__ import annotations

import gzip
import mimetypes
import os
from dataclasses import dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"
REPORT = "report.html"  # the page that `linnet report` fills: no part of what is served
_LARGEST = 8 << 20
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_TEXTS = ("text/", "image/svg", "application/json")
_HOW_TO_BUILD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Linnet</title></head><body>
<h1>The page is not built</h1>
<p>The server runs, and its data is at <a href="api/runs">api/runs</a>. The page in the browser is made from the folder
<code>web/</code> of a source checkout: run <code>make web</code> there and load this page again.</p>
<p>An installed package has it: <code>pip install 'linnet[web]'</code>.</p>
</body></html>
"""


@dataclass(frozen=True)
class StaticFile:
    """A file of the page. `packed`: the same compressed; None where that is no gain."""

    content: bytes
    packed: bytes | None
    mime: str
    lasting: bool  # its name tells its content, so a browser may keep it


class StaticFiles:
    """The files below a folder, by the path in an address. Looked for again when one is not known: it may be built."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._files: dict[str, StaticFile] = {}
        self._stamp = -1

    def get(self, path: str) -> StaticFile | None:
        """The file of a path, `index.html` for none; None where there is no such file."""
        self._load()
        if path in ("", "index.html"):
            return self._files.get("index.html") or _file("index.html", _HOW_TO_BUILD.encode())
        return self._files.get(path)

    def _load(self) -> None:
        try:
            stamp = (self._folder / "index.html").stat().st_mtime_ns
        except OSError:
            stamp = 0
        if stamp == self._stamp:
            return
        self._stamp, self._files = stamp, {}
        for parent, _, names in os.walk(self._folder):
            for name in names:
                path = Path(parent, name)
                if name != REPORT and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                    relative = path.relative_to(self._folder).as_posix()
                    self._files[relative] = _file(relative, path.read_bytes())


def _file(name: str, content: bytes) -> StaticFile:
    suffix = Path(name).suffix.lower()
    mime = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    is_text = mime.startswith(_TEXTS)
    packed = gzip.compress(content, 9, mtime=0) if is_text and len(content) > 200 else None
    mime = f"{mime}; charset=utf-8" if mime.startswith("text/") else mime
    return StaticFile(content, packed, mime, lasting=name.startswith("assets/"))
