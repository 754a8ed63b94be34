"""What `board_web.py` measures of one person who looks: charts, a zoom, a list, an empty folder. Each in a process."""

import gzip
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import boards
import browser
import store
from boards import Board

STEPS = 1_000_000
_ZOOMS = ((0.25, 0.75), (0.3, 0.6), (0.4, 0.5), (0.1, 0.4), (0.5, 0.9))  # drags, each within what the last left
# Scripts and style sheets of a page, as they travelled.
_CODE = """performance.getEntriesByType("resource")
  .filter(({name}) => /\\.(js|css)(\\?|$)/.test(name))
  .reduce((sum, {encodedBodySize}) => sum + encodedBodySize, 0)"""
_INSIDE = "inside-tab"  # the script of the tab that shows what --inspect told, for who opens it
# All runs are counted, and those in sight have a name and a last value.
_LISTED = """document.querySelector('.run-table [aria-rowcount]')?.getAttribute('aria-rowcount') > RUNS
  && shown('.run-table [role=row] .cell-last').filter((cell) => /[0-9]/.test(cell.textContent)).length > 10"""


def open_linnet(root: str, run: str, samples: int) -> dict[str, Any]:
    """From the request to all charts: without a cache, while the server starts and when it is up; with a cache."""
    ways = ("at once", "up", "cached", "again", "chosen")
    times: dict[str, list[float]] = {name: [] for name in (*ways, "up, first", "again, first", "code")}
    address, drawn = boards.LINNET.charts(run), boards.LINNET.drawn.replace("ROWS", str(STEPS))
    first = drawn.replace(".every(", ".some(")  # what peers are judged by
    with browser.chromium() as chromium:
        for _ in range(samples):
            for way in ("at once", "up", "cached"):
                if way != "cached":
                    store.forget_derived(Path(root))
                with boards.serve(boards.LINNET, root) as served, browser.fresh(chromium) as context:
                    if way != "at once":
                        _wait_for_cache(Path(root, run))
                        served.settle()
                    page, seconds = browser.look(context, served.address + address, drawn, first)
                    times[way].append(seconds)
                    times["code"].append(page.evaluate(_CODE))
                    if way == "up":
                        times["up, first"].append(browser.seconds_of_first(page))
                    if way == "cached":
                        page, seconds = browser.look(context, served.address + address, drawn, first)
                        times["again"].append(seconds)
                        times["again, first"].append(browser.seconds_of_first(page))
                    _wait_for_cache(Path(root, run))
            with boards.serve(boards.LINNET, root) as served, browser.fresh(chromium) as context:
                served.settle()
                times["chosen"].append(_choose(context, served.address, address))
    return times


def _choose(context: Any, board: str, charts: str) -> float:
    """From the list of runs, in a page that is open, to the charts of one: seconds until all in sight are drawn."""
    page = context.new_page()
    page.goto(f"{board}#/runs")
    browser.until(page, "document.querySelector('.run-table [role=row] .cell-last')?.textContent")
    page.wait_for_timeout(500)
    watch = """([charts, rows]) => {
      const began = performance.now();
      new MutationObserver((_changes, observer) => {
        const shown = [...document.querySelectorAll(".chart-surface")].filter((chart) => {
          const {top, bottom} = chart.getBoundingClientRect();
          return bottom > 0 && top < innerHeight;
        });
        if (!shown.length || shown.some((chart) => Number(chart.dataset.drawn ?? 0) < rows)) return;
        observer.disconnect();
        requestAnimationFrame(() => { window.benchChosen = performance.now() - began; });
      }).observe(document.body, {subtree: true, attributeFilter: ["data-drawn"]});
      location.hash = charts;
    }"""
    page.evaluate(watch, [charts, STEPS])
    return float(browser.until(page, "window.benchChosen")) / 1000


def _wait_for_cache(run: Path) -> None:
    """The cache is written when a run was read, behind the answer."""
    end = time.monotonic() + browser.PATIENCE
    while not (run / ".cache").exists() and time.monotonic() < end:
        time.sleep(0.05)


def open_peer(name: str, python: str, root: str, samples: int) -> dict[str, Any]:
    """From the request to its first chart, by a server that is up and has loaded; then again, by the same browser."""
    board = boards.PEERS[name]
    first, again, code = [], [], 0
    with browser.chromium() as chromium, boards.serve(board, root, Path(python)) as served:
        served.settle()
        address = served.address + board.charts(run_of(board, root))
        with suppress(TimeoutError):  # what took too long is left out
            for _ in range(samples):
                with browser.fresh(chromium) as context:
                    page, seconds = browser.look(context, address, board.drawn)
                    first.append(seconds)
                    code = page.evaluate(_CODE)
                    page.close()
                    page, seconds = browser.look(context, address, board.drawn)
                    again.append(seconds)
    return {"first": first, "again": again, "code": code}


