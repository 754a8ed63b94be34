"""Writing GGUF files: exact types, exact bytes, and refusals at the time of writing."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gguf
from linnet.gguf import GGMLType, GGUFError, GGUFFile, GGUFWriter, MetadataBlock, ValueType
from linnet.gguf.writer import storage_type

TYPES = {"f32": GGMLType.F32, "f16": GGMLType.F16, "bf16": GGMLType.BF16, "q8_0": GGMLType.Q8_0}


def f32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


WHOLE = {"U8": (0, 8), "I8": (1, 8), "U16": (0, 16), "I16": (1, 16), "U32": (0, 32), "I32": (1, 32)}
WHOLE |= {"U64": (0, 64), "I64": (1, 64)}
values = {
    ValueType[name]: st.integers(-(1 << bits - 1) * signed, (1 << bits - signed) - 1)
    for name, (signed, bits) in WHOLE.items()
}
values |= {
    ValueType.F32: st.floats(width=32, allow_nan=False),
    ValueType.F64: st.floats(allow_nan=False),
    ValueType.BOOL: st.booleans(),
    ValueType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}
entries = st.sampled_from(sorted(values)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.one_of(values[kind], st.lists(values[kind], max_size=5)))
)
names = st.text("abcdefgh_.éß", min_size=1, max_size=30)


@given(st.dictionaries(names, entries, max_size=12))
@settings(max_examples=150, deadline=None)
def test_metadata_comes_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, content: dict) -> None:
    block = MetadataBlock()
    for key, (kind, value) in content.items():
        if isinstance(value, list):
            block.add_array(key, kind, value)
        else:
            block.add(key, kind, value)
    path = GGUFWriter(block).write(tmp_path_factory.getbasetemp() / "metadata.gguf")
    with GGUFFile.open(path) as file:
        assert list(file.metadata) == list(content)
        for key, (kind, value) in content.items():
            assert file.metadata[key] == (tuple(value) if isinstance(value, list) else value)
            stated = file.metadata.element_type(key) if isinstance(value, list) else file.metadata.type(key)
            assert stated is kind
        again = MetadataBlock().copy(file.metadata, file.metadata)
        assert again.to_bytes() == block.to_bytes()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ValueType.U32, -1),
        (ValueType.U32, 1 << 32),
        (ValueType.U8, 1.5),
        (ValueType.U32, "1"),
        (ValueType.U32, True),
        (ValueType.BOOL, 1),
        (ValueType.STRING, 5),
        (ValueType.F32, "x"),
        (ValueType.F32, 1e39),
        (ValueType.I64, 1 << 63),
        (ValueType.STRING, "\ud800"),
    ],
)
def test_value_that_does_not_fit_its_type_is_refused(kind: ValueType, value: object) -> None:
    with pytest.raises(GGUFError, match=r"'a\.key': the value does not fit its type"):
        MetadataBlock().add("a.key", kind, value)  # type: ignore[arg-type]


def test_key_given_twice_is_refused() -> None:
    block = MetadataBlock().u32("a", 1)
    with pytest.raises(GGUFError, match="twice"):
        block.text("a", "b")
    with pytest.raises(GGUFError, match="twice"):
        block.extend(MetadataBlock().u32("a", 1))


def test_file_is_byte_for_byte_gguf_pys(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "a.weight": rng.random((5, 7), np.float32),
        "b": rng.random(3, np.float32),
        "c": rng.random((2, 3, 4), np.float32),
    }
    theirs = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    theirs.add_uint32("llama.block_count", 2)
    theirs.add_float32("llama.eps", 1e-5)
    theirs.add_bool("flag", True)
    theirs.add_array("tokens", ["a", "ß", ""])
    theirs.add_array("kinds", [1, 2, -3])
    for name, values in tensors.items():
        theirs.add_tensor(name, values)
    theirs.write_header_to_file()
    theirs.write_kv_data_to_file()
    theirs.write_tensors_to_file()
    theirs.close()
    block = MetadataBlock().text("general.architecture", "llama").u32("llama.block_count", 2).f32("llama.eps", 1e-5)
    block.flag("flag", True).texts("tokens", ["a", "ß", ""]).add_array("kinds", ValueType.I32, [1, 2, -3])
    ours = GGUFWriter(block)
    for name, values in tensors.items():
        ours.add(name, values)
    assert ours.write(tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


@pytest.mark.parametrize("kind", TYPES)
def test_conversion_equals_gguf_pys_from_numpy_and_torch(tmp_path: Path, kind: str) -> None:
    values = (np.random.default_rng(1).standard_normal((1500, 1024)) * 10).astype(np.float32)  # more than one piece
    values[0, :5] = [0.0, -0.0, 1e-40, 3.0e38 if kind in ("f32", "bf16") else 6e4, -1e-8]
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.upper()]).tobytes()
    sources = {
        "numpy": values,
        "torch": torch.from_numpy(values),
        "a parameter": torch.nn.Parameter(torch.from_numpy(values)),
        "a transposed view": torch.from_numpy(np.ascontiguousarray(values.T)).T,
        "numpy, strided": np.repeat(values, 2, axis=0)[::2],
        "float64": values.astype(np.float64),
        "read-only": np.frombuffer(values.tobytes(), np.float32).reshape(values.shape),
    }
    writer = GGUFWriter(MetadataBlock())
    for name, source in sources.items():
        writer.add(name, source, TYPES[kind])
    with GGUFFile.open(writer.write(tmp_path / "all.gguf")) as file:
        for name in sources:
            assert file.tensors[name].raw().tobytes() == expected, name


def test_nan_and_rounding_survive_bf16(tmp_path: Path) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf, 1.00390625, 1.01171875, 3.4e38]], np.float32)
    for source in (odd, torch.from_numpy(odd)):
        writer = GGUFWriter(MetadataBlock())
        writer.add("odd", source, GGMLType.BF16)
        with GGUFFile.open(writer.write(tmp_path / "odd.gguf")) as file:
            expected = torch.from_numpy(odd).bfloat16().float().numpy()
            assert np.array_equal(file.tensors["odd"].read(), expected, equal_nan=True)


def test_without_torch_the_bytes_are_the_same(tmp_path: Path) -> None:
    """Run in a process that has no torch; the file is compared with one that torch converted."""
    code = f"""
