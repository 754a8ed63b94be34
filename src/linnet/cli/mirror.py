"""`linnet mirror`: runs copied to a store; and a run brought back from one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunName, RunsFolder
from linnet.cli.printing import paint, print_json
from linnet.cli.streams import draw_over
from linnet.errors import UsageError

_LONGEST_FETCH = 3600.0  # seconds that other ranks wait for the first


def mirror(
    run: RunName = "latest",
    url: Annotated[str | None, Parameter(help="Where to: s3://bucket/runs. By default the run's own --mirror.")] = None,
    /,
    *,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Copy a run to a store: what is not there yet, or has changed since; exit code 1 where that fails."""
    from linnet.runs import RunStore
    from linnet.runs.mirror import check_mirror
    from linnet.runs.mirroring import Mirroring, run_url

    source = RunStore(runs).find(run)
    goal = url or source.manifest.config.get("mirror")
    if not isinstance(goal, str) or not goal:
        raise UsageError(f"run {source.id} has no mirror of its own: say where, as in s3://bucket/runs")
    check_mirror(goal)
    show = _progress()
    mirroring = Mirroring(
        source.path, run_url(goal, source.path.name), lambda ledger: show(f"{len(ledger.missing)} files to go")
    )
    mirroring.copy()
    show("")
    ledger = mirroring.ledger
    if json:
        print_json({"run": source.id, "url": ledger.url, "missing": ledger.missing, "error": ledger.error or None})
    elif ledger.error:
        print(
            f"linnet: error: {words.plain(ledger.error)}; {len(ledger.missing)} files were not copied", file=sys.stderr
        )
    else:
        print(f"{paint(source.id, 'bold')}  {words.plain(ledger.url)}: {len(ledger.copied)} files, all of them there")
    return int(bool(ledger.error))


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
