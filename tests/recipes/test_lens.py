"""The lens: principal axes held against numpy's, rows of a fitting size, folded at every checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linnet import gguf
from linnet.gguf import read_lens
from linnet.models import LlamaConfig, build, put_lens
from linnet.models.initial import EMBEDDING_STD
from linnet.models.lens import SEEN_STD
from linnet.recipes.donor import Donor, principal_axes
from tests.conftest import Said
from tests.recipes.conftest import warmed


def test_axes_are_those_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    spread = np.array([9.0, 5.0, 3.0, 1.0, 0.5, 0.1])
    turn, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    table = ((rng.standard_normal((9000, 6)) * spread) @ turn.T + 4.0).astype(np.float32)
    axes = principal_axes(table, 3)
    variances = np.linalg.eigvalsh(np.cov(table.T.astype(np.float64)))[::-1]
    assert axes.explained == pytest.approx(variances[:3].sum() / variances.sum(), abs=1e-9)
    assert np.allclose(axes.proj_DW @ axes.proj_DW.T, np.eye(3), atol=1e-6)
    for number in range(3):  # the axes the table was made with, but for their sign
        assert abs(axes.proj_DW[number] @ turn[:, number]) == pytest.approx(1, abs=1e-2)
    assert np.allclose(axes.mean_W, table.mean(0), atol=1e-4)


def test_the_axes_of_smollm2_take_seconds_and_little_memory(smollm2: Path) -> None:
    program = f"""
import resource, time
from linnet.recipes.donor import Donor, principal_axes
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with Donor({str(smollm2)!r}) as donor:
    began = time.process_time()
    axes = principal_axes(donor.embedding, 256)
    print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, axes.explained)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, kilobytes, explained = map(float, done.stdout.split())
    assert seconds < 10
    assert kilobytes < 1_000_000
    assert explained == pytest.approx(0.661, abs=1e-3)


def test_smollm2s_table_is_read_in_a_second(smollm2: Path) -> None:
    with Donor(smollm2) as donor:
        began = time.process_time()
        table = donor.table(49152)
        assert time.process_time() - began < 1
    assert table.shape == (49152, 576)


@pytest.mark.parametrize("init", ["pca", "warm"])
def test_the_rows_that_are_seen_are_centred_and_every_dimension_has_the_same_spread(trained: Path, init: str) -> None:
    recipe = warmed(trained, init, d_model=64, n_layers=1)
    recipe.build()
    seen = folded(recipe.model)
    assert torch.allclose(seen.mean(0), torch.zeros(64), atol=3e-3)
    assert torch.allclose(seen.square().mean(0).sqrt(), torch.full((64,), SEEN_STD), rtol=1e-3)
    assert float(seen.norm(dim=1).square().mean()) == pytest.approx(64 * SEEN_STD**2, rel=1e-3)


def test_the_head_begins_as_those_rows_with_the_size_of_a_fresh_head(trained: Path) -> None:
    recipe = warmed(trained, "pca", d_model=64, n_layers=1)
    recipe.build()
    head, fresh = recipe.model.head_VD.detach(), build(recipe.model.config, seed=1).head_VD.detach()
    assert torch.allclose(head * (SEEN_STD / EMBEDDING_STD), folded(recipe.model), atol=3e-3)
    assert float(head.std()) == pytest.approx(float(fresh.std()), rel=0.02)


def test_without_rescale_it_is_the_donors(trained: Path) -> None:
    recipe = warmed(trained, "pca", d_model=64, n_layers=1, options={"rescale": False})
    recipe.build()
    with Donor(trained) as donor:
        table = donor.table()
    expected = table @ principal_axes(table, 64).proj_DW.T
    assert np.allclose(folded(recipe.model).numpy(), expected, atol=1e-5)


def test_only_the_lens_learns_unless_the_table_is_trained_too() -> None:
    config = LlamaConfig(vocab=40, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=16, tied=False)
    for trains in (False, True):
        model = build(config)
        put_lens(model, 24, seed=0, train_table=trains)
        ids = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(0))
        model.loss(ids[:, :-1], ids[:, 1:]).backward()  # type: ignore[no-untyped-call]
        assert model.lens is not None
        assert model.lens.proj.weight.grad is not None
        assert (model.token_embd.weight.grad is not None) is trains
        assert model.n_params() == sum(p.numel() for p in model.parameters()) - (0 if trains else 40 * 24)


@pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0"])
def test_a_checkpoint_holds_the_folded_embedding_and_no_lens(trained: Path, tmp_path: Path, kind: str) -> None:
    recipe = warmed(trained, "pca", d_model=64, n_layers=1)
    recipe.build()
    path = gguf.write(recipe.model.config, recipe.parameters(), tmp_path / "m.gguf", "r", 0, type=kind)
    with gguf.GGUFFile.open(path) as file:
        assert "lens.proj.weight" not in file.tensors
        written = file.tensors["token_embd.weight"].read()
    assert written.shape == (512, 64)
    assert np.allclose(written, folded(recipe.model).numpy(), atol={"f32": 1e-4, "bf16": 5e-2, "q8_0": 0.1}[kind])


def test_the_command_writes_toys_lens_file_and_a_run_uses_it(
    said: Said, trained: Path, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "lens.gguf"
    code, out, err = said("lens", str(trained), "--d-model", "48", "--out", str(path))
    assert code == 0, err
    assert "512 rows, 96 → 48 wide, " in out and "of their variance explained" in out
    with gguf.GGUFFile.open(path) as file:
        assert list(file.metadata.items()) == [
            ("general.architecture", "lens"),
            ("lens.donor_d_in", 96),
            ("lens.d_model", 48),
            ("lens.donor_source", trained.name),
        ]
        assert file.tensors["lens.proj.weight"].shape == (48, 96)
    latest = tmp_path / "of-a-link.gguf"
    assert said("lens", str(trained.with_name("latest")), "--d-model", "48", "--out", str(latest))[0] == 0
    assert read_lens(latest).donor_source == f"{trained.parent.parent.name}/{trained.name}"
    assert said("lens", str(trained), "--d-model", "48", "--out", str(path))[0] == 2
    code, out, _ = said("lens", str(trained), "--d-model", "48", "--out", str(path), "--force", "--json")
    assert json.loads(out)["explained_variance"] > 0.5
    code, _, err = said("lens", str(trained), "--d-model", "97", "--out", str(tmp_path / "wide.gguf"))
    assert code == 2
    assert "choose --d-model 96 or less" in err
    assert not (tmp_path / "wide.gguf").exists()
    words = ["train", "warm-start", "--donor", str(trained), "--d-model", "48", "--n-layers", "1", "--steps", "1"]
    code, out, err = said(*words, "--lens", str(path), "--init", "warm", "--corpus", str(corpus), "--ctx", "32")
    assert code == 0, err
    assert "lens.gguf" in out


def folded(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.token_embd.weight @ model.lens.proj.weight.T  # type: ignore[no-any-return]
