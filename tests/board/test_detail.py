"""One metric on the whole screen: its numbers, its axes, and the stretch that is looked at."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from linnet.board.downsampling import DownsamplingLimits
from linnet.board.terminal.actions import act
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart, screen
from tests.board.conftest import append, board_of, look, read, steps, styles, training, write

FEW_BUCKETS = DownsamplingLimits(exact_cells=100, least_buckets=64, bucket_cells=64)


def test_detail_has_exact_numbers(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    text = look(board)
    losses = {e["step"]: e["loss"] for e in training() if e["kind"] == "step"}
    step, best = min(losses.items(), key=lambda pair: pair[1])
    assert f"best {best:.6g} @ {step}" in text
    assert f"last {losses[400]:.6g} @ 400" in text
    assert "points 400" in text
    act(board, "left")
    act(board, "left")
    act(board, "first")
    assert f"step 1  at 1.0 s  {losses[1]!r}" in look(board)
    act(board, "last")
    assert f"step 400  at 6 m 40 s  {losses[400]!r}" in look(board)


@pytest.mark.parametrize("axis", ["step", "tokens", "wall time"])
def test_the_best_point_is_marked_in_the_detail(root: Path, axis: str) -> None:
    write(root / "a", steps(40, loss=lambda step: 1 + abs(step - 30) / 10, tokens=lambda step: 8))
    board = board_of(root, "a")
    assert "◆" not in look(board)
    board.open_metric("loss")
    while board.axis != axis:
        act(board, "axis")
    lines = look(board, 100, 30).splitlines()
    marked = [(y, line.index("◆")) for y, line in enumerate(lines) if "◆" in line]
    (row, column), (below, legend) = marked
    left, width = board.zoom.columns
    assert not any(c > "⠀" for c in "".join(lines[row + 1 : below]) if c <= "⣿")  # it is the lowest of all
    assert column == pytest.approx(left + width * 29 / 39, abs=1)
    assert lines[below][legend:].startswith("◆ best 1 @ 30")


def test_each_of_several_runs_has_its_best_point_marked_in_its_colour(root: Path) -> None:
    for name, best in (("a", 10), ("b", 30)):
        write(root / name, steps(40, loss=lambda step, best=best: best + abs(step - best)))
    board = board_of(root, "a", "b")
    board.open_metric("loss")
    body = screen.body(board, 100, 26)
    assert {style for line in body for text, style in line if "◆" in text and style.startswith("run")} == {
        "run0",
        "run1",
    }


def test_a_best_point_out_of_sight_is_not_marked(root: Path) -> None:
    write(root / "a", steps(1000, loss=lambda step: abs(step - 10), rate=float))
    board = board_of(root, "a")
    board.open_metric("loss")
    assert look(board).count("◆") == 2
    act(board, "log_scale")
    assert look(board).count("◆") == 1  # the best is 0
    act(board, "log_scale")
    act(board, "zoom_in")
    assert look(board).count("◆") == 1
    board.open_metric("rate")
    assert "◆" not in look(board)  # no way is better


def test_the_best_point_of_a_folded_run_is_marked(root: Path) -> None:
    write(root / "a", steps(5000, loss=lambda step: 1 + abs(step - 2500)))
    board = board_of(root, "a", limits=FEW_BUCKETS)
    board.open_metric("loss")
    chart_line = next(line for line in look(board, 100, 30).splitlines() if "◆" in line)
    left, width = board.zoom.columns
    assert chart_line.index("◆") == pytest.approx(left + width / 2, abs=2)


def test_smoothing_goes_round_its_four_levels(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    levels, said = ["off", "light 0.5", "medium 0.3", "heavy 0.15"], []
    for _ in range(5):
        text = look(board)
        said.append(next(word for word in levels if f"smoothing {word}" in text))
        act(board, "smoothing")
    assert said == [*levels, "off"]


def test_the_raw_line_stays_behind_the_smoothed_one(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    act(board, "zoom_in")
    act(board, "zoom_in")
    assert "run0.raw" not in styles(screen.body(board, 120, 36))
    act(board, "smoothing")
    assert {"run0", "run0.raw"} <= styles(screen.body(board, 120, 36))


@pytest.mark.parametrize(
    ("axis", "shown"),
    [("step", "300"), ("tokens", "300k"), ("epoch", "1.5"), ("wall time", "20:33:20"), ("relative time", "6 m 40 s")],
)
def test_every_x_axis(trained: Path, axis: str, shown: str) -> None:
    time.tzset()
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    while board.axis != axis:
        act(board, "axis")
    text = look(board)
    assert shown in text
    assert f"x {axis}" in text


def axes_of(board: Board) -> list[str]:
    """What the key goes through until it begins again."""
    seen = [board.axis]
    act(board, "axis")
    while board.axis != seen[0]:
        seen.append(board.axis)
        act(board, "axis")
    return seen


def test_only_axes_that_the_runs_have_are_gone_through(root: Path, trained: Path) -> None:
    write(root / "bare", steps(50))
    write(root / "counted", steps(50, loss=float, tokens=lambda step: 8))
    assert axes_of(board_of(root, "bare")) == ["step", "wall time", "relative time"]
    assert axes_of(board_of(root, "counted")) == ["step", "tokens", "wall time", "relative time"]
    assert axes_of(board_of(root, trained.name)) == ["step", "tokens", "epoch", "wall time", "relative time"]
    assert axes_of(board_of(root, trained.name, "counted")) == ["step", "tokens", "wall time", "relative time"]


def test_a_run_without_the_chosen_axis_is_drawn_by_step(root: Path, trained: Path) -> None:
    write(root / "bare", steps(50))
    board = board_of(root, trained.name)
    act(board, "axis")
    act(board, "axis")
    assert "by epoch" in look(board)
    board.open_runs([str(root / "bare")])
    assert "by epoch" not in look(read(board))


def test_a_metric_that_has_not_the_axis_falls_back_and_says_so(root: Path) -> None:
    evaluation = {"kind": "eval", "phase": "eval", "t": 50.0, "step": 50, "name": "validation", "loss": 2.0}
    write(root / "a", [*steps(50, loss=float), {**evaluation, "epoch": 5.0}])
    board = board_of(root, "a")
    board.open_metric("loss")
    act(board, "axis")
    assert board.axis == "epoch"
    assert "no epoch logged: by step" in look(board)


def test_an_evaluation_stands_at_the_epoch_of_its_step(root: Path) -> None:
    evaluations = [{"kind": "eval", "t": 1.0, "step": step, "name": "validation", "loss": 2.0} for step in (10, 50)]
    write(root / "a", [*steps(50, loss=float, epoch=lambda step: step / 10), *evaluations])
    board = board_of(root, "a")
    board.open_metric("validation/loss")
    act(board, "axis")
    text = look(board)
    assert board.axis == "epoch" and "by step" not in text
    ((_, curve),) = chart.curves_of(board, "validation/loss")
    assert curve.x.tolist() == [1.0, 5.0]


def test_log_scale_leaves_out_what_has_no_logarithm_and_says_so(root: Path) -> None:
    write(root / "a", steps(100, loss=lambda s: s - 10))
    board = board_of(root, "a")
    board.open_metric("loss")
    act(board, "log_scale")
    assert "10 values ≤ 0 are not on a log scale" in look(board)


def test_zoom_and_pan_show_a_stretch(root: Path) -> None:
    write(root / "a", steps(1000))
    board = board_of(root, "a")
    board.open_metric("loss")
    look(board)
    act(board, "zoom_in")
    act(board, "zoom_in")
    text = look(board)
    assert "25 % of the run, following" in text
    assert "800" in text
    assert "200 " not in text.splitlines()[-6]
    act(board, "pan_left")
    assert "following" not in look(board)
    act(board, "zoom_all")
    assert "% of the run" not in look(board)


def test_a_window_at_the_end_moves_on_with_the_run(root: Path) -> None:
    folder = write(root / "a", steps(1000))
    board = board_of(root, "a")
    board.open_metric("loss")
    look(board)
    act(board, "zoom_in")
    append(folder, steps(1000, first=1001))
    read(board)
    look(board)
    assert board.zoom.shown() == pytest.approx((1500, 2000), abs=2)


@pytest.mark.parametrize("axis", ["step", "tokens", "relative time"])
def test_looking_closely_at_a_folded_run_gives_every_row(root: Path, axis: str) -> None:
    write(root / "a", steps(5000, loss=lambda step: 2 + 6 / step, tokens=lambda step: 8))
    board = board_of(root, "a", limits=FEW_BUCKETS)
    assert board.watched_runs[0].history.downsampled
    board.open_metric("loss")
    assert "least to greatest of each stretch" in look(board)
    while board.axis != axis:
        act(board, "axis")
    look(board)
    act(board, "left")
    read(board)
    assert repr(2 + 6 / 5000) in look(board)
    for _ in range(9):
        act(board, "zoom_in")
    assert "0.195 % of the run" in look(board)
    _, drawn = chart.curves_of(board, "loss", close=True)[0]
    window = board.zoom.shown()
    assert window is not None
    inside = (drawn.x >= window[0]) & (drawn.x <= window[1])
    assert drawn.mean[inside].tolist() == [2 + 6 / step for step in range(5001 - inside.sum(), 5001)]
    assert inside.sum() in (9, 10, 11)
    act(board, "smoothing")
    look(board)
    act(board, "back")
    assert board.watched_runs[0].close_up is None
