"""`linnet train vit-tiny --images X` without other flags: what the images decide, and what a flag overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import linnet
from linnet.data.flips import flip_keeps_class
from linnet.data.images import ImageSet, load_images, size_of_files
from linnet.recipes.flags import defaults_of
from linnet.recipes.image_rules import RULED, ImageFacts, decide, default_batch, default_ema, fitting_patches
from linnet.recipes.vit_tiny import VitTiny
from tests.conftest import Said

_SMALL = ["--d-model", "32", "--n-heads", "2", "--d-ff", "64", "--n-layers", "1", "--device", "cpu"]


def job_of(**given: Any) -> Any:
    flags = [flag for group in VitTiny.flags.values() for flag in group]
    return VitTiny.job({**defaults_of(flags), "runs": None, **given})


def coloured(count: int, size: int = 12, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Blobs anywhere on noise, a colour for each of three classes: a mirrored one is as good."""
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 90, (count, size, size, 3))
    labels = np.arange(count) % 3
    for image, label in zip(images, labels, strict=True):
        top, left = draw.integers(0, size - 4, 2)
        image[top : top + 4, left : left + 4, label] = 230
    return images.astype(np.uint8), labels


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_on_a_gpu_mnist_gets_what_the_page_tuned_for_it() -> None:
    facts = ImageFacts(60_000, 28, 1, flip_keeps_class=False)
    assert default_batch(60_000, on_gpu=True) == 512
    chosen = {name: value for name, value in decide(facts, 512, None, on_gpu=True).items() if value}
    steps = chosen.pop("steps")
    assert 5800 <= steps <= 6000
    assert chosen == {"lr": 3e-3, "ema": 0.999, "shift": 0.1, "rotate": 15.0, "zoom": 0.1, "shear": 0.1}


def test_on_a_cpu_the_digits_stay_as_they_were() -> None:
    assert default_batch(1438, on_gpu=False) == 64
    chosen = {
        name: value for name, value in decide(ImageFacts(1438, 8, 1, False), 64, None, on_gpu=False).items() if value
    }
    assert chosen == {
        "steps": 600, "lr": 3e-3, "ema": 0.99, "shift": 0.1, "rotate": 10.0, "zoom": 0.1, "mixup": 0.3
    }  # fmt: skip


@pytest.mark.parametrize("images", [2, 500, 10_000, 50_000, 10**7])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_every_set_gets_values_that_are_allowed(images: int, on_gpu: bool) -> None:
    batch = default_batch(images, on_gpu)
    assert 64 <= batch <= 512 and batch & (batch - 1) == 0
    for channels in (1, 3):
        for size in (8, 32, 224):
            values = decide(ImageFacts(images, size, channels), batch, None, on_gpu)
            assert set(values) == set(RULED) and 600 <= values["steps"] <= 6000
            assert values["flip"] == (0.5 if channels == 3 else 0)
            job_of(**values)  # no value is refused


def test_the_average_looks_back_on_a_sixth_of_the_run() -> None:
    assert [default_ema(steps) for steps in (1, 60, 600, 6000, 10**6)] == [0.9, 0.9, 0.99, 0.999, 0.9999]


@pytest.mark.parametrize(
    ("size", "fitted"), [(28, (28, 4)), (32, (32, 4)), (30, (30, 5)), (48, (48, 6)), (29, (28, 4))]
)
def test_images_of_any_small_size_have_patches(size: int, fitted: tuple[int, int]) -> None:
    assert fitting_patches(size) == fitted


# -- may images be mirrored? ------------------------------------------------------------------------------------------


def test_digits_may_not_be_mirrored_and_what_lies_anywhere_may() -> None:
    assert flip_keeps_class(load_images("digits").train) is False
    images, labels = coloured(900)
    assert flip_keeps_class(ImageSet(images.transpose(0, 3, 1, 2), labels)) is True


def test_arrows_to_the_left_and_to_the_right_are_no_mirrored_ones() -> None:
    images, labels = coloured(600)
    images[:] = np.random.default_rng(1).integers(0, 60, images.shape)
    labels = labels % 2
    images[labels == 0, 4:8, :6] = 220
    images[labels == 1, 4:8, 6:] = 220
    assert flip_keeps_class(ImageSet(images.transpose(0, 3, 1, 2), labels)) is False


@pytest.mark.parametrize("count", [1, 3, 400])
def test_of_noise_nothing_is_known(count: int) -> None:
    draw = np.random.default_rng(0)
    noise = ImageSet(draw.integers(0, 255, (count, 3, 8, 8)).astype(np.uint8), draw.integers(0, 2, count))
    assert flip_keeps_class(noise) is None
    assert ImageFacts(count, 8, 3).may_flip and not ImageFacts(count, 8, 1).may_flip


