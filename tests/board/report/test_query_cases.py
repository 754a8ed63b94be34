"""A filter means the same to the server and in a report: both are tried with the cases of one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet.errors import UsageError
from linnet.runs.columns import ALIASES
from linnet.runs.query import Query

FILE = Path(__file__).parents[3] / "web" / "src" / "data" / "report" / "query-cases.json"
CASES: dict[str, Any] = json.loads(FILE.read_text())


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["where"])
def test_a_filter_means_to_the_server_what_it_means_in_a_report(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if case["fits"] is None:
        with pytest.raises(UsageError):
            Query(case["where"], words=True)
        return
    query = Query(case["where"], words=True)
    for run, fits in zip(CASES["runs"], case["fits"], strict=True):
        assert query.fits(lambda column, run=run: run.get(ALIASES.get(column.text, column.text))) is fits
