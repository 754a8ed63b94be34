"""The board in the browser: a million steps on the screen in a second, every spike of them, and live in 150 ms.

Real Chromium without a window. The peers, each on the same data where it can be had: TensorBoard with its fast loader,
trackio, aim.

    python bench/board_web.py --rows open zoom     only these; --samples 1, --no-peers: quicker
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boards
import browser
import machine
import sample
import store
import web_live
import web_open
import web_spikes
import workload
from boards import Board
from report import Report
from web_open import STEPS

LISTS = {1000: 0.6, 10_000: 2.0}  # runs, and seconds at most
LIST_STEPS = 1000
OVERLAID, OVERLAID_STEPS = 50, 2000
PAN_SECONDS = 4.0
LIVE_RUNS, LIVE_RATE, LIVE_SECONDS = 20, 5.0, 20.0
LOGGED, SKIPPED = 100, 10
_TRIES = 2  # of a measurement while others use the machine


class Bench:
    """The report, and how a role is played for it."""

    def __init__(self, report: Report, samples: int, with_peers: bool) -> None:
        self.report, self.samples, self._with_peers = report, samples, with_peers

    def peers(self) -> Iterator[tuple[Board, Path]]:
        """Those that can be installed, each with its interpreter."""
        for name, board in boards.PEERS.items() if self._with_peers else ():
            with self.report.peer(name) as python:
                if python is not None:
                    yield board, python

    def play(self, label: str, role: str, **options: Any) -> dict[str, Any]:
        """What a role found; played again where others disturbed it."""
        for attempt in range(_TRIES):
            with machine.ForeignLoad() as load:
                answer = sample.play(__file__, role, options)
            if load.cores < sample.FOREIGN_CORES or self.samples == 1:
                return answer
            if attempt == _TRIES - 1:
                self.report.disturbed.append(label)
        return answer

    def row(self, what: str, values: list[float], unit: str = "s") -> float | None:
        """A line of the table; the median. Without a value it says that there was none in time."""
        if not values:
            self.report.row(what, f"over {browser.PATIENCE:.0f}", None, unit)
            return None
        middle = float(statistics.median(values))
        self.report.row(what, middle, max(values), unit)
        return middle


def measure_open(bench: Bench) -> None:
    """A million steps of five metrics, from the request to the charts."""
    report = bench.report
    root, run = _one_run(store.linnet(__file__, 1, STEPS))
    found = bench.play("opened", "open_linnet", root=root, run=run, samples=bench.samples)
    first = bench.row("1,000,000 × 5, no cache: linnet", found["up"])
    bench.row("1,000,000 × 5, no cache, asked while the server starts: linnet", found["at once"])
    cached = bench.row("1,000,000 × 5, with cache: linnet", found["cached"])
    chosen = bench.row("1,000,000 × 5, with cache, chosen in a page that is open: linnet", found["chosen"])
    again = bench.row("1,000,000 × 5, same server and browser again: linnet", found["again"])
    # What peers are judged by: the first line that stands, not all charts in sight.
    begun = bench.row("  first of its charts, no cache", found["up, first"])
    begun_again = bench.row("  first of its charts, same server and browser again", found["again, first"])
    report.row("JavaScript and CSS as sent for the charts: linnet", max(found["code"]) / 1000, None, "kB")
    # How many times ours.
    firsts: dict[str, float] = {}
    agains: dict[str, float] = {}
    for board, python in bench.peers():
        name, label = board.name, f"1,000,000 × 5, {{}}: {board.label}"
        if board is boards.AIM:
            bench.report.note(_same_as_tracked(python))
        kept = store.peer(__file__, name, 1, STEPS, python)
        options = {"name": name, "python": str(python), "root": str(kept), "samples": bench.samples}
        seen = bench.play(board.label, "open_peer", **options)
        if seconds := bench.row(label.format("server loaded, new browser"), seen["first"]):
            firsts[board.label] = seconds / begun if begun else 0.0
            report.row(f"JavaScript and CSS as sent: {board.label}", seen["code"] / 1000, None, "kB")
        if seconds := bench.row(label.format("same server and browser again"), seen["again"]):
            agains[board.label] = seconds / begun_again if begun_again else 0.0
    report.at_most("1,000,000 × 5 on the screen, no cache", first, 1.0, "s")
    report.at_most("1,000,000 × 5 on the screen, with cache, the page open", chosen, 0.3, "s")
    report.at_most("1,000,000 × 5 on the screen, with cache, in a browser that has been here", again, 0.3, "s")
    report.at_most("1,000,000 × 5 on the screen, with cache, a server and a browser just started", cached, 0.3, "s")
    for way, ratios in (("new browser", firsts), ("again", agains)):
        nearest = min(ratios, key=lambda label: ratios[label], default=None)
        ratio = ratios[nearest] if nearest else None
        report.at_least(f"first line, {way}: the nearest peer ({nearest or 'none'}) / linnet", ratio, 3, "x")
    report.note(
        "Server up: it is idle; what it reads at its start (Linnet: the newest run, the peers: all) is read. No cache: "
        "it was started on a run folder without `.cache/`, and the browser has nothing of the page. With cache: the "
        f"server has just started, from `.cache/`. Waited until {boards.LINNET.waited_for}."
    )
    for board in boards.PEERS.values():
        report.note(f"{board.label}: waited until {board.waited_for}.")


def _same_as_tracked(python: Path) -> str:
    """A sentence about how aim was given its data; a RoleFailedError where `track` would have left other data."""
    found = sample.play(__file__, "compare_aim", {}, python)
    if found["differing"]:
        raise sample.RoleFailedError(f"aim keeps {found['differing']} keys otherwise than `track` leaves them")
    return (
        "aim was given its data in batches of its own container, since `track` would take longer than an hour. Of"
        f" {found['steps']:,} steps that were given to it both ways all {found['keys']:,} keys and values that it keeps"
        " are equal, and so is what its chart gets."
    )


def _spiked(board: Board, python: Path) -> Path:
    return store.peer_spiked(__file__, board.name, STEPS, python)


def measure_zoom(bench: Bench) -> None:
    """Drags into a chart of a million steps."""
    root, run = _one_run(store.linnet(__file__, 1, STEPS))
    found = bench.play("zoom", "zoom", root=root, run=run, samples=bench.samples)
    seconds = bench.row("zoom: button released → five charts redrawn", found["seconds"])
    sent = bench.row("zoom: sent for it", [count / 1000 for count in found["sent"]], "kB")
    bench.report.at_most("zoom to the redrawn charts", seconds, 0.1, "s")
    bench.report.at_most(
        "sent for a zoom, all charts in sight", max(sent, *(c / 1000 for c in found["sent"])), 50, "kB"
    )


def measure_spikes(bench: Bench) -> None:
    """Single steps that stand out of a million."""
    report = bench.report
    root, run = _one_run(store.spiked(__file__, STEPS))
    spikes = len(workload.SPIKES)
    sent = bench.play("spikes sent", "spikes_sent", root=root, run=run)
    drawn = bench.play("spikes drawn", "spikes_drawn", root=root, run=run)
    for what, found in (
        ("sent, widths 400 to 2,000, 20 levels of zoom", sent),
        ("drawn, widths 400 and 2,000, 4 levels and 1 to 2 rows a pixel", drawn),
    ):
        report.row(f"spikes missed of {found['asked']:,} looked at: {what}", found["missed"], None, "spikes")
        share = spikes * (1 - found["missed"] / found["asked"])
        report.at_least(f"spikes of {spikes}, {what.split(',')[0]}, at every zoom", share, spikes, "spikes")
    for board, python in bench.peers():
        name, kept = board.name, _spiked(board, python)
        count = bench.play(f"spikes of {board.label}", "spikes_of_peer", name=name, python=str(python), root=str(kept))
        report.row(f"spikes of {spikes} that {board.label} sends to its chart", count["spikes"], None, "spikes")


def measure_list(bench: Bench) -> None:
    """The table of runs."""
    report = bench.report
    for runs, limit in LISTS.items():
        root = store.many(__file__, runs, LIST_STEPS)
        found = bench.play(f"{runs:,} runs", "list_runs", root=str(root), runs=runs, samples=bench.samples)
        seconds = bench.row(f"{runs:,} runs × {LIST_STEPS:,} steps listed, no cache", found["seconds"])
        memory = bench.row(f"{runs:,} runs: server's memory", found["memory"], "MB")
        report.at_most(f"{runs:,} runs listed", seconds, limit, "s")
        report.at_most(f"{runs:,} runs: server's memory", memory, 300, "MB")


def measure_pan(bench: Bench) -> None:
    """Many lines under a hand."""
    root = store.six(__file__, OVERLAID, OVERLAID_STEPS)
    rounds = [
        bench.play("pan", "pan", root=str(root), runs=OVERLAID, rows=OVERLAID_STEPS, seconds=PAN_SECONDS)
        for _ in range(min(3, bench.samples))
    ]
    charts = int(rounds[0]["charts"])
    bench.row(f"{OVERLAID} runs on {charts} charts on the screen", [found["opened"] for found in rounds])
    frames = [min(found["frames"], found["redraws"]) for found in rounds]
    middle = bench.row(f"{OVERLAID} runs on {charts} charts, panning: all drawn", frames, "a second")
    bench.row("  slowest twentieth of the frames", [found["slowest"] for found in rounds], "a second")
    bench.report.at_least(f"{OVERLAID} runs on {charts} charts, panning", middle, 50, "frames a second")
    assert charts >= 6, f"{charts} charts in sight"


def measure_live(bench: Bench) -> None:
    """From `log()` to the screen, and what live runs take."""
    report = bench.report
    with sample.scratch() as home:
        found = bench.play("log() to pixel", "to_pixel", folder=str(home), steps=LOGGED, skipped=SKIPPED)
    late = sorted(found["seconds"])
    p95 = late[int(len(late) * 0.95) - 1]
    report.row(f"log() → pixel, {len(late)} steps (worst: p95)", statistics.median(late), p95, "s")
    report.at_most("log() → pixel, p95", p95, 0.15, "s")


def measure_share(bench: Bench) -> None:
    """What the server takes of a core."""
    report = bench.report
    with sample.scratch() as home:
        found = bench.play(
            "20 live runs", "share", folder=str(home), runs=LIVE_RUNS, rate=LIVE_RATE, seconds=LIVE_SECONDS
        )
    rate = f"{LIVE_RUNS} live runs, {LIVE_RATE:g} steps a second each"
    report.row(f"{rate}, nobody looks: server", found["alone"], None, "% of a core")
    report.row(f"{rate}, looked at: server", found["looked_at"], None, "% of a core")
    report.at_most("20 live runs, nobody looking", found["alone"], 1, "% of a core")
    report.at_most("20 live runs, looked at", found["looked_at"], 8, "% of a core")
    report.note(f"{found['rows']:.0f} rows a second came to the screen while the {LIVE_RUNS} live runs were looked at.")


def measure_weight(bench: Bench) -> None:
    """What a browser is sent to begin with."""
    report = bench.report
    with sample.scratch() as home:
        found = bench.play("weight", "weight", root=str(home))
    everything, inside = found["bytes"] / 1000, found["inside"] / 1000
    report.row("JavaScript and CSS, gzipped, all that there is: linnet", everything, None, "kB")
    report.row("  of it for who opens the tab of a training's inside", inside, None, "kB")
    report.at_most("JavaScript and CSS, gzipped, without that tab", everything - inside, 120, "kB")


def measure_empty(bench: Bench) -> None:
    """A folder without runs."""
    with sample.scratch() as home:
        found = bench.play("empty folder", "empty_folder", root=str(home), samples=bench.samples)
    painted = bench.row("an empty folder: first paint", found["painted"])
    told = bench.row("an empty folder: the page says what to type", found["told"])
    bench.report.at_most("an empty folder: first paint", painted, 0.3, "s")
    bench.report.at_most("an empty folder: the page says what to type", told, 0.3, "s")


ROWS: dict[str, Callable[[Bench], None]] = {
    "open": measure_open,
    "zoom": measure_zoom,
    "spikes": measure_spikes,
    "list": measure_list,
    "pan": measure_pan,
    "live": measure_live,
    "share": measure_share,
    "weight": measure_weight,
    "empty": measure_empty,
}


def _one_run(root: Path) -> tuple[str, str]:
    (stream,) = root.glob("*/events.jsonl")
    return str(root), stream.parent.name


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which figures; by default all")
    parser.add_argument("--samples", type=int, default=5, metavar="N", help="of each, by default 5")
    parser.add_argument("--no-peers", action="store_true", help="only Linnet: quicker, while something is being built")


def main(chosen: argparse.Namespace) -> Report:
    view = browser.VIEW
    report = Report(
        name="board_web",
        claim=f"{(__doc__ or '').splitlines()[0]} Window of {view['width']} × {view['height']}; the page's own clock.",
        columns={"what": "", "median": ".4g", "worst": ".4g", "unit": ""},
    )
    bench = Bench(report, chosen.samples, not chosen.no_peers)
    for name in chosen.rows:
        ROWS[name](bench)
    return report


if __name__ == "__main__":
    roles = web_open.ROLES | web_spikes.ROLES | web_live.ROLES
    sys.exit(sample.start(main, roles | store.ROLES, flags))
