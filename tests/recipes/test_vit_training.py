"""A vision transformer learns real digits, goes on to the bit, says what it gets wrong, and is run from its file."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import linnet
from linnet import gguf
from linnet.cli import main
from linnet.data.images import load_images
from linnet.errors import LinnetError
from linnet.models import build, load, preset
from linnet.recipes import VitOptions, VitSettings, VitTiny
from linnet.recipes.donor import DonorError
from linnet.train.hardware import choose
from linnet.train.images import png_bytes
from tests.conftest import Said, digest, interrupt, losses

# A model that takes a second or two.
SMALL = ["train", "vit-tiny", "--d-model", "32", "--n-heads", "2", "--d-ff", "64", "--n-layers", "2", "--batch", "32"]


def test_with_hardly_a_flag_it_learns_the_digits(said: Said) -> None:
    code, out, err = said("train", "vit-tiny", "--steps", "160", "--gate", "validation/accuracy>0.9")
    assert code == 0, out[-2000:] + err
    run = linnet.open("latest")
    metrics = run.metrics()
    assert metrics["accuracy"].step.tolist() == list(range(1, 161))
    assert metrics["images"].value[0] == 64
    assert {"loss", "lr", "grad_norm", "wall_us", "images_per_s"} <= set(metrics)
    assert metrics["validation/accuracy"].value[-1] > 0.9
    assert metrics["validation/top5"].value[-1] > 0.99
    assert "% right" in out
    model = load(run.checkpoints()[-1])
    held = load_images("digits").held_out
    with torch.no_grad():
        right = model(torch.from_numpy(held.images_NCHW)).argmax(1).numpy() == held.labels_N
    assert right.mean() == pytest.approx(metrics["validation/accuracy"].value[-1])


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of six steps, for tests that only read it."""
    with chdir(tmp_path_factory.mktemp("vit")):  # not in a repository, whose commit a checkpoint would name
        assert main([*SMALL, "--steps", "6"]) == 0
        return linnet.open("latest").path.absolute()


def test_a_run_says_what_the_images_are_and_has_no_context(small_run: Path) -> None:
    run = linnet.open(small_run)
    start = next(iter(run.events().read_events())).data
    assert start["model"]["arch"] == "vit"
    assert (start["model"]["image_size"], start["model"]["patch_size"], start["model"]["num_classes"]) == (8, 2, 10)
    assert "context" not in start["config"]
    assert run.manifest.recipe == "vit-tiny"
    assert run.id.startswith("vit-")
    (*_, last) = (event.data for event in run.events().read_events() if event.kind == "eval")
    assert set(last["per_class"]) == set("0123456789")
    flow = json.loads((run.path / "flow.json").read_text())
    roles = {node["name"]: node["role"] for node in flow["nodes"]}
    assert (roles["images"], roles["labels"], roles["head.linear"]) == ("input", "input", "output")
    assert "loss" in roles.values()
    with gguf.GGUFFile.open(run.checkpoints()[-1]) as file:
        assert file.architecture == "vit"
        assert file.metadata["vit.classifier.output_labels"] == tuple("0123456789")
        assert file.metadata["linnet.images_seen"] == 192
        assert file.metadata["vit.pooling"] == "mean"


def test_what_it_gets_wrong_is_drawn(small_run: Path) -> None:
    run = linnet.open(small_run)
    confusion = ElementTree.parse(run.path / "artifacts" / "confusion.svg")
    texts = ["".join(node.itertext()) for node in confusion.iter("{http://www.w3.org/2000/svg}text")]
    counts = [int(text) for text in texts[21:] if text.isdigit()]
    assert sum(counts) == 359
    wrong = (run.path / "artifacts" / "wrong.svg").read_text()
    assert wrong.count("<image ") == 64
    assert re.search(r"→ \d \d+%", wrong)
    kept = [event.data for event in run.events().read_events() if event.kind == "artifact"]
    assert {event["name"] for event in kept} == {"confusion.svg", "wrong.svg"}


