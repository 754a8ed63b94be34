"""The rule of learning rates: what is derived, printed and kept; what a resume, a fork and a given rate make of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.architectures import preset
from linnet.models import build
from linnet.recipes.fork import ForkPoint
from linnet.recipes.job import Job
from linnet.train import rates
from linnet.train.optim import Optimizers
from linnet.train.settings import TrainSettings
from tests.conftest import Said

TINY: dict[str, Any] = {
    "preset": "tiny",
    "vocab": 384,
    "batch": 2,
    "sample_every": 0,
    "eval_every": 0,
    "device": "cpu",
}


def manifest(name: str = "a") -> Any:
    return json.loads(Path(f"runs/{name}/run.json").read_text())


def test_a_run_without_a_rate_says_and_keeps_the_one_it_took(corpus: Path, said: Said) -> None:
    words = "train from-scratch --preset tiny --vocab 384 --batch 2 --sample-every 0 --eval-every 0 --steps 4"
    code, out, _ = said(*words.split(), "--corpus", str(corpus), "--run-id", "a")
    config, plan = manifest()["config"], manifest()["plan"]
    expected = rates.settled(TrainSettings(steps=4), preset("tiny"), tokens=2 * 32)
    assert code == 0 and config["optimizer"] == "muon"
    assert {name: config[name] for name in expected.rates()} == expected.rates() == plan["rates"]
    line = next(line for line in out.splitlines() if line.startswith("rate  muon "))
    assert float(line.split()[2]) == expected.top_lr and line.endswith(f"decay {expected.weight_decay:.3g}")
    start = next(event.data for event in linnet.open("a").events().read_events() if event.kind == "run_start")
    assert start["schedule"]["lr_max"] == start["chosen"]["lr"] == expected.lr
    assert start["chosen"]["lr_embedding"] == expected.lr_embedding
    assert f"  rates       {line.removeprefix('rate  ')}\n" in said("show", "a")[1]


def test_a_resumed_run_goes_on_with_the_rates_it_had(corpus: Path) -> None:
    run = linnet.train(corpus=corpus, **TINY, steps=4, run_id="a")
    before = Job.from_fields(run.manifest.model, run.manifest.config, "from-scratch").settings.rates()
    linnet.resume("a", steps=400)  # by which the rule would give others
    assert Job.from_fields(manifest()["model"], manifest()["config"]).settings.rates() == before


def test_a_run_from_before_the_rule_has_one_rate_for_all() -> None:
    old = {"steps": 10, "lr": 1e-3, "optimizer": "muon", "weight_decay": 0.1, "corpus": "x"}
    settings = Job.from_fields({"arch": "llama", **vars(preset("tiny"))}, old).settings
    assert settings.rates() == {"lr": 1e-3, "weight_decay": 0.1}
    assert set(rates.shares(settings).values()) == {1.0}
    assert settings.muon_norm is None and settings.momentum_warmup is None  # which the optimizer takes as it was


def test_a_fork_with_another_rate_keeps_the_proportions(corpus: Path) -> None:
    linnet.train(corpus=corpus, **TINY, steps=4, run_id="a", lr=1e-3, lr_embedding=4e-3)
    fork = ForkPoint.find("a")
    assert fork.job("from-scratch", {"steps": 2, "lr": 5e-4}).settings.lr_embedding == pytest.approx(2e-3)
    plain = fork.job("from-scratch", {"steps": 2, "optimizer": "adamw"}).settings
    assert plain.rates() == {}  # by the rule of AdamW, once the data are read
    linnet.train(from_="a", steps=2, optimizer="adamw", run_id="b")
    expected = rates.settled(TrainSettings(optimizer="adamw", steps=2), preset("tiny"), tokens=2 * 32)
    assert manifest("b")["config"]["lr"] == expected.lr


def test_a_given_rate_is_that_of_the_matrices_and_the_others_follow() -> None:
    model = preset("nano", tied=False)
    free = rates.settled(TrainSettings(), model, 16_384)
    given = rates.settled(TrainSettings(lr=2 * free.top_lr), model, 16_384)
    for name, rate in given.rates().items():
        factor = 1 if name == "weight_decay" else 2
        assert rate == pytest.approx(factor * free.rates()[name], rel=0.05), name  # two digits
    stated = TrainSettings(lr=1e-3, lr_embedding=1e-2, lr_head=1e-4, lr_vectors=1e-5, weight_decay=0.0)
    stated = replace(stated, muon_norm="rms", momentum_warmup=0)
    assert rates.settled(stated, model, 16_384) == stated
    assert "lr_head" not in rates.settled(TrainSettings(), preset("nano"), 16_384).rates()  # it has no head of its own


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_rule_is_smooth_and_bounded_from_1m_to_360m(optimizer: Any) -> None:
    for name in ("tiny", "micro", "demo", "nano", "small", "smollm2-135m", "smollm2-360m"):
        for tokens in (1, 2_048, 16_384, 131_072, 524_288, 10**9):
            for steps in (1, 100, 1_000, 100_000):
                settings = TrainSettings(optimizer=optimizer, steps=steps)
                found = rates.settled(settings, preset(name), tokens).rates()
                assert all(1e-5 < rate < 0.1 for key, rate in found.items() if key != "weight_decay"), (name, found)
                assert 0 < found["weight_decay"] < 5


def test_wider_models_and_longer_trainings_take_lower_rates() -> None:
    narrow, wide = (rates.derive("muon", width, 16_384, 1_000).matrix for width in (192, 768))
    short, long = (rates.derive("muon", 384, 16_384, steps).matrix for steps in (500, 8_000))
    few, many = (rates.derive("muon", 384, tokens, 1_000).matrix for tokens in (4_096, 65_536))
    assert narrow > wide and short > long and few < many


def test_a_model_that_is_all_a_donors_is_moved_less() -> None:
    model, settings = preset("demo"), TrainSettings()
    new, old = (rates.settled(settings, model, 4_096, pretrained=known).top_lr for known in (False, True))
    assert old == pytest.approx(rates.PRETRAINED * new, rel=0.05)


@pytest.mark.parametrize("bias_correction", ["usual", "seed"])
def test_each_kind_of_parameter_moves_by_its_own_rate(bias_correction: Any) -> None:
    config = replace(preset("tiny", vocab=50), tied=False)
    settings = TrainSettings(
        optimizer="adamw", lr=1e-3, lr_embedding=8e-3, lr_head=2e-3, lr_vectors=4e-3, weight_decay=0.0, clip=0,
        bias_correction=bias_correction,
    )  # fmt: skip
    model = build(config)
    before = {name: tensor.clone() for name, tensor in model.params().items()}
    optimizers = Optimizers(model.named_parameters(), settings)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.set_lr(5e-4)  # half of the highest: so are the others
    optimizers.step()
    usual = 1.0 if bias_correction == "usual" else 0.9 * 0.1 / math.sqrt(0.95 * 0.05)
    wanted = {"token_embd.weight": 4e-3, "output.weight": 1e-3, "output_norm.weight": 2e-3}
    for name, tensor in model.params().items():
        moved = (before[name] - tensor).mean().item()
        rate = wanted.get(name, 2e-3 if tensor.ndim < 2 else 5e-4)
        assert moved == pytest.approx(rate * usual, rel=1e-3), name


@pytest.mark.parametrize("name", ["lr", "lr_embedding", "lr_head", "lr_vectors", "weight_decay"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_rates_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(linnet.LinnetError, match=f"`{name}` must be"):
        TrainSettings(**{name: value})


def test_settings_without_a_rate_have_no_schedule() -> None:
    with pytest.raises(linnet.LinnetError, match="`lr` is not known before a training starts"):
        TrainSettings().learning_rate(0)
