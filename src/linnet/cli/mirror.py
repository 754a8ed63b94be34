"""`linnet mirror`: runs copied to a store; and a run brought back from one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.completion import complete_run
from linnet.cli.options import EVERY_RUN, AsJson, RunFilters, RunsFolder, choose_runs
from linnet.cli.printing import paint, print_json
from linnet.cli.streams import draw_over, lasting_output
from linnet.errors import UsageError
from linnet.remote import is_url
from linnet.runs import Run, RunError

if TYPE_CHECKING:
    from linnet.runs.mirroring import Ledger

_LONGEST_FETCH = 3600.0  # seconds that other ranks wait for the first


def mirror(
    *words_: Annotated[
        str,
        Parameter(
            name="RUN… URL",
            help="The runs, then where to: s3://bucket/runs. By default the latest run, and its own --mirror.",
            completer=complete_run,
        ),
    ],
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Copy runs to a store: what is not there yet, or has changed since; exit code 1 where that fails."""
    from linnet.runs import RunStore
    from linnet.runs.mirror import check_mirror
    from linnet.runs.store import is_pattern

    url = words_[-1] if words_ and is_url(words_[-1]) else None
    references = words_[:-1] if url else words_
    places: list[tuple[Run, str]] = []
    try:
        chosen = choose_runs(RunStore(runs), references or (() if filters else ("latest",)), filters)
    except RunError as error:
        if url is None and len(references) > 1:
            raise RunError(f"{error}; the place of a mirror is a URL, as in file:///backup/runs") from None
        raise
    for run in chosen:
        goal = url or run.manifest.config.get("mirror")
        if not isinstance(goal, str) or not goal:
            raise UsageError(f"run {run.id} has no mirror of its own: say where, as in s3://bucket/runs")
        check_mirror(goal)
        places.append((run, goal))
    copied = []
    with lasting_output():
        for run, goal in places:
            ledger = _copied(run, goal)
            copied.append((run, ledger))
            if not json:
                _print(run, ledger)
    if json:
        fields = [
            {"run": run.id, "url": ledger.url, "missing": ledger.missing, "error": ledger.error or None}
            for run, ledger in copied
        ]
        print_json(fields if len(references) > 1 or filters or any(map(is_pattern, references)) else fields[0])
    return int(any(ledger.error for _, ledger in copied))


def _copied(run: Run, goal: str) -> Ledger:
    """What of a run lies in a store, after as much of it was copied as could be."""
    from linnet.runs.mirroring import Mirroring, run_url

    show = _progress()
    url = run_url(goal, run.path.name)
    mirroring = Mirroring(run.path, url, lambda ledger: show(f"{len(ledger.missing)} files to go"))
    mirroring.copy()
    show("")
    return mirroring.ledger


def _print(run: Run, ledger: Ledger) -> None:
    if ledger.error:
        print(
            f"linnet: error: {words.plain(ledger.error)}; {len(ledger.missing)} files were not copied", file=sys.stderr
        )
    else:
        print(f"{paint(run.id, 'bold')}  {words.plain(ledger.url)}: {len(ledger.copied)} files, all of them there")


def fetched(url: str, runs: Path | None) -> Path:
    """A run of a mirror, brought into the folder of runs."""
    from linnet.runs.folder import require_writable
    from linnet.runs.mirror import fetch_run
    from linnet.train.process import is_first_rank

    root, show = require_writable(runs), _progress()
    if not is_first_rank():
        return _fetched_by_first_rank(root / url.rstrip("/").rpartition("/")[2])
    path = fetch_run(url, root, lambda _, done, total: show(f"fetching {done / max(1, total):.0%}"))
    show("")
    return path


def _fetched_by_first_rank(path: Path) -> Path:
    """Wait for the run that rank 0 fetches; where it cannot, it says so, and the launcher ends all ranks."""
    last = time.monotonic() + _LONGEST_FETCH
    while not path.exists() and time.monotonic() < last:
        time.sleep(0.5)
    return path


def _progress() -> Callable[[str], None]:
    """A line that is drawn over; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda text: draw_over(paint(text, "dim"), sys.stderr)
