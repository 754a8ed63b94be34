"""Files opened by the program that the system has for them; over ssh their path is told instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from linnet.board.words import plain


def open_with_system(path: Path) -> str:
    """Open a file without waiting for it; what to tell the person."""
    shown = plain(path)
    if not path.is_file():
        return f"{shown} is no longer there"
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return f"over ssh; the file is {shown}"
    if sys.platform == "win32":
        os.startfile(path)
        return f"opened {shown}"
    program = _program()
    if program is None:
        return f"there is no desktop to open it on; the file is {shown}"
    quiet = subprocess.DEVNULL
    try:
        subprocess.Popen([program, str(path)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError as error:
        return f"{program}: {error.strerror or error}; the file is {shown}"
    return f"opened {shown}"


def _program() -> str | None:
    if sys.platform == "darwin":
        return "open"
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or shutil.which("wslview")):
        return None
    return next((name for name in ("wslview", "xdg-open") if shutil.which(name)), None)
