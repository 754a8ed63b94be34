"""What `board_web.py` measures of what moves: lines under a hand, rows on their way to the screen, the server."""

import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import boards
import browser
import sample

# With the button held down, a move in every frame, to and fro; whoever drives the browser could not send as many.
_PAN = """async ([seconds, middle, y, reach]) => {
  const element = document.querySelector(".chart-surface");
  const frames = [];
  let redraws = 0;  // each time that uPlot draws a chart it clears its canvas once
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    if (this.canvas.isConnected) redraws++;
    return clear.apply(this, box);
  };
  await new Promise((resolve) => {
    const frame = (now) => {
      frames.push(now);
      const passed = (now - frames[0]) / 1000;
      if (passed > seconds) return resolve();
      const x = middle + reach * Math.sin((passed * Math.PI) / 2);
      const init = {pointerId: window.benchPointer, pointerType: "mouse", clientX: x, clientY: y, shiftKey: true};
      element.dispatchEvent(new PointerEvent("pointermove", {...init, bubbles: true}));
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  CanvasRenderingContext2D.prototype.clearRect = clear;
  return [frames, redraws];
}"""
_ARRIVALS = """(() => {
  window.benchArrivals = [];
  const look = () => {
    const rows = Number(document.querySelector(".chart-surface")?.dataset.drawn ?? 0);
    const known = window.benchArrivals.at(-1)?.[0] ?? 0;
    // The time is that of the frame after the one that drew the row.
    if (rows > known) window.benchArrivals.push([rows, (performance.timeOrigin + performance.now()) / 1000]);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""


def pan(root: str, runs: int, rows: int, seconds: float) -> dict[str, Any]:
    """Drag to and fro over one of six charts, which all follow: frames a second, and how often each chart was drawn."""
    ids = sorted(path.name for path in Path(root).iterdir() if (path / "events.jsonl").exists())[:runs]
    address = boards.LINNET.charts(",".join(ids))
    drawn = boards.LINNET.drawn.replace("ROWS", str(runs * rows))
    with boards.looking(boards.LINNET, root) as (served, context):
        page, opened = browser.look(context, served.address + address, drawn)
        charts = page.evaluate("[...document.querySelectorAll('.chart-surface[data-drawn]')].length")
        box = page.locator(".chart-surface").first.bounding_box()
        y, middle = box["y"] + box["height"] / 2, box["x"] + box["width"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.3, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=3)
        page.mouse.up()
        browser.until(page, "document.querySelector('.chart-surface').dataset.drawnX !== 'all'")
        page.wait_for_timeout(500)
        page.evaluate(
            "document.addEventListener('pointerdown', ({pointerId}) => { window.benchPointer = pointerId; }, true)"
        )
        page.keyboard.down("Shift")
        page.mouse.move(middle, y)
        page.mouse.down()
        frames, redraws = page.evaluate(_PAN, [seconds, middle, y, box["width"] * 0.3])
        page.mouse.up()
        page.keyboard.up("Shift")
    took = (frames[-1] - frames[0]) / 1000
    gaps = sorted(after - before for before, after in pairwise(frames))
    return {
        "opened": opened,
        "charts": charts,
        "frames": (len(frames) - 1) / took,
        "redraws": redraws / charts / took,
        "slowest": 1000 / gaps[int(len(gaps) * 0.95)],
    }


def write_slowly(folder: str, steps: int) -> dict[str, Any]:
    """Log a step every tenth of a second or so; the moments just before."""
    import random

    import linnet

    moments = []
    pause = random.Random(7)
    with linnet.start(Path(folder), arch="live", system_every=0) as run:
        time.sleep(4.0)  # until somebody looks
        for step in range(1, steps + 1):
            time.sleep(pause.uniform(0.08, 0.16))
            moments.append(time.time())
            run.log(step, loss=2.0 + 1 / step)
    return {"moments": moments}


def to_pixel(folder: str, steps: int, skipped: int) -> dict[str, Any]:
    """From before each `log()` to the frame after its row was drawn, in seconds."""
    import json

    answer = Path(folder) / "answer.json"
    runs = Path(folder) / "runs"
    command = sample.command(_SCRIPT, "write_slowly", {"folder": str(runs), "steps": steps + skipped}, answer)
    with browser.chromium() as chromium:
        writer = subprocess.Popen(command)
        while not list(runs.glob("*/events.jsonl")):
            time.sleep(0.02)
        (stream,) = runs.glob("*/events.jsonl")
        with boards.serve(boards.LINNET, str(runs)) as served, browser.fresh(chromium) as context:
            page = context.new_page()
            page.add_init_script(_ARRIVALS)
            page.goto(served.address + boards.LINNET.charts(stream.parent.name), wait_until="commit")
            writer.wait(120)
            page.wait_for_timeout(1000)
            arrivals = page.evaluate("window.benchArrivals")
    moments = json.loads(answer.read_text())["moments"]
    late = []
    for step, moment in enumerate(moments, 1):
        if step > skipped:
            late.append(next((at for rows, at in arrivals if rows >= step), float("inf")) - moment)
    return {"seconds": late}


def write_many(folder: str, runs: int, rate: float, seconds: float) -> dict[str, Any]:
    """Several live runs by one process, each at a rate of its own steps."""
    from contextlib import ExitStack

    import linnet

    with ExitStack() as stack:
        writers = [
            stack.enter_context(linnet.start(Path(folder), arch="live", name=f"live-{number}", system_every=0))
            for number in range(runs)
        ]
        end, step = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step += 1
            for writer in writers:
                writer.log(step, loss=2.0 + 1 / step, lr=1e-3, grad_norm=1.0 + step % 7)
                time.sleep(1 / rate / runs)
    return {"steps": step}


def share(folder: str, runs: int, rate: float, seconds: float) -> dict[str, Any]:
    """What the server takes while runs are written: with nobody looking, then with a page that shows all of them."""
    answer, home = Path(folder) / "answer.json", Path(folder) / "runs"
    options = {"folder": str(home), "runs": runs, "rate": rate, "seconds": 600.0}  # it is ended when all is measured
    with browser.chromium() as chromium:
        writer = subprocess.Popen(sample.command(_SCRIPT, "write_many", options, answer))
        try:
            while len(list(home.glob("*/events.jsonl"))) < runs:
                time.sleep(0.05)
            with boards.serve(boards.LINNET, str(home)) as served:
                time.sleep(2)
                alone = _share(served, seconds)
                ids = sorted(path.parent.name for path in home.glob("*/events.jsonl"))
                with browser.fresh(chromium) as context:
                    drawn = boards.LINNET.drawn.replace("ROWS", "1")
                    page, _ = browser.look(context, served.address + boards.LINNET.charts(",".join(ids)), drawn)
                    page.wait_for_timeout(2000)
                    before = page.evaluate("Number(document.querySelector('.chart-surface').dataset.drawn)")
                    looked_at = _share(served, seconds)
                    rows = page.evaluate("Number(document.querySelector('.chart-surface').dataset.drawn)") - before
        finally:
            writer.terminate()
            writer.wait()
    assert rows > 0, "the page did not follow the runs"
    return {"alone": alone, "looked_at": looked_at, "rows": rows / seconds}


def _share(served: boards.Served, seconds: float) -> float:
    """Per cent of a core."""
    began, cpu = time.monotonic(), served.cpu_seconds()
    time.sleep(seconds)
    return 100 * (served.cpu_seconds() - cpu) / (time.monotonic() - began)


_SCRIPT = str(Path(__file__).with_name("board_web.py"))
ROLES = {"pan": pan, "write_slowly": write_slowly, "to_pixel": to_pixel, "write_many": write_many, "share": share}
