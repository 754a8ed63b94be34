"""The charts page in a real browser: what hands, keys and the address do to charts of real folders."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from linnet.runs import start
from tests.board.conftest import ABOUT, append, steps, training, write

DRAWN = ".chart-surface[data-drawn]"


@pytest.fixture
def runs(root: Path) -> Path:
    """Three runs that differ in their learning rate; two of them in nothing else but the seed."""
    for name, rate, seed in (("wide", 3e-4, 1), ("narrow", 1e-4, 1), ("again", 3e-4, 2)):
        write(root / name, training(0.1 * seed), **{**ABOUT, "config": {"lr": rate, "seed": seed}})
    return root


def look(page: Page, served: str, address: str = "#/charts?runs=wide,narrow") -> None:
    page.goto(served + address)
    page.wait_for_selector(f"[data-key=loss] {DRAWN}")


def keys(page: Page, section: str = "training") -> list[str]:
    cells = page.locator(f'[aria-label="{section} charts"] .chart-cell')
    return [cell.get_attribute("data-key") or "" for cell in cells.all()]


def box(page: Page, key: str = "loss") -> dict[str, float]:
    """The rectangle between the axes, roughly."""
    outer = page.locator(f'[data-key="{key}"] .chart-surface').bounding_box()
    assert outer is not None
    return {"x": outer["x"] + 46, "y": outer["y"] + 8, "width": outer["width"] - 56, "height": outer["height"] - 30}


def test_the_loss_and_its_held_out_loss_share_a_chart_and_constants_are_folded(
    page: Page, served: str, runs: Path
) -> None:
    look(page, served)
    first = page.locator(".chart-cell").first
    assert first.get_attribute("data-key") == "loss"
    assert "held out" in first.inner_text()
    assert page.get_by_text("constant hidden").first.is_visible()
    assert "tokens" not in keys(page)
    page.keyboard.press("z")
    page.wait_for_selector('[data-key="tokens"]')


def test_a_drag_zooms_with_finer_series_and_back_goes_back(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    place = box(page)
    middle = place["y"] + place["height"] / 2
    page.mouse.move(place["x"] + place["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.5, middle, steps=4)
    page.mouse.up()
    surface = page.locator("[data-key=loss] .chart-surface")
    expect(surface).not_to_have_attribute("data-drawn-x", "all")
    begin, end = (float(x) for x in (surface.get_attribute("data-drawn-x") or "").split(":"))
    assert begin == pytest.approx(100, abs=6) and end == pytest.approx(200, abs=6)
    assert re.search(r"range=[\d.]+:[\d.]+", page.url)
    page.go_back()
    expect(surface).to_have_attribute("data-drawn-x", "all")


def test_the_chart_of_a_fork_begins_with_its_parents_line(page: Page, served: str, root: Path) -> None:
    values = {"loss": lambda step: 2 + 6 / step, "lr": lambda step: step / 1000}
    write(root / "base", steps(1000, **values))
    write(root / "fork", steps(300, first=601, **values), parent="base", parent_step=600)
    look(page, served, "#/charts?runs=fork&smooth=0")
    place, tip = box(page), page.locator("[data-key=loss] .chart-tip")
    page.mouse.move(place["x"] + place["width"] / 3, place["y"] + place["height"] / 2)
    expect(tip).to_contain_text("fork · from base")
    expect(tip).to_contain_text(re.compile(r"step (29|30)\d"))
    page.mouse.move(place["x"] + place["width"] * 0.8, place["y"] + place["height"] / 2)
    expect(tip).to_contain_text("fork")
    expect(tip).not_to_contain_text("from base")
    look(page, served, "#/charts?runs=base,fork&smooth=0")
    page.mouse.move(place["x"] + place["width"] / 4, place["y"] + place["height"] / 2)
    expect(tip).to_contain_text("base")
    expect(tip).not_to_contain_text("fork")


def test_one_cursor_goes_through_all_charts_with_exact_values(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    place = box(page)
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] * 0.6)
    tip = page.locator("[data-key=loss] .chart-tip")
    expect(tip).to_be_visible()
    text = tip.inner_text()
    step = int(re.search(r"step (\d+)", text)[1])  # type: ignore[index]
    logged = 2.2 + 5.5 * math.exp(-step / 60) + 0.1 * math.sin(step * 12.9898)
    assert "wide" in text and "narrow" in text
    raw = [float(value) for value in re.findall(r"raw ([\d.]+)", text)]
    assert raw and min(abs(value - logged) for value in raw) < 1e-3
    assert page.locator("[data-key=grad_norm] .chart-cursor").is_visible()
    assert re.fullmatch(r"[\d.e-]+", page.locator("[data-key=grad_norm] .chart-readout").inner_text())
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def test_keys_pin_move_hide_and_forget(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    before = keys(page)
    page.locator('[data-key="grad_norm"]').focus()
    page.keyboard.press("(")
    page.wait_for_timeout(50)
    assert keys(page).index("grad_norm") == max(0, before.index("grad_norm") - 1)
    page.keyboard.press("p")
    page.wait_for_selector('[aria-label="pinned charts"] [data-key="grad_norm"]')
    assert "pin=grad_norm" in page.url
    page.locator('[data-key="lr"]').focus()
    page.keyboard.press("h")
    page.wait_for_selector('[data-key="lr"]', state="detached")
    page.reload()  # remembered, and in the address
    page.wait_for_selector('[aria-label="pinned charts"] [data-key="grad_norm"]')
    page.goto(served + "#/runs")
    page.wait_for_selector("text=wide")
    page.goto(served + "#/charts")  # an address that says nothing gets what was remembered
    page.wait_for_selector('[aria-label="pinned charts"] [data-key="grad_norm"]')
    page.keyboard.press("Z")
    page.wait_for_selector('[data-key="lr"]')
    assert page.locator('[aria-label="pinned charts"]').count() == 0


def test_a_chart_is_resized_by_keys_and_by_its_corner(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    cell = page.locator('[data-key="grad_norm"]')
    before = cell.bounding_box()
    assert before is not None
    cell.focus()
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_timeout(50)
    wider = cell.bounding_box()
    assert wider is not None and wider["width"] > 1.8 * before["width"]
    page.mouse.move(wider["x"] + wider["width"] - 5, wider["y"] + wider["height"] - 5)
    page.mouse.down()
    page.mouse.move(wider["x"] + before["width"] + 10, wider["y"] + 2 * before["height"] + 10, steps=5)
    page.mouse.up()
    after = cell.bounding_box()
    assert after is not None and after["width"] == pytest.approx(before["width"], abs=2)
    assert after["height"] > 1.8 * before["height"]


def test_the_address_holds_the_view(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    for key in ("x", "l", "o", "S"):
        page.keyboard.press(key)
    page.get_by_label("filter charts by name").fill("loss")
    page.wait_for_timeout(100)
    assert all(word in page.url for word in ("x=tokens", "log=1", "clip=1", "smooth=0.7", "charts=loss"))
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(f"[data-key=loss] {DRAWN}")
    assert other.get_by_role("radio", name="tokens").get_attribute("aria-checked") == "true"
    assert [cell.get_attribute("data-key") for cell in other.locator(".chart-cell").all()] == ["loss"]


def test_seeds_become_a_mean_with_its_spread(page: Page, served: str, runs: Path) -> None:
    look(page, served, "#/charts?runs=wide,narrow,again&mean=all%20but%20seed&legend=1&smooth=0")
    legend = page.locator("[data-key=loss] .legend")
    expect(legend).to_contain_text("lr 0.0003 (2)")
    assert legend.get_by_text(re.compile("^lr 0.0001$")).count() == 1


def test_a_chart_opens_on_the_whole_page_and_arrows_move_its_cursor(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.locator("[data-key=loss]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(f".full-chart {DRAWN}")
    assert "chart=loss" in page.url
    page.keyboard.press("End")
    expect(page.locator(".chart-tip")).to_contain_text("step 400")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".chart-tip")).not_to_contain_text("step 400")
    page.keyboard.press("]")
    expect(page.locator(".full-chart h2")).not_to_have_text("loss")
    page.keyboard.press("Escape")
    page.wait_for_selector(".chart-cell")


def test_a_chart_is_saved_as_png_svg_and_csv(page: Page, served: str, runs: Path, tmp_path: Path) -> None:
    look(page, served, "#/charts?runs=wide,narrow&smooth=0")
    for kind in ("PNG", "SVG", "CSV"):
        page.locator("[data-key=loss]").hover()
        page.get_by_role("button", name="more about loss").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=f"save as {kind}").click()
        download.value.save_as(tmp_path / f"loss.{kind.lower()}")
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    texts = [element.text for element in ElementTree.parse(tmp_path / "loss.svg").iter() if element.text]
    assert "wide" in texts and "narrow · held out" in texts
    rows = list(csv.DictReader((tmp_path / "loss.csv").open()))
    logged = {(row["run"], row["metric"], row["step"]): float(row["value"]) for row in rows}
    assert len(rows) == 2 * (400 + 8)
    expected = 2.2 + 5.5 * math.exp(-7 / 60) + 0.1 * math.sin(7 * 12.9898)
    assert logged["wide", "loss", "7"] == pytest.approx(expected, abs=1e-12)


def test_the_table_behind_a_chart_is_there_for_ears_and_eyes(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    table = page.locator("[data-key=loss] table")
    expect(table).to_contain_text("wide")
    assert table.locator("caption").inner_text().startswith("loss")
    page.locator("[data-key=loss]").hover()
    page.get_by_role("button", name="more about loss").click()
    page.get_by_role("menuitemcheckbox", name="table").click()
    expect(page.locator("[data-key=loss] .chart-table")).to_be_visible()


def test_live_rows_arrive_without_a_fetch(page: Page, served: str, root: Path) -> None:
    with start(root, run_id="live") as run:
        for step in range(1, 101):
            run.log(step, {"loss": 2 + 6 / step})
        asked: list[str] = []
        look(page, served, "#/charts?runs=live")
        surface = page.locator("[data-key=loss] .chart-surface")
        expect(surface).to_have_attribute("data-drawn", "100")
        page.wait_for_timeout(600)  # until the stream follows these series
        page.on("request", lambda request: asked.append(request.url))
        for step in range(101, 106):
            run.log(step, {"loss": 2 + 6 / step})
        expect(surface).to_have_attribute("data-drawn", "105")
        assert not [url for url in asked if "api/series" in url]


def test_runs_beside_those_whose_charts_are_followed_stay_live_too(page: Page, served: str, root: Path) -> None:
    """The list beside the charts: how another run stands; below them: what a run wrote that has no live series."""
    sample = {"kind": "sample", "t": 401.0, "step": 400, "prompt": "def main("}
    ended = write(root / "ended", training(), **ABOUT)
    with start(root, run_id="live") as run, start(root, run_id="other") as other:
        run.log(1, {"loss": 2.0})
        other.log(1, {"loss": 3.0})
        look(page, served, "#/charts?runs=live,ended")
        beside = page.locator(".side-row").filter(has_text="other").locator(".progress")
        expect(beside).to_have_text("live, step 1")
        page.wait_for_timeout(600)  # until the stream follows the series of the live run
        other.log(20, {"loss": 1.0})
        expect(beside).to_have_text("live, step 20")
        append(ended, [{**sample, "text": "the very latest words"}])
        expect(page.locator('[aria-label="latest samples"]')).to_contain_text("the very latest words")
        page.get_by_label("Filter runs").fill("run:live")
        expect(page.locator(".side-row[id]")).to_have_count(1)
        other.finish()
        page.get_by_label("Filter runs").fill("status:completed")
        expect(page.locator(".side-row").filter(has_text="other").locator(".progress")).to_have_text("20")


def test_of_very_many_lines_the_one_pointed_at_has_its_band(page: Page, served: str, root: Path) -> None:
    for number in range(26):
        loss = lambda step, number=number: 2.0 + number + (step % 2) / 2  # noqa: E731
        write(root / f"run-{number:02}", [*steps(3000, loss=loss), *training()[-1:]], **ABOUT)
    look(page, served, "#/charts?runs=" + ",".join(f"run-{number:02}" for number in range(26)) + "&smooth=0")
    filled = """() => {
        const fill = CanvasRenderingContext2D.prototype.fill;
        window.filled = 0;
        CanvasRenderingContext2D.prototype.fill = function (...path) {
            if (this.globalAlpha > 0.1 && this.globalAlpha < 0.2) window.filled++;
            return fill.apply(this, path);
        };
    }"""
    page.evaluate(filled)
    page.locator(".side-row").filter(has_text="run-07").hover()
    page.wait_for_function("window.filled > 0")


def test_what_a_resume_replaced_is_shown_on_demand(page: Page, served: str, root: Path) -> None:
    resumed: list[dict[str, Any]] = [
        *steps(60, loss=lambda step: 8 - step / 10),
        {"kind": "resume", "t": 61.0, "step": 40},
        *steps(40, 41, loss=lambda step: 6 - step / 50),
    ]
    write(root / "resumed", resumed, **ABOUT)
    append(root / "resumed", [{"kind": "run_end", "t": 110.0, "reason": "completed", "final_step": 80, "exit_code": 0}])
    look(page, served, "#/charts?runs=resumed&legend=1")
    assert "replaced" not in page.locator("[data-key=loss] .legend").inner_text()
    page.keyboard.press("F")
    expect(page.locator("[data-key=loss] .legend")).to_contain_text("resumed, replaced")


def test_a_chart_is_dragged_to_another_place(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    first, second = keys(page)[:2]
    page.locator(f'[data-key="{second}"]').hover()
    page.locator(f'[data-key="{second}"] .chart-grip').hover()
    page.mouse.down()
    place = box(page, first)
    page.mouse.move(place["x"] + 20, place["y"] + 20, steps=6)
    page.mouse.up()
    expect(page.locator('[aria-label="training charts"] .chart-cell').first).to_have_attribute("data-key", second)
    assert f"order={second},{first}" in page.url


def test_an_axis_that_a_metric_does_not_tell_is_said(page: Page, served: str, root: Path) -> None:
    write(root / "plain", steps(30), **ABOUT)
    look(page, served, "#/charts?runs=plain")
    page.goto(served + "#/charts?runs=plain&x=tokens")
    expect(page.get_by_text("no rows that tell of tokens")).to_be_visible()


def test_a_chart_stays_selected_where_it_is_pinned_and_after_it_filled_the_page(
    page: Page, served: str, runs: Path
) -> None:
    look(page, served)
    selected = "document.activeElement.closest('.chart-cell')?.dataset.key ?? null"
    page.locator('[data-key="grad_norm"]').focus()
    page.keyboard.press("p")
    expect(page.locator(".chart-cell").first).to_have_attribute("data-key", "grad_norm")
    assert page.evaluate(selected) == "grad_norm"
    page.keyboard.press("p")
    expect(page.locator(".chart-cell").first).to_have_attribute("data-key", "loss")
    assert page.evaluate(selected) == "grad_norm"
    page.keyboard.press("Enter")
    expect(page.locator(".full-chart")).to_be_focused()
    page.keyboard.press("]")
    other = page.locator(".full-chart h2")
    expect(other).not_to_have_text("grad_norm")
    turned_to = other.inner_text()
    page.keyboard.press("[")
    expect(other).to_have_text("grad_norm")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"[data-key=loss] {DRAWN}")
    assert page.evaluate(selected) == "grad_norm"
    page.keyboard.press("Enter")
    page.keyboard.press("]")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"[data-key=loss] {DRAWN}")
    assert page.evaluate(selected) == turned_to
    page.keyboard.press("h")
    expect(page.locator(f'[data-key="{turned_to}"]')).to_have_count(0)
