"""Trained as in the training tests: each in a folder of its own, with one thread."""

from tests.train.conftest import _away_from_home, _one_thread

__all__ = ["_away_from_home", "_one_thread"]
