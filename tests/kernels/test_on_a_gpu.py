"""What runs on a GPU alone: compiled kernels, captured steps, captured decoding, each against its plain form.

Left out where there is none. `test_interpreted_kernels.py` and `test_compiled_kernels.py` test the same without one,
piece by piece.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import linnet
from linnet import gguf
from linnet.gguf.planes import SPLITTABLE
from linnet.gguf.tensor import GGMLType
from linnet.infer import generate
from linnet.kernels import Graph
from linnet.kernels.distillation import distillation_grad
from linnet.kernels.executor import Compiled, Executor, eager
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import add_adapter
from linnet.models.frozen import load_frozen
from linnet.recipes import Lora, LoraOptions
from linnet.train.checkpoint import copy_tensors
from linnet.train.distillation import DistillationLoss, LiveTeacher
from linnet.train.hardware import choose
from linnet.train.inspection.captured_look import CapturedLook, Looker
from linnet.train.inspection.drift import DriftFigures
from linnet.train.inspection.late_events import LateEvents
from linnet.train.inspection.pieces import tensor_pieces
from linnet.train.inspection.taps import look_at_batch, look_at_probe
from linnet.train.metrics import StepMetrics
from linnet.train.muon import Muon
from linnet.train.orthogonal import LEAST, orthogonal
from linnet.train.settings import MuonNorm, TrainSettings
from linnet.train.step import Step
from tests.kernels.packed_matrices import packed

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


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_masks_are_those_of_a_cpu(name: str) -> None:
    ids, ones = tokens(1000, 4, 64, 1), torch.ones(4, 64, MODELS[name].d_model)
    masks = []
    for device in ("cpu", DEVICE):
        model = build(MODELS[name], seed=1, device=device)
        model.use_dropout(0.3, seed=7)
        model.begin_step(11)
        assert model.dropout is not None
        run = Compiled() if device == DEVICE else eager
        masks.append(run(model.dropout, ones.to(device), model.dropout.row_keys(ids.to(device))).cpu())
    assert torch.equal(*masks)


@pytest.mark.parametrize("name", VITS)
def test_compiled_gradients_of_a_vision_transformer_are_the_plain_ones(name: str) -> None:
    config = VITS[name]
    dice = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 3, config.image_size, config.image_size), generator=dice, dtype=torch.uint8)
    agree(build(config, seed=1, device=DEVICE), (images.to(DEVICE), torch.arange(8, device=DEVICE)))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_fifty_losses_compiled_and_captured_are_the_plain_ones(name: str, dropout: float) -> None:
    losses: dict[str, list[float]] = {}
    for flag in ("off", "on"):
        settings = TrainSettings(batch=8, device=DEVICE, dtype="bfloat16", compile=flag, graph=flag, optimizer="adamw")
        model = build(MODELS[name], seed=0, device=DEVICE)
        hardware = choose(settings, tokens=8 * 128)
        model.set_compute_dtype(hardware.dtype)
        model.use_dropout(dropout)
        step = Step(model, settings, hardware)
        losses[flag] = []
        for number in range(50):
            model.begin_step(number)
            ids = tokens(1000, 8, 128, number)

            class Batch:
                inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), 8 * 128

            losses[flag].append(float(step(Batch(), 3e-4).loss))
    assert losses["off"][-1] < losses["off"][0] - 0.5
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-3)


@pytest.mark.parametrize("top", [None, 16])
@pytest.mark.parametrize("documents", [False, True])
def test_a_students_losses_compiled_and_captured_are_the_plain_ones(top: int | None, documents: bool) -> None:
    metrics: dict[str, list[list[float]]] = {}
    for flag in ("off", "on"):
        settings = TrainSettings(
            batch=4, batch_tokens=8 * 128, device=DEVICE, dtype="bfloat16", compile=flag, graph=flag
        )
        hardware = choose(settings, tokens=4 * 128)
        model = build(LLAMA, seed=0, device=DEVICE)
        teacher = build(replace(LLAMA, d_model=256, n_heads=4, n_kv=4, vocab=1100), seed=1, device=DEVICE)
        for part in (model, teacher):
            part.set_compute_dtype(hardware.dtype)
        for parameter in teacher.parameters():
            parameter.data = parameter.data.to(hardware.dtype if parameter.ndim > 1 else torch.float32)
        step = Step(model, settings, hardware, DistillationLoss(model, LiveTeacher(teacher, 1000), 0.5, 2.0, top))
        numbers = (torch.arange(128, device=DEVICE) // 50).expand(8, -1) if documents else None
        metrics[flag] = []
        for number in range(12):
            ids = tokens(1000, 8, 128, number)
            batch = SimpleNamespace(inputs=(ids[:, :-1], ids[:, 1:], numbers), n_targets=8 * 128)
            result = step(batch, 3e-4)
            metrics[flag].append([float(result.metrics[name]) for name in ("loss", "distill_loss")])
    assert metrics["off"][-1][0] < metrics["off"][0][0]
    for on, off in zip(metrics["on"], metrics["off"], strict=True):
        assert on == pytest.approx(off, rel=2e-3)


@pytest.mark.parametrize("type", SPLITTABLE, ids=lambda type: type.name)
def test_a_packed_matrix_is_decoded_as_on_a_cpu(type: GGMLType) -> None:
    matrix, exact = packed((type, 1000), values=768)
    matrix = matrix.to(DEVICE)
    wanted = torch.from_numpy(exact).to(DEVICE)
    assert torch.allclose(matrix.unpacked(torch.float32), wanted, rtol=1e-6, atol=1e-7)
    assert torch.equal(matrix.unpacked(torch.bfloat16), matrix.unpacked(torch.float32).bfloat16())
    ids = torch.tensor([[999, 0, 3]], device=DEVICE)
    assert torch.allclose(matrix.rows(ids), wanted[ids], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_an_adapter_beside_a_packed_base_learns_compiled_and_captured_as_eagerly(
    name: str, dropout: float, tmp_path: Path
) -> None:
    config = MODELS[name]
    base = gguf.write(config, build(config, seed=0).params(), tmp_path / "base.gguf", "base", 1, type="q8_0")
    losses: dict[str, list[float]] = {}
    for flag in ("off", "on"):
        settings = TrainSettings(batch=8, device=DEVICE, compile=flag, graph=flag, optimizer="adamw", weight_decay=0.0)
        hardware = choose(settings, tokens=8 * 128)
        recipe = Lora(settings, hardware, LoraOptions(str(base), rank=4, dropout=dropout))
        recipe.realize()
        recipe.build()
        losses[flag] = []
        for number in range(30):
            ids = tokens(1000, 8, 128, number)
            result = recipe.step(recipe.batch_of(ids[:, :-1], ids[:, 1:], None), 3e-3)
            losses[flag].append(float(result.loss))
    assert losses["off"][-1] < losses["off"][0] - 0.1
    assert losses["on"] == pytest.approx(losses["off"], rel=2e-3)


def test_what_is_decoded_is_not_kept_for_the_backward_pass(tmp_path: Path) -> None:
    config = replace(LLAMA, d_model=1024, n_heads=16, n_kv=16, d_ff=4096, n_layers=12, tied=True)
    base = gguf.write(config, build(config, seed=0).params(), tmp_path / "base.gguf", "base", 1, type="q8_0")
    model = load_frozen(base, DEVICE, torch.bfloat16)
    add_adapter(model, AdapterShape(parse_targets(["all"], config), 4))
    executor, ids = Compiled(torch.bfloat16), tokens(1000, 1, 64, 0)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        executor.before_step()
        model.loss(ids[:, :-1], ids[:, 1:], executor=executor).backward()
        executor.after_backward()
    decoded = 2 * 12 * (4 * 1024 * 1024 + 3 * 1024 * 4096)  # bytes of all layers in bf16
    assert torch.cuda.max_memory_allocated() - before < decoded / 4


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_kernel_of_a_students_loss_is_the_plain_one_on_a_whole_vocabulary(temperature: float) -> None:
    dice = torch.Generator(DEVICE).manual_seed(0)
    logits, teacher = (4 * torch.randn(64, 49152, generator=dice, device=DEVICE) for _ in range(2))
    targets = torch.randint(-1, 49152, (64,), generator=dice, device=DEVICE)
    weights = (targets >= 0) / 64
    arguments = (targets, weights, 49100, teacher.bfloat16(), 0.3, temperature)
    targets.clamp_(max=49099)
    expected = distillation_grad(logits.bfloat16(), *arguments)
    from linnet.kernels.cuda.distillation import distillation_grad as kernel

    found = kernel(logits.bfloat16(), *arguments)
    for part, other in zip(found, expected, strict=True):
        assert torch.allclose(part.float(), other.float(), rtol=1e-2, atol=1e-6)


def trained(
    config: Config | ViTConfig, documents: bool = False, steps: int = 20, **settings: Any
) -> tuple[list[list[float]], list[Tensor]]:
    """The losses and gradient norms of some steps, and the weights after them."""
    chosen = TrainSettings(**{"batch": 8, "device": DEVICE, "optimizer": "adamw", **settings})
    model = build(config, seed=0, device=DEVICE)
    hardware = choose(chosen, tokens=8 * 128, head_size=config.head_size)
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, chosen, hardware)
    metrics = []
    for number in range(steps):
        if isinstance(config, ViTConfig):
            dice = torch.Generator().manual_seed(number)
            pixels = torch.randint(0, 256, (8, 3, config.image_size, config.image_size), generator=dice)
            inputs: tuple[Tensor | None, ...] = (pixels.to(DEVICE, torch.uint8), pixels[:, 0, 0, 0].to(DEVICE) % 10)
        else:
            ids = tokens(50, 8, 128, number)  # few different ones: each is looked up many times
            numbers = (torch.arange(128, device=DEVICE) // 50).expand(8, -1) if documents else None
            inputs = (ids[:, :-1], ids[:, 1:], numbers)
        batch = SimpleNamespace(inputs=inputs, n_targets=8 if isinstance(config, ViTConfig) else 8 * 128)
        result = step(batch, 3e-4)
        metrics.append(torch.stack((result.loss, result.grad_norm)).tolist())
    return metrics, [parameter.detach().clone() for parameter in model.parameters()]


WAYS: dict[str, dict[str, Any]] = {
    "compiled": {"compile": "on", "graph": "off"},
    "captured": {"compile": "on", "graph": "on"},
    "asked for": {"compile": "on", "graph": "on", "deterministic": True},
    "eager": {"compile": "off", "graph": "off", "deterministic": True},
    "float32": {"compile": "on", "graph": "on", "dtype": "float32", "deterministic": True},
    "muon": {"optimizer": "muon", "deterministic": True},
}
REPEATED: dict[str, Config | ViTConfig] = {**MODELS, **VITS}


@pytest.mark.parametrize(
    ("name", "way"), [*((name, "captured") for name in REPEATED), *(("llama", way) for way in WAYS), ("vit", "eager")]
)
def test_a_second_training_gives_the_same_bits(name: str, way: str) -> None:
    config, settings = REPEATED[name], WAYS[way]
    documents = name == "llama with biases"
    first, second = (trained(config, documents, **settings) for _ in range(2))
    assert first[0] == second[0]
    assert all(map(torch.equal, first[1], second[1]))


def test_captured_and_plain_steps_give_the_same_bits() -> None:
    # A resumed run begins with plain ones where the other had captured ones.
    plain, captured = (trained(LLAMA, compile="on", graph=flag) for flag in ("off", "on"))
    assert plain[0] == captured[0]
    assert all(map(torch.equal, plain[1], captured[1]))


def test_captured_and_plain_steps_of_muon_give_the_same_bits() -> None:
    # Captured, its shapes and AdamW share the GPU side by side.
    plain, captured = (trained(LLAMA, compile="on", graph=flag, optimizer="muon") for flag in ("off", "on"))
    assert plain[0] == captured[0]
    assert all(map(torch.equal, plain[1], captured[1]))


@pytest.mark.parametrize(("rows", "columns"), [(864, 288), (288, 768), (288, 288), (3072, 576)])
def test_orthogonal_in_half_precision_brings_singular_values_near_one(rows: int, columns: int) -> None:
    dice = torch.Generator().manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(rows, columns, generator=dice, dtype=torch.float64), full_matrices=False)
    values = torch.logspace(0, -2.2, min(rows, columns), dtype=torch.float64)  # down to 0.006 of the largest
    matrix = (1e-4 * (u * values) @ v).float()
    found = orthogonal(torch.stack([matrix, -matrix, 0 * matrix]).to(DEVICE)).double().cpu()
    for sign, made in ((1, found[0]), (-1, found[1])):
        inner = u.mT @ made @ v.mT
        kept = values > LEAST * (values**4).sum() ** 0.25
        assert (sign * inner.diagonal()[kept] - 1).abs().max() < 0.25
        assert (inner - torch.diag(inner.diagonal())).norm() < 0.05 * len(inner) ** 0.5
    assert found[2].eq(0).all()


@pytest.mark.parametrize("norm", ["rms", "spectral"])
def test_muon_moves_on_the_gpu_as_on_the_cpu(norm: MuonNorm) -> None:
    dice = torch.Generator().manual_seed(0)
    shapes = ((192, 512), (192, 512), (192, 192), (1024, 192), (320, 192))
    starts = [torch.randn(shape, generator=dice) for shape in shapes]
    moved = {}
    for device in ("cpu", DEVICE):
        weights = [nn.Parameter(start.to(device, copy=True)) for start in starts]
        stacked = {weights[3]: (512, 512), weights[4]: (192, 64, 64)} if norm == "spectral" else {}
        muon = Muon(weights, torch.tensor(0.02, device=device), weight_decay=0.1, norm=norm, rows=stacked)
        muon.grad_scale = torch.tensor(3.0, device=device)
        for step in range(3):
            muon.momentum.fill_(0.85 + 0.05 * step)
            for number, weight in enumerate(weights):
                dice = torch.Generator().manual_seed(10 * step + number)
                weight.grad = torch.randn(weight.shape, generator=dice).to(device)
            muon.step()
        moments = [muon.state[weight]["momentum_buffer"] for weight in weights]
        assert all(moment.is_contiguous() for moment in moments)
        moved[device] = [[tensor.detach().cpu() for tensor in tensors] for tensors in (weights, moments)]
    for start, there, here in zip(starts, moved[DEVICE][0], moved["cpu"][0], strict=True):
        assert (there - here).norm() < 0.2 * (here - start).norm()  # singular values within 0.20 and 0.13 of 1
    for there, here in zip(moved[DEVICE][1], moved["cpu"][1], strict=True):
        assert torch.allclose(there, here, atol=1e-6)


class Dies(linnet.Callback):
    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == 25:
            raise RuntimeError("the power is gone")


def test_a_run_that_broke_off_and_was_resumed_is_the_undisturbed_one(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    flags = {"corpus": corpus, "preset": "tiny", "vocab": 384, "device": DEVICE, "steps": 40, "checkpoint_every": 10}
    flags |= {"sample_tokens": 8, "run_id": "same"}
    whole = linnet.train(**flags, runs=tmp_path / "whole")
    with pytest.raises(linnet.LinnetError, match="the power is gone"):
        linnet.train(**flags, runs=tmp_path / "broken", callbacks=[Dies()])
    resumed = linnet.resume(tmp_path / "broken" / "same")
    for metric in ("loss", "grad_norm", "validation/loss"):
        assert whole.metrics()[metric].value.tolist() == resumed.metrics()[metric].value.tolist()
    files = [max((run.path / "weights").glob("step_*.gguf")) for run in (whole, resumed)]
    assert files[0].name == files[1].name and files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gpt2", "vit"])
def test_a_captured_look_tells_what_a_plain_one_does(name: str, dtype: torch.dtype) -> None:
    """Activations, Gram matrices and drift: five looks each, of which the last three are replayed."""
    config = VITS[name] if name in VITS else MODELS[name]
    model = build(config, seed=0, device=DEVICE)
    model.set_compute_dtype(dtype)
    parameters = dict(model.named_parameters())
    first = {key: parameter.detach().clone() for key, parameter in parameters.items()}
    drift = DriftFigures(parameters, tensor_pieces(config, parameters.items()), first)
    looks: dict[str, Looker] = {"taps": partial(look_at_batch, model), "gram": partial(look_at_probe, model)}
    looks["drift"] = drift.look
    captured = {kind: CapturedLook(look, model, partial(Graph, plain_calls=1)) for kind, look in looks.items()}
    told: list[tuple[str, LateEvents, LateEvents]] = []
    for number in range(5):
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.add_(
                    0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)).to(DEVICE)
                )
        if isinstance(config, ViTConfig):
            images = torch.randint(0, 256, (6, 3, 28, 28), generator=torch.Generator().manual_seed(number)).to(DEVICE)
            inputs: dict[str, list[Tensor | None]] = {"taps": [images, None], "gram": [images], "drift": []}
        else:
            ids_BT = tokens(config.vocab, 4, 127, number)
            counts_V = torch.bincount(ids_BT.flatten(), minlength=config.vocab)
            inputs = {"taps": [ids_BT, None], "gram": [ids_BT[:1]], "drift": [counts_V]}
        for kind, look in looks.items():
            plain = LateEvents(number, *look(*inputs[kind]))
            told.append((kind, LateEvents(number, *captured[kind](*inputs[kind])), plain))
    assert all(look._is_capturable and look._captured is not None for look in captured.values()), "none was given up"
    for kind, replayed, plain in told:  # at the end: no later look may write over what an earlier one found
        pairs = list(zip(replayed.events(), plain.events(), strict=True))
        assert pairs
        for one, other in pairs:
            assert one.kind == other.kind and one.fields.keys() == other.fields.keys(), kind
            for field, value in other.fields.items():
                exact = isinstance(value, str | None) or field in ("shape", "token_id", "freq", "nan_count")
                assert one.fields[field] == (value if exact else near(value)), (kind, other.fields.get("region"), field)


def near(value: Any) -> Any:
    """Equal but for the order in which a GPU adds up; a number at the edge of a bin may fall to either side."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [near(row) for row in value]
    return pytest.approx(value, rel=1e-4, abs=max(2.0, 1e-3 * sum(value)) if _is_histogram(value) else 1e-5)


