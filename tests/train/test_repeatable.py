"""`--deterministic`, on a machine without a GPU: what it is to a run, and what it refuses.

The same bits themselves are tested where there is a GPU (`tests/kernels/test_on_a_gpu.py`), and by
`bench/deterministic.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.cli import main
from linnet.errors import UsageError
from linnet.models import LlamaConfig, build
from linnet.train.hardware import choose
from linnet.train.repeatable import refuse_unordered
from linnet.train.settings import TrainSettings
from linnet.train.step import Step

SMALL: dict[str, Any] = {"preset": "tiny", "vocab": 384, "batch": 4, "steps": 2, "sample_every": 0, "eval_every": 0}


def test_the_flag_changes_no_bit_on_a_cpu_and_is_kept_with_the_run(corpus: Path, tmp_path: Path) -> None:
    words = f"train from-scratch --corpus {corpus} --preset tiny --vocab 384 --batch 4 --steps 2 --sample-every 0"
    for run_id, flags in (("asked", ["--deterministic"]), ("plain", [])):
        assert main([*words.split(), "--eval-every", "0", "--runs", str(tmp_path), "--run-id", run_id, *flags]) == 0
    asked, plain = linnet.open(tmp_path / "asked"), linnet.open(tmp_path / "plain")
    assert asked.manifest.config["deterministic"] is True and "deterministic" not in plain.manifest.config
    assert asked.metrics()["loss"].value.tolist() == plain.metrics()["loss"].value.tolist()
    assert linnet.resume(asked, steps=3).status == "completed"


def test_a_loss_of_ones_own_with_an_unordered_operation_ends_the_run_in_a_line(corpus: Path, tmp_path: Path) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        mean: Tensor = model.loss(*batch.inputs)
        return mean + torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([0.0, 0.0])).sum()

    linnet.train(corpus=corpus, loss=loss, runs=tmp_path, run_id="free", **SMALL)
    with pytest.raises(UsageError, match=r"^`deterministic`: put_ has no form that gives the same bits every time; l"):
        linnet.train(corpus=corpus, loss=loss, runs=tmp_path, run_id="strict", deterministic=True, **SMALL)
    assert linnet.open(tmp_path / "strict").status == "errored"


def test_more_gpus_than_two_need_an_order_that_they_can_share() -> None:
    settings = TrainSettings(device="cpu", batch=2, deterministic=True)
    config = LlamaConfig(vocab=32, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=8)
    for count, rows, possible in ((2, 6, True), (4, 8, True), (3, 12, False), (4, 12, False)):
        ranks: Any = SimpleNamespace(count=count, rank=0, alone=False)
        hardware = replace(choose(settings, 16), device=torch.device("cuda"), graph=False, ranks=ranks)
        step = Step(build(config), settings, hardware)
        if possible:
            assert step.order(rows).exact is (count > 2)
        else:
            with pytest.raises(
                UsageError, match=f"^`deterministic`: {count} GPUs have no fixed order to add up {rows}"
            ):
                step.order(rows)


def test_an_operation_without_an_order_is_refused_in_a_line_and_only_then() -> None:
    def unordered() -> torch.Tensor:
        return torch.zeros(4).put_(torch.tensor([1, 1]), torch.tensor([2.0, 3.0]))

    with refuse_unordered(False):
        unordered()
    words = r"^`deterministic`: put_ has no form that gives the same bits every time; "
    with pytest.raises(UsageError, match=words), refuse_unordered(True):
        unordered()
    unordered()
    with pytest.raises(RuntimeError, match=r"^out of ideas$"), refuse_unordered(True):
        raise RuntimeError("out of ideas")
    assert not torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory


def test_a_program_that_used_the_gpu_before_is_told_what_to_set() -> None:
    told = (
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or …, but this"
        " operation is not deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable deterministic"
        " behavior in this case, you must set an environment variable before running your PyTorch application:"
        " CUBLAS_WORKSPACE_CONFIG=:4096:8 or CUBLAS_WORKSPACE_CONFIG=:16:8."
    )
    with pytest.raises(UsageError, match=r"start Python with CUBLAS_WORKSPACE_CONFIG=:4096:8$"), refuse_unordered(True):
        raise RuntimeError(told)