def test_what_was_taken_for_what_is_counted(small_run: Path) -> None:
    evaluations = [event.data for event in linnet.open(small_run).events().read_events() if event.kind == "eval"]
    confusion = evaluations[-1]["confusion"]
    counts = np.array(confusion["counts"])
    assert confusion["labels"] == list("0123456789")
    assert counts.sum() == evaluations[-1]["samples"]
    shares = counts.diagonal() / counts.sum(1)
    assert evaluations[-1]["per_class"] == dict(zip("0123456789", shares.tolist(), strict=True))


@pytest.mark.parametrize(
    "more",
    [[], ["--ema", "0", "--optimizer", "adamw"], ["--file-type", "bf16", "--mixup", "0.5", "--rand-augment", "2"]],
)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(said: Said, tmp_path: Path, more: list[str]) -> None:
    words = [*SMALL, *more, "--steps", "16", "--run-id", "a", "--checkpoint-every", "5", "--warmup", "2"]
    assert said(*words, "--runs", str(tmp_path / "whole"))[0] == 0
    interrupt([*words, "--runs", str(tmp_path / "cut")], at="eval 7:")
    code, _, err = said("resume", "a", "--runs", str(tmp_path / "cut"))
    assert code == 0, err
    assert losses(str(tmp_path / "cut/a")) == losses(str(tmp_path / "whole/a"))
    name = "weights/step_16.gguf"
    assert digest(tmp_path / "cut/a" / name) == digest(tmp_path / "whole/a" / name)


def test_the_same_run_twice_gives_the_same_bytes(said: Said, small_run: Path, tmp_path: Path) -> None:
    assert said(*SMALL, "--steps", "6", "--run-id", small_run.name, "--runs", str(tmp_path))[0] == 0
    again = tmp_path / small_run.name
    for name in ("weights/step_6.gguf", "artifacts/wrong.svg"):
        assert digest(again / name) == digest(small_run / name)


def test_the_checkpoint_holds_the_average_of_the_weights() -> None:
    settings = VitSettings(batch=8, optimizer="adamw", device="cpu")
    config = preset("vit-tiny-8", d_model=32, n_heads=2, d_ff=64, n_layers=1, num_channels=1)
    recipe = VitTiny(settings, choose(settings, tokens=128), VitOptions(ema=0.5))
    recipe.realize(config)
    recipe.build()
    expected = {name: tensor.clone() for name, tensor in recipe.parameters().items()}
    images = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8)
    labels = torch.arange(8)
    for step in range(4):
        recipe.step(images, labels, 1e-2, is_first=step == 0)
        trained = {
            name.removeprefix("trained/"): t for name, t in recipe.moments().items() if name.startswith("trained/")
        }
        keep = min(0.5, (2 + step) / (11 + step))
        for name, tensor in expected.items():
            tensor.lerp_(trained[name], 1 - keep)
    for name, tensor in recipe.parameters().items():
        assert torch.allclose(tensor, expected[name], atol=1e-6), name
    assert not torch.allclose(recipe.parameters()["head.weight"], trained["head.weight"], atol=1e-6)


