"""What a training loop writes is what stands in the folder."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.runs import RunBundle
from linnet.runs.owned_folder import OwnedFolder
from tests.runs.conftest import lines_of


@dataclass(frozen=True)
class Llama:
    vocab: int = 627
    d_model: int = 64
    n_layers: int = 2
    ctx: int = 32


@dataclass(frozen=True)
class Vit:
    image_size: int = 28
    patch_size: int = 4
    d_model: int = 192
    n_layers: int = 12
    num_classes: int = 10


def test_the_ten_line_loop_leaves_a_complete_folder(root: Path) -> None:
    with linnet.start(arch="mlp", config={"lr": 0.1}, total_steps=3) as run:
        for step in range(1, 4):
            run.log(step, loss=1 / step, lr=0.1)
    manifest = json.loads((run.run_dir / "run.json").read_text())
    assert manifest["run_id"] == run.run_id == run.run_dir.name
    assert manifest["config"] == {"lr": 0.1}
    kinds = [line["kind"] for line in lines_of(run.run_dir) if line["kind"] != "system"]
    assert kinds == ["run_start", "step", "step", "step", "run_end"]
    end = lines_of(run.run_dir)[-1]
    assert (end["reason"], end["final_step"], end["exit_code"]) == ("completed", 3, 0)
    assert end["final_loss"] == 1 / 3


def test_run_start_has_toys_fields_in_toys_order(root: Path) -> None:
    bundle = RunBundle(root, "llama-1")
    bundle.git("0" * 40, "main")
    bundle.run_start_llama(Llama(), steps=5, lr=1e-3, seed=0)
    bundle.run_end(5, 6.1)
    start = lines_of(root / "llama-1")[0]
    wanted = "kind schema t started_at run_id phase host backend git model config"
    assert list(start) == wanted.split()
    assert start["schema"] == "toy/v1"
    assert start["model"] == {"arch": "llama", "vocab": 627, "d_model": 64, "n_layers": 2}
    assert start["config"] == {"context": 32, "steps": 5, "lr": 1e-3, "seed": 0}
    assert start["git"]["sha"] == "0" * 40
    assert set(start["host"]) == {"name", "os", "arch"}


def test_what_was_chosen_for_a_run_stands_in_its_first_event_and_in_every_resume(root: Path) -> None:
    schedule = {"lr_max": 3e-4, "lr_min": 3e-5, "warmup": 10, "n_steps": 100}
    details = {"schedule": schedule, "chosen": {"dtype": "bf16", "threads": 2}, "cost": {"total_params": 627}}
    with linnet.start(run_id="a", compare_to="base", system_every=0, **details) as run:  # type: ignore[arg-type]
        run.log(1, loss=1.0)
    with linnet.start(resume="a", chosen={"dtype": "float32"}, system_every=0) as run:
        run.log(2, loss=0.5)
    lines = lines_of(root / "a")
    assert {name: lines[0][name] for name in details} == details
    assert lines[0]["compare_to"] == "base"
    again = next(line for line in lines if line["kind"] == "resume")
    assert again["chosen"] == {"dtype": "float32"}
    assert "schedule" not in again


def test_run_start_of_a_vit_has_the_image_and_no_context(root: Path) -> None:
    bundle = RunBundle(root, "vit-1")
    bundle.run_start_vit(Vit(), steps=5, lr=1e-3, seed=0)
    bundle.run_end(5, 0.1)
    start = lines_of(root / "vit-1")[0]
    assert start["model"]["image_size"] == 28
    assert start["model"]["num_classes"] == 10
    assert "vocab" not in start["model"]
    assert "context" not in start["config"]


def test_every_kind_of_toy_v1_has_a_method(root: Path) -> None:
    run = RunBundle(root, "all")
    run.run_start("llama", 627, 64, 2, 32, 5, 1e-3, 0, schedule={"lr_max": 1e-3, "warmup": 2}, name="all kinds")
    run.step(1, 6.4, lr=1e-3, tokens=32, wall_us=51)
    run.tap(1, "ffn_out", 0, None, shape=[64, 32], dtype="f32", l2=1.0, abs_mean=0.1, nan_count=0)
    run.grad(1, "token_embd.weight", l2=0.5, abs_mean=0.1, nan_count=0)
    run.op_timing(1, 40, {"matmul": 30, "other": 10})
    run.drift(1, "token_embd.weight", 0.99, 0.3, token_id=4, freq=2)
    run.sample(1, "def ", "main():")
    run.eval(1, "validation", loss=6.3, ppl=544.6, samples=8, extra={"bpb": 2.1})
    run.compare(1, "llama-0", -0.1, 0.9, "ahead")
    with run.region(1, "forward"), run.region(1, "attention"):
        pass
    run.note("looks right", step=1)
    run.align(1, 0, 0, "blk.0.ffn_up.weight", 0.4, 1.0, math.nan)
    run.mask(1, 0, 0, 0.5)
    run.scalars(1, {"acc": 0.5}, epoch=1)
    run.system({"cpu": {"percent": 12.0}})
    run.heartbeat()
    weights = run.weights_dir / "step_1.gguf"
    weights.write_bytes(b"GGUF")
    run.checkpoint(weights, 1, loss=6.4)
    run.resume(1)
    run.run_end(1, 6.4, quality_gate={"passed": False, "metric": "loss", "value": 6.4, "threshold": 2.5})
    lines = lines_of(run.run_dir)
    kinds = (
        "run_start step tap grad op_timing drift sample eval compare region_enter region_enter region_exit "
        "region_exit note align mask scalars system heartbeat checkpoint resume run_end"
    )
    assert [line["kind"] for line in lines] == kinds.split()
    by_kind = {line["kind"]: line for line in lines}
    assert by_kind["tap"]["head"] is None
    assert by_kind["align"]["bp_norm"] is None
    assert by_kind["align"]["nonfinite"] == {"bp_norm": "nan"}
    assert by_kind["checkpoint"]["path"] == "weights/step_1.gguf"
    assert by_kind["checkpoint"]["bytes"] == 4
    assert by_kind["run_end"]["exit_code"] == 1
    times = [line["t"] for line in lines]
    assert times == sorted(times)


def test_tensors_and_numpy_scalars_are_numbers(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        run.log(np.int64(1), loss=torch.tensor(0.5), acc=np.float32(0.25), n=np.int64(7), ok=np.bool_(True))
        run.log(2, loss=torch.tensor(1.5, dtype=torch.bfloat16, requires_grad=True), acc=np.array([0.75]))
    first, second = lines_of(run.run_dir)[1:3]
    assert (first["step"], first["loss"], first["acc"], first["n"], first["ok"]) == (1, 0.5, 0.25, 7, True)
    assert second["loss"] == 1.5
    assert second["acc"] == 0.75


def test_numbers_json_cannot_spell_are_null_and_named(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        run.log(1, loss=math.nan, up=math.inf, down=-math.inf, fine=1.0)
        run.log(2, {"val/loss": torch.tensor(math.nan)})
        run.log(3, loss=np.float64("inf"))
    one, two, three = lines_of(run.run_dir)[1:4]
    assert (one["loss"], one["up"], one["down"], one["fine"]) == (None, None, None, 1.0)
    assert one["nonfinite"] == {"loss": "nan", "up": "inf", "down": "-inf"}
    assert two["nonfinite"] == {"values.val/loss": "nan"}
    assert three["nonfinite"] == {"loss": "inf"}
    metrics = linnet.open(run.run_dir).metrics()
    assert math.isnan(metrics["loss"].value[0])
    assert metrics["loss"].value[1] == math.inf
    assert metrics["down"].value[0] == -math.inf
    assert math.isnan(metrics["val/loss"].value[0])


class Stubborn:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        [1, math.nan],
        {"deep": {"er": [1, 2]}},
        object(),
        Stubborn(),
        10**400,
        "\ud800",
        b"\xff",
        np.arange(3),
        1 + 2j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_can_be_logged(root: Path, value: object) -> None:
    with linnet.start(system_every=0) as run:
        run.log(1, loss=0.5, odd=value)
        run.log(2, odd=value)
    assert len(lines_of(run.run_dir)) == 4
    assert linnet.open(run.run_dir).metrics()["loss"].value[0] == 0.5


def test_metrics_named_like_the_events_own_fields_are_kept(root: Path) -> None:
    with linnet.start(system_every=0) as run:
        run.log(1, loss=0.5, t=3.0, kind=4.0, phase=5.0)
    line = lines_of(run.run_dir)[1]
    assert (line["kind"], line["phase"]) == ("step", "train")
    assert line["values"] == {"t": 3.0, "kind": 4.0, "phase": 5.0}
    assert linnet.open(run.run_dir).metrics()["t"].value[0] == 3.0


def test_an_artifact_is_copied_with_its_digest(root: Path, tmp_path: Path) -> None:
    (tmp_path / "plot.txt").write_text("a plot")
    with linnet.start(system_every=0) as run:
        run.artifact(tmp_path / "plot.txt", step=3)
        run.artifact(tmp_path / "plot.txt", name="../../escaped.txt")
    kept = [line for line in lines_of(run.run_dir) if line["kind"] == "artifact"]
    assert [line["path"] for line in kept] == ["artifacts/plot.txt"]
    assert (run.run_dir / "artifacts/plot.txt").read_text() == "a plot"
    assert not (tmp_path / "escaped.txt").exists()
    assert not (root / "escaped.txt").exists()


def test_system_figures_are_recorded_from_a_thread(root: Path) -> None:
    with linnet.start(system_every=0.05) as run:
        run.log(1, loss=1.0)
        deadline = 200
        while deadline and sum(line["kind"] == "system" for line in lines_of(run.run_dir)) < 2:
            deadline -= 1
            run._upkeep._stopping.wait(0.05)
    system = [line for line in lines_of(run.run_dir) if line["kind"] == "system"]
    assert len(system) >= 2
    assert 0 <= system[-1]["cpu"]["percent"] <= 100
    assert system[-1]["memory"]["total"] > system[-1]["memory"]["used"] > 0
    assert system[-1]["process"]["rss"] > 1_000_000
    assert system[-1]["disk"]["free"] > 0
    assert "sys/cpu/percent" in linnet.open(run.run_dir).metrics()


def test_run_start_comes_first_even_if_forgotten_and_only_once(root: Path) -> None:
    bundle = RunBundle(root, "a")
    bundle.step(1, 0.5)
    bundle.run_end(1, 0.5)
    bundle.run_end(1, 0.5)
    bundle.step(2, 0.4)
    assert [line["kind"] for line in lines_of(root / "a")] == ["run_start", "step", "run_end"]
    bundle = RunBundle(root, "b")
    bundle.run_start("llama")
    bundle.run_start("gpt2")
    bundle.run_end()
    assert [line["kind"] for line in lines_of(root / "b")] == ["run_start", "run_end"]
    assert lines_of(root / "b")[0]["model"] == {"arch": "llama"}


def test_what_a_late_run_start_says_is_in_the_manifest_and_a_note(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    bundle = RunBundle(root, "a")
    bundle.step(1, 1.0)
    bundle.run_start("llama", 627, 64, 2, 32, 5, 1e-3, 0, schedule={"warmup": 2})
    bundle.run_start("gpt2")
    bundle.run_end(1, 1.0)
    model = {"arch": "llama", "vocab": 627, "d_model": 64, "n_layers": 2}
    manifest = linnet.open("a").manifest
    assert (manifest.model, manifest.config["lr"], manifest.total_steps) == (model, 1e-3, 5)
    start, _, note, _ = lines_of(root / "a")
    assert start["kind"] == "run_start"
    assert (note["kind"], note["model"], note["schedule"]) == ("note", model, {"warmup": 2})
    assert "Call it first" in caplog.text
    assert "run_start was written already" in caplog.text


def test_a_silent_run_has_a_heartbeat(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linnet.runs.sink import Upkeep

    monkeypatch.setattr(Upkeep, "maintain_seconds", 0.01)
    monkeypatch.setattr(Upkeep, "heartbeat_seconds", 0.03)
    with linnet.start(system_every=0) as run:
        for _ in range(500):
            if any(line["kind"] == "heartbeat" for line in lines_of(run.run_dir)):
                break
            run._upkeep._stopping.wait(0.01)
    kinds = [line["kind"] for line in lines_of(run.run_dir)]
    assert "heartbeat" in kinds
    assert linnet.open(run.run_dir).summarize().step is None


def test_a_clock_that_jumps_harms_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    with linnet.start(run_id="a", system_every=0) as run:
        for step, now in enumerate([0.0, 4e9, -5.0, 1e9], start=1):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            run.log(step, loss=1.0)
            assert linnet.open("a").status in ("live", "stalled")
    monkeypatch.undo()
    monkeypatch.setenv("LINNET_RUNS", str(root))
    times = [line["t"] for line in lines_of(run.run_dir)]
    assert times == sorted(times)
    assert linnet.open("a").status == "completed"


def test_the_writers_memory_does_not_grow_with_the_number_of_steps(root: Path) -> None:
    import psutil

    with linnet.start(system_every=0) as run:
        for step in range(20_000):
            run.log(step, loss=0.5, lr=0.1, a=1.0, b=2.0, c=3.0)
        before = psutil.Process().memory_info().rss
        for step in range(20_000, 120_000):
            run.log(step, loss=0.5, lr=0.1, a=1.0, b=2.0, c=3.0)
        assert psutil.Process().memory_info().rss - before < 3_000_000


def _itself() -> list[object]:
    knot: list[object] = []
    knot += [knot, knot]
    return knot


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log(1, {"a\ud800": 1.0, "loss": 1.0}),
        lambda run: run.log(1, a=_itself()),
        lambda run: run.log(1, [("a", 1)]),
        lambda run: run.step(1, 0.5, kind=3, phase=4),
        lambda run: run.eval(1, "v", phase="x"),
        lambda run: run.tap(1, "ffn", 0, None, kind="relu"),
        lambda run: run.system({"kind": 2}),
        lambda run: run.system({1: 2}),
        lambda run: run.artifact(None),
        lambda run: run.artifact("a\0b"),
        lambda run: run.checkpoint(1, "p"),
        lambda run: run.note(object()),
        lambda run: run.scalars(1, 5),
    ],
)
def test_no_call_raises_into_the_loop_or_breaks_a_line(root: Path, call: Callable[[linnet.runs.Session], None]) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        call(run)
        run.log(2, loss=0.25)
    lines = lines_of(run.run_dir)
    assert lines[0]["kind"] == "run_start"
    assert lines[-1]["reason"] == "completed"
    assert all(
        line["kind"] in ("run_start", "step", "scalars", "eval", "tap", "system", "note", "run_end") for line in lines
    )
    assert linnet.open("a").metrics()["loss"].value[-1] == 0.25


def test_start_takes_settings_in_any_form(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    import argparse

    given = {"config": argparse.Namespace(lr=0.1), "model": Llama(), "tags": "demo", "run_id": 5}
    with linnet.start(**given, goals={"acc": "maximize", "x": "up"}, system_every=0) as run:
        run.log(1, acc=1.0)
    manifest = linnet.open("5").manifest
    assert manifest.config == {"lr": 0.1}
    assert manifest.model["vocab"] == 627
    assert manifest.tags == ["demo"]
    assert manifest.goals == {"acc": "max"}
    assert "the goal 'up' of x is not understood" in caplog.text
    with linnet.start(arch=None, config=7, system_every=0) as run:  # type: ignore[arg-type]
        run.log(1, loss=1.0)
    assert run.run_id.startswith("run-")


def test_any_name_but_an_events_own_is_a_metric(root: Path) -> None:
    names = ["loss", "wall_time", "name", "type", "values", "schema", "nonfinite"]
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, **{name: float(index) for index, name in enumerate(names)})
        run.log(2, loss=math.nan, nonfinite=7.0)
    metrics = linnet.open("a").metrics()
    assert {name: metrics[name].value[0] for name in names} == {name: i for i, name in enumerate(names)}
    assert metrics["nonfinite"].value.tolist() == [6.0, 7.0]


def test_fractions_and_decimals_are_numbers(root: Path) -> None:
    from decimal import Decimal
    from fractions import Fraction

    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=math.nan, third=Fraction(1, 4), tenth=Decimal("0.5"))
    line = lines_of(run.run_dir)[1]
    assert (line["third"], line["tenth"]) == (0.25, 0.5)


def test_a_config_with_infinity_reads_back(root: Path) -> None:
    with linnet.start(run_id="a", config={"clip": math.inf}, system_every=0) as run:
        run.log(1, loss=1.0)
    assert linnet.open("a").manifest.config == {"clip": math.inf}


def test_the_error_is_the_last_line_of_the_exception(root: Path) -> None:
    error = ValueError("first\nlast")
    if hasattr(error, "add_note"):
        error.add_note("a hint")
    with pytest.raises(ValueError, match="first"), linnet.start(system_every=0) as run:
        raise error
    assert lines_of(run.run_dir)[-1]["error"] == "ValueError: last"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_have_the_mode_that_the_umask_leaves(root: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with linnet.start(run_id="a", system_every=0) as run:
            run.log(1, loss=0.5)
    finally:
        os.umask(before)
    assert {file.name: file.stat().st_mode & 0o777 for file in (root / "a").iterdir()} == {
        "run.json": mode,
        "events.jsonl": mode,
    }


def test_a_generated_token_is_a_step_of_the_decode_phase(root: Path) -> None:
    bundle = RunBundle(root, "a")
    bundle.step(1, 0.5)
    bundle.step(7, phase="decode", token_id=42, logprob=-1.5, wall_us=51)
    bundle.run_end()
    line = lines_of(root / "a")[2]
    assert {name: line[name] for name in ("kind", "phase", "step", "token_id", "logprob")} == {
        "kind": "step",
        "phase": "decode",
        "step": 7,
        "token_id": 42,
        "logprob": -1.5,
    }
    metrics = linnet.open("a").metrics()
    assert (metrics["loss"].latest, metrics["decode/logprob"].latest) == ((1, 0.5), (7, -1.5))
    assert lines_of(root / "a")[-1]["final_step"] == 1  # a token is no step of training


def test_the_background_thread_never_writes_before_run_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_write = OwnedFolder.write_manifest
    bundles: list[RunBundle] = []

    def write_slowly(self: OwnedFolder) -> None:
        """Bring the manifest to a disk so slow that the machine's figures and a heartbeat come due meanwhile."""
        for each in bundles:
            each._sample_system()
            each._beat()
        true_write(self)

    monkeypatch.setattr(OwnedFolder, "write_manifest", write_slowly)
    bundle = RunBundle(tmp_path, "a")
    bundles.append(bundle)
    bundle._beat()  # the program builds its model for a minute
    bundle.run_start("llama")
    bundle.run_end(None, None)
    kinds = [json.loads(line)["kind"] for line in bundle.events_path.read_text().splitlines()]
    assert kinds == ["run_start", "run_end"]


