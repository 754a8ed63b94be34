"""The commands of docs/i-want-to.md, run in small, in the order in which they stand there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet.cli import main
from linnet.gguf import write
from linnet.models import LlamaConfig, build
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

PAGE = Path(__file__).parents[2] / "docs/i-want-to.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

# What makes a command small: flags of each recipe that replace those of the page, or are added.
TRAINING = {"--steps": "2", "--batch": "2", "--device": "cpu"}
TEXT = {**TRAINING, "--eval-tokens": "256", "--sample-every": "0"}
SMALL = {
    "from-scratch": {**TEXT, "--preset": "tiny", "--vocab": "300", "--ctx": "32"},
    "warm-start": {**TEXT, "--ctx": "24"},
    "lora": {**TEXT, "--ctx": "24"},
    "finetune": {**TEXT, "--ctx": "24"},
    "vit-tiny": {**TRAINING, "--preset": "vit-tiny-8"},
}
SHAPE = {"--d-model": "16", "--n-layers": "1"}


def smaller(words: list[str]) -> list[str]:
    """The words of a command with the sizes of a test."""
    if words[0] == "train":
        sizes = SMALL[words[1]] | {flag: value for flag, value in SHAPE.items() if flag in words}
        for flag in sizes.keys() & set(words):
            del words[(at := words.index(flag)) : at + 2]
        return [*words, *(word for pair in sizes.items() for word in pair)]
    if words[0] == "demo":
        return ["help", "demo"]  # it has a test of its own, and a model that is not small
    if words[0] == "resume":
        return ["3" if word == "6000" else word for word in words]
    return [*words, "--max-tokens", "4"] if words[0] == "generate" else words


@pytest.fixture
def belongings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what the page calls yours: books, photos, questions, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_RUNS", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("BASH_VERSION", "5")
    Path("books").mkdir()
    for file in sorted((Path(sysconfig.get_path("stdlib")) / "json").glob("*.py")):
        shutil.copy(file, "books")
    pairs = [{"prompt": str(number), "chosen": "b", "rejected": "c"} for number in range(40)]
    Path("preferences.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    generator = np.random.default_rng(0)
    for kind in ("cats", "dogs"):
        Path("photos", kind).mkdir(parents=True)
        for number in range(8):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("photos", kind, f"{number}.png"))
    Path("questions.jsonl").write_text('{"question": "Who?", "choices": ["he", "she"], "answer": 1}\n')
    config = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=64)
    write(config, build(config).params(), "smollm2.gguf", "donor", 1, tokenizer=byte_level_tokenizer())


@pytest.mark.usefixtures("belongings")
def test_every_command_of_the_page_works_in_small(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from linnet.cli import doctor

    fine = {"version": "1", "cuda": None, "mps": False, "devices": [], "threads": 1}
    monkeypatch.setattr(doctor, "_probe", lambda names: dict.fromkeys(names, fine))
    commands = 0
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, PAGE.name, "exec"), {"__name__": "example"})
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "linnet", line
            assert main(smaller(words[1:])) == 0, f"{line}\n{capsys.readouterr().err}"
            commands += 1
    assert commands >= 24
    assert Path("loss.svg").exists() and Path("phone.gguf").exists()
    assert {"mine", "small", "tuned", "notes", "whole", "my-loop", "animals", "lr-1e-3", "lr-3e-3"} <= {
        summary.run_id for summary in linnet.list_runs()
    }


@pytest.mark.parametrize("page", [PAGE, PAGE.parents[1] / "README.md"])
def test_the_table_of_extras_is_that_of_the_package(page: Path) -> None:
    import tomllib

    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"test", "dev"}
    text = page.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `linnet\[(\w+)\]` \|", text, re.MULTILINE))
    assert listed == extras
    from linnet.cli.doctor import EXTRAS

    assert set(EXTRAS) == extras
