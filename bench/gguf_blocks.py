"""Quantised blocks to float32, ours against gguf-py's numpy: the same tensor, alternately, in one run.

    python bench/gguf_blocks.py            # 12.6 million values, as a 4096 x 3072 weight
    python bench/gguf_blocks.py --quick    # a quarter of it

Each figure is the best of several turns, in gigabytes of float32 a second; both sides write a fresh result
each turn. The blocks are random bytes. torch is loaded only for the last table; the others are what one
gets without torch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import gguf
from linnet.gguf.blocks import READABLE, dequantize, quantize_q8_0, to_bf16, to_f16
from linnet.gguf.tensor import GGMLType

ROWS = 1024 if "--quick" in sys.argv else 4096
VALUES = 3072
TURNS = 7
NEEDED = {"Q8_0": 2, "Q4_0": 2, "Q4_1": 2, "Q4_K": 2, "Q6_K": 2, "to BF16": 4}


def rates(*work: Callable[[], object]) -> list[float]:
    """Best gigabytes of float32 a second of each, taken in turns so that a busy moment hits all alike."""
    best = [float("inf")] * len(work)
    for _ in range(TURNS):
        for place, do in enumerate(work):
            start = time.perf_counter()
            do()
            best[place] = min(best[place], time.perf_counter() - start)
    return [ROWS * VALUES * 4 / seconds / 1e9 for seconds in best]


missed: list[str] = []


def show(name: str, ours: float, theirs: float) -> None:
    need = NEEDED.get(name)
    if need is not None and ours / theirs < need:
        missed.append(name)
    verdict = "" if need is None else f"  needs {need}x: {'met' if ours / theirs >= need else 'MISSED'}"
    print(f"{name:10} {ours:8.2f} {theirs:8.2f} {ours / theirs:7.1f}x{verdict}")


def decode(rng: np.random.Generator) -> None:
    print(f"decode {ROWS} x {VALUES}, GB/s of float32\n{'type':10} {'ours':>8} {'gguf-py':>8} {'ratio':>8}")
    for type in READABLE:
        raw = rng.integers(0, 256, (ROWS, type.row_bytes(VALUES)), dtype=np.uint8)
        show(type.name, *rates(partial(dequantize, raw, type), partial(by_gguf_py, raw, type)))


def by_gguf_py(raw: np.ndarray, type: GGMLType) -> np.ndarray:
    decoded = gguf.dequantize(raw, gguf.GGMLQuantizationType(type))
    return decoded.copy() if type is GGMLType.F32 else decoded  # of F32 it gives a view: a copy compares


def encode(rng: np.random.Generator) -> None:
    print(f"encode, GB/s of float32\n{'type':10} {'ours':>8} {'gguf-py':>8} {'ratio':>8}")
    numbers = rng.standard_normal((ROWS, VALUES), dtype=np.float32)
    types = gguf.GGMLQuantizationType
    for name, ours, peer in (
        ("to Q8_0", quantize_q8_0, types.Q8_0),
        ("to BF16", to_bf16, types.BF16),
        ("to F16", to_f16, types.F16),
    ):
        show(name, *rates(partial(ours, numbers), partial(gguf.quantize, numbers, peer)))


def first_rows(rng: np.random.Generator) -> None:
    print("first 1,000 rows of a 49,152 x 576 embedding, milliseconds (needs under 10)")
    for type in (GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q5_1, GGMLType.F16):
        raw = rng.integers(0, 256, (49152, type.row_bytes(576)), dtype=np.uint8)
        took = []
        for _ in range(TURNS):
            start = time.perf_counter()
            dequantize(raw[:1000], type)
            took.append(time.perf_counter() - start)
        print(f"{type.name:10} first {took[0] * 1e3:6.2f}   best {min(took) * 1e3:6.2f}")


def by_torch(rng: np.random.Generator) -> None:
    import torch

    print(f"the same, now that torch is loaded, with {torch.get_num_threads()} threads")
    encode(rng)


def main() -> int:
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        decode(rng)
        encode(rng)
        first_rows(rng)
        by_torch(rng)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
