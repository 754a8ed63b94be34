"""For all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

Said = Callable[..., tuple[int, str, str]]


def pytest_configure() -> None:
    """Take the usual signals as usual: a shell starts what runs in the background with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command: its exit code, what it printed, what it complained of."""
    from linnet.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run
