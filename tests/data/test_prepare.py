"""From a corpus to token sets: boundaries, what is held out, the cache, and what survives accidents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from linnet import gguf
from linnet.cli import main
from linnet.data import DataError, Prepared, TokenSet, prepare
from linnet.data.cache import cache_folder
from linnet.gguf import GGUFFile, MetadataBlock
from linnet.gguf.tokenizer import rebuild_tokenizer
from tests.data.conftest import later, story
from tests.gguf import tiny
from tests.gguf.llama_cpp_tokens import tokens_by_llama_cpp


def documents(prepared: Prepared, tokens: TokenSet) -> Iterator[str]:
    assert prepared.tokenizer is not None
    for index in range(len(tokens.documents) - 1):
        yield prepared.tokenizer.decode(tokens.document(index).tolist())


def texts(prepared: Prepared, tokens: TokenSet) -> list[str]:
    return list(documents(prepared, tokens))


def test_documents_come_back_whole_and_an_end_of_text_stands_round_each(prepared: Prepared, folder: Path) -> None:
    files = {path.read_text(encoding="utf-8") for path in folder.iterdir()}
    train, held_out = texts(prepared, prepared.train), texts(prepared, prepared.held_out)
    assert set(train) | set(held_out) == files
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == len(files)
    for tokens in (prepared.train, prepared.held_out):
        marks = [place for place, token in enumerate(tokens.tokens.tolist()) if token == prepared.end]
        assert marks == tokens.documents.tolist()
    assert prepared.train.bytes + prepared.held_out.bytes == sum(path.stat().st_size for path in folder.iterdir())


def test_the_vocabulary_is_as_large_as_asked_and_goes_into_a_gguf(prepared: Prepared) -> None:
    assert prepared.vocab == 300
    assert prepared.tokenizer is not None
    assert prepared.tokenizer.get_vocab_size() == 300
    keys = prepared.tokenizer_keys
    assert isinstance(keys, MetadataBlock)
    assert keys.length("tokenizer.ggml.tokens") == 300
    assert prepared.tokenizer.token_to_id("<|endoftext|>") == prepared.end
    assert prepared.bytes_per_token is not None
    assert 1 < prepared.bytes_per_token < 9


def test_adding_files_moves_no_document_to_the_other_side(prepared: Prepared, folder: Path) -> None:
    before = set(texts(prepared, prepared.held_out))
    assert 5 <= len(before) <= 40
    for number in range(200, 260):
        (folder / f"_{number}.txt").write_text(story(number), encoding="utf-8")
    after = prepare(folder, vocab=300, held_out=0.1)
    assert before <= set(texts(after, after.held_out))
    assert not before & set(texts(after, after.train))
    other = prepare(folder, vocab=300, held_out=0.1, seed=1)
    assert set(texts(other, other.held_out)) != set(texts(after, after.held_out))


def test_one_book_is_held_out_by_the_passage(cache: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(story(k) for k in range(60)), encoding="utf-8")
    found = prepare(book, vocab=300, held_out=0.05)
    assert found.held_out.bytes + found.train.bytes == book.stat().st_size
    assert 0.005 < found.held_out.bytes / book.stat().st_size < 0.2
    assert all(text in book.read_text(encoding="utf-8") for text in texts(found, found.held_out))
    assert len(prepare(book, vocab=300, held_out=0).held_out) == 0


def test_a_long_document_stays_one_where_nothing_of_it_is_held_out(cache: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    text = "".join(story(k) for k in range(3000))
    assert len(text) > 1 << 20
    book.write_text(text, encoding="utf-8")
    found = prepare(book, vocab=300, held_out=0)
    assert texts(found, found.train) == [text]


def test_workers_make_what_one_process_makes(cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = prepare(folder, vocab=300, workers=1)
    monkeypatch.setattr("linnet.data.workers.BUNDLE", 8000)
    shared = prepare(folder, vocab=300, workers=2, cache=cache.with_name("other"))
    assert shared.fingerprint == alone.fingerprint
    assert shared.train.path != alone.train.path


def test_the_same_corpus_is_found_again_and_a_changed_one_is_noticed(cache: Path, folder: Path) -> None:
    stages: list[str] = []
    first = prepare(folder, vocab=300, progress=lambda stage, done, total: stages.append(stage))
    assert set(stages) == {"vocabulary", "tokens"}
    stages.clear()
    again = prepare(folder, vocab=300, progress=lambda stage, done, total: stages.append(stage))
    assert (again.path, again.fingerprint, stages) == (first.path, first.fingerprint, [])
    changed = folder / "007.txt"
    then = changed.stat()
    changed.write_text(changed.read_text(encoding="utf-8").replace("model", "MODEL"), encoding="utf-8")
    os.utime(changed, ns=(then.st_atime_ns, then.st_mtime_ns))  # same size, same time of change
    assert prepare(folder, vocab=300).fingerprint != first.fingerprint
    assert prepare(folder, vocab=301).fingerprint != first.fingerprint


def test_a_corpus_that_changes_meanwhile_is_not_kept(cache: Path, folder: Path) -> None:
    def meddle(stage: str, done: int, total: int) -> None:
        (folder / "100.txt").write_text(f"{stage} {done}", encoding="utf-8")

    with pytest.raises(DataError, match="it changed while it was prepared; start again"):
        prepare(folder, vocab=300, progress=meddle)
    assert not list(cache.glob("stories-*"))


def test_files_that_did_not_change_are_not_read_again(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))
    later(monkeypatch)
    first = prepare(folder, vocab=300)
    monkeypatch.setattr("hashlib.file_digest", None)
    assert prepare(folder, vocab=300).fingerprint == first.fingerprint


def test_two_processes_at_once_prepare_it_once(cache: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "linnet", "data", "prepare", str(folder), "--vocab", "300", "--json"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"LINNET_CACHE": str(cache)}) for _ in "12"
    ]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0]["fingerprint"] == said[1]["fingerprint"]
    assert sorted(one["made"] for one in said) == [False, True]


def test_killed_at_any_moment_it_leaves_nothing_half_made(cache: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "linnet", "data", "prepare", str(folder), "--vocab", "300", "--workers", "2"]
    started = time.monotonic()
    for delay in (0.3, 0.6, 0.75, 0.9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for made in (path for path in cache.glob("stories-*") if path.is_dir()):
            assert len(Prepared(made).train) > 1000
    assert time.monotonic() - started < 30
    assert len(prepare(folder, vocab=300).train) > 1000
    assert not list(cache.glob(".*partial"))


def test_an_error_leaves_nothing_behind(cache: Path, folder: Path) -> None:
    with pytest.raises(DataError, match="more than this corpus can give"):
        prepare(folder, vocab=20_000)
    assert [path for path in cache.iterdir() if path.is_dir()] == [cache / "hashes"]


def test_a_full_disk_is_said_and_leaves_nothing_behind(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("linnet.data.token_set.TokenSetWriter.close", full)
    with pytest.raises(
        DataError, match=r"the disk is full; nothing was kept\. Make room or choose another with `cache`"
    ):
        prepare(folder, vocab=300)
    assert not list(cache.glob(".*partial"))
    assert not list(cache.glob("stories-*"))


def test_threads_of_one_process_may_prepare_at_once(cache: Path, folder: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(prepare(folder, vocab=300).fingerprint)) for _ in "123"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


def test_a_donors_tokenizer_is_taken_verbatim(cache: Path, folder: Path, smollm2: Path) -> None:
    found = prepare(folder, tokenizer=smollm2)
    with GGUFFile.open(smollm2) as donor, GGUFFile.open(found.path / "tokenizer.gguf") as kept:
        keys = [key for key in donor.metadata if key.startswith("tokenizer.")]
        assert keys == [key for key in kept.metadata if key.startswith("tokenizer.")]
        assert all(donor.metadata.raw(key) == kept.metadata.raw(key) for key in keys)
        donors = rebuild_tokenizer({key: donor.metadata[key] for key in keys})
    assert found.vocab == 49152
    assert found.train.document(0).tolist() == donors.encode(texts(found, found.train)[0], add_special_tokens=False).ids
    with pytest.raises(DataError, match="`vocab=300` does not go with a tokenizer of 49152 tokens"):
        prepare(folder, tokenizer=smollm2, vocab=300)


def test_the_tokens_are_those_llama_cpp_reads_with_the_checkpoints_keys(prepared: Prepared, tmp_path: Path) -> None:
    cfg = tiny.llama_config(vocab=prepared.vocab)
    _, params = tiny.llama(cfg)
    path = gguf.write(cfg, params, tmp_path / "model.gguf", "run", 1, tokenizer=prepared.tokenizer_keys)
    stories = texts(prepared, prepared.train)[:3]
    found = tokens_by_llama_cpp(path, stories)
    assert found == [prepared.train.document(index).tolist() for index in range(3)]


def test_the_python_corpus_is_the_same_twice(cache: Path, tmp_path: Path) -> None:
    first = prepare(vocab=512, workers=1)
    assert first.train.bytes > 5_000_000
    second = prepare(vocab=512, workers=2, cache=tmp_path / "second")
    assert (first.fingerprint, first.train.fingerprint) == (second.fingerprint, second.train.fingerprint)
    assert any("class OrderedDict" in text for part in (first.train, first.held_out) for text in documents(first, part))


def test_the_command_says_what_it_made_and_where(cache: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", str(folder), "--vocab", "300"]) == 0
    said = capsys.readouterr().out
    assert "made in" in said
    assert str(cache) in said
    assert "bytes of text a token" in said
    assert main(["data", "prepare", str(folder), "--vocab", "300"]) == 0
    assert "made before, unchanged" in capsys.readouterr().out
    assert main(["data", "prepare", str(folder / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"linnet: corpus {folder / 'none'}: there is no such file or folder")


def test_a_damaged_token_set_is_refused_by_name(prepared: Prepared) -> None:
    path = prepared.train.path
    whole = path.read_bytes()
    for damage, words in (
        (whole[:-8], "cut short or grown"),
        (b"LINNETTK" + (9).to_bytes(4, "little") + whole[12:], "token set version 9"),
        (b"something else" + whole[14:], "not a token set of Linnet"),
    ):
        path.write_bytes(damage)
        with pytest.raises(DataError, match=words):
            TokenSet(path)


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    assert cache_folder(tmp_path / "b") == tmp_path / "b"
    monkeypatch.delenv("LINNET_CACHE")
    assert cache_folder().name == "linnet"
