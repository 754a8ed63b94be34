"""Opening a GGUF file and taking things out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gguf
from linnet.gguf import GGMLType, GGUFError, GGUFFile, GGUFWriter, MetadataBlock, ValueType


@pytest.fixture
def small(tmp_path: Path) -> Path:
    metadata = MetadataBlock().text("general.architecture", "llama").u32("llama.block_count", 2)
    metadata.texts("tokenizer.ggml.tokens", ["a", "ß", "", "\U0001f426"]).flag("toy.ggml_native", True)
    writer = GGUFWriter(metadata)
    writer.add("matrix", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add("cube", np.arange(24, dtype=np.float32).reshape(2, 3, 4), GGMLType.F16)
    writer.add("vector", np.array([1.5, -2.0], np.float32))
    return writer.write(tmp_path / "small.gguf")


def test_metadata_reads_like_a_dict(small: Path) -> None:
    with GGUFFile.open(small) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.block_count"] == 2
        assert file.metadata["tokenizer.ggml.tokens"] == ("a", "ß", "", "\U0001f426")
        assert file.metadata["toy.ggml_native"] is True
        assert file.metadata.get("no.such.key") is None
        assert file.metadata.type("llama.block_count") is ValueType.U32
        assert file.metadata.label("tokenizer.ggml.tokens") == "array of string"
        assert file.metadata.length("tokenizer.ggml.tokens") == 4


def test_tensors_have_torch_shapes_and_zero_copy_views(small: Path) -> None:
    with GGUFFile.open(small) as file:
        matrix = file.tensors["matrix"]
        assert (matrix.shape, matrix.type, matrix.nbytes) == ((3, 4), GGMLType.F32, 48)
        assert matrix.array().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert matrix.array().base is not None and not matrix.array().flags.writeable
        assert matrix.raw().nbytes == 48
        assert file.tensors["cube"].array().dtype == np.float16


def test_read_takes_only_the_rows_asked_for(small: Path) -> None:
    with GGUFFile.open(small) as file:
        assert file.tensors["matrix"].read(slice(1, 3)).tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert file.tensors["matrix"].read(slice(-1, None)).tolist() == [[8, 9, 10, 11]]
        assert file.tensors["cube"].read(slice(1, 2)).shape == (1, 3, 4)
        assert file.tensors["cube"].read().ravel().tolist() == list(range(24))
        assert file.tensors["vector"].read().tolist() == [1.5, -2.0]
        assert file.tensors["matrix"].read(slice(3, 9)).shape == (0, 4)


def test_views_outlive_the_file(small: Path) -> None:
    with GGUFFile.open(small) as file:
        view = file.tensors["matrix"].array()
    assert view[2, 3] == 11
    with pytest.raises(GGUFError, match="has been closed"):
        file.tensors["matrix"].read()


def test_the_real_model_equals_what_gguf_py_reads(smollm2: Path) -> None:
    with GGUFFile.open(smollm2) as file:
        theirs = gguf.GGUFReader(smollm2)
        assert list(file.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            ours = file.tensors[tensor.name]
            assert ours.shape == tuple(int(size) for size in reversed(tensor.shape))
            assert (ours.type, ours.offset, ours.nbytes) == (
                tensor.tensor_type,
                tensor.data_offset,
                tensor.n_bytes,
            )
        keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
        assert list(file.metadata) == keys
        for key in keys:
            value = theirs.fields[key].contents()
            assert file.metadata[key] == (tuple(value) if isinstance(value, list) else value)
        embedding = theirs.tensors[0]
        rows = gguf.quants.dequantize(embedding.data[1000:1064], embedding.tensor_type)
        assert np.array_equal(file.tensors[embedding.name].read(slice(1000, 1064)), rows)


def test_opening_loads_neither_torch_nor_gguf_py(small: Path) -> None:
    code = f"""
import sys, linnet.gguf
assert "numpy" not in sys.modules
with linnet.gguf.GGUFFile.open({str(small)!r}) as file:
    file.tensors["matrix"].read()
assert not {{"torch", "gguf", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_processes_may_read_through_one_open_file(small: Path) -> None:
    with GGUFFile.open(small) as file:
        child = os.fork()
        if child == 0:
            same = all(file.tensors["matrix"].read(slice(2, 3))[0, 0] == 8 for _ in range(200))
            os._exit(0 if same else 1)
        for _ in range(200):
            assert file.tensors["matrix"].read(slice(1, 2))[0, 0] == 4
        assert os.waitpid(child, 0)[1] == 0


def test_a_file_opens_by_its_name_alone(small: Path) -> None:
    with GGUFFile(str(small)) as file:
        assert file.path == small and "matrix" in file.tensors
    with pytest.raises(GGUFError, match="cannot be opened"):
        GGUFFile(small.with_name("nothing.gguf"))
