"""`linnet eval`, as its user sees it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.cli import main
from linnet.data import prepare
from linnet.gguf import GGUFFile, write
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.infer import score, top_tokens
from linnet.models import LlamaConfig, build, load
from tests.conftest import SMALL, Said


@pytest.fixture(scope="module")
def run(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve steps on a corpus with documents held out."""
    root = tmp_path_factory.mktemp("runs")
    words = ["train", "from-scratch", "--corpus", str(corpus), "--cache", str(cache), *SMALL]
    assert main([*words, "--held-out", "0.2", "--steps", "12", "--runs", str(root), "--run-id", "a", "--json"]) == 0
    return root / "a"


def told(said: Said, *words: str) -> dict[str, object]:
    code, out, err = said("eval", *words, "--device", "cpu", "--json")
    assert code == 0, err
    found: dict[str, object] = json.loads(out)
    return found


def test_a_run_is_scored_on_what_was_held_out_of_it(said: Said, run: Path) -> None:
    found = told(said, str(run), "--tokens", "2048")
    last = linnet.open(run).metrics()
    assert found["split"] == "held_out"
    assert found["loss"] == pytest.approx(last["validation/loss"].value[-1], rel=1e-5)
    assert found["ppl"] == pytest.approx(last["validation/ppl"].value[-1], rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(last["validation/bits_per_byte"].value[-1], rel=1e-5)
    assert found["model"] == str(run / "weights/step_12.gguf")


def test_a_text_is_scored_in_the_models_own_tokens(said: Said, run: Path, tmp_path: Path) -> None:
    text = "def add(a, b):\n    return a + b\n" * 40
    (tmp_path / "mine.txt").write_text(text)
    found = told(said, str(run / "weights/step_12.gguf"), "--corpus", "mine.txt")
    with GGUFFile.open(run / "weights/step_12.gguf") as file:
        tokenizer = rebuild_tokenizer(file.metadata)
    end = tokenizer.token_to_id("<|endoftext|>")
    ids = [end, *tokenizer.encode(text).ids, end]
    expected = score(load(run / "weights/step_12.gguf"), np.array(ids))
    assert (found["split"], found["tokens"]) == ("all", len(ids) - 1)
    assert found["loss"] == pytest.approx(expected.mean, rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(expected.mean / math.log(2) * len(ids) / len(text), rel=1e-3)


def test_a_shorter_window_knows_less(said: Said, run: Path) -> None:
    whole, short = told(said, str(run)), told(said, str(run), "--ctx", "2")
    assert (whole["ctx"], short["ctx"]) == (32, 2)
    assert whole["tokens"] == short["tokens"]
    assert whole["loss"] != short["loss"]


def test_all_documents_are_more_than_the_held_out_ones(said: Said, run: Path, corpus: Path) -> None:
    whole, held = told(said, str(run), "--all"), told(said, str(run), "--held-out")
    assert int(str(whole["tokens"])) > 3 * int(str(held["tokens"]))
    assert told(said, str(run), "--corpus", str(corpus), "--held-out")["loss"] == held["loss"]


def test_a_corpus_that_changed_is_still_scored_in_the_models_tokens(
    said: Said, run: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for file in corpus.iterdir():
        (mine / file.name).write_bytes(file.read_bytes())
    words = ["train", "from-scratch", "--corpus", str(mine), *SMALL, "--steps", "2", "--run-id", "b"]
    assert said(*words, "--held-out", "0.2")[0] == 0
    before = told(said, "b")
    (mine / "zebra.py").write_text("zebra = 'zzzzz qqqqq xxxxx'\n" * 2000)
    after = told(said, "b")
    assert after["loss"] == pytest.approx(before["loss"], rel=0.3)
    prepared = prepare(mine, tokenizer=Path("runs/b/weights/step_2.gguf"), held_out=0.2)
    assert after["tokens"] == len(prepared.held_out) - 1


def test_a_prompt_shows_what_the_model_expects(said: Said, run: Path) -> None:
    found = told(said, str(run), "--prompt", "def main(self)", "--top-k", "3")
    assert "loss" not in found
    places = found["predictions"]
    assert isinstance(places, list)
    assert "".join(place["text"] for place in places) == "def main(self)"
    assert [len(place["top"]) for place in places] == [3] * len(places)
    expected = top_tokens(load(run / "weights/step_12.gguf"), [place["token"] for place in places], 3)
    assert places[0]["next"]["logprob"] == pytest.approx(expected[0].actual.logprob, abs=1e-5)  # type: ignore[union-attr]
    assert places[-1]["next"] is None
    assert places[-1]["top"][0]["token"] == expected[-1].top[0].token
    code, out, _ = said("eval", str(run), "--prompt", "def main(", "--corpus", "python", "--tokens", "64")
    assert code == 0
    assert "perplexity" in out and "log p of next" in out and "'def'" in out


def test_a_donors_tokenizer_makes_the_vocabulary(said: Said, run: Path, small: list[str]) -> None:
    words = [word for word in small if word not in ("--vocab", "384")]
    donor = str(run / "weights/step_12.gguf")
    code, _, err = said(*words, "--tokenizer", donor, "--steps", "2", "--run-id", "c", "--held-out", "0.2")
    assert code == 0, err
    assert linnet.open("c").manifest.model["vocab"] == 384
    assert told(said, "c")["tokens"] == told(said, str(run))["tokens"]
    code, _, err = said(*words, "--tokenizer", donor, "--vocab", "512")
    assert code == 2
    assert "--vocab 512 does not go with a tokenizer of 384 tokens: leave it out" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--ctx", "33"], 2, "--ctx 33 does not fit"),
        (["--tokens", "0"], 2, "--tokens must be 1 or more, found 0"),
        (["--held-out", "--all"], 2, "--held-out and --all exclude each other: give one of them"),
        (["--corpus", "nowhere.txt"], 1, "corpus nowhere.txt: there is no such file or folder"),
        (["--prompt", "a", "--top-k", "0"], 2, "--top-k 0 does not fit"),
        (["--prompt", ""], 2, "the prompt is empty"),
        (["--device", "cuda"], 2, "device cuda was asked for"),
        (["--corpsu", "a"], 2, "Did you mean --corpus?"),
    ],
)
def test_wrong_words_are_one_line(said: Said, run: Path, words: list[str], code: int, message: str) -> None:
    got, _, err = said("eval", str(run), *words)
    assert (got, message in err, err.count("\n")) == (code, True, 1), err


def test_a_file_of_no_run_needs_a_corpus_or_a_prompt(said: Said, tmp_path: Path) -> None:
    config = LlamaConfig(vocab=300, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=1, ctx=16)
    write(config, build(config).params(), "bare.gguf", "bare", 1)
    code, _, err = said("eval", "bare.gguf")
    assert (code, "belongs to no run with a corpus of its own: give --corpus or --prompt" in err) == (2, True)
    Path("ids.i32").write_bytes(np.arange(290, dtype=np.int32).tobytes())
    found = told(said, "bare.gguf", "--corpus", "ids.i32")
    assert (found["tokens"], found["bits_per_byte"]) == (289, None)
    assert said("eval", "nothing.gguf")[0] == 2


def test_a_model_without_tokenizer_is_given_one_or_scores_token_ids_only(said: Said, run: Path, tmp_path: Path) -> None:
    """It would be a loss over a vocabulary made up that moment."""
    whole = run / "weights/step_12.gguf"
    bare = tmp_path / "bare.gguf"
    model = load(whole)
    write(model.config, model.params(), bare, "bare", 1)
    (tmp_path / "mine.txt").write_text("def add(a, b):\n    return a + b\n" * 40)
    for words in (["--corpus", "mine.txt"], ["--prompt", "def"]):
        code, out, err = said("eval", str(bare), *words)
        assert (code, out) == (2, "")
        assert "bare.gguf has no tokenizer: give the one it was trained with, --tokenizer FILE.gguf" in err
    given = told(said, str(bare), "--corpus", "mine.txt", "--tokenizer", str(whole))
    assert given["loss"] == told(said, str(whole), "--corpus", "mine.txt")["loss"]
    given = told(said, str(bare), "--prompt", "def main(", "--tokenizer", str(whole))
    assert given["predictions"] == told(said, str(whole), "--prompt", "def main(")["predictions"]
    code, _, err = said("eval", str(whole), "--corpus", "mine.txt", "--tokenizer", str(whole))
    assert (code, "has its own: leave it out" in err) == (2, True)
    config = LlamaConfig(vocab=300, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=1, ctx=16)
    write(config, build(config).params(), "other.gguf", "other", 1)
    code, _, err = said("eval", "other.gguf", "--corpus", "mine.txt", "--tokenizer", str(whole))
    assert (code, "has 384 tokens, and other.gguf a vocabulary of 300" in err) == (2, True)


def test_figures_are_left_in_the_run_when_a_name_is_given(said: Said, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "runs/a", symlinks=True)
    before = linnet.open("a")
    events, metrics = before.events_path.read_bytes(), before.metrics()
    plain = told(said, "a", "--tokens", "512")
    assert before.events_path.read_bytes() == events, "without --record nothing is written"
    found = told(said, "a", "--tokens", "512", "--record", "test")
    assert found["loss"] == plain["loss"]
    after = linnet.open("a")
    assert after.metrics()["test/loss"].value.tolist() == [found["loss"]]
    assert after.metrics()["test/loss"].step.tolist() == [12]
    assert (after.status, said("check", "a")[0]) == ("completed", 0)
    for name in ("loss", "validation/loss"):
        assert after.metrics()[name].value.tolist() == metrics[name].value.tolist()
    refusals = {
        ("a", "--record", "validation"): "validation is the run's own",
        ("a", "--prompt", "def", "--record", "test"): "a --prompt alone has none",
        ("bare.gguf", "--corpus", "mine.txt", "--record", "test"): "bare.gguf is no checkpoint of a run of ours",
    }
    model = load(run / "weights/step_12.gguf")
    write(model.config, model.params(), "bare.gguf", "bare", 1)
    for words, message in refusals.items():
        code, _, err = said("eval", *words)
        assert (code, message in err) == (2, True), err
