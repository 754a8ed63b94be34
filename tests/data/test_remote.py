"""Corpora in a store: the same tokens as of files on the disk, fetched when they are needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from linnet.cli import main
from linnet.data import DataError, join_parts, prepare, prepare_part
from linnet.data.corpus import find_corpus
from linnet.data.encoding import HEAD
from linnet.remote import RemoteError, Store
from tests.data.conftest import story
from tests.data.fake_hub import fake_hub
from tests.s3 import s3_server, use_s3

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with s3_server("texts") as address:
        yield address


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files and four that are longer than what tells their format."""
    folder = tmp_path_factory.mktemp("remote") / "stories"
    (folder / "deep").mkdir(parents=True)
    for number in range(8):
        (folder / f"{number:03}.txt").write_text(story(number), encoding="utf-8")
    for number in range(4):
        text = "".join(f"{story(100 * number + k)}<|endoftext|>" for k in range(160))
        assert len(text) > HEAD
        (folder / "deep" / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "photo.bin").write_bytes(bytes(300))
    (folder / ".hidden").write_text("no")
    return folder


@pytest.fixture
def url(address: str, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same files in a bucket."""
    use_s3(monkeypatch, address)
    store = Store("s3://texts/set/stories")
    for path in corpus.rglob("*"):
        if path.is_file():
            store.upload(path, path.relative_to(corpus).as_posix())
    yield "s3://texts/set/stories"
    store._files.rm("texts/set", recursive=True)


def test_a_bucket_gives_what_the_folder_gives(url: str, corpus: Path, tmp_path: Path) -> None:
    here = prepare(corpus, vocab=300, cache=tmp_path / "here")
    stages: list[str] = []
    there = prepare(url, vocab=300, cache=tmp_path / "there", progress=lambda *stage: stages.append(stage[0]))
    assert (there.fingerprint, there.path.name) == (here.fingerprint, here.path.name)
    assert there.left_out == here.left_out == ("photo.bin: not text: NUL bytes",)
    assert stages[0] == "fetching"
    stages.clear()
    again = prepare(url, vocab=300, cache=tmp_path / "there", progress=lambda *stage: stages.append(stage[0]))
    assert (again.path, stages) == (there.path, []), "nothing is fetched or made again"


def test_a_file_and_a_pattern_of_a_bucket(url: str, corpus: Path, tmp_path: Path) -> None:
    for name in ("003.txt", "deep/*.txt", "**/*.txt"):
        there = find_corpus(f"{url}/{name}", cache=tmp_path / "cache")
        here = find_corpus(str(corpus / name))
        there.complete()
        assert [file.path.read_bytes() for file in there.files] == [file.path.read_bytes() for file in here.files]
        assert there.strict and there.shown_name(0).endswith(".txt")


def test_a_changed_object_is_fetched_again(url: str, corpus: Path, tmp_path: Path) -> None:
    before = prepare(url, vocab=300, cache=tmp_path / "cache")
    changed = shutil.copytree(corpus, tmp_path / "stories")
    text = (changed / "deep/2.txt").read_text(encoding="utf-8").replace("model", "MODEL")
    (changed / "deep/2.txt").write_text(text, encoding="utf-8")
    Store(url).upload(changed / "deep/2.txt", "deep/2.txt")
    after = prepare(url, vocab=300, cache=tmp_path / "cache")
    assert after.fingerprint != before.fingerprint
    assert after.fingerprint == prepare(changed, vocab=300, cache=tmp_path / "whole").fingerprint


def test_a_part_fetches_its_own_files(url: str, corpus: Path, tmp_path: Path) -> None:
    here = prepare(corpus, vocab=300, cache=tmp_path / "here")
    donor = here.path / "tokenizer.gguf"
    alone = prepare(corpus, tokenizer=donor, cache=tmp_path / "here")
    prepare_part(url, "1/4", tokenizer=donor, cache=tmp_path / "cache")
    whole = {path.name for path in (tmp_path / "cache").rglob(".*.linnet-fetched")}
    assert ".003.txt.linnet-fetched" in whole and ".3.txt.linnet-fetched" not in whole, "only what is small, or its own"
    for number in (2, 3, 4):
        prepare_part(url, f"{number}/4", tokenizer=donor, cache=tmp_path / "cache")
    assert join_parts(url, tokenizer=donor, cache=tmp_path / "cache").fingerprint == alone.fingerprint


def test_what_a_store_does_not_have_is_one_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    for name, problem in {
        "s3://texts/nothing": "there is no file below it",
        "s3://nowhere/at/all": "corpus s3://nowhere/at/all: ",
        "s3://texts/set/*.csv": "no file fits this pattern",
        "nope://x": "Protocol not known: nope",
    }.items():
        assert main(["data", "prepare", name]) == 1
        err = capsys.readouterr().err
        assert problem in err and err.count("\n") == 1, err
    assert main(["data", "prepare", url, "--vocab", "300"]) == 0
    assert main(["data", "show", url, "--documents", "1"]) == 0
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    assert "of corpora fetched from elsewhere" in capsys.readouterr().out
    assert main(["data", "rm", "--all", "--yes"]) == 0
    assert not list((tmp_path / "remote").iterdir())


def test_a_server_that_is_not_there_and_a_package_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import builtins

    imported = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.split(".")[0] in ("fsspec", "s3fs"):
            raise ImportError(name)
        return imported(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"s3:// needs the package s3fs: pip install 'linnet\[s3\]'"):
        find_corpus("s3://texts/set", cache=tmp_path)
    with pytest.raises(RemoteError, match=r"hf:// needs the package huggingface_hub: pip install 'linnet\[hf\]'"):
        Store("hf://datasets/x/y")


def test_a_dataset_of_the_hub_gives_what_its_files_give(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    lines = "".join(json.dumps({"text": story(k)}) + "\n" for k in range(150)).encode()
    assert len(lines) > HEAD
    files = {"data/a.txt": story(900).encode(), "data/b.jsonl": lines}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    here = prepare(tmp_path / "data", vocab=300, cache=tmp_path / "here")
    with fake_hub("who/what", files) as address:
        # Its address is read when the library is loaded.
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hf")}
        words = ["hf://datasets/who/what/data", "--vocab", "300", "--cache", str(tmp_path / "there"), "--json"]
        told = subprocess.run(
            [sys.executable, "-m", "linnet", "data", "prepare", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["fingerprint"] == here.fingerprint


def test_any_store_of_fsspec_will_do(corpus: Path, tmp_path: Path) -> None:
    here = prepare(corpus, vocab=300, cache=tmp_path / "here")
    there = prepare(f"file://{corpus}", vocab=300, cache=tmp_path / "there")
    assert there.fingerprint == here.fingerprint
    with pytest.raises(DataError, match=r"there is no file below it|nothing of this name"):
        prepare(f"file://{tmp_path}/nothing", cache=tmp_path / "there")
