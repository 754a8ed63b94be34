"""Going on from a prompt."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from weakref import ref

import pytest
import torch

from linnet.errors import LinnetError, UsageError
from linnet.gguf import GGUFFile, read_params, write
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tokenizer import donor_keys
from linnet.infer import Sampling, generate
from linnet.infer.generation import Decoder
from linnet.kernels.decode import StripedMatmul, decode_weights, drop_decode_weights
from linnet.models import Config, GPT2Config, KVCache, LanguageModel, LlamaConfig, build, load
from tests.gguf.llama_client import ask

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=160, tied=False)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=2, ctx=160, tied=False)
BOTH = pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
PROMPT = [5, 17, 3, 80, 41]


def restless(config: Config) -> LanguageModel:
    """A model with large weights, so that its greedy text wanders instead of repeating one token."""
    model = build(config, seed=1, init_scale=3.0)
    with torch.no_grad():
        for name in ("token_embd.weight", "position_embd.weight", "output.weight"):
            if name in model.params():
                model.get_parameter(name).mul_(20)
    return model


def uncached(model: LanguageModel, prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@BOTH
def test_greedy_with_the_cache_is_the_uncached_forward(config: Config) -> None:
    """Over the places where the cache's visible part grows (64, 128)."""
    model = restless(config)
    text = list(generate(model, PROMPT, 130))
    assert text == uncached(model, PROMPT, 130)
    assert len(set(text)) > 3


