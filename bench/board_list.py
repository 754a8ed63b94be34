"""The terminal board lists 2,000 runs in 1 s, with their best values and curves, and answers every key in 0.1 s.

Through a real pseudo-terminal, as in board_terminal.py.
"""

import sys
import time
from pathlib import Path
from typing import Any

import sample
import store
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))  # the tests' terminal is this benchmark's too

WIDTH, HEIGHT = 120, 40
RUNS = {200: 1.0, 2000: 1.0}  # seconds at most
RUN_STEPS = 1000
PATIENCE = 60.0
ENTER_SCREEN = b"\x1b[?1049h"
KEYS = ("\x1b[B", "\x1b[A", "o", " ", "\x1b[B", "u", "\x1b[6~", "\x1b[5~")


def list_runs(root: str, runs: int) -> dict[str, Any]:
    """From the command to the table of all runs, those on the screen with best value and curve; then the keys.

    - `seconds`: until all runs are listed; `complete`: until nothing of what the screen shows is still being read.
    - `listening`: until the application has taken the terminal over from the early list; keys are pressed from then on,
      and one typed before waits for it.
    """
    from tests.board.terminals import PtyTerminal, see, settle

    began = time.monotonic()
    terminal = PtyTerminal(["--runs", root], WIDTH, HEIGHT)
    text = see(terminal, f"{runs} runs", "✓ completed", patience=PATIENCE)
    seconds = time.monotonic() - began
    while "reading …" in text:
        terminal.poll()
        text = terminal.text()
    complete = time.monotonic() - began
    while terminal.sent.count(ENTER_SCREEN) < 2:
        terminal.poll()
    listening = time.monotonic() - began
    filling = [_answer(terminal, key) for key in KEYS]  # while best values and curves are still being read
    settle(terminal, 4.0)
    answers = filling + [_answer(terminal, key) for key in KEYS * 3]
    terminal.close()
    return {
        "seconds": seconds,
        "complete": complete,
        "listening": listening,
        "key": sorted(answers)[len(answers) // 2],
        "slowest_key": max(answers),
    }


def _answer(terminal: Any, key: str) -> float:
    """From a key to the first change on the screen."""
    from tests.board.terminals import settle

    settle(terminal, 0.3)
    before = terminal.text()
    began = time.monotonic()
    terminal.press(key)
    while terminal.text() == before and time.monotonic() - began < 5.0:
        terminal.poll(0.002)
    return time.monotonic() - began


def main() -> Report:
    report = Report(
        name="board_list",
        claim=f"{(__doc__ or '').splitlines()[0]} Screen of {WIDTH} × {HEIGHT}.",
        columns={"what": "", "median s": ".3f", "worst s": ".3f"},
    )
    for runs, limit in RUNS.items():
        root = store.linnet(__file__, runs, RUN_STEPS)

        def anew(root: Path = root, runs: int = runs) -> dict[str, Any]:
            store.forget_derived(root)
            return {"root": str(root), "runs": runs}

        listed = sample.take(__file__, "list_runs", anew, repeats=3)
        if listed.disturbed:
            report.disturbed.append(f"{runs:,} runs")
        report.row(f"{runs:,} runs in the list", listed.median("seconds"), listed.worst("seconds"))
        report.row("  the rows on the screen are complete", listed.median("complete"), listed.worst("complete"))
        report.row("  keys are answered from", listed.median("listening"), listed.worst("listening"))
        report.row("  a key in it", listed.median("key"), listed.worst("slowest_key"))
        report.at_most(f"{runs:,} runs listed", listed.median("seconds"), limit, "s")
        report.at_most("  the rows on the screen complete", listed.median("complete"), limit, "s")
        report.at_most(f"the slowest answer to a key, {runs:,} runs", listed.median("slowest_key"), 0.1, "s")
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"list_runs": list_runs} | store.ROLES))
