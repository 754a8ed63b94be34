"""A corpus prepared in parts, on as many machines as one likes, and joined: the set that one machine makes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from linnet.cli import main
from linnet.data import Batches, DataError, Prepared, TokenSet, join_parts, prepare, prepare_part, windows
from linnet.data.corpus import find_corpus
from linnet.data.documents import END_OF_TEXT, passages
from linnet.data.parts import Part, shares
from linnet.data.token_set import TokenSetWriter, segment_path, write_joined
from tests.data.conftest import story


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every kind of file that is cut, and some that are not."""
    folder = tmp_path_factory.mktemp("mixed") / "corpus"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:03}.txt").write_text(story(number), encoding="utf-8")
    rows = [{"text": story(100 + k, 1 + k % 9)} for k in range(150)]
    lines = [json.dumps(row) for row in rows]
    lines[70] = '{"other": 1}'  # in a folder a row without text is passed over
    (folder / "lines.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    (folder / "marked.txt").write_text(
        f"{END_OF_TEXT}\n".join(story(300 + k, 1 + k % 7) for k in range(120)), encoding="utf-8"
    )
    table = pyarrow.table({"text": [story(500 + k, 1 + k % 5) for k in range(90)]})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=10)
    (folder / "page.html").write_text(f"<p>{story(700)}</p>", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def whole(mixed: Path) -> Prepared:
    return prepare(mixed, vocab=300, held_out=0.1, cache=mixed.parent / "whole")


def in_parts(corpus: Path, count: int, cache: Path, **options: object) -> Prepared:
    for number in reversed(range(1, count + 1)):  # in any order
        prepare_part(corpus, f"{number}/{count}", cache=cache, **options)  # type: ignore[arg-type]
    return join_parts(corpus, cache=cache, **options)  # type: ignore[arg-type]


def assert_same(joined: Prepared, whole: Prepared) -> None:
    assert joined.fingerprint == whole.fingerprint
    assert joined.path.name == whole.path.name
    for mine, theirs in ((joined.train, whole.train), (joined.held_out, whole.held_out)):
        assert mine.fingerprint == theirs.fingerprint
        assert np.array_equal(mine.tokens, theirs.tokens)
        assert np.array_equal(mine.documents, theirs.documents)
        assert (mine.bytes, mine.vocab, mine.end) == (theirs.bytes, theirs.vocab, theirs.end)


@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_joined_parts_are_what_one_machine_makes(mixed: Path, whole: Prepared, tmp_path: Path, count: int) -> None:
    joined = in_parts(mixed, count, tmp_path, vocab=300, held_out=0.1)
    assert_same(joined, whole)
    assert joined.left_out and [name.split(":")[0] for name in joined.left_out] == ["lines.jsonl"]
    assert not list(tmp_path.glob("*.parts")), "they are one set now, and not kept twice"
    stages: list[str] = []
    again = prepare(mixed, vocab=300, held_out=0.1, cache=tmp_path, progress=lambda *stage: stages.append(stage[0]))
    assert (again.path, stages) == (joined.path, []), "a training finds it as if prepared here"


def test_the_join_writes_no_token(mixed: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        prepare_part(mixed, f"{number}/3", vocab=300, held_out=0.1, cache=tmp_path)
    inodes = {path.stat().st_ino for path in tmp_path.glob("*.parts/*/train.tokens")}
    joined = join_parts(mixed, vocab=300, held_out=0.1, cache=tmp_path)
    assert {path.stat().st_ino for path in joined.path.glob("train.*.tokens")} == inodes
    assert (joined.path / "train.tokens").stat().st_size < joined.train.path.with_name("train.1.tokens").stat().st_size


def test_duplicates_are_dropped_across_parts(mixed: Path, tmp_path: Path) -> None:
    corpus = Path(shutil.copytree(mixed, tmp_path / "corpus"))
    (corpus / "zz-again.txt").write_text((corpus / "003.txt").read_text(encoding="utf-8"), encoding="utf-8")
    (corpus / "zz-nearly.txt").write_text((corpus / "004.txt").read_text(encoding="utf-8") + "more", encoding="utf-8")
    alone = prepare(corpus, vocab=300, dedup=True, cache=tmp_path / "whole")
    joined = in_parts(corpus, 4, tmp_path / "parts", vocab=300, dedup=True)
    assert_same(joined, alone)
    assert joined.dropped == alone.dropped
    assert {"zz-again.txt: equal to 003.txt", "zz-nearly.txt: nearly equal to 004.txt"} <= set(joined.dropped)


def test_a_taken_tokenizer_needs_no_pass_over_the_corpus(mixed: Path, whole: Prepared, tmp_path: Path) -> None:
    donor = whole.path / "tokenizer.gguf"
    stages: list[str] = []
    part = prepare_part(
        mixed, "2/4", tokenizer=donor, cache=tmp_path / "parts", progress=lambda *stage: stages.append(stage[0])
    )
    assert set(stages) == {"tokens"}
    assert 0 < part.train.bytes < 0.5 * sum(path.stat().st_size for path in mixed.iterdir())
    for number in (1, 3, 4):
        prepare_part(mixed, f"{number}/4", tokenizer=donor, cache=tmp_path / "parts")
    joined = join_parts(mixed, tokenizer=donor, cache=tmp_path / "parts")
    assert_same(joined, prepare(mixed, tokenizer=donor, cache=tmp_path / "whole"))


def test_packs_are_joined_without_an_end_of_text(tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    folder.mkdir()
    for number in range(6):
        ids = np.random.default_rng(number).integers(0, 50, 40_000 + number, dtype=np.int32)
        (folder / f"{number}.i32").write_bytes(ids.astype("<i4").tobytes())
    alone = prepare(folder, vocab=50, held_out=0.3, cache=tmp_path / "whole")
    assert_same(in_parts(folder, 4, tmp_path / "parts", vocab=50, held_out=0.3), alone)


def test_more_parts_than_documents_and_nothing_to_hold_out(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(story(k) for k in range(60)), encoding="utf-8")
    joined = in_parts(book, 3, tmp_path / "parts", vocab=300, held_out=0.05)
    assert_same(joined, prepare(book, vocab=300, held_out=0.05, cache=tmp_path / "whole"))
    assert "prepared whole" in joined.remarks[0], "one document is cut into passages, which no part can know"
    assert len(in_parts(book, 3, tmp_path / "parts", vocab=300, held_out=0).held_out) == 0


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_document_is_in_one_part(mixed: Path, data: st.DataObject) -> None:
    names = ["lines.jsonl", "marked.txt", "rows.parquet", "*.txt", "*"]
    corpus = find_corpus(mixed if (name := data.draw(st.sampled_from(names))) == "*" else str(mixed / name))
    corpus = replace(corpus, strict=False)  # a line of one file has no text
    count = data.draw(st.integers(1, 40))
    documents = [passage for k in range(count) for passage in passages(shares(corpus, Part(k + 1, count))[0])]
    assert documents == list(passages(corpus))


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), min_size=1, max_size=20
    ),
    count=st.integers(1, 9),
    is_jsonl=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_any_text_is_cut_between_documents(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], count: int, is_jsonl: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / ("rows.jsonl" if is_jsonl else "rows.txt")
    content = "\n".join(json.dumps({"text": text}) for text in texts) if is_jsonl else END_OF_TEXT.join(texts)
    path.write_bytes(content.encode() or b" ")
    try:
        corpus = find_corpus(path)
        expected = list(passages(corpus))
    except DataError:
        return  # text of numbers is ids, and the like
    cut = [passage for k in range(count) for passage in passages(shares(corpus, Part(k + 1, count))[0])]
    assert cut == expected


@given(lengths=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_joined_set_reads_like_one_file(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], data: st.DataObject
) -> None:
    folder, end = tmp_path_factory.mktemp("sets"), data.draw(st.sampled_from([0, None]))
    single = TokenSetWriter(folder / "single.tokens", vocab=70_000, end=end)
    number, parts = 1, []
    for index, documents in enumerate(lengths, 1):
        part = TokenSetWriter(segment_path(folder / "joined.tokens", index), vocab=70_000, end=end)
        for length in documents:
            if end is None and not length:
                continue  # a document without an end has a token at least
            ids = np.arange(number, number + length, dtype="<u4").tobytes()
            number += length
            for writer in (single, part):
                writer.open_document()
                writer.add(ids, length)
        part.close()
        parts.append(TokenSet(part.path))
    single.close()
    write_joined(folder / "joined.tokens", parts)
    one, joined = TokenSet(single.path), TokenSet(folder / "joined.tokens")
    assert (joined.fingerprint, len(joined), joined.bytes) == (one.fingerprint, len(one), one.bytes)
    assert np.array_equal(joined.tokens, one.tokens) and np.array_equal(joined.documents, one.documents)
    assert [joined.document(k).tolist() for k in range(len(one.documents) - 1)] == [
        one.document(k).tolist() for k in range(len(one.documents) - 1)
    ]
    if len(one):
        positions = np.array(data.draw(st.lists(st.integers(-len(one), len(one) - 1), min_size=1)))
        assert np.array_equal(joined.tokens[positions], one.tokens[positions])
        cut = slice(data.draw(st.integers(-3, len(one))), data.draw(st.integers(0, len(one) + 3)))
        assert np.array_equal(joined.tokens[cut], one.tokens[cut])
        assert joined.tokens[-1] == one.tokens[-1]
        with pytest.raises(IndexError):
            joined.tokens[len(one)]


def test_batches_and_windows_of_a_joined_set(mixed: Path, whole: Prepared, tmp_path: Path) -> None:
    joined = in_parts(mixed, 7, tmp_path, vocab=300, held_out=0.1)
    mine, theirs = (Batches(found.train, ctx=48, batch=4, documents=True) for found in (joined, whole))
    for step in (0, 1, 77, 5000):
        for a, b in zip(mine.at(step).inputs, theirs.at(step).inputs, strict=True):
            assert a is not None and b is not None and a.equal(b)
    for a_batch, b_batch in zip(windows(joined.held_out, 48, 4), windows(whole.held_out, 48, 4), strict=True):
        assert a_batch.ids_BT.equal(b_batch.ids_BT)


def test_parts_of_two_processes_at_once(mixed: Path, whole: Prepared, tmp_path: Path) -> None:
    """The vocabulary is made once: who comes second waits for it."""
    command = [sys.executable, "-m", "linnet", "data", "prepare", str(mixed), "--vocab", "300", "--held-out", "0.1"]
    command += ["--cache", str(tmp_path)]
    running = [subprocess.Popen([*command, "--part", f"{k}/2"], stdout=subprocess.PIPE) for k in (1, 2)]
    assert [process.communicate(timeout=120)[0] and process.returncode for process in running] == [0, 0]
    assert_same(join_parts(mixed, vocab=300, held_out=0.1, cache=tmp_path), whole)


def test_commands_say_what_was_made_and_what_is_missing(
    mixed: Path, whole: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    options = [str(mixed), "--vocab", "300", "--held-out", "0.1"]
    assert main(["data", "prepare", *options, "--part", "3/3"]) == 0
    told = capsys.readouterr().out
    assert "part 3 of 3  made in" in told and "--join" in told
    assert main(["data", "prepare", *options, "--part", "3/3"]) == 0
    assert "made before, unchanged" in capsys.readouterr().out
    assert main(["data", "prepare", *options, "--join"]) == 1
    assert "2 of 3 parts are missing: 1/3, 2/3; prepare them with --part, then join" in capsys.readouterr().err
    assert main(["data", "list"]) == 0
    assert "1 of 3 parts" in capsys.readouterr().out
    assert main(["data", "prepare", *options, "--part", "1/3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["part"], facts["parts"], facts["made"]) == (1, 3, True)
    assert main(["data", "prepare", *options, "--part", "2/3"]) == 0
    capsys.readouterr()
    assert main(["data", "prepare", *options, "--join"]) == 0
    told = capsys.readouterr().out
    assert "joined in" in told and whole.fingerprint in told
    assert main(["data", "prepare", *options, "--join"]) == 0, "once more finds what was published"
    assert main(["data", "prepare", str(mixed), "--vocab", "301", "--join"]) == 1
    assert "has no parts of it with these settings" in capsys.readouterr().err
    assert main(["data", "rm", "corpus", "--yes"]) == 0
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "hashes"]


@pytest.mark.parametrize("part", ["", "3", "0/4", "5/4", "1/0", "a/b", "1/1000000", "-1/4", "1/4/2"])
def test_a_part_that_is_none(mixed: Path, tmp_path: Path, part: str) -> None:
    with pytest.raises(DataError, match=r"expected I/N|counted from 1"):
        prepare_part(mixed, part, cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_part_and_join_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "--part", "1/2", "--join"]) == 2
    assert "give one of them" in capsys.readouterr().err


def damaged(path: Path, at: int = -3) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.unlink()  # a hard link has another name for the same bytes
    path.write_bytes(content)


def test_a_damaged_part_is_named_and_made_again(mixed: Path, whole: Prepared, tmp_path: Path) -> None:
    parts = [prepare_part(mixed, f"{k}/2", vocab=300, held_out=0.1, cache=tmp_path) for k in (1, 2)]
    damaged(parts[1].path / "train.tokens")
    with pytest.raises(DataError, match=r"2/train.tokens: it does not hold what was written: prepare this part again"):
        join_parts(mixed, vocab=300, held_out=0.1, cache=tmp_path)
    assert prepare_part(mixed, "2/2", vocab=300, held_out=0.1, cache=tmp_path).made
    joined = join_parts(mixed, vocab=300, held_out=0.1, cache=tmp_path)
    assert_same(joined, whole)
    for name in ("train.2.tokens", "train.tokens", "held_out.1.tokens"):
        damaged(joined.path / name)
        again = prepare(mixed, vocab=300, held_out=0.1, cache=tmp_path)
        assert again.damage, name
        assert_same(again, whole)
        shutil.rmtree(again.path)
        joined = in_parts(mixed, 2, tmp_path, vocab=300, held_out=0.1)


def test_a_corpus_that_changed_between_parts(mixed: Path, tmp_path: Path) -> None:
    corpus = Path(shutil.copytree(mixed, tmp_path / "corpus"))
    cache = tmp_path / "cache"
    prepare_part(corpus, "1/2", vocab=300, cache=cache)
    prepare_part(corpus, "2/2", vocab=300, cache=cache)
    text = (corpus / "003.txt").read_text(encoding="utf-8")
    (corpus / "003.txt").write_text(text.swapcase(), encoding="utf-8")
    with pytest.raises(DataError, match="it has changed since its parts were prepared"):
        join_parts(corpus, vocab=300, cache=cache)
    (corpus / "003.txt").write_text(text, encoding="utf-8")
    assert join_parts(corpus, vocab=300, cache=cache)


def test_a_machine_with_another_copy_of_a_shared_file_is_named(mixed: Path, tmp_path: Path) -> None:
    here, there = (Path(shutil.copytree(mixed, tmp_path / name / "corpus")) for name in ("here", "there"))
    lines = (there / "lines.jsonl").read_text(encoding="utf-8")
    (there / "lines.jsonl").write_text(lines.replace("model", "MODEL"), encoding="utf-8")
    cache = tmp_path / "cache"
    for number, copy in enumerate((here, there, here, here), 1):
        # The vocabulary is made by the first part; of the copy only the text differs, not the sizes.
        prepare_part(copy, f"{number}/4", vocab=300, cache=cache)
    problem = "another lines.jsonl than|it has changed since its parts"
    with pytest.raises(DataError, match=problem):
        join_parts(here, vocab=300, cache=cache)


def test_a_shared_file_that_breaks_off_is_an_error_not_a_gap(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    text = END_OF_TEXT.join(story(k) for k in range(300)).replace("Ü", "U").encode()
    (folder / "marked.txt").write_bytes(text[:-300] + b"\xff\xfe" + text[-300:])
    (folder / "other.txt").write_text(story(99), encoding="utf-8")
    with pytest.raises(DataError, match=r"marked.txt: .*several parts share must be sound"):
        prepare_part(folder, "2/2", vocab=300, cache=tmp_path / "cache")
