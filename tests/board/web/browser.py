"""A Chromium for the tests of the board's page, and how one gets here.

python -m tests.board.web.browser   # install one where there is none: Debian's where that is allowed, else Playwright's
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The path of a Chromium: the one named by LINNET_CHROMIUM, the machine's, Playwright's own; None without one."""
    named = os.environ.get("LINNET_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, _NAMES)), None) or _playwrights()


def _playwrights() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    return str(path) if path.exists() else None


def install() -> bool:
    """Get a Chromium; False, with the reason on stderr, where none is to be had."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = subprocess.run(["apt-get", *words], env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return True
        print(done.stderr.strip()[-2000:], file=sys.stderr)
    return subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"]).returncode == 0


if __name__ == "__main__":
    if find_chromium() is None and not install():
        print("no Chromium here: the tests of the board's page in a browser are left out", file=sys.stderr)
