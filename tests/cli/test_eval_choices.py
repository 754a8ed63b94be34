"""`linnet eval --choices`, as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli import main
from linnet.gguf import GGUFFile, write
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.models import LlamaConfig, build, load
from tests.cli.test_adapters import an_adapter
from tests.conftest import SMALL, Printed, Said
from tests.data.chats import write_jsonl
from tests.gguf import tiny
from tests.gguf.small_files import vit_file

CONFIG = LlamaConfig(vocab=tiny.VOCAB, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
ROWS: list[dict[str, Any]] = [
    {"question": f"{number}?", "choices": ["the red", "a whale sings", "no"], "answer": number % 3}
    for number in range(9)
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    params = build(CONFIG, seed=1, init_scale=3.0).params()
    return write(CONFIG, params, tmp_path / "base.gguf", "base", 1, tokenizer=tiny.byte_level_tokenizer())


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "rows.jsonl", ROWS)


def told(printed: Printed, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed("eval", *words, "--device", "cpu", "--json"))
    return found


def test_accuracy_with_its_error_beside_chance(printed: Printed, base: Path, rows: Path) -> None:
    found = told(printed, str(base), "--choices", str(rows))
    items = found["items"]
    right = [item["logprobs"].index(max(item["logprobs"])) == item["answer"] for item in items]
    assert (found["rows"], found["cut"], found["chat_format"]) == (9, 0, None)
    assert found["acc"] == pytest.approx(sum(right) / 9) and found["chance"] == pytest.approx(1 / 3)
    assert found["acc_stderr"] == pytest.approx((found["acc"] * (1 - found["acc"]) / 8) ** 0.5)
    assert items[0]["bytes"] == [7, 13, 2]
    out = printed("eval", str(base), "--choices", str(rows))
    assert f"choices     {rows}: 9 rows\n" in out and "by chance   33.33%\n" in out
    assert f"{found['acc']:.2%}  ± {found['acc_stderr']:.2%}  acc\n" in out
    assert f"{found['acc_norm']:.2%}" in out and "acc_norm" in out and "cut" not in out


def test_it_is_said_that_prompts_were_cut(printed: Printed, base: Path, tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "long.jsonl", [*ROWS, {**ROWS[0], "question": "z" * 100}])
    assert told(printed, str(base), "--choices", str(rows))["cut"] == 1
    out = printed("eval", str(base), "--choices", str(rows), "--ctx", "32")
    assert "cut         1 prompts" not in out
    assert "cut         1 prompt is longer than the context of 32 tokens and lost its beginning\n" in out
    more = write_jsonl(tmp_path / "more.jsonl", [{**row, "question": "z" * 90} for row in ROWS])
    assert "cut         9 prompts are longer" in printed("eval", str(base), "--choices", str(more))


def test_an_adapter_answers_otherwise(printed: Printed, base: Path, rows: Path, tmp_path: Path) -> None:
    adapter = an_adapter(tmp_path / "notes.gguf", base, CONFIG)
    plain = told(printed, str(base), "--choices", str(rows))
    none = told(printed, str(base), "--choices", str(rows), "--adapter", f"{adapter}:0")
    adapted = told(printed, str(base), "--choices", str(rows), "--adapter", str(adapter))
    assert plain["items"] == none["items"] != adapted["items"]
    assert adapted["adapters"] == [{"file": str(adapter), "scale": 1.0}] and adapted["base"] == str(base)
    assert f"adapter     {adapter}\n" in printed("eval", str(base), "--choices", str(rows), "--adapter", str(adapter))


def test_a_run_by_its_step_and_its_figures_are_left_in_it(
    printed: Printed, said: Said, corpus: Path, cache: Path, rows: Path
) -> None:
    words = ["train", "from-scratch", "--corpus", str(corpus), "--cache", str(cache), *SMALL, "--steps", "2"]
    assert main([*words, "--held-out", "0.2", "--checkpoint-every", "1", "--run-id", "a", "--json"]) == 0
    printed("runs")
    events = linnet.open("a").events_path.read_bytes()
    first, last = (told(printed, f"a@{step}", "--choices", str(rows)) for step in (1, 2))
    assert first["items"] != last["items"] and first["model"].endswith("a/weights/step_1.gguf")
    assert linnet.open("a").events_path.read_bytes() == events, "without --record nothing is written"
    told(printed, "a@2", "--choices", str(rows), "--record", "arc")
    metrics = linnet.open("a").metrics()
    assert metrics["arc/acc"].value.tolist() == [last["acc"]] and metrics["arc/acc"].step.tolist() == [2]
    assert metrics["arc/acc_norm_stderr"].value.tolist() == [last["acc_norm_stderr"]]
    assert metrics["arc/samples"].value.tolist() == [9]
    assert said("check", "a")[0] == 0
    with GGUFFile.open(last["model"]) as file:
        tokens = rebuild_tokenizer(file.metadata).encode(" the red").ids
    assert last["items"][0]["tokens"][0] == len(tokens)


def test_in_a_chat_the_rows_are_asked_in_its_format(printed: Printed, smollm2: Path, tmp_path: Path) -> None:
    start = "The capital of France is"
    rows = [
        {"question": "What is the capital of France?", "choices": [f"{start} London", f"{start} Paris"], "answer": 1},
        {"question": "Is water wet? Answer with yes or no.", "choices": ["Yes", "No"], "answer": 0},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    asked, plain = (told(printed, str(smollm2), "--choices", str(path), *more) for more in (("--chat",), ()))
    assert (asked["chat_format"], plain["chat_format"]) == ("chatml", None)
    (london, paris), (_, in_a_text) = (found["items"][0]["logprobs"] for found in (asked, plain))
    assert paris > max(london, in_a_text), "it is a model of chats"
    assert "2 rows, asked as chatml" in printed("eval", str(smollm2), "--choices", str(path), "--chat")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--corpus", "python"], 2, "--corpus does not go with --choices: score the one, then the other"),
        (["--prompt", "a"], 2, "--prompt does not go with --choices"),
        (["--held-out"], 2, "--held-out does not go with --choices"),
        (["--ctx", "65"], 2, "--ctx 65 does not fit"),
        (["--ctx", "2"], 1, "rows.jsonl: line 1 has a choice of "),
        (["--record", "x"], 2, "--record keeps figures in a run's folder"),
    ],
)
def test_wrong_words_are_one_line(
    said: Said, base: Path, rows: Path, words: list[str], code: int, message: str
) -> None:
    got, out, err = said("eval", str(base), "--choices", str(rows), *words)
    assert (got, message in err, err.count("\n"), out) == (code, True, 1, ""), err


def test_bad_rows_and_models_are_one_line(said: Said, base: Path, rows: Path, tmp_path: Path) -> None:
    bad = write_jsonl(tmp_path / "bad.jsonl", [*ROWS, {**ROWS[0], "answer": 7}])
    bare, vit = tmp_path / "bare.gguf", vit_file(tmp_path / "vit.gguf")
    write(CONFIG, load(base).params(), bare, "bare", 1)
    for words, message in (
        ((base, "--choices", bad), f"{bad}: line 10 has 7 under 'answer', expected a number from 0 to 2\n"),
        ((base, "--choices", "none.jsonl"), "none.jsonl: there is no such file\n"),
        ((base, "--chat", "--corpus", "python"), "--chat is for --choices: give a file of them\n"),
        ((bare, "--choices", rows), "bare.gguf has no tokenizer: give the one it was trained with, --tokenizer FILE"),
        ((vit, "--choices", rows), "--choices is for text, and "),
    ):
        code, out, err = said("eval", *map(str, words))
        assert code in (1, 2) and message in err and err.count("\n") == 1 and not out, err
    assert said("eval", str(bare), "--choices", str(rows), "--tokenizer", str(base))[0] == 0
