"""The figures of a run's metrics, by the shortest way that its folder allows.

What its writer left when it ended; else, of a stream that was never opened, the few metrics that are asked for; else
its whole curves. Each says the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from linnet.files import is_file, open_regular
from linnet.runs.figure_decoder import OWN_ROWS, figure_decoder
from linnet.runs.figures import FigureRequest, MetricFigures
from linnet.runs.folder import CACHE, EVENTS
from linnet.runs.inspection_lines import without_inspection
from linnet.runs.lines import BOM, LineReader, UnfitLinesError
from linnet.runs.metric_names import goal_of
from linnet.runs.points_cache import kept_figures

_SHORT = 8 << 20  # bytes of a stream that is read at once


def read_figures(folder: str, request: FigureRequest, *, foreign: bool = False) -> dict[str, MetricFigures]:
    """The figures of the wanted metrics that the run has. `foreign`: another writer's events, in its own words."""
    if not foreign and (figures := kept_figures(folder, request)) is not None:
        return figures
    events = Path(folder) / EVENTS
    if not foreign and not any(name.startswith(OWN_ROWS) for name in request) and not _has_cache(folder):
        try:
            return _scan(events, request)
        except UnfitLinesError:
            pass
    return _figures_of_metrics(folder, request)


def _has_cache(folder: str) -> bool:
    return is_file(f"{folder}/{CACHE}/metrics")


def _figures_of_metrics(folder: str, request: FigureRequest) -> dict[str, MetricFigures]:
    from linnet.runs.metrics import Metrics
    from linnet.runs.summary import load_manifest

    manifest = load_manifest(Path(folder))
    metrics = Metrics(Path(folder) / EVENTS, origin=manifest.origin if manifest is not None else 0.0)
    figures = {}
    for name, steps in request.items():
        series = metrics.get(name)
        if series is None or not len(series):
            continue
        figures[name] = MetricFigures(
            count=len(series),
            last=series.latest,
            low=series.best_by("min"),
            high=series.best_by("max"),
            first=(int(series.step[0]), float(series.value[0])),
            goal=goal_of(name, metrics.goals) if name in metrics.goals else None,
        )
        for wanted_step in steps:
            before = (series.step <= wanted_step).nonzero()[0]
            point = None
            if len(before):
                highest = series.step[before].max()
                at = before[(series.step[before] == highest).nonzero()[0][-1]]
                point = int(series.step[at]), float(series.value[at])
            figures[name].at[wanted_step] = point
    return figures


def _scan(events: Path, request: FigureRequest) -> dict[str, MetricFigures]:
    figures = {name: MetricFigures(at=dict.fromkeys(steps)) for name, steps in request.items()}
    decoder = figure_decoder(tuple(request))
    for block in _blocks(events):
        decoder.take(without_inspection(block), figures)
    return {name: figure for name, figure in figures.items() if figure.count}


def _blocks(events: Path) -> Iterator[bytes]:
    """Whole lines of a stream; a short one at once."""
    try:
        with os.fdopen(open_regular(events), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size) if size <= _SHORT else b""
    except OSError:
        return
    if size <= _SHORT:
        if block := content[: content.rfind(b"\n") + 1].removeprefix(BOM):
            yield block
        return
    reader = LineReader(events)
    while block := reader.read_block():
        if reader.generation:
            raise UnfitLinesError  # replaced while it was read
        yield block
    reader.close()
