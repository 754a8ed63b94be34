"""Real terminals to run the board in: a pseudo-terminal read by an emulator, and tmux."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid

import pyte

_NAMES = {"\x1b": "Escape", "\r": "Enter", "\x1b[C": "Right"}
COMMAND = [sys.executable, "-m", "linnet", "board"]


def _inherited() -> dict[str, str]:
    """The environment without a size, as workers of pytest have one: the board would believe it, not its terminal."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


class PtyTerminal:
    """A command, by default the board, behind a pseudo-terminal; what it sends is put on a screen of characters."""

    def __init__(
        self, arguments: list[str], width: int = 100, height: int = 30, *, command: str = "board", **environment: str
    ) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = b""
        self._text: str | None = None  # of the screen as it stands; drawing it takes as long as a frame of the board
        self.pid, self._fd = pty.fork()
        size = struct.pack("HHHH", height, width, 0, 0)
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            # Not `execv`: readline, which pytest loads, puts COLUMNS where only C sees it, and it would be believed.
            known = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execve(
                COMMAND[0], [*COMMAND[:-1], *command.split(), *arguments], {**_inherited(), **known, **environment}
            )

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)
        self._text = None
        os.kill(self.pid, signal.SIGWINCH)

    def text(self) -> str:
        if self._text is None:
            self._text = "\n".join(line.rstrip() for line in self.screen.display)
        return self._text

    def echoes(self) -> bool:
        """The terminal shows what is typed, as it does wherever no program has taken it over."""
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def poll(self, seconds: float = 0.02) -> bool:
        """Take what the board sends, for a moment; False when it has ended."""
        waiting = select.poll()  # select() takes no descriptor beyond 1,023, and a whole test run has that many open
        waiting.register(self._fd, select.POLLIN | select.POLLHUP)
        if waiting.poll(seconds * 1000):
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                return False
            self.sent += data
            self._stream.feed(data)
            self._text = None
        return True

    def ended(self, patience: float = 10.0) -> int:
        """Wait for the end; the exit code."""
        until = time.monotonic() + patience
        while self.poll() and time.monotonic() < until:
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


class TmuxTerminal:
    """The board in a tmux of its own."""

    def __init__(self, arguments: list[str], width: int = 100, height: int = 30) -> None:
        self._socket = f"linnet-{uuid.uuid4().hex[:8]}"
        names = ("PYTHONPATH", "LINNET_RUNS", "LINNET_CACHE", "TZ")
        setting = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "env", *setting, *COMMAND, *arguments)

    @staticmethod
    def there() -> bool:
        return shutil.which("tmux") is not None

    def press(self, keys: str) -> None:
        if keys in _NAMES:
            self._tmux("send-keys", _NAMES[keys])
        else:
            self._tmux("send-keys", "-l", keys)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def poll(self, seconds: float = 0.05) -> bool:
        time.sleep(seconds)
        return True

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True, check=False)

    def _tmux(self, *words: str) -> str:
        # The environment as Python has it: readline, which pytest loads, puts COLUMNS=80 where only C sees it. The
        # server would hand it on, and the board would believe it rather than its window.
        environment = _inherited()
        command = ["tmux", "-L", self._socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout


Terminal = PtyTerminal | TmuxTerminal


def see(terminal: Terminal, *words: str, patience: float = 30.0) -> str:
    """Wait until all these words are on the screen at once; the screen."""
    until = time.monotonic() + patience
    text = ""
    while time.monotonic() < until:
        alive = terminal.poll()
        text = terminal.text()
        if all(word in text for word in words):
            return text
        if not alive:
            break
    missing = [word for word in words if word not in text]
    raise AssertionError(f"{missing} did not come on the screen:\n{text}")


def settle(terminal: PtyTerminal, seconds: float) -> None:
    """Take what comes to the screen for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        terminal.poll(0.02)
