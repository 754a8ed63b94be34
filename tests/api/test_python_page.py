"""The examples of docs/python.md run as they stand."""

from __future__ import annotations

import re
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs/python.md"
BLOCKS = re.findall(r"^## ([^\n]+)\n|^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _examples() -> list[tuple[str, str]]:
    """Each block with the heading that it stands under."""
    heading, examples = "", []
    for title, code in BLOCKS:
        heading = title or heading
        if code:
            examples.append((heading, code))
    return examples


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(("heading", "code"), [pytest.param(*e, id=f"{i} {e[0]}") for i, e in enumerate(_examples())])
def test_the_examples_run_as_they_stand(
    heading: str, code: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_RUNS", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    books = tmp_path / "books"
    books.mkdir()
    for file in sorted((Path(sysconfig.get_path("stdlib")) / "email").glob("*.py")):
        shutil.copy(file, books)
    threads = torch.get_num_threads()
    try:
        exec(compile(code, f"{PAGE.name}: {heading}", "exec"), {"__name__": "example"})
    finally:
        torch.set_num_threads(threads)


def test_the_page_has_an_example_of_everything_it_promises() -> None:
    headings = {heading for heading, _ in _examples()}
    assert {"Train", "Resume", "Callbacks", "Your own data", "Your own loss", "A loop of your own"} <= headings
