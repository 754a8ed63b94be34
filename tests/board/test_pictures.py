"""The drawing of pictures: scales, lines that lose nothing, labels, colours, and the two writers."""

from __future__ import annotations

import io
import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from linnet.board.curve import Curve
from linnet.board.figure.chart import ChartOptions, Source, build_chart
from linnet.board.figure.colours import THEMES, slots
from linnet.board.figure.end_labels import apart
from linnet.board.figure.line_scene import draw_lines
from linnet.board.figure.png import write_png
from linnet.board.figure.scales import Scale, tick_texts, time_unit
from linnet.board.figure.scene import Area, Marker, Scene, Text
from linnet.board.figure.scene import Path as ScenePath
from linnet.board.figure.svg import path_data, write_svg
from linnet.board.figure.tracing import trace
from linnet.board.figure.typography import shortened, text_width
from linnet.runs import Run
from tests.board.conftest import steps, training, write

SVG = "{http://www.w3.org/2000/svg}"


def sources(*folders: Path) -> list[Source]:
    return [Source(run := Run.load(folder), run.metrics()) for folder in folders]


def curve(y: list[float] | np.ndarray[Any, Any]) -> Curve:
    values = np.asarray(y, dtype=np.float64)
    return Curve.through(np.arange(len(values), dtype=np.float64), values)


def scene_of(
    folders: list[Path], metrics: list[str], options: ChartOptions | None = None, theme: str = "light"
) -> Scene:
    chart = build_chart(sources(*folders), metrics, options or ChartOptions())
    return draw_lines(chart, 720, 440, THEMES["dark" if theme == "dark" else "light"])


def texts(scene: Scene) -> list[str]:
    return [shape.text for shape in scene.shapes if isinstance(shape, Text)]


def lines(scene: Scene) -> list[ScenePath]:
    return [shape for shape in scene.shapes if isinstance(shape, ScenePath) and shape.title]


# -- the lines ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400),
    st.integers(2, 40),
    st.sampled_from([1.0, 0.3]),
)
@settings(deadline=None, max_examples=150)
def test_of_every_column_the_least_and_the_greatest_are_drawn(y: list[float], columns: int, alpha: float) -> None:
    values = np.array(y)
    finite = np.isfinite(values)
    x_scale, y_scale = Scale(0.0, max(1.0, len(y) - 1.0)), Scale(-1e6, 1e6)
    drawn = trace(curve(y), x_scale, y_scale, columns, alpha)
    if not finite.any():
        assert drawn is None
        return
    assert drawn is not None
    pieces = [*drawn.line, *drawn.rows, *drawn.extent]
    points = np.concatenate(pieces)
    assert len(points) <= 20 * columns + 40, "no more than pixels can show"
    share = (values[finite] + 1e6) / 2e6
    assert points[:, 1].min() == pytest.approx(share.min(), abs=1e-9)
    assert points[:, 1].max() == pytest.approx(share.max(), abs=1e-9)


def test_a_spike_of_one_step_in_a_million_is_drawn() -> None:
    y = np.full(1_000_000, 2.0)
    y[765_432] = 9.0
    drawn = trace(curve(y), Scale(0, 999_999), Scale(0, 10), 560)
    assert drawn is not None
    assert max(piece[:, 1].max() for piece in drawn.extent) == pytest.approx(0.9)
    assert sum(map(len, drawn.line)) <= 561


