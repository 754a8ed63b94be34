"""A set that is read ahead from the disk costs the training's thread no more than one that lives in memory.

    python bench/streaming.py            # on a GPU where there is one

What is measured is the processor time of the thread that trains, for the batch of a step: whatever else the machine is
doing does not count, and neither does the thread that reads ahead. On a GPU also tokens a second, with a step that is a
stand-in of fixed work (an embedding of the batch and products of matrices). `cold`: the system was asked to forget the
pages of the file.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch

import sample
from linnet.data import Batches, TokenSet
from linnet.data.token_set import TokenSetWriter
from report import Report

CTX, BATCH, VOCAB, TURNS, STEPS = 1024, 16, 50_000, 9, 64


def main() -> Report:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count = 1 << 29 if device == "cuda" else 1 << 26
    columns = {"set": "", "µs a step": ".0f", "against resident": ".2f", "M tokens/s": ".2f"}
    report = Report(
        name="streaming_gpu" if device == "cuda" else "streaming",
        claim=(__doc__ or "").splitlines()[0],
        columns=columns,
    )
    with tempfile.TemporaryDirectory(prefix="linnet-") as folder:
        tokens = _token_set(Path(folder) / "set.tokens", count)
        ways = {name: _Way(tokens, device, limit) for name, limit in (("resident", 1 << 60), ("streamed", 0))}
        ways["streamed, cold"] = ways["streamed"]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(TURNS):
            for number, (name, way) in enumerate(ways.items()):
                if name.endswith("cold"):
                    _drop(tokens.path)
                found[name].append(way.measure(first=(len(ways) * turn + number) * 2 * STEPS))
    base = statistics.median(seconds for seconds, _ in found["resident"])
    for name, measured in found.items():
        seconds = statistics.median(seconds for seconds, _ in measured)
        rate = statistics.median(rate for _, rate in measured) / 1e6 if device == "cuda" else None
        report.row(name, 1e6 * seconds, seconds / base, rate)
        if name != "resident":
            report.at_most(f"{name}, against resident", seconds / base, 1.1, "×")
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


class _Way:
    """Steps on batches of a set that lives in memory, or on the device, up to `limit` bytes."""

    def __init__(self, tokens: TokenSet, device: str, limit: int) -> None:
        self._device, self._limit = device, limit
        with mock.patch("linnet.data.batches._ON_DEVICE", limit):
            self._batches = Batches(tokens, ctx=CTX, batch=BATCH).to(device)
            assert self._batches.blocks.is_streamed == (limit == 0)
        self._table = torch.randn(VOCAB, 256, device=device)
        self._weights = [torch.randn(256, 256, device=device) / 16 for _ in range(24)]

    def measure(self, first: int) -> tuple[float, float]:
        """Processor time of this thread for a step's batch, and tokens a second."""
        with mock.patch("linnet.data.batches._ON_DEVICE", self._limit):
            self._batches.at(first)  # reading ahead begins
            spent, began = 0.0, time.perf_counter()
            for number in range(first + 1, first + 1 + STEPS):
                start = time.thread_time()
                batch = self._batches.at(number)
                spent += time.thread_time() - start
                if self._device == "cuda":
                    x = self._table[batch.ids_BT]
                    for weight in self._weights:
                        x = torch.tanh(x @ weight)
            if self._device == "cuda":
                torch.cuda.synchronize()
        return spent / STEPS, STEPS * BATCH * CTX / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(sample.start(main, {}))
