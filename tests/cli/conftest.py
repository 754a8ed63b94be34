"""Trained as in the training tests: each in a folder of its own, with one thread."""

import os
from collections.abc import Callable

import pytest

from linnet.cli import main
from tests.train.conftest import _away_from_home, _one_thread

__all__ = ["_away_from_home", "_one_thread"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines that a command prints in a terminal of so many columns."""

    def run(columns: int, *words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True)
            patch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((columns, 30)))
            patch.setenv("NO_COLOR", "1")
            assert main(list(words)) == 0
        return capsys.readouterr().out.splitlines()

    return run
