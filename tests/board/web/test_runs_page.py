"""The table of runs and the frame around all pages, in a real browser over real folders."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from linnet.runs import selection
from tests.board.conftest import ABOUT, steps, training, write

ROW = ".run-row[id]"


@pytest.fixture
def runs(root: Path) -> Path:
    """Four runs in two experiments; one of them a fork of another."""
    for name, rate, experiment, parent, tags in (
        ("wide", 3e-4, "grid", None, ["baseline"]),
        ("narrow", 1e-4, "grid", None, []),
        ("deep", 2e-3, "depth", None, ["keep"]),
        ("deep-fork", 1e-3, "depth", "deep", []),
    ):
        about = {**ABOUT, "name": None, "experiment": experiment, "parent": parent, "tags": tags}
        write(root / name, training(0.1 + rate), **{**about, "config": {"lr": rate, "seed": 1}})
    return root


def look(page: Page, served: str, address: str = "#/runs") -> None:
    page.goto(served + address)
    page.wait_for_selector(ROW)


def names(page: Page) -> list[str]:
    return page.locator(f"{ROW} .row-name a").all_inner_texts()


def mark(page: Page, *runs: str) -> None:
    for run in runs:
        page.get_by_label(f"Mark {run}", exact=True).click()


def tags_of(run: Path) -> list[str]:
    return sorted(json.loads((run / "run.json").read_text())["tags"])


def test_a_filter_leaves_what_fits_and_is_in_the_address(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.keyboard.press("/")
    page.keyboard.type("lr>=1e-3 experiment:depth")
    expect(page.locator(ROW)).to_have_count(2)
    assert sorted(names(page)) == ["deep", "deep-fork"]
    expect(page).to_have_url(re.compile(r"q=lr"))
    page.reload()
    expect(page.locator(ROW)).to_have_count(2)
    assert page.get_by_label("Filter runs").input_value() == "lr>=1e-3 experiment:depth"


def test_a_filter_that_means_nothing_says_why_while_it_is_typed(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.keyboard.press("/")
    page.keyboard.type("loss<")
    expect(page.locator("#filter-problem")).to_contain_text("expected a value")
    expect(page.locator(ROW)).to_have_count(4)  # half typed, it hides nothing


def test_a_name_that_no_run_has_is_said(page: Page, served: str, runs: Path) -> None:
    look(page, served, "#/runs?q=lrr<2")
    expect(page.locator("#filter-problem")).to_have_text("no run here has a setting or metric 'lrr'; did you mean lr?")
    expect(page.locator(ROW)).to_have_count(4)


def test_an_order_that_takes_long_to_read_comes_in_parts_and_says_so(
    page: Page, served: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.route("**/api/curves*", lambda route: route.abort())  # which read best values of what is on the screen
    look(page, served)
    reading = selection.read_figures

    def slowly(folder: str, *wanted: Any, **options: Any) -> Any:
        time.sleep(0.6)
        return reading(folder, *wanted, **options)

    monkeypatch.setattr(selection, "read_figures", slowly)
    page.get_by_role("button", name="best").click()
    expect(page.get_by_role("status").filter(has_text=re.compile(r"reading \d more runs? …"))).to_be_visible()
    ordered = ["deep", "deep-fork", "wide", "narrow"]
    expect(page.locator(ROW).locator(".row-name a")).to_have_text(ordered, timeout=15_000)
    expect(page.get_by_text("more run")).to_have_count(0)


def test_names_and_values_are_suggested(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.keyboard.press("/")
    page.keyboard.type("exper")
    page.get_by_role("option", name="experiment:").wait_for()
    page.keyboard.press("Tab")
    page.get_by_role("option", name="experiment:depth").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Filter runs")).to_have_value("experiment:depth")
    expect(page.locator(ROW)).to_have_count(2)


def test_a_click_on_a_head_orders_another_turns_it_round(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    head = page.locator(".run-head").get_by_role("button", name=re.compile(r"^lr"))
    head.click()
    expect(page.locator(f"{ROW} .row-name").first).to_have_text("narrow")
    head.click()
    expect(page.locator(f"{ROW} .row-name").first).to_have_text("deep")
    expect(page.get_by_role("columnheader", name=re.compile(r"^lr"))).to_have_attribute("aria-sort", "descending")
    page.go_back()
    expect(page.locator(f"{ROW} .row-name").first).to_have_text("narrow")


def test_groups_have_their_number_and_fold(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.get_by_label("group by").select_option("experiment")
    group = page.get_by_role("button", name=re.compile(r"depth.*2 runs.*best"))
    group.click()
    expect(page.locator(ROW)).to_have_count(2)
    expect(group).to_have_attribute("aria-expanded", "false")
    assert sorted(names(page)) == ["narrow", "wide"]


def test_forks_stand_below_their_parents(page: Page, served: str, runs: Path) -> None:
    look(page, served, "#/runs?tree=1")
    lines = page.locator(f"{ROW} .row-name").all_inner_texts()
    assert lines[lines.index("deep") + 1] == "└─ deep-fork"


def test_columns_are_chosen_and_remembered_for_the_folder(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.keyboard.press("C")
    page.get_by_label("Find a column").fill("best(loss)")
    page.keyboard.press("Enter")
    page.get_by_label("Without config.lr").click()
    page.get_by_role("button", name="Done").click()
    heads = page.locator(".run-head")
    expect(heads).to_contain_text("best(loss)")
    expect(heads).not_to_contain_text("lr")
    look(page, served)  # an address without a word about columns
    page.reload()
    expect(heads).to_contain_text("best(loss)")


def test_runs_are_marked_by_clicks_with_shift_and_by_keys(page: Page, served: str, runs: Path) -> None:
    look(page, served, "#/runs?sort=run")
    order = names(page)
    mark(page, order[0])
    page.get_by_label(f"Mark {order[2]}", exact=True).click(modifiers=["Shift"])
    expect(page.locator(".marked-bar")).to_contain_text("3 runs marked")
    page.keyboard.press("u")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.locator(".marked-bar")).to_contain_text("1 run marked")
    expect(page).to_have_url(re.compile(f"runs={order[3]}$"))
    page.keyboard.press("Control+a")
    expect(page.locator(".marked-bar")).to_contain_text("4 runs marked")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/charts"))


def test_tags_are_given_to_many_and_taken_back(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    mark(page, "wide", "narrow")
    page.keyboard.press("#")
    page.keyboard.type("good")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".run-tag", has_text="good")).to_have_count(2)
    assert tags_of(runs / "wide") == ["baseline", "good"]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".run-tag", has_text="good")).to_have_count(0)
    assert tags_of(runs / "wide") == ["baseline"]


def test_a_run_gets_a_name_and_a_note(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    mark(page, "wide")
    page.keyboard.press("F2")
    page.keyboard.type("the wide one")
    page.keyboard.press("Enter")
    expect(page.locator(f"{ROW} .row-name", has_text="the wide one")).to_have_count(1)
    page.keyboard.press("n")
    page.keyboard.type("looks good")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".toasts")).to_contain_text("noted of the wide one")
    assert "looks good" in (runs / "wide" / "events.jsonl").read_text()


def test_deleting_asks_tells_the_size_and_can_be_undone(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    mark(page, "narrow")
    page.keyboard.press("Delete")
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"\d kB with checkpoints"))
    page.get_by_role("button", name="Keep").click()
    assert (runs / "narrow").is_dir()
    page.keyboard.press("Delete")
    page.get_by_role("button", name=re.compile(r"^Delete \d")).click()
    expect(page.locator(ROW)).to_have_count(3)
    assert not (runs / "narrow").exists()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(ROW)).to_have_count(4)
    assert (runs / "narrow").is_dir()


def test_hidden_runs_are_listed_on_demand(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    mark(page, "deep")
    page.keyboard.press("h")
    expect(page.locator(ROW)).to_have_count(3)
    page.get_by_role("button", name="hidden", exact=True).click()
    expect(page.locator(ROW)).to_have_count(4)


def test_of_many_runs_only_those_on_the_screen_are_drawn(page: Page, served: str, root: Path) -> None:
    for number in range(300):
        write(root / f"run-{number:03}", steps(1, 4), **{**ABOUT, "name": None})
    look(page, served, "#/runs?sort=run")
    expect(page.locator(".count-bar")).to_contain_text("300 runs")
    assert page.locator(ROW).count() < 60
    page.keyboard.press("End")
    expect(page.locator("[id='row-run-299']")).to_be_visible()
    assert page.locator(ROW).count() < 60


def test_the_palette_finds_commands_and_runs(page: Page, served: str, runs: Path) -> None:
    look(page, served)
    page.keyboard.press("Control+k")
    page.keyboard.type("deep fo")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/run/deep-fork"))
    page.keyboard.press("Control+k")
    page.keyboard.type("light or dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")  # remembered


def test_an_empty_folder_says_what_to_type_and_shows_the_first_run_by_itself(
    page: Page, served: str, root: Path
) -> None:
    page.goto(served)
    expect(page.locator("main")).to_contain_text("linnet demo --runs")
    write(root / "first", training(), **{**ABOUT, "name": None})
    expect(page.locator(ROW)).to_have_count(1)


def test_on_a_phone_the_list_of_runs_is_a_sheet(page: Page, served: str, runs: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    look(page, served)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(served + "#/charts")
    page.get_by_role("button", name=re.compile("runs shown")).click()
    page.get_by_role("dialog").get_by_label("Show wide").click()
    expect(page).to_have_url(re.compile("runs="))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
