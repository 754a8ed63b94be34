from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import Said as Said


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some real text that is on every machine: a few packages of the standard library."""
    folder = tmp_path_factory.mktemp("corpus")
    stdlib = Path(sysconfig.get_path("stdlib"))
    for package in ("json", "email", "logging"):
        for file in sorted((stdlib / package).glob("*.py")):
            shutil.copy(file, folder / f"{package}_{file.name}")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Such small models gain nothing from a second thread, and lose much where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


SMALL = ("--preset", "tiny", "--vocab", "384", "--batch", "4", "--eval-tokens", "2048", "--sample-tokens", "8")


@pytest.fixture
def small(corpus: Path) -> list[str]:
    """The flags of a run that takes a second or two."""
    return ["train", "from-scratch", "--corpus", str(corpus), *SMALL]
