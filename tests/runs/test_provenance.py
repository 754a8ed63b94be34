"""Where a run comes from is kept, and no secret is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import linnet
from linnet.runs import Run, RunBundle, provenance
from tests.runs.conftest import lines_of


def test_secrets_on_the_command_line_and_in_the_config_are_masked(root: Path) -> None:
    from linnet.runs.provenance import mask_arguments

    command = ["train.py", "--api-key", "abc123", "--hf-token=xyz", "--lr", "0.1", "ghp_0123456789abcdefghij"]
    assert mask_arguments(command) == ["train.py", "--api-key", "***", "--hf-token=***", "--lr", "0.1", "***"]
    assert mask_arguments(["https://kit:pa55@host/x", "--tokenizer", "bpe"])[0] == "https://kit:***@host/x"
    assert mask_arguments(["--tokenizer", "bpe", "--max-tokens", "5"])[1::2] == ["bpe", "5"]
    config = {
        "password": "hunter2",
        "tokens": 5,
        "opt": [{"auth_token": "x", "token_count": "3"}],
        "pad_token": "<pad>",
    }
    config |= {"aws_secret_access_key": "hunter2"}
    with linnet.start(config=config, system_every=0) as run:
        run.log(1, loss=1.0)
    text = (run.run_dir / "run.json").read_text() + (run.run_dir / "events.jsonl").read_text()
    assert "hunter2" not in text
    masked = {"password": "***", "tokens": 5, "opt": [{"auth_token": "***", "token_count": "3"}], "pad_token": "<pad>"}
    assert run.manifest.config == {**masked, "aws_secret_access_key": "***"}


TOKEN = "hf_" + "abcdefghij" * 3


def test_what_is_read_back_is_never_masked(root: Path) -> None:
    config = {
        "corpus": "data/hf_wikipedia_en_small.txt",  # a path only contains what looks like a token
        "prompts": [TOKEN, "sk-learn-is-a-library"],
        "key": TOKEN,
        "url": "https://kit:pa55@host/x",
        "hub_token": "abc",
    }
    with linnet.start(run_id="a", config=config, exact=["prompts"], system_every=0) as run:
        run.sample(1, TOKEN, "text")
    kept = linnet.open("a").config
    assert (kept["corpus"], kept["prompts"]) == (config["corpus"], config["prompts"])
    assert (kept["key"], kept["url"], kept["hub_token"]) == ("***", "https://kit:***@host/x", "***")
    assert lines_of(root / "a")[0]["config"] == kept
    assert lines_of(root / "a")[1]["prompt"] == TOKEN  # as in the config that names it


def test_labels_are_masked_like_the_command_line(root: Path) -> None:
    labels = {"name": "token=hunter2", "experiment": "https://u:hunter2@host", "group": TOKEN}
    with linnet.start(
        template="{experiment}-{seq}", tags=["password=hunter2", "good"], system_every=0, **labels
    ) as run:
        pass
    made = Run.create(tags=[TOKEN], config={"password": "hunter2"}, **labels)
    for folder, tags in ((run.run_dir, ["password=***", "good"]), (made.path, ["***"])):
        manifest = Run.load(folder).manifest
        assert (manifest.name, manifest.experiment, manifest.group) == ("token=***", "https://u:***@host", "***")
        assert manifest.tags == tags
    texts = [file.read_text() for file in root.rglob("*") if file.is_file()]
    assert not any("hunter2" in text or TOKEN in text for text in [*texts, run.run_id])


FOUND = {"sha": "f" * 40, "branch": "main", "dirty": True}


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git", lambda: dict(FOUND))


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("sha", "branch", "expected"),
    [
        ("", "", FOUND),
        ("0" * 40, "mine", {"sha": "0" * 40, "branch": "mine"}),  # nobody looked whether that one is dirty
        ("f" * 40, "main", FOUND),
    ],
)
def test_the_commit_is_the_one_that_was_said_else_the_one_found(
    root: Path, sha: str, branch: str, expected: dict[str, object]
) -> None:
    bundle = RunBundle(root, "a")
    bundle.git(sha, branch)
    bundle.run_start("llama")
    bundle.run_end()
    assert lines_of(root / "a")[0]["git"] == expected
    assert linnet.open("a").manifest.provenance["git"] == expected


def test_outside_a_repository_there_is_no_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git", dict)
    bundle = RunBundle(root, "a")
    bundle.git("", "")
    bundle.run_end()
    assert "git" not in lines_of(root / "a")[0]
    assert (bundle.git_sha, bundle.git_branch) == ("", "")


@pytest.mark.usefixtures("repository")
def test_a_commit_that_is_said_after_the_start_takes_effect(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.git("0" * 40, "mine")
        assert run.git_sha == "0" * 40
    commit = {"sha": "0" * 40, "branch": "mine"}
    assert linnet.open("a").manifest.provenance["git"] == commit
    assert [line["git"] for line in lines_of(root / "a") if line["kind"] == "note"] == [commit]


@pytest.mark.parametrize(("allocated", "expected"), [(0, "cpu"), (4096, "metal")])
def test_metal_is_named_only_when_it_is_in_use(monkeypatch: pytest.MonkeyPatch, allocated: int, expected: str) -> None:
    mac = SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: False),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True)),
        mps=SimpleNamespace(current_allocated_memory=lambda: allocated),
    )
    monkeypatch.setitem(sys.modules, "torch", mac)
    assert provenance.backend() == expected
