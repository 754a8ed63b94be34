"""MODEL means the same in every command and call: a path, a RUN, `RUN@best`, `RUN@200`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import linnet
from linnet.gguf import GGUFFile, point_link, read_lens, write
from linnet.models import LlamaConfig, build
from linnet.models.model_name import find_model, names_checkpoint
from tests.conftest import Printed, Said
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

CONFIG = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=24)


@pytest.fixture
def run(root: Path) -> Path:
    """A run with checkpoints of steps 100 and 200; 100 is the best."""
    folder = root / "donor-20260531-001"
    weights = folder / "weights"
    weights.mkdir(parents=True)
    (folder / "run.json").write_text(f'{{"schema_version":1,"run_id":"{folder.name}","created_at":1.0,"tags":[]}}')
    (folder / "events.jsonl").write_text(f'{{"kind":"run_start","t":0.0,"run_id":"{folder.name}","schema":"toy/v1"}}\n')
    for step in (100, 200):
        params = build(CONFIG, seed=step).params()
        write(CONFIG, params, weights / f"step_{step}.gguf", folder.name, step, tokenizer=byte_level_tokenizer())
    point_link(weights / "latest", "step_200.gguf")
    point_link(weights / "best", "step_100.gguf")
    return folder


@pytest.mark.parametrize(
    ("name", "step"), [("latest", 100), ("donor", 100), ("donor@latest", 200), ("latest@100", 100)]
)
def test_inspect_convert_and_generate_take_a_run_and_its_checkpoints(
    printed: Printed, run: Path, tmp_path: Path, name: str, step: int
) -> None:
    assert json.loads(printed("inspect", name, "--json"))["path"].endswith(f"step_{step}.gguf")
    printed("convert", name, str(tmp_path / "small.gguf"), "--type", "f16")
    with GGUFFile.open(tmp_path / "small.gguf") as file:
        assert file.metadata["general.step"] == step
    out = printed("generate", name, "--max-tokens", "2", "--device", "cpu", "--json")
    assert json.loads(out)["model"].endswith(f"step_{step}.gguf")


def test_a_run_alone_means_its_best_checkpoint_and_says_so_where_that_is_not_the_last(said: Said, run: Path) -> None:
    told = "linnet: step 100, the best of 200 (donor@latest: the last)\n"
    assert said("generate", "donor", "--max-tokens", "1", "--device", "cpu")[2].endswith(told)
    assert said("inspect", "donor")[2] == told
    assert said("eval", "donor", "--prompt", "a", "--device", "cpu")[2] == told
    for name in ("donor@best", "donor@latest", str(run / "weights/best"), str(run / "weights/latest")):
        assert said("inspect", name)[2] == ""
    assert said("inspect", "donor", "--json")[2] == ""


@pytest.mark.parametrize("left", ["no link", "a link to what was deleted", "a pointer out of its folder"])
def test_without_a_best_checkpoint_a_run_means_its_latest(said: Said, run: Path, left: str) -> None:
    best = run / "weights/best"
    best.unlink()
    if left != "no link":
        best.symlink_to("step_50.gguf" if "deleted" in left else "../../../etc/passwd")
    assert find_model("donor").name == "step_200.gguf"
    assert said("inspect", "donor")[::2] == (0, "")


def test_the_folder_of_runs_can_be_named(printed: Printed, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINNET_RUNS")
    for words in (["inspect", "donor@best"], ["check", "donor@best"], ["check", "donor"]):
        printed(*words, "--runs", str(run.parent))


def test_check_reads_a_run_as_a_folder_and_a_checkpoint_of_it_as_a_file(said: Said, run: Path) -> None:
    code, out, _ = said("check", "latest")
    assert (code, "donor-20260531-001" in out, "lines" in out) == (0, True, True)
    assert "step_100.gguf  llama.cpp runs it" in said("check", "latest@best")[1]
    assert "step_200.gguf  llama.cpp runs it" in said("check", "donor@200")[1]
    assert said("check", "donor@300")[2].startswith("linnet: run donor-20260531-001 has no checkpoint '300'")


def test_lens_takes_a_run_and_says_which_checkpoint_it_was(printed: Printed, run: Path, tmp_path: Path) -> None:
    printed("lens", "donor@best", "--d-model", "16", "--out", str(tmp_path / "lens.gguf"))
    assert read_lens(tmp_path / "lens.gguf").donor_source == "donor-20260531-001/step_100.gguf"


def test_a_run_is_donor_and_tokenizer_and_the_new_run_keeps_the_file(
    printed: Printed, run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--corpus", str(corpus), "--steps", "2", "--batch", "2", "--ctx", "16", "--eval-every", "0", "--json"]
    printed("train", "warm-start", "--donor", "donor@best", "--init", "full", *small, "--run-id", "warm")
    config = linnet.open("warm").config
    assert config["donor"] == config["tokenizer"] == str((run / "weights/step_100.gguf").absolute())
    monkeypatch.chdir("/")  # and resume finds all it needs from anywhere
    printed("resume", "warm", "--steps", "3", "--json")
    printed("train", "from-scratch", "--preset", "tiny", "--tokenizer", "donor@200", *small, "--run-id", "plain")
    assert linnet.open("plain").config["tokenizer"].endswith("weights/step_200.gguf")
    assert printed("data", "prepare", str(corpus), "--tokenizer", "donor", "--json")


def test_python_takes_a_run_object_too(run: Path, corpus: Path) -> None:
    donor = linnet.open("donor")
    made = linnet.train(
        "warm-start", donor=donor, init="full", corpus=str(corpus), steps=1, batch=2, ctx=16, eval_every=0
    )
    assert made.config["donor"].endswith("step_100.gguf")
    assert find_model(donor).name == "step_100.gguf"
    with pytest.raises(linnet.UsageError, match="train: donor is a path or a run, found 3"):
        linnet.train("warm-start", donor=3)


@pytest.mark.parametrize("command", ["inspect", "generate", "eval", "classify", "convert"])
def test_a_name_that_means_nothing_is_one_line_that_says_both(said: Said, run: Path, command: str) -> None:
    rest = {"classify": ["a.png"], "convert": ["o.gguf", "--type", "f32"]}.get(command, [])
    code, _, err = said(command, "donr", *rest)
    assert (code, err.count("\n")) == (1, 1)
    assert re.search(
        "there is no file 'donr', and no run 'donr' in the folder .*; did you mean donor-20260531-001", err
    )


def test_an_at_sign_may_belong_to_a_name() -> None:
    assert names_checkpoint("a@best") and names_checkpoint("a@b@200") and names_checkpoint("runs/a@latest")
    assert not any(map(names_checkpoint, ("latest", "a@b", "@best", "a@", "a@²", "me@host")))
