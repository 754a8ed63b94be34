"""`linnet data show`, `list` and `rm`: a corpus before it is trained on, and the cache of those that were."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from linnet.cli import main
from linnet.data import Prepared
from tests.data.conftest import story


@pytest.fixture
def few(cache: Path, tmp_path: Path) -> Path:
    """Ten stories, two of them twice, one in another encoding, and what is no text."""
    folder = tmp_path / "few"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.txt").write_text(story(number, 40), encoding="utf-8")
    shutil.copy(folder / "3.txt", folder / "copy.txt")
    (folder / "near.txt").write_text(story(4, 40).replace(".", " !", 1).upper(), encoding="utf-8")
    (folder / "latin.txt").write_bytes("Grüße aus Köln. ".encode("cp1252") * 20)
    (folder / "rows.csv").write_text("id,text\n1,a row of words\n2,another row of words\n", encoding="utf-8")
    (folder / "old.zip").write_bytes(b"PK\x03\x04")
    (folder / "cut.docx").write_bytes(b"PK\x03\x04")
    (folder / "\x1b[2Jnoise.txt").write_bytes(b"\0\1")
    return folder


def test_show_tells_documents_pieces_lengths_duplicates_and_what_was_left_out(
    few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "show", str(few), "--vocab", "300", "--documents", "2", "--lines", "2"]) == 0
    shown = capsys.readouterr().out
    assert "15 documents, " in shown
    assert "  csv         1 file, 34 B" in shown
    assert "  cp1252      1 file: latin.txt" in shown
    assert "duplicates  1 equal, 1 nearly equal, " in shown
    assert "copy.txt: equal to 3.txt" in shown
    assert "near.txt: nearly equal to 4.txt" in shown
    assert "docx  " not in shown, "of a file that is left out nothing was read"
    assert "left out  3 files" in shown
    assert "old.zip: an archive (zip); unpack it to have it read" in shown
    assert "pieces: 300 tokens, trained on the corpus for this look" in shown
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith(str(few)))


def test_show_as_json_lists_everything(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", str(few), "--document", "rows.csv:2", "--document", "copy.txt", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [sample["name"] for sample in told["samples"]] == ["copy.txt", "rows.csv:2"]
    text = told["samples"][1]["text"]
    assert text == "another row of words"
    assert "".join(told["samples"][1]["pieces"]) == text
    assert told["kinds"]["text"]["files"] == 13
    assert told["encodings"] == {"cp1252": ["latin.txt"]}
    assert (told["duplicates"]["equal"], told["duplicates"]["near"], len(told["left_out"])) == (1, 1, 3)
    assert sum(bin["documents"] for bin in told["lengths"]["histogram"]) == told["documents"] == 15
    assert main(["data", "show", str(few), "--document", "none.txt"]) == 2
    assert "has no document 'none.txt'" in capsys.readouterr().err


def test_pieces_are_those_of_a_tokenizer_in_colour_on_a_terminal(
    prepared: Prepared, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = prepared.path / "tokenizer.gguf"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["data", "show", str(folder), "--tokenizer", str(tokenizer), "--documents", "1"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[97;48;5;24m" in shown
    assert "300 tokens, of" in shown


def test_a_pack_is_shown_by_its_ids(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.i32").write_bytes(np.arange(5000, dtype="<i4").tobytes())
    assert main(["data", "show", str(tmp_path / "a.i32")]) == 0
    shown = capsys.readouterr().out
    assert "1 document, 5,000 tokens" in shown
    assert "  0 1 2 3 4 5" in shown
    assert "duplicates" not in shown


def test_an_empty_or_missing_corpus_is_said(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bare").mkdir()
    assert main(["data", "show", str(tmp_path / "bare")]) == 1
    assert "there is no text file in this folder" in capsys.readouterr().err
    assert main(["data", "show", str(tmp_path / "none")]) == 1
    assert main(["data", "show", "--vocab", "300", "--tokenizer", "x"]) == 2


def test_the_cache_is_listed_and_cleared(
    prepared: Prepared, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copytree(prepared.path, cache / f"other-{'ab' * 12}")
    (other / "prepared.json").write_text("{")
    long_ago = time.time() - 40 * 86400
    os.utime(other, (long_ago, long_ago))
    foreign = cache / f"mine-{'cd' * 12}"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("not Linnet's")
    (cache / f".{'ef' * 12}.0011.linnet-partial").mkdir()
    (cache / f".{'ef' * 12}.0011.linnet-partial" / "train.tokens").write_bytes(bytes(5000))
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert prepared.path.name in shown and "damaged" in shown and "40 d" in shown and "2 in " in shown
    assert "mine" not in shown
    assert "and 5.0 kB that killed preparations left" in shown
    assert main(["data", "list", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["id"], first["vocab"], first["problem"]) == (prepared.path.name, 300, "")
    assert first["tokens"] == len(prepared.train) + len(prepared.held_out)
    assert second["problem"] == "damaged"
    assert main(["data", "rm"]) == 2
    assert "needs to know which" in capsys.readouterr().err
    assert main(["data", "rm", "nothing-of-that-name"]) == 1
    assert main(["data", "rm", "--older", "soon"]) == 1
    assert "--older soon: expected a number and m, h, d or w" in capsys.readouterr().err
    assert main(["data", "rm", "other"]) == 2  # nobody is there to ask
    assert other.exists()
    assert main(["data", "rm", "--older", "30d", "--yes"]) == 0
    assert not other.exists() and prepared.path.exists()
    assert "removed 1 prepared corpus" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert main(["data", "rm", prepared.path.name[-24:-18]]) == 1
    assert prepared.path.exists()
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert main(["data", "rm", prepared.path.name[-24:-18]]) == 0
    assert not prepared.path.exists()
    assert len(prepared.train.tokens[:10]) == 10  # a training that has it open keeps it
    assert main(["data", "rm", "--all", "--yes"]) == 0
    assert foreign.exists() and not list(cache.glob(".*partial"))
    assert main(["data", "list"]) == 0
    assert "holds no prepared corpus" in capsys.readouterr().out


def test_samples_are_the_same_each_time_and_from_all_over(cache: Path, tmp_path: Path) -> None:
    from linnet.data.corpus import find_corpus
    from linnet.data.overview import look_at

    rows = [json.dumps({"text": story(number, 2)}) for number in range(300)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    first, second = (look_at(find_corpus(tmp_path / "rows.jsonl"), samples=8).samples for _ in "12")
    assert first == second
    assert len(first) == 8 and first[-1].number > 150
    random.Random(0).shuffle(rows)
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    again = look_at(find_corpus(tmp_path / "rows.jsonl"), samples=8).samples
    assert {sample.text for sample in again} == {sample.text for sample in first}
