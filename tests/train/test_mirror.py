"""A run copied to a store while it trains: whole, in nobody's way, tried again, and brought back."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import linnet
from linnet.runs import mirror as mirror_module
from linnet.runs.mirror import Mirror, fetch_run
from linnet.runs.mirroring import LEDGER, Ledger, Mirroring
from linnet.runs.remote_root import fetched_root
from linnet.train.callback import TrainingContext
from linnet.train.mirror_callback import MirrorCallback
from tests.conftest import SMALL, Said
from tests.s3 import s3_server, silent_server, use_s3

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

TRAIN = ("train", "from-scratch", *SMALL, "--ctx", "32", "--device", "cpu")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with s3_server("shelf") as address:
        yield address


@pytest.fixture
def s3(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_s3(monkeypatch, address)


def content(folder: Path) -> dict[str, bytes]:
    """The files of a run; links as the names they lead to."""
    files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and not name.startswith(".cache"):
            files[name] = f"{path.readlink()}\n".encode() if path.is_symlink() else path.read_bytes()
    return files


@pytest.mark.usefixtures("s3")
def test_a_run_is_mirrored_and_goes_on_from_its_mirror_alone(said: Said, corpus: Path, tmp_path: Path) -> None:
    words = (*TRAIN, "--corpus", str(corpus), "--checkpoint-every", "2", "--keep", "1", "--sample-every", "0")
    code, out, err = said(*words, "--steps", "6", "--run-id", "copied", "--mirror", "s3://shelf/runs")
    assert code == 0, err
    assert "mirror  s3://shelf/runs/copied\n" in out
    here = tmp_path / "runs/copied"
    there = fetch_run("s3://shelf/runs/copied", tmp_path / "fetched")
    assert content(there) == content(here), "to the last event, without checkpoints that the run has removed"
    assert json.loads((here / LEDGER).read_text())["missing"] == []
    # The machine is lost; another goes on with what the store has, and mirrors on.
    alone = shutil.copytree(here, tmp_path / "alone" / "copied", symlinks=True)
    shutil.rmtree(here)
    code, out, err = said("resume", "s3://shelf/runs/copied", "--steps", "9", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["mirror"] == {"url": "s3://shelf/runs/copied", "missing": [], "error": ""}
    assert said("resume", str(alone), "--steps", "9")[0] == 0
    losses = [linnet.open(str(path)).metrics()["loss"].value.tolist() for path in (here, alone)]
    assert losses[0] == losses[1] and len(losses[0]) == 9
    assert said("resume", "s3://shelf/runs/copied")[0] == 1, "it is here already"
    assert said("resume", "s3://shelf/runs/nothing")[0] == 1


def test_a_store_that_never_answers_delays_nothing_and_is_tried_again(
    said: Said, corpus: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "STALLED_SECONDS", 1.0)
    words = (*TRAIN, "--corpus", str(corpus), "--checkpoint-every", "1", "--sample-every", "0", "--eval-every", "0")
    with silent_server() as nobody:
        use_s3(monkeypatch, nobody)
        began = time.monotonic()
        code, out, err = said(*words, "--steps", "4", "--run-id", "stuck", "--mirror", "s3://shelf/runs")
        assert time.monotonic() - began < 30
    assert code == 0, err
    run = linnet.open("stuck")
    assert run.status == "completed"
    told = " ".join(out.split())
    assert "files were not copied (" in told and "the store takes nothing; linnet mirror" in told
    use_s3(monkeypatch, address)
    monkeypatch.setattr(mirror_module, "STALLED_SECONDS", 30.0)
    assert said("resume", "stuck", "--steps", "5")[0] == 0, "what was not copied is, with the rest"
    assert content(fetch_run("s3://shelf/runs/stuck", tmp_path / "fetched")) == content(tmp_path / "runs/stuck")


def test_a_store_that_is_gone_is_told_and_a_command_copies_later(
    said: Said, corpus: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.write_text("a file where a folder should be")
    words = (*TRAIN, "--corpus", str(corpus), "--sample-every", "0", "--eval-every", "0", "--checkpoint-every", "1")
    code, out, _ = said(*words, "--steps", "3", "--run-id", "gone", "--mirror", f"file://{store}")
    assert code == 0
    assert "not copied" in out and "linnet mirror" in out
    assert said("mirror", "gone")[0] == 1, "it is still in the way"
    store.unlink()
    code, out, _ = said("mirror", "gone")
    assert (code, "all of them there" in out) == (0, True)
    assert content(store / "gone") == content(tmp_path / "runs/gone")
    assert said("mirror", "gone", "--json")[0] == 0
    use_s3(monkeypatch, address)
    assert said("mirror", "gone", "s3://shelf/elsewhere")[0] == 0
    assert content(fetch_run("s3://shelf/elsewhere/gone", tmp_path / "back")) == content(tmp_path / "runs/gone")


def test_bad_places_are_refused_before_anything_is_made(said: Said, corpus: Path, tmp_path: Path) -> None:
    for url, problem in {
        "backup/runs": "--mirror backup/runs: expected a URL such as s3://bucket/runs",
        "nope://x/y": "Protocol not known: nope",
        "gs://bucket/x": "gs:// needs the package gcsfs: pip install 'linnet[gs]'",
    }.items():
        if url.startswith("gs") and _has("gcsfs"):
            continue
        code, _, err = said(*TRAIN, "--corpus", str(corpus), "--steps", "2", "--mirror", url)
        assert (code, problem in err) == (2, True), err
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs/bare").mkdir(parents=True)
    (tmp_path / "runs/bare/run.json").write_text("{}")
    assert said("mirror", "bare")[0] != 0


def test_the_newest_checkpoint_goes_first_and_half_a_line_is_not_copied(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("weights/step_2.gguf", "weights/step_10.gguf", "state/step_10.safetensors", "run.json"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(name.encode())
    (run / "weights/latest").symlink_to("step_10.gguf")
    (run / "weights/.step_12.gguf.0.linnet-partial").write_bytes(b"being written")
    (run / "events.jsonl").write_bytes(b'{"a": 1}\n{"b"')
    order: list[str] = []
    mirroring = Mirroring(run, f"file://{tmp_path}/store")
    copy_file = mirroring._copy_file
    mirroring._copy_file = lambda name: (order.append(name), copy_file(name))[1]  # type: ignore[method-assign]
    mirroring.copy()
    assert order == [
        "state/step_10.safetensors",
        "weights/step_10.gguf",
        "weights/step_2.gguf",
        "weights/latest",
        "events.jsonl",
        "run.json",
    ]
    assert (tmp_path / "store/events.jsonl").read_bytes() == b'{"a": 1}\n'
    assert (tmp_path / "store/weights/latest").read_text() == "step_10.gguf\n"
    (run / "weights/step_2.gguf").unlink()
    order.clear()
    mirroring.copy()
    assert order == [] and not (tmp_path / "store/weights/step_2.gguf").exists()


def test_a_run_that_can_only_be_read_is_copied_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "weights").mkdir(parents=True)
    (run / "weights/step_2.gguf").write_bytes(b"weights")
    (run / "weights/latest").symlink_to("step_2.gguf")
    (run / "events.jsonl").write_bytes(b'{"a": 1}\n')
    (run / ".cache").write_bytes(b"no folder can be made here")  # root may write anywhere else
    mirroring = Mirroring(run, f"file://{tmp_path}/store")
    mirroring.copy()
    assert (mirroring.ledger.error, mirroring.ledger.missing) == ("", [])
    assert content(tmp_path / "store") == content(run)


def test_a_link_among_the_temporary_files_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that can only be read a copy goes there, where everybody may put a link under a name that is known."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    (tmp_path / "precious").write_text("mine")
    (shared / f"mirror-{os.getpid()}-events.jsonl").symlink_to(tmp_path / "precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "events.jsonl").write_bytes(b'{"a": 1}\n')
    (run / ".cache").write_bytes(b"no folder can be made here")
    Mirroring(run, f"file://{tmp_path}/store").copy()
    assert (tmp_path / "precious").read_text() == "mine"
    assert content(tmp_path / "store") == content(run)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users here")
def test_runs_are_fetched_into_no_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("LINNET_CACHE", raising=False)
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/run.json").write_text("{}")
    kept = tmp_path / f"linnet-runs-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    kept.symlink_to("theirs")
    with pytest.raises(linnet.LinnetError, match=r"belongs to somebody else: .* \$LINNET_CACHE"):
        fetched_root(f"file://{tmp_path}/runs")
    assert not list((tmp_path / "theirs").iterdir())
    kept.unlink()
    assert (fetched_root(f"file://{tmp_path}/runs") / "a/run.json").read_text() == "{}"
    assert kept.stat().st_mode & 0o777 == 0o700


def test_the_copying_process_ends_with_the_training(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text("{}")
    mirror = Mirror(tmp_path / "run", f"file://{tmp_path}/store")
    mirror.wake()
    process = mirror._process
    assert process is not None and process.stdin is not None
    process.stdin.close()  # as when the training is killed
    assert process.wait(timeout=30) == 0
    mirror.wake()
    report = mirror.finish()
    assert (report.missing, report.error) == ((), "")
    assert (tmp_path / "store/run/run.json").read_text() == "{}"


@pytest.mark.usefixtures("s3")
def test_the_same_command_on_another_machine_goes_on_from_the_mirror(
    said: Said, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*TRAIN, "--corpus", str(corpus), "--sample-every", "0", "--eval-every", "0")
    words = (*words, "--run-id", "moved", "--resume", "auto", "--mirror", "s3://shelf/jobs")
    assert said(*words, "--steps", "4")[0] == 0
    shutil.rmtree(tmp_path / "runs")
    assert said(*words, "--steps", "6")[0] == 0
    run = linnet.open("moved")
    assert (run.path / "events.jsonl").read_text().count('"kind":"resume"') == 1
    assert run.metrics()["loss"].step.tolist() == [1, 2, 3, 4, 5, 6]
    # What the runs of a store say can be read where they are; checkpoints are not fetched for it.
    code, out, err = said("runs", "--runs", "s3://shelf/jobs", "--json")
    assert code == 0, err
    assert [row["run_id"] for row in json.loads(out)] == ["moved"]
    assert said("show", "moved", "--runs", "s3://shelf/jobs")[0] == 0
    code, _, err = said(*TRAIN, "--corpus", str(corpus), "--runs", "s3://shelf/jobs")
    assert (code, "runs are written to a disk" in err and "--mirror s3://shelf/jobs" in err) == (2, True)
    shutil.rmtree(tmp_path / "runs")
    with silent_server() as nobody:
        use_s3(monkeypatch, nobody.replace("http://", "ftp://"))
        code, _, err = said(*words, "--steps", "6")
        assert (code, "cannot be told" in err) == (1, True), "a new run would take the place of the one in the store"
    assert not (tmp_path / "runs").exists()


def test_what_a_store_says_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = linnet.start(tmp_path / "runs", run_id="noted")
    mirror = Mirror(run.run_dir, f"file://{tmp_path}/store")
    monkeypatch.setattr(mirror, "wake", lambda: None)
    monkeypatch.setattr(mirror, "_process", object())
    callback = MirrorCallback(mirror)
    callback.attach(TrainingContext(run, torch.nn.Linear(1, 1), lambda _: None, lambda _: None))
    for error in ("no such bucket", "no such bucket", "", "no such bucket"):
        Ledger(mirror.url, error=error).write(run.run_dir)
        callback.on_checkpoint(1, tmp_path)
    run.finish()
    assert (run.run_dir / "events.jsonl").read_text().count("mirror: no such bucket; training goes on") == 2


@pytest.mark.usefixtures("s3")
def test_strange_names_in_a_store_stay_outside(tmp_path: Path) -> None:
    from linnet.remote import Store

    (tmp_path / "x").write_text("{}")
    store = Store("s3://shelf/hostile/run")
    store.upload(tmp_path / "x", "run.json")
    store._files.pipe_file("shelf/hostile/run/a/../../../../escaped", b"x")
    with pytest.raises(linnet.LinnetError, match="strange name"):
        fetch_run("s3://shelf/hostile/run", tmp_path / "runs")
    assert not (tmp_path / "escaped").exists() and not list((tmp_path / "runs").iterdir())


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None
