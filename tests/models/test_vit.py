"""A vision transformer is the one that `transformers` has, comes back from its file, and can begin in three ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from linnet.errors import UsageError
from linnet.gguf import GGUFError, write
from linnet.kernels import Residual
from linnet.models import (
    PRESETS,
    ViT,
    ViTConfig,
    build,
    from_transformers,
    load,
    preset,
    select_weights,
)

SMALL = ViTConfig(
    image_size=12, patch_size=4, d_model=48, n_heads=3, d_ff=96, n_layers=2, num_classes=5, labels=tuple("abcde")
)


def pixels(config: ViTConfig, count: int = 4) -> torch.Tensor:
    shape = (count, config.num_channels, config.image_size, config.image_size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def change(config: ViTConfig, **fields: object) -> ViTConfig:
    return replace(config, **fields)  # type: ignore[arg-type]


def test_it_equals_transformers_on_the_same_weights() -> None:
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=3,
            intermediate_size=96,
            image_size=16,
            patch_size=4,
            hidden_act="gelu_pytorch_tanh",
            num_labels=5,
            initializer_range=0.3,
        )
    )
    config, params = from_transformers(theirs)
    ours = ViT(config)
    ours.load_state_dict(params)
    images, labels = pixels(config), torch.tensor([0, 4, 2, 2])
    theirs.train()  # there is no dropout by default
    expected = theirs(pixel_values=images / 127.5 - 1, labels=labels)
    loss, accuracy = ours.loss(images, labels)
    assert torch.allclose(ours(images), expected.logits, atol=1e-5)
    assert loss.item() == pytest.approx(expected.loss.item(), abs=1e-5)
    assert accuracy.item() == (expected.logits.argmax(1) == labels).float().mean().item()
    expected.loss.backward()
    loss.backward()
    _, gradients = from_transformers(_with_gradients(theirs))
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradients[name], atol=1e-5), name


def _with_gradients(model: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)  # type: ignore[arg-type]
    return model


def test_shares_of_classes_are_targets_too() -> None:
    model = build(SMALL)
    images, labels = pixels(SMALL), torch.tensor([0, 4, 2, 2])
    hard, _ = model.loss(images, labels)
    soft, accuracy = model.loss(images, torch.nn.functional.one_hot(labels, 5).float())
    assert soft.item() == pytest.approx(hard.item(), rel=1e-6)
    whole = torch.tensor(4.0)
    halves = [model.loss(images[at], labels[at], divisor=whole) for at in (slice(2), slice(2, 4))]
    assert sum(half[0].item() for half in halves) == pytest.approx(hard.item(), rel=1e-5)
    assert sum(half[1].item() for half in halves) == pytest.approx(accuracy.item())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pooling": "cls"},
        {"norm": "rms", "act": "silu", "bias": False},  # the seed's
        {"bias": False, "positions": "sincos"},
        {"num_channels": 1, "image_mean": (0.1307,), "image_std": (0.3081,)},
    ],
)
def test_every_kind_comes_back_from_its_file(tmp_path: Path, fields: dict[str, object]) -> None:
    config = change(SMALL, **fields)
    model = build(config, seed=3, mimetic=True)
    path = write(config, model.params(), tmp_path / "model.gguf", "run", 1)
    again = load(path, task="images")
    assert again.config == config
    assert torch.equal(again(pixels(config)), model(pixels(config)))
    names = {name for name, _ in model.named_parameters()}
    assert any(name.endswith(".bias") for name in names) == config.bias
    trained = model.position_embd.weight.requires_grad
    assert trained == (config.positions == "learned")


def test_only_the_class_token_is_followed_through_the_last_layer() -> None:
    model = build(change(SMALL, pooling="cls"), seed=1)
    images = pixels(SMALL)
    short = model(images)
    last = model.blocks[-1]
    whole = last.forward
    last.forward = lambda x, first_only: Residual(whole(x).total()[:, :1])
    assert torch.allclose(model(images), short, atol=1e-6)


def test_the_presets_have_the_shapes_they_promise() -> None:
    tiny = PRESETS["vit-tiny"]
    assert (tiny.image_size, tiny.patch_size, tiny.d_model, tiny.n_heads, tiny.d_ff, tiny.n_layers) == (
        224,
        16,
        192,
        3,
        768,
        12,
    )
    assert [PRESETS[f"vit-tiny-{size}"].grid for size in (8, 28, 32)] == [4, 7, 8]
    assert build(preset("vit-tiny", num_classes=1000, pooling="cls"), device="meta").n_params() == 5_717_416


def test_a_new_model_guesses_evenly_and_differs_by_seed() -> None:
    images = pixels(SMALL, 64)
    for mimetic in (False, True):
        model = build(SMALL, seed=0, mimetic=mimetic)
        probabilities = model(images).softmax(1)
        assert probabilities.max() < 0.5
        assert not torch.equal(model.head.weight, build(SMALL, seed=1, mimetic=mimetic).head.weight)
        again = build(SMALL, seed=0, mimetic=mimetic).params()
        assert all(torch.equal(tensor, again[name]) for name, tensor in model.params().items())


def test_a_new_model_begins_by_toys_table() -> None:
    """Patch projection, positions and head 0.02; class token 0; the rest by what it reads; norms 1."""
    config = change(SMALL, d_model=96, n_heads=3, d_ff=192, pooling="cls", norm="rms", act="silu", bias=False)
    params = build(config, init_scale=2.0).params()
    spreads = {
        "patch_embd.weight": 0.02,
        "position_embd.weight": 0.02,
        "head.weight": 0.02,
        "blocks.0.attn_qkv.weight": 2 / 96**0.5,
        "blocks.0.attn_out.weight": 2 / 96**0.5,
        "blocks.0.ffn_up.weight": 2 / 96**0.5,
        "blocks.0.ffn_down.weight": 2 / 192**0.5,
    }
    for name, spread in spreads.items():
        assert params[name].std().item() == pytest.approx(spread, rel=0.15), name
    assert not params["class_embd"].any()
    assert all((params[name] == 1).all() for name in params if name.endswith(("ln.weight", "ln1.weight", "ln2.weight")))


def test_mimetic_attention_looks_as_trained_attention_does() -> None:
    model = build(change(SMALL, d_model=96, n_heads=3), mimetic=True)
    q, k, v = model.blocks[0].attn_qkv.weight.detach().chunk(3)
    product = v.T @ model.blocks[0].attn_out.weight.detach().T  # x → x · product
    assert torch.diagonal(product).mean().item() == pytest.approx(-0.4, abs=0.1)
    assert (product - torch.diag(torch.diagonal(product))).std().item() == pytest.approx(0.4 / 96**0.5, rel=0.1)
    alike = q[:32].T @ k[:32]
    assert torch.diagonal(alike).mean() > 0.1


def test_a_part_of_a_larger_model_is_taken_over(tmp_path: Path) -> None:
    large = build(change(SMALL, d_model=96, n_heads=6, d_ff=192, n_layers=3, image_size=24), seed=5)
    model = build(SMALL, seed=1)
    select_weights(model, large)
    wide = torch.linspace(0, 95, 48).round().long()
    assert torch.equal(model.post_ln.weight, large.post_ln.weight[wide])
    assert torch.equal(model.patch_embd.weight, large.patch_embd.weight[wide])
    assert torch.equal(model.head.weight, large.head.weight[:, wide])
    inner = torch.linspace(0, 191, 96).round().long()
    assert torch.equal(model.blocks[1].ffn_down.weight, large.blocks[1].ffn_down.weight[wide][:, inner])
    heads = [0, 2, 5]  # of six
    rows = torch.cat([torch.arange(16) + 16 * head for head in heads])
    assert torch.equal(model.blocks[0].attn_qkv.weight[48:96], large.blocks[0].attn_qkv.weight[96 + rows][:, wide])
    assert torch.equal(model.blocks[0].attn_out.weight, large.blocks[0].attn_out.weight[wide][:, rows])


def test_a_part_that_is_the_whole_is_the_same_model() -> None:
    donor = build(change(SMALL, pooling="cls"), seed=5)
    model = build(change(SMALL, pooling="cls"), seed=1)
    select_weights(model, donor)
    assert torch.equal(model(pixels(SMALL)), donor(pixels(SMALL)))
    other = build(change(SMALL, labels=tuple("vwxyz")), seed=1)
    before = other.head.weight.clone()
    select_weights(other, donor)
    assert torch.equal(other.head.weight, before)  # other classes: its head stays new


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"image_size": 13},
            "image_size 13 is no multiple of patch_size 4: choose patch_size from 1, 13, or image_size",
        ),
        ({"n_heads": 5}, "n_heads 5 does not divide d_model 48"),
        ({"labels": ("a",)}, "there are 1 labels for 5 classes"),
        ({"image_mean": (0.5,)}, "image_mean needs a number for each of 3 channels"),
        ({"num_classes": 0}, "num_classes is 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        change(SMALL, **fields)


def test_wrong_donors_images_and_files_are_refused_by_name(tmp_path: Path) -> None:
    model = build(SMALL)
    with pytest.raises(UsageError, match="the donor's d_model is 24, and 48 was asked for"):
        select_weights(model, build(change(SMALL, d_model=24)))
    with pytest.raises(UsageError, match="the donor's act is silu, and gelu was asked for; they must be equal"):
        select_weights(model, build(change(SMALL, act="silu")))
    with pytest.raises(UsageError, match="an image is 1 × 12 × 12: the model takes 3 × 12 × 12"):
        model(torch.zeros(2, 1, 12, 12))
    with pytest.raises(UsageError, match="did you mean vit-tiny-28"):
        preset("vit-tiny28")
    path = write(SMALL, model.params(), tmp_path / "model.gguf", "run", 1)
    with pytest.raises(GGUFError, match=r"expected llama or gpt2 .*, found 'vit'"):
        load(path, task="text")
    tiny = preset("tiny")
    llama = write(tiny, build(tiny).params(), tmp_path / "llama.gguf", "run", 1)
    with pytest.raises(GGUFError, match="this is no classifier of images"):
        load(llama, task="images")