LOOKED: list[tuple[str, dict[str, Any]]] = [
    ("tap", {"region": "embd", "layer": None, "head": None, "dtype": "f32", "shape": [4, 2], "mean": 0.5, "dead": 0.0}),
    ("tap", {"region": "ffn_out", "layer": 1, "head": None, "histogram": [1, 2], "min": math.nan, "max": math.inf}),
    ("grad", {"param": "a.weight", "shape": [4, 2], "l2": 1e-7, "abs_mean": 2.5e-9, "nan_count": 0}),
    ("grad", {"param": "a.weight", "head": 1, "l2": math.nan, "abs_mean": 1.0, "nan_count": 3, "update_ratio": 0.1}),
    ("drift", {"param": "a.weight", "head": 1, "cos_to_init": 1.0, "l2_to_init": 0.25}),
    ("drift", {"param": "a.weight", "token_id": 7, "freq": 9, "cos_to_init": -0.5, "l2_to_init": 3.0}),
    ("mask", {"li": 0, "wi": 1, "wname": "a.weight", "density": 0.5}),
    ("region_enter", {"region": "step", "us": 0.0}),
    ("region_exit", {"region": "step", "us": 12.5}),
    ("op_timing", {"compute_us": 12, "buckets": {"aten::mm": 9}}),
]


