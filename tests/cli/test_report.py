"""`linnet report` as a person uses it: one file, from run folders on the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linnet.board.report import page
from linnet.cli.app import main
from tests.board.conftest import training, write
from tests.board.report.reports import TEMPLATE, OpenedReport


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_RUNS", raising=False)
    (tmp_path / "template.html").write_text(TEMPLATE)
    monkeypatch.setattr(page.Page.__init__, "__defaults__", (tmp_path / "template.html",))
    root = tmp_path / "runs"
    write(root / "a-1", training(), name="wide", experiment="width", created_at=1_780_000_000.0)
    write(root / "a-2", training(0.1), name="narrow", experiment="width", created_at=1_780_000_100.0)
    return root


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["report", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def opened(path: str = "report.html") -> OpenedReport:
    return OpenedReport(Path(path).read_bytes())


def test_without_words_the_newest_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("report.html  ") and out.endswith(" 1 run\n")
    assert [one["id"] for one in opened().contents["runs"]] == ["a-2"]
    assert opened().contents["title"] == "narrow"


def test_runs_in_the_order_in_which_they_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "narrow", "wide", "--out", "both.html")[0] == 0
    assert opened("both.html").contents["board"]["chosen"] == ["a-2", "a-1"]
    assert opened("both.html").contents["title"] == "width"


def test_patterns_filters_metrics_title_and_theme(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("a-*", "--where", "name:wide", "--keys", "loss,validation/*", "--title", "Mine", "--theme", "dark")
    code, _, err = run(capsys, *words)
    assert (code, err) == (0, "")
    contents = opened().contents
    assert (contents["title"], contents["theme"], contents["version"] != "") == ("Mine", "dark", True)
    (held,) = contents["runs"]
    assert sorted(series["key"] for series in held["series"]) == ["loss", "validation/loss"]


def test_where_columns_are_fewer_one_line_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).normal(size=(2_100, 150)).tolist()
    write(
        root / "many",
        ({"kind": "step", "t": s, "step": s} | {f"m{k}": x for k, x in enumerate(row)} for s, row in enumerate(values)),
    )
    code, _, err = run(capsys, "many")
    assert code == 0 and "columns instead of 2,000" in err and err.count("\n") == 1


def test_into_a_pipe(root: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", "wide", "--out", "-"]) == 0
    assert OpenedReport(capfdbinary.readouterr().out).contents["title"] == "wide"


def test_a_report_is_replaced_and_another_file_is_not(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "wide")[0] == 0
    assert run(capsys, "narrow")[0] == 0
    assert opened().contents["title"] == "narrow"
    Path("thesis.html").write_text("years of work")
    code, _, err = run(capsys, "wide", "--out", "thesis.html")
    assert code == 2 and "is no report; --force replaces it" in err
    assert Path("thesis.html").read_text() == "years of work"
    assert run(capsys, "wide", "--out", "thesis.html", "--force")[0] == 0
    assert opened("thesis.html").contents["title"] == "wide"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "report.pdf"], "expected a name that ends in .html"),
        (["--keys", "los"], "did you mean loss"),
        (["--keys", ","], "--keys names no metric"),
        (["--artifacts", "much"], "expected a size up to 500 MB"),
        (["--artifacts", "9GB"], "expected a size up to 500 MB"),
        (["--artifacts", f"{'9' * 400}GB"], "expected a size up to 500 MB"),
        (["nobody"], "nobody"),
        (["--where", "loss<0"], "fits"),
        (["--theme", "blue"], "theme"),
        (["--out", "nowhere/report.html"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(root: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    code, out, err = run(capsys, *words)
    assert code in (1, 2) and out == ""
    assert err.count("\n") == 1 and err.startswith("linnet: ") and message in err
    assert not Path("report.html").exists()


def test_without_a_built_page_one_line_says_what_to_do(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "template.html").unlink()
    code, _, err = run(capsys)
    assert code == 1 and err.count("\n") == 1 and "make web" in err


def test_it_needs_no_package_of_the_server(root: Path, tmp_path: Path) -> None:
    program = f"""
import sys
for name in ("starlette", "uvicorn", "watchfiles", "anyio", "torch"):
    sys.modules[name] = None
from pathlib import Path
from linnet.board.report import page
page.Page.__init__.__defaults__ = (Path({str(tmp_path / "template.html")!r}),)
from linnet.cli.app import main
sys.exit(main(["report", "wide", "narrow"]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(opened().contents["runs"]) == 2
