"""`linnet report`: the board's page with the data of some runs, as one file."""

from __future__ import annotations

import fnmatch
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from linnet.board.words import number, plain, size
from linnet.cli.options import EVERY_RUN, RunFilters, RunNames, RunsFolder, choose_runs, open_store, require_metrics
from linnet.cli.streams import complain
from linnet.errors import UsageError
from linnet.files import write_file
from linnet.recipes.registry import default_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linnet.board.report.run_part import LeftOut
    from linnet.runs import Run

_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(|B|kB|MB|GB)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_MOST_FILES = 500 * 10**6  # bytes; a page with more opens in no browser
_MOST_RUNS = 1_000
_NAMED = 4  # parts that are left out


def report(
    *run: RunNames,
    out: Annotated[str, Parameter(allow_leading_hyphen=True)] = "report.html",
    keys: str | None = None,
    title: str | None = None,
    theme: Literal["light", "dark"] | None = None,
    artifacts: str | None = None,
    force: bool = False,
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
) -> int:
    """Write runs into one HTML file that opens anywhere, without a server.

    Args:
        out: The file to write, or - for a pipe (report.html).
        keys: Metrics, or patterns, with commas between; by default all.
        title: Of the page; by default the run's name, of several their experiment.
        theme: light or dark to begin with; by default as the reader's system has it.
        artifacts: How many bytes of logged images, tables and files to take in, as in 500kB or 20MB; by default what
            fits into a file of 2 MB. The rest is named as left out.
        force: Replace a file that is no report.
    """
    from linnet.board.report.page import Page, is_report
    from linnet.board.report.report import POINTS, ReportQuestion, make_report

    _check_name(out)
    room = None if artifacts is None else _bytes(artifacts)
    page = Page()
    target = Path(out)
    if out != "-" and target.exists() and not force and not is_report(target):
        raise UsageError(f"--out {out}: this file is there and is no report; --force replaces it")
    store = open_store(runs)
    chosen = choose_runs(store, run if run or filters else ("latest",), filters)
    if len(chosen) > _MOST_RUNS:
        raise UsageError(f"{number(len(chosen))} runs are too many for one page; choose up to {_MOST_RUNS:,}")
    question = ReportQuestion(
        root=store.root,
        folders=tuple(chosen_run.path for chosen_run in chosen),
        title=_title(chosen) if title is None else title,
        theme=theme,
        keys=None if keys is None else _metric_names(keys, chosen),
        files=room,
        defaults=_defaults,
    )
    written = make_report(question, page)
    if out == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(written.content)
    else:
        write_file(out, written.content, sync=False)
        print(f"{plain(out)}  {size(len(written.content))}, {written.runs} {'run' if written.runs == 1 else 'runs'}")
    if written.points < POINTS:
        coarse = f"long series have {written.points:,} columns instead of {POINTS:,}, so that the file stays small"
        complain(f"{coarse}; --keys chooses metrics")
    _print_left_out([part for part in written.left_out if not part.chosen])
    return 0


def _check_name(out: str) -> None:
    if out != "-" and Path(out).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {out}: expected a name that ends in .html, or - for a pipe")


def _bytes(text: str) -> int:
    parts = _SIZE.fullmatch(text.strip())
    count = int(float(parts[1]) * _UNITS[parts[2].lower()]) if parts else -1
    if not 0 <= count <= _MOST_FILES:
        raise UsageError(f"--artifacts {text!r}: expected a size up to {size(_MOST_FILES)}, as in 500kB, 20MB or 0")
    return count


def _title(chosen: Sequence[Run]) -> str:
    if len(chosen) == 1:
        return chosen[0].manifest.name or chosen[0].id
    experiments = {run.manifest.experiment for run in chosen}
    shared = experiments.pop() if len(experiments) == 1 else None
    return shared or f"{len(chosen)} runs"


def _metric_names(text: str, chosen: Sequence[Run]) -> frozenset[str]:
    """The metrics that are asked for, of any of the runs."""
    known = list(dict.fromkeys(name for run in chosen for name in run.metrics().names()))
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("--keys names no metric: expected some with commas between, as in loss,validation/*")
    names: set[str] = set()
    for word in words:
        matches = [word] if word in known else fnmatch.filter(known, word)
        if not matches:
            require_metrics([word], known, f"run {chosen[0].id} has" if len(chosen) == 1 else "these runs have")
        names |= set(matches)
    return frozenset(names)


def _defaults(recipe: str) -> dict[str, object]:
    """What a recipe sets when nothing is asked for; nothing where what it trains with is not installed."""
    try:
        return default_settings(recipe)
    except ModuleNotFoundError:
        return {}


def _print_left_out(left_out: Sequence[LeftOut]) -> None:
    """What did not fit; not among the output, which may be the report."""
    for part in left_out[:_NAMED]:
        whose = "" if part.run is None else f"{plain(part.run)}: "
        complain(f"left out: {whose}{plain(part.part)}{'' if part.bytes is None else f', {size(part.bytes)}'}")
    if len(left_out) > _NAMED:
        unnamed = left_out[_NAMED:]
        parts = f"{len(unnamed)} more parts, {size(sum(part.bytes or 0 for part in unnamed))}"
        complain(f"left out: {parts}; the page names all. --artifacts 20MB takes more in")
