"""Runs in a notebook: tables of metrics, what objects show of themselves, errors in one line."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

import linnet
from linnet.errors import LinnetError, UsageError
from linnet.runs.frame import wide_table

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&'\""


@pytest.fixture
def run(root: Path) -> linnet.Run:
    """A run with a loss at every step, an evaluation at some, and one step that was logged twice."""
    with linnet.start(run_id="first", config={"lr": 0.1}, tags=["base"]) as session:
        for step in range(1, 7):
            session.log(step, loss=1 / step, lr=0.1)
        session.log(6, loss=float("nan"))
        session.eval(3, "validation", loss=0.9)
        session.log(2, {"late": 5.0})
    return linnet.open("first")


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_has_a_row_a_step_and_a_column_a_metric(run: linnet.Run) -> None:
    steps, columns = wide_table(run.metrics())
    assert steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(columns) == ["loss", "lr", "validation/loss", "late"]
    assert not any(name.startswith("sys/") for name in columns)
    np.testing.assert_array_equal(columns["loss"], [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, np.nan])  # the last of two, NaN
    np.testing.assert_array_equal(columns["validation/loss"], [np.nan, np.nan, 0.9, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(columns["late"], [np.nan, 5, np.nan, np.nan, np.nan, np.nan])
    steps, columns = wide_table(run.metrics(), ["validation/loss"])
    assert (steps.tolist(), list(columns)) == ([3], ["validation/loss"])


def test_an_empty_run_is_an_empty_table(root: Path) -> None:
    with linnet.start(run_id="empty"):
        pass
    steps, columns = wide_table(linnet.open("empty").metrics())
    assert (len(steps), columns) == (0, {})


def test_a_run_becomes_a_data_frame(run: linnet.Run) -> None:
    pandas = pytest.importorskip("pandas")
    frame = run.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.index.name == "step"
    assert frame["loss"].loc[2] == 0.5 and frame["validation/loss"].count() == 1
    assert list(run.metrics().to_pandas(["lr", "loss"]).columns) == ["lr", "loss"]
    assert list(run.to_pandas("loss").columns) == ["loss"]


def test_without_pandas_one_line_says_what_to_install(run: linnet.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LinnetError, match=r"to_pandas needs the package pandas, .*: pip install 'linnet\[notebook\]'"):
        run.to_pandas()


# -- reprs ------------------------------------------------------------------------------------------------------------


def test_objects_say_what_they_are_in_a_line(run: linnet.Run, root: Path) -> None:
    assert repr(run) == "<Run first: completed, step 6, loss nan>"
    assert repr(run.metrics()).startswith("<Metrics: loss, lr, ")
    assert repr(run.metrics()["lr"]) == "<Series lr: 6 points, latest 0.1 at step 6>"
    assert repr(run.metrics()["loss"]) == "<Series loss: 7 points, latest nan at step 6, best 0.166667 at step 6>"
    with linnet.start(run_id="second") as session:
        session.log(4, loss=0.25)
        assert repr(session) == "<Session second: step 4, loss 0.25, open>"
    assert repr(session).endswith("ended>")


def test_a_disabled_run_makes_no_folder_to_show_itself(root: Path) -> None:
    session = linnet.start(mode="disabled")
    assert "nothing is kept" in session._repr_html_() and "disabled" in repr(session)
    assert session._folder._temporary is None


def _html(text: str) -> ElementTree.Element:
    """HTML that is well-formed, and harmless."""
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    return ElementTree.fromstring(text)


def test_a_notebook_shows_status_settings_and_the_curve(run: linnet.Run) -> None:
    shown = _html(run._repr_html_())
    texts = list(shown.itertext())
    assert {"first", "completed", "lr 0.1", "base"} <= set(texts)
    (line,) = shown.iter("polyline")
    assert len(line.attrib["points"].split()) >= 5
    rows = [[cell.text for cell in row] for row in _html(run.metrics()._repr_html_()).iter("tr")]
    assert rows[0] == ["metric", "last", "best", "at step", "points"]
    assert ["lr", "0.1", None, None, "6"] in rows
    assert "".join(_html(run.metrics()["lr"]._repr_html_()).itertext())


def test_rich_shows_them_too(run: linnet.Run) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None)
    for shown in (run, run.metrics(), run.metrics()["lr"], linnet.start(run_id="third")):
        console.print(shown)
    text = out.getvalue()
    assert re.search(r"Run\(\s*'first',\s*status=completed", text), text
    assert "lr=0.1" in text and "Session('third'" in text.replace("\n", "")


def test_foreign_text_steers_neither_terminal_nor_page(root: Path) -> None:
    with linnet.start(run_id="odd", name=HOSTILE, config={"note": HOSTILE}, tags=[HOSTILE]) as session:
        session.log(1, {HOSTILE: 1.0})
        session.log(2, {HOSTILE: 2.0})
    run = linnet.open("odd")
    metrics = run.metrics()
    for shown in (run, metrics, metrics[HOSTILE]):
        assert not set(repr(shown)) & set("\x1b\u202e\n")
        _html(shown._repr_html_())
        out = io.StringIO()
        Console(file=out, width=200, color_system=None).print(shown)
        assert not set(out.getvalue()) & set("\x1b\u202e")


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_an_error_in_its_one_line(run: linnet.Run) -> None:
    for call, line in (
        (lambda: linnet.open("frist"), "RunError: no run 'frist' in the folder "),
        (lambda: linnet.train("from-scratch", learning_rate=1), "UsageError: train: from-scratch has no flag"),
        (lambda: run.metrics()["lss"], "UnknownMetricError: no metric 'lss'; did you mean 'loss'?"),
    ):
        with pytest.raises(LinnetError) as caught:
            call()
        (shown,) = caught.value._render_traceback_()
        assert shown.startswith(line)
    assert UsageError("a\x1b[31m")._render_traceback_() == ["UsageError: a␛[31m"]


def test_a_metric_that_is_not_there_is_still_a_key_error(run: linnet.Run) -> None:
    with pytest.raises(KeyError):
        run.metrics()["lss"]
    assert "lss" not in run.metrics() and run.metrics().get("lss") is None


def test_what_a_callback_raises_is_shown_whole() -> None:
    from linnet.train.callback import CallbackError

    try:
        raise CallbackError("Mine.on_step raised ZeroDivisionError") from ZeroDivisionError("mine")
    except CallbackError as error:
        assert "ZeroDivisionError: mine" in "".join(error._render_traceback_())


def test_ipython_asks_for_that_line(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    cells = "import linnet\nlinnet.open('nothing')\n"
    words = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "--quick", "-c", cells]
    shown = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "IPYTHONDIR": str(tmp_path)}
    )
    text = shown.stdout + shown.stderr
    assert "RunError: no run 'nothing'" in text and "Traceback" not in text


def test_a_list_of_runs_is_a_line_each(root: Path) -> None:
    with linnet.start(root, run_id="a", config={"long": "x" * 500}, system_every=0) as run:
        run.log(3, loss=0.5)
    assert repr(linnet.list_runs(root)) == "[<RunSummary a: completed, step 3, loss 0.5>]"
