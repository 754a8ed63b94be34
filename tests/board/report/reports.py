"""Reports made of run folders, and read back without the page's own code."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.board.report.page import Page
from linnet.board.report.report import Report, ReportQuestion, make_report
from linnet.runs import RunStore

TEMPLATE = """<!doctype html>
<html lang="en">
<head><meta name="generator" content="linnet report"><title>Linnet</title></head>
<body><script id="data" type="application/octet-stream"></script><script>run()</script></body></html>
"""
_DATA = re.compile(rb'<script id="data" type="application/octet-stream">([A-Za-z0-9+/=]*)</script>')


def page_of(folder: Path) -> Page:
    """A page as it is built, but for its script."""
    path = folder / "template.html"
    path.write_text(TEMPLATE)
    return Page(path)


def make(root: Path, *runs: str, page: Page | None = None, **question: Any) -> Report:
    store = RunStore(root)
    folders = tuple(run.path for name in runs or ("*",) for run in store.find_all(name))
    asked = {"title": "a report", **question}
    return make_report(ReportQuestion(root, folders, **asked), page or page_of(root.parent))


class OpenedReport:
    """What a report holds."""

    def __init__(self, content: bytes) -> None:
        match = _DATA.search(content)
        assert match is not None
        data = zlib.decompress(base64.b64decode(match[1]))
        assert data[:4] == b"LNR1"
        (length,) = struct.unpack("<I", data[4:8])
        self.contents: dict[str, Any] = json.loads(data[8 : 8 + length])
        self._body = data[8 + length :]

    def run(self, run_id: str) -> dict[str, Any]:
        return next(run for run in self.contents["runs"] if run["id"] == run_id)

    def series(self, run_id: str, key: str, superseded: bool = False, inherited: str | None = None) -> dict[str, Any]:
        series = [one for one in self.run(run_id)["series"] if one["inherited"] == inherited]
        return next(one for one in series if one["key"] == key and one["superseded"] == superseded)

    def column(self, number: int) -> NDArray[Any]:
        about = self.contents["columns"][number]
        kind, rows, offset = about["kind"], about["rows"], about["offset"]
        if kind == "bytes":
            return np.frombuffer(self._body[offset : offset + rows], np.uint8)
        width = 8 if kind == "f8" else 4
        planes = np.frombuffer(self._body[offset : offset + rows * width], np.uint8).reshape(width, rows)
        values = np.ascontiguousarray(planes.T).reshape(-1).view({"f8": "<f8", "f4": "<f4", "i4": "<i4"}[kind])
        if kind != "i4":
            return values
        return about.get("base", 0.0) + about.get("scale", 1.0) * np.cumsum(values.astype(np.float64))
