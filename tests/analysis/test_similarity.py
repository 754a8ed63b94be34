"""CKA: one of a model with itself, near nothing of layers that have nothing in common, the same by the textbook."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import linnet
from linnet.analysis import cka, cka_matrix, linear_cka
from linnet.analysis.checkpoint import Checkpoint
from linnet.analysis.held_out import probe_text
from linnet.analysis.similarity import Similarity, layer_values
from linnet.cli.cka import sentence
from linnet.errors import UsageError
from linnet.models import LlamaConfig, build
from tests.analysis.test_alignment import shuffled
from tests.conftest import Said


def textbook(x_NP: Tensor, y_NQ: Tensor) -> float:
    """Song et al. 2012, equation 5: Gram matrices without their diagonals, matrix by matrix."""
    n = len(x_NP)
    ones = torch.ones(n, dtype=torch.float64)

    def hsic(one_NN: Tensor, other_NN: Tensor) -> Tensor:
        a, b = (gram.clone().fill_diagonal_(0) for gram in (one_NN, other_NN))
        middle = (ones @ a @ ones) * (ones @ b @ ones) / ((n - 1) * (n - 2))
        return (torch.trace(a @ b) + middle - 2 / (n - 2) * (ones @ a @ b @ ones)) / (n * (n - 3))

    x, y = (values.double() @ values.double().T for values in (x_NP, y_NQ))
    return float(hsic(x, y) / (hsic(x, x) * hsic(y, y)).sqrt())


def test_it_is_the_textbooks_unbiased_estimate() -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(40, 12, generator=draws) + 5
    y = x[:, :6] @ torch.randn(6, 20, generator=draws) + torch.randn(40, 20, generator=draws)
    assert linear_cka(x, y) == pytest.approx(textbook(x, y), abs=1e-5)
    assert 0.2 < linear_cka(x, y) < 0.9


def test_layers_are_alike_whatever_the_order_rotation_and_size_of_their_channels() -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, generator=draws)
    rotation, _ = torch.linalg.qr(torch.randn(16, 16, generator=draws))
    for same in (x, x[:, torch.randperm(16, generator=draws)], 100 * x @ rotation + 3):
        assert linear_cka(x, same) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("samples", [32, 256])
def test_layers_with_nothing_in_common_are_near_zero_however_few_the_samples(samples: int) -> None:
    """The usual estimate says 0.9 of 32 samples and 256 channels."""
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, samples, 256, generator=draws).unbind()
    assert abs(linear_cka(x, y)) < 0.1


def test_a_model_is_like_itself_and_like_itself_with_its_units_in_other_places(trained: Path) -> None:
    similarity = cka("one", runs=trained)
    assert similarity.rows == similarity.columns == ("embd", "0", "1")
    assert np.diagonal(similarity.values_RC) == pytest.approx(1, abs=1e-5)
    assert similarity.values_RC == pytest.approx(similarity.values_RC.T, abs=1e-5)
    model = linnet.load("one", runs=trained)
    ids = [torch.arange(32)[None] % 384, torch.arange(100, 132)[None]]
    before = layer_values(model, ids, "ffn_act", 64)
    parameters = dict(model.module.named_parameters())
    moved = shuffled(model.config, {name: value.detach().clone() for name, value in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(moved[name])
    after = layer_values(model, ids, "ffn_act", 64)
    for region, values in before.items():
        assert not torch.allclose(values, after[region])
        assert linear_cka(values, after[region]) == pytest.approx(1, abs=1e-4)


def test_a_trained_model_is_little_like_a_fresh_one_and_more_like_one_of_another_seed(trained: Path) -> None:
    text = cka("one@200", "two@200", runs=trained)
    own = Checkpoint.find("one@200", trained)
    fresh = linnet.load(own.path)
    config = fresh.config
    assert isinstance(config, LlamaConfig)
    fresh.module.load_state_dict(build(config, seed=9).state_dict())
    probe = probe_text(own)
    windows = [torch.from_numpy(probe.window(begin, 32))[None] for begin in range(0, 512, 32)]
    layers = [layer_values(model, windows, "resid_post_block", 512) for model in (linnet.load(own.path), fresh)]
    beside_fresh = np.diagonal(cka_matrix(list(layers[0].values()), list(layers[1].values())))
    assert beside_fresh[-1] < 0.6 * np.diagonal(text.values_RC)[-1]
    assert beside_fresh[-1] < 0.4


def test_models_of_other_widths_and_depths_are_compared(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    shape = {"preset": "tiny", "d_model": 32, "n_heads": 2, "n_kv": 2, "n_layers": 3, "ctx": 24}
    tokenizer = trained / "one/weights/step_200.gguf"
    quick = {"steps": 2, "eval_every": 0, "sample_every": 0, "runs": tmp_path / "runs"}
    linnet.train(corpus=corpus, cache=cache, tokenizer=tokenizer, run_id="narrow", **shape, **quick)
    similarity = cka(tmp_path / "runs/narrow", tokenizer, region="ffn_out", samples=200)
    assert (similarity.rows, similarity.columns) == (("0", "1", "2"), ("0", "1"))
    assert similarity.samples == 200
    assert similarity.source == "the held-out text of narrow"


def test_vision_transformers_are_shown_images(classifiers: Path) -> None:
    similarity = cka("one", "two", runs=classifiers, samples=256)
    assert (similarity.unit, similarity.source, similarity.samples) == ("patches", "digits", 256)
    assert similarity.values_RC.shape == (3, 3)


def test_class_tokens_are_one_an_image(corpus: Path, classifiers: Path, tmp_path: Path) -> None:
    shape = {"preset": "vit-tiny-8", "d_model": 24, "n_layers": 2, "d_ff": 48, "batch": 32, "pooling": "cls"}
    linnet.train("vit-tiny", run_id="cls", steps=2, eval_every=0, **shape)
    similarity = cka("cls", region="class_token", samples=128)
    assert (similarity.unit, similarity.samples, similarity.rows) == ("images", 128, ("0", "1"))
    with pytest.raises(UsageError, match="one@20 has no class token"):
        cka("cls", classifiers / "one", region="class_token")
    for given in ({"corpus": str(corpus)}, {"text": "x"}):
        with pytest.raises(UsageError, match=r"tells images apart: `.*` says nothing to it"):
            cka("cls", **given)  # type: ignore[arg-type]


def test_a_file_of_no_run_is_shown_the_built_in_library(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes((trained / "one/weights/step_200.gguf").read_bytes())
    assert cka(file, samples=64).source == "Python's library"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": "ffn_in"}, "no region 'ffn_in'; did you mean"),
        ({"samples": 4}, "`samples` is from 16 to 8,192, found 4"),
        ({"text": "too short"}, "to compare layers by them it takes 16 or more"),
        ({"text": "x", "corpus": "y"}, "both say what the model is shown"),
        ({"text": ""}, "the text has 0 tokens"),
        ({"images": "digits"}, "is a model of text: `images` says nothing to it"),
        ({"region": "class_token"}, "one@200 has no class token: choose another `region`"),
    ],
)
def test_what_cannot_be_compared_is_an_error_in_one_line(
    trained: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        cka("one", runs=trained, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_models_of_other_tokens_or_of_images_are_not_compared(trained: Path, classifiers: Path, smollm2: Path) -> None:
    with pytest.raises(UsageError, match="other tokens"):
        cka("one", smollm2, runs=trained)
    with pytest.raises(UsageError, match="do different things"):
        cka("one", classifiers / "one", runs=trained)


def test_of_what_is_not_finite_the_command_says_so(trained: Path, tmp_path: Path, said: Said) -> None:
    one, broken = trained / "one/weights/step_200.gguf", tmp_path / "broken.gguf"
    norm: Tensor = linnet.load(one).module.get_parameter("blocks.1.attn_norm.weight").detach()
    weights = one.read_bytes()
    assert weights.count(norm.numpy().tobytes()) == 1
    broken.write_bytes(weights.replace(norm.numpy().tobytes(), np.full(len(norm), np.nan, np.float32).tobytes()))
    options = ("--samples", "64", "--text", "import json\n" * 40)
    assert "the largest change is from embd to 0" in said("cka", str(broken), *options)[1], "what is finite is told of"
    code, out, _ = said("cka", str(broken), *options, "--region", "attn_norm")
    assert code == 0 and "activations are not finite" in out
    assert "layers with the same number" in said("cka", str(one), str(broken), *options)[1]
    code, _, err = said("lmc", str(one), str(broken), "--tokens", "64")
    assert (code, err) == (2, "linnet: the loss of broken.gguf is not finite: it lies on no line with another model\n")


def test_of_one_layer_there_is_nothing_to_compare() -> None:
    alone = Similarity("a", "a", ("0",), ("0",), np.ones((1, 1)), "attn_out", 64, "tokens", "text")
    assert sentence(alone) == "a has one layer of this, and nothing to compare it with"
    nothing = replace(alone, b="b", columns=("0", "1"), values_RC=np.full((1, 2), np.nan))
    assert sentence(nothing) == "a and b: activations are not finite, or all the same: no layer is like another"


def test_the_command_shows_numbers_that_can_be_read_without_colour(trained: Path, tmp_path: Path, said: Said) -> None:
    _, out, _ = said("cka", "one@50", "one@200", "--runs", str(trained))
    lines = out.splitlines()
    assert lines[0] == "CKA of one@50 and one@200"
    assert lines[1].split() == ["layer", "embd", "0", "1"]
    values = [list(map(int, line.split()[1:])) for line in lines[2:5]]
    _, out, _ = said("cka", "one@50", "one@200", "--runs", str(trained), "--json")
    fields = json.loads(out)
    assert values == [[round(100 * value) for value in row] for row in fields["cka"]]
    assert fields["estimate"] == "unbiased"
    picture = tmp_path / "cka.svg"
    _, out, _ = said("cka", "one@50", "one@200", "--runs", str(trained), "--out", str(picture))
    assert "CKA of one@50 and one@200" in picture.read_text()