def run_of(board: Board, root: str) -> str:
    """What the run of a folder is called in an address, where the peer wants that."""
    return next(Path(root, ".aim/meta/chunks").iterdir()).name if board is boards.AIM else ""


def zoom(root: str, run: str, samples: int) -> dict[str, Any]:
    """Drag on a chart, ever deeper: from the button's release to all charts in the new range; bytes sent for it."""
    seconds, sent = [], []
    # The time is that of the frame after the one in which the last chart was drawn, which an observer hears of at once.
    watch = """() => { document.addEventListener("pointerup", () => {
      const began = performance.now();
      window.benchZoomed = null;
      const before = document.querySelector(".chart-surface").dataset.drawnX;
      const observer = new MutationObserver(() => {
        const charts = [...document.querySelectorAll(".chart-surface[data-drawn]")];
        const ranges = new Set(charts.map((chart) => chart.dataset.drawnX));
        const [range] = ranges;
        if (ranges.size > 1 || range === "all" || range === before) return;
        observer.disconnect();
        requestAnimationFrame(() => { window.benchZoomed = performance.now() - began; });
      });
      observer.observe(document.body, {subtree: true, attributeFilter: ["data-drawn-x"]});
    }, {capture: true}); }"""
    with boards.looking(boards.LINNET, root) as (served, context):
        address, drawn = boards.LINNET.charts(run), boards.LINNET.drawn.replace("ROWS", str(STEPS))
        page, _ = browser.look(context, served.address + address, drawn)
        page.evaluate(watch)
        box = page.locator(".chart-surface").first.bounding_box()
        y = box["y"] + box["height"] / 2
        for _ in range(samples):
            for left, right in _ZOOMS:
                page.wait_for_timeout(300)
                traffic = browser.Transferred(page)
                page.mouse.move(box["x"] + box["width"] * left, y)
                page.mouse.down()
                page.mouse.move(box["x"] + box["width"] * right, y, steps=3)
                page.mouse.up()
                seconds.append(browser.until(page, "window.benchZoomed") / 1000)
                page.wait_for_timeout(100)
                sent.append(traffic.bytes("api/series"))
            page.mouse.dblclick(box["x"] + box["width"] / 2, y)
            browser.until(page, "document.querySelector('.chart-surface').dataset.drawnX === 'all'")
    return {"seconds": seconds, "sent": sent}


def list_runs(root: str, runs: int, samples: int) -> dict[str, Any]:
    """From the request to the table with all runs counted and those in sight with figures; by a server that is up."""
    seconds, memory = [], []
    with browser.chromium() as chromium:
        for _ in range(samples):
            store.forget_derived(Path(root))
            with boards.serve(boards.LINNET, root) as served, browser.fresh(chromium) as context:
                served.settle()
                page, taken = browser.look(context, served.address + "#/runs", _LISTED.replace("RUNS", str(runs - 1)))
                seconds.append(taken)
                page.wait_for_timeout(1000)
                memory.append(served.peak())
    return {"seconds": seconds, "memory": memory}


def empty_folder(root: str, samples: int) -> dict[str, Any]:
    """From the request to the first paint, and to the text that says what to type."""
    painted, told = [], []
    with browser.chromium() as chromium:
        for _ in range(samples):
            with boards.serve(boards.LINNET, root) as served, browser.fresh(chromium) as context:
                page, seconds = browser.look(
                    context, served.address, "document.body.innerText.includes('linnet train')"
                )
                told.append(seconds)
                paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"  # told of a moment later
                painted.append(float(browser.until(page, paint)) / 1000)
    return {"painted": painted, "told": told}


def weight(root: str) -> dict[str, Any]:
    """JavaScript and CSS that the server has, all of it and `_INSIDE`, as sent to a browser that takes gzip."""
    from linnet.board.web.static_files import STATIC

    sent, inside = 0, 0
    with boards.serve(boards.LINNET, root) as served:
        for file in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css")]:
            address = served.address + file.relative_to(STATIC).as_posix()
            request = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request, timeout=10) as response:
                content = response.read()
                assert response.headers["content-encoding"] == "gzip" and gzip.decompress(content)
                sent += len(content)
                inside += len(content) if file.name.startswith(_INSIDE) else 0
    return {"bytes": sent, "inside": inside}


ROLES = {
    "open_linnet": open_linnet,
    "open_peer": open_peer,
    "zoom": zoom,
    "list_runs": list_runs,
    "empty_folder": empty_folder,
    "weight": weight,
}
