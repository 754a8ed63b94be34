"""The figures of a folder's runs, kept beside them so that a second look at a thousand runs need not read them again.

The file is derived and disposable. What it says of a run counts only while the run's stream is the one it was read
from: same size, times and inode. A stream that was changed shortly before it was read is not kept, because another
change in the same tick of the clock could not be told from it.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec

from linnet.files import change_stamp, is_folder, open_regular, write_file
from linnet.runs.figures import FigureRequest, MetricFigures
from linnet.runs.folder import CACHE, EVENTS

_VERSION = 1
_NAME = "figures"
_LARGEST = 256 << 20
_SETTLED = 2.0  # seconds since the last change of a stream that is kept

Stamp = tuple[int, ...]


class _Entry(msgspec.Struct, array_like=True):
    """What was read of a run: its stream's stamp, and figures by metric, None for a metric that it does not have."""

    stamp: Stamp
    figures: dict[str, MetricFigures | None]


class _Content(msgspec.Struct, array_like=True):
    version: int
    runs: dict[str, _Entry]


class FigureIndex:
    """The figures that are known of the runs below a root."""

    def __init__(self, root: Path) -> None:
        self._path = root / CACHE / _NAME
        self._prefix = f"{root}/"
        self._runs = _load(self._path)
        self._changed = False

    def get(self, folder: str, stamp: Stamp | None, request: FigureRequest) -> dict[str, MetricFigures] | None:
        """The wanted figures of a run, those that it has; None where they are not known."""
        entry = self._runs.get(folder.removeprefix(self._prefix))
        if stamp is None or entry is None or entry.stamp != stamp:
            return None
        known = {}
        for name, steps in request.items():
            if name not in entry.figures:
                return None
            figures = entry.figures[name]
            if figures is not None:
                if not steps <= figures.at.keys():
                    return None
                known[name] = figures
        return known

    def put(self, folder: str, stamp: Stamp | None, request: FigureRequest, figures: dict[str, MetricFigures]) -> None:
        """Remember what was read of a stream that had this stamp before."""
        if stamp is None or time.time() - max(stamp[1], stamp[2]) / 1e9 < _SETTLED:
            return
        if not folder.startswith(self._prefix):  # named by its path, and elsewhere
            return
        folder = folder.removeprefix(self._prefix)
        entry = self._runs.get(folder)
        if entry is None or entry.stamp != stamp:
            entry = self._runs[folder] = _Entry(stamp, {})
        for name in request:
            figure, known = figures.get(name), entry.figures.get(name)
            if figure is not None and known is not None:
                figure.at = {**known.at, **figure.at}
            entry.figures[name] = figure
        self._changed = True

    def save(self) -> None:
        """Write what is new; of runs that are gone nothing stays. A root that cannot be written just has no index."""
        if not self._changed:
            return
        root = self._path.parent.parent
        runs = {folder: entry for folder, entry in self._runs.items() if is_folder(f"{root}/{folder}")}
        with suppress(OSError, ValueError, OverflowError):
            self._path.parent.mkdir(exist_ok=True)
            content = msgspec.msgpack.encode(_Content(_VERSION, runs))
            write_file(self._path, zlib.crc32(content).to_bytes(4, "little") + content, mode=0o600, sync=False)


def stamp_of(folder: str) -> Stamp | None:
    """What changes whenever a run's stream does; None where there is none."""
    try:
        status = os.stat(f"{folder}/{EVENTS}")  # noqa: PTH116 - one for each of thousands of runs
    except OSError:
        return None
    return tuple(change_stamp(status))


def _load(path: Path) -> dict[str, _Entry]:
    with suppress(OSError, ValueError, RecursionError):
        with os.fdopen(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                return {}
            written = file.read()
        if zlib.crc32(written[4:]) == int.from_bytes(written[:4], "little"):
            content = msgspec.msgpack.decode(written[4:], type=_Content)
            return content.runs if content.version == _VERSION else {}
    return {}
