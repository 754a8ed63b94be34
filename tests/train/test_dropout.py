"""`--dropout`: what a run keeps of it, and that resume, forks, parts of a batch and recordings drop the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.architectures import preset
from linnet.errors import UsageError
from linnet.train import Callback, StepMetrics, rates
from linnet.train.settings import TrainSettings
from tests.conftest import Said, losses

TINY: dict[str, Any] = {
    "preset": "tiny",
    "vocab": 384,
    "batch": 4,
    "steps": 12,
    "checkpoint_every": 4,
    "sample_every": 0,
    "eval_every": 0,
    "device": "cpu",
    "lr": 3e-3,
}
SHARE = 0.3


class Interrupt(Callback):
    """Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step:
            import signal

            signal.raise_signal(signal.SIGINT)


def train(corpus: Path, name: str, **flags: Any) -> linnet.runs.Run:
    return linnet.train("from-scratch", corpus=corpus, run_id=name, **{**TINY, **flags})


def config(name: str) -> Any:
    return json.loads(Path(f"runs/{name}/run.json").read_text())["config"]


def tensors(name: str, step: int = 12) -> dict[str, bytes]:
    with linnet.gguf.GGUFFile.open(Path(f"runs/{name}/weights/step_{step}.gguf")) as file:
        return {key: tensor.raw().tobytes() for key, tensor in file.tensors.items()}


@pytest.mark.parametrize("flags", [{"graph": "on"}, {"graph": "off", "recompute": "blocks", "optimizer": "adamw"}])
def test_a_run_that_was_stopped_goes_on_to_the_bit(corpus: Path, flags: dict[str, Any]) -> None:
    train(corpus, "whole", dropout=SHARE, **flags)
    train(corpus, "stopped", dropout=SHARE, callbacks=[Interrupt(6)], **flags)
    assert linnet.resume("stopped").status == "completed"
    assert losses("stopped") == losses("whole") and tensors("stopped") == tensors("whole")
    assert config("stopped")["dropout"] == SHARE
    train(corpus, "undropped", **flags)
    assert losses("undropped")[1] != losses("whole")[1]


def test_a_recorded_step_is_the_one_that_is_not(corpus: Path) -> None:
    for graph in ("on", "off"):
        train(corpus, graph, dropout=SHARE, graph=graph)
    assert losses("on") == losses("off") and tensors("on") == tensors("off")


def test_parts_of_a_batch_drop_what_the_whole_drops(corpus: Path) -> None:
    train(corpus, "whole", dropout=SHARE, steps=3, batch=8)
    train(corpus, "parts", dropout=SHARE, steps=3, batch=2, batch_tokens=8 * 32)
    assert list(losses("parts").values()) == pytest.approx(list(losses("whole").values()), rel=1e-4)


def test_off_leaves_no_trace_and_changes_no_bit(corpus: Path) -> None:
    train(corpus, "never")
    assert "dropout" not in config("never")
    train(corpus, "off", dropout=0.0)
    assert config("off")["dropout"] == 0 and tensors("off") == tensors("never")


def test_what_is_evaluated_is_the_whole_model(corpus: Path) -> None:
    flags = {"steps": 1, "lr": 1e-9, "eval_every": 1, "held_out": 0.2, "eval_tokens": 1024}
    runs = [train(corpus, f"run-{share}", dropout=share, **flags) for share in (0.0, 0.9)]
    evaluated = [run.metrics()["validation/loss"].value.tolist() for run in runs]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-5)
    assert losses("run-0.0")[1] != pytest.approx(losses("run-0.9")[1], rel=1e-4)


def test_the_share_is_said_and_kept(corpus: Path, said: Said) -> None:
    words = "train from-scratch --preset tiny --vocab 384 --batch 2 --sample-every 0 --eval-every 0 --steps 2"
    code, out, _ = said(*words.split(), "--corpus", str(corpus), "--run-id", "a", "--dropout", "0.25")
    assert code == 0
    assert next(line for line in out.splitlines() if line.startswith("rate  ")).endswith(" · dropout 0.25")
    assert config("a")["dropout"] == 0.25
    start = next(event.data for event in linnet.open("a").events().read_events() if event.kind == "run_start")
    assert start["chosen"]["dropout"] == 0.25
    nodes = json.loads(Path("runs/a/flow.json").read_text())["nodes"]
    assert [node["nelements"] for node in nodes if node["name"] == "dropout.step"] == [1]


def test_a_fork_keeps_the_share_or_takes_another(corpus: Path) -> None:
    train(corpus, "a", dropout=SHARE)
    for name, flags in (("kept", {}), ("changed", {"dropout": 0.0})):
        linnet.train("from-scratch", from_="a", steps=2, run_id=name, **flags)
    assert (config("kept")["dropout"], config("changed")["dropout"]) == (SHARE, 0.0)
    assert losses("kept")[13] != losses("changed")[13]


def test_the_same_command_again_refuses_another_share(corpus: Path) -> None:
    train(corpus, "a", dropout=SHARE, resume="auto", callbacks=[Interrupt(6)])
    with pytest.raises(UsageError, match=r"run a was started with `dropout=0.3`, and this command has `dropout=0.2`"):
        train(corpus, "a", dropout=0.2, resume="auto")
    assert train(corpus, "a", dropout=SHARE, resume="auto").status == "completed"


