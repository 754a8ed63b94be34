"""A report in a real browser, opened from the disk: nobody is asked for anything, and everything is there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from linnet.board.report.page import TEMPLATE
from linnet.board.report.page import Page as Template
from linnet.runs import start
from tests.board.conftest import ABOUT, append, steps, training, write
from tests.board.report.reports import make
from tests.board.report.test_report import HOSTILE, long_run

pytestmark = pytest.mark.skipif(not TEMPLATE.exists(), reason="the page is not built: make web")
DRAWN = ".chart-surface[data-drawn]"


@pytest.fixture
def offline(page: Page) -> Iterator[Page]:
    """A window in which a request that leaves the file, or a word on the console, fails the test."""
    problems: list[str] = []
    page.on("request", lambda request: problems.append(request.url) if is_foreign(request.url) else None)
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    yield page
    assert not problems


def is_foreign(address: str) -> bool:
    return not address.startswith(("file:", "blob:", "data:", "about:"))


@pytest.fixture
def runs(root: Path) -> Path:
    """A long run, a short one, and one whose every text is script."""
    long_run(root / "long", name="long", created_at=1_780_000_300.0)
    write(root / "short", training(), **{**ABOUT, "name": "short", "created_at": 1_780_000_200.0})
    hostile = {
        "name": HOSTILE,
        "experiment": HOSTILE,
        "recipe": HOSTILE,
        "tags": [HOSTILE],
        "config": {HOSTILE: HOSTILE},
    }
    events: list[Any] = [{**e, HOSTILE: 1.0 / e["step"]} if e["kind"] == "step" else e for e in training()]
    events.append({"kind": "sample", "t": 1.0, "step": 400, "prompt": HOSTILE, "text": HOSTILE})
    write(root / "hostile", events, **hostile)
    append(root / "hostile", [{"kind": "note", "t": 401.0, "text": HOSTILE, "at": "2026-05-28T20:33:20Z"}])
    return root


def open_report(page: Page, root: Path, address: str = "", **question: Any) -> str:
    path = root.parent / "report.html"
    path.write_bytes(make(root, page=Template(), **question).content)
    page.goto("about:blank")  # another hash alone would not load it anew
    page.goto(f"file://{path}{address}")
    return f"file://{path}"


def test_the_page_of_a_report_leaves_room_for_numbers_in_2_mb() -> None:
    assert Template().size < 500_000  # what the test of ten long runs leaves for it


def test_a_report_opens_with_its_charts_and_their_last_values(offline: Page, runs: Path) -> None:
    open_report(offline, runs, title=HOSTILE)
    offline.wait_for_selector(f"[data-key=loss] {DRAWN}")
    assert "#/charts" in offline.url
    assert HOSTILE.split("\u2028")[0] in offline.title()
    last = 2.2 + 5.5 * math.exp(-400 / 60) + 0.3 * math.sin(400 * 12.9898)
    row = offline.get_by_role("row").filter(has_text="short").or_(offline.locator(".side-row", has_text="short")).first
    expect(row).to_contain_text(f"{last:.4g}")
    expect(offline.locator("footer")).to_contain_text("Report of 3 runs")


def test_a_chart_of_a_report_is_zoomed_and_says_where_it_has_no_more(offline: Page, runs: Path) -> None:
    open_report(offline, runs, "#/charts?runs=long")
    surface = offline.locator("[data-key=loss] .chart-surface")
    offline.wait_for_selector(f"[data-key=loss] {DRAWN}")
    expect(offline.locator("footer")).not_to_contain_text("finer than this report holds")
    place = offline.locator("[data-key=loss] .chart-surface canvas").first.bounding_box()
    assert place is not None
    middle = place["y"] + place["height"] / 2
    offline.mouse.move(place["x"] + place["width"] * 0.5, middle)
    offline.mouse.down()
    offline.mouse.move(place["x"] + place["width"] * 0.6, middle, steps=4)
    offline.mouse.up()
    expect(surface).not_to_have_attribute("data-drawn-x", "all")
    begin, end = (float(x) for x in (surface.get_attribute("data-drawn-x") or "").split(":"))
    assert 3_500 < begin < end < 6_000
    assert re.search(r"range=[\d.]+:[\d.]+", offline.url)
    expect(offline.locator("footer")).to_contain_text("finer than this report holds: a point stands for 5 steps")
    offline.go_back()
    expect(surface).to_have_attribute("data-drawn-x", "all")


def test_the_last_rows_of_a_long_run_have_their_exact_values_in_a_report(offline: Page, runs: Path) -> None:
    open_report(offline, runs, "#/charts?runs=long&range=8900:8999&smooth=0&chart=tokens")
    offline.goto(offline.url.replace("chart=tokens", "chart=loss"))
    offline.wait_for_selector(f".full-chart {DRAWN}")
    offline.keyboard.press("End")
    tip = offline.locator(".chart-tip")
    expect(tip).to_contain_text("step 8,999")
    value = 2 + 5 * math.exp(-8999 / 900) + 0.1 * math.sin(8999 * 12.9898)
    expect(tip).to_contain_text(f"{value:.4g}")
    expect(offline.locator("footer")).not_to_contain_text("finer than this report holds")


def test_a_fork_has_its_parents_line_in_a_report(offline: Page, root: Path) -> None:
    long_run(root / "base")
    write(root / "fork", steps(4000, first=6_001), parent="base", parent_step=6_000)
    path = root.parent / "report.html"
    path.write_bytes(make(root, "fork", page=Template()).content)
    offline.goto(f"file://{path}#/charts?smooth=0")
    offline.wait_for_selector(f"[data-key=loss] {DRAWN}")
    box = offline.locator("[data-key=loss] .chart-surface").bounding_box()
    assert box is not None
    offline.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    expect(offline.locator("[data-key=loss] .chart-tip")).to_contain_text("fork · from base")


@pytest.mark.parametrize("axis", ["tokens", "epoch", "wall-time", "relative-time"])
def test_a_report_has_every_axis(offline: Page, runs: Path, axis: str) -> None:
    open_report(offline, runs, f"#/charts?runs=long,short&x={axis}&smooth=0.9")
    offline.wait_for_selector(f"[data-key=loss] {DRAWN}")


def test_script_in_every_field_of_a_report_is_text(offline: Page, runs: Path) -> None:
    said: list[str] = []
    offline.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    address = open_report(offline, runs, "#/runs")
    expect(offline.get_by_role("grid").get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
    for tab in ("", "/config", "/samples", "/notes", "/log"):
        offline.goto(f"{address}#/run/hostile{tab}")
        expect(offline.get_by_text("</script>").first).to_be_attached()
    assert offline.locator("img[src=x]").count() == 0
    assert said == []


def test_the_table_of_a_report_is_filtered_sorted_and_grouped(offline: Page, runs: Path) -> None:
    address = open_report(offline, runs, "#/runs?q=step%3E0%20name:short")
    expect(offline.get_by_text("1 of 3 runs").or_(offline.get_by_text("1 run")).first).to_be_visible()
    offline.goto(f"{address}#/runs?q=loss%3C")
    expect(offline.get_by_text("expected a value after").first).to_be_visible()
    offline.goto(f"{address}#/runs?group=recipe&q=")
    expect(offline.get_by_text("from-scratch").first).to_be_visible()


def test_images_of_a_report_are_in_it_and_what_is_left_out_is_named(offline: Page, root: Path, tmp_path: Path) -> None:
    with start(root, run_id="media") as run:
        for step in (1, 2):
            run.log(step, {"loss": 1.0 / step})
            run.image(step, "noise", [[0.0, 1.0], [1.0, 0.0]])
            run.text(step, "words", "</script>words")
    open_report(offline, root, "#/run/media/artifacts")
    image = offline.locator(".picture img")
    expect(image).to_have_attribute("src", re.compile("^blob:"))
    assert image.evaluate("img => img.decode().then(() => img.naturalWidth)") == 2
    open_report(offline, root, "#/run/media/artifacts", files=0)
    expect(offline.get_by_text("Not in this report").first).to_be_visible()
    offline.get_by_role("button", name=re.compile("left out")).click()
    expect(offline.get_by_role("dialog")).to_contain_text("noise of step 2")


def test_script_in_a_picture_of_a_report_does_not_run(offline: Page, root: Path) -> None:
    said: list[str] = []
    offline.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="alert(1)"><script>alert(2)</script></svg>'
    )
    folder = write(root / "svg", training(), **ABOUT)
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "plot.svg").write_text(svg)
    about = {"kind": "artifact", "t": 1.0, "step": 1, "name": "plot", "media": "image", "path": "artifacts/plot.svg"}
    append(folder, [about])
    open_report(offline, root, "#/run/svg/artifacts")
    image = offline.locator(".picture img")
    assert image.evaluate("img => img.decode().then(() => img.naturalWidth)") == 9
    assert said == []


def test_nothing_of_a_report_can_be_changed(offline: Page, runs: Path) -> None:
    open_report(offline, runs, "#/run/short/notes")
    expect(offline.get_by_text("the good seed; keep")).to_be_visible()
    assert offline.get_by_role("button", name="Add note").count() == 0


def test_the_theme_of_a_report_is_its_own(offline: Page, runs: Path) -> None:
    open_report(offline, runs, theme="dark")
    offline.wait_for_selector(f"[data-key=loss] {DRAWN}")
    assert offline.evaluate("document.documentElement.dataset.theme") == "dark"
