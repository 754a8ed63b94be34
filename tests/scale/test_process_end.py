"""How a process that has joined a group ends: at once, once all is done that an interpreter does at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import linnet

# A command is anything that ends as one of `linnet` may; the group is one that says when it is left.
PROGRAM = """
import atexit, sys, threading, time
from linnet.cli import app
from linnet.train import process

class Kept:
    def __del__(self):
        print("taken down")

kept = Kept()
JOIN
atexit.register(print, "exit function")

def command(words):
    threading.Thread(target=lambda: (time.sleep(0.2), print("thread has ended"))).start()
    print("written, not flushed")
    COMMAND

app._run = command
sys.exit(app.main())
"""
JOIN = "process.leave_at_end(lambda: print('group is left'))"
ABANDON = """
process.abandon_thread(stuck := threading.Thread(target=time.sleep, args=(60,), daemon=True))
stuck.start()
"""
DONE = ["written, not flushed", "thread has ended", "exit function"]
ENDS = {
    "done": ("return 0", 0, ""),
    "stopped by a signal": ("return 138", 138, ""),
    "killed while it prepared": ("raise SystemExit(143)", 143, ""),
    "help": ("raise SystemExit", 0, ""),
    "words": ("sys.exit('nothing to do')", 1, "nothing to do\n"),
    "fault": ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    "second Ctrl-C": ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
}


def end(join: str, command: str) -> tuple[int, list[str], str]:
    program = PROGRAM.replace("JOIN", join).replace("COMMAND", command)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("way", ENDS)
def test_all_that_is_left_to_do_is_done_and_nothing_is_taken_down(way: str) -> None:
    command, expected_code, expected_err = ENDS[way]
    code, out, err = end(JOIN, command)
    assert (code, out) == (expected_code, [*DONE, "group is left"])
    assert err.endswith(expected_err) and bool(err) == bool(expected_err)


def test_a_group_is_not_left_where_a_thread_still_asks_it() -> None:
    assert end(JOIN + ABANDON, "return 75") == (75, DONE, "")


def test_what_hangs_like_the_thread_that_was_abandoned_is_not_waited_for() -> None:
    hanging = "process._LONGEST_END = 0.5; atexit.register(time.sleep, 60)"
    code, out, _ = end(f"{JOIN}{ABANDON}{hanging}", "return 75")
    assert code == 75 and "group is left" not in out


def test_a_process_whose_group_is_lent_or_that_has_none_ends_as_ever() -> None:
    assert end("", "return 138") == (138, [*DONE, "taken down"], "")
    code, out, err = end("", "1 / 0")
    assert (code, out) == (1, [*DONE, "taken down"])
    assert err.endswith("ZeroDivisionError: division by zero\n")


def test_a_run_that_nobody_ended_is_ended_with_the_error(tmp_path: Path) -> None:
    """One that was started and not yet trained: an exit function of its session does it."""
    join = f"{JOIN}; import linnet; run = linnet.start({str(tmp_path)!r}, run_id='a')"
    code, _, _ = end(join, "raise OSError('no disk')")
    ended = linnet.open(tmp_path / "a").summarize().end or {}
    assert (code, ended.get("reason"), ended.get("error")) == (1, "errored", "OSError: no disk")