def test_the_first_step_forgets_what_the_optimiser_knew() -> None:
    settings = VitSettings(batch=8, optimizer="adamw", device="cpu")
    config = preset("vit-tiny-8", d_model=32, n_heads=2, d_ff=64, n_layers=1, num_channels=1)
    images, labels = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8), torch.arange(8)
    ends = []
    for forgets in (True, False):
        recipe = VitTiny(settings, choose(settings, tokens=128), VitOptions(ema=0.0))
        recipe.realize(config)
        recipe.build()
        recipe.step(images, labels, 0.0, is_first=True)  # moves nothing, but is remembered
        recipe.step(images.flip(0), labels, 1e-2, is_first=forgets)
        ends.append(recipe.parameters()["head.weight"])
    fresh = VitTiny(settings, choose(settings, tokens=128), VitOptions(ema=0.0))
    fresh.realize(config)
    fresh.build()
    fresh.step(images.flip(0), labels, 1e-2, is_first=True)
    assert torch.equal(ends[0], fresh.parameters()["head.weight"])
    assert not torch.equal(ends[1], ends[0])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.tensor([0, 1, 10]), "label 10 is out of range: expected 0 to 9, the classes of the model"),
        (torch.tensor([0, -1, 2]), "label -1 is out of range"),
        (torch.ones(3, 11) / 11, "labels give shares of 11 classes; expected 10"),
    ],
)
def test_labels_that_the_model_has_no_class_for_are_named(labels: torch.Tensor, words: str) -> None:
    settings = VitSettings(batch=8, optimizer="adamw", device="cpu")
    recipe = VitTiny(settings, choose(settings, tokens=128), VitOptions(ema=0.0))
    recipe.realize(preset("vit-tiny-8", d_model=32, n_heads=2, d_ff=64, n_layers=1, num_channels=1))
    recipe.build()
    with pytest.raises(LinnetError, match=words):
        recipe.step(torch.zeros(3, 1, 8, 8), labels, 1e-3)


def test_toys_variant_is_trained_by_the_flags_of_the_documentation(said: Said) -> None:
    page = (Path(__file__).parents[2] / "docs/vit.md").read_text()
    block = next(text for text in page.split("```") if "--bias-correction seed" in text)
    command = block.replace("\\\n", " ").split()
    code, _, err = said(
        *command[1:],
        "--steps",
        "12",
        "--batch",
        "16",
        "--d-model",
        "32",
        "--n-heads",
        "2",
        "--n-layers",
        "1",
        "--run-id",
        "toy",
        "--json",
    )
    assert code == 0, err
    run = linnet.open("toy")
    expected = {"pooling": "cls", "norm": "rms", "norm_eps": 1e-5, "act": "silu", "bias": False}
    assert {key: run.manifest.model[key] for key in expected} == expected
    rates = run.metrics()["lr"].value
    assert (rates[0], rates.max()) == (pytest.approx(3e-4), pytest.approx(3e-3))


