"""What a mode takes over, held against the donor: its logits, its perplexity, its very channels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linnet import gguf
from linnet.errors import LinnetError
from linnet.gguf import RopeScaling
from linnet.models import load
from linnet.recipes.donor import DonorError
from linnet.recipes.warm_start import WarmStart
from tests.gguf import tiny
from tests.gguf.llama_client import ask
from tests.recipes.conftest import warmed

TEXT = 'class Reader:\n    """Reads lines."""\n\n    def __init__(self, path, mode="r"):\n        self.path = path\n'


def logits(model: Any, ids: torch.Tensor) -> np.ndarray[Any, Any]:
    with torch.inference_mode():
        return np.asarray(model(ids).numpy())


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tied": ({}, {"tied": True}),
    "untied": ({}, {}),
    "one key for all": ({"n_kv": 1}, {}),
    "a key each": ({"n_kv": 4}, {}),
    "biases": ({}, {"bias": True}),
    "wide heads": ({"head_dim": 32}, {}),
    "linear rope": ({"rope_scaling": RopeScaling("linear", 4.0)}, {}),
    "llama3 rope": ({"rope_scaling": RopeScaling("llama3", 8.0, 16), "rope_base": 5e5}, {"tied": True}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [2, 3])
def test_a_widened_model_computes_what_the_donor_computes(tmp_path: Path, shape: str, times: int) -> None:
    sizes, options = SHAPES[shape]
    cfg = tiny.llama_config(**sizes)
    _, params = tiny.llama(cfg, **options)
    donor = gguf.write(cfg, params, tmp_path / "donor.gguf", "r", 1, tokenizer=tiny.byte_level_tokenizer())
    model = warmed(donor, f"widen:{times}").model
    ids = torch.randint(0, tiny.VOCAB, (2, 48), generator=torch.Generator().manual_seed(1))
    assert model.config.d_model == times * 64
    assert np.abs(logits(model, ids) - logits(load(donor), ids)).max() < 1e-4


def test_a_trained_donor_widened_twice_keeps_its_logits_in_llama_cpp_too(trained: Path, tmp_path: Path) -> None:
    recipe = warmed(trained, "widen:2")
    file = write(recipe, trained, tmp_path)
    ids = text_ids(trained)[:24]
    ours = logits(load(trained), torch.tensor([ids]))[0]
    assert np.abs(logits(recipe.model, torch.tensor([ids]))[0] - ours).max() < 1e-4
    (answer,) = ask(file, prompts=[ids], vocab=512)
    assert not answer.refused
    expected = torch.log_softmax(torch.from_numpy(ours[-1]), -1).numpy()
    assert np.abs(np.array(answer.logprobs[0]) - expected).max() < 1e-3


def test_copies_of_a_widened_model_get_gradients_of_their_own(trained: Path) -> None:
    model = warmed(trained, "widen:2").model
    ids = torch.tensor([text_ids(trained)[:33]])
    model.loss(ids[:, :-1], ids[:, 1:]).backward()  # type: ignore[no-untyped-call]
    for name, rows in (("attn_qkv", 96), ("ffn_gate_up", 192), ("attn_output", 96), ("ffn_down", 96)):
        grad = model.get_parameter(f"blocks.1.{name}.weight").grad
        assert grad is not None
        one, other = grad[:rows], grad[rows : 2 * rows]  # what the same unit learns, and its copy
        assert (one - other).norm() > 0.01 * one.norm(), name


def test_full_is_the_donor(trained: Path) -> None:
    model = warmed(trained, "full").model
    ids = torch.tensor([text_ids(trained)[:60]])
    assert np.array_equal(logits(model, ids), logits(load(trained), ids))


def test_full_from_smollm2_has_its_perplexity_in_llama_cpp(smollm2: Path, tmp_path: Path) -> None:
    recipe = warmed(smollm2, "full")
    file = write(recipe, smollm2, tmp_path)
    ids = text_ids(smollm2)[:16]
    places = np.arange(8, len(ids))
    targets = [ids[place] for place in places]
    ours = torch.log_softmax(torch.from_numpy(logits(recipe.model, torch.tensor([ids]))[0]), -1).numpy()
    # The first checkpoint, not the donor itself: on four bits llama.cpp rounds activations to eight, which moves the
    # perplexity of a text this short by percents either way. The weights are the donor's to the last bit.
    (answer,) = ask(file, prompts=[ids[:place] for place in places], vocab=49152)
    theirs = np.array(answer.logprobs)
    assert math.exp(-ours[places - 1, targets].mean()) == pytest.approx(
        math.exp(-theirs[np.arange(len(places)), targets].mean()), rel=5e-3
    )
    with gguf.GGUFFile.open(smollm2) as donor, gguf.GGUFFile.open(file) as first:
        for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight"):
            assert np.array_equal(donor.tensors[name].read(), first.tensors[name].read())


def test_inherit_has_the_first_layers(trained: Path) -> None:
    model, donor = warmed(trained, "inherit:2").model, load(trained)
    assert model.config.n_layers == 2
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, donor.get_parameter(name)), name


@pytest.mark.parametrize(
    ("options", "layers"),
    [({}, [0, 2, 5]), ({"layers": "even"}, [0, 2, 5]), ({"layers": "first"}, [0, 1, 2])],
    ids=["default", "even", "first"],
)
def test_select_takes_the_same_channels_everywhere_and_heads_whole(
    trained: Path, options: dict[str, str], layers: list[int]
) -> None:
    shape = {"d_model": 48, "n_layers": 3, "n_heads": 4, "n_kv": 2, "d_ff": 96}
    recipe = warmed(trained, "select", options=options, **shape)
    model, donor = recipe.model, load(trained)
    channels = np.round(np.linspace(0, 95, 48)).astype(int)
    assert torch.equal(model.token_embd.weight, donor.token_embd.weight[:, channels])
    assert recipe.options.taken.startswith(f"layers {', '.join(map(str, layers))} of 6, 48 of 96 channels")
    # Of three queries that share a key, the first and the last: heads 0 and 2, 3 and 5, of 16 channels each.
    queries = np.concatenate([np.arange(16) + 16 * head for head in (0, 2, 3, 5)])
    rows = np.concatenate((queries, 96 + np.arange(64)))
    for ours, theirs in enumerate(layers):
        old = donor.get_parameter(f"blocks.{theirs}.attn_qkv.weight")
        assert torch.equal(model.get_parameter(f"blocks.{ours}.attn_qkv.weight"), old[rows][:, channels])
        old = donor.get_parameter(f"blocks.{theirs}.attn_output.weight")
        assert torch.equal(model.get_parameter(f"blocks.{ours}.attn_output.weight"), old[channels][:, queries])
        old = donor.get_parameter(f"blocks.{theirs}.ffn_norm.weight")
        assert torch.equal(model.get_parameter(f"blocks.{ours}.ffn_norm.weight"), old[channels])


def test_select_of_everything_is_the_donor(trained: Path) -> None:
    model = warmed(trained, "select").model
    ids = torch.tensor([text_ids(trained)[:60]])
    assert np.array_equal(logits(model, ids), logits(load(trained), ids))


def test_an_untied_model_begins_with_the_embedding_as_its_head(trained: Path) -> None:
    model = warmed(trained, "inherit:2", tied=False).model
    assert model.output is not None
    assert torch.equal(model.output.weight, load(trained).token_embd.weight)


def test_embed_copies_the_rows_and_nothing_else(trained: Path) -> None:
    recipe = warmed(trained, "embed", n_layers=2, options={"rescale": False})
    assert torch.equal(recipe.model.token_embd.weight, load(trained).token_embd.weight)
    assert torch.equal(recipe.model.get_parameter("blocks.0.attn_norm.weight"), torch.ones(96))
    assert recipe.options.taken.startswith("embedding copied (all 512 rows")


@pytest.mark.parametrize(("tied", "size"), [(True, 0.02), (False, 3.0)])
def test_rows_that_embed_copies_are_as_large_as_their_use_wants(trained: Path, tied: bool, size: float) -> None:
    rows = warmed(trained, "embed", n_layers=2, tied=tied).model.token_embd.weight.detach()
    assert torch.allclose(rows.std(0, correction=0), torch.full((96,), size), rtol=1e-3)
    assert torch.allclose(rows.mean(0), torch.zeros(96), atol=1e-4)


@pytest.mark.parametrize("init", ["embed", "select", "inherit:3", "full", "pca", "warm"])
def test_the_first_checkpoint_of_every_mode_runs_in_llama_cpp(trained: Path, tmp_path: Path, init: str) -> None:
    shape = {"d_model": 64, "n_layers": 3} if init in ("select", "pca", "warm") else {}
    recipe = warmed(trained, init, **shape)
    recipe.build()
    file = write(recipe, trained, tmp_path)
    assert gguf.check.check(file) == []
    ids = text_ids(trained)[:20]
    (answer,) = ask(file, prompts=[ids], vocab=512)
    assert not answer.refused
    ours = torch.log_softmax(torch.from_numpy(logits(recipe.model, torch.tensor([ids]))[0, -1]), -1).numpy()
    assert np.abs(np.array(answer.logprobs[0]) - ours).max() < 1e-3


@pytest.mark.parametrize(
    ("init", "shape", "message"),
    [
        (
            "embed",
            {"d_model": 48},
            "`init=embed` needs the model's d_model to fit the donor's; expected 96, found 48; another",
        ),
        ("full", {"n_layers": 5}, "`init=full` needs the model's n_layers to fit the donor's; expected 6, found 5"),
        (
            "full",
            {"rope_base": 1e4},
            "`init=full` needs the model's rope_base to fit the donor's; expected 50000.0, found 1",
        ),
        ("inherit:9", {}, "inherit:9 takes more layers than there are; expected 9 or more, found 6"),
        ("inherit:2", {"d_model": 192, "n_heads": 12}, "`init=inherit:2` needs the model's d_model to fit the donor's"),
        (
            "widen:2",
            {"n_layers": 3},
            "`init=widen:2` needs the model's n_layers to fit the donor's; expected 6, found 3",
        ),
        ("select", {"n_layers": 7}, "select chooses from what is there, and the donor's n_layers is smaller; exp"),
        ("select", {"d_model": 192}, "donor's d_model is smaller; expected 192 or more, found 96"),
        (
            "select",
            {"d_model": 48, "head_dim": 8},
            "`init=select` needs the model's head_size to fit the donor's; expected 16",
        ),
        (
            "select",
            {"n_heads": 4, "n_kv": 1},
            "select keeps query heads with their key head, and the donor's key heads serve too few; expected 4 or",
        ),
        ("pca", {"d_model": 128}, "a donor 96 wide has 96 principal axes, and a model 128 wide needs as many"),
        ("inherit", {}, "`init` 'inherit' is not understood; say inherit:N, such as inherit:2"),
        ("inherit:x", {}, "`init` 'inherit:x': expected a whole number from 1 after the colon, found 'x'"),
        ("full:2", {}, "`init` 'full:2' is not understood; say full alone"),
        ("pcaa", {}, "`init` 'pcaa' is not known; choose from scratch, warm, pca, embed, select, inherit:N, widen:N,"),
    ],
)
def test_what_a_mode_cannot_do_is_said_by_name(trained: Path, init: str, shape: dict[str, Any], message: str) -> None:
    with pytest.raises(LinnetError) as error:
        warmed(trained, init, **shape)
    assert message in str(error.value)
    if isinstance(error.value, DonorError):
        assert str(trained) in str(error.value)


def text_ids(model: Path) -> list[int]:
    with gguf.GGUFFile.open(model) as file:
        return list(gguf.tokenizer.rebuild_tokenizer(file.metadata).encode(TEXT, add_special_tokens=False).ids)


def write(recipe: WarmStart, donor: Path, folder: Path) -> Path:
    """The model as its first checkpoint would be, before a step is taken."""
    with gguf.GGUFFile.open(donor) as file:
        keys = gguf.MetadataBlock().copy(file.metadata, gguf.tokenizer.donor_keys(file.metadata))
    return gguf.write(recipe.model.config, recipe.parameters(), folder / "first.gguf", "r", 0, tokenizer=keys)
