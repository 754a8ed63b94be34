"""Damaged and hostile files: always a GGUFError that says what and where; never a hang or a crash."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from linnet.gguf import GGMLType, GGUFError, GGUFFile, GGUFWriter, MetadataBlock, ValueType

U8, U32, STRING, ARRAY, BOOL = 0, 4, 8, 9, 7


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(keys: list[bytes], tensors: list[bytes], data: int = 0, version: int = 3, align: int = 32) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % align) + bytes(data)


def an_array(element: int, count: int) -> bytes:
    return struct.pack("<IQ", element, count)


def refused(path: Path) -> GGUFError:
    """Open the file and look at everything in it; the GGUFError that this ends in, with all it must say."""
    with pytest.raises(GGUFError) as caught, GGUFFile.open(path) as file:
        look_at_all(file)
    error = caught.value
    assert error.path == str(path)
    assert error.place and error.problem and error.expected and error.found
    line = str(error)
    assert "\n" not in line and str(path) in line and error.place in line and len(line) < 500 + len(str(path))
    return error


def look_at_all(file: GGUFFile) -> None:
    for name in file.metadata:
        assert file.metadata[name] is not None
    for each in file.tensors.values():
        assert each.raw().nbytes == each.nbytes
        assert each.read().shape == each.shape


BAD: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "empty"),
    "three bytes": (b"GGU", "too short"),
    "another format": (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
    "version 1": (gguf([], [], version=1), "not known"),
    "version 4": (gguf([], [], version=4), "not known"),
    "big-endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
    "more keys than bytes": (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 63), "so many keys"),
    "more tensors than bytes": (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 40, 0) + bytes(99), "so many tensors"),
    "an array of 2^63": (
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("a") + struct.pack("<IIQ", ARRAY, U8, 1 << 63),
        "ends too early",
    ),
    "an array of 2^61 strings": (gguf([key("a", ARRAY, an_array(STRING, 1 << 61))], []), "ends too early"),
    "a string of 2^63 bytes": (gguf([key("a", STRING, struct.pack("<Q", 1 << 63))], []), "ends too early"),
    "a string of 2^64-1 in an array": (
        gguf([key("a", ARRAY, an_array(STRING, 2) + text("x") + struct.pack("<Q", (1 << 64) - 1))], []),
        "ends too early",
    ),
    "an array of arrays": (
        gguf([key("a", ARRAY, an_array(ARRAY, 1) + an_array(U8, 1) + b"1")], []),
        "arrays within",
    ),
    "an unknown value type": (gguf([key("a", 13, bytes(8))], []), "type is not known"),
    "an unknown element type": (gguf([key("a", ARRAY, an_array(99, 1) + bytes(8))], []), "type is not known"),
    "a key twice": (gguf([key("a", U8, b"1"), key("a", U8, b"2")], []), "twice"),
    "a key without a name": (gguf([key("", U8, b"1")], []), "length is wrong"),
    "a key that is no text": (
        gguf([struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<I", U8) + b"1"], []),
        "not valid UTF-8",
    ),
    "a value that is no text": (
        gguf([key("a", STRING, struct.pack("<Q", 1) + b"\xff")], []),
        "not valid UTF-8",
    ),
    "alignment as text": (gguf([key("general.alignment", STRING, text("32"))], []), "type is wrong"),
    "alignment zero": (gguf([key("general.alignment", U32, struct.pack("<I", 0))], []), "alignment"),
    "alignment 48": (gguf([key("general.alignment", U32, struct.pack("<I", 48))], []), "alignment"),
    "alignment 2^31": (gguf([key("general.alignment", U32, struct.pack("<I", 1 << 31))], []), "alignment"),
    "a tensor twice": (gguf([], [tensor("t", [8]), tensor("t", [8], offset=32)], 64), "twice"),
    "a name of 64 bytes": (gguf([], [tensor("t" * 64, [8])], 32), "length is wrong"),
    "no dimensions": (gguf([], [tensor("t", [])], 32), "number of dimensions"),
    "five dimensions": (gguf([], [tensor("t", [1, 1, 1, 1, 1])], 32), "number of dimensions"),
    "a dimension of zero": (gguf([], [tensor("t", [8, 0])], 32), "dimension is zero"),
    "dimensions whose product wraps": (gguf([], [tensor("t", [1 << 32, 1 << 32])], 64), "leaves the file"),
    "bytes that wrap": (gguf([], [tensor("t", [1 << 62])], 64), "leaves the file"),
    "an unknown tensor type": (gguf([], [tensor("t", [8], kind=77)], 64), "type is not known"),
    "a removed tensor type": (gguf([], [tensor("t", [8], kind=4)], 64), "type is not known"),
    "a row of half a block": (gguf([], [tensor("t", [48], kind=8)], 64), "blocks"),
    "an unaligned offset": (gguf([], [tensor("t", [8], offset=4)], 64), "not aligned"),
    "an offset past the end": (gguf([], [tensor("t", [8], offset=1 << 40)], 64), "leaves the file"),
    "an offset of 2^64-32": (gguf([], [tensor("t", [8], offset=(1 << 64) - 32)], 64), "leaves the file"),
    "overlapping tensors": (gguf([], [tensor("a", [16]), tensor("b", [8], offset=32)], 128), "overlaps"),
    "two tensors on one place": (gguf([], [tensor("a", [8]), tensor("b", [8])], 128), "overlaps"),
    "a gap": (gguf([], [tensor("a", [8]), tensor("b", [8], offset=64)], 128), "gap"),
    "data cut off": (gguf([], [tensor("a", [8])], 31), "leaves the file"),
    "more than 65536 keys": (
        gguf([key(f"k{n}", U8, b"1") for n in range((1 << 16) + 1)], []),
        "so many keys",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    content, problem = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    assert problem in refused(path).problem


def test_the_file_of_49_bytes_that_hangs_gguf_py(tmp_path: Path) -> None:
    path = tmp_path / "49.gguf"
    path.write_bytes(BAD["an array of 2^63"][0])
    assert path.stat().st_size == 49
    assert "9223372036854775808" in refused(path).found


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path).found == "a folder"
    assert refused(tmp_path / "missing.gguf").found == "No such file or directory"
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "neither file nor folder" in refused(pipe).found
    with pytest.raises(GGUFError):
        GGUFFile.open("with a \0 byte.gguf")


def samples(folder: Path) -> list[Path]:
    """Three small files that between them have every kind of field."""
    plain = GGUFWriter(MetadataBlock().text("general.architecture", "llama").u32("llama.block_count", 1))
    plain.add("token_embd.weight", np.ones((4, 8), np.float32))
    plain.add("output_norm.weight", np.ones(8, np.float32))
    every = MetadataBlock()
    for kind in ValueType:
        if kind not in (ValueType.ARRAY, ValueType.STRING):
            value = True if kind is ValueType.BOOL else 1
            every.add(kind.label, kind, value).add_array(f"{kind.label}s", kind, [value, value])
    every.texts("words", ["one", "", "three"])
    aligned = GGUFWriter(every, alignment=64)
    aligned.add("cube", np.ones((2, 3, 4, 32), np.float32), GGMLType.F16)
    small = GGUFWriter(MetadataBlock().texts("tokens", ["a", "b"]))
    small.add("rows", np.ones((3, 32), np.float32), GGMLType.Q8_0)
    small.add("halves", np.ones((3, 5), np.float32), GGMLType.BF16)
    return [
        writer.write(folder / f"{name}.gguf")
        for name, writer in (("plain", plain), ("aligned", aligned), ("small", small))
    ]


def try_open(path: Path, content: bytes) -> bool:
    """Whether the content opens and reads; it may also be refused, and properly so."""
    with path.open("r+b" if path.exists() else "xb") as out:  # ext4 takes milliseconds to empty a file first
        out.write(content)
        out.truncate()
    try:
        with GGUFFile.open(path) as file:
            look_at_all(file)
    except GGUFError as error:
        assert error.path and error.place and error.problem and error.expected and error.found
        return False
    return True


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    for sample in samples(tmp_path):
        content = sample.read_bytes()
        with GGUFFile.open(sample) as file:
            data_end = max(each.offset + each.nbytes for each in file.tensors.values())
        for length in range(data_end):
            assert not try_open(tmp_path / "cut.gguf", content[:length]), f"{sample.name} cut at {length}"
        assert try_open(tmp_path / "cut.gguf", content[:data_end])


def test_every_flipped_field_is_harmless_or_refused(tmp_path: Path) -> None:
    """Each byte of the head to four other values, and each run of 4 and 8 bytes to extremes."""

    def flips(content: bytes, head: int) -> Iterator[bytes]:
        for at in range(head):
            for changed in {0, 255, content[at] ^ 1, content[at] ^ 128} - {content[at]}:
                yield content[:at] + bytes([changed]) + content[at + 1 :]
            for extreme in (b"\xff" * 4, b"\0" * 4, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80"):
                if at + len(extreme) <= head:
                    yield content[:at] + extreme + content[at + len(extreme) :]

    opened = refusals = 0
    for sample in samples(tmp_path):
        with GGUFFile.open(sample) as file:
            head = file.data_start
        for content in flips(sample.read_bytes(), head):
            if try_open(tmp_path / "flipped.gguf", content):
                opened += 1
            else:
                refusals += 1
    assert refusals > 1000 and opened > 100  # both happen: letters may change, lengths may not


def shrink_then(path: Path, size: int, action: Callable[[GGUFFile], object]) -> GGUFError:
    with GGUFFile.open(path) as file:
        os.truncate(path, size)
        with pytest.raises(GGUFError) as caught:
            action(file)
    error = caught.value
    assert "shorter while it was open" in error.problem
    assert error.path == str(path) and error.place and error.expected and error.found
    return error


def test_file_that_shrinks_while_open_is_an_error(tmp_path: Path) -> None:
    def fresh() -> Path:
        return samples(tmp_path)[0]

    def after_mapping(file: GGUFFile) -> object:
        return file.tensors["output_norm.weight"].array()

    with GGUFFile.open(fresh()) as file:
        cut = file.data_start
    assert "token_embd" in shrink_then(fresh(), cut, lambda file: file.tensors["token_embd.weight"].read()).place
    shrink_then(fresh(), cut, lambda file: file.tensors["token_embd.weight"].raw())
    shrink_then(fresh(), cut, lambda file: file.tensors["token_embd.weight"].array())
    shrink_then(fresh(), 40, lambda file: file.metadata["general.architecture"])
    shrink_then(fresh(), 0, lambda file: file.metadata.raw("llama.block_count"))
    path = fresh()
    with GGUFFile.open(path) as file:
        assert file.tensors["token_embd.weight"].array()[0, 0] == 1  # now it is mapped
        os.truncate(path, cut)
        with pytest.raises(GGUFError, match="shorter while it was open"):
            after_mapping(file)


def test_hostile_files_take_little_memory_and_time(tmp_path: Path) -> None:
    """The worst the format allows: a sparse terabyte, 65536 keys or tensors, 16 million empty strings."""
    big = 120 << 20
    strings = gguf([key("a", ARRAY, an_array(STRING, big // 8))], [])
    keys = gguf([key(f"key.{n:05}", BOOL, b"\1") for n in range(1 << 16)], [])
    tensors = gguf(
        [], [tensor(f"blk.{n}.ffn_down_experts.weight", [1, 1, 1, 1], offset=32 * n) for n in range(1 << 16)]
    )
    long_keys = gguf([key(f"{n:060000}", U8, b"1") for n in range(140)], [])
    for name, content, size in (
        ("strings", strings, big + 4096),
        ("beyond", gguf([key("a", ARRAY, an_array(U8, 1 << 39))], []), 1 << 40),
        ("keys", keys, 0),
        ("tensors", tensors, len(tensors) + 32 * (1 << 16)),
        ("long_keys", long_keys, 0),
    ):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        os.truncate(path, max(size, len(content)))
    code = """
import re, sys, time
from linnet.gguf import GGUFError, GGUFFile
import linnet.gguf.blocks
def peak():  # kilobytes; getrusage would also count the process this one was forked from
    return int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
for path in sys.argv[1:]:
    start = time.process_time()  # a busy machine is not the file's fault
    try:
        GGUFFile.open(path).close()
        outcome = "opened"
    except GGUFError as error:
        outcome = error.problem
    print(path.rsplit("/")[-1], outcome, round(time.process_time() - start, 2), (peak() - before) // 1024, "MB")
    assert peak() - before < 64 * 1024, (path, peak() - before)
    assert time.process_time() - start < 20, path
"""
    command = [sys.executable, "-c", code, *sorted(map(str, tmp_path.glob("*.gguf")))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