def test_a_donor_that_is_no_model_is_a_donor_error(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("remember the milk, and much else besides\n" * 100)
    settings = VitSettings(batch=8, device="cpu")
    options = VitOptions(init="select", donor=str(tmp_path / "notes.gguf"))
    with pytest.raises(DonorError, match=r"notes\.gguf: magic: this is not a GGUF file"):
        VitTiny(settings, choose(settings, tokens=128), options).realize(preset("vit-tiny-8"))


def test_classify_prints_labels_with_probabilities(said: Said, tmp_path: Path) -> None:
    config = replace(preset("vit-tiny-8", num_channels=1, num_classes=3), labels=("cat", "dog", "bird"))
    model = build(config, seed=1, mimetic=True)
    gguf.write(config, model.params(), tmp_path / "model.gguf", "run", 1)
    picture = np.random.default_rng(0).integers(0, 256, (1, 8, 8), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(png_bytes(picture))
    Image.new("RGB", (40, 30), "red").save(tmp_path / "b.jpg")
    files = [str(tmp_path / name) for name in ("a.png", "b.jpg")]
    code, out, err = said("classify", str(tmp_path / "model.gguf"), *files)
    assert code == 0, err
    with torch.no_grad():
        expected = model(torch.from_numpy(picture[None])).softmax(1)[0]
    best = int(expected.argmax())
    assert re.search(rf"{config.labels[best]}\s+[█░]+\s+{expected[best]:.2%}", out)
    code, out, _ = said("classify", str(tmp_path / "model.gguf"), *files, "--top", "1", "--json")
    told = json.loads(out)
    assert [len(image["guesses"]) for image in told["images"]] == [1, 1]
    assert told["images"][0]["guesses"][0]["probability"] == pytest.approx(expected[best].item(), rel=1e-5)
    code, out, err = said("classify", str(tmp_path / "model.gguf"), str(tmp_path / "none.png"), files[0])
    assert code == 1
    assert "none.png: not an image that can be read: No such file or directory" in err
    assert "a.png" in out


def test_eval_gives_the_accuracy_of_the_run_and_of_other_images(said: Said, tmp_path: Path) -> None:
    assert said(*SMALL, "--steps", "30")[0] == 0
    run = linnet.open("latest")
    code, out, _ = said("eval", "latest", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["accuracy"] == pytest.approx(run.metrics()["validation/accuracy"].value[-1])
    assert told["samples"] == 359
    assert np.array(told["confusion"]).sum() == 359
    assert json.loads(said("eval", "latest", "--all", "--json")[1])["samples"] == 1797
    digits = load_images("digits").held_out
    for place in range(40):
        folder = tmp_path / "mine" / str(digits.labels_N[place])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{place}.png").write_bytes(png_bytes(digits.images_NCHW[place]))
    code, out, _ = said("eval", "latest", "--images", str(tmp_path / "mine"), "--all")
    assert code == 0
    assert "all images: 40" in out
    (tmp_path / "mine" / "seven").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "mine" / "seven" / "a.png")
    code, _, err = said("eval", "latest", "--images", str(tmp_path / "mine"), "--all")
    assert (code, "the model knows no class 'seven'" in err) == (2, True)


def test_a_part_of_a_larger_model_begins_a_run_that_resumes_without_it(said: Said, tmp_path: Path) -> None:
    wide = [*SMALL[:2], "--d-model", "64", "--n-heads", "4", "--d-ff", "128", "--n-layers", "3", "--batch", "32"]
    assert said(*wide, "--steps", "4", "--run-id", "wide")[0] == 0
    donor = tmp_path / "runs/wide/weights/step_4.gguf"
    code, _, err = said(*SMALL, "--init", "select", "--donor", str(donor), "--steps", "4", "--run-id", "part")
    assert code == 0, err
    donor.unlink()
    code, _, err = said("resume", "part", "--steps", "6")
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--patch-size", "3"], 2, "image_size 8 is no multiple of patch_size 3: choose patch_size from 1, 2, 4, 8"),
        (["--preset", "vit-tiny28"], 2, "did you mean vit-tiny-28?"),
        (["--images", "nowhere"], 1, "there are no images at nowhere"),
        (["--num-classes", "3"], 1, "is out of range: expected 0 to 2"),
        (["--corpus", "python"], 2, "Unknown option: --corpus"),
        (["--batch-tokens", "128"], 2, "Unknown option: --batch-tokens"),
        (["--init", "select"], 2, "--donor FILE.gguf: give both"),
        (["--ema", "1"], 2, "--ema must be from 0 to below 1"),
        (["--cutmix", "0.8"], 2, "together at most 1"),
        (["--held-out", "0"], 1, "--held-out is a share"),
        (["--sample-every", "1"], 2, "Unknown option: --sample-every"),
    ],
)
def test_wrong_words_are_one_line_and_leave_nothing_behind(
    said: Said, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    found, _, err = said(*SMALL, "--steps", "3", *words)
    assert (found, message in err, err.count("\n")) == (code, True, 1), err
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_changed_images_are_refused_and_bad_files_told_of(said: Said, tmp_path: Path) -> None:
    digits = load_images("digits").train
    for place in range(30):
        folder = tmp_path / "mine" / str(digits.labels_N[place])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{place}.png").write_bytes(png_bytes(digits.images_NCHW[place]))
    (tmp_path / "mine" / "0" / "notes.txt").write_text("no image")
    words = [*SMALL, "--images", str(tmp_path / "mine"), "--image-size", "8", "--preset", "vit-tiny-8", "--steps", "3"]
    code, out, err = said(*words, "--run-id", "a")
    assert code == 0, err
    assert re.search(r"1 file left out: .*notes.txt: not an image", out)
    notes = [event.data["text"] for event in linnet.open("a").events().read_events() if event.kind == "note"]
    assert "notes.txt" in notes[0]
    code, _, err = said(*words, "--strict")
    assert (code, "notes.txt" in err) == (1, True)
    (tmp_path / "mine" / "0" / "more.png").write_bytes(png_bytes(digits.images_NCHW[0]))
    code, _, err = said("resume", "a", "--steps", "5")
    assert code == 1
    assert "the set of images" in err and "has changed since the checkpoint of step 3" in err


def test_flags_of_text_and_of_images_do_not_mix_in_eval(said: Said, small_run: Path) -> None:
    code, _, err = said("eval", str(small_run), "--prompt", "x")
    assert (code, "--prompt is for text" in err) == (2, True)
    code, _, err = said("generate", str(small_run), "--prompt", "x")
    assert (code, "look at images with: linnet classify" in err) == (2, True)


def test_one_of_five_guesses_is_no_figure_where_there_are_four_classes(said: Said, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "four.npz", images=pixels, labels=np.arange(40) % 4)
    code, out, err = said(*SMALL, "--images", "four.npz", "--preset", "vit-tiny-8", "--steps", "2")
    assert (code, err) == (0, "")
    assert "top5" not in out
    assert linnet.open("latest").manifest.config["images"] == str(tmp_path / "four.npz")
    assert "validation/top5" not in linnet.open("latest").metrics()
    code, out, err = said("eval", "latest")
    assert (code, "top 5" in out) == (0, False)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer that was never trained, with three classes."""
    config = replace(preset("vit-tiny-8", num_channels=1, num_classes=3), labels=("cat", "dog", "bird"))
    path = tmp_path_factory.mktemp("seeing") / "model.gguf"
    gguf.write(config, build(config, seed=1, mimetic=True).params(), path, "run", 1)
    return path


def test_classify_takes_folders_and_counts_what_is_no_image(said: Said, seeing: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    rng = np.random.default_rng(0)
    for name in ("b.png", "a.png", "deep/er/C.PNG", ".hidden/no.png"):
        (folder / name).write_bytes(png_bytes(rng.integers(0, 256, (1, 8, 8), dtype=np.uint8)))
    (folder / "notes.txt").write_text("none")
    (folder / "deep" / "table.csv").write_text("none")
    code, out, err = said("classify", str(seeing), str(folder))
    assert code == 0, err
    lines = out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == [str(folder / n) for n in ("a.png", "b.png", "deep/er/C.PNG")]
    assert re.match(r"3 images: (cat|dog|bird) \d", lines[3])
    assert lines[4].startswith("2 files left out: ") and "notes.txt" in lines[4] and ".hidden" not in out
    told = json.loads(said("classify", str(seeing), str(folder), str(folder / "a.png"), "--json")[1])
    assert [Path(image["file"]).name for image in told["images"]] == ["a.png", "b.png", "C.PNG", "a.png"]
    assert [Path(file).name for file in told["left_out"]] == ["table.csv", "notes.txt"]
    one = json.loads(said("classify", str(seeing), str(folder / "a.png"), "--json")[1])
    assert one["images"][0]["guesses"][0]["probability"] == pytest.approx(
        told["images"][0]["guesses"][0]["probability"], abs=1e-5
    )


def test_classify_tells_a_bounded_number_of_images_that_cannot_be_read(
    said: Said, seeing: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.png").write_bytes(b"not a picture")
    (folder / "sound.png").write_bytes(png_bytes(np.zeros((1, 8, 8), np.uint8)))
    (folder / "odd\udcff\x1b[31m.png").write_bytes(b"no")
    code, out, err = said("classify", str(seeing), str(folder))
    assert (code, err.count("not an image that can be read")) == (1, 10)
    assert "and 31 more images could not be read" in err
    assert "sound.png" in out and "1 image: " in out and "\x1b" not in out + err
    told = json.loads(said("classify", str(seeing), str(folder), "--json")[1])
    assert sum("error" in image for image in told["images"]) == 41


def test_classify_says_when_a_folder_has_no_images(said: Said, seeing: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    code, _, err = said("classify", str(seeing), str(tmp_path))
    assert (code, "there are no images in this folder (files of other kinds: 1)" in err) == (1, True)
