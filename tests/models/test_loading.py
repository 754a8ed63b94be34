"""Models out of GGUF files, and back into them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gguf
from linnet.architectures import ARCHITECTURES, layout
from linnet.gguf import GGUFError, GGUFFile, RopeScaling, read_params, write
from linnet.models import Config, GPT2Config, LlamaConfig, build, load
from linnet.models.initial import fill_normal
from linnet.models.llama import Llama

SHAPE: dict[str, Any] = {"vocab": 96, "d_model": 32, "n_heads": 4, "n_kv": 2, "d_ff": 64, "n_layers": 2, "ctx": 32}
LLAMA3 = RopeScaling("llama3", 4.0, 16)
CONFIGS: dict[str, Config] = {
    "llama": LlamaConfig(**SHAPE),
    "untied": LlamaConfig(**SHAPE, tied=False),
    "biases": LlamaConfig(**SHAPE, qkv_bias=True, output_bias=True, ffn_bias=True),
    "head size": LlamaConfig(**SHAPE, head_dim=16),
    "linear": LlamaConfig(**SHAPE, rope_scaling=RopeScaling("linear", 2.0)),
    "llama3": LlamaConfig(**SHAPE, rope_scaling=LLAMA3),
    "gpt2": GPT2Config(96, 32, 4, 64, 2, 32),
    "gpt2 untied": GPT2Config(96, 32, 4, 64, 2, 32, tied=False),
}
IDS_BT = torch.arange(20)[None]


def made(config: Config) -> Any:
    """A model none of whose parameters has a value that could be mistaken for a default."""
    model = build(config, seed=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                fill_normal(parameter, 0.3, 5, name)
                parameter += 1.0
    return model


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_written_and_loaded_is_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    model = made(CONFIGS[kind])
    path = write(model.config, model.params(), tmp_path / "m.gguf", "run", 1)
    again = load(path)
    assert again.config == model.config
    assert again.params().keys() == model.params().keys()
    for name, tensor in model.params().items():
        assert torch.equal(again.params()[name], tensor), name
    assert torch.equal(again(IDS_BT), model(IDS_BT))


def test_the_context_can_be_changed_while_loading(tmp_path: Path) -> None:
    for kind, ctx in (("llama", 64), ("llama", 16), ("gpt2", 16)):
        model = made(CONFIGS[kind])
        path = write(model.config, model.params(), tmp_path / f"{kind}.gguf", "run", 1)
        assert load(path, ctx=ctx).config.ctx == ctx
        assert torch.equal(load(path, ctx=ctx)(IDS_BT[:, :16]), model(IDS_BT[:, :16]))
    with pytest.raises(Exception, match=r"ctx 64 is more than the 32 learned positions .* ask for 32 or less"):
        load(tmp_path / "gpt2.gguf", ctx=64)


def test_quantised_files_load_as_what_they_stand_for(tmp_path: Path) -> None:
    model = made(CONFIGS["llama"])
    path = write(model.config, model.params(), tmp_path / "m.gguf", "run", 1, type="q8_0")
    loaded = load(path).params()
    with GGUFFile.open(path) as file:
        for name, array in read_params(file):
            assert torch.equal(loaded[name], torch.from_numpy(array))
    assert not torch.equal(loaded["token_embd.weight"], model.params()["token_embd.weight"])


def test_llama3_divisors_of_a_foreign_file_are_obeyed_and_kept(tmp_path: Path) -> None:
    """llama.cpp's converter writes the tensor `rope_freqs.weight` and no key that says what it came from."""
    plain, scaled = CONFIGS["llama"], made(CONFIGS["llama3"])
    path = write(scaled.config, scaled.params(), tmp_path / "ours.gguf", "run", 1)
    with GGUFFile.open(path) as file:
        divisors = torch.from_numpy(file.tensors["rope_freqs.weight"].read().copy())
    params = scaled.params() | {"rope_freqs.weight": divisors}
    foreign = load(write(plain, params, tmp_path / "foreign.gguf", "run", 1))
    assert isinstance(foreign, Llama) and foreign.config.rope_scaling is None
    assert torch.equal(foreign(IDS_BT), scaled(IDS_BT))
    again = load(write(foreign.config, foreign.params(), tmp_path / "again.gguf", "run", 2))
    assert torch.equal(again(IDS_BT), scaled(IDS_BT))
    assert "rope_freqs.weight" in layout(plain).params and "rope_freqs.weight" not in scaled.params()


