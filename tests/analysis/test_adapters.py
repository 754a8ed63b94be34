"""Runs that teach a model that is there already: an adapter is looked at as its base with it, never by itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.analysis import cka, drift, lens_words, lmc
from linnet.analysis.beginning import Beginning, weights_of
from linnet.errors import LinnetError, UsageError
from linnet.infer import top_tokens
from tests.conftest import Said
from tests.train.test_inspection import Stop, drift_of

QUICK: dict[str, Any] = {
    "ctx": 24,
    "batch": 4,
    "eval_every": 0,
    "sample_every": 0,
    "lr": 1e-2,
    "warmup": 1,
    "checkpoint_every": 2,
    "keep": 0,
}


@pytest.fixture(scope="module")
def taught(trained: Path, corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base in the file `base.gguf`, and runs of an adapter, of a DoRA, and of all of its weights."""
    root = tmp_path_factory.mktemp("taught")
    base = root / "base.gguf"
    shutil.copy(trained / "one/weights/step_200.gguf", base)
    known = {"base": base, "corpus": corpus, "cache": cache, "runs": root / "runs", "steps": 4, **QUICK}
    linnet.train("lora", run_id="adapter", **known)
    linnet.train("lora", run_id="dora", dora=True, **known)
    linnet.train("finetune", run_id="whole", **known)
    linnet.train("finetune", run_id="kept", inspect="drift@2", **known)
    linnet.train("lora", run_id="more", adapter=root / "runs/adapter/weights/step_4.gguf", **known)
    return root


