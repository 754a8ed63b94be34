"""`Artifact`: a file that was logged into a run: an image, a table, a histogram, a text, sound, or any other."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from linnet.errors import LinnetError
from linnet.files import open_regular
from linnet.runs.events import Event, as_step

LARGEST = 64 << 20  # bytes of a file that is read into memory
_MOST = 100_000  # artifacts of one run that are listed; of more, the latest
_MEDIA = {  # by suffix, where the event does not say it
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg"), "image"),
    **dict.fromkeys((".txt", ".md", ".log", ".toml", ".yaml", ".yml"), "text"),
    ".csv": "table",
    ".wav": "audio",
}
MEDIA_KINDS = ("image", "table", "histogram", "text", "audio", "file")


class ArtifactError(LinnetError):
    """A file that was logged and is not there any more, or is not what its event says."""


@dataclass(frozen=True)
class Artifact:
    """One file that was logged.

    - `media`: `image`, `table`, `histogram`, `text`, `audio`, or `file` for any other.
    - `step`, `t`: when; `path`: where it lies; `size`: bytes; `sha256`: empty where the event does not say it.
    - `fields`: what else its event says: `caption`, `width`, `height`, `rows`, `seconds` …
    """

    name: str
    media: str
    step: int | None
    t: float
    path: Path
    size: int | None = None
    sha256: str = ""
    mime: str = ""
    fields: dict[str, Any] = field(default_factory=dict, hash=False)

    def read(self, largest: int = LARGEST) -> bytes:
        """The file's content. ArtifactError where it is gone, or larger than `largest`."""
        content = bytearray()
        for piece in self.pieces():
            content += piece
            if len(content) > largest:
                raise ArtifactError(f"{self.media} {self.name!r}: {self.path} is larger than {largest >> 20} MB")
        return bytes(content)

    def pieces(self) -> Iterator[bytes]:
        """The file's content, a megabyte at a time. ArtifactError where it is gone or is no regular file."""
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                while piece := file.read(1 << 20):
                    yield piece
        except (OSError, ValueError) as error:
            why = "is no longer there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise ArtifactError(f"{self.media} {self.name!r}: {self.path} {why}") from None

    def load(self) -> Any:
        """What was logged: pixels of an image (height, width, channels), a `Table`, a `Histogram`, a text, `Audio`.

        Of any other file the bytes. ArtifactError where it is damaged.
        """
        content = self.read()
        try:
            return _decoded(self, content)
        except ValueError as error:  # msgspec's errors too
            raise ArtifactError(f"{self.media} {self.name!r}: {self.path}: {error}") from None

    def problem(self) -> str:
        """Why the file is not what was logged; empty when it is."""
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self.size is not None and size != self.size:
                    return f"has {size} bytes, not {self.size}"
                if self.sha256 and hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return "is not what was written: its SHA-256 differs"
        except FileNotFoundError:
            return "is no longer there"
        except (OSError, ValueError):
            return "cannot be read"
        return ""

    @property
    def label(self) -> str:
        """`NAME@STEP`, by which the command line knows it."""
        return self.name if self.step is None else f"{self.name}@{self.step}"


def _decoded(artifact: Artifact, content: bytes) -> Any:
    match artifact.media:
        case "image":
            from linnet.runs.media.image_formats import decode_image

            return decode_image(content)
        case "table":
            from linnet.runs.media.tables import decode_csv, decode_table

            return decode_csv(content) if artifact.path.suffix.lower() == ".csv" else decode_table(content)
        case "histogram":
            from linnet.runs.media.histograms import decode_histogram

            return decode_histogram(content)
        case "audio":
            from linnet.runs.media.audio import decode_audio

            return decode_audio(content)
        case "text":
            return content.decode("utf-8", "replace")
    return content


class ArtifactList:
    """The artifacts of a stream, as its events come: what a `resume` makes void, or a later file replaces, is left out.

    - `folder`: the run's, which no path may lead out of; `superseded`: keep what a resumed run logged again.
    - `changes`: goes up whenever the list becomes another.
    """

    def __init__(self, folder: Path, superseded: bool = False) -> None:
        self.changes = 0
        self._folder = folder
        self._superseded = superseded
        self._artifacts: deque[Artifact] = deque(maxlen=_MOST)
        self._digests: dict[Path, str] = {}  # of each path, the last

    def take(self, event: Event) -> None:
        """Take an event of the kind `artifact` or `resume`."""
        self.changes += 1
        if event.kind == "resume":
            if (last := event.step) is not None and not self._superseded:
                self._keep(lambda artifact: artifact.step is None or artifact.step <= last)
            return
        artifact = to_artifact(event, self._folder)
        if artifact is None:
            return
        if self._digests.get(artifact.path, artifact.sha256) != artifact.sha256:
            self._keep(lambda earlier: earlier.path != artifact.path)
        self._digests[artifact.path] = artifact.sha256
        self._artifacts.append(artifact)

    def _keep(self, predicate: Callable[[Artifact], bool]) -> None:
        self._artifacts = deque(filter(predicate, self._artifacts), maxlen=_MOST)

    def __iter__(self) -> Iterator[Artifact]:
        return iter(self._artifacts)

    def __len__(self) -> int:
        return len(self._artifacts)


def to_artifact(event: Event, folder: Path) -> Artifact | None:
    """An event as an artifact; None where it names no file within the run's folder."""
    data, named = event.data, event.data.get("path")
    if not isinstance(named, str) or not named or "\0" in named:
        return None
    relative = PurePosixPath(named)
    if relative.is_absolute() or ".." in relative.parts:
        return None
    path = folder / relative
    media, size, name = data.get("media"), as_step(data.get("bytes")), data.get("name")
    known = media if isinstance(media, str) and media in MEDIA_KINDS else _MEDIA.get(path.suffix.lower(), "file")
    own = ("kind", "type", "t", "step", "name", "path", "media", "bytes", "sha256", "mime", "phase")
    return Artifact(
        name=name if isinstance(name, str) and name else relative.name,
        media=known,
        step=event.step,
        t=event.t,
        path=path,
        size=size,
        sha256=_text(data.get("sha256")).lower(),
        mime=_text(data.get("mime")),
        fields={field: value for field, value in data.items() if field not in own},
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
