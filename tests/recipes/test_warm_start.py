"""Whole runs that begin with a donor: what they say, what they leave, and that they go on without it, to the bit."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
from linnet import gguf
from linnet.models import load
from linnet.recipes import Job, TextData, WarmOptions, start
from linnet.recipes.donor import Donor
from linnet.recipes.transfer import Init, shape_from
from linnet.train import TrainSettings
from tests.conftest import Said, interrupt, losses
from tests.gguf.llama_client import ask

SMALL = ["--ctx", "32", "--batch", "4", "--eval-tokens", "512", "--sample-tokens", "4"]


def words(donor: Path, corpus: Path, *more: str) -> list[str]:
    return ["train", "warm-start", "--donor", str(donor), "--corpus", str(corpus), *SMALL, *more]


def test_a_run_says_where_it_comes_from_everywhere(said: Said, trained: Path, corpus: Path) -> None:
    more = ["--init", "pca", "--d-model", "64", "--n-layers", "2", "--steps", "4"]
    code, out, err = said(*words(trained, corpus, *more))
    assert code == 0, err
    assert "embedding 96 wide, frozen, seen through its 64 principal axes, which hold" in out
    run = linnet.open("latest")
    digest = hashlib.sha256(trained.read_bytes()).hexdigest()
    config = run.manifest.config
    assert run.manifest.recipe == "warm-start"
    assert (config["donor"], config["init"], config["donor_sha256"]) == (str(trained), "pca", digest)
    assert 0.6 < config["explained_variance"] < 1
    assert config["coverage"] == 1.0
    start = next(event for event in run.events().read_events() if event.kind == "run_start")
    assert start.data["config"]["donor_sha256"] == digest
    with gguf.GGUFFile.open(run.path / "weights/step_4.gguf") as file:
        metadata = file.metadata
        assert metadata["linnet.donor_sha256"] == digest
        assert metadata["linnet.init"] == "pca"
        assert metadata["linnet.explained_variance"] == config["explained_variance"]
        assert metadata["linnet.coverage"] == 1.0
        assert metadata["linnet.recipe"] == "warm-start"
    flow = (run.path / "flow.json").read_text()
    assert "lens.proj.weight" in flow


@pytest.mark.parametrize(
    "more",
    [
        ["--init", "pca", "--d-model", "64", "--n-layers", "2"],
        ["--init", "warm", "--d-model", "64", "--n-layers", "2", "--train-table", "--file-type", "bf16"],
        ["--init", "select", "--d-model", "48", "--n-layers", "3", "--untied"],
    ],
    ids=["pca", "trained-table-bf16", "select"],
)
def test_a_resumed_run_needs_no_donor_and_is_the_same_to_the_bit(
    said: Said, trained: Path, corpus: Path, tmp_path: Path, more: list[str]
) -> None:
    donor = tmp_path / "donor.gguf"
    shutil.copy(trained, donor)
    run = words(donor, corpus, *more, "--steps", "12", "--run-id", "a", "--checkpoint-every", "4", "--warmup", "2")
    assert said(*run, "--runs", str(tmp_path / "whole"))[0] == 0
    interrupt([*run, "--runs", str(tmp_path / "cut")], at="eval 6:")
    donor.unlink()
    code, _, err = said("resume", "a", "--runs", str(tmp_path / "cut"))
    assert code == 0, err
    assert losses(str(tmp_path / "cut/a")) == losses(str(tmp_path / "whole/a"))
    one, other = (tmp_path / root / "a/weights/step_12.gguf" for root in ("cut", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_the_unfolded_pair_is_in_the_state(said: Said, trained: Path, corpus: Path) -> None:
    from safetensors.torch import load_file

    more = ["--init", "pca", "--d-model", "64", "--n-layers", "1", "--steps", "2", "--run-id", "a"]
    assert said(*words(trained, corpus, *more))[0] == 0
    state = load_file("runs/a/state/step_2.safetensors")
    kept = {name.removeprefix("param/"): tensor for name, tensor in state.items() if name.startswith("param/")}
    assert {name: tuple(tensor.shape) for name, tensor in kept.items()} == {
        "token_embd.weight": (512, 96),
        "lens.proj.weight": (64, 96),
    }
    with gguf.GGUFFile.open("runs/a/weights/step_2.gguf") as file:
        written = torch.from_numpy(file.tensors["token_embd.weight"].read())
    assert torch.allclose(kept["token_embd.weight"] @ kept["lens.proj.weight"].T, written, atol=1e-4)


def test_full_begins_where_the_donor_stopped(said: Said, trained: Path, corpus: Path) -> None:
    code, _, err = said(*words(trained, corpus, "--init", "full", "--steps", "3", "--lr", "1e-5", "--run-id", "a"))
    assert code == 0, err
    assert losses("a")[1] < 5, "a fresh model would begin at 6.2"
    code, _, err = said("eval", "a", "--corpus", str(corpus), "--tokens", "512")
    assert code == 0, err


def test_smollm2_through_a_lens_runs_in_llama_cpp(said: Said, smollm2: Path, corpus: Path) -> None:
    more = ["--init", "pca", "--d-model", "64", "--n-layers", "1", "--steps", "2", "--run-id", "a"]
    code, out, err = said(*words(smollm2, corpus, *more))
    assert code == 0, err
    assert "all 49,152 rows by the donor's own tokenizer" in out
    file = Path("runs/a/weights/step_2.gguf")
    assert gguf.check.check(file) == []
    ids = [504, 3575, 282, 4649]
    (answer,) = ask(file, prompts=[ids], vocab=49152)
    assert not answer.refused
    with torch.inference_mode():
        ours = torch.log_softmax(load(file)(torch.tensor([ids]))[0, -1], -1).numpy()
    assert np.abs(np.array(answer.logprobs[0]) - ours).max() < 1e-3


def test_the_same_from_python(trained: Path, corpus: Path, said: Said) -> None:
    more = ["--init", "select", "--d-model", "48", "--n-layers", "2", "--steps", "3", "--lr", "2e-3", "--run-id", "a"]
    assert said(*words(trained, corpus, *more))[0] == 0
    with Donor(trained) as donor:
        config = shape_from(donor.config, Init.parse("select"), d_model=48, n_layers=2, ctx=32)
    job = Job(
        config,
        TextData(str(corpus), tokenizer=str(trained)),
        TrainSettings(steps=3, batch=4, lr=2e-3, eval_tokens=512, sample_tokens=4),
        recipe="warm-start",
        options=WarmOptions(donor=str(trained), init="select"),
    )
    training = start(job)
    assert training.run().reason == "completed"
    assert losses(training.run_id) == losses("a")
    for run in (training.run_id, "a"):
        assert linnet.open(run).manifest.config["taken"].startswith("layers 0, 5 of 6"), "the first and the last"


@pytest.mark.parametrize("init", ["select", "pca"])
def test_a_donor_is_opened_once(
    trained: Path, corpus: Path, said: Said, monkeypatch: pytest.MonkeyPatch, init: str
) -> None:
    opened: list[Path] = []
    true_open = gguf.GGUFFile.open

    def count(path: str | Path) -> gguf.GGUFFile:
        opened.append(Path(path))
        return true_open(path)

    monkeypatch.setattr(gguf.GGUFFile, "open", count)
    shape = ["--d-model", "48", "--n-heads", "3", "--n-layers", "2"]
    code, _, err = said(*words(trained, corpus, "--init", init, *shape, "--steps", "1"))
    assert code == 0, err
    assert opened.count(trained) == 1


def test_select_takes_the_first_layers_where_asked(said: Said, trained: Path, corpus: Path) -> None:
    more = ["--layers", "first", "--d-model", "48", "--n-layers", "2", "--steps", "1"]
    code, out, err = said(*words(trained, corpus, *more))
    assert code == 0, err
    assert "layers 0, 1 of 6, 48 of 96 channels" in out


def test_shapes_follow_from_the_donor(trained: Path) -> None:
    with Donor(trained) as opened:
        donor = opened.config
    select = shape_from(donor, Init.parse("select"), d_model=64, n_layers=2)
    assert (select.n_heads, select.n_kv, select.head_size, select.d_ff) == (4, 2, 16, 128)
    assert (select.rope_base, select.tied, select.ctx) == (5e4, True, 64)
    lens = shape_from(donor, Init.parse("pca"), d_model=80, n_heads=2, ctx=128)
    assert (lens.head_size, lens.n_kv, lens.tied, lens.ctx) == (40, 1, False, 128)
    wide = shape_from(donor, Init.parse("widen:3"))
    assert (wide.d_model, wide.n_heads, wide.n_kv, wide.d_ff, wide.n_layers) == (288, 18, 6, 576, 6)
