"""A table as colours: in any width with its numbers or digits, and as a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from linnet.board.figure.colours import THEMES
from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.heat_map_scene import draw_heat_map
from linnet.board.figure.svg import write_svg
from linnet.board.figure.text_heat_map import heat_lines
from linnet.board.terminal.spans import text_of
from linnet.board.words import cells

DARK = THEMES["dark"]


def table(rows: int, columns: int, **fields: object) -> HeatMap:
    values = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns) / (rows * columns - 1)
    labels = [f"layer {row}" for row in range(rows)], [str(column) for column in range(columns)]
    return HeatMap(values, *labels, "CKA", "a and b", "layer", "layers of b", 0.0, 1.0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("columns", "width"), [(4, 80), (18, 80), (40, 80), (300, 80), (5, 20)])
def test_it_fits_the_width_whatever_there_is_to_show(columns: int, width: int) -> None:
    lines = heat_lines(table(6, columns), width, DARK)
    of_map = lines[: 6 + 2]  # title, labels and rows; the legend has a length of its own
    assert max(sum(cells(text) for text, _ in line) for line in of_map) <= width
    assert [text_of([line]).startswith("CKA") for line in lines].index(True) == len(of_map)


@pytest.mark.parametrize(("end", "texts"), [(1.0, ["50", "100"]), (0.08, ["4.0", "8.0"]), (0.002, ["0.10", "0.20"])])
def test_small_shares_have_as_many_digits_as_tell_them_apart(end: float, texts: list[str]) -> None:
    heat = HeatMap(np.array([[end / 2, end]]), ["0"], ["10", "20"], "distance", low=0.0)
    assert heat.cell_texts == [texts]


def test_numbers_stand_in_their_cells_and_the_legend_says_what_they_are() -> None:
    text = text_of(heat_lines(table(2, 3), 80, DARK)).splitlines()
    assert [line.split()[2:] for line in text[2:4]] == [["0", "20", "40"], ["60", "80", "100"]]
    assert text[4].startswith("CKA in %   0  11  22")


def test_where_numbers_have_no_room_a_digit_says_where_each_lies() -> None:
    text = text_of(heat_lines(table(2, 30), 80, DARK)).splitlines()
    assert text[2].split()[2:] == [str(int(10 * at / 59)) for at in range(30)]
    assert "0 is 0, 9 is 100" in text[4]
    left_out = text_of(heat_lines(table(2, 300), 80, DARK)).splitlines()
    assert left_out[3].rstrip().endswith("9"), "the last column is always there"
    assert "left out" in left_out[-1]


def test_a_cell_without_a_number_is_a_dot_without_a_colour() -> None:
    heat = HeatMap(np.array([[np.nan, 0.5]]), ["0"], ["a", "b"], "distance")
    cell, other = heat_lines(heat, 80, DARK)[1][1:]
    assert (cell[0].strip(), cell[1]) == ("·", "dim")
    assert (other[0].strip(), other[1].split(".")[0]) == ("50", "pixel")


def test_a_stronger_colour_is_a_larger_number_and_its_text_can_be_read() -> None:
    def light(colour: str) -> float:
        return float(sum(int(colour[at : at + 2], 16) for at in (1, 3, 5)))

    for theme in THEMES.values():
        heat = table(2, 2)
        away = [abs(light(heat.colour(share, theme)) - light(theme.ground)) for share in (0, 0.5, 1)]
        assert away == sorted(away)
        for share in (0.0, 0.5, 1.0):
            assert abs(light(heat.colour(share, theme)) - light(heat.ink(share, theme))) > 150


def test_texts_stand_in_bands_below_each_other() -> None:
    texts = [[f"·word{at} 42" for at in range(12)]]
    heat = HeatMap(
        np.full((1, 12), 0.42), ["3"], [f"t{at}" for at in range(12)], "probability", texts=texts, low=0, high=1
    )
    text = text_of(heat_lines(heat, 60, DARK)).splitlines()
    assert max(map(len, text)) <= 60
    assert sum(line.startswith("3") for line in text) == 3
    assert all(f"·word{at} 42" in "\n".join(text) for at in range(12))


def test_the_picture_is_valid_and_says_what_it_shows() -> None:
    svg = write_svg(draw_heat_map(table(4, 6), 720, 300, THEMES["light"])).decode()
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a and b", "layers of b", "layer", "layer 3", "100 %", "52"} <= set(texts)
    assert "CKA by layer and layers of b: 24 numbers" in svg
