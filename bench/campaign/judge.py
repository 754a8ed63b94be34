"""Run a command inside this process and say what was wrong with how it ended: a traceback, raw control characters, …"""

import io
import os
import re
import resource
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.campaign.cases import Command

LONGEST_LINE = 100_000  # characters
MOST_MEMORY = 512 << 20  # bytes a command may take, and so many for each byte of its files:
MEMORY_A_BYTE = 64
_SPACE = 3 << 30  # address space beyond what the process has when it begins
# C0 and C1 controls except line ends and tabs, line separators, and what turns the direction of writing.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Terminal(io.TextIOWrapper):
    """An output that says it is a terminal, where that is wanted."""

    wanted = False

    def isatty(self) -> bool:
        """Whether it plays one."""
        return self.wanted


class Judge:
    """Runs commands with outputs of its own. `main`: the command line."""

    def __init__(self, main: Callable[[list[str]], int]) -> None:
        self._main = main
        self._files = [os.memfd_create("out"), os.memfd_create("err")]
        for target, file in zip((1, 2), self._files, strict=True):
            os.dup2(file, target)
        self._out = Terminal(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
        self._err = Terminal(io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="backslashreplace")
        self.out = self.err = ""

    def limit_memory(self) -> None:
        """From here on the process gets only so much more."""
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + _SPACE, size + _SPACE))

    def run(self, command: Command, size: int) -> list[tuple[str, str]]:
        """What was wrong, as kind and description; nothing for a command that ended well or in one line."""
        for file in self._files:
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
        self._out.wanted = command.terminal
        sys.stdout, sys.stderr = self._out, self._err
        found: list[tuple[str, str]] = []
        before = _reset_peak()
        try:
            code = self._main(command.words)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException as error:
            found.append(("traceback", _where(error)))
            self._err.write("".join(traceback.format_exception(error)[-12:]))
            code = 1
        for stream in (self._out, self._err):
            try:
                stream.flush()
            except Exception as error:
                found.append(("traceback", f"flush: {_where(error)}"))
        grown = _peak() - before
        self.out, self.err = (os.pread(file, 64 << 20, 0).decode("utf-8", "replace") for file in self._files)
        if found:  # what it printed is the traceback, written by us
            return found
        if grown > MOST_MEMORY + MEMORY_A_BYTE * size:
            found.append(("memory", f"{grown >> 20} MB for {size} bytes"))
        return found + self._look_at_output(command, code)

    def _look_at_output(self, command: Command, code: int) -> list[tuple[str, str]]:
        found = []
        if "Traceback (most recent call last)" in self.out + self.err:
            last = self.err.strip().splitlines()[-1:] or [""]
            found.append(("traceback", f"printed: {last[0][:80]}"))
        # A pipe gets what the model said as it is (docs/infer.md); a terminal does not.
        words = command.words
        told = words[0] == "generate" and "--json" not in words
        as_it_is = not command.terminal and told
        for name, text in (("output", self.out), ("error", self.err)):
            if (hit := _STEERING.search(text)) and not (as_it_is and name == "output"):
                found.append(("control character", f"U+{ord(hit[0]):04X} in the {name}"))
            for_programs = name == "output" and ("--json" in words or words[0] == "metrics")
            if not for_programs and any(len(line) > LONGEST_LINE for line in text.splitlines()):
                found.append(("long line", f"in the {name}"))
        if code not in (0, 1, 2):
            found.append(("exit code", str(code)))
        elif code and not (self.err.strip() or self.out.strip()):
            found.append(("no word", f"exit code {code}"))
        return found


def _where(error: BaseException) -> str:
    """The error, and the last line of ours that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/linnet/" in frame.filename]
    frame = ours[-1] if ours else frames[-1]
    place = frame.filename.rpartition("/linnet/")[2]
    text = re.sub(r"0x[0-9a-f]+|\d+", "N", str(error).splitlines()[0] if str(error) else "")
    return f"{type(error).__name__} at {place}:{frame.lineno}: {text[:60]}"


def _reset_peak() -> int:
    """Let the high-water mark of memory begin here; where it stands now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
