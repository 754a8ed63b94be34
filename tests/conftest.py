"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take the usual signals as usual: a shell starts what runs in the background with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
