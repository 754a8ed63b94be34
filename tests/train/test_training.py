"""A run from text to a model that llama.cpp runs, and on again to the bit after anything that can happen to it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
from linnet import gguf
from linnet.infer import generate
from linnet.models import load
from tests.conftest import Said, digest, interrupt, losses
from tests.gguf.llama_client import ask


def test_a_run_leaves_a_folder_that_says_everything(said: Said, small: list[str]) -> None:
    code, out, err = said(*small, "--steps", "30", "--optimizer", "adamw", "--lr", "3e-3")
    assert code == 0, err
    run = linnet.open("latest")
    assert run.status == "completed"
    assert run.manifest.recipe == "from-scratch"
    assert run.manifest.model["d_model"] == 64
    assert run.manifest.config["lr"] == 3e-3
    metrics = run.metrics()
    assert metrics["loss"].step.tolist() == list(range(1, 31))
    assert metrics["loss"].value[-1] < metrics["loss"].value[0] - 0.3
    assert {"lr", "grad_norm", "tokens", "wall_us", "tokens_per_s"} <= set(metrics)
    assert len(metrics["validation/loss"]) == 10
    assert metrics["validation/bits_per_byte"].value[-1] > 0
    kinds = [event.kind for event in run.events().read_events()]
    assert {"sample", "checkpoint", "eval", "run_end"} <= set(kinds)
    assert "step 1: loss=" in out
    assert "a GGUF for llama.cpp" in out
    assert len(run.checkpoints()) == 3  # --keep
    assert not [file for file in run.path.rglob(".*") if file.is_file()]


def test_the_same_run_twice_gives_the_same_bytes(said: Said, small: list[str], tmp_path: Path) -> None:
    files = []
    for root in ("one", "two"):
        code, _, err = said(*small, "--steps", "12", "--run-id", "a", "--runs", str(tmp_path / root))
        assert code == 0, err
        files.append(tmp_path / root / "a/weights/step_12.gguf")
    assert digest(files[0]) == digest(files[1])


@pytest.mark.parametrize("more", [[], ["--arch", "gpt2"], ["--optimizer", "muon"], ["--file-type", "bf16"]])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(
    said: Said, small: list[str], tmp_path: Path, more: list[str]
) -> None:
    words = [*small, *more, "--steps", "16", "--run-id", "a", "--checkpoint-every", "5", "--warmup", "2"]
    assert said(*words, "--runs", str(tmp_path / "whole"))[0] == 0
    interrupt([*words, "--runs", str(tmp_path / "cut")], at="eval 7:")
    assert linnet.open(tmp_path / "cut/a").status == "interrupted"
    code, _, err = said("resume", "a", "--runs", str(tmp_path / "cut"))
    assert code == 0, err
    assert losses(str(tmp_path / "cut/a")) == losses(str(tmp_path / "whole/a"))
    name = "weights/step_16.gguf"
    assert digest(tmp_path / "cut/a" / name) == digest(tmp_path / "whole/a" / name)
    samples = [
        [e.data["text"] for e in linnet.open(tmp_path / root / "a").events().read_events() if e.kind == "sample"][-1]
        for root in ("cut", "whole")
    ]
    assert samples[0] == samples[1]


def test_killed_twenty_times_it_is_still_the_same_run(said: Said, small: list[str], tmp_path: Path) -> None:
    words = [*small, "--steps", "400", "--run-id", "a", "--checkpoint-every", "20", "--eval-every", "100"]
    assert said(*words, "--runs", str(tmp_path / "whole"))[0] == 0
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "killed_trainer.py"), "20", "5", *words],
        env={**os.environ, "LINNET_RUNS": str(tmp_path / "killed")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip().endswith("last 0"), done.stdout + done.stderr
    assert losses(str(tmp_path / "killed/a")) == losses(str(tmp_path / "whole/a"))
    name = "weights/step_400.gguf"
    assert digest(tmp_path / "killed/a" / name) == digest(tmp_path / "whole/a" / name)


def test_steps_may_be_raised(said: Said, small: list[str]) -> None:
    assert said(*small, "--steps", "6", "--schedule", "constant")[0] == 0
    code, _, err = said("resume", "latest")
    assert (code, err.strip().split("; ")[1]) == (2, "go further with --steps N")
    assert said("resume", "latest", "--steps", "9")[0] == 0
    run = linnet.open("latest")
    assert run.metrics()["loss"].step.tolist() == list(range(1, 10))
    assert run.manifest.total_steps == 9


def test_a_changed_corpus_or_config_is_refused_by_name(
    said: Said, small: list[str], corpus: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for file in corpus.iterdir():
        (mine / file.name).write_bytes(file.read_bytes())
    words = [str(mine) if word == str(corpus) else word for word in small]
    assert said(*words, "--steps", "4", "--run-id", "a")[0] == 0
    (mine / "more.py").write_text("# more\n" * 50)
    code, _, err = said("resume", "a", "--steps", "6")
    assert code == 1
    assert "the corpus" in err
    assert "--force" in err
    (mine / "more.py").unlink()
    manifest = json.loads(Path("runs/a/run.json").read_text())
    manifest["config"]["seed"] = 9
    Path("runs/a/run.json").write_text(json.dumps(manifest))
    code, _, err = said("resume", "a", "--steps", "6")
    assert code == 1
    assert "the config in run.json has changed since the checkpoint of step 4" in err
    assert said("resume", "a", "--steps", "6", "--force")[0] == 0


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_every_checkpoint_runs_in_llama_cpp_and_agrees_with_us(said: Said, small: list[str], arch: str) -> None:
    code, _, err = said(*small, "--arch", arch, "--steps", "60", "--lr", "3e-3", "--checkpoint-every", "30")
    assert code == 0, err
    run = linnet.open("latest")
    files = run.checkpoints()
    assert [file.stem for file in files] == ["step_30", "step_60"]
    with gguf.GGUFFile.open(files[-1]) as file:
        tokenizer = gguf.tokenizer.rebuild_tokenizer(file.metadata)
        assert file.metadata["general.run_id"] == run.id
        assert file.metadata["linnet.recipe"] == "from-scratch"
    ids = tokenizer.encode("    def __init__(self, message, code=None):\n        self.message = message\n").ids[:32]
    prompts = [ids[:n] for n in range(1, len(ids))]
    model = load(files[-1])
    with torch.inference_mode():
        ours = torch.log_softmax(model(torch.tensor([ids]))[0], dim=-1).numpy()
    answers = ask(*files, prompts=prompts, vocab=model.config.vocab, greedy=0)
    assert not any(answer.refused for answer in answers)
    theirs = np.array(answers[-1].logprobs)
    places = np.arange(len(ids) - 1)
    nll_ours, nll_theirs = -ours[places, ids[1:]].mean(), -theirs[places, ids[1:]].mean()
    assert math.exp(nll_theirs) == pytest.approx(math.exp(nll_ours), rel=1e-3)
    start = ids[:8]
    greedy = ask(files[-1], prompts=[start], vocab=0, greedy=12)[0].greedy[0]
    assert list(generate(model, start, max_tokens=12)) == greedy


def test_a_loss_that_cannot_be_gone_on_from_stops_the_run(said: Said, small: list[str]) -> None:
    fast = ["--lr", "1e4", "--clip", "0", "--warmup", "20", "--checkpoint-every", "2"]
    code, out, _ = said(*small, "--steps", "200", *fast)
    assert code == 1
    run = linnet.open("latest")
    assert run.status == "aborted"
    end = run.summarize().end
    assert end is not None
    assert "lower `lr`" in end["error"]
    assert "linnet resume" not in out  # it ended before its first checkpoint: there is nothing to go on from


def test_the_gate_decides_the_exit_code(said: Said, small: list[str]) -> None:
    code, out, _ = said(*small, "--steps", "3", "--gate", "loss<0.1")
    assert code == 1
    assert "gate missed: loss" in out
    assert said(*small, "--steps", "3", "--gate", "validation/loss<100")[0] == 0
    end = linnet.open("latest").summarize().end
    assert end is not None
    assert end["quality_gate"]["passed"] is True


def test_a_run_id_may_be_a_template(said: Said, small: list[str]) -> None:
    flags = [*small, "--steps", "2", "--eval-every", "0", "--sample-every", "0"]
    assert said(*flags, "--run-id", "{recipe}-{experiment}-{seq}", "--experiment", "lr")[0] == 0
    assert linnet.open("latest").id == "from-scratch-lr-001"
    code, _, err = said(*flags, "--run-id", "{recipy}")
    assert (code, "{recipy} is not a token" in err) == (2, True)


def test_accumulation_trains_as_the_whole_batch_does(said: Said, small: list[str], tmp_path: Path) -> None:
    words = [w for w in small if w not in ("--batch", "4")]
    assert said(*words, "--steps", "5", "--batch", "8", "--run-id", "whole")[0] == 0
    assert said(*words, "--steps", "5", "--batch", "2", "--batch-tokens", str(8 * 32), "--run-id", "parts")[0] == 0
    assert losses("parts") == pytest.approx(losses("whole"), rel=1e-5)


def test_flags_may_come_from_a_file_and_the_command_line_wins(said: Said, small: list[str], tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("steps = 4\nlr = 0.002\nbatch = 2\n")
    words = [w for w in small if w not in ("--batch", "4")]
    code, _, err = said(*words, "--config", str(tmp_path / "run.toml"), "--lr", "0.005")
    assert code == 0, err
    config = linnet.open("latest").manifest.config
    assert (config["steps"], config["lr"], config["batch"]) == (4, 0.005, 2)
    (tmp_path / "run.toml").write_text("stepz = 4\n")
    code, _, err = said(*words, "--config", str(tmp_path / "run.toml"))
    assert code == 2
    assert "stepz" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--preset", "demoo"], 2, "there is no preset 'demoo'; did you mean demo?"),
        (["--n-heads", "7"], 2, "n_heads 7 does not divide d_model 64"),
        (["--arch", "gpt2", "--n-kv", "2"], 2, "--n-kv does not belong to a gpt2"),
        (["--stepz", "3"], 2, "Unknown option: --stepz. Did you mean --steps?"),
        (["--device", "cuda"], 2, "device cuda was asked for"),
        (["--steps", "0"], 2, "--steps must be 1 or more"),
        (["--gate", "loss=2"], 2, "--gate 'loss=2' is not understood"),
        (["--corpus", "nowhere.txt"], 1, "nowhere.txt"),
        (["--ctx", "1000000"], 1, "the corpus is too small"),
        (["--batch-tokens", "100"], 2, "--batch-tokens 100 is no multiple of the 128 tokens"),
        (["--config", "no.toml"], 2, "--config no.toml: no such file"),
        (["--rank", "4"], 2, "Unknown option: --rank"),
    ],
)
def test_wrong_words_are_one_line_and_leave_nothing_behind(
    said: Said, small: list[str], words: list[str], code: int, message: str
) -> None:
    kept = [w for w in small if w not in words[:1]]
    if words[0] in small:
        kept = [*small[: small.index(words[0])], *small[small.index(words[0]) + 2 :]]
    got, out, err = said(*kept, "--steps", "2", *words) if words[0] != "--steps" else said(*kept, *words)
    assert (got, message in err) == (code, True), err
    assert err.count("\n") == 1
    assert "Traceback" not in err + out
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
