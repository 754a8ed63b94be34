"""A set that is read ahead from the disk costs a step next to nothing: at least 0.97 × one that lives in memory.

    python bench/streaming.py            # on a GPU where there is one

The step is a stand-in of fixed work (an embedding of the batch and products of matrices, as a small model has them), so
that the figure is about data alone. `cold`: the system was asked to forget the pages of the file. The ways take turns,
so that a busy moment hits all of them.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

import sample
from linnet.data import Batches, TokenSet
from linnet.data.token_set import TokenSetWriter
from report import Report

CTX, BATCH, VOCAB, TURNS = 1024, 16, 50_000, 8


def main() -> Report:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count = 1 << 29 if device == "cuda" else 1 << 26
    columns = {"set": "", "M tokens/s": ".3f", "against resident": ".3f"}
    report = Report(name="streaming", claim=(__doc__ or "").splitlines()[0], columns=columns)
    with tempfile.TemporaryDirectory(prefix="linnet-") as folder:
        tokens = _token_set(Path(folder) / "set.tokens", count)
        resident, streamed = _steps(tokens, device, 1 << 60), _steps(tokens, device, 0)
        rates: dict[str, list[float]] = {"resident": [], "streamed": [], "streamed, cold": []}
        for turn in range(TURNS):
            rates["resident"].append(_rate(resident, turn, device))
            rates["streamed"].append(_rate(streamed, turn, device))
            _drop(tokens.path)
            rates["streamed, cold"].append(_rate(streamed, TURNS + turn, device))
    shares = {
        name: statistics.median(a / b for a, b in zip(found, rates["resident"], strict=True))
        for name, found in rates.items()
    }
    for name, found in rates.items():
        report.row(name, statistics.median(found) / 1e6, shares[name])
    report.at_least("streamed against resident", shares["streamed"], 0.97, "×")
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    report.note(f"{count * 2 / 1e9:.1f} GB of tokens, {BATCH} × {CTX} a step, on {name}.")
    return report


def _token_set(path: Path, count: int) -> TokenSet:
    chance = np.random.default_rng(0)
    with TokenSetWriter(path, vocab=VOCAB, end=0) as writer:
        while writer.tokens < count:
            writer.open_document()
            writer.add(chance.integers(1, VOCAB, 1 << 20, dtype=np.uint16).tobytes(), 1 << 20)
        writer.close()
    return TokenSet(path)


def _drop(path: Path) -> None:
    """Let the system forget the pages of a file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _steps(tokens: TokenSet, device: str, limit: int) -> Callable[[int], None]:
    """A step on batches of a set that lives on the device up to so many bytes."""
    with mock.patch("linnet.data.batches._ON_DEVICE", limit):
        batches = Batches(tokens, ctx=CTX, batch=BATCH, documents=True).to(device)
        assert batches.blocks.is_streamed == (limit == 0)
    table = torch.randn(VOCAB, 256, device=device)
    weights = [torch.randn(256, 256, device=device) / 16 for _ in range(24 if device == "cuda" else 4)]

    def step(number: int) -> None:
        with mock.patch("linnet.data.batches._ON_DEVICE", limit):
            x = table[batches.at(number).ids_BT]
        for weight in weights:
            x = torch.tanh(x @ weight)

    return step


def _rate(step: Callable[[int], None], turn: int, device: str) -> float:
    """Tokens a second over some steps; those of a turn are no other's."""
    steps = 256 if device == "cuda" else 32
    first = (turn + 1) * 2 * steps
    step(first - 1)
    _wait(device)
    began = time.perf_counter()
    for number in range(first, first + steps):
        step(number)
    _wait(device)
    return steps * BATCH * CTX / (time.perf_counter() - began)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(sample.start(main, {}))
