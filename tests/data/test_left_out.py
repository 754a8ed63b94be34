"""Files of a folder that are not read are named and counted, and say why."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from linnet.cli import main
from linnet.data import DataError, prepare

NOISE = bytes(random.Random(0).choices(range(1, 256), k=4000))
ARCHIVE = "c.zip: an archive (zip); unpack it to have it read"


@pytest.fixture
def mixed(cache: Path, folder: Path) -> Path:
    """Stories, and beside them what is no text."""
    (folder / "c.zip").write_bytes(b"PK\x03\x04 and so on")
    (folder / "noise.txt").write_bytes(NOISE)
    (folder / "empty.txt").touch()
    (folder / ".hidden.gz").write_bytes(gzip.compress(b"hidden"))
    return folder


def test_the_command_names_and_counts_them_the_second_time_too(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = f"2 files left out: noise.txt: not text: bytes in no encoding that can be told; {ARCHIVE}"
    for _ in "12":
        assert main(["data", "prepare", str(mixed), "--vocab", "300"]) == 0
        assert sentence in capsys.readouterr().out
    assert main(["data", "prepare", str(mixed), "--vocab", "300", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)["left_out"]
    assert [words.partition(":")[0] for words in named] == ["c.zip", "noise.txt"]


def test_what_is_left_out_is_what_lies_there_now(mixed: Path) -> None:
    first = prepare(mixed, vocab=300)
    (mixed / "late.bin").write_bytes(b"\0\1\2")
    (mixed / "noise.txt").unlink()
    again = prepare(mixed, vocab=300)
    assert again.fingerprint == first.fingerprint  # the text is the same
    assert again.left_out == (ARCHIVE, "late.bin: not text: NUL bytes")
    assert prepare(mixed / "001.txt", vocab=270).left_out == ()


def test_only_a_few_are_named_and_the_rest_is_counted(mixed: Path) -> None:
    for number in range(20):
        (mixed / f"{number:02}.png").write_bytes(b"\x89PNG\0")
    (sentence,) = prepare(mixed, vocab=300).remarks
    assert sentence.startswith("22 files left out: noise.txt: not text: bytes in no encoding")
    assert sentence.endswith(f"; 02.png: not text: NUL bytes; and 17 more: linnet data show {mixed}")


def test_files_that_can_be_mended_are_named_first(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mixed / ".gitignore").write_text("0a.txt\n0b.txt\n", encoding="utf-8")
    for name in ("0a.txt", "0b.txt"):
        (mixed / name).write_text("A draft.", encoding="utf-8")
    for number in range(4):
        (mixed / f"0{number}.png").write_bytes(b"\x89PNG\0")
    (mixed / "rows.csv").write_text("title,words\nA,B\n", encoding="utf-8")
    (mixed / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    assert main(["data", "prepare", str(mixed), "--vocab", "300"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    _, files = said.split("10 files left out: ")
    places = [files.index(name) for name in ("noise.txt: ", "rows.csv: ", "torn.pdf: ", "c.zip: ", "00.png: ")]
    assert places == sorted(places)
    assert f"and 5 more: linnet data show {mixed}" in files
    assert main(["data", "show", str(mixed)]) == 0
    listed = capsys.readouterr().out.partition("left out")[2]
    assert listed.index("torn.pdf") < listed.index("c.zip") < listed.index("00.png") < listed.index("0a.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and links")
def test_links_and_pipes_are_named_too(mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (mixed / "linked").symlink_to(tmp_path / "elsewhere")
    (mixed / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(mixed / "pipe")
    named = dict(words.split(": ", 1) for words in prepare(mixed, vocab=300).left_out)
    assert named["linked"] == "a link to a folder, which is not followed"
    assert named["gone"] == named["pipe"] == "not a file that can be read"


def test_a_folder_of_nothing_else_says_what_was_in_it(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c\0")
    with pytest.raises(DataError, match=r"no text file in this folder \(1 file left out: a.7z: an archive \(7z\)"):
        prepare(tmp_path / "set")


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="names are bytes on Linux only")
def test_names_that_are_no_text_or_hold_escape_sequences_are_shown_harmlessly(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(os.fsdecode(os.fsencode(mixed) + b"/\xff.txt")).write_text("and this is read", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(mixed) + b"/\xfe.gz")).write_bytes(gzip.compress(b"x")[:8])
    (mixed / "\x1b[2J.gz").write_bytes(gzip.compress(b"x")[:8])
    assert main(["data", "prepare", str(mixed), "--vocab", "300"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "␛[2J.gz: the compressed file is damaged: it is cut short" in shown
    assert "\ufffd.gz: the compressed" in shown