def test_nan_breaks_the_line_also_where_many_rows_share_a_column() -> None:
    for count in (30, 3000, 300_000):
        y = np.linspace(3, 2, count)
        y[count // 3 : count // 2] = np.nan
        drawn = trace(curve(y), Scale(0, count - 1), Scale(1, 4), 500)
        assert drawn is not None
        assert len(drawn.line) == 2
        assert drawn.line[0][-1, 0] == pytest.approx(1 / 3, abs=0.05)
        assert drawn.line[1][0, 0] == pytest.approx(1 / 2, abs=0.05)


def test_a_row_alone_between_two_that_have_no_value_is_a_dot(root: Path) -> None:
    values = iter([3.0, math.nan, 2.5, math.nan, 2.0])
    folder = write(root / "a", [{**event, "loss": next(values)} for event in steps(5)])
    scene = scene_of([folder], ["loss"])
    dots = [piece for path in lines(scene) for piece in path.pieces if len(piece) == 1]
    assert len(dots) == 3
    assert "h0" in write_svg(scene).decode()


def test_rows_out_of_order_on_the_axis_are_drawn_in_its_order() -> None:
    shuffled = Curve.through(np.array([3.0, 1.0, 2.0, 0.0]), np.array([30.0, 10.0, 20.0, 0.0]))
    drawn = trace(shuffled, Scale(0, 3), Scale(0, 30), 100)
    assert drawn is not None
    assert drawn.line[0].tolist() == pytest.approx(np.array([[0, 0], [1 / 3, 1 / 3], [2 / 3, 2 / 3], [1, 1]]))


def test_the_smoothed_line_is_the_boards(root: Path) -> None:
    from linnet.board.curve import smooth

    y = np.array([2 + (step % 7) for step in range(200)], dtype=np.float64)
    drawn = trace(curve(y), Scale(0, 199), Scale(0, 10), 400, alpha=0.3)
    assert drawn is not None
    assert drawn.line[0][:, 1] * 10 == pytest.approx(smooth(y, 0.3))
    assert drawn.rows[0][:, 1] * 10 == pytest.approx(y), "and the rows below it"


def test_a_few_evaluations_are_not_smoothed() -> None:
    y = np.linspace(5, 2, 12)
    drawn = trace(curve(y), Scale(0, 11), Scale(0, 10), 400, alpha=0.15)
    assert drawn is not None
    assert drawn.line[0][:, 1] * 10 == pytest.approx(y)
    assert len(drawn.points) == 12


# -- axes --------------------------------------------------------------------------------------------------------------


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(2, 9), st.booleans())
@settings(deadline=None, max_examples=200)
def test_ticks_are_on_the_axis_in_order_and_each_says_another_number(
    low: float, span: float, count: int, log: bool
) -> None:
    high = low + span
    if not high > low or span < abs(low) * 1e-9:
        return
    scale = Scale(math.log10(span), math.log10(span) + 3, True) if log else Scale(low, high)
    ticks = scale.ticks(count)
    positions = [position for position, _ in ticks]
    assert positions == sorted(positions)
    edge = (scale.high - scale.low) * 1e-6
    assert all(scale.low - edge <= position <= scale.high + edge for position in positions)
    assert len({text for _, text in ticks}) == len(ticks) <= 3 * count + 3


def test_numbers_at_ticks_have_the_same_decimals() -> None:
    assert tick_texts([0.0, 0.005, 0.01]) == ["0.000", "0.005", "0.010"]
    assert tick_texts([0.0, 5_000.0, 10_000.0], "count") == ["0", "5k", "10k"]
    assert tick_texts([0.0, 500_000.0, 1_000_000.0], "count") == ["0", "0.5M", "1.0M"]
    assert tick_texts([-1.0, 0.0, 1.0]) == ["-1", "0", "1"]


def test_a_log_axis_has_decades_and_fewer_of_them_numbers_between() -> None:
    assert [text for _, text in Scale(-3, 1, True).ticks(6)] == ["0.001", "0.01", "0.1", "1", "10"]
    assert [text for _, text in Scale(-6, -2, True).ticks(6)] == ["1e-6", "1e-5", "1e-4", "1e-3", "1e-2"]
    assert [text for _, text in Scale(0, 1, True).ticks(6)] == ["1", "2", "5", "10"]
    assert len(Scale(math.log10(2.1), math.log10(2.9), True).ticks(6)) >= 3


def test_a_stretch_of_time_is_told_in_a_unit_that_suits_it() -> None:
    assert [time_unit(seconds)[0] for seconds in (30, 90, 600, 9_000, 300_000)] == ["s", "s", "min", "h", "d"]
    assert Scale(0, 1200, kind="time").ticks(5)[1] == (300.0, "5")


