"""Long documents are cut as ever, and whatever a file holds it is looked at in time that grows with its size."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from linnet.data.corpus import TEXT, find_corpus, is_numbers
from linnet.data.documents import cut


def cut_by_copying(text: str, size: int) -> list[str]:
    """What a passage is, in the plainest words: the time of this grows with the square of the text."""
    passages = []
    while text:
        end = len(text)
        if end > size:
            ends = (text.rfind(mark, size // 2, size) + 1 for mark in "\n ")
            end = next((place for place in ends if place), size)
        passages.append(text[:end])
        text = text[end:]
    return passages


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_passages_are_what_they_always_were(size: int) -> None:
    chance = random.Random(size)
    for _ in range(300):
        text = "".join(
            chance.choices("ab \nü", weights=[5, 5, chance.random(), chance.random(), 1], k=chance.randrange(400))
        )
        pieces = list(cut(text, True, size))
        assert [piece.text for piece in pieces] == cut_by_copying(text, size)
        assert [piece.opens for piece in pieces] == [True, *[False] * (len(pieces) - 1)][: len(pieces)]


@pytest.mark.parametrize("passage", [None, 2048])
def test_a_document_of_32_megabytes_is_cut_at_once(passage: int | None) -> None:
    text = "some words of a line\n" * 1_600_000
    began = time.perf_counter()
    assert sum(len(piece.text) for piece in cut(text, True, passage)) == len(text)
    assert time.perf_counter() - began < 5  # by copying the rest for each passage: minutes


def test_a_table_of_numbers_with_a_word_at_the_end_is_looked_at_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("1 " * 32_000 + "x\n" + "and text behind it\n" * 9)
    began = time.perf_counter()
    assert find_corpus(path).files[0].kind == TEXT
    assert time.perf_counter() - began < 5  # with an expression that goes back: half a minute


def test_text_of_numbers_is_told_as_ever() -> None:
    chance = random.Random(0)
    expression = re.compile(rb"\s*\d+(?:[ \t]+\d+)+[\d\s]*")
    answers = set()
    for _ in range(5000):
        head = bytes(chance.choices(b"12 \t\n\rx", weights=[9, 9, 4, 2, 2, 1, 0.3], k=chance.randrange(1, 14)))
        assert is_numbers(head) == bool(expression.fullmatch(head)), head
        answers.add(is_numbers(head))
    assert answers == {True, False}