def test_a_look_is_written_at_once_as_its_events_are_one_by_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, both = (linnet.start(root, run_id=name, system_every=0) for name in ("one", "both"))
    with one, both:
        for kind, fields in LOOKED:
            getattr(one, kind)(3, **fields)
        calls: list[bytes] = []
        write = os.write
        monkeypatch.setattr("linnet.runs.sink._write", lambda fd, line: calls.append(line) or write(fd, line))
        both.looked(3, LOOKED)
        assert len(calls) == 1
    written = [(root / name / "events.jsonl").read_text().splitlines()[1:-1] for name in ("one", "both")]
    without_t = [[re.sub(r'"t":[^,]+,', "", line) for line in lines] for lines in written]
    assert without_t[0] == without_t[1] and len(without_t[0]) == len(LOOKED)
    both.looked(4, LOOKED)  # after its end: told of, and nothing raised
    assert len(list(linnet.open("both").events().read_events())) == len(LOOKED) + 2


def test_of_a_look_that_a_full_disk_cuts_off_every_line_is_there_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with linnet.start(root, run_id="full", system_every=0) as run:
        monkeypatch.setattr("linnet.runs.sink._write", lambda fd, lines: write(fd, lines[: len(lines) // 2]))
        run.looked(3, LOOKED)
        monkeypatch.setattr("linnet.runs.sink._write", write)
        run._sink._next_try = 0.0
        run.note("there is room again")
    kinds = [event.kind for event in linnet.open("full").events().read_events()]
    assert kinds == ["run_start", *(kind for kind, _ in LOOKED), "note", "run_end"]
