"""Attention maps: those of the model, in the command, and in what both boards make of the command's answer."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
from linnet.analysis import attention
from linnet.board.terminal.attention import AttentionRequest
from linnet.board.web.answers import RequestError
from linnet.board.web.attention import AttentionMaps
from linnet.board.web.board import WebBoard
from linnet.board.web.inside_answer_types import AttentionQuestion
from linnet.board.web.safe_store import SafeStore
from linnet.errors import UsageError
from linnet.gguf import GGUFError, MetadataBlock
from linnet.gguf.writer import GGUFWriter
from linnet.models.observation import Region, activations
from tests.conftest import Said

PROMPT = "def main(self):\n    return"


def test_each_head_has_the_softmax_of_its_queries_and_the_keys_it_shares(trained: Path) -> None:
    model = linnet.load("one", runs=trained)
    maps = attention(model, PROMPT)
    ids = torch.tensor([model.encode(PROMPT)])
    assert ("".join(maps.tokens), len(maps.layers_LHTS)) == (PROMPT, 2)
    kept = activations(model.module, ids, regions=("attn_q", "attn_k"))
    later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
    for layer, heads_HTS in enumerate(maps.layers_LHTS):
        q_HTD, k_KSD = kept[Region("attn_q", layer)][0], kept[Region("attn_k", layer)][0]
        assert (len(q_HTD), len(k_KSD)) == (len(heads_HTS), 2), "keys are shared"
        for head, weights_TS in enumerate(heads_HTS):
            k_SD = k_KSD[head // (len(q_HTD) // len(k_KSD))]
            scores = (q_HTD[head] @ k_SD.T / k_SD.shape[1] ** 0.5).masked_fill(later, -torch.inf)
            assert weights_TS == pytest.approx(scores.softmax(-1).numpy(), abs=1e-6)
    assert maps.mean(1, 0) == pytest.approx(maps.layers_LHTS[1][0])
    assert maps.mean(1) == pytest.approx(maps.layers_LHTS[1].mean(0))
    assert maps.mean() == pytest.approx(np.concatenate(maps.layers_LHTS).mean(0))


def test_a_quantised_model_s_attention_is_that_of_transformers(smollm2: Path) -> None:
    transformers = pytest.importorskip("transformers")
    prompt = "The cat sat on the mat because it was tired"
    maps = attention(smollm2, prompt, device="cpu")
    oracle = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, attn_implementation="eager", dtype=torch.float32
    )
    ids = torch.tensor([linnet.load(smollm2, device="cpu").encode(prompt)])
    with torch.no_grad():
        expected = oracle(ids, output_attentions=True).attentions
    assert len(maps.layers_LHTS) == len(expected) == 30
    for heads_HTS, theirs in zip(maps.layers_LHTS, expected, strict=True):
        assert heads_HTS == pytest.approx(theirs[0].numpy(), abs=1e-4)


def test_the_command_draws_a_map_in_eighty_columns_and_has_every_head_as_json(
    trained: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.cli.pictures._TEXT", (80, 30))
    words = ["attention", "one", "--runs", str(trained), "--prompt", "import os"]
    code, out, _ = said(*words)
    lines = out.splitlines()
    assert (code, max(map(len, lines[:-1])) <= 80) == (0, True)
    assert lines[0].endswith("attention, mean of all heads")
    tokens = attention("one", "import os", runs=trained).tokens
    rows = lines[2 : 2 + len(tokens)]
    assert [row.split()[0] for row in rows] == [str(at) for at in range(len(tokens))]
    assert rows[0].split()[2] == "100", "the first token has itself alone"
    assert "layer 1, head 2" in said(*words, "--layer", "1", "--head", "2")[1]
    code, out, _ = said(*words, "--json")
    assert (code, out.count("\n")) == (0, 1)
    fields = json.loads(out)
    assert np.shape([layer["heads"] for layer in fields["layers"]]) == (2, 4, len(tokens), len(tokens))
    assert np.sum(fields["layers"][1]["heads"], -1) == pytest.approx(1, abs=1e-4)


def test_both_boards_have_what_the_command_really_says(trained: Path) -> None:
    """No stand-in: the command as they start it, in a process of its own."""
    file = linnet.open(trained / "one").checkpoints()[-1]
    expected = attention(file, "import os")
    request = AttentionRequest(file, "import os")
    deadline = time.monotonic() + 120
    while request.computes:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert request.answer is not None, request.trouble
    assert tuple(request.answer.tokens) == expected.tokens
    assert request.answer.layers[1] == pytest.approx(expected.layers_LHTS[1], abs=1e-5)
    board = WebBoard(SafeStore(trained))
    answer = AttentionMaps().answer(board, "one", AttentionQuestion("import os", layer=1))
    assert np.array(answer.heads) == pytest.approx(expected.layers_LHTS[1], abs=1e-5)
    with pytest.raises(RequestError, match="the prompt has 200 tokens and the model's context 32"):
        AttentionMaps().answer(board, "one", AttentionQuestion("\x01" * 200))
    board.close()


def test_a_file_of_another_architecture_is_refused_as_what_it_is(tmp_path: Path) -> None:
    path = GGUFWriter(MetadataBlock().text("general.architecture", "gemma3")).write(tmp_path / "gemma.gguf")
    with pytest.raises(GGUFError, match="this architecture can be neither trained nor run here"):
        attention(path, "x")


def test_what_cannot_be_shown_is_refused_in_a_line(trained: Path, classifiers: Path, said: Said) -> None:
    with pytest.raises(UsageError, match="tells images apart: attention is shown between the tokens of a text"):
        attention(classifiers / "one", "x")
    with pytest.raises(UsageError, match="the prompt is empty"):
        attention("one", "", runs=trained)
    for words, message in (
        ([], "attention needs a text"),
        (["--prompt", "x", "--layer", "7"], "--layer 7: there are 2, from 0 to 1"),
        (["--prompt", "x", "--layer", "1", "--head", "4"], "--head 4: there are 4, from 0 to 3"),
        (["--prompt", "x", "--head", "1"], "--head is one of a --layer: name that too"),
        (["--prompt", "x" * 400], "the model's context 32"),
    ):
        code, _, err = said("attention", "one", "--runs", str(trained), *words)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err