# -- as a person meets it ---------------------------------------------------------------------------------------------


def test_a_run_says_what_was_decided_keeps_it_and_goes_on_with_it(said: Said, tmp_path: Path) -> None:
    images, labels = coloured(240)
    np.savez(tmp_path / "blobs.npz", images=images, labels=labels)
    train = ["train", "vit-tiny", "--images", str(tmp_path / "blobs.npz"), *_SMALL, "--run-id", "a"]
    code, out, err = said(*train, "--steps", "4", "--rotate", "5")
    assert code == 0, err
    rule = "by rule for 192 colour images of 12 px: lr 0.003, ema 0.9, shift 0.1, zoom 0.1, flip 0.5"
    assert rule in out.splitlines()
    config = json.loads(Path("runs/a/run.json").read_text())["config"]
    decided = {name: config[name] for name in ("batch", "steps", "lr", "ema", "rotate", "flip", "mixup")}
    assert decided == {"batch": 64, "steps": 4, "lr": 3e-3, "ema": 0.9, "rotate": 5.0, "flip": 0.5, "mixup": 0}
    assert "by_rule" not in config
    code, out, err = said("resume", "a", "--steps", "6")
    assert code == 0 and "by rule" not in out, err
    assert json.loads(Path("runs/a/run.json").read_text())["config"]["ema"] == 0.9


def test_a_run_from_before_the_rule_goes_on_with_what_it_had(said: Said) -> None:
    """Its run.json has every value, as those of jobs made in Python have."""
    from linnet.recipes import ImageData, Job, VitOptions, VitSettings, start

    shape = job_of(images="digits", d_model=32, n_heads=2, d_ff=64, n_layers=1).model
    settings = VitSettings(steps=2, batch=32, device="cpu", eval_every=0)
    start(Job(shape, ImageData("digits"), settings, recipe="vit-tiny", options=VitOptions()), run_id="old").run()
    code, out, _ = said("resume", "old", "--steps", "3")
    config = linnet.open("old").config
    assert code == 0 and "by rule" not in out
    assert (config["ema"], config["rotate"], config["batch"], config["lr"]) == (0.99, 10.0, 32, 3e-3)


def test_small_files_in_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    images, labels = coloured(12, size=20)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "set" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    model = job_of(images=str(tmp_path / "set")).model
    assert (model.image_size, model.patch_size, model.d_model) == (20, 2, 192)
    (tmp_path / "set/0/damaged.png").write_bytes(b"no image")
    Image.new("RGB", (300, 400)).save(tmp_path / "set/0/large.png")
    assert job_of(images=str(tmp_path / "set")).model.image_size == 224  # of all sizes: as photographs
    assert job_of(images=str(tmp_path / "set"), image_size=32).model.patch_size == 4


def test_a_file_that_is_no_image_makes_no_others_large(tmp_path: Path) -> None:
    for name in ("red", "green"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40), name).save(tmp_path / "photos" / name / "1.png")
        (tmp_path / "photos" / name / "damaged.png").write_bytes(b"no image")
    assert size_of_files(str(tmp_path / "photos")) == 40


def test_what_is_given_is_not_decided() -> None:
    job = job_of(images="digits", steps=10, lr=1e-3, ema=0.5, flip=0.25, batch=16)
    assert not {"steps", "lr", "ema", "flip"} & set(job.options.by_rule)
    assert (job.settings.batch, job.settings.lr, job.options.ema, job.options.flip) == (16, 1e-3, 0.5, 0.25)
    assert "steps" in job_of(images="digits").options.by_rule
    assert not any(
        "steps" in job_of(images="digits", **budget).options.by_rule for budget in ({"minutes": 1.0}, {"epochs": 2.0})
    )


def test_evaluations_are_compared_by_the_images_that_each_of_them_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one scores all: were it compared by those, a harder rest would make an earlier checkpoint the best."""
    from linnet.models import load
    from linnet.recipes import start
    from linnet.train.images import evaluate_images

    monkeypatch.setattr("linnet.recipes.image_data._LEAST", 16)
    shape = {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1}
    job = job_of(images="digits", **shape, steps=2, batch=32, device="cpu", eval_every=1, lr=1e-4)
    training = start(job, run_id="a")
    progress = training.run().progress
    held_out = load_images("digits").held_out
    model = load(training.run_dir / "weights/step_2.gguf", task="images")
    first, whole = (evaluate_images(model, held_out, most=most).loss for most in (16, None))
    assert progress.validation is not None and progress.validation.loss == pytest.approx(whole, rel=1e-4)
    assert progress.last_evaluation == pytest.approx(first, rel=1e-4) and first != pytest.approx(whole, rel=1e-5)
