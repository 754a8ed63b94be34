"""`linnet.train` and `linnet.resume`: the commands as calls, own data, own loss."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

import linnet
from linnet.data import DataError
from linnet.train import StepMetrics
from tests.conftest import Said, losses

ROWS: dict[str, Any] = {"vocab": 32, "preset": "tiny", "ctx": 8, "batch": 4, "eval_tokens": 64}


class Counting(Dataset[list[int]]):
    """Rows that count up from a number."""

    def __init__(self, length: int = 40) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[int]:
        return [(index + place) % 32 for place in range(9)]


class Stream(IterableDataset[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        return (Counting()[index] for index in range(40))


def test_train_is_the_command_with_the_same_words(said: Said, corpus: Path, small: list[str]) -> None:
    assert said(*small, "--steps", "3", "--lr", "2e-3", "--run-id", "typed", "--tag", "x", "--json")[0] == 0
    run = linnet.train(
        "from-scratch",
        corpus=str(corpus),
        preset="tiny",
        vocab=384,
        batch=4,
        eval_tokens=2048,
        sample_tokens=8,
        steps=3,
        lr=2e-3,
        run_id="called",
        tag="x",
    )
    assert (run.id, run.status, run.manifest.tags) == ("called", "completed", ["x"])
    assert losses("typed") == losses("called")
    assert linnet.open("typed").manifest.config == run.manifest.config


@pytest.mark.parametrize(
    ("recipe", "flags", "words"),
    [
        ("from-scrach", {}, "there is no recipe 'from-scrach'; did you mean from-scratch?"),
        ("from-scratch", {"stepps": 3}, "no flag 'stepps'; did you mean steps?"),
        ("from-scratch", {"learning_rate": 1}, "no flag 'learning_rate'; did you mean lr?"),
        ("from-scratch", {"zzz": 1}, "see linnet train from-scratch --help"),
        ("from-scratch", {"optimizer": "adam"}, "optimizer cannot be 'adam'; did you mean adamw?"),
        ("from-scratch", {"steps": "many"}, "steps cannot be 'many': expected int, found str"),
        ("from-scratch", {"cache": 3}, "cache is a path, found 3"),
        ("from-scratch", {"eval_data": []}, "eval_data goes with data"),
        ("from-scratch", {"data": []}, "needs a tokenizer or a vocab"),
        ("from-scratch", {"data": [], "vocab": 9, "corpus": "x"}, "corpus is for text that Linnet reads"),
        ("warm-start", {}, "warm-start needs a donor"),
        ("vit-tiny", {"data": [], "vocab": 9}, "data= goes with from-scratch"),
        ("vit-tiny", {"sample_every": 9}, "vit-tiny has no flag 'sample_every'"),
    ],
)
def test_wrong_words_are_refused_with_a_suggestion(recipe: str, flags: dict[str, Any], words: str) -> None:
    with pytest.raises(linnet.UsageError) as refused:
        linnet.train(recipe, **flags)
    assert words in str(refused.value)
    assert linnet.list_runs() == []


def test_a_map_style_dataset_goes_on_to_the_bit() -> None:
    linnet.train(data=Counting(), steps=4, schedule="constant", run_id="a", **ROWS)
    linnet.train(data=Counting(), steps=8, schedule="constant", run_id="b", **ROWS)
    linnet.resume("a", steps=8, data=Counting())
    assert losses("a") == losses("b")
    pair = [linnet.open(name).metrics()["validation/loss"].value[-1] for name in ("a", "b")]
    assert pair[0] == pair[1]


def test_another_dataset_is_refused(said: Said) -> None:
    linnet.train(data=Counting(), steps=2, run_id="a", **ROWS)
    with pytest.raises(linnet.LinnetError, match="has changed"):
        linnet.resume("a", steps=4, data=Counting(41))
    with pytest.raises(linnet.UsageError, match="the data of a program"):
        linnet.resume("a", steps=4)
    code, _, err = said("resume", "a", "--steps", "4")
    assert (code, "linnet.resume(run, data=" in err) == (2, True)


@pytest.mark.parametrize("kind", ["iterable dataset", "loader", "generators"])
def test_an_iterable_is_trained_on_in_its_order_and_goes_on_where_it_was(kind: str) -> None:
    def rows() -> Any:
        if kind == "loader":
            return DataLoader(Counting(), batch_size=5, collate_fn=lambda rows: torch.tensor(rows))
        return Stream() if kind == "iterable dataset" else (Counting()[index] for index in range(40))

    linnet.train(data=rows(), steps=4, schedule="constant", run_id="a", **ROWS)
    linnet.resume("a", steps=8, data=rows())
    linnet.train(data=rows(), steps=8, schedule="constant", run_id="b", **ROWS)
    assert losses("a") == losses("b")
    assert "validation/loss" not in linnet.open("b").metrics()


def test_a_generator_that_ends_completes_the_run_and_says_so() -> None:
    rows = (Counting()[index] for index in range(10))
    run = linnet.train(data=rows, steps=8, eval_data=[Counting()[0]], run_id="a", **ROWS)
    assert run.status == "completed"
    assert run.metrics()["loss"].step.tolist() == [1, 2]
    notes = [event.data["text"] for event in run.events().read_events() if event.kind == "note"]
    assert notes == ["ended early: the data ended after step 2 of 8"]
    assert run.checkpoints()[-1].stem == "step_2"


def test_an_iterable_that_can_begin_again_does() -> None:
    assert linnet.train(data=Stream(), steps=12, run_id="a", **ROWS).metrics()["loss"].step[-1] == 12


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2, 3]] * 4,
        [np.array([1, 2, 3], np.int32)] * 4,
        [torch.tensor([1, 2, 3])] * 4,
        [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}] * 4,
    ],
    ids=["lists", "arrays", "tensors", "transformers"],
)
def test_rows_come_in_many_forms(rows: Any) -> None:
    assert linnet.train(data=rows, steps=2, held_out=0.25, **ROWS).status == "completed"


def test_similarity_is_measured_on_a_held_out_row_that_has_a_target() -> None:
    masked = {"input_ids": [1, 2, 3, 4], "labels": [-100] * 4}
    run = linnet.train(data=Counting(), eval_data=[masked, [5, 6, 7, 8, 9]], inspect="gram", steps=1, **ROWS)
    sides = {len(event.data["gram"]) for event in run.events().read_events() if event.kind == "tap"}
    assert sides == {4}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1] * 10, "10 tokens: expected 2 to 9"),
        ([1], "1 tokens: expected 2 to 9"),
        ([1, 32], "the token 32: expected 0 to 31"),
        ([1, -1], "the token -1: expected 0 to 31"),
        ("text", "expected token ids"),
        ({"ids": [1, 2]}, "a mapping with input_ids"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        linnet.train(data=iter([row] * 8), steps=2, **ROWS)


def test_a_tokenizer_object_gives_the_vocabulary_and_goes_into_checkpoints(said: Said) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["the cat sat on the mat"] * 20, trainer)
    rows = [tokenizer.encode("the cat sat").ids] * 12
    shape = {name: value for name, value in ROWS.items() if name != "vocab"}
    run = linnet.train(data=rows, tokenizer=tokenizer, steps=2, prompt="the", sample_tokens=4, run_id="a", **shape)
    assert run.manifest.model["vocab"] == tokenizer.get_vocab_size()
    assert any(event.kind == "sample" for event in run.events().read_events())
    assert said("generate", "a", "--prompt", "the", "--max-tokens", "2")[0] == 0
    assert linnet.resume("a", steps=3, data=rows).status == "completed"


def own(model: Any, batch: Any) -> dict[str, Tensor]:
    logits_BTV = model(batch.ids_BT)
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), batch.targets_BT.flatten())
    return {"half": loss / 2, "loss": loss}


def test_a_loss_of_ones_own_trains_as_the_models_own_and_logs_its_scalars() -> None:
    linnet.train(data=Counting(), steps=4, run_id="a", **ROWS)
    seen: list[float] = []

    class Listener(linnet.Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            seen.append(metrics.values["half"])

    run = linnet.train(data=Counting(), steps=4, loss=own, callbacks=[Listener()], run_id="b", **ROWS)
    for step, loss in losses("a").items():
        assert losses("b")[step] == pytest.approx(loss, rel=1e-4)
    assert run.metrics()["half"].value.tolist() == seen
    assert seen[-1] == pytest.approx(losses("b")[4] / 2)


def test_gradient_accumulation_gives_it_parts_that_add_up() -> None:
    linnet.train(data=Counting(), steps=3, loss=own, run_id="a", **{**ROWS, "batch": 8})
    linnet.train(data=Counting(), steps=3, loss=own, run_id="b", **{**ROWS, "batch": 4, "batch_tokens": 64})
    assert list(losses("a").values()) == pytest.approx(list(losses("b").values()), rel=1e-4)


def test_a_part_of_a_batch_without_a_target_adds_nothing_to_it() -> None:
    rows = [{"input_ids": [1, 2, 3, 4], "labels": [-100] * 4}] * 4 + [Counting()[0]] * 4
    flags = {**ROWS, "steps": 2, "batch_tokens": 64}
    linnet.train(data=(row for row in rows * 2), run_id="a", **flags)
    linnet.train(data=(row for row in rows * 2), loss=own, run_id="b", **flags)
    assert list(losses("b").values()) == pytest.approx(list(losses("a").values()), rel=1e-4)


def test_a_run_with_its_own_loss_goes_on_only_with_it(said: Said) -> None:
    linnet.train(data=Counting(), steps=2, loss=own, run_id="a", **ROWS)
    with pytest.raises(linnet.UsageError, match=r"a loss of its own \(own\)"):
        linnet.resume("a", steps=3, data=Counting())
    assert linnet.resume("a", steps=3, data=Counting(), loss=own).status == "completed"
    linnet.train(data=Counting(), steps=2, run_id="b", **ROWS)
    with pytest.raises(linnet.UsageError, match="leave loss= out"):
        linnet.resume("b", steps=3, data=Counting(), loss=own)


def test_a_loss_without_a_loss_is_refused() -> None:
    with pytest.raises(linnet.UsageError, match="expected 'loss' among them"):
        linnet.train(data=Counting(), steps=2, loss=lambda model, batch: {"other": torch.zeros(())}, **ROWS)


@pytest.mark.parametrize("call", ["load", "generate", "train"])
def test_without_torch_a_call_says_what_to_install(call: str, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    argument = repr("from-scratch" if call == "train" else str(tmp_path / "x.gguf"))
    program = f"import sys; sys.modules['torch'] = None; import linnet\nlinnet.{call}({argument})"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    line = f"LinnetError: linnet.{call} needs the package torch, which is not installed: pip install 'linnet[train]'"
    assert ended.stderr.strip().splitlines()[-1] == f"linnet.errors.{line}"


def test_on_a_busy_machine_threads_wait_asleep_as_the_commands_do() -> None:
    program = """
import os, sys
os.environ.pop("OMP_WAIT_POLICY", None)
os.getloadavg = lambda: (99.0, 99.0, 99.0)
import linnet
try:
    linnet.train("from-scratch", stpes=3)
except linnet.UsageError:
    print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["PASSIVE", "False"]
