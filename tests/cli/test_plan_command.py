"""`linnet plan`: what a training would take on GPUs that are not here, as a person asks for it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linnet.cli import main

_EIGHT = "plan --preset smollm2-360m --device h200 --gpus 8 --batch-tokens 524288 --tokens 10B"


def as_json(words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*words.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_says_what_a_training_takes_and_how_it_scales(terminal: Callable[..., list[str]]) -> None:
    lines = terminal(80, *f"{_EIGHT} --machines 2 --link 50 --optimizer adamw".split())
    assert max(map(len, lines)) <= 80
    facts = {line.split()[0]: line for line in lines[:11] if line[:1].strip()}
    labels = ["model", "on", "step", "speed", "memory", "energy", "checkpoint", "time", "limit"]
    assert list(facts) == labels
    assert "llama of 362M, 524k tokens a step (4 × 8 sequences a GPU)" in facts["model"]
    assert "16 × H200 in 2 machines, 50 GB/s between them" in facts["on"] and "assumed" not in facts["on"]
    assert "moments shared out" in facts["memory"] and "of 141 GB on each" in facts["memory"]
    assert "kWh a day" in facts["energy"] and "GPUs alone" in facts["energy"]
    assert "19,073 steps, 10G tokens: about" in facts["time"]
    assert "tokens/s against GPUs" in lines and " A limited by compute  6 points" in lines
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["GPUs", "machines"])
    rows = [line.split() for line in lines[head + 1 : head + 12]]
    assert rows[0][0] == "1" and rows[-1][0] == "1,024" and rows[4][:2] == ["→", "16"]
    assert rows[-1][-3:] == ["batch", "too", "small"] and any(row[-1] == "link" for row in rows)
    assert "512 sequences a step are too few for 1,024 GPUs." in lines
    assert lines[-1] == "Calculated from one measured device, and several of any kind never were."


def test_what_was_never_measured_is_called_so(terminal: Callable[..., list[str]]) -> None:
    lines = terminal(
        80, *["plan", "--preset", "gpt2-124m", "--device", "rtx-4090", "--gpus", "2", "--machines", "2", "--to", "8"]
    )
    assert any("never measured: its maker's figures" in line for line in lines)
    assert any("25 GB/s between them (assumed)" in line for line in lines)
    assert lines[-2] == "The batch grows with them; --batch-tokens shares out one of a given size."
    assert lines[-1].startswith("Calculated: this one was not measured")
    assert max(map(len, lines)) <= 80


def test_json_has_the_plan_the_device_and_the_curve(capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(_EIGHT, capsys)
    assert told["ranks"] == 8 and told["per_step"] == 524_288 and told["calculated"] is True
    assert told["device"]["measured"] is True and told["device"]["source"].startswith("measured on one")
    assert told["plan"]["steps"] == 10_000_000_000 // 524_288 and told["plan"]["seconds"] > 0
    assert told["step_seconds"] == pytest.approx(sum(told["seconds"].values()))
    assert [point["ranks"] for point in told["curve"]] == [2**power for power in range(11)]
    assert {point["limit"] for point in told["curve"]} <= {"compute", "link", "batch too small", "memory"}
    speeds = [point["per_second"] for point in told["curve"][:4]]
    assert speeds == sorted(speeds)


def test_flags_of_the_training_change_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    usual = as_json(_EIGHT, capsys)
    whole = as_json(f"{_EIGHT} --shard none", capsys)
    blocks = as_json(f"{_EIGHT} --recompute blocks", capsys)
    adamw = as_json(f"{_EIGHT} --optimizer adamw", capsys)
    bare = as_json(f"{_EIGHT} --gpu-link 5 --overlap off", capsys)
    longer = as_json(f"{_EIGHT} --ctx 2048 --batch 4", capsys)
    assert usual["shard"] == "moments" and whole["memory"] > usual["memory"] > blocks["memory"]
    assert blocks["step_seconds"] > usual["step_seconds"] > adamw["step_seconds"]
    assert bare["limit"] == "link" and bare["seconds"]["link"] > usual["seconds"]["link"]
    assert longer["rows"] == usual["rows"] / 2 and longer["seconds"]["attention"] > usual["seconds"]["attention"]


def test_a_model_that_does_not_fit_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    billion = "plan --d-model 2048 --n-layers 16 --n-heads 32 --n-kv 8 --d-ff 8192 --device rtx-4090 --to 2"
    assert main(billion.split()) == 0
    out = capsys.readouterr().out
    assert "does not fit" in out and "limit      memory: lower --batch" in out


def test_a_cpu_here_is_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import linnet.train.hardware as hardware

    monkeypatch.setattr(hardware, "measured_peak", lambda *_: 200e9)
    monkeypatch.setattr(hardware, "measured_bandwidth", lambda *_: 20e9)
    told = as_json("plan --preset nano --ctx 256 --device cpu --machines 2 --link 1", capsys)
    assert told["device"]["kind"] == "cpu" and told["device"]["source"].startswith("measured here")
    assert told["ranks"] == 2 and "watts" not in told
    assert main(["plan", "--preset", "nano", "--device", "cpu", "--to", "4"]) == 0
    out = capsys.readouterr().out
    assert "8 sequences a machine" in out and "energy" not in out and "tokens/s against machines" in out


@pytest.mark.parametrize("name", ["curve.svg", "curve.png"])
def test_the_curve_is_a_picture(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_EIGHT.split(), "--out", name, "--theme", "dark"]) == 0
    content = Path(name).read_bytes()
    assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<svg") and name in capsys.readouterr().out
    if name.endswith("svg"):
        text = content.decode()
        assert "limited by compute" in text and "limited by link" in text and "as many times one" in text
        assert "524k tokens a step" in text and "12 points" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset smolm2-135m", "there is no preset 'smolm2-135m'; did you mean smollm2-135m?"),
        ("--device h20", "there are no figures of a device 'h20'; did you mean h200?"),
        ("--gpus 0", "--gpus is a number of devices from 1 to 1,000,000, found 0"),
        ("--machines 2 --link -1", "--link is a speed in GB/s above 0, found -1"),
        ("--gpus 2 --gpu-link nan", "--gpu-link is a speed in GB/s above 0, found nan"),
        ("--device cpu --gpus 2", "--gpus goes with GPUs: processes on one CPU share its cores; give --machines"),
        ("--steps 5 --tokens 5M", "--steps and --tokens both say how long to train: give one of them"),
        ("--batch-tokens 1000", "--batch-tokens 1000 is no multiple of the 1024 tokens that pass at once"),
        ("--batch-tokens many", "Invalid value for --batch-tokens: expected a number such as 20M, found 'many'"),
        ("--gpus 6 --batch-tokens 524288", "6 GPUs cannot share the 512 sequences of a step evenly: choose"),
        ("--gpus 8 --batch-tokens 4096", "4 sequences a step are too few for 8 GPUs: choose --batch-tokens as a"),
        ("--batch 0", "--batch must be 1 or more, found 0"),
        ("--n-kv 7", "n_kv 7 does not divide n_heads 9"),
        ("--shard some", "--shard 'some': choose from auto, none, moments, weights"),
        ("--preset vit-tiny --ctx 4", "a vit has no field 'ctx'"),
        ("--preset vit-tiny --batch-tokens 4096", "--batch-tokens and --tokens go with text"),
        ("--preset vit-tiny --arch gpt2", "--arch goes with text, and vit-tiny is a vit"),
        ("--arch gpt3", "--arch 'gpt3'; did you mean gpt2?"),
        ("--out curve.pdf", "--out curve.pdf: expected a name that ends in .svg or .png"),
        ("--to 0", "--to is a number of devices from 1 to 1,000,000, found 0"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"linnet: {message}") and err.count("\n") == 1


def test_a_gpu_that_is_not_here_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["plan", "--device", "cuda"]) == 2
    assert "there is no GPU here; name one, as in --device h200" in capsys.readouterr().err


def test_the_plan_in_the_docs_is_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/cost.md").read_text(encoding="utf-8")
    commands, shown, *_ = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert main([*shlex.split(commands.splitlines()[0])[1:], "--device", "h200"]) == 0
    assert capsys.readouterr().out.startswith(f"{shown}\n")
