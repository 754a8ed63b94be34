"""Forks: `--from RUN@STEP` begins a new run at a checkpoint of another, with some settings changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.train import Callback
from tests.conftest import Printed, Said, digest, losses

_PARENT = "--preset tiny --vocab 384 --batch 2 --steps 12 --checkpoint-every 4 --eval-every 6 --sample-every 0"


@pytest.fixture(scope="session")
def family(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with one of 12 steps; tests take copies of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        root = tmp_path_factory.mktemp("family") / "runs"
        flags = _PARENT.replace("--", "").split()
        values: dict[str, Any] = {
            name.replace("-", "_"): value for name, value in zip(flags[::2], flags[1::2], strict=True)
        }
        numbers = {name: int(value) for name, value in values.items() if value.isdigit()}
        linnet.train(**{**values, **numbers}, corpus=corpus, runs=root, run_id="a")
    return root


@pytest.fixture
def parent(family: Path) -> Path:
    shutil.copytree(family, "runs", symlinks=True)
    return Path("runs/a")


def words(text: str) -> list[str]:
    return text.split()


def manifest(run: str) -> Any:
    return json.loads(Path(f"runs/{run}/run.json").read_text())


def rates(run: str) -> dict[int, float]:
    series = linnet.open(run).metrics()["lr"]
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def test_a_fork_counts_on_and_knows_its_parent(parent: Path, printed: Printed) -> None:
    out = printed(*words("train from-scratch --from a --steps 6 --lr 5e-4 --run-id b"))
    assert "forked from a@12: its weights; the optimizer's moments; goes on in the same data" in out
    run = manifest("b")
    assert (run["parent"], run["parent_step"], run["total_steps"]) == ("a", 12, 18)
    assert list(losses("b")) == list(range(13, 19))
    assert run["config"]["batch"] == 2 and run["config"]["lr"] == 5e-4  # the parent's, and the one that was given
    assert rates("b")[13] == pytest.approx(5e-4) and rates("b")[18] < 2e-4  # a schedule of its own
    assert losses("b")[13] < losses("a")[2]  # it knows what the parent has learned


def test_without_a_change_a_fork_is_the_run_that_goes_on(parent: Path, printed: Printed) -> None:
    """Weights, moments and place in the data are those of the parent, to the bit."""
    shutil.copytree(parent, "runs/longer", symlinks=True)
    content = json.loads(Path("runs/longer/run.json").read_text())
    Path("runs/longer/run.json").write_text(json.dumps({**content, "run_id": "longer"}))
    printed(*words("resume longer --steps 16 --force"))
    printed(*words("train from-scratch --from a --steps 4 --schedule constant --warmup 0 --run-id b"))
    printed(*words("train from-scratch --from a@12 --steps 4 --schedule constant --warmup 0 --run-id c"))
    assert losses("b") == losses("c")
    assert losses("b")[13] == losses("longer")[13]  # before the rates differ


def test_the_parents_schedule_goes_on_where_no_budget_is_given(parent: Path, printed: Printed) -> None:
    out = printed(*words("train from-scratch --from a@8 --run-id b"))
    assert "the optimizer's moments begin anew, the state of step 8 is gone" in out
    assert rates("b") == {step: rate for step, rate in rates("a").items() if step > 8}


def test_another_corpus_is_cut_into_the_parents_tokens(parent: Path, printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("The whale, the whale! " * 2000)
    out = printed("train", "from-scratch", "--from", "a", "--steps", "4", "--corpus", "other.txt", "--run-id", "b")
    assert "begins with other data" in out
    config = manifest("b")["config"]
    assert config["data_offset"] == 12 and config["tokenizer"].endswith("runs/a/weights/step_12.gguf")
    assert manifest("b")["model"]["vocab"] == manifest("a")["model"]["vocab"]
    shutil.rmtree(parent)
    printed(*words("resume b --steps 18"))  # the parent is gone: its tokens are in the fork's own checkpoint
    assert list(losses("b"))[-1] == 18


def test_another_optimizer_begins_anew(parent: Path, printed: Printed) -> None:
    out = printed(*words("train from-scratch --from a --steps 2 --optimizer adamw --run-id b"))
    assert "the optimizer's moments begin anew (another optimizer)" in out


def test_a_fork_of_a_fork_and_a_resumed_fork_go_on_to_the_bit(parent: Path, printed: Printed) -> None:
    class Stop(Callback):
        def on_step(self, metrics: Any) -> None:
            if metrics.step == 18:
                raise KeyboardInterrupt

    flags: dict[str, Any] = {"steps": 8, "checkpoint_every": 4, "batch": 4, "eval_every": 0}
    linnet.train(from_="a@12", **flags, run_id="whole")
    with pytest.raises(KeyboardInterrupt):
        linnet.train(from_="a", **flags, callbacks=[Stop()], run_id="broken")
    assert manifest("broken")["config"]["data_offset"] == 6  # twice the batch: half as far, in its own steps
    linnet.resume("broken")
    assert losses("broken") == losses("whole")
    assert digest(Path("runs/broken/weights/step_20.gguf")) != ""
    linnet.train(from_=linnet.open("whole"), tokens=128, run_id="grandchild")
    assert manifest("grandchild")["parent_step"] == 20 and list(losses("grandchild")) == [21]
    assert manifest("grandchild")["config"]["data_offset"] == 6


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("a --d-model 32 --steps 2", "--d-model does not go with --from: the model is that of run a, whose"),
        ("a --preset demo --steps 2", "--preset does not go with --from: the model is that of run a"),
        ("a --untied --steps 2", "--untied does not go with --from: the model is that of run a"),
        ("a --tokenizer x.gguf --steps 2", "--tokenizer does not go with --from: the model is that of run a"),
        ("a", "run a has done its 12 steps: say how long to go on, with --steps, --tokens, --epochs or --minutes"),
        ("a@7", "run a has no checkpoint '7'; there is latest, best, and of steps 4, 8, 12"),
        ("a --steps 2 --tokens 9", "--steps and --tokens both say how long to train: give one of them"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_fork_is_refused(flags: str, message: str, parent: Path, said: Said) -> None:
    code, _, err = said(*words(f"train from-scratch --from {flags} --run-id b"))
    assert code == 2 and err.startswith(f"linnet: {message}")
    assert not Path("runs/b").exists()


def test_what_agrees_with_the_parent_may_be_said(parent: Path, printed: Printed) -> None:
    printed(*words("train from-scratch --from a --d-model 64 --steps 1 --eval-every 0 --run-id b"))


def test_the_recipe_is_the_parents(parent: Path, said: Said) -> None:
    code, _, err = said(*words("train vit-tiny --from a --steps 2"))
    assert code == 2 and "run a is of the recipe from-scratch, not vit-tiny: linnet train from-scratch --from a" in err
    code, _, err = said(*words("train warm-start"))
    assert code == 2 and err.startswith("linnet: train warm-start: --donor needs a value")


def test_a_dry_run_of_a_fork(parent: Path, printed: Printed) -> None:
    plan = json.loads(printed(*words("train from-scratch --from a --tokens 640 --dry-run --json")))
    assert plan["steps"] == 10 and [path.name for path in Path("runs").iterdir()] == ["a"]


def test_images_fork_with_and_without_an_average(printed: Printed) -> None:
    flags = "--d-model 32 --n-layers 1 --n-heads 2 --d-ff 32 --batch 16 --eval-images 32"
    printed(*words(f"train vit-tiny {flags} --steps 4 --run-id v"))
    out = printed(*words("train vit-tiny --from v --steps 2 --mixup 0 --run-id w"))
    assert "goes on in the same data" in out and manifest("w")["config"]["mixup"] == 0
    printed(*words("train vit-tiny --from w --steps 2 --ema 0 --run-id x"))
    printed(*words("train vit-tiny --from x --steps 2 --ema 0.9 --run-id y"))
    assert manifest("y")["parent"] == "x" and list(losses("y")) == [9, 10]


def test_images_whose_gradients_are_accumulated_go_on_where_the_parent_ended(printed: Printed) -> None:
    flags = "--d-model 32 --n-layers 1 --n-heads 2 --d-ff 32 --batch 16 --batch-images 32 --eval-images 32"
    printed(*words(f"train vit-tiny {flags} --steps 4 --run-id v"))
    printed(*words("train vit-tiny --from v --steps 2 --run-id w"))
    assert "data_offset" not in manifest("w")["config"]


def test_a_programs_own_rows_fork_in_the_program(said: Said) -> None:
    rows = [[1, 2, 3, 4, 5]] * 20
    linnet.train(data=rows, vocab=16, preset="tiny", batch=2, steps=4, eval_every=0, run_id="r")
    code, _, err = said(*words("train from-scratch --from r --steps 2"))
    assert code == 2 and "was trained on the data of a program (list): fork it there" in err
    run = linnet.train(from_="r", data=rows, steps=2, run_id="s")
    assert run.manifest.parent == "r" and list(losses("s")) == [5, 6]