import sys, numpy as np
from linnet.gguf import GGMLType, GGUFWriter, MetadataBlock
values = (np.random.default_rng(2).standard_normal((64, 96)) * 3).astype(np.float32)
for kind in (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0):
    writer = GGUFWriter(MetadataBlock())
    writer.add("w", values, kind)
    writer.write(f"{tmp_path}/{{sys.argv[1]}}-{{kind.name}}.gguf")
assert ("torch" in sys.modules) == (sys.argv[1] == "with")
"""
    subprocess.run([sys.executable, "-c", code, "without"], check=True)
    subprocess.run([sys.executable, "-c", "import torch\n" + code, "with"], check=True)
    for kind in TYPES.values():
        one, other = (tmp_path / f"{word}-{kind.name}.gguf" for word in ("with", "without"))
        assert one.read_bytes() == other.read_bytes(), kind.name


@pytest.mark.parametrize(
    ("name", "shape", "kind", "problem"),
    [
        ("n" * 64, (4, 4), "f32", "name's length is wrong; expected 1 to 63 bytes, found 64"),
        ("ß" * 32, (4, 4), "f32", "name's length is wrong; expected 1 to 63 bytes, found 64"),
        ("", (4, 4), "f32", "name's length is wrong"),
        ("v", (4,), "f16", "one-dimensional tensor"),
        ("v", (32,), "q8_0", "one-dimensional tensor"),
        ("five", (1, 1, 1, 1, 1), "f32", "the shape cannot be written"),
        ("scalar", (), "f32", "the shape cannot be written"),
        ("nothing", (0, 4), "f32", "the shape cannot be written"),
        ("rows", (4, 48), "q8_0", "a multiple of 32 for q8_0, found 48"),
    ],
)
def test_tensor_llama_cpp_would_refuse_is_refused(name: str, shape: tuple[int, ...], kind: str, problem: str) -> None:
    with pytest.raises(GGUFError, match=problem):
        GGUFWriter(MetadataBlock()).add(name, np.zeros(shape, np.float32), TYPES[kind])


def test_tensor_given_twice_is_refused() -> None:
    writer = GGUFWriter(MetadataBlock())
    writer.add("w", np.zeros((2, 2), np.float32))
    with pytest.raises(GGUFError, match="'w': the tensor was given twice"):
        writer.add("w", np.zeros((2, 2), np.float32))


def test_integers_and_unwritable_types_are_refused() -> None:
    with pytest.raises(GGUFError, match="expected floats, found int64"):
        GGUFWriter(MetadataBlock()).add("w", np.zeros((2, 2), np.int64))
    with pytest.raises(GGUFError, match=r"expected floats, found torch\.int32"):
        GGUFWriter(MetadataBlock()).add("w", torch.zeros((2, 2), dtype=torch.int32))
    with pytest.raises(GGUFError, match="expected f32 or f16 or bf16 or q8_0, found q4_k"):
        GGUFWriter(MetadataBlock()).add("w", np.zeros((2, 256), np.float32), GGMLType.Q4_K)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_value_too_large_for_f16_is_refused_not_made_infinite(tmp_path: Path, make: object) -> None:
    writer = GGUFWriter(MetadataBlock())
    writer.add("w", make([[1.0, 70000.0]], dtype=np.float32 if make is np.asarray else torch.float32), GGMLType.F16)  # type: ignore[operator]
    with pytest.raises(GGUFError, match="too large for f16"):
        writer.write(tmp_path / "large.gguf")
    assert list(tmp_path.iterdir()) == []


def test_types_that_llama_cpp_needs_win_over_the_file_type() -> None:
    assert storage_type("blk.0.attn_norm.weight", (64,), GGMLType.Q8_0) is GGMLType.F32
    assert storage_type("position_embd.weight", (64, 64), GGMLType.BF16) is GGMLType.F32
    assert storage_type("blk.0.ffn_down.weight", (64, 100), GGMLType.Q8_0) is GGMLType.F16
    assert storage_type("blk.0.ffn_down.weight", (64, 96), GGMLType.Q8_0) is GGMLType.Q8_0


def test_writing_takes_a_bounded_buffer(tmp_path: Path) -> None:
    """256 MB of weights on one page of memory, written as bf16: no copy of them is ever made."""
    code = f"""
import re, numpy as np, torch
from linnet.gguf import GGMLType, GGUFWriter, MetadataBlock
def peak():
    return int(re.search("VmHWM:\\\\s+(\\\\d+)", open("/proc/self/status").read())[1])
values = torch.zeros(1, 1024).expand(1 << 16, 1024)
small = GGUFWriter(MetadataBlock())
small.add("w", values[:2048], GGMLType.BF16)
small.write("{tmp_path}/small.gguf")
before = peak()
writer = GGUFWriter(MetadataBlock())
writer.add("w", values, GGMLType.BF16)
writer.write("{tmp_path}/big.gguf")
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 16


def test_block_is_made_from_types_in_words() -> None:
    block = MetadataBlock.of({"a": ("u32", 2), "b": ("array:string", ["x", "y"]), "c": ("bool", True)})
    assert block.to_bytes() == MetadataBlock().u32("a", 2).texts("b", ["x", "y"]).flag("c", True).to_bytes()
    with pytest.raises(GGUFError, match=r"'a': unknown type; .*found 'u33'"):
        MetadataBlock.of({"a": ("u33", 2)})