def test_a_tied_gpt2_whose_head_is_a_copy_loads_as_tied(tmp_path: Path) -> None:
    model = made(CONFIGS["gpt2"])
    params = model.params() | {"output.weight": model.params()["token_embd.weight"]}
    loaded = load(write(model.config, params, tmp_path / "m.gguf", "run", 1))
    assert loaded.config == model.config
    assert torch.equal(loaded(IDS_BT), model(IDS_BT))


def test_toys_lens_is_folded_into_the_embedding(tmp_path: Path) -> None:
    model = made(CONFIGS["llama"])
    rng = np.random.default_rng(0)
    table, lens = (rng.standard_normal(shape, dtype=np.float32) for shape in ((96, 48), (32, 48)))
    params = model.params()
    plain = write(model.config, params, tmp_path / "plain.gguf", "run", 1)
    writer = gguf.GGUFWriter(tmp_path / "lens.gguf", "llama")
    with GGUFFile.open(plain) as file:
        for key in file.metadata:
            if key.startswith("llama.") and isinstance(file.metadata[key], int):
                writer.add_uint32(key, file.metadata[key])
            elif key.startswith("llama.") and isinstance(file.metadata[key], float):
                writer.add_float32(key, file.metadata[key])
        for name, tensor in file.tensors.items():
            writer.add_tensor(name, table if name == "token_embd.weight" else tensor.read().copy())
    writer.add_tensor("lens.proj.weight", lens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    loaded = load(tmp_path / "lens.gguf").params()["token_embd.weight"]
    assert torch.allclose(loaded, torch.from_numpy(table @ lens.T), atol=1e-5)


def test_an_architecture_of_others_is_refused_with_ours_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GGUFError) as caught:
        load(tmp_path / "m.gguf")
    expected = " or ".join(ARCHITECTURES)
    assert f"expected {expected}, found 'gemma3'" in str(caught.value) and "\n" not in str(caught.value)


def test_smollm2_knows_the_capital_of_france(smollm2: Path) -> None:
    from linnet.gguf.tokenizer import rebuild_tokenizer

    with GGUFFile.open(smollm2) as file:
        tokenizer = rebuild_tokenizer(file.metadata)
        model = load(file)
    ids_BT = torch.tensor([tokenizer.encode("The capital of France is").ids])
    with torch.inference_mode():
        assert tokenizer.decode([int(model(ids_BT)[0, -1].argmax())]) == " Paris"


def test_a_loaded_model_computes_the_positions_it_needs(tmp_path: Path) -> None:
    config = LlamaConfig(vocab=32, d_model=16, n_heads=2, n_kv=1, d_ff=16, n_layers=1, ctx=1 << 30)
    path = write(config, build(replace(config, ctx=64), seed=1).params(), tmp_path / "m.gguf", "m", 1)
    model, whole = load(path), load(path, ctx=64)
    ids = torch.arange(20)[None]
    assert torch.equal(model(ids), whole(ids))
    assert len(model.rotary_CP2) < 1 << 20

    model.rotary_CP2 = model.rotary_CP2[:8]  # it grows
    with torch.inference_mode():
        assert torch.equal(model(ids), whole(ids))
    loss = model.loss(ids, ids)  # and can be trained after that
    loss.backward()
    assert torch.equal(loss, whole.loss(ids, ids))
