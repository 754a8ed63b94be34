"""`Table`: rows under named columns, from whatever holds such, and as a JSON file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from linnet.runs.encode import Json, encode, jsonable, jsonable_record, safe_text
from linnet.runs.events import restore_nonfinite
from linnet.runs.media.capture import Capture, MediaFile

MOST_ROWS = 10_000
MOST_CELLS = 150_000  # one JSON object has room for a few more
_MOST_COLUMNS = 1_000
_PLAIN = (str, int, float, bool, type(None))


class Table(msgspec.Struct):
    """A table that was logged: `columns` are names, `rows` lists of cells as JSON has them."""

    columns: list[str]
    rows: list[list[Any]]

    def to_csv(self) -> str:
        """The same as CSV, with a line of names."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def capture_table(data: Any = None, columns: Sequence[str] | None = None, rows: Iterable[Any] | None = None) -> Capture:
    """Copy a table: `columns` and `rows`; or `data`, a list of mappings or of rows, a mapping of columns, a 2-D array,
    a data frame of pandas or polars, or a table of pyarrow."""
    if data is not None and rows is not None:
        raise TypeError("expected `data` or `rows`, found both")
    names, lines = _rows_of(data if rows is None else rows)
    if columns is not None:
        names = [safe_text(name) for name in columns]
    copied = list(islice(lines, MOST_ROWS + 1))
    width = max([len(names), *map(len, copied)]) if copied else len(names)
    names += [str(number) for number in range(len(names), width)]
    if width > _MOST_COLUMNS:
        raise ValueError(f"expected at most {_MOST_COLUMNS} columns, found {width}")
    kept = min(MOST_ROWS, MOST_CELLS // max(1, width))
    cut = len(copied) > kept
    cells = [[_cell(value) for value in row] + [None] * (width - len(row)) for row in copied[:kept]]
    n_bytes = 16 * width * len(cells) + sum(len(value) for row in cells for value in row if isinstance(value, str))
    return Capture(n_bytes, lambda: _encode(names, cells, cut))


def _encode(columns: list[str], rows: list[list[Any]], cut: bool) -> MediaFile:
    record = jsonable_record({"columns": columns, "rows": rows})
    fields = {"rows": len(rows), "columns": len(columns), **({"cut": True} if cut else {})}
    return MediaFile(encode(record) + b"\n", ".json", "application/json", fields)


def decode_table(content: bytes) -> Table:
    """A table from its file; ValueError when it is none."""
    record = msgspec.json.decode(content)
    if not isinstance(record, dict):
        raise ValueError("no table")
    restore_nonfinite(record)
    return msgspec.convert({name: record.get(name) for name in ("columns", "rows")}, Table)


def decode_csv(content: bytes) -> Table:
    """A table from a CSV file whose first line has the names; every cell is a text."""
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig", "replace"), newline=""))
        columns, *rows = islice(lines, MOST_ROWS + 1)
    except (csv.Error, ValueError):
        raise ValueError("no CSV file with a line of names") from None
    return Table(columns, [list(row) for row in rows])


def _cell(value: Any) -> Json:
    return value if type(value) in _PLAIN else jsonable(value)[0]


def _rows_of(data: Any) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """The names of columns, where they are known, and rows, which may be many."""
    if hasattr(data, "columns") and callable(getattr(data, "itertuples", None)):  # pandas
        return [safe_text(name) for name in data.columns], data.itertuples(index=False, name=None)
    if callable(getattr(data, "iter_rows", None)):  # polars
        return [safe_text(name) for name in data.columns], data.iter_rows()
    if callable(getattr(data, "to_pydict", None)):  # pyarrow
        data = data.slice(0, MOST_ROWS + 1).to_pydict() if hasattr(data, "slice") else data.to_pydict()
    if names := getattr(getattr(data, "dtype", None), "names", None):  # numpy's records
        return list(names), (row.tolist() for row in data.reshape(-1)[: MOST_ROWS + 1])
    if callable(getattr(data, "tolist", None)):
        if len(getattr(data, "shape", ())) not in (1, 2):
            raise ValueError(f"expected an array of 1 or 2 dimensions, found the shape {getattr(data, 'shape', ())}")
        data = data[: MOST_ROWS + 1].tolist()
    if isinstance(data, Mapping):
        return _rows_of_columns(data)
    if data is None or isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise TypeError(f"expected rows, found {type(data).__name__}")
    lines = list(islice(data, MOST_ROWS + 1))
    if lines and all(isinstance(line, Mapping) for line in lines):
        names = list(dict.fromkeys(name for line in lines for name in line))
        return [safe_text(name) for name in names], ([line.get(name) for name in names] for line in lines)
    return [], [list(line) if isinstance(line, list | tuple) else [line] for line in lines]


def _rows_of_columns(columns: Mapping[Any, Any]) -> tuple[list[str], list[list[Any]]]:
    """A mapping of names to columns; single values where all of them are such: one row."""
    names = [safe_text(name) for name in columns]
    values = [column.tolist() if hasattr(column, "tolist") else column for column in columns.values()]
    if not any(isinstance(value, list | tuple) for value in values):
        return names, [values]
    lists = [value if isinstance(value, list | tuple) else [value] for value in values]
    length = min(MOST_ROWS + 1, max(map(len, lists), default=0))
    return names, [[column[at] if at < len(column) else None for column in lists] for at in range(length)]
