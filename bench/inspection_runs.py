"""What looks add to the time of whole runs of 15M, from the command line: for `inspection.py --gpu`.

In a run the GPU has steps to do while a look is prepared, and looks are written while it has.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STEPS, FROM = 1200, 200  # of a run, and from which on it is timed
PLAIN, LOOKED = "plain", "looked at"


def a_run(folder: str, inspect: str, small: bool) -> dict[str, Any]:
    """Seconds of a step, with all that happens between steps."""
    shape = (
        ["--preset", "micro", "--vocab", "400", "--batch", "2"] if small else ["--preset", "nano", "--vocab", "8192"]
    )
    steps, begin = (STEPS // 10, FROM // 10) if small else (STEPS, FROM)
    command = [sys.executable, "-m", "linnet", "train", "from-scratch", "--runs", folder, "--steps", str(steps), *shape]
    command += ["--eval-every", "0", "--sample-every", "0", "--checkpoint-every", "100000"]
    command += ["--inspect", inspect] if inspect else []
    command += [] if small else ["--graph", "on"]  # looks are captured too
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    (run,) = Path(folder).iterdir()
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    times = {event["step"]: event["t"] for event in events if event["kind"] == "step"}
    return {"seconds": (times[steps] - times[begin]) / (steps - begin)}
