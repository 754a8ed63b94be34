"""A run that is not kept: what `linnet.start(mode="disabled")` gives, or `LINNET_MODE=disabled` makes of any start."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linnet.runs.folder import safe_name
from linnet.runs.manifest import Manifest
from linnet.runs.owned_folder import OwnedFolder
from linnet.runs.session import Session

log = logging.getLogger("linnet")


class _TemporaryFolder(OwnedFolder):
    """In the place of a run's folder: a temporary one, made when it is first asked for, without a manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        super().__init__(Path(manifest.run_id), manifest, frozenset())

    @property
    def path(self) -> Path:
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="linnet-disabled-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    @path.setter
    def path(self, path: Path) -> None:
        """It has no other."""

    def write_manifest(self) -> None:
        pass

    def remove(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


class DisabledSession(Session):
    """Every method works and writes nothing: for tests, trials, and all processes of a job but the first.

    A program that asks for the run's folders gets temporary ones, which go when it ends.
    """

    _folder: _TemporaryFolder

    def __init__(self, run_id: str | None, **fields: Any) -> None:
        manifest = Manifest(run_id=safe_name(run_id or "") or "disabled", created_at=time.time(), **fields)
        manifest.mask()
        self._folder = _TemporaryFolder(manifest)
        self._pid = os.getpid()
        self._started, self._ended, self._open = True, False, False
        self._complaints: set[str] = set()

    @property
    def active(self) -> bool:
        """Nothing reaches the disk."""
        return False

    def _shown(self) -> tuple[str, dict[str, object]]:
        return self.run_id, {"state": "disabled: nothing is kept"}  # a folder would be made by asking for it

    def _ignored(self, *_arguments: Any, **_options: Any) -> None:
        """Nothing is kept."""

    log = checkpoint = artifact = run_start = resume = _ignored
    image = table = histogram = text = audio = _ignored

    def run_end(self, *_arguments: Any, **_options: Any) -> None:
        """The run is over; temporary folders go."""
        self._ended = True
        self._folder.remove()

    def _event(self, kind: str, step: int | None, fields: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return {}


def is_disabled(mode: str | None) -> bool:
    """Is logging switched off, by `mode` or else by `$LINNET_MODE`?"""
    chosen = mode if mode is not None else os.environ.get("LINNET_MODE") or "enabled"
    if chosen not in ("enabled", "disabled", "online", "offline"):  # the last two are W&B's; a run is a folder anyway
        log.warning("the mode %r is not known: say enabled or disabled; this run is written", chosen)
    return chosen == "disabled"
