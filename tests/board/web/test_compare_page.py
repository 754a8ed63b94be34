"""Compare, and the pages across runs, in a real browser over real folders."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from linnet.runs import start

RUNS = [f"run-{number}" for number in range(6)]


@pytest.fixture
def sweep(root: Path) -> Path:
    """Six runs: the greater the rate, the worse the loss; one of them did not come to an end."""
    for number, name in enumerate(RUNS):
        config = {"lr": 10.0 ** (number - 6), "optimizer": ["adamw", "muon"][number % 2], "batch": 8}
        with start(root, run_id=name, config=config) as run:
            for step in range(1, 21):
                run.log(step, {"loss": 2.0 + number / 10 + 1 / step, "validation/loss": 2.1 + number / 10 + 1 / step})
            run.sample(20, "The whale", f"The whale was number {number}")
    return root


def compare(page: Page, served: str, runs: list[str], parameters: str = "") -> None:
    page.goto(f"{served}#/compare?runs={','.join(runs)}{parameters}")
    expect(page.locator("section[aria-label=Results]")).to_be_visible()


def test_differences_stand_first_and_the_best_is_marked(page: Page, served: str, sweep: Path) -> None:
    compare(page, served, RUNS[:3])
    rows = page.locator('[aria-label="Settings of each run"] tbody th')
    assert rows.all_inner_texts() == ["config.lr", "config.optimizer"]
    page.get_by_role("button", name="equal ones too").click()
    assert "config.batch" in rows.all_inner_texts()
    assert page.locator("td.best").count() == 2
    assert page.locator("tr", has=page.locator("td.best")).all_inner_texts()[0].startswith("run-0")
    expect(page.locator("section[aria-label=Metrics] .chart-surface[data-drawn]")).to_have_count(1)


def test_three_runs_prove_nothing_and_six_are_told_with_their_interval(page: Page, served: str, sweep: Path) -> None:
    section = page.locator('[aria-label="Correlation of settings with a result"]')
    compare(page, served, RUNS[:3])
    expect(section).to_contain_text("3 runs with this result tell nothing")
    compare(page, served, RUNS)
    rate = section.locator("tbody tr", has_text="config.lr")
    expect(rate).to_contain_text("+1.00")
    expect(rate).to_contain_text("more of it: worse")


def test_a_scatter_has_a_log_axis_over_decades_and_is_saved(page: Page, served: str, sweep: Path) -> None:
    compare(page, served, RUNS)
    scatter = page.locator(".scatter")
    expect(scatter.locator(".point")).to_have_count(6)
    expect(scatter.locator(".axis-name")).to_have_text("config.lr, log")
    for kind in ("CSV", "SVG", "PNG"):
        scatter.get_by_role("button", name=re.compile("^save")).click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=f"save as {kind}").click()
        content = download.value.path().read_bytes()
        if kind == "CSV":
            rows = list(csv.reader(content.decode().splitlines()))
            assert rows[0] == ["run", "config.lr", "validation/loss"] and len(rows) == 7
        else:
            assert content.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    page.locator("label.choice", has_text="setting").locator("select").select_option("config.optimizer")
    expect(scatter.locator(".axis-name")).to_have_text("config.optimizer")
    assert "against=config.optimizer" in page.url


def test_brushing_an_axis_filters_and_dragging_its_name_moves_it(page: Page, served: str, sweep: Path) -> None:
    compare(page, served, RUNS)
    area = page.locator(".brush-area").first
    place = area.bounding_box()
    assert place is not None
    area.hover(position={"x": 14, "y": place["height"] * 0.45})
    page.mouse.down()
    area.hover(position={"x": 14, "y": place["height"] - 2})
    page.mouse.up()
    expect(page.get_by_text("3 of 6 runs pass")).to_be_visible()
    assert "brush=config.lr" in page.url
    page.get_by_role("button", name="only these 3").click()
    expect(page.locator("section[aria-label=Results] tbody tr")).to_have_count(3)
    page.go_back()
    expect(page.locator("section[aria-label=Results] tbody tr")).to_have_count(6)
    page.locator(".axis-handle").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".axis-handle").nth(1)).to_contain_text("config.lr")
    assert re.search("axes=config.optimizer,config.lr", page.url)


def test_samples_of_selected_runs_stand_side_by_side(page: Page, served: str, sweep: Path) -> None:
    page.goto(f"{served}#/samples?runs=run-0,run-4&marks=first")
    texts = page.locator(".sample pre")
    expect(texts).to_have_count(2)
    expect(texts.nth(1)).to_have_text("The whale was number 4")
    expect(texts.nth(1).locator("mark")).to_have_text("4")
