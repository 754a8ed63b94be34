"""A file may state any size: each is compared with its tensors before anything of that size is made."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from linnet.cli import main
from linnet.cli.errors import out_of_memory
from linnet.gguf import GGUFError, GGUFFile, GGUFWriter, MetadataBlock
from linnet.gguf.check import check
from linnet.models import load
from tests.gguf.small_files import gpt2_file, llama_file, restated, sentence_piece_file, vit_file

HUGE = (1 << 31) - 1


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """None of it may take time or memory."""
    begun, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - begun < 10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) * 1024 < 600 << 20


def last_error(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert said.startswith("linnet: ") and said.count("\n") == 1 and "Traceback" not in said
    assert len(said) < 1000
    return said


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("feed_forward_length", HUGE, "expected [2147483647, 32], found [48, 32]"),
        ("embedding_length", 1 << 24, "expected [288, 16777216], found [288, 32]"),
        ("embedding_length", HUGE, "the head size is 536870911"),
        ("attention.head_count", 1 << 30, "there are more heads than values; expected at most 32, found 1073741824"),
        ("attention.head_count_kv", 3, "n_kv 3 does not divide n_heads 4: choose n_kv from 1, 2, 4"),
        ("attention.key_length", 1 << 30, "expected [4294967296, 32], found [32, 32]"),
        ("block_count", HUGE, "the file cannot hold so many blocks"),
        ("block_count", 3, "expected [32], found none"),
    ],
)
def test_a_llama_that_states_other_sizes_than_its_tensors_is_refused(
    key: str, value: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"llama__{key.replace('.', '__')}"
    path = restated(llama_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **{name: ("u32", value)})
    with pytest.raises(GGUFError) as caught:
        load(path)
    assert words in str(caught.value) and str(path) in str(caught.value)
    for command in (["generate", str(path), "--prompt", "a"], ["eval", str(path), "--prompt", "a"]):
        assert main([*command, "--device", "cpu"]) == 1
        assert words in last_error(capsys)
    assert main(["inspect", str(path)]) == 0
    assert main(["check", str(path)]) == 1


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (4.0, 1.0), (float("nan"), 4.0), (1.0, float("inf"))])
def test_rope_factors_that_divide_by_nothing_are_refused(low: float, high: float, tmp_path: Path) -> None:
    scaling = {"factor": ("f32", 4.0), "original_context_length": ("u32", 16)}
    scaling |= {"low_freq_factor": ("f32", low), "high_freq_factor": ("f32", high)}
    changes = {f"linnet__rope__llama3__{key}": value for key, value in scaling.items()}
    path = restated(llama_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **changes)
    with pytest.raises(GGUFError, match="wrong factors; expected low_freq_factor above 0 and below high_freq_factor"):
        load(path)


def test_a_gpt2_of_a_huge_prime_width_is_refused_at_once(tmp_path: Path) -> None:
    changes = {"gpt2__embedding_length": ("u32", HUGE), "gpt2__attention__head_count": ("u32", 2)}
    path = restated(gpt2_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **changes)
    with pytest.raises(GGUFError, match="does not divide d_model 2147483647: choose n_heads from 1, 2147483647"):
        load(path)


def test_a_gpt2_has_as_many_positions_as_it_states(tmp_path: Path) -> None:
    path = restated(gpt2_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", gpt2__context_length=("u32", HUGE))
    with pytest.raises(GGUFError, match=r"position_embd.*expected \[2147483647, 32\], found \[64, 32\]"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("image_size", 1 << 20, r"expected \[68719476736, 32\], found \[4, 32\]"),
        ("image_size", 1 << 30, r"expected \[.*\], found \[4, 32\]"),
        ("patch_size", 1 << 16, "is no multiple of patch_size"),
        ("embedding_length", HUGE, "does not divide d_model"),
        ("embedding_length", 1 << 24, r"expected \[16777216, 1, 4, 4\], found \[32, 1, 4, 4\]"),
        ("feed_forward_length", HUGE, r"expected \[2147483647, 32\], found \[48, 32\]"),
        ("num_classes", HUGE, "3 labels for 2147483647 classes"),
        ("num_channels", 1 << 20, r"expected \[32, 1048576, 4, 4\], found"),
        ("block_count", HUGE, "so many blocks"),
    ],
)
def test_a_vit_that_states_other_sizes_than_its_tensors_is_refused(
    key: str, value: int, words: str, tmp_path: Path
) -> None:
    path = restated(vit_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **{f"vit__{key}": ("u32", value)})
    with pytest.raises(GGUFError, match=words):
        load(path, task="images")


def test_a_context_costs_only_what_is_used_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = llama_file(tmp_path / "a.gguf")
    path = restated(sound, tmp_path / "b.gguf", llama__context_length=("u32", HUGE))
    said = []
    for model in (sound, path):
        options = ["--prompt", "the", "--max-tokens", "8", "--temperature", "0", "--device", "cpu"]
        assert main(["generate", str(model), *options]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main(["eval", str(path), "--prompt", "the", "--device", "cpu"]) == 0
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 20)
    cache = ["--cache", str(tmp_path / "cache")]
    assert main(["eval", str(path), "--corpus", str(text), "--device", "cpu", *cache]) == 0


def test_tensors_that_are_joined_have_rows_of_one_shape(tmp_path: Path) -> None:
    with GGUFFile.open(gpt2_file(tmp_path / "a.gguf")) as file:
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
        for name, tensor in file.tensors.items():
            if name != "blk.0.attn_qkv.weight":
                writer.add(name, tensor.read())
        writer.add("blk.0.attn_q.weight", np.zeros((1, 32), np.float32))
        writer.add("blk.0.attn_k.weight", np.zeros((94, 1), np.float32))
        writer.add("blk.0.attn_v.weight", np.zeros((1, 1), np.float32))
        path = writer.write(tmp_path / "b.gguf")
    with pytest.raises(GGUFError, match=r"expected \[96, 32\], found \[1, 32\] and \[94, 1\] and \[1, 1\]"):
        load(path)


def test_a_lens_of_another_width_is_refused(tmp_path: Path) -> None:
    for source in (llama_file(tmp_path / "a.gguf"), vit_file(tmp_path / "v.gguf")):
        with GGUFFile.open(source) as file:
            writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
            for name, tensor in file.tensors.items():
                writer.add(name, tensor.read())
            writer.add("lens.proj.weight", np.zeros((31, 32), np.float32))
            path = writer.write(tmp_path / f"lens-{source.name}")
        with pytest.raises(GGUFError, match=r"lens\.proj\.weight.*found \[31, 32\]"):
            load(path)


def test_memory_that_is_not_there_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = restated(sentence_piece_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", llama__context_length=("u32", HUGE))
    options = ["--prompt", "hello", "--max-tokens", str(HUGE), "--device", "cpu"]
    assert main(["generate", str(path), *options]) == 1
    assert "there is not enough memory for this" in last_error(capsys)


def test_a_diverged_classifier_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with GGUFFile.open(vit_file(tmp_path / "a.gguf")) as file:
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
        for name, tensor in file.tensors.items():
            writer.add(name, np.full(tensor.shape, np.nan, np.float32))
        path = writer.write(tmp_path / "b.gguf")
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    assert main(["classify", str(path), str(tmp_path / "image.png"), "--device", "cpu"]) == 1
    assert "the model's numbers are not finite" in last_error(capsys)


def test_classify_waits_for_no_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, pipe = vit_file(tmp_path / "a.gguf"), tmp_path / "pipe.png"
    os.mkfifo(pipe)
    for path, words in (
        (pipe, "neither file nor folder"),
        (Path("/dev/zero"), "neither file"),
        (tmp_path, "neither file"),
    ):
        assert main(["classify", str(model), str(path), "--device", "cpu"]) == 1
        assert words in last_error(capsys)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 16.0 GiB for an array with shape (2147483647,) and data type float64"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("Storage size calculation overflowed with sizes=[1099511627776, 1099511627776]"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nMore lines"),
    ],
    ids=lambda error: type(error).__name__ + str(error)[:12],
)
def test_every_kind_of_too_little_memory_is_one_line(error: Exception) -> None:
    line = out_of_memory(error)
    assert line is not None and line.startswith("there is not enough memory") and "\n" not in line
    assert "alloc_cpu.cpp" not in line
    assert out_of_memory(RuntimeError("a shape is wrong")) is None


def test_check_lists_no_more_than_a_person_reads(tmp_path: Path) -> None:
    with GGUFFile.open(llama_file(tmp_path / "a.gguf")) as file:
        keys = (key for key in file.metadata if key != "llama.block_count")
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, keys).u32("llama.block_count", 300))
        for name, tensor in file.tensors.items():
            writer.add(name, tensor.read())
        for number in range(2000):
            writer.add(f"t{number}", np.zeros(1, np.float32))
        path = writer.write(tmp_path / "b.gguf")
    refused = [finding for finding in check(path) if finding.refused]
    assert len(refused) == 201 and "more findings that are not listed" in str(refused[-1])


def test_a_wide_table_of_few_rows_has_no_axes_worth_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = MetadataBlock().text("general.architecture", "llama").u32("llama.embedding_length", 1 << 16)
    writer = GGUFWriter(metadata)
    writer.add("token_embd.weight", np.ones((2, 1 << 16), np.float32))
    donor = writer.write(tmp_path / "donor.gguf")
    assert main(["lens", str(donor), "--d-model", "8", "--out", str(tmp_path / "lens.gguf")]) == 2
    assert "a table of 2 rows, each 65,536 wide" in last_error(capsys)
