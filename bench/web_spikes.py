"""What `board_web.py` counts: single steps that stand out of a million, sent by a server, drawn by the page."""

import json
import math
import re
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boards
import browser
import workload
from web_open import STEPS, run_of

WIDTHS = (400, 800, 1200, 1600, 2000)
LEVELS = 20  # of zoom, each half of the one before: from a million steps to one
DRAWN_WIDTHS, DRAWN_LEVELS = (400, 2000), (0, 3, 7, 11)
ROWS_A_PIXEL = (1.05, 1.25, 1.5, 2.0)  # zooms in which a column has no band, or hardly one, to show what is in it


def spikes_sent(root: str, run: str) -> dict[str, Any]:
    """In what the server sends: each spike, at each width, looked at from all of the run down to a few steps."""
    asked, missed = 0, 0
    with boards.serve(boards.LINNET, root) as served:
        for points in WIDTHS:
            for level in range(LEVELS):
                for low, high, steps in _windows(STEPS / 2**level):
                    ask = f"api/series?runs={run}&keys=loss&from={low}&to={high}&points={points}"
                    with urllib.request.urlopen(served.address + ask, timeout=60) as response:
                        counted = _spikes_in(response.read(), steps)
                    asked, missed = asked + len(steps), missed + len(steps) - counted
    return {"asked": asked, "missed": missed}


def _windows(across: float) -> Iterator[tuple[float, float, list[int]]]:
    """Of the stretches of so many steps that follow each other, those that have spikes in them, and their steps."""
    for number in sorted({math.floor((step - 1) / across) for step in workload.SPIKES}):
        low, high = 1 + number * across, 1 + (number + 1) * across
        yield low, high, [step for step in workload.SPIKES if low <= step <= high]


def _spikes_in(content: bytes, steps: list[int]) -> int:
    """How many of the spikes stand where they are in an answer of api/series."""
    (length,) = struct.unpack_from("<I", content, 4)
    header = json.loads(content[8 : 8 + length])
    (entry,) = header["series"]
    rows, start = entry["rows"], 8 + length + entry["offset"]
    if entry["exact"]:
        columns = struct.unpack_from(f"<{rows * len(entry['columns'])}d", content, start)
        values = dict(zip(columns[:rows], columns[rows : 2 * rows], strict=True))
        return sum(values.get(float(step)) == workload.SPIKE for step in steps)
    at = entry["columns"].index("high") * rows
    high = struct.unpack_from(f"<{rows * len(entry['columns'])}f", content, start)[at : at + rows]
    width = (header["to"] - header["from"]) / rows
    columns_of = (min(rows - 1, int((step - header["from"]) / width)) for step in steps)
    return sum(any(high[column] == workload.SPIKE for column in (max(0, at - 1), at)) for at in columns_of)


def spikes_drawn(root: str, run: str) -> dict[str, Any]:
    """In what the page draws: pixels of its lines far above the usual, in the column of each spike."""
    asked, missed = 0, 0
    painted = """(places) => {
      const canvas = document.querySelector(".chart-surface canvas");
      const ratio = devicePixelRatio, {width, height} = canvas;
      const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      const box = {left: 46 * ratio, right: width - 10 * ratio, top: 8 * ratio, bottom: height - 22 * ratio};
      const from = (share) => box.top + share * (box.bottom - box.top);
      const empty = data.subarray(0, 4);
      const isPainted = (x, y) => [0, 1, 2, 3].some((part) => data[(y * width + x) * 4 + part] !== empty[part]);
      return places.filter((place) => {
        const middle = Math.round(box.left + place * (box.right - box.left));
        for (let x = middle - 2; x <= middle + 2; x++) {
          let rows = 0, filled = 0;
          for (let y = Math.round(from(0.25)); y < from(0.6); y++) {
            rows++;
            if (isPainted(x, y)) filled++;
          }
          if (filled > 0.9 * rows) return true;
        }
        return false;
      }).length;
    }"""
    with boards.looking(boards.LINNET, root) as (served, context):
        address = served.address + boards.LINNET.charts(run)
        page, _ = browser.look(context, address, boards.LINNET.drawn.replace("ROWS", str(STEPS)))
        for width in DRAWN_WIDTHS:
            frame = page.evaluate("innerWidth - document.querySelector('.chart-surface').clientWidth + 56")
            page.set_viewport_size({"width": width + frame, "height": 900})
            for across in (*(STEPS / 2**level for level in DRAWN_LEVELS), *(width * rows for rows in ROWS_A_PIXEL)):
                for low, high, steps in _windows(across):
                    page.evaluate(
                        "(range) => { location.hash = `${location.hash.split('&range')[0]}${range}`; }",
                        "" if across == STEPS else f"&range={low:.10g}:{high:.10g}",
                    )
                    wanted = "all" if across == STEPS else f"{float(f'{low:.10g}'):.10g}:{float(f'{high:.10g}'):.10g}"
                    browser.until(page, "(x) => document.querySelector('.chart-surface').dataset.drawnX === x", wanted)
                    page.wait_for_timeout(50)
                    places = [(step - low) / (high - low) for step in steps]
                    beside = [
                        place
                        for place in (number / 29 for number in range(1, 29))
                        if all(abs(place - spike) > 0.02 for spike in places)
                    ]
                    assert not page.evaluate(painted, beside), "something stands out where there is no spike"
                    asked, missed = asked + len(steps), missed + len(steps) - page.evaluate(painted, places)
    return {"asked": asked, "missed": missed}


def spikes_of_peer(name: str, python: str, root: str) -> dict[str, Any]:
    """In what a peer's server sends to its chart of the whole run."""
    board = boards.PEERS[name]
    with browser.chromium() as chromium, boards.serve(board, root, Path(python)) as served:
        address = served.address + board.charts(run_of(board, root))
        with browser.fresh(chromium) as context:
            traffic = browser.Transferred(context, "xhr", "fetch")
            try:
                page, _ = browser.look(context, address, board.drawn)
            except TimeoutError:
                return {"spikes": None}
            page.wait_for_timeout(1000)
            counted = max(_count_spikes(body) for body in traffic.bodies())
    return {"spikes": counted}


def _count_spikes(body: bytes) -> int:
    """The numbers of a spike in an answer, written out or as 64-bit floats."""
    return max(len(re.findall(rb"\b100\.25\b", body)), body.count(struct.pack("<d", workload.SPIKE)))


ROLES = {"spikes_sent": spikes_sent, "spikes_drawn": spikes_drawn, "spikes_of_peer": spikes_of_peer}
