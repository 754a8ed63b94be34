"""The terminal board shows 100,000 steps in 1 s, 1,000,000 in 2.5 s, and 2,000 events a second live.

Everything goes through a real pseudo-terminal: the command as a person types it, an emulator that draws what it sends,
and a clock that stops when the words are on the screen.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import sample
import store
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests' terminal is this benchmark's too

WIDTH, HEIGHT = 120, 40
RATE = 2000
WARM = 5.0  # seconds that a live board has before it is judged
PATIENCE = 60.0


def first_frame(root: str, run: str, steps: int) -> dict[str, Any]:
    """From the command to the chart of all steps; `shown` is when the run's name and empty charts stand there."""
    from tests.board.terminals import PtyTerminal, see, settle

    began = time.monotonic()
    terminal = PtyTerminal([run, "--runs", root], WIDTH, HEIGHT)
    see(terminal, run, patience=PATIENCE)
    shown = time.monotonic() - began
    see(terminal, f"step {steps:,}", "1 loss", f" {steps:,} ╯", patience=PATIENCE)
    seconds = time.monotonic() - began
    settle(terminal, 1.0)  # it keeps its cache only now
    terminal.close()
    return {"seconds": seconds, "shown": shown}


def write(folder: str, seconds: float) -> dict[str, Any]:
    """Log 2,000 steps a second, in twenties; each with its moment. Tells the usual cost of one call."""
    import linnet

    costs = []
    with linnet.start(folder, arch="live", system_every=1.0) as run:
        began = due = time.monotonic()
        step = 0
        while time.monotonic() - began < seconds:
            before = time.perf_counter()
            for _ in range(RATE // 100):
                step += 1
                noise = step % 37 / 100
                run.log(step, loss=2 + noise, lr=1e-3, grad_norm=1 + noise, acc=0.5, sent=time.monotonic())
            costs.append((time.perf_counter() - before) / (RATE // 100))
            due += 0.01
            time.sleep(max(0.0, due - time.monotonic()))
    return {"microseconds": sorted(costs)[len(costs) // 2] * 1e6}


def live(folder: str, minutes: float) -> dict[str, Any]:
    """Watch a run being written: how late steps come to the screen, what that takes, and whether memory stays."""
    import psutil
    from tests.board.terminals import PtyTerminal, see, settle

    seconds = WARM + 60 * minutes + 5
    answer = Path(folder) / "answer.json"
    writer = subprocess.Popen(sample.command(__file__, "write", {"folder": folder, "seconds": seconds}, answer))
    while not list(Path(folder).glob("live*/events.jsonl")):
        time.sleep(0.01)
    terminal = PtyTerminal(["latest", "--runs", folder], WIDTH, HEIGHT)
    see(terminal, "● live", "1 loss", patience=PATIENCE)
    settle(terminal, WARM)
    board = psutil.Process(terminal.pid)
    shown: list[tuple[float, int]] = []
    memory: list[int] = []
    began, cpu, next_look = time.monotonic(), sum(board.cpu_times()[:2]), 0.0
    while (now := time.monotonic()) - began < 60 * minutes:
        terminal.poll(0.01)
        step = _step_on(terminal)
        if step and (not shown or step > shown[-1][1]):
            shown.append((time.monotonic(), step))
        if now >= next_look:
            memory.append(board.memory_info().rss)
            next_look = now + max(1.0, minutes)
    share = (sum(board.cpu_times()[:2]) - cpu) / (time.monotonic() - began)
    terminal.close()
    writer.wait()
    late = _delays(next(Path(folder).glob("live*")), shown)
    tenth = max(1, len(memory) // 10)
    return {
        "median": sorted(late)[len(late) // 2],
        "longest": max(late),
        "frames": len(shown) / (60 * minutes),
        "cpu": 100 * share,
        "memory": memory[-1] / 1e6,
        "growth": (max(memory[-tenth:]) - max(memory[:tenth])) / 1e6,
    }


def _delays(run: Path, shown: list[tuple[float, int]]) -> list[float]:
    """How long each step waited for the screen: of those that came with one frame, the first waited longest."""
    sent = {}
    for found in re.finditer(rb'"step":(\d+),.*?"sent":([\d.]+)', (run / "events.jsonl").read_bytes()):
        sent[int(found[1])] = float(found[2])
    return [at - sent[before + 1] for (_, before), (at, _) in pairwise(shown) if before + 1 in sent]


def _step_on(terminal: Any) -> int:
    line = "".join(terminal.screen.buffer[1][x].data for x in range(30))
    found = re.search(r"step ([\d,]+)", line)
    return int(found[1].replace(",", "")) if found else 0


def main() -> Report:
    minutes = MINUTES
    report = Report(
        name="board_terminal",
        claim=f"{(__doc__ or '').splitlines()[0]} Screen of {WIDTH} × {HEIGHT}.",
        columns={"what": "", "median s": ".3f", "worst s": ".3f"},
    )
    _first_frames(report)
    with sample.scratch() as home:
        alone = sample.play(__file__, "write", {"folder": str(home / "alone"), "seconds": 10.0})["microseconds"]
        (home / "live").mkdir()
        answer, beside = _watched(home / "live", minutes)
    report.row(f"{RATE:,} events a second: a step waits for the screen", answer["median"], answer["longest"])
    report.at_most("a new step is on the screen", answer["longest"], 0.5, "s")
    report.at_most(f"CPU while {RATE:,} events a second are written", answer["cpu"], 25, "% of a core")
    report.at_most(f"memory grown in {minutes:g} minutes", answer["growth"], 8, "MB")
    report.note(f"Live: {answer['frames']:.1f} frames a second with a new step, {answer['memory']:.0f} MB resident.")
    report.note(
        f"The writer's usual `log()` takes {alone:.1f} µs alone and {beside:.1f} µs beside the board, which reads "
        "its file and never locks it; on two cores the rest is the cores' sharing."
    )
    return report


def _first_frames(report: Report) -> None:
    for steps, limit in ((100_000, 1.0), (1_000_000, 2.5)):
        root = store.linnet(__file__, 1, steps)
        run = next(path.name for path in root.iterdir() if (path / "events.jsonl").exists())
        options = {"root": str(root), "run": run, "steps": steps}

        def anew(root: Path = root, options: dict[str, Any] = options) -> dict[str, Any]:
            store.forget_derived(root)
            return options

        def again(options: dict[str, Any] = options) -> dict[str, Any]:
            return options

        first = _measure(report, f"{steps:,} steps, first time", "first_frame", anew)
        _measure(report, f"{steps:,} steps, again", "first_frame", again)
        report.at_most(f"first frame of all {steps:,} steps, first time", first.median("seconds"), limit, "s")


def _measure(report: Report, label: str, role: str, options: Callable[[], dict[str, Any]]) -> sample.Samples:
    samples = sample.take(__file__, role, options, repeats=3)
    if samples.disturbed:
        report.disturbed.append(label)
    report.row(label, samples.median("seconds"), samples.worst("seconds"))
    return samples


def _watched(folder: Path, minutes: float) -> tuple[dict[str, Any], float]:
    """The live measurement, and the usual cost of the writer's call meanwhile."""
    import json

    print(f"watching for {minutes:g} minutes", file=sys.stderr, flush=True)
    answer = sample.play(__file__, "live", {"folder": str(folder), "minutes": minutes})
    return answer, float(json.loads((folder / "answer.json").read_text())["microseconds"])


def _take_minutes() -> float:
    """`--minutes N`, which only this script has, taken out of the arguments before `sample` reads the rest."""
    if "--minutes" not in sys.argv:
        return 10.0
    at = sys.argv.index("--minutes")
    value = float(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    return value


MINUTES = _take_minutes()

if __name__ == "__main__":
    roles = {"first_frame": first_frame, "live": live, "write": write}
    sys.exit(sample.start(main, roles | store.ROLES))
