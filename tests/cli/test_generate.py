"""`linnet generate`, as its user sees it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from linnet.cli import main
from linnet.cli.options import find_model
from linnet.errors import LinnetError
from linnet.gguf import point_link, write
from linnet.models import LlamaConfig, build
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

CONFIG = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=24)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 100 and 200; 100 is the best."""
    folder = tmp_path / "runs" / "llama-20260531-001"
    weights = folder / "weights"
    weights.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema_version":1,"run_id":"llama-20260531-001","created_at":1.0,"tags":[]}')
    for step in (100, 200):
        params = build(CONFIG, seed=step).params()
        write(CONFIG, params, weights / f"step_{step}.gguf", folder.name, step, tokenizer=byte_level_tokenizer())
    point_link(weights / "latest", "step_200.gguf")
    point_link(weights / "best", "step_100.gguf")
    return folder


def test_a_model_is_a_path_a_run_its_best_or_a_step_of_it(run: Path) -> None:
    runs = run.parent
    for name, step in {
        str(run / "weights" / "step_100.gguf"): 100,
        str(run / "weights" / "best"): 100,
        str(run): 100,
        "latest": 100,
        "llama-2026": 100,
        "llama-2026@latest": 200,
        "latest@best": 100,
        "llama-20260531-001@100": 100,
    }.items():
        assert find_model(name, runs).name == f"step_{step}.gguf", name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing.gguf", "there is no file nothing.gguf"),
        ("gpt2", "no run 'gpt2' in the folder"),
        ("latest@300", "run llama-20260531-001 has no checkpoint '300'; there is latest, best, and of steps 100, 200"),
    ],
)
def test_a_model_that_is_not_there_is_named(name: str, words: str, run: Path) -> None:
    with pytest.raises(LinnetError) as caught:
        find_model(name, run.parent)
    assert words in str(caught.value)


def test_a_run_without_checkpoints_says_so(run: Path) -> None:
    for file in (run / "weights").iterdir():
        file.unlink()
    with pytest.raises(LinnetError, match="has no checkpoint yet"):
        find_model("latest", run.parent)


def test_text_follows_the_prompt_and_the_same_seed_repeats_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in (1, 1, 2):
        options = ["--runs", str(run.parent), "--prompt", "the", "--max-tokens", "8", "--seed", str(seed)]
        assert main(["generate", "latest", *options, "--device", "cpu"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0].startswith("the") and len(said[0]) > 4
    assert said[0] == said[1] != said[2]


def test_json_has_tokens_and_why_it_stopped(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--prompt", "the", "--temperature", "0", "--device", "cpu", "--json"]
    assert main(["generate", str(run / "weights" / "best"), *options, "--max-tokens", "5"]) == 0
    short = json.loads(capsys.readouterr().out)
    assert len(short["tokens"]) == 5 and short["stopped"] == "max_tokens" and short["model"].endswith("step_100.gguf")
    assert main(["generate", str(run), *options, "--max-tokens", "100"]) == 0
    full = json.loads(capsys.readouterr().out)
    assert full["stopped"] == "context"
    assert len(full["prompt_tokens"]) + len(full["tokens"]) == CONFIG.ctx + 1


def test_a_full_context_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(run), "--prompt", "the", "--max-tokens", "100", "--temperature", "0"]) == 0
    assert "stopped where the model's context of 24 tokens is full" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--temperature", "-1"], 2, "temperature is -1.0: give a number from 0 on"),
        (["--device", "tpu"], 2, "there is no device 'tpu'; choose from auto, cpu, cuda, mps"),
        (["--prompt", "word " * 30], 2, "tokens and the model's context 24: shorten the prompt"),
        (["--tempature", "1"], 2, "--tempature"),
    ],
)
def test_errors_are_one_line(
    options: list[str], code: int, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(run), *options]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_what_is_no_regular_file_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    for name, words in (("pipe.gguf", "is not a regular file"), ("folder.gguf", "is a folder")):
        for command in (["generate"], ["eval", "--prompt", "x"], ["classify", "image.png"]):
            assert main([command[0], str(tmp_path / name), *command[1:]]) == 2
            assert words in capsys.readouterr().err


def _stdin(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))


def _generated(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["generate", str(run), "--device", "cpu", "--json", *words]) == 0
    generated: dict[str, Any] = json.loads(capsys.readouterr().out)
    return generated


def test_a_prompt_comes_from_standard_input_or_a_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = _generated(run, capsys, "--prompt", "naïve\nwhale")
    text = "naïve\nwhale\n".encode()
    _stdin(text, monkeypatch)
    assert _generated(run, capsys, "--prompt", "-")["tokens"] == whole["tokens"]
    (tmp_path / "prompt.txt").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n").replace(b"e\r\nw", b"e\nw"))
    again = _generated(run, capsys, "--prompt-file", str(tmp_path / "prompt.txt"))
    assert (again["prompt"], again["text"]) == ("naïve\nwhale", whole["text"])
    assert _generated(run, capsys, "--prompt", "- a list")["prompt"] == "- a list"
    assert main(["eval", str(run), "--prompt-file", str(tmp_path / "prompt.txt"), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "naïve\nwhale"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "a", "--prompt-file", "b"], "--prompt and --prompt-file exclude each other"),
        (["--prompt-file", "none.txt"], "none.txt: No such file or directory"),
        (["--prompt", "-"], "standard input: expected text in UTF-8, found another byte at 3"),
        (["--samples", "0"], "--samples must be 1 or more, found 0"),
        (["--samples", "2", "--temperature", "0"], "--temperature 0 gives the same text 2 times"),
        (["--stop", ""], "a --stop string is empty"),
    ],
)
def test_prompts_and_samples_that_cannot_be_are_one_line(
    run: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stdin(b"abc\xff", monkeypatch)
    assert main(["generate", str(run), *words]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_samples_can_each_be_had_again_by_their_seed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = _generated(run, capsys, "--prompt", "the", "--samples", "3", "--seed", "5")
    assert [sample["seed"] for sample in told["samples"]] == [5, 6, 7]
    for sample in told["samples"]:
        alone = _generated(run, capsys, "--prompt", "the", "--seed", str(sample["seed"]))
        assert alone["text"] == sample["text"] == alone["samples"][0]["text"]
    main(["generate", str(run), "--prompt", "the", "--samples", "2", "--max-tokens", "3"])
    out = capsys.readouterr().out
    assert "--- sample 1 of 2, seed 0\nthe" in out and "--- sample 2 of 2, seed 1\nthe" in out


def test_a_stop_string_is_not_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _generated(run, capsys, "--prompt", "the", "--max-tokens", "15")["text"]
    stop = whole[2:4]
    told = _generated(run, capsys, "--prompt", "the", "--max-tokens", "15", "--stop", "never", "--stop", stop)
    assert (told["stopped"], told["stop_string"], told["text"]) == ("stop", stop, whole[: whole.index(stop)])
    main(["generate", str(run), "--prompt", "the", "--max-tokens", "15", "--stop", stop, "--device", "cpu"])
    assert capsys.readouterr().out == f"the{told['text']}\n"
