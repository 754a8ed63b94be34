"""The loss on the line between two models: what it is at each place, what is said of it, what a run keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import linnet
from linnet.analysis import LossLine, lmc
from linnet.analysis.beginning import weights_of
from linnet.analysis.checkpoint import Checkpoint
from linnet.analysis.held_out import probe_text
from linnet.errors import UsageError
from linnet.infer import score
from linnet.runs.run import add_evaluation
from tests.conftest import Said


def line(alphas: tuple[float, ...], losses: tuple[float, ...]) -> LossLine:
    return LossLine("a", "b", alphas, losses, 100, "tokens", "a text")


def test_the_barrier_is_what_rises_above_the_line_between_the_ends() -> None:
    assert line((0, 0.5, 1), (3.0, 3.5, 2.0)).barrier == pytest.approx(1.0)
    assert line((0, 0.25, 1), (3.0, 2.9, 2.0)).barrier == pytest.approx(0.15)
    assert line((0, 0.5, 1), (3.0, 2.1, 2.0)).barrier < 0
    assert line((0, 1), (3.0, 2.0)).barrier == 0


@pytest.mark.parametrize(("rise", "verdict"), [(-0.3, "same basin"), (0.049, "same basin"), (0.051, "barrier")])
def test_two_per_cent_of_the_loss_are_no_barrier(rise: float, verdict: str) -> None:
    assert line((0, 0.5, 1), (3.0, 2.5 + rise, 2.0)).verdict == verdict
    assert line((0, 0.5, 1), (3.0, float("inf"), 2.0)).verdict == "barrier"


def test_two_checkpoints_of_one_run_lie_in_one_basin(trained: Path) -> None:
    along = lmc("one@150", "one@200", alphas=(0.25, 0.5, 0.75), runs=trained)
    assert (along.alphas, along.a, along.b) == ((0, 0.25, 0.5, 0.75, 1), "one@150", "one@200")
    assert along.verdict == "same basin"
    losses = along.losses
    assert all(
        middle <= (before + after) / 2 + 0.01
        for before, middle, after in zip(losses, losses[1:], losses[2:], strict=False)
    ), "about convex"


def test_between_two_seeds_lies_a_barrier_that_alignment_lowers(trained: Path) -> None:
    between = lmc("one@200", "two@200", alphas=(0.3, 0.5, 0.7), aligned=True, runs=trained)
    assert between.verdict == "barrier"
    assert between.barrier_before is not None and between.aligned is not None and between.before is not None
    assert between.barrier < 0.9 * between.barrier_before
    assert between.barrier_before > 1
    assert between.aligned.after > between.aligned.before
    assert between.losses[-1] == pytest.approx(between.before[-1], abs=1e-5), "the model itself stays what it is"


def test_the_loss_at_a_place_is_that_of_the_model_there(trained: Path) -> None:
    along = lmc("one@50", "one@200", alphas=(0.3,), runs=trained)
    start, end = (weights_of(trained / f"one/weights/step_{step}.gguf") for step in (50, 200))
    model = linnet.load("one@50", runs=trained).module
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(0.7 * start[name] + 0.3 * end[name])
    probe = probe_text(Checkpoint.find("one@50", trained))
    assert along.samples == len(probe) - 1
    assert along.losses[1] == pytest.approx(score(model, probe.window(0, len(probe))).mean, abs=1e-4)


def test_images_are_scored_too(classifiers: Path) -> None:
    along = lmc("one@10", "one@20", alphas=(0.5,), runs=classifiers)
    assert (along.unit, along.source) == ("images", "digits")
    assert along.verdict == "same basin"
    between = lmc("one@20", "two@20", alphas=(0.5,), aligned=True, runs=classifiers)
    assert between.before is not None
    assert between.losses[-1] == pytest.approx(between.before[-1], abs=1e-5)


def test_models_of_other_shapes_lie_on_no_line(trained: Path, classifiers: Path, smollm2: Path) -> None:
    with pytest.raises(UsageError, match=r"differ in vocab \(384 and 49152\), d_model"):
        lmc("one", smollm2, runs=trained)
    with pytest.raises(UsageError, match="do different things"):
        lmc("one", classifiers / "one", runs=trained)
    with pytest.raises(UsageError, match="has no place between the two models"):
        lmc("one", "two", alphas=(0, 1), runs=trained)
    with pytest.raises(UsageError, match="`images` says nothing to it"):
        lmc("one", "two", images="digits", runs=trained)
    with pytest.raises(UsageError, match=r"from 0 .* to 1 "):
        lmc("one", "two", alphas=(1.5,), runs=trained)


def test_models_of_other_tokens_lie_on_no_line_though_their_shapes_are_the_same(
    trained: Path, corpus: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in corpus.glob("json_*"):
        (other / file.name).write_text(file.read_text().upper())
    shape = {"preset": "tiny", "vocab": 384, "n_kv": 2, "ctx": 32, "batch": 4}
    linnet.train(corpus=other, run_id="other", steps=1, eval_every=0, sample_every=0, **shape)
    with pytest.raises(UsageError, match="other tokens"):
        lmc(trained / "one", "other")


def test_the_command_draws_the_line_and_a_run_may_keep_it(trained: Path, tmp_path: Path, said: Said) -> None:
    runs = tmp_path / "kept"
    shutil.copytree(trained / "one", runs / "one", symlinks=True)
    words = ["lmc", "one@150", "one@200", "--alphas", "0,0.5,1", "--runs", str(runs)]
    code, out, _ = said(*words, "--record")
    assert code == 0
    assert "one@150 → one@200" in out
    assert "same basin: the loss rises nowhere above the line between the ends" in out
    run = linnet.open("one", runs)
    events = [event for event in run.events().read_events() if event.data.get("name") == "lmc"]
    evaluations = [event.data for event in events if event.kind == "eval"]
    assert [(data["step"], data["extra"]) for data in evaluations] == [
        (150, {"alpha": 0.0}),
        (150, {"alpha": 0.5}),
        (150, {"alpha": 1.0}),
    ]
    (picture,) = run.artifacts("lmc")
    assert picture.load().shape == (880, 1440, 3)
    assert run.status == "completed"
    code, out, _ = said(*words, "--json")
    fields = json.loads(out)
    assert fields["losses"] == pytest.approx([data["loss"] for data in evaluations])
    assert fields["verdict"] == "same basin"
    (numbers,) = run.artifacts("lmc.json")
    kept = json.loads(numbers.path.read_bytes())
    assert kept["verdict"] == "same basin" and kept["losses"] == pytest.approx(fields["losses"])


def test_what_was_added_to_a_run_from_outside_does_not_hide_how_it_ended(tmp_path: Path) -> None:
    with linnet.start(tmp_path / "runs", run_id="ended", system_every=0) as run:
        run.log(1, loss=2.0)
    ended = linnet.open("ended", tmp_path / "runs")
    for alpha in range(400):
        add_evaluation(ended, "lmc", 1, {"loss": 2.0, "extra": {"alpha": alpha / 400}})
    assert ended.status == "completed"


def test_a_run_that_is_being_written_keeps_nothing(tmp_path: Path, said: Said, trained: Path) -> None:
    shutil.copytree(trained / "one", tmp_path / "runs/one", symlinks=True)
    with linnet.start(tmp_path / "runs", resume="one", system_every=0):
        code, _, err = said("lmc", "one@150", "one@200", "--record")
    assert code == 2
    assert "run one is being written: leave --record out, or wait until it has ended" in err
