"""Trainings on pairs of a chosen and a rejected answer: DPO of an adapter, with the base as the reference."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.errors import UsageError
from linnet.gguf import AdapterFile, GGUFFile
from linnet.gguf.check import check
from tests.conftest import Printed, Said, interrupt, losses
from tests.data.chats import chats, pair_row, pairs, write_jsonl
from tests.scale.forked_ranks import fork_ranks

SHAPE = ("--preset", "tiny", "--vocab", "400", "--ctx", "96")
FLAGS: dict[str, Any] = {
    "loss": "dpo",
    "ctx": 96,
    "batch": 4,
    "lr": 5e-3,
    "held_out": 0.2,
    "steps": 8,
    "eval_every": 4,
    "checkpoint_every": 4,
    "sample_every": 0,
    "device": "cpu",
    "seed": 3,
}
SIDES = ("chosen", "rejected")
METRICS = ("loss", "accuracy", "reward_margin", "reward_chosen", "reward_rejected")


@pytest.fixture(scope="module")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pairs(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", 160)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, preferences: Path) -> Path:
    """A chat model that has learnt a little, quantised."""
    from linnet.gguf import convert

    folder = tmp_path_factory.mktemp("base")
    rows = [{"prompt": row["prompt"], "completion": row[side]} for row in map(pair_row, range(120)) for side in SIDES]
    chat = write_jsonl(folder / "chat.jsonl", rows)
    flags: dict[str, Any] = {"preset": "tiny", "vocab": 400, "ctx": 96, "batch": 4, "steps": 20, "device": "cpu"}
    run = linnet.train("from-scratch", corpus=chat, runs=folder, cache=folder / "cache", sample_every=0, **flags)
    return convert.convert(Path(run.path) / "weights/step_20.gguf", folder / "base.gguf", "q8_0")


@pytest.fixture(autouse=True)
def _cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(cache))


def learn(base: Path, corpus: Path, **flags: Any) -> linnet.runs.Run:
    return linnet.train("lora", **{"base": base, "corpus": corpus, **FLAGS, **flags})


def command(base: Path, corpus: Path, **flags: Any) -> list[str]:
    asked = {"base": base, "corpus": corpus, **FLAGS, **flags}
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in asked.items() if value is not None)
    return ["train", "lora", *(word for pair in pairs for word in pair)]


def test_a_training_on_pairs_tells_answers_apart_and_says_so(base: Path, preferences: Path, printed: Printed) -> None:
    out = printed(*command(base, preferences, steps=40, eval_every=20, beta=0.3, run_id="a"))
    assert " pairs, written as chatml, in " in out
    assert "DPO, beta 0.3, with the base as reference" in out
    assert "eval 40: loss=" in out and "accuracy=" in out and " right (loss " in out
    run = linnet.open("a")
    metrics = run.metrics()
    assert {*METRICS, *(f"validation/{name}" for name in METRICS)} <= set(metrics)
    assert metrics["loss"].value[0] == pytest.approx(math.log(2), abs=1e-4)
    assert metrics["reward_margin"].value[0] == pytest.approx(0, abs=1e-4)
    assert metrics["validation/loss"].value[-1] < 0.6 and metrics["validation/accuracy"].value[-1] > 0.8
    margins = [metrics[f"reward_{side}"].value for side in SIDES]
    assert margins[0] - margins[1] == pytest.approx(metrics["reward_margin"].value, abs=1e-4)
    kept = {name: run.config[name] for name in ("rows", "loss", "beta", "chat_format")}
    assert kept == {"rows": "preferences", "loss": "dpo", "beta": 0.3, "chat_format": "chatml"}
    scored = json.loads(printed("eval", "a", "--json"))
    assert scored["pairs"] == metrics["validation/samples"].value[-1]
    for name in METRICS:
        assert scored[name] == pytest.approx(metrics[f"validation/{name}"].value[-1], abs=1e-4), name
    path = Path(run.path) / "weights/step_40.gguf"
    assert check(path) == [] and AdapterFile.read(path).rank == 8


@pytest.mark.parametrize("flags", [{"dropout": 0.2}, {"batch_tokens": 2 * 4 * 96}])
def test_an_interrupted_training_goes_on_to_the_bit(
    base: Path, preferences: Path, root: Path, printed: Printed, flags: dict[str, Any]
) -> None:
    arguments = command(base, preferences, **flags)
    printed(*arguments, "--run-id", "whole")
    interrupt([*arguments, "--run-id", "cut"], at="eval 4")
    printed("resume", "cut")
    assert losses("cut") == losses("whole") and len(losses("whole")) == 8
    with (
        GGUFFile.open(root / "cut/weights/step_8.gguf") as one,
        GGUFFile.open(root / "whole/weights/step_8.gguf") as two,
    ):
        for name, tensor in one.tensors.items():
            assert tensor.raw().tobytes() == two.tensors[name].raw().tobytes(), name
    evaluated = [linnet.open(name).metrics()["validation/loss"].value.tolist() for name in ("cut", "whole")]
    assert evaluated[0] == evaluated[1]


def test_gradients_of_parts_add_up_to_those_of_the_whole(base: Path, preferences: Path) -> None:
    whole = learn(base, preferences, batch=8, run_id="whole", eval_every=0)
    parts = learn(base, preferences, batch=2, batch_tokens=8 * 96, run_id="parts", eval_every=0)
    for name in (*METRICS, "grad_norm"):
        assert parts.metrics()[name].value == pytest.approx(whole.metrics()[name].value, abs=2e-4), name


def test_two_ranks_train_what_one_does(base: Path, preferences: Path, root: Path, tmp_path: Path) -> None:
    one = learn(base, preferences, run_id="one", batch_tokens=2 * 4 * 96, steps=4)
    ranks = fork_ranks(command(base, preferences, run_id="two", batch_tokens=2 * 4 * 96, steps=4, runs=root), tmp_path)
    try:
        assert [rank.end()[0] for rank in ranks] == [0, 0], [rank.err.read_text() for rank in ranks]
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.join()
    two = linnet.open("two")
    for name in (*METRICS, "validation/loss", "validation/reward_margin"):
        assert two.metrics()[name].value.tolist() == one.metrics()[name].value.tolist(), name


def test_a_fork_goes_on_with_rows_of_another_kind(base: Path, preferences: Path, tmp_path: Path, root: Path) -> None:
    """First answers, then which of two is better, then a text: what the rows are, each corpus says itself."""
    flags = {**FLAGS, "steps": 1, "eval_every": 0, "batch": 2}
    answers = chats(tmp_path / "chats.jsonl", 20)
    linnet.train("lora", base=base, corpus=answers, run_id="a", train_on="all", **{**flags, "loss": None})
    linnet.train("lora", from_="a", corpus=preferences, loss="dpo", steps=1, run_id="b")
    text = tmp_path / "text.txt"
    text.write_text("the red whale swims and sings near a green one\n" * 40)
    linnet.train("lora", from_="a", corpus=text, steps=1, held_out=0, run_id="c")
    linnet.train("lora", from_="a", corpus=chats(tmp_path / "others.jsonl", 30), steps=1, run_id="d")
    kept = ("rows", "chat_format", "train_on", "documents")
    found = {name: tuple(linnet.open(name).config.get(key) for key in kept) for name in "bcd"}
    assert found["b"] == ("preferences", "chatml", None, True)
    assert linnet.open("a").config["lr"] == FLAGS["lr"] and linnet.open("b").config["lr"] == 1e-4
    assert found["c"] == (None, None, None, False)
    assert found["d"] == ("conversations", "chatml", "all", True)


def test_a_fork_and_dora_learn_from_pairs_too(base: Path, preferences: Path, printed: Printed) -> None:
    learn(base, preferences, run_id="a", steps=4)
    printed("train", "lora", "--from", "a", "--steps", "2", "--beta", "0.5", "--run-id", "b")
    config = linnet.open("b").config
    assert (config["loss"], config["beta"], len(losses("b"))) == ("dpo", 0.5, 2)
    adapter = Path(linnet.open("a").path) / "weights/step_4.gguf"
    out = printed(*command(base, preferences, adapter=adapter, steps=1, run_id="d"))
    assert "which the adapter it goes on with is no part of" in " ".join(out.split())
    dora = learn(base, preferences, run_id="c", steps=12, dora=True)
    assert dora.metrics()["loss"].value[-1] < math.log(2)


def test_what_does_not_go_together_is_one_line_and_leaves_nothing(
    said: Said, base: Path, preferences: Path, root: Path, tmp_path: Path
) -> None:
    talk = chats(tmp_path / "talk.jsonl", 20)
    (tmp_path / "text.txt").write_text("Once upon a time. " * 400)
    lines = preferences.read_text().splitlines()
    incomplete = tmp_path / "incomplete.jsonl"
    incomplete.write_text("\n".join([*lines[:6], '{"prompt": "a", "chosen": "b"}', *lines[6:]]))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "a", "chosen"\n' + preferences.read_text())
    (tmp_path / "short.csv").write_text("prompt,chosen,rejected\na,b\n")
    (tmp_path / "empty.jsonl").write_text("")
    same = write_jsonl(tmp_path / "same.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "b"}])
    long = write_jsonl(tmp_path / "long.jsonl", [{**pair_row(k), "prompt": "why? " * 200} for k in range(9)])
    for arguments, complaint in (
        (
            command(base, talk),
            f"--loss dpo learns from pairs, and corpus {talk} is conversations: give rows of prompt,",
        ),
        (
            command(base, tmp_path / "text.txt"),
            "text.txt is text: give rows of prompt, chosen and rejected, or leave it",
        ),
        (
            command(base, preferences, loss=None),
            "holds pairs of a chosen and a rejected answer: learn from them with --loss dpo",
        ),
        (command(base, preferences, beta=0), "--beta must be above 0, found 0"),
        (command(base, preferences, beta="nan"), "--beta must be above 0, found nan"),
        (
            command(base, preferences, beta=0.2, loss=None),
            "--beta belongs to learning from preferences: give --loss dpo",
        ),
        (
            command(base, preferences, batch=3),
            "--batch 3 parts pairs, whose two answers stand in rows beside each other",
        ),
        (command(base, preferences, train_on="all"), "--train-on all does not go with --loss dpo"),
        (command(base, preferences, teacher=base), "--teacher does not go with --loss dpo"),
        (command(base, incomplete), "line 7 has no rejected: expected prompt, chosen and rejected"),
        (command(base, broken), "broken.jsonl: line 1 is not a JSON object: Input data was truncated"),
        (command(base, tmp_path / "short.csv"), "short.csv: line 2 has 2 of 3 columns"),
        (command(base, tmp_path / "empty.jsonl"), "empty.jsonl: the file is empty"),
        (
            command(base, same),
            f"corpus {same}: 1 row of it left out: line 1 has the same answer as chosen and as rejected; noth",
        ),
        (command(base, long), "pairs both answers begin within 96 tokens: choose a larger --ctx"),
        (
            ["train", "finetune", *command(base, preferences, loss=None)[2:]],
            "learn from them with --loss dpo in linnet train lora, whose adapter is switched off for",
        ),
        (
            ["train", "from-scratch", "--corpus", str(preferences), *SHAPE],
            "learn from them with --loss dpo in linnet train lora",
        ),
    ):
        code, _, err = said(*arguments)
        assert code in (1, 2) and complaint in err and err.count("\n") == 1, err
    assert not root.exists()


def test_pairs_are_scored_beside_a_base_alone(base: Path, preferences: Path, said: Said) -> None:
    code, _, err = said("eval", str(base), "--corpus", str(preferences))
    assert code == 2 and err.count("\n") == 1 and "score an adapter (a RUN of lora, or --adapter)" in err


def test_a_recipe_without_an_adapter_does_not_know_the_flag(said: Said, base: Path, preferences: Path) -> None:
    code, _, err = said("train", "finetune", "--base", str(base), "--corpus", str(preferences), "--loss", "dpo")
    assert code == 2 and err.count("\n") == 1 and "--loss" in err and "lora" in err
    with pytest.raises(UsageError, match="finetune has no flag 'loss'; it belongs to lora"):
        linnet.train("finetune", base=base, corpus=preferences, loss="dpo")


def test_answers_that_do_not_fit_and_rows_that_are_left_out_are_told(
    base: Path, tmp_path: Path, printed: Printed
) -> None:
    dice = random.Random(0)
    long = {"prompt": "red?", "chosen": " ".join(dice.choices(["red", "blue", "far"], k=150)), "rejected": "no."}
    same = {"prompt": "a", "chosen": "b", "rejected": "b"}
    corpus = write_jsonl(tmp_path / "a.jsonl", [long, same, *(pair_row(number) for number in range(60))])
    out = " ".join(printed(*command(base, corpus, steps=1, held_out=0.05)).split())
    assert "1 pair is longer than the context of 96 tokens and cut there" in out
    assert "1 row of it left out: line 2 has the same answer as chosen and as rejected" in out
    assert "held out, and their loss says little" in out


def test_a_pair_with_a_large_loss_ends_no_run(base: Path, tmp_path: Path) -> None:
    rows = [pair_row(number) for number in range(80)]
    for row in rows[::8]:  # labelled the wrong way round
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    corpus = write_jsonl(tmp_path / "a.jsonl", rows)
    run = learn(base, corpus, batch=2, lr=3e-2, beta=9.0, steps=30, run_id="a", eval_every=0, checkpoint_every=0)
    assert run.status == "completed" and max(losses("a").values()) > 5


def test_a_look_inside_changes_no_bit(base: Path, preferences: Path) -> None:
    learn(base, preferences, run_id="plain", steps=4)
    learn(base, preferences, run_id="looked", steps=4, inspect="taps,gram,grads,drift,regions,ops")
    assert losses("looked") == losses("plain")


def test_a_plan_and_a_gate_know_what_is_measured(base: Path, preferences: Path, said: Said, printed: Printed) -> None:
    plan = json.loads(printed(*command(base, preferences), "--dry-run", "--json"))
    assert plan["steps"] == 8
    code, _, _ = said(*command(base, preferences, gate="validation/reward_margin>9", steps=1))
    assert code == 1
    code, _, err = said(*command(base, preferences, gate="validation/ppl<3"))
    assert code == 2 and "this run will have no metric 'validation/ppl'" in err
