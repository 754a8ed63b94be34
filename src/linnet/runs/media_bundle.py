"""`MediaBundle`: the writer of a run's images, tables, histograms, texts and sounds; files, and an event each."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from linnet import files
from linnet.runs.bundle import RunBundle, never_raises
from linnet.runs.encode import drop_none, safe_text, whole_number
from linnet.runs.folder import LOGGED_MEDIA

if TYPE_CHECKING:  # they load numpy, which a run without media does not need
    from linnet.runs.media.capture import Capture, MediaFile
    from linnet.runs.media.queue import MediaJob, MediaQueue

log = logging.getLogger("linnet")

_LONGEST_NAME = 200  # characters


class MediaBundle(RunBundle):
    """A run folder being written that also takes what is no number.

    Each call copies what it is given and returns; a thread encodes it, writes the file under `artifacts/media` by its
    SHA-256 and, when that is on the disk, its `artifact` event. What was logged before is not written twice. A forked
    worker, which has no such thread, does all of that itself.

    - `media_bytes`, `media_files`: how much one run keeps; what comes beyond is left out, with one warning.
    - `media_seconds`: how long the end of a run waits for what is still to be written.
    """

    media_bytes = 4 << 30
    media_files = 20_000
    media_seconds = 30.0

    _media: MediaQueue | None = None
    _media_kept: tuple[int, int] | None = None  # files and bytes there are
    _media_failed = 0

    @never_raises
    def image(
        self,
        step: SupportsIndex | None,
        name: str,
        image: Any,
        *,
        caption: str | None = None,
        layout: str | None = None,
        value_range: tuple[float, float] | None = None,
        columns: int | None = None,
    ) -> None:
        """Keep an image: an array, a tensor, a PIL image, a matplotlib figure, a path, or a list of these as a grid.

        - `step`: None: the one logged last. `name`: what it shows; the same one at every step makes a series.
        - `layout`: `HW`, `HWC`, `CHW`, `NHWC`, `NCHW` or `NHW`; None: as the shape tells.
        - `value_range`: the numbers that are black and white, such as `(-1, 1)`. None: 0 and 1 for fractions in
          between, 0 and 255 for other numbers in between, else the least and the greatest.
        - `columns`: of the grid that a list or a batch makes; None: about as many as rows.
        """
        from linnet.runs.media.images import capture_image

        capture = capture_image(image, layout=layout, value_range=value_range, columns=columns)
        self._keep_media("image", step, name, capture, caption=caption)

    @never_raises
    def table(
        self,
        step: SupportsIndex | None,
        name: str,
        data: Any = None,
        *,
        columns: Sequence[str] | None = None,
        rows: Iterable[Any] | None = None,
        caption: str | None = None,
    ) -> None:
        """Keep a table of at most 10,000 rows.

        `data`: a list of mappings or of rows, a mapping of columns, an array of two dimensions, a data frame of pandas
        or polars, a table of pyarrow. Or `columns` and `rows`.
        """
        from linnet.runs.media.tables import capture_table

        self._keep_media("table", step, name, capture_table(data, columns, rows), caption=caption)

    @never_raises
    def histogram(
        self, step: SupportsIndex | None, name: str, values: Any, *, bins: int = 64, caption: str | None = None
    ) -> None:
        """Keep how values are distributed: an array or tensor of any shape, or `(counts, edges)` of `np.histogram`."""
        from linnet.runs.media.histograms import capture_histogram

        self._keep_media("histogram", step, name, capture_histogram(values, bins), caption=caption)

    @never_raises
    def text(self, step: SupportsIndex | None, name: str, text: str, *, caption: str | None = None) -> None:
        """Keep a text. (For what a model generates from a prompt there is `sample`.)"""
        from linnet.runs.media.texts import capture_text

        self._keep_media("text", step, name, capture_text(text), caption=caption)

    @never_raises
    def audio(
        self,
        step: SupportsIndex | None,
        name: str,
        samples: Any,
        rate: int | None = None,
        *,
        caption: str | None = None,
    ) -> None:
        """Keep sound as WAV: samples from -1 to 1 or integers, mono or with channels, at `rate` a second; or a path."""
        from linnet.runs.media.audio import capture_audio

        self._keep_media("audio", step, name, capture_audio(samples, rate), caption=caption)

    # -- within ------------------------------------------------------------------------------------------------

    def _keep_media(self, media: str, step: Any, name: Any, capture: Capture, **fields: Any) -> None:
        from linnet.runs.media.queue import MediaJob, MediaQueue

        if self._ended:
            self._append({"kind": "artifact"})  # says, once, that it comes too late
            return
        if not self._started:
            self._imply_run_start()
        title = safe_text(name)[:_LONGEST_NAME] or media
        job = MediaJob(media, title, self._media_step(step), capture, drop_none(fields))
        if os.getpid() != self._pid:
            self._write_media(job)
            return
        if self._media is None:
            with self._sink.lock:  # two threads may log their first at once
                self._media = self._media or MediaQueue(self._write_media, self.run_id)
        self._media.put(job)

    def _media_step(self, step: Any) -> int | None:
        last = whole_number(self._last.get("step"))
        if step is None or (number := whole_number(step)) is None:
            if step is not None and "media step" not in self._complaints:
                self._complaints.add("media step")
                log.warning(
                    "run %s: the step %r is no whole number; the last is taken", self.run_id, safe_text(step)[:40]
                )
            return last
        return number

    def _write_media(self, job: MediaJob) -> None:
        """Make the file of one job, and then its event."""
        try:
            file = job.capture.encode()
        except Exception as error:
            self._complain(job.media, error)
            return
        digest = hashlib.sha256(file.content).hexdigest()
        path = f"{LOGGED_MEDIA}/{digest[:2]}/{digest}{file.suffix}"
        try:
            if not self._write_media_file(self.run_dir / path, file):
                return
        except OSError as error:
            self._media_failed += 1
            if self._media_failed == 1:
                log.warning("run %s: %s %s was not kept (%s)", self.run_id, job.media, job.name, safe_text(error))
            return
        known = {"name": job.name, "media": job.media, "path": path, "bytes": len(file.content), "sha256": digest}
        self._event("artifact", job.step, {**known, "mime": file.mime, **file.fields, **job.fields})

    def _write_media_file(self, path: Path, file: MediaFile) -> bool:
        """Write a file unless it is there; False where the run has as much as it keeps."""
        with suppress(OSError):
            if path.stat().st_size == len(file.content):
                return True
        if self._media_kept is None:
            self._media_kept = _files_and_bytes(self.run_dir / LOGGED_MEDIA)
        n_files, n_bytes = self._media_kept
        if n_files >= self.media_files or n_bytes + len(file.content) > self.media_bytes:
            if "media limit" not in self._complaints:
                self._complaints.add("media limit")
                log.warning(
                    "run %s has %d files of media, %d MB; further ones are left out",
                    self.run_id,
                    n_files,
                    n_bytes >> 20,
                )
            return False
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            files.sync_folder(path.parent.parent)
        files.write_file(path, file.content)
        self._media_kept = n_files + 1, n_bytes + len(file.content)
        return True

    def _before_end(self) -> None:
        queue = self._media
        if queue is None:
            return
        if threading.current_thread().name != "linnet-media":
            with suppress(KeyboardInterrupt):  # somebody is tired of waiting; the run still ends as it should
                queue.close(self.media_seconds)
        if lost := queue.dropped + self._media_failed:
            text = f"{lost} of the images and other media that were logged are not kept"
            log.warning("run %s: %s", self.run_id, text)
            self._event("note", None, {"text": text, "level": "warning", "lost_media": lost})


def _files_and_bytes(folder: Path) -> tuple[int, int]:
    """How many files there are below a folder, and their bytes: a resumed run goes on counting."""
    n_files = n_bytes = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                n_files, n_bytes = n_files + 1, n_bytes + (Path(base) / name).stat().st_size
    return n_files, n_bytes
