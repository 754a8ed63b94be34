"""The inside of a real training in a real browser: heat maps, histograms, times, the graph, findings, attention."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import linnet
from linnet.runs.run import add_image, add_numbers
from tests.board.conftest import ABOUT, append, training, write
from tests.board.web.test_in_a_browser import AXE

VIEWS = ("layers", "spread", "time", "graph", "alike", "tokens", "found", "attention")


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was looked into, and what an analysis found of it; made once."""
    folder = tmp_path_factory.mktemp("inspected")
    (folder / "words.txt").write_text("the whale was white and the sea was wide\n" * 200)
    shape: dict[str, Any] = {"vocab": 270, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "ctx": 16}
    linnet.train(
        "from-scratch",
        corpus=str(folder / "words.txt"),
        runs=folder / "runs",
        run_id="seen",
        batch=4,
        steps=12,
        eval_every=6,
        eval_tokens=512,
        held_out=0.2,
        inspect="taps,gram,grads,drift,regions@3",
        compile="off",
        device="cpu",
        cache=folder / "cache",
        **shape,
    )
    run = linnet.open("seen", folder / "runs")
    add_numbers(run, "cka", 12, {"rows": ["embd", "0"], "columns": ["embd", "0"], "cka": [[1.0, 0.25], [0.25, 1.0]]})
    add_image(run, "cka", 12, b"\x89PNG", (4, 4), "cka: embd and 0 differ")
    return run.path


