"""A prepared corpus that is not what was written is found out and made anew; it is never trained on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from linnet.cli import main
from linnet.data import Prepared, prepare
from tests.data.conftest import later, story


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def overwritten(path: Path, at: int, content: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(content)] = content
    path.write_bytes(whole)


def swapped(folder: Path) -> None:
    """The sound token set of another corpus in the place of this one's."""
    (folder.parent / "other.txt").write_text("".join(story(k) for k in range(900, 960)), encoding="utf-8")
    other = prepare(folder.parent / "other.txt", vocab=300, held_out=0.1)
    shutil.copy(other.train.path, folder / "train.tokens")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "ids beyond the vocabulary": lambda p: overwritten(p / "held_out.tokens", 128 + 40, b"\xff\xff" * 4),
    "other ids": lambda p: overwritten(p / "train.tokens", 128 + 400, np.arange(9, 60, dtype="<u2").tobytes()),
    "a moved document": lambda p: overwritten(p / "train.tokens", (p / "train.tokens").stat().st_size - 24, b"\1"),
    "another vocabulary in the header": lambda p: overwritten(p / "train.tokens", 40, b"\5"),
    "other counts of bytes": lambda p: overwritten(p / "train.tokens", 32, b"\5\5"),
    "cut short": lambda p: os.truncate(p / "train.tokens", 4096),
    "emptied": lambda p: os.truncate(p / "held_out.tokens", 0),
    "a set of another corpus": swapped,
    "a lying record": lambda p: edited(p / "prepared.json", vocab=5),
    "another fingerprint": lambda p: edited(p / "prepared.json", fingerprint="0" * 32),
    "a record that is no JSON": lambda p: (p / "prepared.json").write_bytes(b"\xff{"),
    "no record": lambda p: (p / "prepared.json").unlink(),
    "no tokenizer": lambda p: (p / "tokenizer.gguf").unlink(),
    "a damaged tokenizer": lambda p: os.truncate(p / "tokenizer.gguf", 900),
    "a file in its place": lambda p: (shutil.rmtree(p), p.write_text("not a folder")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_said_and_made_good(prepared: Prepared, folder: Path, name: str) -> None:
    tokens = prepared.train.tokens.tolist()
    DAMAGE[name](prepared.path)
    again = prepare(folder, vocab=300, held_out=0.1)
    assert (again.path, again.fingerprint, again.train.tokens.tolist()) == (prepared.path, prepared.fingerprint, tokens)
    (said,) = again.remarks
    assert said.startswith(f"the prepared corpus in the cache was damaged and is made anew: {prepared.path}")
    assert "prepare" not in said.rpartition(str(prepared.path))[2].replace("prepared", "")  # that is done
    third = prepare(folder, vocab=300, held_out=0.1)
    assert (third.fingerprint, third.remarks) == (prepared.fingerprint, ())
    assert not list(prepared.path.parent.glob(".*partial"))


def test_the_command_says_so_and_json_too(prepared: Prepared, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "prepare", str(folder), "--vocab", "300", "--held-out", "0.1"]
    (prepared.path / "tokenizer.gguf").unlink()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "made in" in out
    assert f"damaged and is made anew: {prepared.path}" in out
    os.truncate(prepared.path / "train.tokens", 9)
    assert main([*words, "--json"]) == 0
    assert "train.tokens: not a token set" in json.loads(capsys.readouterr().out)["damage"]


def test_a_pack_that_was_given_a_tokenizer_is_made_anew(cache: Path, tmp_path: Path, prepared: Prepared) -> None:
    (tmp_path / "a.i32").write_bytes(np.arange(2000, dtype="<i4").tobytes())
    pack = prepare(tmp_path / "a.i32")
    shutil.copy(prepared.path / "tokenizer.gguf", pack.path)
    assert prepare(tmp_path / "a.i32").tokenizer is None


def test_a_cache_of_an_older_version_is_used(prepared: Prepared, folder: Path) -> None:
    record = json.loads((prepared.path / "prepared.json").read_text())
    del record["text_bytes"]
    (prepared.path / "prepared.json").write_text(json.dumps(record))
    assert prepare(folder, vocab=300, held_out=0.1).remarks == ()


def test_damaged_hashes_make_no_other_corpus_of_the_same_files(
    prepared: Prepared, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    prepare(folder, vocab=300, held_out=0.1)
    for path in (prepared.path.parent / "hashes").iterdir():
        digit = path.read_bytes().rindex(b'"]') - 1
        overwritten(path, digit, b"0" if path.read_bytes()[digit:][:1] != b"0" else b"1")
    again = prepare(folder, vocab=300, held_out=0.1)
    assert (again.fingerprint, again.remarks) == (prepared.fingerprint, ())


def test_tokens_that_did_not_change_are_read_once(
    prepared: Prepared, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    prepare(folder, vocab=300, held_out=0.1)
    monkeypatch.setattr("linnet.data.prepared.content_digest", None)
    assert prepare(folder, vocab=300, held_out=0.1).remarks == ()
