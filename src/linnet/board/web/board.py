"""`WebBoard`: what the server knows: the table of runs, those that are open, and which id means which folder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from linnet.board.initial_scan import InitialScan, without_collection
from linnet.board.run_table import RunRow, RunTable
from linnet.board.web.answers import BoardInfo, RequestError
from linnet.board.web.open_runs import OpenRun, OpenRuns
from linnet.board.web.safe_store import SafeStore
from linnet.board.words import plain, shorten

_SCAN_SECONDS, _SCAN_PAUSE = 0.1, 20.0  # between two looks at all runs, and how much longer than one look at least


class WebBoard:
    """The runs of a folder for many readers. `table` is used under `lock`; each open run has a lock of its own.

    - `store`: where runs are listed from; `chosen`: folders of the runs named on the command line.
    - `initial_scan`: at the runs of the store, where it has begun already.
    - `defaults`: what a recipe sets when nothing is asked for. Which recipes there are is not known in this room.
    """

    def __init__(
        self,
        store: SafeStore,
        chosen: tuple[Path, ...] = (),
        initial_scan: InitialScan | None = None,
        defaults: Callable[[str], dict[str, Any]] = lambda recipe: {},
    ) -> None:
        self.store = store
        self.lock = threading.RLock()
        self.table = RunTable(store, lambda rows: [], _SCAN_SECONDS, _SCAN_PAUSE, initial_scan)
        self.open_runs = OpenRuns()
        self.version = 0  # of the table: goes up when it changes
        self._began = f"{time.time():.3f}"
        self._chosen = tuple(map(store.as_listed, chosen))
        self._defaults_of, self._defaults = defaults, dict[str, dict[str, Any]]()
        self._ids: dict[str, str] = {}  # of each folder
        self._rows: dict[str, RunRow] = {}  # by id

    @property
    def position(self) -> str:
        """Changes when the table does."""
        return f"{self._began}-{self.version}"

    def info(self) -> BoardInfo:
        self.scan()
        chosen = [self._ids[str(folder)] for folder in self._chosen if str(folder) in self._ids]
        return BoardInfo(_shown(self.store.root), _version(), os.access(self.store.root, os.W_OK), chosen)

    def defaults(self, recipe: str | None) -> dict[str, Any]:
        """The settings that a run of a recipe has when nothing is asked for, by dotted name."""
        if recipe is None:
            return {}
        if recipe not in self._defaults:
            defaults = self._defaults_of(recipe)
            self._defaults[recipe] = {f"config.{name}": value for name, value in defaults.items()}
        return self._defaults[recipe]

    def shown_first(self) -> list[RunRow]:
        """The runs that a page shows when nobody has chosen any: those of the command line, else the newest."""
        self.scan()
        with self.lock:
            named = {str(folder) for folder in self._chosen}
            chosen = [row for row in self.table.rows if row.path in named]
            return chosen or sorted(self.table.rows, key=lambda row: row.summary.manifest.created_at)[-1:]

    def scan(self, *, now: bool = False) -> bool:
        """Look for new and changed runs, unless that was done a moment ago; True when something is new."""
        with self.lock:
            with nullcontext() if self.table.scanned else without_collection():
                changed = self.table.scan() if now else self.table.read(0.0)
            if changed:
                self._name_rows()
                self.version += 1
            return changed

    def scan_folders(self, folders: list[str]) -> list[RunRow]:
        """Look at some runs; those that changed."""
        with self.lock:
            changed = self.table.scan_folders(folders)
            self.version += bool(changed)
            return changed

    def row(self, run_id: str) -> RunRow:
        """The run of an id; a RequestError where there is none."""
        with self.lock:
            row = self._rows.get(run_id)
            if row is None:
                self.scan(now=True)  # it may have been made a moment ago
                row = self._rows.get(run_id)
        if row is None:
            raise RequestError(404, f"there is no run {shorten(plain(run_id), 100)!r}")
        return row

    def known(self, run_ids: list[str]) -> list[RunRow]:
        """The runs of ids, as far as they are there."""
        with self.lock:
            if any(run_id not in self._rows for run_id in run_ids):
                self.scan()
            return [self._rows[run_id] for run_id in run_ids if run_id in self._rows]

    def id_of(self, row: RunRow) -> str:
        """What a run is called in addresses: its folder's name."""
        return self._ids.get(row.path) or Path(row.path).name

    def id_of_folder(self, folder: Path) -> str:
        """The same for a run that may not be in the table."""
        return self._ids.get(str(folder)) or folder.name

    @contextmanager
    def open(self, run_id: str) -> Iterator[OpenRun]:
        """A run for reading, by one thread at a time."""
        row = self.row(run_id)
        with self.open_runs.use(row.path) as run:
            yield run

    @contextmanager
    def open_whole(self, run_id: str) -> Iterator[OpenRun]:
        """The same, with all that the run said read."""
        row = self.row(run_id)
        with self.open_runs.use_whole(row.path) as run:
            yield run

    def close(self) -> None:
        with self.lock:
            self.table.close()
        self.open_runs.close()

    def _name_rows(self) -> None:
        """Give every run an id: its folder's name; of one that lies deeper, the way to it with tildes."""
        root, ids, rows = f"{self.store.root}/", dict[str, str](), dict[str, RunRow]()
        for row in [*self.table.rows, *self.table.archived]:
            relative_path = row.path.removeprefix(root)
            name = Path(row.path).name if relative_path == row.path else relative_path.replace("/", "~")
            while name in rows:  # a run that was named has a namesake in the root
                name += "~"
            ids[row.path], rows[name] = name, row
        for path in self._ids.keys() - ids.keys():
            self.open_runs.forget(path)
        self._ids, self._rows = ids, rows


def _shown(root: Path) -> str:
    """A folder as people write it."""
    path, home = str(root.absolute()), str(Path.home())
    return plain(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path)


def _version() -> str:
    try:
        return version("linnet")
    except PackageNotFoundError:
        return ""
