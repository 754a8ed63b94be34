"""Each kind of corpus, and the words for each that cannot be used."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from linnet.data import DataError, Prepared, prepare
from tests.data.conftest import story
from tests.data.test_prepare import texts

pytestmark = pytest.mark.usefixtures("cache")
STORIES = [story(number) for number in range(60)]


def all_texts(prepared: Prepared) -> set[str]:
    return {*texts(prepared, prepared.train), *texts(prepared, prepared.held_out)}


def test_a_text_file_is_cut_at_end_of_text_marks(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("\n<|endoftext|>\n".join(STORIES), encoding="utf-8")
    found = {text.rstrip("\n") for text in all_texts(prepare(path, vocab=300))}
    assert found == {story.rstrip("\n") for story in STORIES}


def test_any_other_file_of_text_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "notes.rst"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(STORIES).encode() + b" says <|endoftext|> here")
    (found,) = all_texts(prepare(path, vocab=300, held_out=0))
    assert found.endswith("says <|endoftext|> here")
    assert not found.startswith("\ufeff")
    assert "\r\n" in found


def test_json_lines_packed_or_not_by_any_field(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"id": k, "story": text}) for k, text in enumerate(STORIES)).encode() + b"\n\n"
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
    (tmp_path / "C.JSONL.GZ").write_bytes(gzip.compress(lines, mtime=0))
    for name in ("a.jsonl", "b.jsonl.gz", "C.JSONL.GZ"):
        assert all_texts(prepare(tmp_path / name, vocab=300, field="story")) == set(STORIES)


def test_parquet_by_any_column(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"n": list(range(60)), "body": STORIES}), tmp_path / "a.parquet")
    assert all_texts(prepare(tmp_path / "a.parquet", vocab=300, field="body")) == set(STORIES)
    with pytest.raises(DataError, match=r"there is no column 'text'; it has n, body: see `field`"):
        prepare(tmp_path / "a.parquet", vocab=300)
    with pytest.raises(DataError, match="the column 'n' holds int, not text"):
        prepare(tmp_path / "a.parquet", vocab=300, field="n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 but nothing else")
    with pytest.raises(DataError, match="this is not a sound Parquet file"):
        prepare(tmp_path / "b.parquet", vocab=300)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs the package pyarrow: pip install 'linnet\[parquet\]'"):
        prepare(tmp_path / "a.parquet", vocab=300)


def test_a_folder_takes_its_text_and_leaves_the_rest(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "more.md").write_text(story(999), encoding="utf-8")
    (folder / "deep" / "rows.jsonl").write_text(json.dumps({"text": story(998)}), encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (folder / ".hidden.txt").write_text("not this", encoding="utf-8")
    (folder / "empty.txt").touch()
    assert len(all_texts(prepare(folder, vocab=300))) == 202
    assert len(all_texts(prepare(str(folder / "*1.txt"), vocab=300, held_out=0))) == 20
    assert len(all_texts(prepare(str(folder / "**" / "*.md"), vocab=280, held_out=0))) == 1


def packed(ids: list[int]) -> bytes:
    return np.array(ids, "<i4").tobytes()


def test_toys_packs_need_no_tokenizer(tmp_path: Path) -> None:
    ids = [k % 97 for k in range(20_000)]
    (tmp_path / "a.i32").write_bytes(packed(ids))
    (tmp_path / "b.bin").write_bytes(b"TOYC" + struct.pack("<III", 1, 500, 0) + packed(ids))
    (tmp_path / "c.txt").write_text("\n".join(" ".join(map(str, ids[k : k + 100])) for k in range(0, 20_000, 100)))
    plain, headed, lines = (prepare(tmp_path / name, held_out=0) for name in ("a.i32", "b.bin", "c.txt"))
    for found in (plain, headed, lines):
        assert found.train.tokens.tolist() == ids
        assert (found.tokenizer, found.tokenizer_keys, found.end, found.bytes_per_token) == (None, None, None, None)
    assert [found.vocab for found in (plain, headed, lines)] == [97, 500, 97]
    assert len(lines.train.documents) == 201
    assert [lines.train.document(k).tolist() for k in (1, 199)] == [ids[100:200], ids[19_900:]]
    split = prepare(tmp_path / "a.i32", held_out=0.1)
    assert len(split.train) + len(split.held_out) == 20_000
    assert len(split.held_out) > 0


def test_a_pack_with_its_tokenizer_has_documents(tmp_path: Path, smollm2: Path) -> None:
    (tmp_path / "a.i32").write_bytes(packed([0, 5, 6, 7, 0, 8, 9, 0, 10] * 50))
    found = prepare(tmp_path / "a.i32", tokenizer=smollm2, held_out=0)
    assert (found.vocab, found.end) == (49152, 0)
    assert [found.train.document(k).tolist() for k in range(3)] == [[5, 6, 7], [8, 9], [10]]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.txt", b"", "the file is empty"),
        ("nul.txt", b"text\0text", "this is not text: expected UTF-8, found NUL bytes"),
        (
            "a.txt.gz",
            gzip.compress(b"text " * 99, mtime=0)[:-9],
            "the compressed file is damaged after 495 bytes of it",
        ),
        ("b.txt.gz", gzip.compress(b"text\0text", mtime=0), "this is not text: expected UTF-8, found NUL bytes"),
        (
            "c.tgz",
            gzip.compress(bytes(257) + b"ustar" + bytes(99), mtime=0),
            "an archive .tar.; unpack it to have it read",
        ),
        ("noise.txt", bytes(range(1, 256)) * 9, "found bytes in no encoding that can be told"),
        ("late.txt", b"fine\n" * 300_000 + b"\xff", "this is not UTF-8 near byte 1"),
        ("late-nul.txt", b"fine\n" * 300_000 + b"\0", "a NUL byte at 1500000"),
        ("tiny.txt", b"hello", "vocabulary of 4,096 tokens is more than this corpus can give: it gives 26"),
        ("a.jsonl", b'{"text": "a"}\n{"body": 1}\n', r"line 2 has no text 'text'; it has body: see `field`"),
        ("b.jsonl", b'{"text": "a"}\nnonsense\n', "line 2 is not a JSON object"),
        ("h.jsonl", b"[1,2]\n", "line 1 is not a JSON object: expected object, found array$"),
        ("c.jsonl", b'{"text": 5}\n', "line 1 has a number under 'text', expected text: see `field`"),
        ("e.jsonl", rb'{"text": "half a pair: \ud800"}', "line 1 is not a JSON object: it holds half a surrogate pair"),
        ("f.jsonl", b'{"text": "a"}\n{"text": ' + b"[" * 100_000, "f.jsonl: line 2 is nested too deeply"),
        (
            "p.jsonl",
            b'{"prompt": "a"}\n',
            r"p.jsonl: line 1 has prompt and no answer to train on: expected prompt and completion, or the name of a",
        ),
        ("q.csv", b"id,instruction,input\n1,a,b\n", "q.csv: there is instruction and no column of answers to train on"),
        ("g.jsonl", b'{"' + b"k" * 9000 + b'": 1}', "line 1 has no text 'text'; it has k{40}: see `field`"),
        (
            "d.jsonl.gz",
            gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9],
            "the compressed file is damaged after line",
        ),
        (
            "a.bin",
            b"TOYC" + struct.pack("<III", 2, 9, 0) + packed([1]),
            "TOYC pack version 2 is not known; expected version 1",
        ),
        ("b.bin", b"TOYC\1\0", "header is cut short"),
        ("c.i32", b"123456789", "9 bytes are no multiple of 4"),
        ("d.bin", b"TOYC" + struct.pack("<III", 1, 9, 0), "the pack holds no tokens"),
        (
            "e.bin",
            b"TOYC" + struct.pack("<III", 1, 9, 0) + packed([3, 9]),
            "token 9 at place 1 is outside the vocabulary of 9",
        ),
        ("f.i32", packed([3, -1]), "token -1 at place 1 is outside the vocabulary of 4"),
        ("g.ids", b"1 2 three\n", "line 1 is not a list of token ids"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=words) as caught:
        prepare(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value) or "this corpus" in str(caught.value)


def test_a_corpus_that_is_not_there_is_said(tmp_path: Path) -> None:
    for name, words in (
        ("none.txt", "there is no such file or folder"),
        ("*.txt", "no file fits this pattern"),
        (".", "there is no text file in this folder"),
    ):
        with pytest.raises(DataError, match=words):
            prepare(tmp_path / "sub" / name if name != "." else _made(tmp_path / "bare"))


def _made(folder: Path) -> Path:
    folder.mkdir()
    (folder / "image.png").write_bytes(b"\x89PNG\0")
    return folder


def test_text_and_packs_do_not_mix(folder: Path) -> None:
    write(folder / "ids.i32", packed([1, 2, 3]))
    with pytest.raises(DataError, match="it mixes text with packs of token ids"):
        prepare(folder)


def test_an_unreadable_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", b"text " * 1000)

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt: the file cannot be read: Permission denied"):
        prepare(path)


def test_settings_that_make_no_sense_are_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"from 0 to below 1; found 1\.5"):
        prepare(folder, held_out=1.5)
    with pytest.raises(Exception, match="a byte-level vocabulary of 100 tokens is too small"):
        prepare(folder, vocab=100)
    with pytest.raises(DataError, match="a vocabulary trained on a corpus has at most 16,777,216 tokens, found 10"):
        prepare(folder, vocab=10**20)
    with pytest.raises(DataError, match="a vocabulary of a pack has at most 2,147,483,648 tokens"):
        prepare(write(folder.parent / "a.ids", b"1 2 9223372036854775807\n"))
    with pytest.raises(DataError, match="the corpus has no name"):
        prepare("")
    with pytest.raises(DataError, match="corpus ~nobody-of-that-name/x: there is no such file"):
        prepare("~nobody-of-that-name/x")
    with pytest.raises(Exception, match="known are gpt-2"):
        prepare(folder, vocab=300, pre="gpt-5")
