"""What is trained beside a frozen model: what it adds, its gradients, and the base alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from linnet.architectures import ARCHITECTURES
from linnet.errors import UsageError
from linnet.gguf import AdapterFile, GGMLType, GGUFFile, GGUFWriter, MetadataBlock, write, write_adapter
from linnet.gguf.planes import SPLITTABLE
from linnet.gguf.tensor import TensorInfo
from linnet.kernels.executor import Compiled, Recomputed, eager
from linnet.kernels.packed import PackedMatrix, packed_bytes
from linnet.models import Config, GPT2Config, LanguageModel, LlamaConfig, build, load
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import Adapter, add_adapter, load_pairs, merge_adapter, without_adapter
from linnet.models.frozen import load_frozen
from tests.kernels.packed_matrices import random_blocks

LLAMA = LlamaConfig(vocab=320, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
QWEN2, QWEN3 = (
    ARCHITECTURES[name].config(vocab=320, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
    for name in ("qwen2", "qwen3")
)
CONFIGS: dict[str, Config] = {
    "llama": LLAMA,
    "llama with biases": replace(LLAMA, qkv_bias=True, output_bias=True, ffn_bias=True, tied=False),
    "gpt2": GPT2Config(vocab=320, d_model=64, n_heads=4, d_ff=96, n_layers=2, ctx=64),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
}
EVERY_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
IDS_BT = torch.randint(0, 320, (4, 32), generator=torch.Generator().manual_seed(0))
TARGETS_BT = IDS_BT.roll(-1, 1)


def moved(adapter: Adapter, size: float = 0.1) -> Adapter:
    """The pairs as a training may leave them: none of them adds nothing."""
    with torch.no_grad():
        for name, parameter in adapter.parameters().items():
            dice = torch.Generator().manual_seed(len(name) + parameter.numel())
            parameter += size * torch.randn(parameter.shape, generator=dice)
    return adapter


def adapted(
    config: Config, *words: str, dropout: float = 0.0, dora: bool = False, model: LanguageModel | None = None
) -> tuple[LanguageModel, Adapter]:
    model = build(config, seed=1) if model is None else model
    shape = AdapterShape(parse_targets(words or ("all",), config), 4, 8.0, dropout, dora=dora)
    return model, add_adapter(model, shape)


def gradients(model: LanguageModel, adapter: Adapter, **options: object) -> dict[str, Tensor]:
    for parameter in adapter.parameters().values():
        parameter.grad = None
    model.loss(IDS_BT, TARGETS_BT, **options).backward()  # type: ignore[arg-type]
    return {name: parameter.grad for name, parameter in adapter.parameters().items() if parameter.grad is not None}


def agree(found: dict[str, Tensor], expected: dict[str, Tensor], limit: float = 1e-4) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= limit * gradient.norm() + 1e-9, name


@pytest.fixture
def quantised(tmp_path: Path) -> Path:
    """A small model whose file is q8_0."""
    return write(LLAMA, build(LLAMA, seed=1).params(), tmp_path / "base.gguf", "base", 1, type="q8_0")


@EVERY_CONFIG
def test_at_first_an_adapter_changes_nothing_and_nothing_else_is_trained(config: Config) -> None:
    with torch.no_grad():
        before = build(config, seed=1)(IDS_BT)
    model, adapter = adapted(config, "all", *(() if config.tied else ("embed", "head")))
    with torch.no_grad():
        assert torch.equal(model(IDS_BT), before)
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    assert trained == set(adapter.parameters().values())
    assert model.n_params() == sum(parameter.numel() for parameter in trained)


@EVERY_CONFIG
def test_an_adapted_model_is_the_model_of_merged_weights_gradients_too(config: Config, tmp_path: Path) -> None:
    model, adapter = adapted(config, "all", *(() if config.tied else ("embed", "head")))
    moved(adapter)
    tensors = {name: parameter.detach() for name, parameter in adapter.parameters().items()}
    file = AdapterFile.read(
        write_adapter(config, tensors, tmp_path / "a.gguf", "run", 1, alpha=adapter.shape.file_alpha, base="base")
    )
    merged = build(config, seed=1)
    merge_adapter(config, merged.params(), file)
    with torch.no_grad():
        assert torch.allclose(model(IDS_BT), merged(IDS_BT), atol=2e-5)
    # The gradient of a pair follows from that of the merged matrix: d/dA = scale · Bᵀ G, d/dB = scale · G Aᵀ.
    merged.loss(IDS_BT, TARGETS_BT).backward()
    found = gradients(model, adapter)
    by_output = merged.blocks[1].attn_output.weight.grad
    a, b = (tensors[f"blocks.1.attn_output.lora_{half}"] for half in "ab")
    expected = {"a": 2.0 * b.T @ by_output, "b": 2.0 * by_output @ a.T}
    for half, gradient in expected.items():
        assert torch.allclose(found[f"blocks.1.attn_output.lora_{half}"], gradient, atol=1e-5, rtol=1e-3)


@EVERY_CONFIG
def test_projections_within_a_fused_one_are_adapted_one_by_one(config: Config) -> None:
    words = ("qkv",) if config.arch == "gpt2" else ("v", "up")
    model, adapter = adapted(config, *words)
    names = {name.split(".")[-2] for name in adapter.parameters()}
    assert names == ({"attn_qkv"} if config.arch == "gpt2" else {"attn_v", "ffn_up"})
    moved(adapter)
    block = model.blocks[0]
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(2))
    changed = (block.attn_qkv(x) - block.attn_qkv.base(x)).abs().amax((0, 1)) > 0
    head = config.head_size
    untouched = 0 if config.arch == "gpt2" else (config.n_heads + config.n_kv) * head
    assert changed.tolist() == [False] * untouched + [True] * (len(changed) - untouched)


def test_the_base_alone_shares_its_weights_and_says_what_it_said(quantised: Path) -> None:
    model = load_frozen(quantised)
    with torch.no_grad():
        before = model(IDS_BT)
    model, adapter = adapted(LLAMA, model=model)
    reference = without_adapter(model)
    moved(adapter)
    with torch.no_grad():
        assert torch.equal(reference(IDS_BT), before)
        assert not torch.equal(model(IDS_BT), before)
    assert reference.adapter is None and not any(parameter.requires_grad for parameter in reference.parameters())
    own = {buffer.data_ptr() for buffer in model.buffers()}
    assert {buffer.data_ptr() for buffer in reference.buffers() if buffer.numel()} <= own


@pytest.mark.parametrize("type", ["q8_0", "f16", "bf16", "f32"])
def test_a_frozen_model_says_what_the_loaded_one_says_in_the_bytes_of_its_file(type: str, tmp_path: Path) -> None:
    path = write(QWEN3, build(QWEN3, seed=1).params(), tmp_path / "m.gguf", "run", 1, type=type)
    model = load_frozen(path)
    with torch.no_grad():
        assert torch.allclose(model(IDS_BT), load(path, task="text")(IDS_BT), atol=1e-5)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with GGUFFile.open(path) as file:
        matrices = sum(tensor.nbytes for tensor in file.tensors.values() if len(tensor.shape) == 2)
    assert packed_bytes(model) == (0 if type == "f32" else matrices)


def test_matrices_of_several_types_stay_as_they_came(tmp_path: Path) -> None:
    """As llama.cpp quantises: V in more bits than Q and K."""
    path = write(LLAMA, build(LLAMA, seed=1).params(), tmp_path / "m.gguf", "run", 1, type="q8_0")
    mixed = tmp_path / "mixed.gguf"
    with GGUFFile.open(path) as file:
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
        for name, tensor in file.tensors.items():
            kinds = {"attn_v": GGMLType.F16, "ffn_up": GGMLType.F32}
            writer.add(name, tensor, kinds.get(name.split(".")[-2], tensor.type))
        writer.write(mixed)
    model = load_frozen(mixed)
    assert isinstance(model.blocks[0].attn_qkv.weight, PackedMatrix)
    with torch.no_grad():
        assert torch.allclose(model(IDS_BT), load(mixed, task="text")(IDS_BT), atol=1e-5)


class RawBlocks(TensorInfo):
    """Random blocks of a type that only llama.cpp writes, as if a file held them."""

    def read_raw(self, start: int, stop: int) -> bytes:
        rows, values = self.shape
        return random_blocks(self.type, rows, values, seed=rows).tobytes()[start:stop]


@pytest.mark.parametrize("type", SPLITTABLE, ids=lambda type: type.name)
@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen2", "qwen3"])
def test_a_base_of_every_architecture_and_type_is_trained_beside(arch: str, type: GGMLType, tmp_path: Path) -> None:
    """Loss and gradients are those beside the same base decoded, and the matrices stay in the bytes of the file."""
    heads = {} if arch == "gpt2" else {"n_kv": 2}
    config = ARCHITECTURES[arch].config(vocab=320, d_model=256, n_heads=4, d_ff=256, n_layers=1, ctx=64, **heads)
    exact = write(config, build(config, seed=1).params(), tmp_path / "exact.gguf", "base", 1)
    path, kept = tmp_path / "base.gguf", 0
    with GGUFFile.open(exact) as file:
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
        for name, tensor in file.tensors.items():
            if len(tensor.shape) == 2 and "position_embd" not in name:
                nbytes = tensor.shape[0] * type.row_bytes(tensor.shape[1])
                tensor, kept = RawBlocks(name, tensor.shape, type, 0, nbytes, None), kept + nbytes  # type: ignore[arg-type]
            writer.add(name, tensor, tensor.type)
        writer.write(path)
    frozen, decoded = load_frozen(path), load(path, task="text")
    # Sub-scales of six bits or less have a byte each.
    assert kept <= packed_bytes(frozen) <= (1.2 if type is GGMLType.Q2_K else 1.04) * kept
    results, losses = [], []
    for base in (frozen, decoded):
        model, adapter = adapted(config, model=base)
        results.append(torch.cat([part.flatten() for part in gradients(model, moved(adapter, 0.01)).values()]))
        losses.append(model.loss(IDS_BT, TARGETS_BT).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert (results[0] - results[1]).norm() < 1e-3 * results[1].norm()


def test_gradients_beside_packed_matrices_are_those_beside_plain_ones(quantised: Path) -> None:
    results = []
    for base in (load_frozen(quantised), load(quantised, task="text")):
        model, adapter = adapted(LLAMA, model=base)
        results.append(gradients(model, moved(adapter)))
    agree(*results)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_compiled_and_a_recomputed_step_have_the_same_gradients(
    quantised: Path, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: real(f, fullgraph=True, backend="aot_eager"))
    torch._dynamo.reset()
    model, adapter = adapted(LLAMA, dropout=dropout, model=load_frozen(quantised))
    moved(adapter).begin_step(7)
    expected = gradients(model, adapter)
    compiled = Compiled(torch.float32)
    compiled.before_step()
    agree(gradients(model, adapter, executor=compiled), expected)
    agree(gradients(model, adapter, executor=Recomputed(eager, model.blocks, cheap=False)), expected)


def test_dropout_is_the_same_for_parts_of_a_batch_in_any_order_and_side_by_side() -> None:
    model, adapter = adapted(LLAMA, dropout=0.3)
    moved(adapter).begin_step(5)
    whole = gradients(model, adapter)
    rows = [slice(2, 4), slice(0, 2)]
    parts: dict[int, Tensor] = {}

    def pass_part(number: int) -> None:
        divisor = torch.tensor(float(IDS_BT.numel()))
        parts[number] = model.loss(IDS_BT[rows[number]], TARGETS_BT[rows[number]], divisor=divisor)

    threads = [threading.Thread(target=pass_part, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for parameter in adapter.parameters().values():
        parameter.grad = None
    (parts[0] + parts[1]).backward()
    agree({name: p.grad for name, p in adapter.parameters().items() if p.grad is not None}, whole)
    adapter.begin_step(6)
    other = gradients(model, adapter)
    name = "blocks.0.attn_q.lora_b"
    assert (other[name] - whole[name]).norm() > 0.1 * whole[name].norm()
    with torch.no_grad():  # what is evaluated is the whole model
        losses = {model.loss(IDS_BT, TARGETS_BT).item() for _ in range(2)}
    assert len(losses) == 1 and losses != {model.loss(IDS_BT, TARGETS_BT).item()}


def test_dora_trains_the_lengths_of_rows_beside_their_directions() -> None:
    model, adapter = adapted(LLAMA, "o", dora=True)
    layer = model.blocks[0].attn_output
    weight, pair = layer.base.weight, layer.pairs["attn_output"]
    assert torch.allclose(pair.lora_magnitude, weight.norm(dim=1))
    moved(adapter)
    direction = weight + adapter.shape.scale * pair.lora_b @ pair.lora_a
    length = direction.norm(dim=1, keepdim=True)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    plain = x @ (pair.lora_magnitude[:, None] * direction / length.detach()).T
    taken = [x, *pair.parameters()]
    grad = torch.randn(3, 64, generator=torch.Generator().manual_seed(3))
    expected, found = (torch.autograd.grad(y, taken, grad, retain_graph=True) for y in (plain, layer(x)))
    assert torch.allclose(layer(x), plain, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_an_adapter_goes_on_from_the_pairs_of_a_file_whatever_its_scale(tmp_path: Path) -> None:
    model, adapter = adapted(replace(LLAMA, tied=False), "all", "embed", "head")
    tensors = {name: parameter.detach() for name, parameter in moved(adapter).parameters().items()}
    path = write_adapter(model.config, tensors, tmp_path / "a.gguf", "run", 1, alpha=adapter.shape.file_alpha, base="b")
    again = build(model.config, seed=1)
    other = add_adapter(again, replace(adapter.shape, alpha=3.0, rslora=True), seed=9)
    load_pairs(other, AdapterFile.read(path))
    with torch.no_grad():
        assert torch.allclose(again(IDS_BT), model(IDS_BT), atol=2e-5)


def test_arithmetic_counts_frozen_weights_without_their_gradients() -> None:
    plain = build(LLAMA, seed=1)
    model, _ = adapted(LLAMA)
    positions = 12 * 2 * 64 * 32
    N = sum(parameter.numel() for parameter in plain.parameters() if parameter.ndim > 1)
    assert plain.flops_per_token(32) == 6 * plain.n_params() + positions
    assert model.flops_per_token(32) == 4 * N + 6 * model.n_params() + positions


@pytest.mark.parametrize(
    ("config", "words", "shape", "message"),
    [
        (LLAMA, ("q", "w"), {}, "`targets`: a llama has no projection 'w'; choose from all, q, k, v, o"),
        (GPT2Config(320, 64, 4, 96, 2, 64), ("q",), {}, "a gpt2 has no projection 'q'; did you mean qkv"),
        (LLAMA, (), {}, "`targets` names no projection: give some of q, k, v, o, gate, up, down, or all"),
        (LLAMA, ("all",), {"rank": 0}, "`rank` must be 1 or more, found 0"),
        (LLAMA, ("all",), {"rank": 40}, "`rank=40` is more than attn_k has, a matrix of 32 × 64: choose 32 or less"),
        (LLAMA, ("all",), {"alpha": 0.0}, "`alpha` must be above 0, found 0"),
        (LLAMA, ("all",), {"dropout": 1.0}, "from 0 to below 1, found 1"),
        (LLAMA, ("embed",), {}, "embedding and head of this base are one matrix"),
        (LLAMA, ("q", "head"), {}, "llama.cpp applies no adapter to such a one: leave head out"),
        (replace(LLAMA, tied=False), ("q", "head"), {"dora": True}, "`dora` is for the projections of the blocks"),
    ],
)
def test_what_cannot_be_adapted_is_named(
    config: Config, words: tuple[str, ...], shape: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        add_adapter(build(config), AdapterShape(parse_targets(words, config), **shape))  # type: ignore[arg-type]
    assert message in str(error.value)
