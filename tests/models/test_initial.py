"""Where a new model starts from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from linnet.architectures import layout
from linnet.models import GPT2Config, LlamaConfig, build, preset
from linnet.models.initial import fill_normal

LLAMA = LlamaConfig(vocab=300, d_model=128, n_heads=4, n_kv=2, d_ff=256, n_layers=2, ctx=16, tied=False, qkv_bias=True)
GPT2 = GPT2Config(vocab=300, d_model=128, n_heads=4, d_ff=256, n_layers=2, ctx=64)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    first, again, other = (build(LLAMA, seed=seed).params() for seed in (7, 7, 8))
    for name in first:
        assert torch.equal(first[name], again[name])
        if layout(LLAMA).params[name].init.scaled_std() is not None:
            assert not torch.equal(first[name], other[name])


def test_a_value_depends_on_seed_name_and_place_alone() -> None:
    """Not on the rest of the model, nor on how the work is cut up: a rank may draw its own rows."""
    small = LlamaConfig(vocab=300, d_model=128, n_heads=4, n_kv=2, d_ff=64, n_layers=1, ctx=8)
    assert torch.equal(build(LLAMA).params()["token_embd.weight"], build(small).params()["token_embd.weight"])
    long, short = torch.empty(100_000), torch.empty(30_000)
    fill_normal(long, 1.0, 3, "x")
    fill_normal(short, 1.0, 3, "x")
    assert torch.equal(long[:30_000], short)


def test_the_number_of_threads_changes_nothing() -> None:
    threads, drawn = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            drawn.append(torch.empty(100_000))
            fill_normal(drawn[-1], 0.5, 0, "x")
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)


def test_draws_are_these_bits_on_every_machine() -> None:
    """Computed again here with Python's exact integers and the standard library's inverse of the distribution."""
    from hashlib import blake2b
    from statistics import NormalDist

    drawn = torch.empty(500)
    fill_normal(drawn, 1.0, 42, "blocks.0.attn_qkv.weight")
    key = int.from_bytes(blake2b(b"42 blocks.0.attn_qkv.weight", digest_size=8).digest(), "little")
    for index, value in enumerate(drawn.tolist()):
        word = (key + index * 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        word ^= word >> 31
        quantile = ((word - 2**64 if word >> 63 else word) // 2**12 + 0.5) / 2**52 + 0.5
        assert value == pytest.approx(NormalDist().inv_cdf(quantile), rel=1e-6, abs=1e-7)


def test_draws_are_normal_also_in_the_tails() -> None:
    drawn = torch.empty(1 << 20)
    fill_normal(drawn, 2.0, 1, "x")
    x = drawn.double() / 2
    assert abs(x.mean()) < 4e-3 and abs(x.var() - 1) < 6e-3 and abs((x**4).mean() - 3) < 0.05
    for bound in (1.0, 2.0, 3.0, 4.0):
        share, expected = (x.abs() > bound).double().mean().item(), math.erfc(bound / math.sqrt(2))
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected / x.numel()))
    assert len(np.unique(drawn.numpy())) > 0.95 * x.numel()


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_spreads_are_those_of_the_table(config: LlamaConfig | GPT2Config) -> None:
    for name, parameter in build(config, init_scale=0.5).params().items():
        if name in ("token_embd.weight", "output.weight", "position_embd.weight"):
            expected = 0.02
        elif name.endswith("norm.weight"):
            assert torch.equal(parameter, torch.ones_like(parameter))
            continue
        elif name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter))
            continue
        else:
            expected = 0.5 / math.sqrt(256 if "ffn_down" in name else 128)
        assert parameter.std().item() == pytest.approx(expected, rel=0.03), name


def test_a_new_model_expects_every_token_alike() -> None:
    ids_BT = torch.randint(0, 4096, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss = build(preset("demo")).loss(ids_BT, ids_BT.roll(-1, 1))
    assert loss.item() == pytest.approx(math.log(4096), abs=0.3)
