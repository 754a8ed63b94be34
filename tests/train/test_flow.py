"""`flow.json`: the model as it was realised, for anyone to read."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest
import torch

from linnet.models import GPT2Config, LlamaConfig, build, preset
from linnet.models.initial import allocate
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


def test_an_operation_names_what_it_reads_and_only_what_came_before_it() -> None:
    known: set[str] = set()
    for node in describe(build(LLAMA), 1, 8)["nodes"]:
        assert set(node.get("inputs", ())) <= known
        assert node["name"] not in known
        known.add(node["name"])
    assert "blocks.1.attn_qkv.linear" in known


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
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # what a trainer has loaded by then
    describe(build(LLAMA), 1, 8)
    model = allocate(preset("smollm2-135m"))
    began = time.process_time()
    flow = describe(model, 8, 8192)
    assert time.process_time() - began < 1.0
    assert sum(node["nelements"] for node in flow["nodes"] if node["role"] == "weight") == model.n_params()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "linnet"):
        assert write_flow(tmp_path / "gone", build(LLAMA), 1, 8) is None
    assert "flow.json of gone was not written" in caplog.text
