"""My metrics first: held-out beside training, constants in a line; pin, hide, move, filter; all of it remembered."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.board.curve import Curve
from linnet.board.plot import Plot
from linnet.board.preferences import ChartPreferences, PreferenceFile, preferences_path
from linnet.board.terminal.actions import act
from linnet.board.terminal.chart_list import ChartList, matches
from linnet.board.terminal.keys import FOOTERS, SECTIONS, bindings
from linnet.cli.app import main
from tests.board.conftest import Event, append, board_of, look, read, steps, training, write


def logged(constant: float = 4096.0) -> list[Event]:
    """What a training of text logs: constants before the held-out loss."""
    events: list[Event] = []
    for step in range(1, 101):
        values = {"loss": 5 / step, "lr": step / 1e5, "tokens": constant, "wall_us": 1000.0 + step}
        values |= {"tokens_per_s": 5e3 + step, "mfu": 0.4, "grad_norm": 1.0 + step % 3}
        events.append({"kind": "step", "phase": "train", "t": float(step), "step": step, **values})
        if step % 20 == 0:
            extra = {"loss": 6 / step, "bits_per_byte": 4 / step, "samples": 512}
            events.append({"kind": "eval", "t": float(step), "step": step, "name": "validation", **extra})
    return events


@pytest.fixture
def lab(root: Path) -> Path:
    write(root / "a", logged())
    write(root / "b", logged())
    return root


# -- what is first -----------------------------------------------------------------------------------------------------


def test_held_out_loss_is_on_and_beside_the_training_loss_on_the_first_page_at_80_by_24(lab: Path) -> None:
    text = look(board_of(lab, "a"), 80, 24)
    assert "1 loss" in text and "2 validation/loss" in text
    first = next(line for line in text.splitlines() if "1 loss" in line)
    assert "○0.06" in first, "its latest value, behind the sign of its points"
    chart = "".join(line[:40] for line in text.splitlines()[4:11])
    assert chart.count("○") == 5, "each evaluation is a point on the chart of the training loss"


def test_constants_are_one_line(lab: Path) -> None:
    text = look(board_of(lab, "a"), 80, 24)
    assert " constant: tokens 4,096, mfu 0.4, validation/samples 512" in text
    assert "page 1/2" in text
    assert not any(f" {number} tokens ─" in text for number in range(1, 10))


def test_constants_that_have_no_room_are_counted(root: Path) -> None:
    values = {f"a_rather_long_name_{number}": (lambda step, n=number: float(n)) for number in range(9)}
    write(root / "a", steps(5, loss=float, **values))
    text = look(board_of(root, "a"), 80, 24)
    assert " constant: a_rather_long_name_0 0, " in text and "+7" in text


def test_a_constant_of_several_runs_tells_each_value(root: Path) -> None:
    write(root / "a", logged(4096.0))
    write(root / "b", logged(8192.0))
    assert "tokens 4,096 / 8,192" in look(board_of(root, "a", "b"), 100, 24)


def test_what_begins_to_change_gets_its_chart(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(root / "a", steps(10, loss=float, size=lambda step: 7.0))
    board = board_of(root, "a")
    assert "constant: size 7" in look(board)
    append(folder, steps(5, first=11, loss=float, size=float))
    monkeypatch.setattr("linnet.board.terminal.chart_list._JUDGED_AGAIN", 0.0)
    assert "2 size" in look(read(board)) and "constant" not in look(board)


def test_a_result_that_never_changes_is_no_constant(root: Path) -> None:
    write(root / "a", steps(10, loss=lambda step: 2.0, accuracy=lambda step: 0.5))
    text = look(board_of(root, "a"))
    assert "1 loss" in text and "2 accuracy" in text and "constant" not in text


def test_a_few_rows_are_no_constant_yet(root: Path) -> None:
    write(root / "a", steps(2, loss=float, tokens=lambda step: 8.0))
    assert "2 tokens" in look(board_of(root, "a"))


def test_groups_of_one_chart_leave_no_hole(root: Path) -> None:
    write(root / "a", steps(10, **{f"g{number}/v": float for number in range(6)}))
    text = look(board_of(root, "a"), 100, 30)
    assert "g0/v" in text and "g5/v" in text and "page" not in text.splitlines()[-2]
    assert " g0 ──" not in text


# -- keys --------------------------------------------------------------------------------------------------------------


def test_pin_puts_a_chart_first_and_again_lets_it_go(lab: Path) -> None:
    board = board_of(lab, "a")
    board.selected = "grad_norm"
    act(board, "pin")
    assert board.names()[:3] == ["grad_norm", "loss", "validation/loss"]
    assert board.chosen() == "grad_norm" and "1 ▴grad_norm" in look(board)
    board.selected = "lr"
    act(board, "pin")
    assert board.names()[:3] == ["grad_norm", "lr", "loss"]
    act(board, "pin")
    board.selected = "grad_norm"
    act(board, "pin")
    assert board.names()[:2] == ["loss", "validation/loss"]


def test_a_pinned_constant_has_a_chart(lab: Path) -> None:
    board = board_of(lab, "a")
    act(board, "constants")
    assert "tokens" in board.names()
    board.selected = "tokens"
    act(board, "pin")
    act(board, "constants")
    assert board.names()[0] == "tokens" and "mfu" not in board.names()


def test_hide_and_bring_back(lab: Path) -> None:
    board = board_of(lab, "a")
    board.selected = "validation/loss"
    act(board, "hide")
    assert "validation/loss" not in board.names()
    assert board.chosen() == "lr"
    text = look(board, 80, 24)
    assert " 1 hidden H shows" in text
    act(board, "show_hidden")
    assert {"validation/loss", "tokens"} <= set(board.names())
    board.selected = "validation/loss"
    act(board, "hide")
    act(board, "show_hidden")
    assert "validation/loss" in board.names() and "tokens" not in board.names()


def test_move_a_chart(lab: Path) -> None:
    board = board_of(lab, "a")
    before = board.names()
    board.selected = "lr"
    act(board, "move_on")
    assert board.names().index("lr") == before.index("lr") + 1
    for _ in range(20):
        act(board, "move_back")
    assert board.names()[0] == "lr" and sorted(board.names()) == sorted(before)
    for _ in range(20):
        act(board, "move_on")
    assert board.names()[-1] == "lr" or board.names().index("lr") > 4


def test_pinned_charts_are_moved_among_themselves(lab: Path) -> None:
    board = board_of(lab, "a")
    for name in ("lr", "grad_norm"):
        board.selected = name
        act(board, "pin")
    act(board, "move_back")
    assert board.names()[:2] == ["grad_norm", "lr"]


def test_filter_by_name(lab: Path) -> None:
    board = board_of(lab, "a")
    act(board, "filter")
    assert board.asking == "charts"
    board.answer("valid* ")
    assert board.names() == ["validation/loss", "validation/bits_per_byte", "validation/samples"]
    assert "filter valid* Esc clears it" in look(board)
    act(board, "back")
    assert not board.leaving and "loss" in board.names()


def test_the_runs_have_their_own_filter(lab: Path) -> None:
    board = board_of(lab, "a")
    act(board, "view:runs")
    act(board, "filter")
    assert board.asking == "filter"


def test_nothing_left_is_said_and_can_be_undone(lab: Path) -> None:
    board = board_of(lab, "a")
    act(board, "filter")
    board.answer("nothing like it")
    assert board.names() == [] and "no metric fits the filter" in look(board)
    act(board, "reset_charts")
    assert board.names()[0] == "loss"


@pytest.mark.parametrize(
    ("name", "wanted", "fits"),
    [
        ("validation/loss", "loss", True),
        ("validation/loss", "VAL loss", True),
        ("validation/loss", "val*", True),
        ("validation/loss", "loss*", False),
        ("validation/loss", "val acc", False),
        ("loss", "", True),
    ],
)
def test_words_and_patterns(name: str, wanted: str, fits: bool) -> None:
    assert matches(name, wanted) == fits


def test_every_key_is_in_help_and_those_that_do_most_in_the_footer() -> None:
    keys = bindings()
    assert [keys[key] for key in ("p", "h", "H", "z", "Z", "left_parenthesis", "right_parenthesis", "slash")] == [
        "pin", "hide", "show_hidden", "constants", "reset_charts", "move_back", "move_on", "filter",
    ]  # fmt: skip
    explained = {key.action for key in SECTIONS["metrics"]}
    assert {"pin", "hide", "show_hidden", "constants", "reset_charts", "move_back", "move_on"} <= explained
    assert {"pin", "hide", "filter"} <= {hint.action for hint in FOOTERS["metrics"]}


# -- remembered --------------------------------------------------------------------------------------------------------


def test_choices_are_remembered_for_each_root(lab: Path, tmp_path: Path) -> None:
    board = board_of(lab, "a")
    board.selected = "grad_norm"
    act(board, "pin")
    board.selected = "lr"
    act(board, "hide")
    board.selected = "wall_us"
    act(board, "move_on")
    shown = board.names()
    again = board_of(lab, "b")
    assert again.names() == shown and again.names()[0] == "grad_norm"
    other = tmp_path / "others"
    write(other / "a", logged())
    assert board_of(other, "a").names()[0] == "loss"
    act(again, "reset_charts")
    assert board_of(lab, "a").names()[0] == "loss"


def test_nothing_is_written_into_the_runs_nor_before_something_is_chosen(lab: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in lab.iterdir())
    board = board_of(lab, "a")
    assert not (tmp_path / "state").exists()
    act(board, "pin")
    assert sorted(path.name for path in lab.iterdir()) == before
    path = preferences_path(lab)
    assert path.is_file() and path.is_relative_to(tmp_path / "state")
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"pinned": 3}',
        b'{"pinned": [1]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"x" * (2 << 20),
        b'{"new": 1}',
    ],
)
def test_a_damaged_file_costs_the_choices_and_nothing_else(lab: Path, content: bytes) -> None:
    path = preferences_path(lab)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    board = board_of(lab, "a")
    assert board.names()[0] == "loss"
    board.selected = "lr"
    act(board, "pin")
    assert board_of(lab, "a").names()[0] == "lr"


def test_no_file_at_all_can_be_there(lab: Path) -> None:
    preferences_path(lab).mkdir(parents=True)
    board = board_of(lab, "a")
    board.selected = "lr"
    act(board, "pin")
    assert board.names()[0] == "lr", "it is shown"
    assert "not remembered" in look(board)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o500)
    board = board_of(lab, "a")
    act(board, "pin")
    assert "not remembered" in look(board)


def test_a_home_that_is_a_file_is_told(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    board = board_of(lab, "a")
    board.selected = "lr"
    act(board, "pin")
    assert board.names()[0] == "lr" and "not remembered" in look(board)


def test_two_boards_at_once_keep_each_others_choices(lab: Path) -> None:
    first, second = board_of(lab, "a"), board_of(lab, "b")
    first.selected, second.selected = "lr", "grad_norm"
    act(first, "pin")
    act(second, "pin")
    assert second.names()[:2] == ["lr", "grad_norm"]
    assert board_of(lab, "a").names()[:2] == ["lr", "grad_norm"]


def test_hostile_names_are_kept_and_shown_as_text(root: Path) -> None:
    name = "\x1b[31m../../x\u202e"
    write(root / "a", steps(10, loss=float, **{name: float}))
    board = board_of(root, "a")
    board.selected = name
    act(board, "pin")
    assert board_of(root, "a").names()[0] == name
    assert "\x1b" not in look(board)
    act(board, "hide")
    assert "\x1b" not in look(board)


@given(st.lists(st.sampled_from(["pin", "hide", "move_on", "move_back", "show_hidden", "constants"]), max_size=25))
def test_no_sequence_of_keys_loses_a_metric(keys: list[str]) -> None:
    charts = ChartList(None)
    names = ["loss", "validation/loss", "lr", "tokens", "g/a", "g/b", "h/c"]
    constants = {"tokens": "8"}
    for at, key in enumerate(keys):
        shown = [name for members in charts.groups(names, constants).values() for name in members]
        name = shown[at % len(shown)] if shown else names[0]
        match key:
            case "pin":
                charts.toggle_pin(name)
            case "hide":
                charts.toggle_hidden(name)
            case "show_hidden":
                charts.show_hidden = not charts.show_hidden
            case "constants":
                charts.toggle_constants()
            case _:
                charts.move(name, 1 if key == "move_on" else -1, charts.groups(names, constants))
        groups = charts.groups(names, constants)
        shown = [name for members in groups.values() for name in members]
        assert len(shown) == len(set(shown))
        gone = {name for name in names if name not in shown}
        hidden = {name for name in charts.preferences.hidden if name not in charts.preferences.pinned}
        assert gone <= hidden | set(constants)
        pinned = [name for name in charts.preferences.pinned if name in names]
        assert shown[: len(pinned)] == pinned


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_choices_or_none(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = PreferenceFile(None)
        file.path = Path(folder) / "x.json"
        file.path.write_bytes(content)
        assert isinstance(file._load() or ChartPreferences(), ChartPreferences)
        assert file.change(lambda chosen: chosen) == ""


# -- letters -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 10)), min_size=2, max_size=8), st.integers(2, 12))
def test_letters_of_overlaid_runs_never_hide_each_other(ends: list[tuple[int, float]], height: int) -> None:
    plot = Plot(20, height, (0.0, 30.0), (0.0, 10.0))
    letters = "ABCDEFGH"[: len(ends)]
    for letter, (last, value) in zip(letters, ends, strict=True):
        x = np.arange(0, last + 1, dtype=np.float64)
        plot.draw(Curve.through(x, np.full(len(x), value)), "run0", letter=letter)
    text = "".join(text for line in plot.lines() for text, _ in line)
    assert sorted(character for character in text if character.isalpha()) == list(letters)


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_view_opens_on_the_newest_run(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(lab / "newest", logged(), created_at=1_790_000_000.0, config={"lr": 0.5})
    for words in (["--view", "config"], ["--view", "config", "--runs", str(lab)]):
        assert main(["board", "--once", *words]) == 0
        out = capsys.readouterr().out
        assert out.startswith(" newest ") and "lr" in out


def test_the_frame_of_once_has_my_metrics_first(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of(lab, "a")
    board.selected = "grad_norm"
    act(board, "pin")
    assert main(["board", "a", "--once", "--size", "80x24"]) == 0
    assert "1 ▴grad_norm" in capsys.readouterr().out


def test_training_events_show_their_held_out_loss_in_one_metric_too(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    text = look(board)
    last = [e["loss"] for e in training() if e["kind"] == "eval"][-1]
    assert f"○ validation/loss {last:.4g}" in text
    assert f"○ last {last:.6g} @ 400" in text