# -- labels ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_labels_stand_apart_in_order_and_inside(wanted: list[float]) -> None:
    placed = apart(sorted(wanted), 15.0, 0.0, 300.0)
    assert all(below - above >= 15 - 1e-6 for above, below in itertools.pairwise(placed))
    assert placed[0] >= 0 and placed[-1] <= 300 + 1e-6


def test_labels_that_have_room_stay_where_their_lines_end() -> None:
    assert apart([10.0, 60.0, 200.0], 15.0, 0.0, 300.0) == [10.0, 60.0, 200.0]
    assert apart([100.0, 100.0], 15.0, 0.0, 300.0) == [92.5, 107.5]


def test_a_long_name_keeps_its_end_by_which_it_differs() -> None:
    names = [f"from-scratch-with-a-very-long-name-indeed-{number:03}" for number in range(3)]
    cut = [shortened(name, 120, 11) for name in names]
    assert len(set(cut)) == 3 and all("…" in name for name in cut)
    assert all(text_width(name, 11) <= 120 for name in cut)


@given(st.text(max_size=60), st.floats(0, 200))
def test_a_cut_text_is_never_wider_than_its_room(text: str, width: float) -> None:
    assert text_width(shortened(text, width, 11), 11) <= max(width, text_width("…", 11))


def test_labels_never_lie_on_the_lines_nor_on_each_other(root: Path) -> None:
    folders = [write(root / f"run-{n}", steps(50, loss=lambda s: 2.0), name=f"the same loss {n}") for n in range(9)]
    scene = scene_of(folders, ["loss"])
    labels = [shape for shape in scene.shapes if isinstance(shape, Text) and shape.text.startswith("the same")]
    assert len(labels) == 9
    right = max(piece[:, 0].max() for path in lines(scene) for piece in path.pieces)
    assert min(label.x for label in labels) > right
    heights = sorted(label.y for label in labels)
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 14
    assert all(label.x + text_width(label.text, label.size) <= 720 for label in labels)


def test_more_runs_than_there_is_room_for_are_drawn_and_counted(root: Path) -> None:
    folders = [write(root / f"run-{n:02}", steps(5, loss=lambda s, n=n: 1.0 + n)) for n in range(60)]
    scene = scene_of(folders, ["loss"])
    assert len(lines(scene)) == 60
    more = next(text for text in texts(scene) if text.startswith("and "))
    shown = sum(text.startswith("run-") for text in texts(scene))
    assert more == f"and {60 - shown} more"


# -- colours -----------------------------------------------------------------------------------------------------------


def test_a_run_keeps_its_colour_whichever_others_are_shown() -> None:
    ids = [f"llama-20260601-{number:03}" for number in range(30)]
    alone = {run_id: slots([run_id])[0] for run_id in ids}
    assert len(set(alone.values())) > 4
    for a, b in itertools.combinations(ids[:10], 2):
        first, second = slots([a, b])
        assert first == alone[a] and first != second
    eight = slots(ids[:8])
    assert sorted(eight) == list(range(8))
    assert sorted(slots(ids[:16])) == sorted([*range(8), *range(8)])


_BLINDNESS = {  # linear RGB as seen with the usual kinds of colour blindness (Machado, Oliveira and Fernandes, 2009)
    "none": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colour: str) -> np.ndarray[Any, Any]:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    ratio = np.array(matrix) @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    dark, bright = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_colours_are_told_apart_also_by_the_colour_blind(name: str) -> None:
    theme = THEMES["light" if name == "light" else "dark"]
    for kind, matrix in _BLINDNESS.items():
        seen = [lab(matrix @ linear(colour)) for colour in theme.lines]
        nearest = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))
        assert nearest > 15, f"{name} {kind}: {nearest:.1f}"  # 2.3 is a difference that is just seen
    assert all(contrast(colour, theme.ground) >= 3 for colour in theme.lines), "WCAG's for lines"
    assert contrast(theme.text, theme.ground) >= 7 and contrast(theme.dim, theme.ground) >= 4.5, "and for text"


# -- what is in a chart ------------------------------------------------------------------------------------------------


def test_of_one_run_each_metric_has_a_colour_and_its_name_at_its_end(root: Path) -> None:
    folder = write(root / "a", training())
    scene = scene_of([folder], ["loss", "validation/loss"])
    drawn = lines(scene)
    assert len({path.colour for path in drawn}) == 2
    assert {"loss", "validation/loss"} <= set(texts(scene))


