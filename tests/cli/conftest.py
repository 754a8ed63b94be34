"""Trained as in the training tests: each in a folder of its own, with one thread; programs as in the tests of runs."""

from tests.runs.conftest import script
from tests.train.conftest import _away_from_home, _one_thread

__all__ = ["_away_from_home", "_one_thread", "script"]
