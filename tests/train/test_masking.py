"""Masking of secrets never touches what resume reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import linnet
from tests.conftest import SMALL, Said


def test_a_run_whose_corpus_and_prompt_look_like_tokens_is_resumed(said: Said, corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "hf_wikipedia_en_small"
    shutil.copy(corpus / "json_decoder.py", file)
    prompt = "sk-0123456789abcdef"
    words = ["train", "from-scratch", "--corpus", str(file), *SMALL, "--prompt", prompt, "--run-id", "a"]
    code, _, err = said(*words, "--steps", "2", "--name", "token=hunter2")
    assert code == 0, err
    run = linnet.open("a")
    assert (Path(run.config["corpus"]), run.config["prompts"]) == (file, [prompt])
    assert run.name == "token=***"
    code, _, err = said("resume", "a", "--steps", "3")
    assert code == 0, err
    samples = [event.data["prompt"] for event in linnet.open("a").events().read_events() if event.kind == "sample"]
    assert set(samples) == {prompt}
