from __future__ import annotations

from tests.train.conftest import _away_from_home, _one_thread, cache  # noqa: F401
