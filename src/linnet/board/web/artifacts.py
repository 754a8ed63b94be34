"""Files that a run logged: which there are, and the content of one. Whatever they hold, none is a page to a browser.

Images go as images, under a policy by which an SVG may load and run nothing; texts, tables and histograms as text, and
all else only as a download.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import quote

from linnet.board.web.answer_json import plain_json
from linnet.board.web.answers import ArtifactGroup, ArtifactItem, RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.safe_store import open_inside
from linnet.files import read_at
from linnet.runs import Artifact

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}
_PIECE = 256 << 10
_MOST = 20_000  # artifacts that are listed; of more, the latest
_LARGEST_SVG = 16 << 20
_RANGE = re.compile(r"bytes=([0-9]{1,18})?-([0-9]{1,18})?")
_SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


@dataclass
class FileAnswer:
    """A file, or a part of it, as it is sent; closed when its pieces were read, or nobody has it any more."""

    file: BinaryIO
    begin: int
    end: int
    status: int
    headers: dict[str, str]

    def pieces(self) -> Iterator[bytes]:
        """The content."""
        with self.file as file:
            at = self.begin
            while at < self.end and (piece := read_at(file.fileno(), min(_PIECE, self.end - at), at)):
                at += len(piece)
                yield piece


def artifacts(board: WebBoard, run_id: str) -> list[ArtifactGroup]:
    """Names, and of each the files by step."""
    with board.open_whole(run_id) as run:
        groups: dict[tuple[str, str], ArtifactGroup] = {}
        for number, artifact in numbered(run).items():
            key = artifact.name, artifact.media
            group = groups.setdefault(key, ArtifactGroup(artifact.name, artifact.media, []))
            group.items.append(_item(number, artifact))
        return list(groups.values())


def numbered(run: OpenRun) -> dict[int, Artifact]:
    """Artifacts by a number that stays with each of them, whatever is logged later; images first, by name and step."""
    listed = [artifact for series in run.journal.artifacts() for artifact in series.artifacts]
    numbers: dict[int, Artifact] = {}
    for artifact in listed[-_MOST:]:
        identity = f"{artifact.name}\0{artifact.media}\0{artifact.step}\0{artifact.t}\0{artifact.path.name}"
        number = zlib.crc32(identity.encode("utf-8", "replace"))
        while number in numbers:
            number += 1
        numbers[number] = artifact
    return numbers


def _item(number: int, artifact: Artifact) -> ArtifactItem:
    caption, mime = artifact.fields.get("caption"), _logged_type(artifact)
    return ArtifactItem(
        number=number,
        step=artifact.step,
        t=artifact.t,
        bytes=artifact.size,
        mime=mime,
        caption=caption[:2_000] if isinstance(caption, str) else None,
        inline=mime != "application/octet-stream",
        fields=plain_json({name: value for name, value in artifact.fields.items() if name != "caption"}),
    )


def artifact_content(
    board: WebBoard, run_id: str, number: int, part: str | None = None, *, as_page: bool = False, download: bool = False
) -> FileAnswer:
    """The content of one. `part`: the header `Range`; `as_page`: a browser would show it by itself."""
    with board.open_whole(run_id) as run:
        artifact = numbered(run).get(number)
        if artifact is None:
            raise RequestError(404, "there is no such artifact (any more)")
        file = os.fdopen(open_inside(run.run.path, artifact.path.relative_to(run.run.path)), "rb", buffering=0)
    try:
        size = os.fstat(file.fileno()).st_size
        mime = _content_type(artifact, read_at(file.fileno(), 32, 0), size)
        begin, end, status = _range(part, size)
    except BaseException:
        file.close()
        raise
    attached = download or mime == "application/octet-stream" or (as_page and mime == "image/svg+xml")
    name = quote(artifact.path.name if "/media/" not in str(artifact.path) else _file_name(artifact), safe="")
    headers = {
        "content-type": mime,
        "content-length": str(end - begin),
        "content-disposition": f"{'attachment' if attached else 'inline'}; filename*=UTF-8''{name}",
        "content-security-policy": _SANDBOX,
        "accept-ranges": "bytes",
        "cache-control": "private, max-age=3600" if artifact.sha256 else "no-cache",
    }
    if status == 206:
        headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
    return FileAnswer(file, begin, end, status, headers)


def _file_name(artifact: Artifact) -> str:
    """What a file that is named by its digest is called when it is saved."""
    step = "" if artifact.step is None else f"-{artifact.step}"
    name = re.sub(r"[^\w.-]+", "-", artifact.name).strip("-.") or "artifact"
    return f"{name[:100]}{step}{artifact.path.suffix[:10]}"


def _logged_type(artifact: Artifact) -> str:
    """The type by what the event and the name say; its content is looked at when it is sent."""
    suffix = artifact.path.suffix.lower()
    if artifact.media == "image":
        known = {".svg": "image/svg+xml", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png"}
        known |= {".gif": "image/gif", ".webp": "image/webp", ".bmp": "image/bmp"}
        return known.get(suffix, "application/octet-stream")
    if artifact.media in ("table", "histogram"):
        return "text/csv; charset=utf-8" if suffix == ".csv" else "application/json"
    if artifact.media == "text":
        return "text/plain; charset=utf-8"
    if artifact.media == "audio" and suffix == ".wav":
        return "audio/wav"
    return "application/octet-stream"


def _content_type(artifact: Artifact, head: bytes, size: int) -> str:
    """The type by which it is sent: of images the one that their first bytes tell."""
    mime = _logged_type(artifact)
    if not mime.startswith("image/"):
        return mime
    if mime == "image/svg+xml":
        return mime if size <= _LARGEST_SVG else "application/octet-stream"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    sniffed = (mime for signature, mime in _SIGNATURES.items() if head.startswith(signature))
    return next(sniffed, "application/octet-stream")


def _range(part: str | None, size: int) -> tuple[int, int, int]:
    """Begin, end and status of what is to be sent. A header that is no plain range counts as none."""
    requested = None if part is None else _RANGE.fullmatch(part.strip())
    if requested is None or not (requested[1] or requested[2]):
        return 0, size, 200
    if not requested[1]:
        begin, end = max(0, size - int(requested[2])), size
    else:
        begin, end = int(requested[1]), min(size, int(requested[2]) + 1 if requested[2] else size)
    if begin >= end:
        raise RequestError(416, f"the file has {size} bytes")
    return begin, end, 206
