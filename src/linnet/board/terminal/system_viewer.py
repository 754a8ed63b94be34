"""Files opened by the program that the system has for them; over ssh their path is told instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from linnet.board.words import plain


def open_with_system(path: Path) -> tuple[bool, str]:
    """Open a file without waiting for it: was it opened, and what to tell the person."""
    if not path.is_file():
        return False, "the file is no longer there"
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False, "over ssh nothing is opened; the file is named below"
    if sys.platform == "win32":
        os.startfile(path)
        return True, f"opened {plain(path)}"
    program = _program()
    if program is None:
        return False, "there is no desktop here; the file is named below"
    quiet = subprocess.DEVNULL
    try:
        subprocess.Popen([program, str(path)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except OSError as error:
        return False, f"{program}: {error.strerror or error}; the file is named below"
    return True, f"opened {plain(path)}"


def _program() -> str | None:
    if sys.platform == "darwin":
        return "open"
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or shutil.which("wslview")):
        return None
    return next((name for name in ("wslview", "xdg-open") if shutil.which(name)), None)
