from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.models import LlamaConfig
from linnet.recipes import Job, TextData, start
from linnet.recipes.donor import Donor
from linnet.recipes.transfer import Init, shape_from
from linnet.recipes.warm_start import WarmStart
from linnet.train import TrainSettings
from linnet.train.hardware import choose
from tests.conftest import made_once
from tests.train.conftest import _away_from_home as _away_from_home

CPU = choose(TrainSettings(device="cpu"), tokens=64)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """A small donor of a real shape (grouped keys, tied head), trained from scratch until it has learnt something."""
    model = LlamaConfig(vocab=512, d_model=96, n_heads=6, n_kv=2, d_ff=192, n_layers=6, ctx=64, rope_base=5e4)
    settings = TrainSettings(
        steps=120, batch=8, optimizer="adamw", lr=5e-3, weight_decay=0.1, eval_every=0, sample_every=0, device="cpu"
    )
    job = Job(model, TextData(str(corpus), cache=str(cache)), settings)

    def train(folder: Path) -> None:
        outcome = start(job, runs_root=folder, run_id="donor", name="the donor").run()
        assert outcome.progress.loss < 5, "chance is 6.2"

    return made_once(tmp_path_factory, "donor", train) / "donor/weights/step_120.gguf"


def warmed(donor: Path, init: str, *, options: dict[str, Any] | None = None, **shape: Any) -> WarmStart:
    """The recipe with the donor's values in it, not yet built."""
    with Donor(donor) as opened:
        config = shape_from(opened.config, Init.parse(init), **shape)
        width = opened.width
    recipe = WarmStart(TrainSettings(device="cpu"), CPU, init=init, **(options or {}))
    recipe.realize_scratch(config, donor_d_in=width if recipe.init.has_lens else 0)
    recipe.realize_warm(donor)
    return recipe
