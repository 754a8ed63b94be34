"""Metrics as one table: a row a step, a column a metric. For pandas, which is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.errors import LinnetError
from linnet.runs.series import Floats, Integers

if TYPE_CHECKING:
    from pandas import DataFrame

    from linnet.runs.metrics import Metrics

_MACHINE = "sys/"


def wide_table(metrics: Metrics, names: Iterable[str] | None = None) -> tuple[Integers, dict[str, Floats]]:
    """The steps, rising, and for each metric its value at every step: NaN where it has none, the last of several.

    `names`: the metrics wanted, in this order; without, all but the machine's figures.
    """
    if names is None:
        names = [name for name in metrics.names() if not name.startswith(_MACHINE)]
    series = {name: metrics[name] for name in ([names] if isinstance(names, str) else names)}
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(metric.step for metric in series.values())]))
    columns: dict[str, Floats] = {}
    for name, metric in series.items():
        column = np.full(len(steps), np.nan)
        column[np.searchsorted(steps, metric.step)] = metric.value  # of equal steps the later row is written last
        columns[name] = column
    return steps, columns


def to_pandas(metrics: Metrics, names: Iterable[str] | None = None) -> DataFrame:
    """The same as a DataFrame, whose index is `step`."""
    pandas = require_pandas()
    steps, columns = wide_table(metrics, names)
    frame: DataFrame = pandas.DataFrame(columns, index=pandas.Index(steps, name="step"))
    return frame


def require_pandas() -> Any:
    """The package, which is loaded when it is asked for."""
    try:
        import pandas
    except ImportError:
        raise LinnetError(
            "to_pandas needs the package pandas, which is not installed: pip install 'linnet[notebook]'"
        ) from None
    return pandas
