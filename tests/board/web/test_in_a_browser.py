"""The board as people use it: a real browser, a real server over real folders, a real training that writes."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from linnet.board.terminal.keys import TABS
from linnet.board.web import serve
from linnet.board.web.app import make_app
from linnet.board.web.board import WebBoard
from linnet.board.web.safe_store import SafeStore
from linnet.runs import RunStore, start
from tests.board.conftest import ABOUT, training, write

AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
PAGES = (
    "#/runs",
    "#/charts?runs=wide,narrow,odd",
    "#/compare?runs=wide,narrow,odd",
    "#/samples?runs=wide,narrow",
    "#/checkpoints?runs=wide",
    "#/machine?runs=wide,narrow",
    *(f"#/run/wide/{tab}" for tab in ("charts", "config", "samples", "checkpoints", "machine", "artifacts")),
    *(f"#/run/wide/{tab}" for tab in ("profile", "flow", "notes", "log")),
)


class Server:
    """A server of the board that can be ended and started again on its port."""

    def __init__(self, root: Path) -> None:
        self._root, self._port = root, 0
        self.start()

    def start(self) -> None:
        listening = serve.listen("127.0.0.1", self._port, serve.USUAL_PORT)
        self._port = listening.getsockname()[1]
        self._server = serve.Server(make_app(WebBoard(SafeStore(self._root))))
        self._thread = threading.Thread(target=self._server.run, args=([listening],))
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}/"


@pytest.fixture
def runs(root: Path) -> Path:
    """Three runs, one of them with script wherever a text may stand."""
    for name, rate, seed in (("wide", 3e-4, 1), ("narrow", 1e-4, 2)):
        write(root / name, training(0.1 * seed), **{**ABOUT, "config": {"lr": rate, "seed": seed}})
    script = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    odd = {**ABOUT, "name": script, "experiment": script, "tags": [script], "config": {"lr": 2e-3, script: script}}
    note = {"kind": "note", "t": 1.0, "text": script, "step": 3}
    sample = {"kind": "sample", "t": 2.0, "step": 4, "prompt": script, "text": script}
    named = {"kind": "scalars", "t": 3.0, "step": 5, "values": {script: 1.0, f"x/{script}": 2.0}}
    write(root / "odd", [*training(0.3)[:-1], note, sample, named], **odd)
    return root


@pytest.fixture
def server(runs: Path) -> Iterator[Server]:
    server = Server(runs)
    yield server
    server.stop()


def _range(surface: Locator) -> list[float]:
    """The stretch of x that a chart shows."""
    return [float(x) for x in (surface.get_attribute("data-drawn-x") or "").split(":")]


def test_a_training_is_found_and_followed_while_it_runs(
    page: Page, server: Server, runs: Path, small: list[str]
) -> None:
    page.goto(server.address)
    expect(page.get_by_text("3 runs", exact=True)).to_be_visible()
    words = [*small, "--steps", "60", "--name", "alive", "--runs", str(runs)]
    process = subprocess.Popen([sys.executable, "-m", "linnet", *words], stdout=subprocess.DEVNULL)
    try:
        row = page.get_by_role("row").filter(has_text="alive")
        expect(row).to_be_visible(timeout=40_000)
        row.get_by_text("alive", exact=True).click()
        expect(page.get_by_text("completed").first).to_be_visible(timeout=60_000)
        surface = page.locator("[data-key=loss] .chart-surface").first
        expect(surface).to_have_attribute("data-drawn", "70")  # 60 steps and ten evaluations
    finally:
        process.terminate()
        process.wait()


def test_runs_are_overlaid_smoothed_zoomed_and_the_address_tells_it_all(
    page: Page, browser: Browser, server: Server
) -> None:
    page.goto(f"{server.address}#/charts?runs=wide")
    page.wait_for_selector("[data-key=loss] .chart-surface[data-drawn]")
    page.get_by_role("checkbox", name="Show narrow").click()
    expect(page).to_have_url(re.compile("narrow"))
    page.keyboard.press("Shift+S")
    expect(page).to_have_url(re.compile("smooth="))
    surface = page.locator("[data-key=loss] .chart-surface")
    box = surface.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80, steps=6)
    page.mouse.up()
    expect(surface).not_to_have_attribute("data-drawn-x", "all")
    shown = _range(surface)
    elsewhere = browser.new_context().new_page()  # another person, who was sent the address
    elsewhere.goto(page.url)
    there = elsewhere.locator("[data-key=loss] .chart-surface")
    expect(there).to_have_attribute("data-drawn-x", re.compile(":"))
    assert _range(there) == pytest.approx(shown)
    expect(elsewhere.get_by_role("checkbox", name="Show narrow")).to_be_checked()
    elsewhere.context.close()


def test_a_server_that_comes_back_is_heard_again(page: Page, server: Server, runs: Path) -> None:
    with start(runs, name="live", system_every=0) as run:
        for step in range(1, 51):
            run.log(step, {"loss": 8 / step})
        page.goto(f"{server.address}#/charts?runs={run.run_id}")
        surface = page.locator("[data-key=loss] .chart-surface")
        expect(surface).to_have_attribute("data-drawn", "50")
        server.stop()
        expect(page.locator(".lost")).to_be_visible()
        run.log(51, {"loss": 0.1})
        server.start()
        expect(surface).to_have_attribute("data-drawn", "51")
        expect(page.locator(".lost")).to_be_hidden()


def test_a_run_that_is_deleted_while_it_is_shown_leaves_the_rest(page: Page, server: Server, runs: Path) -> None:
    page.goto(f"{server.address}#/charts?runs=wide,narrow")
    page.wait_for_selector("[data-key=loss] .chart-surface[data-drawn]")
    store = RunStore(runs)
    store.delete("narrow")
    expect(page.get_by_role("checkbox", name="Show narrow")).to_be_hidden()
    page.reload()
    page.wait_for_selector("[data-key=loss] .chart-surface[data-drawn]")
    expect(page.get_by_role("checkbox", name="Show wide")).to_be_checked()


def test_the_keys_of_the_terminals_tabs_lead_to_the_same_here(page: Page, server: Server) -> None:
    pages = {"metrics": "charts", "system": "machine"} | {view: view for view in ("runs", "samples", "checkpoints")}
    page.goto(f"{server.address}#/charts?runs=wide")
    page.wait_for_selector("[data-key=loss] .chart-surface[data-drawn]")
    for view, (key, _) in TABS.items():
        page.keyboard.press("d")
        expect(page).to_have_url(re.compile("#/compare"))
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(f"#/{pages[view]}" if view in pages else f"#/run/wide/{view}"))


def test_runs_are_compared(page: Page, server: Server) -> None:
    page.goto(f"{server.address}#/runs")
    page.get_by_role("checkbox", name="Mark wide").click()
    page.get_by_role("checkbox", name="Mark narrow").click()
    page.get_by_role("toolbar", name="Marked runs").get_by_text("compare", exact=False).first.click()
    settings = page.get_by_label("Settings of each run")
    expect(settings).to_contain_text("lr")
    expect(settings).to_contain_text("0.0003")
    expect(settings).not_to_contain_text("batch")


@pytest.mark.parametrize("size", [(390, 844), (1440, 900)])
def test_no_page_is_larger_than_the_screen_it_scrolls_in(
    browser: Browser, server: Server, runs: Path, size: tuple[int, int]
) -> None:
    settings = {f"setting_{at}": at for at in range(40)}
    for at in range(6):  # with so many, settings are correlated with the result
        config = {**settings, "lr": 1e-4 * (at + 1), "seed": at}
        write(runs / f"sweep-{at}", training(0.1 * at), **{**ABOUT, "config": config})
    sweep = ",".join(f"sweep-{at}" for at in range(6))
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    sizes = (
        "[document.documentElement, document.querySelector('.page')].map((box) => [box.scrollWidth, box.scrollHeight])"
    )
    for address in (*PAGES, f"#/compare?runs={sweep}", "#/run/sweep-1/config"):
        page.goto("about:blank")  # else only the address changes, and nothing is waited for
        page.goto(f"{server.address}{address}")
        page.wait_for_load_state("networkidle")
        if sweep in address:
            expect(page.locator(".correlations")).to_be_attached()
        (width, height), (width_inside, _) = page.evaluate(sizes)
        assert width <= size[0], f"{address} is {width} wide"
        assert height <= size[1], f"{address} is {height} high"
        assert width_inside <= size[0], f"{address} is {width_inside} wide inside"
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_fit_for_a_phone_and_for_a_screen_reader_and_runs_no_script_of_a_run(
    browser: Browser, server: Server, theme: Any
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme, has_touch=True)
    page, alarms = context.new_page(), list[str]()
    page.on("pageerror", lambda error: alarms.append(str(error)))
    page.on("dialog", lambda dialog: (alarms.append(dialog.message), dialog.dismiss()))
    for address in PAGES:
        for way in (address, address.replace("/run/wide/", "/run/odd/")) if "/run/" in address else (address,):
            page.goto(f"{server.address}{way}")
            page.wait_for_load_state("networkidle")
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{way} is {width} wide"
        if not AXE.exists():
            continue
        page.set_viewport_size({"width": 1280, "height": 900})
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (violation["id"], violation["nodes"][0]["html"][:200])
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        assert not serious, f"{address}: {serious}"
        page.set_viewport_size({"width": 390, "height": 844})
    context.close()
    assert not alarms