@pytest.fixture
def runs(taught: Path, tmp_path: Path) -> Path:
    """The same runs in a folder that a test may change; the base stays where it is."""
    shutil.copytree(taught / "runs", tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


def distances(first: dict[str, torch.Tensor], now: dict[str, torch.Tensor], layer: int) -> float:
    """Of all weights of a layer, as a share of their first length."""
    names = [name for name in first if f"blocks.{layer}." in name]
    assert names
    squares = [(float((now[n] - first[n]).square().sum()), float(first[n].square().sum())) for n in names]
    return float(np.sqrt(sum(a for a, _ in squares) / sum(b for _, b in squares)))


@pytest.mark.parametrize("name", ["adapter", "dora", "whole", "kept"])
def test_the_first_value_is_the_base(taught: Path, runs: Path, name: str) -> None:
    moved = drift(name, runs=runs)
    assert moved.origin.startswith("the base ")
    assert moved.steps == (2, 4)
    first, now = weights_of(taught / "base.gguf"), linnet.load(f"{name}@4", runs=runs).module.params()
    for layer in (0, 1):
        assert 0 < moved.distances_LS[1 + layer, -1] == pytest.approx(distances(first, now, layer), rel=1e-4)
    # The embedding has no adapter: it stays, and there is nothing to tell of its tokens.
    is_adapter = name in ("adapter", "dora")
    assert (moved.distances_LS[0, -1] == 0) == (moved.tokens is None) == is_adapter


def test_an_adapter_that_went_on_from_another_is_measured_from_that(taught: Path, runs: Path) -> None:
    moved = drift("more", runs=runs)
    assert moved.origin.endswith(" with the adapter step_4.gguf")
    first = linnet.load("adapter@4", runs=runs).module.params()
    now = linnet.load("more@4", runs=runs).module.params()
    assert moved.distances_LS[1, -1] == pytest.approx(distances(first, now, 0), rel=1e-4)


@pytest.mark.parametrize("recipe", ["lora", "finetune"])
def test_a_fork_is_measured_from_its_parents_checkpoint_unless_that_is_another_by_now(
    runs: Path, corpus: Path, cache: Path, recipe: str
) -> None:
    parent = {"lora": "adapter", "finetune": "whole"}[recipe]
    linnet.train(recipe, from_=f"{parent}@2", run_id="fork", steps=2, runs=runs, cache=cache, checkpoint_every=1)
    moved = drift("fork", runs=runs)
    assert (moved.origin, moved.steps) == (f"{parent}@2", (3, 4))
    now = linnet.load("fork@4", runs=runs).module.params()
    first = linnet.load(f"{parent}@2", runs=runs).module.params()
    assert moved.distances_LS[1, -1] == pytest.approx(distances(first, now, 0), rel=1e-4)
    manifest = runs / parent / "run.json"
    created = linnet.open("fork", runs).manifest.created_at
    manifest.write_text(manifest.read_text().replace('"created_at": ', f'"created_at": {created + 60}, "was": ', 1))
    assert drift("fork", runs=runs).origin.startswith("step 3, its first checkpoint")


@pytest.mark.parametrize("name", ["whole", "adapter"])
def test_a_resumed_run_began_where_it_did_before(runs: Path, name: str) -> None:
    before = drift(name, runs=runs)
    assert linnet.resume(name, runs=runs, steps=6).status == "completed"
    after = drift(name, runs=runs)
    assert (after.origin, after.steps) == (before.origin, (2, 4, 6))
    assert after.distances_LS[:, :2] == pytest.approx(before.distances_LS, rel=1e-5)


@pytest.mark.parametrize("recipe", ["lora", "finetune", "warm-start"])
def test_drift_that_is_told_while_training_is_the_same_after_a_resume(
    taught: Path, corpus: Path, cache: Path, tmp_path: Path, recipe: str
) -> None:
    source = (
        {"donor": taught / "base.gguf", "init": "full"} if recipe == "warm-start" else {"base": taught / "base.gguf"}
    )
    known: dict[str, Any] = {**source, "corpus": corpus, "cache": cache, **QUICK, "steps": 6, "inspect": "drift@1"}
    whole = linnet.train(recipe, run_id="whole", **known)
    linnet.train(recipe, run_id="stopped", **known, callbacks=[Stop(3)])
    assert linnet.open("stopped").status == "interrupted"
    resumed = linnet.resume("stopped")
    assert drift_of(resumed) == drift_of(whole)
    assert {event["step"] for event in drift_of(whole)} == {*range(1, 7)}
    moved = [event["l2_to_init"] for event in drift_of(whole) if event.get("param", "").startswith("blk.0.attn_q")]
    assert 0 <= moved[0] < moved[-1], "of a pair only one half has a gradient at first"


def test_a_base_that_is_gone_or_another_is_not_taken_for_the_first_value(
    trained: Path, taught: Path, runs: Path, said: Said
) -> None:
    base = taught / "base.gguf"
    try:
        shutil.copy(trained / "two/weights/step_200.gguf", base)
        assert Beginning.of(linnet.open("whole", runs)).origin == (
            "step 2, its first checkpoint; what it began with is gone"
        )
        base.unlink()
        assert drift("whole", runs=runs).origin.startswith("step 2, its first checkpoint")
        assert drift("kept", runs=runs).origin.startswith("the base "), "a run that looked at drift has kept it"
        for words in (["drift", "adapter"], ["cka", "adapter"], ["lens-words", "adapter", "--prompt", "x"]):
            code, out, err = said(*words, "--runs", str(runs))
            assert (code, out) == (2, "")
            assert "and there is no such file any more: put it back" in err and err.count("\n") == 1
    finally:
        shutil.copy(trained / "one/weights/step_200.gguf", base)


def test_an_adapter_is_compared_as_its_base_with_it(taught: Path, runs: Path) -> None:
    base = taught / "base.gguf"
    for pair in (("adapter", base), (base, "adapter")):
        beside = np.diagonal(cka(*pair, runs=runs, samples=128).values_RC)
        assert beside[0] == pytest.approx(1, abs=1e-6) and 0.5 < beside[-1] < 0.99999
    assert cka("adapter", runs=runs, samples=128).source == "the held-out text of adapter"
    line = lmc("adapter", base, alphas=(0.5,), tokens=256, runs=runs)
    assert line.verdict == "same basin" and line.losses[0] != line.losses[-1]
    module: Any = linnet.load("adapter", runs=runs).module
    words = lens_words("adapter", "def main(self):", top=2, runs=runs)
    ids = linnet.load("adapter", runs=runs).encode("def main(self):")
    expected = top_tokens(module, ids, 2)[-1].top[0]
    assert words.words_LT[-1][-1].token == expected.token


def test_an_adapter_of_no_run_is_refused_in_a_line(taught: Path, runs: Path, tmp_path: Path, said: Said) -> None:
    alone = tmp_path / "alone.gguf"
    shutil.copy(runs / "adapter/weights/step_4.gguf", alone)
    for words in (["cka", alone], ["lmc", alone, taught / "base.gguf"], ["lens-words", alone, "--prompt", "x"]):
        code, out, err = said(*map(str, words), "--runs", str(runs))
        assert (code, out) == (2, "")
        assert f"linnet merge MODEL {alone} merged.gguf" in err and err.count("\n") == 1
    with pytest.raises(UsageError, match="is no checkpoint of a run"):
        drift(alone)


def test_a_vision_transformer_taken_from_a_larger_one_is_measured_from_that(classifiers: Path, tmp_path: Path) -> None:
    donor = tmp_path / "large.gguf"
    shutil.copy(classifiers / "one/weights/step_20.gguf", donor)
    shape = {"preset": "vit-tiny-8", "d_model": 12, "n_layers": 1, "d_ff": 24, "batch": 32}
    quick = {"steps": 4, "eval_every": 0, "checkpoint_every": 2, "keep": 0}
    linnet.train("vit-tiny", init="select", donor=donor, run_id="small", **shape, **quick)
    moved = drift("small")
    assert moved.origin.startswith("the donor ") and moved.distances_LS[1, 0] < 0.05
    shutil.copy(classifiers / "two/weights/step_20.gguf", donor)
    assert drift("small").origin.startswith("step 2, its first checkpoint")


@pytest.fixture(scope="module")
def gpt2(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of GPT-2s of two contexts, and an adapter of one."""
    root = tmp_path_factory.mktemp("gpt2") / "runs"
    shape = {"arch": "gpt2", "preset": "tiny", "vocab": 384, "corpus": corpus, "cache": cache, "runs": root}
    for name, ctx in (("long", 32), ("short", 16)):
        linnet.train(run_id=name, **shape, **{**QUICK, "ctx": ctx}, steps=4)
    linnet.train("lora", base="long", run_id="adapter", corpus=corpus, cache=cache, runs=root, **QUICK, steps=4)
    return root


def test_learned_positions_belong_to_what_lies_before_the_layers(gpt2: Path) -> None:
    moved = drift("long", runs=gpt2)
    by_name = {one.tensor: one for one in moved.tensors}
    assert by_name["position_embd.weight"].layer is None and by_name["position_embd.weight"].distance > 0
    first, now = Beginning.of(linnet.open("long", gpt2)).weights, weights_of(gpt2 / "long/weights/step_4.gguf")
    names = ("token_embd.weight", "position_embd.weight")
    squares = [(float((now[n] - first[n]).square().sum()), float(first[n].square().sum())) for n in names]
    expected = np.sqrt(sum(a for a, _ in squares) / sum(b for _, b in squares))
    assert moved.distances_LS[0, -1] == pytest.approx(expected, rel=1e-5)


def test_a_context_that_is_learned_is_part_of_the_shape(gpt2: Path) -> None:
    with pytest.raises(UsageError, match=r"differ in ctx \(32 and 16\): only models of one shape"):
        lmc("long", "short", runs=gpt2)
    assert lmc("long@2", "long@4", alphas=(0.5,), aligned=True, tokens=64, runs=gpt2).verdict == "same basin"
    assert cka("long", "short", runs=gpt2, samples=64).values_RC.shape == (3, 3)
    with pytest.raises(LinnetError, match="the model's context 16: shorten the prompt"):
        lens_words("short", "x" * 100, runs=gpt2)
    assert drift("adapter", runs=gpt2).origin.startswith("the base ")
    assert np.diagonal(cka("adapter", "long", runs=gpt2, samples=64).values_RC).min() > 0.5
