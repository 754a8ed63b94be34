"""What aim keeps of a run, put there many values at a time: the same keys and values as `Run.track` leaves.

`track` writes four keys a value, each by itself, after deleting the range that begins with it: five metrics of a
million steps take longer than an hour. Here they go into batches of aim's own container, in its own encoding. What it
keeps of a metric as a whole (first, last, least and largest value) is written by its own code, in the rows where that
changes. `compared` proves it: both ways leave the same, key by key, and aim's chart gets the same numbers.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[int, dict[str, float]]]

_BEGAN = 1780185600.0  # seconds: when the first step was
_AT_ONCE = 20_000  # values in a batch
COMPARED_STEPS = 2_000
_CHART_POINTS = 200  # for which its page asks


def fill(folder: str, rows: Rows, steps: int) -> str:
    """A run of `rows`, whose last step is `steps`, in batches; what the run is called."""
    run = _start(folder)
    batch = _Batch(run)
    bounds: dict[str, tuple[float, float]] = {}
    for step, row in rows:
        for name, value in row.items():
            low, high = bounds.get(name, (float("inf"), float("-inf")))
            if step == steps or not low <= value <= high:
                _track(run, step, name, value)
                bounds[name] = min(low, value), max(high, value)
            else:
                batch.put(step, name, value)
    batch.commit()
    return _end(run)


def fill_by_tracking(folder: str, rows: Rows) -> str:
    """The same by the function that `Run.track` calls; what the run is called."""
    run = _start(folder)
    for step, row in rows:
        for name, value in row.items():
            _track(run, step, name, value)
    return _end(run)


def compared(rows: Rows) -> dict[str, Any]:
    """How many keys either way leaves for some rows, and how many differ in them or in what the chart gets."""
    listed = list(rows)
    with tempfile.TemporaryDirectory() as batched, tempfile.TemporaryDirectory() as tracked:
        runs = (
            (batched, fill(batched, iter(listed), len(listed))),
            (tracked, fill_by_tracking(tracked, iter(listed))),
        )
        (kept, chart), (kept_by_tracking, chart_by_tracking) = (_kept(*run) for run in runs)
    assert len(chart) == len(listed[0][1]), "its chart gets nothing"
    differing = sum(kept.get(key) != kept_by_tracking.get(key) for key in kept.keys() | kept_by_tracking.keys())
    return {"steps": len(listed), "keys": len(kept_by_tracking), "differing": differing + (chart != chart_by_tracking)}


class _Batch:
    """Values on their way into aim's container."""

    def __init__(self, run: Any) -> None:
        from aim.storage import encoding
        from aim.storage.context import Context

        self._encode, self._encode_path = encoding.encode, encoding.encode_path
        self._run, self._context = run, Context({}).idx
        self._container = run.series_run_trees[2].container
        self._batch, self._values = self._container.batch(), 0

    def put(self, step: int, name: str, value: float) -> None:
        """What `RunTracker._add_value` writes of a value."""
        metric = self._run._tracker.sequence_infos[self._context, name]
        key = self._encode_path((metric.step_hash_fn(step),))
        for view, content in (
            (metric.val_view, value),
            (metric.epoch_view, None),
            (metric.time_view, _time_of(step)),
            (metric.step_view, step),
        ):
            view.tree.container.set(key, self._encode(content), store_batch=self._batch)
        self._values += 1
        if self._values >= _AT_ONCE:
            self.commit()

    def commit(self) -> None:
        self._container.commit(self._batch)
        self._batch, self._values = self._container.batch(), 0


def _start(folder: str) -> Any:
    from aim import Run

    return Run(repo=folder, system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)


def _track(run: Any, step: int, name: str, value: float) -> None:
    run._tracker._track(value, _time_of(step), name, step)


def _time_of(step: int) -> float:
    return _BEGAN + step / 1000


def _end(run: Any) -> str:
    """Close the run and enter it in the index from which aim reads: `aim up` does so when it finds a run."""
    from aim.sdk.index_manager import RepoIndexManager

    name, repo = str(run.hash), run.repo
    run.close()
    RepoIndexManager.get_index_manager(repo).index(name)
    return name


def _kept(folder: str, run_hash: str) -> tuple[dict[bytes, bytes], list[dict[str, Any]]]:
    """All that aim keeps of a run, less its name and when it ended; and what its server sends to the chart."""
    from aim import Repo, Run
    from aim.web.api.runs.pydantic_models import TraceBase
    from aim.web.api.runs.utils import collect_requested_metric_traces

    repo = Repo(folder)
    kept = {}
    for name in ("meta", "seqs"):
        container = repo.request_container(name, run_hash, read_only=True)
        for key, value in container.items():
            if b"end_time" not in key:
                kept[name.encode() + b" " + key.replace(run_hash.encode(), b"RUN")] = value
    run = Run(run_hash, repo=folder, read_only=True)
    metrics = [TraceBase(name=metric.name, context={}) for metric in run.metrics()]
    return kept, sorted(collect_requested_metric_traces(run, metrics, _CHART_POINTS), key=lambda chart: chart["name"])
