"""`--teacher`: a student learns from the distribution of another model; what a teacher must be."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gguf as gguf_py
import linnet
from linnet import gguf
from linnet.errors import LinnetError, UsageError
from linnet.gguf.convert import convert
from linnet.models import load
from linnet.recipes import teacher as teacher_module
from linnet.recipes.teacher import TeacherFile
from linnet.train import memory
from tests.conftest import Said
from tests.gguf.llama_client import ask

SHAPE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "n_heads": 2, "n_kv": 1, "n_layers": 1, "ctx": 32}
QUICK: dict[str, Any] = {"batch": 4, "lr": 5e-3, "eval_every": 0, "sample_every": 0, "device": "cpu", "prompt": ()}


def student(teacher: Path | str, corpus: Path, cache: Path, steps: int = 6, **flags: Any) -> linnet.Run:
    return linnet.train(
        "from-scratch", teacher=str(teacher), corpus=str(corpus), cache=str(cache), steps=steps,
        **{**SHAPE, **QUICK, **flags},
    )  # fmt: skip


def series(run: linnet.Run, name: str) -> list[float]:
    return [float(value) for value in run.metrics()[name].value]


def weights(run: linnet.Run) -> dict[str, np.ndarray[Any, Any]]:
    with gguf.GGUFFile.open(run.checkpoints()[-1]) as file:
        return dict(gguf.read_params(file))


@pytest.fixture(scope="module")
def taught(trained: Path, corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> linnet.Run:
    """Six steps with a teacher, two checkpoints."""
    runs = tmp_path_factory.mktemp("taught")
    return student(trained, corpus, cache, runs=runs, checkpoint_every=3, eval_every=6, eval_tokens=256)


def test_a_run_says_who_taught_it_and_logs_cross_entropy_beside_the_divergence(
    taught: linnet.Run, trained: Path
) -> None:
    config = taught.manifest.config
    name = trained.parent.parent.name
    assert config["teacher"] == str(trained) and config["teacher_name"] == name and config["distill"] == 0.5
    assert config["teacher_sha256"] == TeacherFile(trained).sha256()
    assert taught.manifest.model["vocab"] == 512  # the teacher's tokenizer
    with gguf.GGUFFile.open(taught.checkpoints()[-1]) as file:
        assert file.metadata["linnet.teacher"] == name
        assert file.metadata["linnet.teacher_sha256"] == config["teacher_sha256"]
        assert file.metadata["linnet.distill"] == 0.5
    metrics = taught.metrics()
    assert metrics["loss"].value[0] == pytest.approx(np.log(512), abs=0.2)  # cross entropy of one that knows nothing
    assert (metrics["distill_loss"].value > 0).all()
    assert "objective" not in taught.metrics() and "" not in taught.metrics()
    held_out = float(metrics["validation/loss"].value[-1])
    assert held_out == pytest.approx(float(metrics["loss"].value[-1]), abs=0.5)


def test_a_student_comes_nearer_to_its_teacher(trained: Path, corpus: Path, cache: Path, tmp_path: Path) -> None:
    run = student(trained, corpus, cache, steps=40, runs=tmp_path, distill=1.0, lr=1e-2, checkpoint_every=0)
    divergence = series(run, "distill_loss")
    assert np.mean(divergence[-5:]) < 0.9 * np.mean(divergence[:5])


def test_a_students_checkpoint_runs_in_llama_cpp(taught: linnet.Run) -> None:
    file, ids = taught.checkpoints()[-1], list(range(60, 75))
    (answer,) = ask(file, prompts=[ids], vocab=512)
    assert not answer.refused
    with torch.inference_mode():
        ours = load(file, task="text")(torch.tensor([ids]))[0, -1].log_softmax(-1)
    assert np.abs(np.array(answer.logprobs[0]) - ours.numpy()).max() < 1e-3


def test_a_teacher_that_does_not_count_changes_nothing_and_one_that_counts_does(
    trained: Path, corpus: Path, cache: Path
) -> None:
    plain = linnet.train(
        "from-scratch", corpus=str(corpus), cache=str(cache), tokenizer=str(trained), steps=4, **SHAPE, **QUICK
    )
    ignored = student(trained, corpus, cache, 4, distill=0.0)
    heard = student(trained, corpus, cache, 4, distill=1.0)
    assert series(ignored, "loss") == pytest.approx(series(plain, "loss"), rel=1e-5)
    assert series(heard, "loss")[-1] != pytest.approx(series(plain, "loss")[-1], rel=1e-4)
    assert series(heard, "distill_loss")[-1] < series(ignored, "distill_loss")[-1]


def test_a_run_goes_on_to_the_bit_and_only_with_the_same_teacher(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    own, steady = tmp_path / "teacher.gguf", {"schedule": "constant", "warmup": 0}
    shutil.copy(trained, own)
    undisturbed = weights(student(own, corpus, cache, 6, **steady))
    run = student(own, corpus, cache, 3, **steady)
    content = own.read_bytes()
    own.write_bytes(content[:-4] + bytes(4))
    with pytest.raises(LinnetError, match="another file than the run began with: put that one back"):
        linnet.resume(run, steps=6)
    own.unlink()
    with pytest.raises(UsageError, match=r"there is no file .*teacher\.gguf"):
        linnet.resume(run, steps=6)
    own.write_bytes(content)
    again = weights(linnet.resume(run, steps=6))
    assert all(np.array_equal(tensor, undisturbed[name]) for name, tensor in again.items())


@pytest.mark.parametrize(
    "flags",
    [
        {"batch": 2, "batch_tokens": 4 * 32},  # gradients are accumulated
        {"recompute": "blocks"},
        {"graph": "off"},
        {"deterministic": True},
    ],
    ids=str,
)
def test_the_same_losses_however_a_step_is_done(
    taught: linnet.Run, trained: Path, corpus: Path, cache: Path, flags: dict[str, Any]
) -> None:
    run = student(trained, corpus, cache, 6, **flags)
    for name in ("loss", "distill_loss"):
        assert series(run, name) == pytest.approx(series(taught, name), rel=1e-5)


def test_a_teacher_sees_the_documents_that_the_student_sees(trained: Path, corpus: Path, cache: Path) -> None:
    apart, together = (student(trained, corpus, cache, 2, ctx=64, documents=mask) for mask in (True, False))
    assert series(apart, "distill_loss")[0] != pytest.approx(series(together, "distill_loss")[0], rel=1e-6)


def test_a_warm_start_with_a_quantised_teacher(
    said: Said, trained: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    convert(trained, tmp_path / "small.gguf", "q8_0")
    shape = ["--d-model", "48", "--n-layers", "2", "--ctx", "32", "--batch", "2", "--steps", "2", "--device", "cpu"]
    quick = ["--sample-every", "0", "--eval-tokens", "256", "--cache", str(cache), "--corpus", str(corpus)]
    code, out, err = said(
        "train", "warm-start", "--donor", str(trained), "--teacher", str(tmp_path / "small.gguf"), "--distill", "0.75",
        "--temperature-distill", "2", *shape, *quick,
    )  # fmt: skip
    assert code == 0, err
    assert "75% of the loss is its distribution over all 512 tokens, at temperature 2" in out
    run = linnet.open("latest")
    assert run.manifest.config["init"] == "select" and run.manifest.config["temperature_distill"] == 2
    with gguf.GGUFFile.open(run.checkpoints()[-1]) as file:
        assert {"linnet.donor", "linnet.teacher"} <= set(file.metadata)


def test_a_plan_counts_the_teachers_weights_and_arithmetic(trained: Path, corpus: Path, cache: Path) -> None:
    flags = {**SHAPE, **QUICK, "corpus": str(corpus), "cache": str(cache), "steps": 4, "dry_run": True}
    alone = linnet.train("from-scratch", tokenizer=str(trained), **flags)
    plan = linnet.train("from-scratch", teacher=str(trained), **flags)
    file = TeacherFile(trained)
    assert alone.teacher == 0 and plan.teacher == 4 * sum(file.sizes)
    assert plan.step_flops - alone.step_flops == pytest.approx(4 * 32 * file.flops_per_token(32))
    assert 3 * file.flops_per_token(32) == pytest.approx(load(trained, task="text").flops_per_token(32), rel=1e-3)


def test_a_fork_may_begin_to_learn_from_a_teacher(taught: linnet.Run, trained: Path) -> None:
    run = linnet.train(from_=f"{taught.path}@3", distill=0.9, steps=1, runs=taught.path.parent)
    assert run.manifest.config["distill"] == 0.9 and run.manifest.config["teacher"] == str(trained)
    with pytest.raises(UsageError, match="from 0 to 1"):
        linnet.train(from_=f"{taught.path}@3", distill=1.5, steps=1, runs=taught.path.parent)


# -- bad input --------------------------------------------------------------------------------------------------------


def written(path: Path, arch: str, kind: str = "", tokens: bool = True) -> Path:
    """A GGUF with a head and next to nothing in it."""
    writer = gguf_py.GGUFWriter(path, arch)
    if kind:
        writer.add_type(kind)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b"])
    writer.add_tensor("x", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"distill": 1.5}, "`distill` is the teacher's share of the loss, from 0 to 1, found 1.5"),
        ({"distill": -0.1}, "from 0 to 1, found -0.1"),
        ({"temperature_distill": 0.0}, "`temperature_distill` must be above 0, found 0"),
        ({"top_k_distill": -1}, "`top_k_distill` must be 0 or more, found -1"),
        ({"vocab": 300}, "`vocab=300` trains another vocabulary than the 512 tokens of the teacher"),
        ({"ctx": 4096}, "sees 64 tokens and the model 4,096: choose `ctx=64` or less"),
    ],
)
def test_flags_that_do_not_go_with_a_teacher(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path, flags: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError) as error:
        student(trained, corpus, cache, runs=tmp_path / "runs", **flags)
    assert expected in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path, "there is no file"),
        (lambda path: written(path, "llama", "adapter"), "is an adapter"),
        (lambda path: written(path, "clip", "mmproj"), "is a model of images"),
        (lambda path: written(path, "vit"), "is a model of images"),
        (lambda path: written(path, "llama", tokens=False), "has no tokenizer"),
    ],
    ids=["nothing", "adapter", "mmproj", "vit", "no tokenizer"],
)
def test_files_that_are_no_teacher(corpus: Path, cache: Path, tmp_path: Path, make: Any, expected: str) -> None:
    path = make(tmp_path / "teacher.gguf")
    with pytest.raises(LinnetError) as error:
        student(tmp_path / "teacher.gguf", corpus, cache, runs=tmp_path / "runs")
    assert expected in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_a_teacher_with_another_tokenizer_says_which_to_take(
    said: Said, trained: Path, smollm2: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(UsageError, match=r"another tokenizer .512 tokens.*leave `tokenizer` out, and the model has"):
        student(trained, corpus, cache, tokenizer=str(smollm2), runs=runs)
    words = ["--corpus", str(corpus), "--teacher", str(smollm2), "--runs", str(runs)]
    code, _, err = said("train", "warm-start", "--donor", str(trained), *words)
    assert code == 2 and err.count("\n") == 1
    assert f"than the donor {trained} (512)" in err and f"the teacher's, --tokenizer {smollm2}" in err
    assert not runs.exists()


def test_a_teacher_larger_than_the_memory_is_refused_before_it_is_read(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    monkeypatch.setattr(teacher_module.TeacherFile, "loaded", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UsageError, match=r"takes \d.* MB of memory in float32, and cpu has 1.0 kB free"):
        student(trained, corpus, cache, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_words_about_a_teacher_without_one_or_for_images(said: Said, trained: Path, tmp_path: Path) -> None:
    runs = ["--runs", str(tmp_path / "runs")]
    code, _, err = said("train", "from-scratch", "--distill", "0.5", *runs)
    assert code == 2 and "--distill says how to learn from a teacher: name one with --teacher" in err
    code, _, err = said("train", "vit-tiny", "--teacher", str(trained), *runs)
    assert code == 2 and err.count("\n") == 1
    assert "--teacher" in err and all(
        f"`linnet train {of_text}`" in err for of_text in ("from-scratch", "warm-start", "lora", "finetune")
    )
    with pytest.raises(UsageError, match="vit-tiny has no flag 'teacher'; it belongs to from-scratch and warm-start"):
        linnet.train("vit-tiny", teacher=str(trained), runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
