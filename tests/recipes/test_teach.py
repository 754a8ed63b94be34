"""`linnet data teach`: what a teacher says is kept once, found again, and stands for it in a training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.data import Batches, prepare, windows
from linnet.data.errors import DataError
from linnet.data.teacher_logits import TeacherLogits, TeacherLogitsWriter
from linnet.errors import LinnetError, UsageError
from linnet.recipes import teach as teach_module
from linnet.recipes.teach import TeachPlan, teach
from linnet.recipes.teacher import TeacherFile
from tests.conftest import Said
from tests.recipes.test_teacher import series, student, weights

CTX, TOP = 32, 16


@pytest.fixture
def own(cache: Path, tmp_path: Path) -> Path:
    """A cache of prepared corpora with no teacher in it yet."""
    folder = tmp_path / "cache"
    shutil.copytree(cache, folder, ignore=shutil.ignore_patterns("taught"))
    return folder


@pytest.fixture(scope="module")
def small_corpus(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    for name in ("json_decoder.py", "json_scanner.py", "logging_config.py"):
        shutil.copy(corpus / name, folder)
    return folder


def plan(trained: Path, corpus: Path, cache: Path, **flags: Any) -> TeachPlan:
    return TeachPlan.of(corpus, trained, cache=cache, held_out=0.3, **{"ctx": CTX, "top": TOP, **flags})


def test_a_cache_is_found_and_has_the_losses_of_the_living_teacher_without_running_it(
    said: Said, trained: Path, small_corpus: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"held_out": 0.3, "schedule": "constant", "warmup": 0}
    living = student(trained, small_corpus, own, 6, top_k_distill=TOP, **flags)
    words = ["--teacher", str(trained), "--ctx", str(CTX), "--top-k", str(TOP), "--held-out", "0.3"]
    code, out, err = said("data", "teach", str(small_corpus), *words, "--cache", str(own), "--device", "cpu")
    assert code == 0, err
    assert f"the {TOP} likeliest of 512, and all others as one, at temperature 1" in out and "made in" in out
    code, out, _ = said("data", "teach", str(small_corpus), *words, "--cache", str(own), "--device", "cpu", "--json")
    facts = json.loads(out)
    assert code == 0 and not facts["made"] and facts["size"] == Path(facts["path"]).stat().st_size
    assert "of what teachers said" in said("data", "list", "--cache", str(own))[1]
    with monkeypatch.context() as patch:
        patch.setattr(TeacherFile, "loaded", lambda *_: pytest.fail("the teacher was loaded"))
        found = student(trained, small_corpus, own, 6, **flags)
        begun = student(trained, small_corpus, own, 3, **flags)
        trained_copy = trained.with_suffix(".away")
        trained.rename(trained_copy)  # going on needs the teacher no more than beginning did
        try:
            again = linnet.resume(begun, steps=6)
        finally:
            trained_copy.rename(trained)
    for name in ("loss", "distill_loss"):
        assert series(found, name) == pytest.approx(series(living, name), rel=2e-3)
    config = found.manifest.config
    assert config["top_k_distill"] == TOP and config["teacher_cache"] == facts["fingerprint"]
    undisturbed = weights(found)
    assert all(np.array_equal(tensor, undisturbed[name]) for name, tensor in weights(again).items())
    Path(facts["path"]).unlink()
    with pytest.raises(DataError, match=r"the run began with what its teacher .* had said, and there is no such cache"):
        linnet.resume(begun, steps=9)


def test_a_run_that_began_with_the_teacher_itself_goes_on_with_it(trained: Path, small_corpus: Path, own: Path) -> None:
    flags: dict[str, Any] = {"held_out": 0.3, "schedule": "constant", "warmup": 0, "top_k_distill": TOP}
    undisturbed = weights(student(trained, small_corpus, own, 4, **flags))
    begun = student(trained, small_corpus, own, 2, **flags)
    teach(plan(trained, small_corpus, own), "cpu")
    again = weights(linnet.resume(begun, steps=4))
    assert all(np.array_equal(tensor, undisturbed[name]) for name, tensor in again.items())


def test_other_windows_are_no_cache_for_a_training_which_says_so(
    said: Said, trained: Path, small_corpus: Path, own: Path
) -> None:
    teach(plan(trained, small_corpus, own, ctx=16), "cpu")
    words = ["--ctx", str(CTX), "--held-out", "0.3", "--steps", "1", "--device", "cpu", "--cache", str(own)]
    words += ["--preset", "tiny", "--sample-every", "0", "--eval-every", "0"]
    code, out, err = said("train", "from-scratch", "--corpus", str(small_corpus), "--teacher", str(trained), *words)
    assert code == 0, err
    assert "the teacher runs: what a cache has of it was made with --ctx 16" in out
    assert "over all 512 tokens" in out


def test_rows_lie_where_batches_look_for_them(trained: Path, small_corpus: Path, own: Path) -> None:
    taught = teach(plan(trained, small_corpus, own), "cpu")
    tokens = prepare(small_corpus, tokenizer=trained, held_out=0.3, cache=own).train
    batches = Batches(tokens, ctx=CTX, batch=4, seed=3)
    teacher = TeacherFile(trained)
    from linnet.models import load
    from linnet.train.distillation import LiveTeacher

    living = LiveTeacher(load(trained, task="text"), len(teacher.tokens))
    last = batches.blocks.count - 1  # it reaches back to be full
    steps = [step for step in range(batches.blocks.count) if last in batches.block_numbers(step)][:1]
    for step in (0, *steps):
        batch = batches.at(step)
        ids, log_p = taught.blocks(batches.block_numbers(step))
        from linnet.kernels import eager

        expected = living.top(batch.ids_BT, None, eager, TOP, 1.0)
        assert np.array_equal(ids.reshape(-1, TOP)[:, 0], expected.ids_NK[:, 0].numpy())
        assert np.allclose(log_p.reshape(-1, TOP + 1), expected.log_p_NK1.numpy(), rtol=2e-3, atol=2e-3)
    assert [len(batch.ids_BT) for batch in windows(tokens, CTX, 4, first=last)] == [4]


def test_cut_off_it_goes_on_behind_what_is_whole_and_is_the_same_file(
    trained: Path, small_corpus: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.data.teacher_logits._PART_TOKENS", 8 * CTX)
    expected = teach(plan(trained, small_corpus, own), "cpu").path.read_bytes()
    other = tmp_path / "other"
    shutil.copytree(own, other, ignore=shutil.ignore_patterns("taught"))
    written: list[int] = []
    add = TeacherLogitsWriter.add

    def cut_off(self: TeacherLogitsWriter, *rows: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(len(rows[0]))
        add(self, *rows)

    monkeypatch.setattr(TeacherLogitsWriter, "add", cut_off)
    begun = plan(trained, small_corpus, other)
    with pytest.raises(KeyboardInterrupt):
        teach(begun, "cpu")
    monkeypatch.setattr(TeacherLogitsWriter, "add", add)
    partial = begun.path.with_name(begun.path.name + ".partial")
    with partial.open("r+b") as file:  # the third part was not yet on the disk
        file.truncate(partial.stat().st_size - 5)
    done: list[int] = []
    taught = teach(begun, "cpu", lambda now, total: done.append(now))
    assert done[0] == 2 * 8 * CTX
    assert taught.path.read_bytes() == expected
    assert [path.name for path in taught.path.parent.iterdir()] == [taught.path.name]


def test_a_damaged_cache_is_refused_by_a_training_and_made_anew_by_teach(
    trained: Path, small_corpus: Path, own: Path
) -> None:
    taught = teach(plan(trained, small_corpus, own), "cpu")
    content = taught.path.read_bytes()
    taught.path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    with pytest.raises(DataError, match="does not hold what was written"):
        student(trained, small_corpus, own, held_out=0.3)
    assert teach(plan(trained, small_corpus, own), "cpu").path.read_bytes() == content
    for damaged in (content[:-1], content[:100], b"x" + content[1:], content[:12] + bytes(4) + content[16:]):
        taught.path.write_bytes(damaged)
        with pytest.raises(LinnetError):
            TeacherLogits(taught.path)


def test_what_cannot_be_taught(trained: Path, small_corpus: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, expected in (
        ({"top": 0}, "`top_k` must be from 1"),
        ({"top": 512}, "`top_k` must be from 1"),
        ({"temperature": 0.0}, "`temperature_distill` must be above 0"),
        ({"ctx": 4096}, "sees 64 tokens"),
        ({"ctx": 0}, "`ctx` must be 1 or more"),
    ):
        with pytest.raises(UsageError, match=expected):
            plan(trained, small_corpus, own, **flags)
    monkeypatch.setattr(teach_module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"takes .* and .* has 1 B left: lower `top_k`"):
        teach(plan(trained, small_corpus, own), "cpu")