def test_of_several_runs_colours_tell_the_run_and_dashes_the_metric(root: Path) -> None:
    folders = [write(root / name, training(), name=name) for name in ("wide", "narrow")]
    scene = scene_of(folders, ["loss", "validation/loss"])
    drawn = lines(scene)
    assert len(drawn) == 4
    assert len({path.colour for path in drawn}) == len({path.dash for path in drawn}) == 2
    assert {"wide", "narrow", "loss", "validation/loss"} <= set(texts(scene))


def test_metrics_of_another_quantity_have_a_panel_of_their_own(root: Path) -> None:
    folder = write(root / "a", training())
    chart = build_chart(sources(folder), ["loss", "lr", "validation/loss", "grad_norm"], ChartOptions())
    assert [panel.label for panel in chart.panels] == ["loss", "lr", "grad_norm"]
    assert [line.metric for line in chart.panels[0].lines] == ["loss", "validation/loss"]
    scene = draw_lines(chart, 720, 600, THEMES["light"])
    assert {"loss", "lr", "grad_norm"} <= set(texts(scene))


def test_runs_of_the_same_name_are_told_apart_by_their_ids(root: Path) -> None:
    folders = [write(root / f"id-{n}", steps(5), name="twin") for n in range(2)]
    labels = [
        line.label for panel in build_chart(sources(*folders), ["loss"], ChartOptions()).panels for line in panel.lines
    ]
    assert labels == ["twin (id-0)", "twin (id-1)"]


@pytest.mark.parametrize("axis", ["step", "tokens", "epoch", "relative time", "wall time"])
@pytest.mark.parametrize("log", [False, True])
def test_every_axis_and_scale_can_be_drawn(root: Path, axis: str, log: bool) -> None:
    folder = write(root / "a", training())
    scene = scene_of([folder], ["loss", "validation/loss"], ChartOptions(axis=axis, log=log, log_x=log, alpha=0.3))
    ElementTree.fromstring(write_svg(scene))
    assert len(lines(scene)) == 2
    if axis == "tokens":
        assert "400k" in texts(scene) or log


# -- the writers -------------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script> & \"quotes\" 'and' ]]>",
    "\x1b[31mred\x1b[0m\x00\x07 bell",
    "‮right to left‬ ⁦isolated⁩",
    "日本語の実行・ünïcödé · Ελληνικά · русский · हिन्दी · עברית · العربية",
    "\ufffe\uffff noncharacters \U0001f600",
    "x" * 5000,
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_svg_is_valid_xml_whatever_names_hold(root: Path, name: str, theme: str) -> None:
    folders = [
        write(root / "a", [{**event, name[:40]: 1.0} for event in steps(5)], name=name),
        write(root / "b", steps(5), name="plain"),
    ]
    svg = write_svg(scene_of(folders, ["loss", name[:40]], theme=theme))
    tree = ElementTree.fromstring(svg)
    assert tree.tag == f"{SVG}svg" and not tree.findall(f".//{SVG}script")
    text = svg.decode()
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufffe\uffff]", text)
    assert len(svg) < 60_000
    assert write_png(scene_of(folders, ["loss"], theme=theme), 1.0).startswith(b"\x89PNG")


@given(st.text(max_size=40), st.text(max_size=40))
@settings(deadline=None, max_examples=100)
def test_any_text_at_all_is_valid_xml(title: str, label: str) -> None:
    scene = Scene(300, 200, "#ffffff", title, label, [Text(10, 10, label, 11, "#000000", title=title)])
    tree = ElementTree.fromstring(write_svg(scene))
    assert tree.find(f"{SVG}text") is not None


def test_the_same_runs_give_the_same_bytes(root: Path) -> None:
    folders = [write(root / name, training(), name=name) for name in ("wide", "narrow")]
    scenes = [scene_of(folders, ["loss", "validation/loss"]) for _ in range(2)]
    assert write_svg(scenes[0]) == write_svg(scenes[1])
    assert write_png(scenes[0]) == write_png(scenes[1])


