"""Two small trainings that differ in their seed, for all tests here; each test in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import linnet
from tests.train.conftest import _away_from_home as _away_from_home


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """A folder with the runs `one` and `two`, of seeds 0 and 1, with grouped queries and all their checkpoints."""
    root = tmp_path_factory.mktemp("seeds") / "runs"
    shape = {"preset": "tiny", "vocab": 384, "n_kv": 2, "ctx": 32, "batch": 16}
    often = {"eval_every": 0, "sample_every": 0, "checkpoint_every": 50, "keep": 0}
    for seed, name in enumerate(("one", "two")):
        linnet.train(corpus=corpus, cache=cache, runs=root, run_id=name, seed=seed, steps=200, **shape, **often)
    return root


@pytest.fixture(scope="session")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of vision transformers: `one` and `two`, on scikit-learn's digits."""
    root = tmp_path_factory.mktemp("digits") / "runs"
    shape = {"preset": "vit-tiny-8", "d_model": 24, "n_layers": 2, "d_ff": 48, "batch": 32}
    for seed, name in enumerate(("one", "two")):
        linnet.train(
            "vit-tiny", runs=root, run_id=name, seed=seed, steps=20, eval_every=0, checkpoint_every=10, **shape
        )
    return root
