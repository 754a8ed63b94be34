"""What runs on a GPU alone: compiled kernels, captured steps, captured decoding, each against its plain form.

Left out where there is none. `test_interpreted_kernels.py` and `test_compiled_kernels.py` test the same without one,
piece by piece.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linnet.infer import generate
from linnet.kernels.executor import Compiled, Executor, eager
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.train.checkpoint import copy_tensors
from linnet.train.hardware import choose
from linnet.train.settings import TrainSettings
from linnet.train.step import Step

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

LLAMA = LlamaConfig(vocab=1000, d_model=192, n_heads=6, n_kv=2, d_ff=512, n_layers=3, ctx=128)
MODELS: dict[str, Config] = {
    "llama": LLAMA,
    "llama with biases": replace(LLAMA, qkv_bias=True, output_bias=True, ffn_bias=True, tied=False),
    "gpt2": GPT2Config(vocab=1000, d_model=192, n_heads=3, d_ff=768, n_layers=3, ctx=128),
}
VIT = ViTConfig(image_size=28, patch_size=4, d_model=192, n_heads=3, d_ff=768, n_layers=3, num_classes=10)
VITS = {
    "vit": VIT,
    "197 patches": replace(VIT, image_size=56, pooling="cls"),
    "seed's": replace(VIT, norm="rms", act="silu", bias=False),
}


def tokens(vocab: int, rows: int, length: int, seed: int) -> Tensor:
    """Text that can be learnt: each token decides the next."""
    dice = torch.Generator().manual_seed(seed)
    after = torch.randperm(vocab, generator=torch.Generator().manual_seed(0))
    row = [torch.randint(0, vocab, (rows,), generator=dice)]
    for _ in range(length):
        row.append(after[row[-1]])
    return torch.stack(row, 1).to(DEVICE)


def gradients(model: nn.Module, inputs: tuple[Tensor, ...], executor: Executor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    executor.before_step()
    found: Any = model.loss(*inputs, executor=executor)  # type: ignore[operator]
    (found[0] if isinstance(found, tuple) else found).backward()
    executor.after_backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def agree(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """In bf16 the two round differently: gradients agree to some hundredths of their length."""
    model.set_compute_dtype(torch.bfloat16)  # type: ignore[operator]
    with torch.no_grad():
        for parameter in model.parameters():
            dice = torch.Generator().manual_seed(parameter.numel())
            parameter += 0.02 * torch.randn(parameter.shape, generator=dice).to(DEVICE)  # biases are no zeros
    expected, found = (gradients(model, inputs, each) for each in (eager, Compiled(torch.bfloat16)))
    assert expected.keys() == found.keys()
    apart = {name: float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected}
    assert {name: share for name, share in apart.items() if not share < 0.05} == {}


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_gradients_of_a_language_model_are_the_plain_ones(name: str, documents: bool) -> None:
    ids = tokens(1000, 4, 128, 1)
    numbers = (torch.arange(128, device=DEVICE) // 50).expand(4, -1)
    inputs = (ids[:, :-1], ids[:, 1:], *([numbers] if documents else []))
    agree(build(MODELS[name], seed=1, device=DEVICE), inputs)


@pytest.mark.parametrize("name", VITS)
def test_compiled_gradients_of_a_vision_transformer_are_the_plain_ones(name: str) -> None:
    config = VITS[name]
    dice = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 3, config.image_size, config.image_size), generator=dice, dtype=torch.uint8)
    agree(build(config, seed=1, device=DEVICE), (images.to(DEVICE), torch.arange(8, device=DEVICE)))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_fifty_losses_compiled_and_captured_are_the_plain_ones(name: str) -> None:
    losses: dict[str, list[float]] = {}
    for flag in ("off", "on"):
        settings = TrainSettings(batch=8, device=DEVICE, dtype="bfloat16", compile=flag, graph=flag)
        model = build(MODELS[name], seed=0, device=DEVICE)
        hardware = choose(settings, tokens=8 * 128)
        model.set_compute_dtype(hardware.dtype)
        step = Step(model, settings, hardware)
        losses[flag] = []
        for number in range(50):
            ids = tokens(1000, 8, 128, number)

            class Batch:
                inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), 8 * 128

            losses[flag].append(float(step(Batch(), 3e-4).loss))
    assert losses["off"][-1] < losses["off"][0] - 0.5
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-3)


def test_captured_decoding_says_what_the_plain_model_does() -> None:
    model = build(LLAMA, seed=3, device=DEVICE)
    prompt = [5, 17, 400]
    found = list(generate(model, prompt, 60))
    ids = torch.tensor([prompt + found[:-1]], device=DEVICE)
    with torch.no_grad():
        likeliest = model(ids)[0, len(prompt) - 1 :].argmax(-1)
    assert found == likeliest.tolist()


def test_copies_leave_the_gpu_for_the_host_whole() -> None:
    own = {str(each): torch.randn(1000, 1000 + each, device=DEVICE) for each in range(5)}  # more than a stage holds
    own |= {"step": torch.tensor(5.0, device=DEVICE), "numbers": torch.arange(7, device=DEVICE)}
    made = copy_tensors(own)
    kept = {name: tensor.cpu() for name, tensor in own.items()}
    own["0"].zero_()
    found = made.on_host()
    assert all(torch.equal(found[name], kept[name]) for name in own)
    assert not any(buffer.is_cuda for buffer in made.buffers.values())


COMPILED_ONCE = """
import torch
from linnet.models import LlamaConfig, build
from linnet.kernels.executor import Compiled
model = build(LlamaConfig(vocab=1000, d_model=192, n_heads=6, n_kv=2, d_ff=512, n_layers=3, ctx=128), device="cuda")
model.set_compute_dtype(torch.bfloat16)
ids = torch.arange(512, device="cuda").view(4, 128)
model.loss(ids, ids, executor=Compiled(torch.bfloat16)).backward()
found = torch._dynamo.utils.counters["aot_autograd"]
print(*(found[f"autograd_cache_{kind}"] for kind in ("miss", "hit", "bypass")))
"""


def test_a_second_process_finds_every_part_compiled(tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", COMPILED_ONCE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.append(done.stdout.split())
    assert told == [["3", "0", "0"], ["0", "3", "0"]]


def test_the_tenth_sample_holds_no_more_memory_than_the_second() -> None:
    # Each was captured on a stream of its own, for which cuBLAS keeps a workspace of 34 MB to the end.
    model = build(LLAMA).to(DEVICE)

    def write() -> int:
        assert len(list(generate(model, [1, 2, 3], max_tokens=12, temperature=0.8, seed=0))) == 12
        torch.cuda.synchronize()
        return int(torch.cuda.memory_allocated())

    held = [write() for _ in range(10)]
    assert held[9] - held[1] < 4 << 20, held