@pytest.fixture
def seen(inspected: Path, root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(inspected, root / "seen", symlinks=True)
    return root / "seen"


def open_view(page: Page, served: str, view: str, parameters: str = "") -> None:
    page.goto(f"{served}#/run/seen/inside?see={view}{parameters}")
    expect(page.locator(".inside [aria-checked=true]").first).to_be_visible()


def test_a_click_on_a_cell_shows_its_curve_and_its_histogram(page: Page, served: str, seen: Path) -> None:
    page.goto(f"{served}#/run/seen/charts")
    page.locator(".tabs a", has_text="Inside").click()
    std = linnet.open("seen", seen.parent).inspection().taps.heat_map("std", "resid_post_block")
    assert std.steps.tolist() == [1, 3, 6, 9, 12]
    told = page.locator(".heat-told").first
    expect(told).to_contain_text("layer 0 · step 12")
    heat = page.locator("svg.choosable")
    box, cells = heat.bounding_box(), page.locator("svg.choosable image").bounding_box()
    assert box is not None and cells is not None
    page.mouse.click(cells["x"] + cells["width"] * 0.5, cells["y"] + cells["height"] * 0.75)  # the third look, layer 1
    expect(told).to_contain_text(f"layer 1 · step 6: {std.values[1, 2]:.4g}"[:30])
    expect(page.locator("section[aria-label=Histogram]")).to_contain_text("resid_post_block of layer 1 at step 6")
    expect(page.locator("section[aria-label='Over the steps'] path.line")).to_have_count(1)
    assert re.search(r"row=resid_post_block;1&step=6|step=6&row=resid_post_block;1", page.url.replace("%3B", ";"))
    page.reload()
    expect(told).to_contain_text("layer 1 · step 6")
    heat.focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text("layer 1 · step 9")
    heat.locator("text", has_text=re.compile("^0$")).click()
    expect(told).to_contain_text("layer 0 · step 9")


def test_gradients_and_distances_are_chosen_and_kept_in_the_address(page: Page, served: str, seen: Path) -> None:
    open_view(page, served, "layers")
    page.get_by_role("radio", name="gradients and updates").click()
    expect(page.locator(".legend-scale")).to_contain_text("update by weight")
    page.get_by_label("figure").select_option("l2")
    page.get_by_label("of", exact=True).select_option("attn_q.weight")
    page.get_by_role("button", name="heads").click()
    expect(page.locator(".heat-told").first).to_contain_text("head 0 · step 12")
    assert "of=grads" in page.url and "heads=1" in page.url
    page.get_by_role("radio", name="distance from the start").click()
    expect(page.locator(".legend-scale")).to_contain_text("distance from the first weights")


def test_histograms_times_graph_and_likeness(page: Page, served: str, seen: Path) -> None:
    open_view(page, served, "spread")
    expect(page.locator(".ridges .ridge")).to_have_count(5)
    open_view(page, served, "time")
    rows = page.locator(".regions tbody tr")
    expect(rows.first).to_contain_text("step")
    page.get_by_role("button", name="blocks.0").first.click()
    expect(page.locator(".regions tbody")).to_contain_text("attn_qkv")
    tree = linnet.open("seen", seen.parent).inspection().regions()
    expect(page.locator(".toolbar").nth(1)).to_contain_text(f"{tree.us / 1000:.4g}"[:3])
    open_view(page, served, "graph", "&fold=layers")
    expect(page.locator(".flow .note").first).to_be_attached()
    page.locator(".flow .handle", has_text="blocks.1").click()
    expect(page.locator(".flow-details")).to_contain_text("resid_post_block.1")
    expect(page.locator(".flow-details")).to_contain_text("forwards")
    open_view(page, served, "alike")
    expect(page.locator(".heat .in-cell").first).to_have_text("1")
    open_view(page, served, "found")
    expect(page.locator(".inside-result .in-cell")).to_have_text(["1", "0.25", "0.25", "1"])


def test_what_heads_look_at_is_computed_when_somebody_asks(page: Page, served: str, seen: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in seen.rglob("*") if ".cache" not in path.parts}
    open_view(page, served, "attention")
    page.get_by_role("textbox").fill("the whale")
    page.get_by_role("button", name="Look").click()
    heads = page.locator(".heads .head")
    expect(heads).to_have_text(["mean", "head 0", "head 1"], timeout=60_000)
    expect(page.locator(".heat .in-cell").first).to_have_text("1"), "the first token sees itself alone"
    heads.nth(2).click()
    expect(page.locator(".legend-scale")).to_contain_text("attention of head 1")
    page.get_by_label("layer", exact=True).select_option("1")
    expect(page.locator("main")).to_contain_text("layer 1 of 2")
    assert "prompt=the%20whale" in page.url and "head=1" in page.url
    after = {path: path.stat().st_mtime_ns for path in seen.rglob("*") if ".cache" not in path.parts}
    assert before == after, "the run's folder is as it was"


def test_a_live_run_is_followed_without_a_reload(page: Page, served: str, root: Path) -> None:
    with linnet.start(root, run_id="seen", system_every=0) as run:
        run.log(1, loss=2.0)
        run.tap(1, "ffn_out", 0, None, shape=[4], dtype="f32", std=0.5)
        open_view(page, served, "layers")
        expect(page.locator(".heat-told").first).to_contain_text("step 1: 0.5")
        run.tap(7, "ffn_out", 0, None, shape=[4], dtype="f32", std=0.75)
        run.log(7, loss=1.0)
        expect(page.locator(".heat-told").first).to_contain_text("step 7: 0.75")


def test_what_went_wrong_stands_above_as_text(page: Page, served: str, root: Path) -> None:
    tap = {"kind": "tap", "t": 1.0, "step": 1, "region": "ffn_out", "layer": 0, "std": 1.5}
    text = "the gradient has vanished in layer 3 <b>here</b>"
    warning = {"kind": "note", "t": 2.0, "step": 40, "level": "warning", "text": text}
    append(write(root / "seen", training(), **ABOUT), [tap, warning])
    page.goto(f"{served}#/run/seen/inside")
    expect(page.get_by_label("Warnings")).to_contain_text(f"step 40{text}")


def test_a_run_that_was_not_looked_into_says_how(page: Page, served: str, root: Path) -> None:
    write(root / "plain", training(), **ABOUT)
    page.goto(f"{served}#/run/plain/charts")
    expect(page.locator(".tabs a", has_text="Log")).to_be_visible()
    expect(page.locator(".tabs a", has_text="Inside")).to_have_count(0)
    page.keyboard.press("I")
    expect(page.locator("main")).to_contain_text("This training was not looked into")
    expect(page.locator("main")).to_contain_text("--inspect all")


@pytest.fixture
def phone(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=request.param, has_touch=True)
    page, alarms = context.new_page(), list[str]()
    page.on("pageerror", lambda error: alarms.append(str(error)))
    yield page
    context.close()
    assert not alarms


@pytest.mark.parametrize("phone", ["light", "dark"], indirect=True)
def test_every_view_is_fit_for_a_phone_and_for_a_screen_reader(phone: Page, served: str, seen: Path) -> None:
    for view in VIEWS:
        open_view(phone, served, view)
        phone.wait_for_load_state("networkidle")
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, view
        if AXE.exists():
            phone.evaluate(AXE.read_text())
            found = phone.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [
                (violation["id"], violation["nodes"][0]["html"][:200])
                for violation in found["violations"]
                if violation["impact"] in ("serious", "critical")
            ]
            assert not serious, f"{view}: {serious}"
