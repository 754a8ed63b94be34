"""The pages in docs/ know the house: each room's page names every file of the room, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/linnet"
PAGES = {
    "analysis": ("analysis",),
    "architectures": ("architectures",),
    "board": ("board",),
    "cli": ("cli",),
    "data": ("data",),
    "gguf": ("gguf", "tokenizer"),
    "infer": ("infer",),
    "kernels": ("kernels",),
    "models": ("models",),
    "recipes": ("recipes",),
    "runs": ("runs",),
    "train": ("train",),
    "": ("architecture",),  # what stands above and below the rooms
}


def _files(room: str) -> set[str]:
    """The files of a room, those of its inner folders with the folder before them."""
    folder = SOURCE / room
    paths = folder.rglob("*.py") if room else folder.glob("*.py")
    return {str(path.relative_to(folder)) for path in paths if path.name != "__init__.py"}


def _table_files(pages: tuple[str, ...]) -> set[str]:
    """The files in the first column of the pages' tables. A row may begin with a folder: `views/`: `a.py`, `b.py`."""
    named = set()
    for page in pages:
        for line in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8").splitlines():
            cell = line.split("|")[1] if line.startswith("| `") and line.count("|") > 2 else ""
            folder = prefix[1] if (prefix := re.match(r" `([\w/]+/)`:", cell)) else ""
            named |= {folder + name for name in re.findall(r"`([\w/]+\.py)`", cell)}
    return named


def _is(name: str, file: str) -> bool:
    """A page may name a file of an inner folder without the folder."""
    return f"/{file}".endswith(f"/{name}")


@pytest.mark.parametrize("room", PAGES)
def test_a_rooms_page_names_the_files_of_the_room(room: str) -> None:
    named, files = _table_files(PAGES[room]), _files(room)
    assert [file for file in sorted(files) if not any(_is(name, file) for name in named)] == [], "not on the page"
    assert [name for name in sorted(named) if not any(_is(name, file) for file in files)] == [], "not in the room"


def test_every_room_has_a_page() -> None:
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(PAGES) - {""}


def test_tests_have_a_folder_a_room() -> None:
    rooms = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    assert rooms >= set(PAGES) - {""}
