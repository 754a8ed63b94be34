"""The corpus, the folders and the command of the training tests serve here too."""

from tests.train.conftest import _away_from_home, _one_thread, cache, corpus

__all__ = ["_away_from_home", "_one_thread", "cache", "corpus"]
