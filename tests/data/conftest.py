"""A cache of its own for each test, and small corpora that are made in no time."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from linnet.data import Prepared, TokenSet, prepare
from linnet.data.token_set import TokenSetWriter

WORDS = [
    "the",
    "a",
    "model",
    "learns",
    "reads",
    "writes",
    "token",
    "tree",
    "under",
    "quick",
    "12",
    "345",
    "it's",
    "Ünder",
]


def story(seed: int, sentences: int = 12) -> str:
    """A text like no other, of words that come again."""
    chance = random.Random(seed)
    return "".join(" ".join(chance.choices(WORDS, k=9)).capitalize() + ".\n" for _ in range(sentences))


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the clock goes an hour ahead, so that all files were written long ago."""
    now = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: now() + 3600 * 10**9)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred short files, and a cache in which they are prepared."""
    root = tmp_path_factory.mktemp("stories")
    (root / "stories").mkdir()
    for number in range(200):
        (root / "stories" / f"{number:03}.txt").write_text(story(number), encoding="utf-8")
    prepare(root / "stories", vocab=300, held_out=0.1, cache=root / "cache")
    return root


@pytest.fixture
def folder(stories: Path, tmp_path: Path) -> Path:
    """Two hundred short files."""
    return Path(shutil.copytree(stories / "stories", tmp_path / "stories"))


@pytest.fixture
def prepared(stories: Path, cache: Path, folder: Path) -> Prepared:
    """The files of `folder` in a cache of its own."""
    shutil.copytree(stories / "cache", cache)
    return prepare(folder, vocab=300, held_out=0.1)


@pytest.fixture
def token_set(tmp_path: Path) -> Callable[..., TokenSet]:
    """A set whose tokens are their own places, cut into documents of the lengths asked for."""

    def make(*lengths: int) -> TokenSet:
        import numpy as np

        writer = TokenSetWriter(tmp_path / f"{len(list(tmp_path.iterdir()))}.tokens", vocab=70_000, end=0)
        for length in lengths:
            writer.open_document()
            place = writer.tokens
            writer.add(np.arange(place, place + length, dtype="<u4").tobytes(), length)
        writer.close()
        return TokenSet(writer.path)

    return make
