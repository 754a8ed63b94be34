"""What `linnet train` makes of a corpus: which of its text, from which field, found again from anywhere."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

import linnet
from linnet.board import words
from tests.conftest import SMALL, Said

TRAIN = ("train", "from-scratch", *SMALL)


@pytest.fixture
def rows(corpus: Path, tmp_path: Path) -> Path:
    """The corpus as JSONL, its text under `content`."""
    path = tmp_path / "rows.jsonl"
    lines = (json.dumps({"id": file.name, "content": file.read_text("utf-8")}) for file in sorted(corpus.iterdir()))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_files_that_are_left_out_are_told_and_noted_in_the_run(said: Said, corpus: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(corpus, tmp_path / "mine")
    for number in range(6):
        (mine / f"{number}.zip").write_bytes(b"PK\x03\x04 and so on")
    (mine / "latin.txt.gz").write_bytes(gzip.compress("Grüße aus Köln. ".encode("cp1252") * 9))
    first = min(path.name for path in corpus.iterdir())
    shutil.copy(corpus / first, mine / "zz.txt")
    archives = [f"{number}.zip: an archive (zip); unpack it to have it read" for number in range(6)]
    sentences = [
        f"6 files left out: {'; '.join(archives[:5])}; and 1 more: linnet data show {mine}",
        "1 file read as cp1252: latin.txt.gz",
        f"1 duplicate dropped (1 equal, 0 nearly equal; {words.size((corpus / first).stat().st_size)}): "
        f"zz.txt: equal to {first}",
    ]
    for _ in "12":  # the second time the tokens come from the cache
        code, out, err = said(*TRAIN, "--corpus", str(mine), "--dedup", "--steps", "1")
        assert (code, err) == (0, "")
        assert all(sentence in out for sentence in sentences)
        notes = [event.data["text"] for event in linnet.open("latest").events().read_events() if event.kind == "note"]
        assert notes == sentences
        (kept,) = (linnet.open("latest").path / "artifacts").rglob("*.txt")
        assert kept.read_text(encoding="utf-8").splitlines() == [*archives, f"zz.txt: equal to {first}"]
    code, out, _ = said("eval", "latest", "--tokens", "64", "--json")
    told = json.loads(out)
    assert told["left_out"] == archives
    assert told["encodings"] == {"cp1252": ["latin.txt.gz"]}
    assert said("resume", "latest", "--steps", "2")[0] == 0


def test_field_says_where_the_text_is_in_training_evaluation_and_resume(said: Said, rows: Path) -> None:
    code, _, err = said(*TRAIN, "--corpus", str(rows), "--steps", "1")
    assert code == 1
    assert "line 1 has no text 'text'; it has id, content: see --field" in err
    code, _, err = said(*TRAIN, "--corpus", str(rows), "--field", "content", "--steps", "2", "--run-id", "a")
    assert (code, err) == (0, "")
    assert linnet.open("a").manifest.config["field"] == "content"
    assert said("resume", "a", "--steps", "3")[0] == 0
    assert said("eval", "a", "--tokens", "64")[0] == 0


def test_a_job_without_field_has_the_fingerprint_it_always_had() -> None:
    from linnet.models import preset
    from linnet.recipes import Job, TextData
    from linnet.train import TrainSettings

    job = Job(preset("tiny"), TextData("a.txt"), TrainSettings())
    assert "field" not in job.config_fields()
    assert Job.from_fields(job.model_fields(), job.config_fields()) == job
    before = {name: value for name, value in job.config_fields().items() if name != "plain"}
    old = Job.from_fields(job.model_fields(), before)
    assert old.config_fields() == before
    assert old.fingerprint() == job.fingerprint()
    assert isinstance(old.data, TextData) and old.data.plain is None


def test_a_run_is_resumed_from_another_folder(
    said: Said, rows: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows.parent == tmp_path
    flags = ("--corpus", "rows.jsonl", "--field", "content", "--cache", "kept", "--steps", "2", "--run-id", "a")
    assert said(*TRAIN, *flags)[0] == 0
    config = linnet.open("a").manifest.config
    assert (config["corpus"], config["cache"]) == (str(rows), str(tmp_path / "kept"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "rows.jsonl").write_text('{"content": "another file of that name"}')
    code, _, err = said("resume", "a", "--steps", "3")
    assert (code, err) == (0, "")


def test_a_run_that_kept_its_corpus_relative_is_resumed_as_before(said: Said, rows: Path) -> None:
    from linnet.models import preset
    from linnet.recipes import Job, TextData, start
    from linnet.train import TrainSettings

    data = TextData("rows.jsonl", field="content")
    job = Job(preset("tiny", vocab=384), data, TrainSettings(steps=2, batch=4, eval_tokens=64))
    assert start(job, runs_root="runs", run_id="old").run().reason == "completed"
    assert linnet.open("old").manifest.config["corpus"] == "rows.jsonl"
    assert said("resume", "old", "--steps", "3")[0] == 0


def test_names_for_what_is_built_in_and_patterns_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linnet.recipes.flags import absolute_source

    for name in ("python", "digits", "*.txt", "hf://somewhere/else", "none.txt"):
        assert absolute_source(name) == name
    (tmp_path / "python").mkdir()
    assert absolute_source("python") == str(tmp_path / "python")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_source(f"~{os.sep}python") == str(tmp_path / "python")


def test_poisoned_tokens_are_made_anew_before_training(said: Said, corpus: Path, tmp_path: Path) -> None:
    words = (*TRAIN, "--corpus", str(corpus), "--cache", "kept", "--steps", "2", "--lr", "1e-3")
    assert said(*words, "--run-id", "a")[0] == 0
    (entry,) = (path for path in (tmp_path / "kept").iterdir() if (path / "train.tokens").exists())
    whole = bytearray((entry / "held_out.tokens").read_bytes())
    whole[128:160] = b"\xff" * 32
    (entry / "held_out.tokens").write_bytes(whole)
    (entry / "tokenizer.gguf").unlink()
    code, out, err = said(*words, "--run-id", "b")
    assert (code, err) == (0, "")
    assert "the prepared corpus in the cache was damaged and is made anew" in out
    first, second = (Path(f"runs/{name}/weights/step_2.gguf").stat().st_size for name in "ab")
    assert first == second
