"""What each layer would say: the last layer says what the model says, the others what the head makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import linnet
from linnet.analysis import lens_words
from linnet.board.words import cells
from linnet.cli.lens_words import shown
from linnet.errors import UsageError
from linnet.infer import top_tokens
from linnet.models.observation import Region, activations
from tests.conftest import Said

PROMPT = "def main(self):\n    return"


def test_the_last_layer_says_what_the_model_says(trained: Path) -> None:
    model = linnet.load("one", runs=trained)
    words = lens_words(model, PROMPT, top=3)
    ids = model.encode(PROMPT)
    assert words.layers == ("embd", "0", "1")
    assert "".join(words.tokens) == PROMPT
    expected = top_tokens(model.module, ids, 3)  # type: ignore[arg-type]
    for at, prediction in enumerate(expected):
        said = words.words_LTK[-1][at]
        assert [word.token for word in said] == [candidate.token for candidate in prediction.top]
        likely = [float(torch.tensor(candidate.logprob).exp()) for candidate in prediction.top]
        assert [word.probability for word in said] == pytest.approx(likely, abs=1e-5)


def test_a_layer_says_what_norm_and_head_make_of_the_stream_there(trained: Path) -> None:
    model = linnet.load("one", runs=trained)
    module, ids = model.module, model.encode(PROMPT)
    words = lens_words(model, PROMPT)
    kept = activations(module, torch.tensor([ids]), regions=("resid_post_block",))
    normed = module.output_norm(kept[Region("resid_post_block", 0)][0])  # type: ignore[union-attr, operator]
    with torch.no_grad():
        p_TV = (normed @ module.token_embd.weight.T).softmax(-1)  # type: ignore[union-attr, operator]
    values, tokens = p_TV.max(-1)
    assert [word.token for word in words.words_LT[1]] == tokens.tolist()
    assert [word.probability for word in words.words_LT[1]] == pytest.approx(values.tolist(), abs=1e-5)
    ranks = [int((p_TV[at] > p_TV[at, after]).sum()) + 1 for at, after in enumerate(ids[1:])]
    assert [word.rank for word in words.words_LT[1]] == [*ranks, None]


def test_after_a_single_token_nothing_is_known_to_come(trained: Path) -> None:
    words = lens_words("one", "d", runs=trained)
    assert [[word.rank for word in layer] for layer in words.words_LT] == [[None]] * 3


def test_a_quantised_model_answers_a_question_in_its_last_layers(smollm2: Path, said: Said) -> None:
    code, out, _ = said("lens-words", str(smollm2), "--prompt", "The capital of France is", "--layers", "27:")
    assert code == 0
    rows = [line for line in out.splitlines() if line[:2] in ("27", "28", "29")]
    assert len(rows) == 3
    assert rows[-1].rstrip().split()[-2:] == ["·Paris", "77"] or "·Paris" in rows[-1]
    assert "embd" not in out, "those layers alone"


ODD = [
    "\n",
    "   ",
    "日本語の長い文字列です",
    "e\u0301\u0301",
    "\u200f\x1b[31m",
    "",
    "\U0001f3f3\ufe0f\u200d\U0001f308" * 6,
]


@pytest.mark.parametrize("token", ODD)
def test_odd_tokens_can_be_seen_and_take_no_more_room_than_they_have(token: str) -> None:
    text = shown(token)
    assert 1 <= cells(text) <= 10
    assert "\x1b" not in text and "\n" not in text


def test_the_command_fits_eighty_columns_and_has_all_of_it_as_json(
    trained: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.cli.pictures._TEXT", (80, 30))
    words = ["lens-words", "one", "--runs", str(trained), "--prompt", PROMPT]
    _, out, _ = said(*words)
    lines = out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert sum(line.startswith("embd") for line in lines) > 1, "bands, one below the other"
    _, out, _ = said(*words, "--json", "--top", "2")
    fields = json.loads(out)
    assert len(fields["words_LTK"]) == 3
    assert len(fields["words_LTK"][0]) == len(fields["tokens"])
    assert len(fields["words_LTK"][0][0]) == 2
    _, out, _ = said(*words, "--layers", "1", "--positions", "-2:")
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["layer", "1"]


def test_images_and_empty_prompts_are_refused(trained: Path, classifiers: Path, said: Said) -> None:
    with pytest.raises(UsageError, match="tells images apart: what layers say is for models of text"):
        lens_words(classifiers / "one", "x")
    with pytest.raises(UsageError, match="the prompt is empty"):
        lens_words("one", "", runs=trained)
    for words, message in (
        ([], "lens-words needs a text"),
        (["--prompt", "x", "--layers", "7:"], "--layers '7:': there are 2, from 0 to 1"),
        (["--prompt", "x", "--positions", "a:b"], "--positions 'a:b': expected FIRST:LAST"),
    ):
        code, _, err = said("lens-words", "one", "--runs", str(trained), *words)
        assert (code, message in err) == (2, True), err