@BOTH
def test_cached_logits_are_the_uncached_ones_whatever_the_pieces(config: Config) -> None:
    model = restless(config)
    ids_BT = torch.randint(0, 97, (2, 100), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = KVCache(config, 128, batch=2)
        pieces = torch.cat([model(part, cache=cache) for part in ids_BT.split([1, 30, 1, 60, 8], 1)], 1)
        assert torch.allclose(pieces, model(ids_BT), atol=1e-4)
        cache.rewind(31)
        assert torch.allclose(model(ids_BT[:, 31:33], cache=cache), pieces[:, 31:33], atol=1e-4)


def test_a_full_cache_says_so() -> None:
    cache = KVCache(LLAMA, 8)
    with pytest.raises(LinnetError, match="9 tokens do not fit the cache's 8"):
        build(LLAMA)(torch.zeros(1, 9, dtype=torch.int64), cache=cache)


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    model = restless(LLAMA)
    texts = [list(generate(model, PROMPT, 40, temperature=3.0, top_p=0.9, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_generation_ends_after_a_stop_token_and_where_the_context_is_full() -> None:
    model = restless(LLAMA)
    text = list(generate(model, PROMPT, 20))
    assert list(generate(model, PROMPT, 20, stop=[text[4]])) == text[: text.index(text[4]) + 1]
    assert len(list(generate(model, PROMPT, 1000))) == LLAMA.ctx - len(PROMPT) + 1
    assert len(list(generate(model, [1] * LLAMA.ctx, 5))) == 1
    assert list(generate(model, PROMPT, 0)) == []


def test_generating_leaves_a_training_caller_its_gradients() -> None:
    model = build(LLAMA)
    for _ in generate(model, PROMPT, 3):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    model.loss(torch.tensor([PROMPT]), torch.tensor([PROMPT])).backward()


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ([], {}, "the prompt is empty"),
        ([1] * 161, {}, "the prompt has 161 tokens and the model's context 160: shorten the prompt"),
        ([1, 97], {}, "the prompt has the token 97, and the model's vocabulary goes from 0 to 96"),
        ([1], {"temperature": -1.0}, "temperature is -1.0: give a number from 0 on"),
        ([1], {"top_p": 1.5}, "top_p is 1.5: give a number from 0 to 1"),
        ([1], {"top_k": -3}, "top_k is -3: give a number from 0 on"),
        ([1], {"repetition_penalty": 0.0}, "repetition_penalty is 0.0: give a number above 0"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(prompt: list[int], options: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        generate(build(LLAMA), prompt, 5, **options)  # type: ignore[arg-type]
    assert words in str(caught.value)


P = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2])


def chosen(sampling: Sampling, draws: int = 2000) -> dict[int, float]:
    seen_N = torch.tensor([1])
    counts = Counter(int(sampling.choose(P.log(), seen_N, (i + 0.5) / draws)) for i in range(draws))
    return {token: count / draws for token, count in sorted(counts.items())}


def test_at_temperature_one_tokens_come_as_often_as_they_are_likely() -> None:
    assert chosen(Sampling(1.0)) == pytest.approx({0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}, abs=1e-3)


def test_each_bound_keeps_what_it_says() -> None:
    assert chosen(Sampling(0.0), 200) == {1: 1.0}
    assert set(chosen(Sampling(1.0, top_k=2), 200)) == {1, 3}
    assert set(chosen(Sampling(1.0, top_p=0.6), 200)) == {1, 3}
    assert set(chosen(Sampling(1.0, top_p=0.0), 200)) == {1}
    assert set(chosen(Sampling(1.0, min_p=0.49), 200)) == {1, 3, 4}
    assert set(chosen(Sampling(1.0, min_p=1.0), 200)) == {1}
    assert chosen(Sampling(1.0, top_k=2)) == pytest.approx({1: 0.4 / 0.65, 3: 0.25 / 0.65}, abs=1e-3)
    assert chosen(Sampling(0.5))[1] > 0.5 > chosen(Sampling(2.0))[1]


def test_the_repetition_penalty_works_on_positive_and_negative_logits() -> None:
    likely = chosen(Sampling(1.0, repetition_penalty=1.5))[1]
    assert likely < 0.4
    logits_V, seen_N = torch.tensor([3.0, 2.9]), torch.tensor([0])
    assert int(Sampling(repetition_penalty=1.2).choose(logits_V, seen_N, 0.0)) == 1


def test_smollm2_goes_on_as_llama_cpp_does(smollm2: Path, tmp_path: Path) -> None:
    """The Q4_1 file as float32, in llama.cpp and here: the same greedy tokens."""
    prompts, count = [[504, 3575, 282, 4649, 314], [6403, 1980, 253, 655]], 24
    with GGUFFile.open(smollm2) as file:
        model = load(file)
        params = dict(read_params(file))
        block = MetadataBlock().copy(file.metadata, donor_keys(file.metadata))
    path = write(model.config, params, tmp_path / "f32.gguf", "smollm2", 0, tokenizer=block)
    (answer,) = ask(path, prompts=prompts, vocab=0, greedy=count)
    assert not answer.refused
    for prompt, theirs in zip(prompts, answer.greedy, strict=True):
        ours = list(generate(model, prompt, count))
        assert ours[: len(theirs)] == theirs and len(theirs) >= count - 1


@BOTH
def test_a_decoder_gives_the_logits_of_the_plain_model_token_after_token(config: Config) -> None:
    """Plainly, while it is recorded, and when the recording is played; also where the cache shows more of itself."""
    model = restless(config)
    ids_T = torch.randint(0, 97, (140,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected_TV = model(ids_T[None])[0]
        decoder = Decoder(model, 140)
        found = [decoder.read(ids_T[None, :5])] + [decoder.next(token)[0].clone() for token in ids_T[5:]]
    for place, logits_V in enumerate(found, start=4):
        assert torch.allclose(logits_V, expected_TV[place], atol=1e-3), place


@BOTH
def test_bf16_weights_are_cast_once_and_give_the_same_logits(config: Config) -> None:
    model = restless(config)
    model.set_compute_dtype(torch.bfloat16)
    ids_T = torch.tensor(PROMPT)
    with torch.inference_mode():
        expected_V = model(ids_T[None])[0, -1]
        decoder = Decoder(model, 32)
        decoder.read(ids_T[None, :-1])
        found_V = decoder.next(ids_T[-1])[0]
    assert torch.allclose(found_V, expected_V, atol=0.05 * expected_V.abs().max().item())


@pytest.mark.parametrize("fused", [True, False])
def test_a_decoder_reads_the_weights_as_they_are_now_also_after_training(fused: bool) -> None:
    model = build(LLAMA)
    model.set_compute_dtype(torch.bfloat16)  # so that the matrices are made ready on every processor
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=fused)  # fused: torch counts no new version
    ids = torch.tensor([PROMPT])
    for _ in range(3):
        with torch.inference_mode():
            decoder = Decoder(model, 32)
            decoder.read(ids)
            logits, _ = decoder.next(torch.tensor(7))
            expected = model(torch.tensor([[*PROMPT, 7]]))[0, -1]
        assert torch.allclose(logits, expected, atol=0.05, rtol=0.05)
        model.loss(ids, ids).backward()
        optimizer.step()


def test_a_model_made_in_inference_mode_can_write() -> None:
    with torch.inference_mode():
        model = build(LLAMA)
    assert len(list(generate(model, PROMPT, 20))) == 20


def test_a_decoder_goes_when_it_is_done_with_also_while_pythons_collector_is_off() -> None:
    model = build(LLAMA)
    gc.disable()  # as it is while training, where samples are written now and then
    try:
        before = sum(type(each) is KVCache for each in gc.get_objects())
        list(generate(model, PROMPT, 20))
        assert sum(type(each) is KVCache for each in gc.get_objects()) == before
    finally:
        gc.enable()


def test_generating_leaves_the_model_as_it_was() -> None:
    model = restless(LLAMA)
    before = list(generate(model, PROMPT, 20))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after = list(generate(model, PROMPT, 20))
    assert after == uncached(model, PROMPT, 20) != before
    assert not any("forward" in vars(module) or "head" in vars(module) for module in model.modules())


def test_weights_are_made_ready_once_as_long_as_they_do_not_change() -> None:
    model = restless(LLAMA)
    first = decode_weights(model)
    assert decode_weights(model) is first
    with torch.no_grad():
        model.output_norm.weight.mul_(2)
    assert decode_weights(model) is not first


def test_weights_made_ready_can_be_let_go_of() -> None:
    model = restless(LLAMA)
    first = ref(decode_weights(model))
    drop_decode_weights(model)
    assert first() is None
    drop_decode_weights(model)


@pytest.mark.parametrize(("rows", "bias"), [(64, False), (97, True), (5, False)])
def test_a_matrix_in_stripes_is_the_same_matrix(rows: int, bias: bool) -> None:
    dice = torch.Generator().manual_seed(0)
    weight, x = torch.randn(rows, 48, generator=dice), torch.randn(1, 1, 48, generator=dice)
    added = torch.randn(rows, generator=dice) if bias else None
    assert torch.allclose(StripedMatmul(weight, added)(x), torch.nn.functional.linear(x, weight, added), atol=1e-5)


def test_text_for_a_prompt_is_told_how_to_become_ids() -> None:
    with pytest.raises(UsageError, match=r"the prompt is text.*tokenizer\.encode\(text\)\.ids"):
        generate(build(LLAMA), "text", 4)  # type: ignore[arg-type]
