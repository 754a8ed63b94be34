"""How likely a model finds a text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from linnet.errors import UsageError
from linnet.infer import Score, score, top_tokens
from linnet.models import LlamaConfig, build

MODEL = build(LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=16))
TEXT = torch.randint(0, 97, (75,), generator=torch.Generator().manual_seed(0)).tolist()


def test_every_token_but_the_first_is_scored_once() -> None:
    result = score(MODEL, TEXT, batch=2)
    total = 0.0
    with torch.no_grad():
        for start, scored in ((0, 16), (16, 16), (32, 16), (48, 16), (58, 10)):  # the last one reaches back to be full
            window = torch.tensor(TEXT[start : start + 17])
            losses_T = F.cross_entropy(MODEL(window[None, :-1])[0], window[1:], reduction="none")
            total += losses_T[-scored:].sum().item()
    assert result.tokens == 74
    assert result.total == pytest.approx(total, rel=1e-6)
    assert result.mean == pytest.approx(total / 74) and result.perplexity == pytest.approx(math.exp(total / 74))


def test_a_text_shorter_than_the_context_is_one_window() -> None:
    ids = torch.tensor(TEXT[:6])
    with torch.no_grad():
        expected = F.cross_entropy(MODEL(ids[None, :-1])[0], ids[1:], reduction="sum").item()
    assert score(MODEL, TEXT[:6]).total == pytest.approx(expected, rel=1e-6)


def test_the_batch_does_not_matter_and_arrays_will_do() -> None:
    tokens = np.array(TEXT, np.uint16)
    assert score(MODEL, tokens, batch=1).total == pytest.approx(score(MODEL, TEXT, batch=64).total, rel=1e-6)


def test_bits_per_byte_and_perplexity_without_end() -> None:
    assert Score(8 * math.log(2), 3).bits_per_byte(4) == pytest.approx(2.0)
    assert Score(1e6, 1).perplexity == math.inf


def test_top_tokens_are_the_likeliest_and_what_comes_is_told_beside_them() -> None:
    prompt = TEXT[:6]
    with torch.no_grad():
        logp_TV = MODEL(torch.tensor([prompt]))[0].log_softmax(-1)
    predictions = top_tokens(MODEL, prompt, k=4)
    assert len(predictions) == 6 and predictions[-1].actual is None
    for t, prediction in enumerate(predictions):
        assert [candidate.token for candidate in prediction.top] == logp_TV[t].topk(4).indices.tolist()
        assert prediction.top[0].logprob == pytest.approx(logp_TV[t].max().item())
        if prediction.actual is not None:
            assert prediction.actual.token == prompt[t + 1]
            assert prediction.actual.logprob == pytest.approx(logp_TV[t, prompt[t + 1]].item())


@pytest.mark.parametrize(
    ("tokens", "ctx", "words"),
    [
        ([5], None, "the text has 1 tokens: to predict one from another it needs two"),
        ([5, 97], None, "the text has the token 97, and the model's vocabulary goes from 0 to 96"),
        ([5, -1], None, "the text has the token -1"),
        ([5, 6], 17, "ctx is 17: give a number from 1 to the model's context, 16"),
    ],
)
def test_what_cannot_be_scored_is_refused(tokens: list[int], ctx: int | None, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        score(MODEL, tokens, ctx=ctx)
    assert words in str(caught.value)


def test_a_prompt_beyond_the_context_has_no_top_tokens() -> None:
    with pytest.raises(UsageError, match="the prompt has 17 tokens and the model's context 16"):
        top_tokens(MODEL, [1] * 17)
    with pytest.raises(UsageError, match="k is 98: give a number from 1 to the vocabulary, 97"):
        top_tokens(MODEL, [1], k=98)
