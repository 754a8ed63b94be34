"""Documents that are there twice are found, the same ones everywhere, and dropped with `--dedup`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.cli import main
from linnet.data import DataError, prepare
from linnet.data.documents import Passage
from linnet.data.duplicates import DuplicateFinder, Duplicates, without
from tests.data.conftest import story

VOCABULARY = [f"word{number}" for number in range(4000)]


def found(texts: list[str], threshold: float = 0.8) -> tuple[list[int], Duplicates]:
    """The numbers of the documents that are dropped, and what is told of them."""
    finder = DuplicateFinder(threshold)
    for number, text in enumerate(texts):
        finder.add(Passage(text, True), number)
    dropped, duplicates = finder.found()
    return np.flatnonzero(dropped).tolist(), duplicates


def altered(words: list[str], share: float, chance: Random) -> list[str]:
    return [chance.choice(VOCABULARY) if chance.random() < share else word for word in words]


def similarity(left: list[str], right: list[str]) -> float:
    """The Jaccard similarity of the runs of five words, counted out."""
    one, other = ({tuple(words[k : k + 5]) for k in range(len(words) - 4)} for words in (left, right))
    return len(one & other) / len(one | other)


def test_pairs_are_dropped_by_how_alike_they_are() -> None:
    chance = Random(0)
    texts, alike = [], []
    for share in (0.0, 0.005, 0.01, 0.02, 0.04, 0.1) * 40:
        words = chance.choices(VOCABULARY, k=300)
        other = altered(words, share, chance)
        texts += [" ".join(words), " ".join(other)]
        alike.append(similarity(words, other))
    dropped, duplicates = found(texts)
    assert all(number % 2 for number in dropped)  # the later one goes
    pairs = {number // 2 for number in dropped}
    assert all(k in pairs for k, share in enumerate(alike) if share >= 0.9)
    assert not [k for k in pairs if alike[k] < 0.68]
    likely = [k in pairs for k, share in enumerate(alike) if 0.85 <= share < 0.9]
    assert sum(likely) >= 0.9 * len(likely)
    assert duplicates.equal + duplicates.near == len(dropped)
    assert duplicates.bytes == sum(len(texts[number]) for number in dropped)
    exact, _ = found(texts, threshold=1)
    assert exact == [number for number in range(len(texts)) if number % 2 and texts[number] == texts[number - 1]]


def test_case_and_punctuation_do_not_count_and_of_a_group_the_first_stays() -> None:
    text = " ".join(Random(1).choices(VOCABULARY, k=80))
    texts = ["other words altogether here", text, text.upper(), text.replace(" ", ", "), f"  {text}!\n", text]
    dropped, duplicates = found(texts)
    assert dropped == [2, 3, 4, 5]
    assert (duplicates.equal, duplicates.near) == (1, 3)
    assert {duplicate.earlier.file for duplicate in duplicates.named} == {1}


def test_other_scripts_and_texts_without_words_are_told_apart() -> None:
    chinese = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出昆冈" * 3
    changed = chinese[:60] + "新" + chinese[61:]
    russian = "съешь же ещё этих мягких французских булок, да выпей чаю " * 2
    dropped, _ = found([chinese, "!!!", "???", russian, "–", changed, "!!!", chinese[::-1], russian.upper()])
    assert dropped == [5, 6, 8]


def test_passages_of_a_long_document_are_one_document() -> None:
    parts = [story(number, 400) for number in range(8)]
    finder = DuplicateFinder()
    for copy in range(2):
        for k, part in enumerate(parts):
            finder.add(Passage(part, k == 0), copy)
    finder.add(Passage(parts[0], True), 2)
    assert finder.found()[0].tolist() == [False, True, False]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab .\né猫\U0001f408"), max_size=40), max_size=12), st.integers(1, 3))
def test_equal_texts_are_found_whatever_they_hold(texts: list[str], size: int) -> None:
    texts = [text for text in texts if text]
    dropped, _ = found(texts, threshold=1)
    assert dropped == [number for number, text in enumerate(texts) if text in texts[:number]]
    near, _ = found(texts)
    assert set(dropped) <= set(near)
    assert 0 not in near
    # The same in pieces of any size, as the result may not depend on batches.
    finder = DuplicateFinder()
    for text in texts:
        finder.add(Passage(text, True), 0)
        if size > 1:
            assert finder._sketches is not None
            finder._sketches._sketch()
    assert np.flatnonzero(finder.found()[0]).tolist() == near
    passages = [Passage(text, True) for text in texts]
    kept = [passage.text for passage in without(passages, finder.found()[0])]
    assert kept == [text for number, text in enumerate(texts) if number not in near]


def test_dedup_drops_them_from_a_corpus_and_says_so(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    stories = [story(number) for number in range(60)]
    rows = [{"text": text} for text in [*stories, stories[7], stories[8].upper()]]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "b.txt").write_text(stories[9], encoding="utf-8")
    words = ["data", "prepare", str(folder), "--vocab", "300", "--held-out", "0"]
    for _ in "12":  # made, and from the cache
        assert main([*words, "--dedup"]) == 0
        told = capsys.readouterr().out
        assert "train       " in told and "in 60 documents" in told
        assert "3 duplicates dropped (2 equal, 1 nearly equal; " in told
        assert (
            "a.jsonl:61: equal to a.jsonl:8; a.jsonl:62: nearly equal to a.jsonl:9; b.txt: equal to a.jsonl:10" in told
        )
    assert main([*words, "--dedup", "--dedup-threshold", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["duplicates"]["near"] == 0
    assert main(words) == 0
    assert "in 63 documents" in capsys.readouterr().out
    assert main([*words, "--dedup-threshold", "0.9"]) == 1
    assert "--dedup-threshold says how alike documents are that --dedup drops: give both" in capsys.readouterr().err
    assert main([*words, "--dedup", "--dedup-threshold", "0.2"]) == 1
    assert "--dedup-threshold 0.2: expected 0.5 to 1" in capsys.readouterr().err
    (tmp_path / "a.ids").write_text("1 2 3\n")
    with pytest.raises(DataError, match="`dedup` compares words, and this is a pack of token ids"):
        prepare(tmp_path / "a.ids", dedup=True)
