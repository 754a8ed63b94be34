"""`linnet plot METRIC --against SETTING`: final metrics of many runs against what was set."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from linnet.cli.app import main
from tests.board.conftest import END, steps, write

SVG = "{http://www.w3.org/2000/svg}"


def trained(root: Path, name: str, value: float, created: float = 0.0, **config: Any) -> Path:
    """A run of ten steps that ends at `value`; its best is 1 below, at step 5."""
    losses = {5: value - 1, 10: value}
    events = steps(10, loss=lambda step: losses.get(step, value + 1))
    events.append({"kind": "eval", "t": 10.0, "step": 10, "name": "validation", "loss": value + 0.5})
    return write(root / name, [*events, END], config=config, created_at=1_780_000_000.0 + created, experiment="sweep")


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three rates with three seeds each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_RUNS", raising=False)
    root = tmp_path / "runs"
    for rate, value in ((1e-4, 4.0), (1e-3, 2.0), (1e-2, 3.0)):
        for seed in (1, 2, 3):
            trained(root, f"lr{rate:g}-{seed}", value + (seed - 2) * 0.1, lr=rate, seed=seed, optimizer="adamw")
    return root


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plot", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def svg(path: str) -> tuple[set[str], list[str]]:
    """Its texts, and the titles of its markers and lines."""
    tree = ElementTree.parse(path)
    texts = {"".join(element.itertext()) for element in tree.iter(f"{SVG}text")}
    return texts, ["".join(title.itertext()) for title in tree.getroot().iter(f"{SVG}title")]


def test_seeds_are_one_point_with_mean_and_spread(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "loss", "--against", "lr")
    assert (code, err) == (0, "")
    assert out.startswith("sweep\nloss against lr\n")
    assert "  0.001  2 ± 0.1  3 runs" in out and " 0.0001  4 ± 0.1  3 runs" in out
    assert out.count("●") == 3
    assert max(map(len, out.splitlines())) <= 100


def test_decades_are_drawn_on_a_log_axis(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def columns(*flags: str) -> list[int]:
        _, out, _ = run(capsys, "loss", "--against", "lr", *flags)
        return sorted(line.index("●") for line in out.splitlines() if "●" in line)

    first, second, third = columns()
    assert abs((second - first) - (third - second)) <= 2
    first, second, third = columns("--no-log-x")
    assert third - second > 5 * (second - first)


@pytest.mark.parametrize(("take", "value"), [("best", "1"), ("last", "2"), ("5", "1"), ("4", "3"), ("max", "3")])
def test_the_value_that_is_taken(sweep: Path, capsys: pytest.CaptureFixture[str], take: str, value: str) -> None:
    assert f"  0.001  {value} ± 0.1  3 runs" in run(capsys, "loss", "--against", "lr", "--take", take)[1]


def test_a_column_may_say_itself_what_is_taken(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "best(loss),loss@4", "--against", "lr")[1]
    assert "A best(loss)" in out and "B loss@4" in out


def test_as_svg_and_png(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        assert run(capsys, "loss,validation/loss", "--against", "lr", "--out", name, "--theme", "dark")[0] == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    texts, titles = svg("a.svg")
    assert {"loss", "validation/loss", "lr", "0.0001", "0.001", "0.01"} <= texts
    assert "3 runs: 2 ± 0.1" in titles and "lr0.001-1: 1.9" in titles


def test_without_a_metric_the_losses(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "loss, validation/loss against lr" in run(capsys, "--against", "lr")[1]


def test_text_settings_are_categories(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        trained(sweep, f"muon-{seed}", 1.5 + seed / 10, lr=1e-3, seed=seed, optimizer="muon")
    code, out, _ = run(capsys, "loss", "--against", "optimizer", "--where", "lr=0.001")
    assert code == 0 and " adamw  2 ± 0.1  3 runs" in out and "  muon  1.65 ± 0.071  2 runs" in out
    assert run(capsys, "loss", "--against", "optimizer", "--where", "lr=0.001", "--out", "x.svg")[0] == 0
    assert {"adamw", "muon", "optimizer"} <= svg("x.svg")[0]


def test_runs_that_differ_otherwise_are_no_seeds(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(sweep, "big", 1.0, lr=1e-3, seed=1, optimizer="adamw", batch=64)
    out = run(capsys, "loss", "--against", "lr")[1]
    assert "  0.001  2 ± 0.1  3 runs" in out and "  0.001  1  big" in out


def test_a_line_for_each_value_of_another_setting(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rate in (1e-4, 1e-3, 1e-2):
        trained(sweep, f"muon-{rate:g}", 1.0 + rate, lr=rate, seed=1, optimizer="muon")
    out = run(capsys, "loss", "--against", "lr", "--by", "optimizer")[1]
    assert "A optimizer adamw" in out and "B optimizer muon" in out
    assert run(capsys, "loss", "--against", "lr", "--by", "optimizer", "--out", "x.svg")[0] == 0
    assert {"optimizer adamw", "optimizer muon"} <= svg("x.svg")[0]


def test_what_is_missing_or_not_finite_is_said_and_marked(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(sweep, "none", 2.0, seed=1)
    write(sweep / "diverged", [*steps(9, loss=lambda s: math.nan), END], config={"lr": 0.1}, experiment="sweep")
    code, out, err = run(capsys, "loss", "--against", "lr")
    assert code == 0 and "×" in out
    assert "1 run is left out: without lr" in err and "1 value is not finite: × at the upper edge" in err
    assert run(capsys, "loss", "--against", "lr", "--out", "x.svg")[0] == 0
    assert "diverged: no finite value" in svg("x.svg")[1]


def test_hostile_settings_and_names(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(sweep, "h1", 2.0, optimizer="\x1b[31m<b>&\ufffe" + "y" * 500, lr=1e-3)
    trained(sweep, "h2", 2.0, optimizer=["a", {"b": 1}], lr=1e-3)
    trained(sweep, "h3", 2.0, optimizer=True, lr=1e308)
    trained(sweep, "h4", 2.0, optimizer=7, lr=-1)
    for flags in (["--against", "optimizer"], ["--against", "lr"], ["--against", "lr", "--by", "optimizer"]):
        code, out, _ = run(capsys, "loss", *flags)
        assert code == 0 and "\x1b" not in out and max(map(len, out.splitlines())) <= 110
        assert run(capsys, "loss", *flags, "--out", "x.svg")[0] == 0
        ElementTree.parse("x.svg")


def test_one_run_and_many(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "0.001  1.9  lr0.001-1" in run(capsys, "loss", "lr0.001-1", "--against", "lr")[1]
    for number in range(40):
        trained(sweep, f"m{number}", 2.0 + number / 40, lr=1e-3 * (1 + number), seed=1, optimizer="adamw")
    assert run(capsys, "loss", "--against", "lr", "--out", "x.svg")[0] == 0
    assert "m7: 2.175" in svg("x.svg")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss", "--against", "ler"], "no run here has a setting or metric 'ler'; did you mean lr?"),
        (["losss", "--against", "lr"], "no run here has a setting or metric 'losss'; did you mean loss?"),
        (["loss", "--against", "lr", "--take", "mean"], "--take 'mean': expected last, best"),
        (["loss", "--against", "lr", "--take", "9999"], "nothing to draw of 9 runs: 9 without loss@9999"),
        (["loss", "--against", "lr", "--where", "lr>1"], "no run fits these filters"),
        (["loss", "--by", "lr"], "--by goes with --against KEY"),
        (["loss", "--take", "best"], "--take goes with --against KEY"),
        ([",", "--against", "lr"], "no metric is named"),
    ],
)
def test_mistakes_are_explained_in_a_line(
    sweep: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code in (1, 2) and out == "" and message in err and err.count("\n") == 1


def test_a_line_leads_through_few_points_only(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def braille(out: str) -> bool:
        return any(0x2800 < ord(character) <= 0x28FF for character in out)

    assert braille(run(capsys, "loss", "--against", "lr")[1])
    for number in range(30):
        trained(sweep, f"random-{number}", 2.0 + number % 7, lr=1e-3 * (1.5 + number), seed=1, optimizer="adamw")
    assert not braille(run(capsys, "loss", "--against", "lr")[1])
