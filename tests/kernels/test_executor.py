"""A model compiled layer by layer computes what the eager one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from linnet.kernels.executor import CastWeights, Compiled, source_digest
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.models.layers import RMSNorm
from linnet.models.observation import activations

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=64, n_layers=3, ctx=16)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=64, n_layers=3, ctx=16)
IDS_BT = torch.arange(32).reshape(2, 16) * 7 % 97
TARGETS_BT = IDS_BT.roll(-1, 1)


pytestmark = pytest.mark.usefixtures("without_inductor")


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_layers_compiled_give_the_eager_loss_and_gradients(config: Config) -> None:
    model = build(config)
    expected = model.loss(IDS_BT, TARGETS_BT)
    expected.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    executor = Compiled()
    torch._dynamo.utils.counters.clear()
    loss = model.loss(IDS_BT, TARGETS_BT, executor=executor)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradients[name], atol=1e-6), name
    # One for the embedding, the last norm, and all layers together.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3


def test_a_compiled_model_is_observed_eagerly_and_compiled_no_second_time() -> None:
    model = build(LLAMA)
    expected, executor = activations(model, IDS_BT), Compiled()
    torch._dynamo.utils.counters.clear()
    losses = []
    for _ in range(2):
        losses.append(model.loss(IDS_BT, TARGETS_BT, executor=executor))
        losses[-1].backward()
        seen = activations(model, IDS_BT)
        assert seen.keys() == expected.keys() and all(torch.equal(seen[region], x) for region, x in expected.items())
    assert losses[0].item() == losses[1].item()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_cast_weights_change_nothing_but_when_they_are_cast(config: Config) -> None:
    model = build(config)
    model.set_compute_dtype(torch.bfloat16)
    executor = Compiled(torch.bfloat16)
    for step in range(2):
        model.zero_grad()
        model.loss(IDS_BT, TARGETS_BT, executor=Compiled()).backward()
        expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        executor.before_step()
        for _ in range(step + 1):  # the second time over two backward passes, which add up
            model.loss(IDS_BT, TARGETS_BT, executor=executor).backward()
            executor.after_backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.dtype == torch.float32
            assert torch.allclose(parameter.grad, (step + 1) * expected[name], rtol=1e-3, atol=1e-5), (step, name)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)  # the copies must follow


def test_a_compiled_step_in_float32_has_nothing_to_cast() -> None:
    model = build(LLAMA)
    expected = model.loss(IDS_BT, TARGETS_BT).item()
    executor = Compiled(torch.float32)
    for _ in range(2):
        executor.before_step()
        loss = model.loss(IDS_BT, TARGETS_BT, executor=executor)
        loss.backward()
        executor.after_backward()
        assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.fixture
def few_shapes() -> Iterator[None]:
    """Torch gives up at the third shape of a function (by itself at the ninth) unless it is told otherwise."""
    with torch._dynamo.config.patch(recompile_limit=2):
        yield


@pytest.mark.usefixtures("few_shapes")
def test_many_models_of_one_process_can_be_compiled() -> None:
    for width in range(8, 8 * 5, 8):
        norm = RMSNorm(width, 1e-5)
        nn.init.ones_(norm.weight)
        x = torch.randn(2, width)
        assert torch.allclose(Compiled()(norm, x), norm(x), atol=1e-6)


@pytest.mark.usefixtures("few_shapes")
def test_so_can_many_that_have_layers_of_two_kinds() -> None:
    for width in range(8, 8 * 3, 8):  # of the limit there were two for each model
        config = ViTConfig(
            image_size=8, patch_size=4, d_model=width, n_heads=2, d_ff=8, n_layers=2, num_classes=5, pooling="cls"
        )
        model = build(config)
        inputs = (torch.zeros(2, 3, 8, 8), torch.tensor([1, 4]))
        loss, _ = model.loss(*inputs, executor=Compiled())
        loss.backward()
        assert loss.item() == pytest.approx(model.loss(*inputs)[0].item(), abs=1e-6)


def test_a_copy_shares_what_is_no_linear_layer() -> None:
    block = next(iter(build(LLAMA).blocks))
    cast = CastWeights(torch.bfloat16).copy_of(block)
    assert isinstance(cast, nn.Module)
    assert cast.attn_norm.weight is block.attn_norm.weight
    assert cast.attn_qkv.weight.dtype == torch.bfloat16
    assert block.attn_qkv.weight.dtype == torch.float32


def test_a_module_without_linear_layers_is_not_copied() -> None:
    model = build(LLAMA)
    assert CastWeights(torch.bfloat16).copy_of(model.token_embd) is model.token_embd


def test_what_was_compiled_is_found_again_by_the_same_code_only(tmp_path: Path) -> None:
    """Not all that a part calls is in the compiler's own key."""
    (tmp_path / "kernels/cuda").mkdir(parents=True)
    (tmp_path / "models").mkdir()
    for code in (tmp_path / "kernels/cuda/norm.py", tmp_path / "models/llama.py"):
        digests = []
        for text in ("ROWS = 1\n", "ROWS = 1\n", "ROWS = 2\n"):
            code.write_text(text)
            source_digest.cache_clear()
            digests.append(source_digest(tmp_path))
        assert digests[0] == digests[1] != digests[2]
    assert source_digest() not in digests
