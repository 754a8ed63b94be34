"""`flow.json`: the model as it was realised, for anyone to read."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.architectures import ARCHITECTURES
from linnet.gguf import write
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build, preset
from linnet.models.adapter_shape import AdapterShape
from linnet.models.adapters import add_adapter
from linnet.models.frozen import load_frozen
from linnet.models.initial import allocate
from linnet.train import flow, shape_rules
from linnet.train.flow import describe, write_flow

LLAMA = LlamaConfig(vocab=99, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=16)
GPT2 = GPT2Config(vocab=99, d_model=32, n_heads=4, d_ff=64, n_layers=2, ctx=16)


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_every_parameter_and_operation_is_there(config: LlamaConfig | GPT2Config, tmp_path: Path) -> None:
    model = build(config)
    assert write_flow(tmp_path, model, batch=3, ctx=8) == tmp_path / "flow.json"
    flow = json.loads((tmp_path / "flow.json").read_text())
    assert flow["format"] == "toy/v1"
    nodes = flow["nodes"]
    weights = {node["name"]: node for node in nodes if node["role"] == "weight"}
    assert list(weights) == [name for name, _ in model.named_parameters()]
    assert weights["token_embd.weight"] == {
        "name": "token_embd.weight",
        "role": "weight",
        "shape": "32×99",
        "dtype": "f32",
        "nelements": 99 * 32,
        "nbytes": 99 * 32 * 4,
    }
    operations = [node for node in nodes if "op" in node]
    assert flow["summary"] == {"n_leafs": len(nodes) - len(operations), "n_nodes": len(operations)}
    ops = [node["op"] for node in operations]
    assert ops.count("scaled_dot_product_attention") == 2
    assert ops.count("linear") == 2 * 4 + 1
    (output,) = [node for node in nodes if node["role"] == "output"]
    assert output["shape"] == f"99×{3 * 8}"
    assert [node["role"] for node in nodes].count("loss") == 1 and nodes[-1]["role"] == "loss"


def test_a_quantised_base_has_the_weights_of_a_plain_one(tmp_path: Path) -> None:
    """Its matrices are named as such, not the arrays that each is packed in."""
    params = build(LLAMA, seed=1).params()
    told: list[dict[str, Any]] = []
    for type in ("q8_0", "f32"):
        model = load_frozen(write(LLAMA, params, tmp_path / f"{type}.gguf", "run", 1, type=type))
        add_adapter(model, AdapterShape(("attn_q", "ffn_down"), 2, 4.0), seed=0)
        nodes = describe(model, 1, 8)["nodes"]
        told.append({node["name"]: (node["shape"], node["nelements"]) for node in nodes if node["role"] == "weight"})
        assert any("blocks.0.attn_output.weight" in node.get("inputs", ()) for node in nodes)
    assert told[0] == told[1]
    assert told[0]["blocks.0.attn_output.weight"] == ("32×32", 32 * 32)


def test_an_operation_names_what_it_reads_and_only_what_came_before_it() -> None:
    known: set[str] = set()
    for node in describe(build(LLAMA), 1, 8)["nodes"]:
        assert set(node.get("inputs", ())) <= known
        assert node["name"] not in known
        known.add(node["name"])
    assert "blocks.1.attn_qkv.linear" in known


SHAPE: dict[str, int] = {"vocab": 99, "d_model": 32, "n_heads": 4, "n_kv": 2, "d_ff": 48, "n_layers": 2, "ctx": 16}
VIT = ViTConfig(image_size=8, patch_size=4, d_model=32, n_heads=2, d_ff=8, n_layers=2, num_classes=5, pooling="cls")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        GPT2,
        replace(GPT2, tied=False),
        ARCHITECTURES["qwen2"].config(**SHAPE),
        ARCHITECTURES["qwen3"].config(**SHAPE),
        VIT,
        replace(VIT, pooling="mean"),
    ],
    ids=["llama", "gpt2", "gpt2-untied", "qwen2", "qwen3", "vit-cls", "vit-mean"],
)
def test_shapes_by_rule_are_those_that_torch_gives(
    config: Config, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config)
    model.set_compute_dtype(dtype)
    by_rule = describe(model, 3, 8)
    monkeypatch.setattr(flow, "result_by_rule", lambda *_: None)
    assert by_rule == describe(model, 3, 8)


def test_a_call_that_no_rule_knows_is_left_to_torch() -> None:
    x, ids = torch.empty(2, 3, device="meta"), torch.empty(3, dtype=torch.int64, device="meta")

    def is_known(func: Any, *arguments: Any, **named: Any) -> bool:
        return shape_rules.result_by_rule(func, arguments, named) is not None

    assert is_known(torch.Tensor.add, x, 1.0) and is_known(torch.nn.functional.linear, x, torch.empty(5, 3))
    assert not is_known(torch.Tensor.add_, x, 1.0)
    assert not is_known(torch.Tensor.add, x, x, alpha=2)
    assert not is_known(torch.add, x, x, out=torch.empty_like(x))
    assert not is_known(torch.Tensor.add, torch.zeros(2, 3), 1.0), "with numbers it is computed"
    assert not is_known(torch.Tensor.mean, x, (0, 1)) and not is_known(torch.Tensor.sum, x, dim=1)
    assert not is_known(torch.Tensor.to, x, "meta") and not is_known(torch.Tensor.to, x, torch.float32)
    assert not is_known(torch.Tensor.clamp, x, min=0.0) and not is_known(torch.Tensor.clamp, ids, max=1)
    assert not is_known(torch.cat, [x, x.half()]) and not is_known(torch.nn.functional.silu, x, inplace=True)
    assert not is_known(torch.nn.functional.cross_entropy, x, x)


def test_the_compute_dtype_is_seen() -> None:
    model = build(LLAMA)
    model.set_compute_dtype(torch.bfloat16)
    dtypes = {node["name"]: node["dtype"] for node in describe(model, 1, 8)["nodes"]}
    assert dtypes["blocks.0.attn_qkv.weight"] == "f32"
    assert dtypes["blocks.0.attn_qkv.linear"] == "bf16"


def test_the_model_is_left_as_it_was() -> None:
    model = build(LLAMA)
    before = {name: tensor.clone() for name, tensor in model.params().items()}
    describe(model, 1, 8)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.params().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_large_model_is_described_in_a_second() -> None:
    model = allocate(preset("smollm2-135m"))
    began = time.process_time()
    flow = describe(model, 8, 8192)
    assert time.process_time() - began < 1.0
    assert sum(node["nelements"] for node in flow["nodes"] if node["role"] == "weight") == model.n_params()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "linnet"):
        assert write_flow(tmp_path / "gone", build(LLAMA), 1, 8) is None
    assert "flow.json of gone was not written" in caplog.text
