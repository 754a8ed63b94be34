"""`--inspect all` in every recipe: the same losses and weights to the bit, also where a run is stopped and goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.gguf import convert
from linnet.train import Callback, StepMetrics
from tests.conftest import losses
from tests.data.chats import chats, pairs

Flags = dict[str, Any]
SMALL: Flags = {"steps": 6, "batch": 4, "device": "cpu", "checkpoint_every": 3, "seed": 3}
TEXT: Flags = {"ctx": 32, "eval_tokens": 256, "sample_every": 0}
STUDENT: Flags = {"d_model": 32, "n_heads": 2, "n_kv": 1, "n_layers": 2}


@pytest.fixture(scope="module")
def material(trained: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("material")
    return {
        "model": trained,
        "base": convert.convert(trained, folder / "base.gguf", "q8_0"),
        "corpus": corpus,
        "pairs": pairs(folder / "pairs.jsonl", 60),
        "chats": chats(folder / "chats.jsonl", 60),
    }


def of(**flags: Any) -> Callable[[dict[str, Path]], Flags]:
    """A recipe's own flags; a value in capitals is a file among the material."""

    def made(material: dict[str, Path]) -> Flags:
        own = {name: material[value.lower()] if str(value).isupper() else value for name, value in flags.items()}
        return {**SMALL, **own}

    return made


CASES = {
    "lora": ("lora", of(base="BASE", corpus="CORPUS", dropout=0.2, lr=5e-3, **TEXT)),
    "dora-muon": ("lora", of(base="BASE", corpus="CORPUS", dora=True, optimizer="muon", batch_tokens=256, **TEXT)),
    "dpo": ("lora", of(base="BASE", corpus="PAIRS", loss="dpo", held_out=0.2, lr=5e-3, ctx=64, sample_every=0)),
    "finetune": ("finetune", of(base="MODEL", corpus="CORPUS", recompute="blocks", **TEXT)),
    "warm-start": ("warm-start", of(donor="MODEL", corpus="CORPUS", init="pca", **{**TEXT, **STUDENT})),
    "teacher": ("from-scratch", of(teacher="MODEL", corpus="CORPUS", dropout=0.1, **{**TEXT, **STUDENT})),
    "documents": ("from-scratch", of(corpus="CORPUS", documents=True, vocab=384, graph="off", **{**TEXT, **STUDENT})),
    "chats": ("from-scratch", of(corpus="CHATS", vocab=380, held_out=0.1, **{**TEXT, **STUDENT, "ctx": 96})),
    "images": ("vit-tiny", of(preset="vit-tiny-8", d_model=24, d_ff=48, ema=0.9, mixup=0.2, recompute="cheap")),
}


class Stop(Callback):
    """Ctrl-C after a step."""

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == 4:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", CASES)
def test_looks_change_no_bit_also_of_a_run_that_was_stopped(
    name: str, material: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    recipe, flags_of = CASES[name]
    flags = flags_of(material)
    plain = linnet.train(recipe, **flags, run_id="plain")
    seen = linnet.train(recipe, **flags, run_id="seen", inspect="all@2")
    linnet.train(recipe, **flags, run_id="parts", inspect="all@2", callbacks=[Stop()])
    parts = linnet.resume("parts")
    for run in (seen, parts):
        assert losses(run.id) == losses("plain") and len(losses("plain")) == 6
        assert run.checkpoints()[-1].name == "step_6.gguf"
        assert read_tensors(run) == read_tensors(plain)
        assert not [event for event in run.events().read_events() if event.data.get("level") == "warning"]
        looks = run.inspection().looks
        assert all(steps == [1, 2, 4, 6] for steps in looks.values()), looks
        assert {"taps", "gram", "grads", "drift", "regions"} <= set(looks)
    whole, resumed = (told(run) for run in (seen, parts))
    assert whole == resumed


def read_tensors(run: linnet.Run) -> dict[str, str]:
    """The bytes of the last checkpoint's tensors; a run's id is in its metadata, so files differ."""
    from linnet.gguf import GGUFFile

    with GGUFFile.open(run.checkpoints()[-1]) as file:
        return {name: str(hash(tensor.raw().tobytes())) for name, tensor in file.tensors.items()}


def told(run: linnet.Run) -> list[Any]:
    """What was told of the inside, but for times."""
    events = run.events().read_events()
    kinds = ("tap", "grad", "drift", "mask")
    return [{**event.data, "t": 0} for event in events if event.kind in kinds]