def test_pictures_in_one_page_share_no_id(root: Path) -> None:
    scene = scene_of([write(root / "a", training())], ["loss"])
    first, second = (set(re.findall(r'id="([^"]+)"', write_svg(scene, prefix).decode())) for prefix in ("a", "b"))
    assert first and second and not first & second


def test_a_long_run_is_a_small_svg(root: Path) -> None:
    y = np.sin(np.arange(300_000)) + 3
    drawn = trace(curve(y), Scale(0, 299_999), Scale(0, 5), 640)
    assert drawn is not None
    assert len(path_data([piece * 400 for piece in [*drawn.line, *drawn.extent]])) < 30_000


@given(st.lists(st.tuples(st.floats(-100, 2000), st.floats(-100, 2000)), min_size=1, max_size=30))
def test_path_data_leads_through_the_points(points: list[tuple[float, float]]) -> None:
    data = path_data([np.array(points)])
    numbers = [float(text) for text in re.findall(r"-?\d*\.?\d+", data.replace("h0", ""))]
    pairs = np.array(numbers).reshape(-1, 2)
    reached = np.cumsum(pairs, axis=0)
    wanted = np.round(np.array(points), 1)
    distinct = wanted[np.concatenate([[True], np.any(np.diff(np.round(np.array(points) * 10), axis=0) != 0, axis=1)])]
    assert reached == pytest.approx(distinct, abs=0.051)


def test_a_png_shows_the_same_as_the_svg_in_pixels() -> None:
    square = np.array([[20.0, 20.0], [60.0, 20.0], [60.0, 60.0], [20.0, 60.0]])
    scene = Scene(
        100,
        80,
        "#ffffff",
        shapes=[
            Area([square], "#000000", 0.5),
            ScenePath([np.array([[0.0, 70.0], [100.0, 70.0]])], "#ff0000", 2.0),
            Marker(80, 20, 5, "#0000ff"),
            Marker(80, 45, 5, "#00aa00", "square"),
        ],
    )
    picture = Image.open(io.BytesIO(write_png(scene, 2.0))).convert("RGB")
    assert picture.size == (200, 160)
    assert picture.getpixel((80, 80)) == pytest.approx((127, 127, 127), abs=2)
    assert picture.getpixel((100, 140)) == (255, 0, 0)
    assert picture.getpixel((100, 134)) == (255, 255, 255)
    assert picture.getpixel((160, 40)) == (0, 0, 255)
    assert picture.getpixel((160, 90)) == (0, 170, 0)
    assert picture.info["dpi"] == pytest.approx((192, 192), abs=0.1)


def test_edges_in_a_png_are_smooth() -> None:
    scene = Scene(60, 60, "#ffffff", shapes=[ScenePath([np.array([[5.0, 5.0], [55.0, 40.0]])], "#000000", 1.5)])
    grey = np.asarray(Image.open(io.BytesIO(write_png(scene, 1.0))).convert("L"))
    assert len(np.unique(grey)) > 10
    assert grey.sum() == pytest.approx(255 * 3600 - 255 * 1.5 * math.hypot(50, 35), rel=0.01), "as much ink as the line"


def test_dashes_in_a_png_have_gaps() -> None:
    scene = Scene(
        120, 20, "#ffffff", shapes=[ScenePath([np.array([[0.0, 10], [120, 10]])], "#000000", 2.0, (6.0, 6.0))]
    )
    row = np.asarray(Image.open(io.BytesIO(write_png(scene, 1.0))).convert("L"))[10]
    assert (np.diff((row < 128).astype(int)) == 1).sum() >= 8


def test_text_of_scripts_that_pillows_font_lacks_is_written_with_one_of_this_machine() -> None:
    from linnet.board.figure import fonts

    if not any("dejavusans" in path.lower() for path in fonts._files()):
        pytest.skip("this machine has no font with Greek")
    for text in ("Ελληνικά", "русский", "größe"):
        font = fonts.font_for(text, 20.0)
        blank = font.getmask("\uffff")
        assert all(bytes(font.getmask(c)) != bytes(blank) for c in text)
