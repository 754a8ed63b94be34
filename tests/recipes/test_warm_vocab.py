"""`warm-start --vocab N`: a small vocabulary of the corpus's own, whose rows come from the donor."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import linnet
from linnet import gguf
from linnet.gguf.pretokenizers import PRES
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.models import load
from linnet.recipes import TextData
from linnet.recipes.donor import Donor
from linnet.recipes.flags import flags_of
from linnet.recipes.token_rows import find_rows
from linnet.recipes.transfer import Init, shape_from
from linnet.recipes.warm_start import WarmStart
from linnet.train import TrainSettings
from tests.conftest import Said, interrupt, losses
from tests.gguf import tiny
from tests.gguf.hard_strings import HARD_STRINGS
from tests.gguf.llama_client import ask
from tests.gguf.llama_cpp_tokens import tokens_by_llama_cpp
from tests.gguf.test_tokenizer import sentence_piece_block
from tests.gguf.test_tokenizer import sentence_piece_model as sentence_piece_model
from tests.recipes.conftest import CPU

SMALL = ["--ctx", "32", "--batch", "4", "--eval-tokens", "512", "--sample-tokens", "4"]
PROSE = str(Path(__file__).parents[2] / "docs/decisions.md")  # other words than those the donor was trained on


def words(donor: Path, *more: str, corpus: str = PROSE, steps: int = 2) -> list[str]:
    return ["train", "warm-start", "--donor", str(donor), "--corpus", corpus, *SMALL, "--steps", str(steps), *more]


def keys(path: Path) -> dict[str, Any]:
    with gguf.GGUFFile.open(path) as file:
        return {key: file.metadata[key] for key in file.metadata if key.startswith("tokenizer.")}


@pytest.mark.parametrize(
    "init",
    [
        ["select", "--d-model", "48", "--n-layers", "2"],
        ["select", "--d-model", "48", "--n-layers", "2", "--untied"],
        ["select", "--d-model", "48", "--n-layers", "2", "--tokens", "exact"],
        ["pca", "--d-model", "64", "--n-layers", "1"],
        ["warm", "--d-model", "64", "--n-layers", "1", "--train-table"],
        ["embed", "--n-layers", "1"],
        ["inherit:2"],
        ["widen:2"],
        ["full"],
    ],
    ids=" ".join,
)
def test_every_init_takes_its_rows_for_a_vocabulary_of_ones_own(said: Said, trained: Path, init: list[str]) -> None:
    code, out, err = said(*words(trained, "--vocab", "400", "--init", *init))
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if "rows are tokens of the donor's" in line]
    run = linnet.open("latest")
    config = run.manifest.config
    counts = config["donor_rows"], config["mean_rows"], config["new_rows"]
    assert sum(counts) == run.manifest.model["vocab"] == 400
    assert config["coverage"] == pytest.approx((counts[0] + counts[1]) / 400)
    assert f"{counts[0]} of 400 rows are tokens of the donor's" in line
    assert line.endswith("; 400 tokens in place of its 512")
    assert counts[0] > 280 and (counts[2] > 0) == ("exact" in init) and (counts[1] > 20) == ("exact" not in init)
    assert config["taken"] in line
    file = run.path / "weights/step_2.gguf"
    assert gguf.check.check(file) == []
    with gguf.GGUFFile.open(file) as written:
        assert written.tensors["token_embd.weight"].shape[0] == 400
        assert ("output.weight" in written.tensors) == (init[0] in ("pca", "warm") or "--untied" in init)


def test_scratch_has_the_vocabulary_and_nothing_else(said: Said, trained: Path) -> None:
    code, out, err = said(*words(trained, "--vocab", "400", "--init", "scratch", "--d-model", "48"))
    assert code == 0, err
    assert linnet.open("latest").manifest.model["vocab"] == 400
    assert "rows" not in out.replace("rows of", "")


@pytest.mark.parametrize("tied", [True, False])
def test_a_token_of_the_same_bytes_has_its_row_and_others_a_mean(tmp_path: Path, trained: Path, tied: bool) -> None:
    cfg = tiny.llama_config()
    _, params = tiny.llama(cfg, tied=tied)
    donor = gguf.write(cfg, params, tmp_path / "donor.gguf", "r", 1, tokenizer=tiny.byte_level_tokenizer())
    new = keys(trained)
    rows = find_rows(keys(donor), new, pieces=True)
    with Donor(donor) as opened:
        config = shape_from(opened.config, Init.parse("full"), vocab=512)
    recipe = WarmStart(TrainSettings(device="cpu"), CPU, init="full")
    recipe.realize_scratch(config)
    recipe.realize_warm(donor, new)
    equal = rows._equal()  # to a row before them, but for some noise
    assert len(equal) < 60
    for name in ("token_embd.weight", *(() if tied else ("output.weight",))):
        theirs, ours = np.asarray(params[name]), recipe.model.params()[name].detach().numpy()
        assert ours.shape == (512, 64)
        for number in range(512):
            pieces = rows.of[rows.first[number] : rows.first[number + 1]]
            assert len(pieces)
            apart = np.abs(ours[number] - theirs[pieces].mean(0)).max()
            assert apart < (0.5 * theirs.std() if number in equal else 1e-6)
            assert len(pieces) > 1 or np.array_equal(ours[number], theirs[pieces[0]])
    assert recipe.options.donor_rows == rows.own > 256
    assert recipe.options.mean_rows == rows.means > 150


def test_a_sentence_piece_donor(said: Said, tmp_path: Path, sentence_piece_model: bytes) -> None:
    block = sentence_piece_block(sentence_piece_model)
    cfg = tiny.llama_config(vocab=len(block["tokenizer.ggml.tokens"][1]))  # type: ignore[arg-type]
    _, params = tiny.llama(cfg)
    donor = gguf.write(cfg, params, tmp_path / "donor.gguf", "r", 1, tokenizer=gguf.MetadataBlock.of(block))
    code, _, err = said(*words(donor, "--vocab", "600", "--init", "full"))
    assert code == 0, err
    config = linnet.open("latest").manifest.config
    assert config["new_rows"] == 0, "bytes are tokens there: <0x41>"
    assert config["donor_rows"] > 350
    assert "pre" not in config
    new, theirs = keys(linnet.open("latest").path / "weights/step_2.gguf"), keys(donor)
    rows = find_rows(theirs, new, pieces=True)
    texts = theirs["tokenizer.ggml.tokens"]

    def row(token: str) -> list[str]:
        number = new["tokenizer.ggml.tokens"].index(token)
        return [texts[id_] for id_ in rows.of[rows.first[number] : rows.first[number + 1]]]

    assert row("Ġthe") == ["▁the"]
    assert row("Ċ") == ["<0x0A>"]
    assert row("A") in (["A"], ["<0x41>"])
    assert row("<|endoftext|>") == ["</s>"]


def test_smollm2_with_a_vocabulary_of_its_own_runs_in_llama_cpp(said: Said, smollm2: Path, corpus: Path) -> None:
    more = ["--vocab", "700", "--d-model", "64", "--n-layers", "2", "--run-id", "a"]
    code, out, err = said(*words(smollm2, *more, corpus=str(corpus)))
    assert code == 0, err
    assert "700 tokens in place of its 49,152, without its chat template" in out
    file = Path("runs/a/weights/step_2.gguf")
    metadata = keys(file)
    assert metadata["tokenizer.ggml.pre"] == "smollm", "words are cut as the donor cuts them"
    assert "tokenizer.chat_template" not in metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    assert not [text for text in tokens if re.fullmatch(r"<\|im_\w+\|>", text)]
    assert metadata["tokenizer.ggml.eos_token_id"] == tokens.index("<|endoftext|>")
    texts = [*HARD_STRINGS[::12], "def f(self): return 1234", "<|im_start|>user"]
    tokenizer = rebuild_tokenizer(metadata)
    assert tokens_by_llama_cpp(file, texts) == [tokenizer.encode(text).ids for text in texts]
    ids = tokenizer.encode("def __init__(self, path):").ids
    (answer,) = ask(file, prompts=[ids], vocab=700)
    assert not answer.refused
    with torch.inference_mode():
        ours = torch.log_softmax(load(file)(torch.tensor([ids]))[0, -1], -1).numpy()
    assert np.abs(np.array(answer.logprobs[0]) - ours).max() < 1e-3


@pytest.mark.parametrize("init", ["pca", "select"])
def test_a_resumed_run_needs_no_donor_and_is_the_same_to_the_bit(
    said: Said, trained: Path, tmp_path: Path, init: str
) -> None:
    donor = tmp_path / "donor.gguf"
    shutil.copy(trained, donor)
    shape = ["--vocab", "400", "--init", init, "--d-model", "48", "--n-heads", "3", "--n-layers", "1"]
    run = words(donor, *shape, "--run-id", "a", "--checkpoint-every", "4", "--warmup", "2", steps=12)
    assert said(*run, "--runs", str(tmp_path / "whole"))[0] == 0
    interrupt([*run, "--runs", str(tmp_path / "cut")], at="eval 6:")
    donor.unlink()
    code, _, err = said("resume", "a", "--runs", str(tmp_path / "cut"))
    assert code == 0, err
    assert losses(str(tmp_path / "cut/a")) == losses(str(tmp_path / "whole/a"))
    one, other = (tmp_path / root / "a/weights/step_12.gguf" for root in ("cut", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_words_are_cut_as_asked(said: Said, trained: Path) -> None:
    (flag,) = (flag for flag in flags_of(TextData) if flag.name == "pre")
    assert get_args(get_args(flag.type)[0]) == tuple(pre.name for pre in PRES)
    for pre, more in (("gpt-2", ()), ("qwen2", ("--pre", "qwen2"))):
        code, _, err = said(*words(trained, "--vocab", "400", "--d-model", "48", "--n-layers", "1", *more))
        assert code == 0, err
        run = linnet.open("latest")
        assert run.manifest.config["pre"] == pre
        assert keys(run.path / "weights/step_2.gguf")["tokenizer.ggml.pre"] == pre


def test_the_same_from_python(trained: Path) -> None:
    run = linnet.train(
        "warm-start", donor=trained, corpus=PROSE, vocab=400, d_model=48, n_layers=1, ctx=32, batch=4, steps=2,
        eval_tokens=512, sample_every=0,
    )  # fmt: skip
    assert run.manifest.model["vocab"] == 400
    assert run.manifest.config["mean_rows"] > 20


@pytest.mark.parametrize(
    ("more", "said_so"),
    [
        (["--vocab", "400", "--tokenizer", "DONOR"], "--vocab does not go with --tokenizer"),
        (["--vocab", "512"], "--vocab 512 is the size of the donor's own vocabulary"),
        (["--pre", "qwen2"], "--pre cuts words for a vocabulary that is trained on the corpus"),
        (["--vocab", "256"], "a byte-level vocabulary of 256 tokens is too small"),
        (["--vocab", "900000"], "a vocabulary of 900,000 tokens is more than this corpus can give"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_in_a_line(said: Said, trained: Path, more: list[str], said_so: str) -> None:
    code, _, err = said(*words(trained, *(str(trained) if word == "DONOR" else word for word in more)))
    assert code != 0
    assert said_so in err and len(err.strip().splitlines()) == 1, err
    assert not Path("runs").exists()


def test_a_pack_of_ids_has_no_text_to_train_a_vocabulary_on(said: Said, trained: Path, tmp_path: Path) -> None:
    pack = tmp_path / "ids.i32"
    (np.arange(4000, dtype="<i4") % 300).tofile(pack)
    code, _, err = said(*words(trained, "--vocab", "400", corpus=str(pack)))
    assert code == 2
    assert "--vocab trains a vocabulary on text" in err and "is a pack of token ids" in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_help_says_what_the_flag_does(said: Said) -> None:
    code, out, _ = said("train", "warm-start", "--help")
    assert code == 0
    assert "--vocab" in out and "Train a vocabulary of so many tokens" in " ".join(out.split())