def test_another_share_in_a_manifest_is_another_run(corpus: Path) -> None:
    train(corpus, "a", dropout=SHARE, callbacks=[Interrupt(6)])
    manifest = json.loads(Path("runs/a/run.json").read_text())
    manifest["config"]["dropout"] = 0.1
    Path("runs/a/run.json").write_text(json.dumps(manifest))
    with pytest.raises(linnet.errors.LinnetError, match=r"the config in run.json has changed"):
        linnet.resume("a")


@pytest.mark.parametrize("recipe", ["finetune", "warm-start"])
def test_recipes_that_train_all_weights_take_it(recipe: str, corpus: Path) -> None:
    train(corpus, "donor", steps=4)
    donor = Path("runs/donor/weights/step_4.gguf")
    begin = {"base": donor} if recipe == "finetune" else {"donor": donor, "init": "full"}
    flags = {name: value for name, value in TINY.items() if name not in ("preset", "vocab")}
    for name, share in (("plain", 0.0), ("dropped", SHARE)):
        linnet.train(recipe, corpus=corpus, run_id=name, **{**flags, **begin, "ctx": 32, "steps": 2, "dropout": share})
    assert config("dropped")["dropout"] == SHARE
    assert losses("plain")[1] != losses("dropped")[1]


@pytest.mark.parametrize("share", ["1", "-0.1", "nan", "1e3"])
def test_a_share_that_is_none_is_refused_before_a_folder_is_made(share: str, said: Said) -> None:
    code, _, err = said("train", "from-scratch", "--dropout", share)
    assert code == 2 and err.count("\n") == 1
    assert "--dropout is a share of the residual stream, from 0 to below 1, found" in err
    assert not Path("runs").exists()


def test_images_have_no_such_flag(said: Said) -> None:
    code, _, err = said("train", "vit-tiny", "--dropout", "0.1")
    assert code == 2 and "--dropout" in err


def test_settings_refuse_what_is_no_share() -> None:
    with pytest.raises(UsageError, match="`dropout` is a share"):
        TrainSettings(dropout=1.0)


@pytest.fixture
def little(tmp_path: Path) -> Path:
    """A text that a tiny model has more weights than: some 2,000 tokens."""
    folder = tmp_path / "little"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(" ".join(f"word{number * k % 97}" for k in range(1, 25)))
    return folder


def test_many_passes_over_little_text_drop_a_share_by_rule_and_few_do_not(little: Path, said: Said) -> None:
    words = ["--preset", "tiny", "--vocab", "320", "--sample-every", "0", "--eval-every", "0", "--corpus", str(little)]
    for name, epochs in (("few", "9"), ("many", "10")):
        code, out, _ = said("train", "from-scratch", *words, "--run-id", name, "--epochs", epochs)
        assert code == 0 and ("dropout 0.1" in out) == (name == "many")
    assert "dropout" not in config("few") and config("many")["dropout"] == 0.1
    said("train", "from-scratch", *words, "--run-id", "off", "--epochs", "10", "--dropout", "0")
    assert config("off")["dropout"] == 0 and losses("off")[1] != losses("many")[1]


def test_a_run_goes_on_with_the_share_that_the_rule_gave_it(little: Path) -> None:
    flags = {name: value for name, value in TINY.items() if name != "steps"} | {"vocab": 320, "corpus": little}
    for name, stop in (("whole", 10**6), ("stopped", 6)):
        linnet.train("from-scratch", **flags, epochs=10, run_id=name, callbacks=[Interrupt(stop)])
    assert linnet.resume("stopped").status == "completed"
    assert config("stopped")["dropout"] == 0.1 and losses("stopped") == losses("whole")


MICRO = preset("micro")  # 1M weights


@pytest.mark.parametrize(
    ("corpus", "steps", "share"),
    [
        (100_000, 400, None),  # 8 passes
        (100_000, 500, 0.1),
        (100_000, 2_500, 0.2),
        (1_000_000, 5_000, 0.1),
        (2_000_000, 10_000, None),  # more tokens than weights: not measured
        (None, 500, None),
    ],
)
def test_the_rule_asks_for_passes_and_for_more_weights_than_tokens(
    corpus: int | None, steps: int, share: float | None
) -> None:
    def settled(**given: Any) -> TrainSettings:
        return rates.settled(TrainSettings(steps=steps, **given), MICRO, 2_048, corpus=corpus)

    assert settled().dropout == share
    assert settled(dropout=0.0).dropout == 0 and settled(dropout=0.4).dropout == 0.4


@pytest.mark.parametrize("recipe", ["finetune", "taught"])
def test_a_model_that_was_trained_or_has_a_teacher_drops_nothing_by_rule(recipe: str, little: Path) -> None:
    train(little, "donor", steps=4, vocab=320)
    donor = Path("runs/donor/weights/step_4.gguf")
    flags = {name: value for name, value in TINY.items() if name not in ("preset", "vocab", "steps")}
    begin = {"base": donor, "ctx": 32} if recipe == "finetune" else {"teacher": donor, "preset": "tiny"}
    name = "finetune" if recipe == "finetune" else "from-scratch"
    linnet.train(name, corpus=little, run_id="a", epochs=12, **{**flags, **begin})
    assert "dropout" not in config("a")
