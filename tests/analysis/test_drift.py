"""How far a run moved: from its seed, its donor, its parent, or its first checkpoint where those are gone."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.analysis import drift
from linnet.analysis.beginning import Beginning, weights_of
from linnet.analysis.drift import token_drift
from linnet.errors import UsageError
from linnet.models import LlamaConfig, build
from tests.conftest import Said

QUICK: dict[str, Any] = {"eval_every": 0, "sample_every": 0}


def plain(first: torch.Tensor, now: torch.Tensor) -> tuple[float, float]:
    """Distance as a share of the first length, and cosine, of all numbers together."""
    a, b = first.double().flatten(), now.double().flatten()
    return float((b - a).norm() / a.norm()), float(a @ b / (a.norm() * b.norm()))


def test_layers_are_measured_from_the_weights_that_their_seed_gives(trained: Path) -> None:
    moved = drift("one", runs=trained)
    assert (moved.run, moved.origin, moved.steps) == ("one", "seed 0", (50, 100, 150, 200))
    assert moved.layers == ("embedding", "0", "1", "head")
    now = weights_of(trained / "one/weights/step_100.gguf")
    config = linnet.load("one@100", runs=trained).config
    assert isinstance(config, LlamaConfig)
    first = build(config, seed=0).params()
    for row, name in ((0, "token_embd."), (1, "blocks.0."), (2, "blocks.1."), (3, "output_norm.")):
        names = [key for key in first if key.startswith(name)]
        before, after = (torch.cat([weights[key].flatten() for key in names]) for weights in (first, now))
        distance, cosine = plain(before, after)
        assert moved.distances_LS[row, 1] == pytest.approx(distance, rel=1e-5)
        assert moved.cosines_LS[row, 1] == pytest.approx(cosine, rel=1e-5)
    assert (np.diff(moved.distances_LS[:, :2]) > 0).all(), "farther, while the rate is high"


def test_one_checkpoint_is_told_of_tensor_by_tensor(trained: Path) -> None:
    moved = drift("one@100", runs=trained)
    assert moved.steps == (100,)
    layers, kinds, values = moved.table()
    assert layers == ("0", "1")
    parts = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
    assert kinds == tuple(parts.split())
    first = build(linnet.load("one@100", runs=trained).config, seed=0).params()  # type: ignore[arg-type]
    now = weights_of(trained / "one/weights/step_100.gguf")
    gate = [weights["blocks.1.ffn_gate_up.weight"][:128] for weights in (first, now)]
    assert values[1, kinds.index("ffn_gate")] == pytest.approx(plain(*gate)[0], rel=1e-5)


def test_tokens_that_come_often_are_told_of_apart(trained: Path) -> None:
    moved = drift("one", runs=trained)
    assert moved.tokens is not None
    assert sum(part.tokens for part in moved.tokens.bins) == 384
    often = [part.most for part in moved.tokens.bins]
    assert often == sorted(often, reverse=True)
    assert -1 <= moved.tokens.correlation <= 1


def test_the_correlation_is_pearsons_of_log_count_and_cosine() -> None:
    draws = torch.Generator().manual_seed(0)
    first = torch.randn(50, 8, generator=draws)
    now = first + torch.randn(50, 8, generator=draws)
    counts = torch.randint(0, 20, (50,), generator=draws)
    known = token_drift(counts, now, first)
    assert known is not None
    cosine = torch.nn.functional.cosine_similarity(first, now, dim=1)
    came = counts > 0
    expected = np.corrcoef(counts[came].log().numpy(), cosine[came].numpy())[0, 1]
    assert known.correlation == pytest.approx(expected, abs=1e-5)
    assert known.bins[-1].most == 0, "those that never came are the last bin"


def test_a_warm_start_is_measured_from_what_its_donor_gave(trained: Path, corpus: Path, tmp_path: Path) -> None:
    donor = tmp_path / "donor.gguf"
    shutil.copy(trained / "one/weights/step_200.gguf", donor)
    shape = {"d_model": 32, "n_layers": 1, "init": "select"}
    linnet.train("warm-start", donor=donor, corpus=corpus, run_id="warm", steps=2, ctx=24, **shape, **QUICK)
    run = linnet.open("warm")
    beginning = Beginning.of(run)
    assert beginning.origin.startswith("the donor ")
    moved = drift("warm")
    assert moved.origin == beginning.origin
    assert moved.distances_LS[1, -1] < 0.2, "two steps lead not far"
    fresh = build(linnet.load("warm").config, seed=0).params()  # type: ignore[arg-type]
    assert not torch.allclose(beginning.weights["token_embd.weight"], fresh["token_embd.weight"])
    donor.unlink()
    gone = drift("warm")
    assert gone.origin == "step 1, its first checkpoint; what it began with is gone"


def test_a_fork_is_measured_from_the_checkpoint_it_began_with(trained: Path, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "one", tmp_path / "runs/one", symlinks=True)
    linnet.train(from_="one@100", steps=2, run_id="fork", corpus=corpus, **QUICK)
    moved = drift("fork")
    assert (moved.origin, moved.steps) == ("one@100", (102,))
    files = ("one/weights/step_100.gguf", "fork/weights/step_102.gguf")
    first, now = (weights_of(tmp_path / "runs" / file) for file in files)
    distance, _ = plain(first["token_embd.weight"], now["token_embd.weight"])
    assert moved.distances_LS[0, -1] == pytest.approx(distance, rel=1e-5)
    assert moved.distances_LS[0, -1] < 0.1


def test_a_run_that_kept_its_first_weights_is_measured_from_them(trained: Path, corpus: Path, tmp_path: Path) -> None:
    donor = trained / "one/weights/step_200.gguf"
    shape = {"d_model": 32, "n_layers": 1, "init": "select", "ctx": 24, "inspect": "drift@1"}
    linnet.train("warm-start", donor=donor, corpus=corpus, run_id="kept", steps=2, **shape, **QUICK)
    moved = drift("kept@2")
    events = [event.data for event in linnet.open("kept").events().read_events() if event.kind == "drift"]
    logged = {data["param"]: data["cos_to_init"] for data in events if data["step"] == 2 and "head" not in data}
    tensors = {one.tensor: one.cosine for one in moved.tensors}
    for name in ("blk.0.attn_q.weight", "blk.0.ffn_down.weight"):
        assert tensors[name] == pytest.approx(logged[name], abs=1e-6), "the same figure that the run logged itself"


def test_vision_transformers_have_layers_too(classifiers: Path) -> None:
    moved = drift("one", runs=classifiers)
    assert moved.layers == ("embedding", "0", "1", "head")
    assert np.isfinite(moved.distances_LS).all()
    assert moved.tokens is None


def test_a_file_of_no_run_has_no_beginning(smollm2: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkpoint of a run, so nobody knows where it began"):
        drift(smollm2)
    without_weights = shutil.ignore_patterns("step_*.gguf", "latest", "best")
    shutil.copytree(trained / "one", tmp_path / "runs/one", ignore=without_weights)
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        drift("one")


def test_the_command_shows_layers_over_steps(trained: Path, tmp_path: Path, said: Said) -> None:
    _, out, _ = said("drift", "one", "--runs", str(trained))
    lines = out.splitlines()
    assert lines[0] == "one: distance from seed 0"
    assert lines[1].split() == ["layer", "50", "100", "150", "200"]
    assert [line.split()[0] for line in lines[2:6]] == ["embedding", "0", "1", "head"]
    assert "log frequency against cosine: r = " in out
    assert max(map(len, lines[:7])) <= 100
    _, out, _ = said("drift", "one", "--runs", str(trained), "--json")
    fields = json.loads(out)
    assert [round(100 * value) for value in fields["distance"][1]] == list(map(int, lines[3].split()[1:]))
    assert all(math.isfinite(one["cosine"]) for one in fields["tensors"])
    shutil.copytree(trained / "one", tmp_path / "runs/one", symlinks=True)
    assert said("drift", "one@100", "--record")[0] == 0
    run = linnet.open("one")
    note = [event.data["text"] for event in run.events().read_events() if event.kind == "note"][-1]
    assert note.startswith("drift: at step 100 layer ")
    assert [artifact.label for artifact in run.artifacts("drift")] == ["drift@100"]
