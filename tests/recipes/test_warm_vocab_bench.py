"""The study of small vocabularies runs every arm and says what it measured, in bits per byte of one held-out text."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(("arms", "number"), [([], 8), (["--arms", "weighting"], 7)], ids=["compared", "weighting"])
def test_the_study_compares_every_arm(
    trained: Path,
    corpus: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arms: list[str],
    number: int,
) -> None:
    words = ["--donor", str(trained), "--corpus", str(corpus), "--cache", str(cache), "--out", str(tmp_path / "out")]
    words += ["--vocab", "600", "--budget", "3000", "--d-model", "48", "--n-layers", "1", "--ctx", "32", "--batch", "4"]
    words += ["--device", "cpu", "--seeds", "1", "--held-out", "0.1", "--evaluations", "2", *arms]
    record = tmp_path / "record.json"
    monkeypatch.setattr("sys.argv", ["warm_vocab.py", *words, "--json", str(record)])
    monkeypatch.syspath_prepend(str(BENCH))
    for _ in range(2):  # the second time nothing is trained
        with pytest.raises(SystemExit):
            runpy.run_path(str(BENCH / "warm_vocab.py"), run_name="__main__")
    for name in ("machine", "peers", "report", "sample"):
        sys.modules.pop(name, None)
    one, again = map(json.loads, record.read_text().splitlines())
    assert one["name"] == "warm_vocab" and one["rows"] == again["rows"]
    assert len(one["rows"]) == number
    bits = {row[1]: row[6] for row in one["rows"]}
    assert all(1 < value < 8 for value in bits.values()) and len(set(bits.values())) > 5
