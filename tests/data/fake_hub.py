"""As much of Hugging Face's hub as reading a dataset asks for, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


@contextmanager
def fake_hub(repository: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a hub with one dataset, all of whose files lie in one folder."""

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if "/tree/" in path:
                self._tree(path.partition("/tree/")[2].partition("/")[2], "recursive=true" in query.lower())
            elif "/resolve/" in path:
                self._file(files.get(path.partition("/resolve/")[2].partition("/")[2]))
            elif path.startswith(f"/api/datasets/{repository}"):
                facts = {"id": repository, "sha": COMMIT, "siblings": [], "private": False, "tags": []}
                self._json({**facts, "downloads": 0, "likes": 0})
            else:
                self._answer(404, b"{}")

        def _tree(self, folder: str, recursive: bool) -> None:
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": f"{len(content):040}"}
                for name, content in files.items()
                if name.startswith(folder)
            ]
            folders = sorted({name.partition("/")[0] for name in files})
            if not folder and not recursive:
                entries = [{"type": "directory", "path": name, "size": 0, "oid": "1" * 40} for name in folders]
            self._json(entries)

        def _file(self, content: bytes | None) -> None:
            if content is None:
                self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            headers = {"ETag": '"1"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            span = self.headers.get("Range")
            if span is None:
                self._answer(200, content, headers)
                return
            first, _, last = span.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
            self._answer(206, content[begin : end + 1], headers)

        def _json(self, value: object) -> None:
            self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _answer(self, code: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(code)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