def _is_histogram(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 32 and all(isinstance(count, int) for count in value)


@pytest.mark.parametrize("graph", ["auto", "on", "off"])
def test_a_training_that_is_looked_into_has_the_losses_of_one_that_is_not(
    graph: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    flags: dict[str, Any] = {"corpus": corpus, "preset": "tiny", "vocab": 384, "device": DEVICE, "steps": 12}
    flags |= {"graph": graph, "deterministic": True, "sample_every": 0, "checkpoint_every": 12, "run_id": "same"}
    plain = linnet.train(**flags, runs=tmp_path / "plain")
    seen = linnet.train(**flags, runs=tmp_path / "seen", inspect="all@2")
    for metric in ("loss", "grad_norm", "validation/loss"):
        assert plain.metrics()[metric].value.tolist() == seen.metrics()[metric].value.tolist()
    assert {group: len(steps) for group, steps in seen.inspection().looks.items()}["taps"] == 7
    notes = [event.data for event in seen.events().read_events() if event.kind == "note"]
    assert not [note for note in notes if note.get("level") == "warning"], "no look was given up"


def test_ordered_gradients_are_those_of_torchs_own_attention() -> None:
    from linnet.kernels.cuda.ordered_attention import OrderedAttention

    dice = torch.Generator(DEVICE).manual_seed(0)
    for T, H, K, D, causal in (
        (333, 4, 2, 48, True),
        (1024, 9, 3, 64, True),
        (77, 2, 2, 32, False),
        (200, 4, 1, 128, True),
    ):
        qkv = torch.randn(2, T, H + 2 * K, D, device=DEVICE, generator=dice).bfloat16()
        grad = torch.randn(2, T, H, D, device=DEVICE, generator=dice)
        exact, given = qkv.float().requires_grad_(), qkv.clone().requires_grad_()
        q, k, v = (x.transpose(1, 2) for x in exact.split((H, K, K), 2))
        with sdpa_kernel(SDPBackend.MATH):
            wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)
        out = OrderedAttention.apply(*given.split((H, K, K), 2), causal, None)
        assert (out - wanted).norm() < 0.01 * wanted.norm()
        (expected,), (found,) = (
            torch.autograd.grad(wanted, exact, grad),
            torch.autograd.grad(out, given, grad.bfloat16()),
        )
        assert (found - expected).norm() < 0.01 * expected.norm()


RANKED = (
    "-m linnet train from-scratch --d-model 192 --n-layers 3 --n-heads 3 --n-kv 1 --d-ff 512 --vocab 384 --ctx 128"
    " --batch 4 --batch-tokens 4096 --steps 30 --sample-every 0 --eval-every 15 --eval-tokens 1024"
    " --graph on --compile on"
)


def test_two_ranks_that_share_the_gpu_train_what_one_does(corpus: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LINNET_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    losses, chosen = {}, {}
    for count in (1, 2):
        launcher = [] if count == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        where = ["--corpus", str(corpus), "--device", DEVICE, "--runs", str(tmp_path), "--run-id", str(count)]
        command = [sys.executable, *launcher, *RANKED.split(), *where]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        metrics = linnet.open(tmp_path / str(count)).metrics()
        losses[count] = [metrics[name].value.tolist() for name in ("loss", "validation/loss")]
        first = (tmp_path / str(count) / "events.jsonl").read_text().splitlines()[0]
        chosen[count] = json.loads(first)["chosen"]
    assert chosen[2]["ranks"] == 2 and chosen[2]["graph"] and chosen[2]["compile"] == chosen[1]["compile"]
    assert losses[1][0][-1] < losses[1][0][0] - 0.5
    for one, two in zip(losses[1], losses[2], strict=True):
        assert two == pytest.approx(one, rel=2e-3)


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
