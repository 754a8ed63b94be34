"""Where charts stand, and which stretch of them is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.board.curve import Curve
from linnet.board.terminal.layout import arrange, group_of
from linnet.board.terminal.zoom import Zoom

NAMES = st.lists(st.sampled_from([f"{g}m{i}" for g in ("", "train/", "validation/") for i in range(30)]), unique=True)


def by_group(names: list[str]) -> dict[str, list[str]]:
    groups = sorted({group_of(name) for name in names})
    return {group: [name for name in names if group_of(name) == group] for group in groups}


@given(NAMES, st.integers(20, 300), st.integers(6, 80))
def test_every_chart_has_a_place_of_its_own_on_some_page(names: list[str], width: int, height: int) -> None:
    layout = arrange(by_group(names), width, height)
    assert sorted(cell.name for page in layout.pages for cell in page.cells) == sorted(names)
    for page in layout.pages:
        taken: set[tuple[int, int]] = set()
        for cell in page.cells:
            assert cell.x + cell.width <= width
            assert cell.y + cell.height <= height
            area = {(x, y) for x in range(cell.x, cell.x + cell.width) for y in range(cell.y, cell.y + cell.height)}
            assert not area & taken
            taken |= area
        assert not {(0, heading.y) for heading in page.headings} & taken


@given(NAMES, st.integers(20, 300), st.integers(6, 80))
def test_where_there_are_pages_the_last_line_is_free_for_their_number(
    names: list[str], width: int, height: int
) -> None:
    layout = arrange(by_group(names), width, height)
    if len(layout.pages) > 1:
        assert all(cell.y + cell.height < height for page in layout.pages for cell in page.cells)


@given(NAMES.filter(bool), st.integers(20, 300), st.integers(6, 80), st.lists(st.sampled_from("lrud"), max_size=30))
def test_moving_about_always_ends_on_a_chart(names: list[str], width: int, height: int, moves: list[str]) -> None:
    layout = arrange(by_group(names), width, height)
    now: str | None = None
    for move in moves:
        now = layout.beside(now, {"l": -1, "r": 1}.get(move, 0), {"u": -1, "d": 1}.get(move, 0))
        assert now in names
    assert layout.turn(now, 1) in names


def test_walking_right_passes_every_chart_in_order() -> None:
    names = [f"a/{i}" for i in range(20)] + [f"b/{i}" for i in range(20)]
    layout = arrange(by_group(names), 60, 20)
    seen = [names[0]]
    while (after := layout.beside(seen[-1], 1, 0)) != seen[-1]:
        assert after is not None
        seen.append(after)
    assert seen == names


def test_the_charts_of_a_short_row_take_the_room_that_it_leaves() -> None:
    page = arrange({"": list("abcde"), "validation": ["f", "g"], "grad": ["h"]}, 150, 24).pages[0]
    widths = {cell.name: cell.width for cell in page.cells}
    assert [widths[name] for name in "abc"] == [30, 30, 30]
    assert [widths[name] for name in "fgh"] == [50, 50, 50]  # up to twice as wide, here a third of the row


def test_the_cursor_goes_from_row_to_row_where_they_are_far_apart() -> None:
    x = np.array([1.0, 50.0, 100.0, 100.2, 100.4, 1000.0])
    y = np.array([1.0, np.nan, 1.0, 1.0, 1.0, 1.0])
    zoom = Zoom(whole=(1.0, 1000.0), columns=(0, 100), curves=[Curve.through(x, y)])
    cursors = []
    for by in (1, -1, -1, -1, -1, 1, 1, 1, 1):
        zoom.move_cursor(by)
        cursors.append(zoom.cursor)
    assert cursors == [1000.0, 100.4, 100.0, 1.0, 1.0, 100.0, 100.4, 1000.0, 1000.0]


@given(st.lists(st.tuples(st.sampled_from("zp"), st.floats(-3, 3)), max_size=20))
def test_the_window_never_leaves_the_run(moves: list[tuple[str, float]]) -> None:
    zoom = Zoom(whole=(10.0, 90.0))
    for what, amount in moves:
        if what == "z":
            zoom.scale(2.0**amount, around=10 + 80 * abs(amount) / 3)
        else:
            zoom.move(amount)
        low, high = zoom.shown() or zoom.whole or (0.0, 0.0)
        assert 10 - 1e-9 <= low < high <= 90 + 1e-9


def test_zooming_keeps_the_place_it_points_at() -> None:
    zoom = Zoom(whole=(0.0, 100.0), columns=(0, 100))
    before = zoom.x_at(30)
    zoom.scale(0.5, around=before)
    assert zoom.x_at(30) == pytest.approx(before, abs=0.5)
