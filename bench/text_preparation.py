"""Text to token ids on one core: 3 × `tokenizers` alone, the same ids; a vocabulary no slower; batches nearly free.

    python bench/text_preparation.py            # 50 MB
    python bench/text_preparation.py --quick    # 12 MB

The text is Python's standard library, repeated; in every copy a tenth of the words is spelled differently, so that a
copy brings new words, as new text would. Both sides take the same 2 MB in turns, so that a busy moment hits both, and
their ids are compared. `tokenizers` is given its quicker ways to work as well: whole batches, without offsets.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"  # one core for `tokenizers`, before it is loaded

import argparse
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import sample
from linnet.data import Batches, prepare
from linnet.data.corpus import find_corpus
from linnet.data.documents import passages
from linnet.data.tokenizer import Vocabulary, train_vocabulary
from linnet.models import build, preset
from linnet.recipes.job import weights_of_layers
from linnet.train.hardware import choose
from linnet.train.settings import TrainSettings
from linnet.train.step import Step
from report import Report

VOCAB = 8192
TURN = 2_000_000


def corpus(size: int) -> Iterator[str]:
    """Documents until there are so many bytes."""
    library, made, copy = [passage.text for passage in passages(find_corpus())], 0, 0
    while True:
        respelled: dict[str, str] = {}

        def respell(match: re.Match[str], copy: int = copy, respelled: dict[str, str] = respelled) -> str:
            word = match[0]
            if word not in respelled:
                other = zlib.crc32(f"{copy}{word}".encode()) % 10 == 0
                respelled[word] = word[::-1] + "aeiou"[copy % 5] if other and copy else word
            return respelled[word]

        for text in library:
            yield re.sub(r"[A-Za-z]{3,}", respell, text)
            made += len(text.encode())
            if made >= size:
                return
        copy += 1


def turns(texts: list[str]) -> Iterator[list[str]]:
    turn: list[str] = []
    for text in texts:
        turn.append(text)
        if sum(map(len, turn)) > TURN:
            yield turn
            turn = []
    yield turn


def encoding(texts: list[str], vocabulary: Vocabulary, report: Report) -> None:
    ours, peer = vocabulary.encoder(), vocabulary.tokenizer
    spent, tokens, equal = [0.0, 0.0, 0.0], 0, 0
    for turn in turns(texts):
        start = time.perf_counter()
        found = [ours.encode(text) for text in turn]
        spent[0] += time.perf_counter() - start
        start = time.perf_counter()
        batch = [got.ids for got in peer.encode_batch_fast(turn, add_special_tokens=False)]
        spent[1] += time.perf_counter() - start
        start = time.perf_counter()
        single = [peer.encode(text, add_special_tokens=False).ids for text in turn]
        spent[2] += time.perf_counter() - start
        for mine, theirs, other in zip(found, batch, single, strict=True):
            tokens += len(theirs)
            equal += len(theirs) if theirs == other == np.frombuffer(mine, ours.dtype).tolist() else 0
    size = sum(len(text.encode()) for text in texts) / 1e6
    work = f"text of {size:.0f} MB to ids"
    for name, seconds in zip(("linnet", "tokenizers, batches", "tokenizers, one by one"), spent, strict=True):
        report.row(work, name, size / seconds, tokens / seconds / 1e6, seconds / spent[0])
    report.at_least("encoding, against tokenizers in batches", spent[1] / spent[0], 3.0, "×")
    report.at_least(f"of {tokens:,} ids the same", 100 * equal / tokens, 100.0, "%")


def training(texts: list[str], folder: Path, report: Report) -> None:
    """Our way to a vocabulary, and the one in the manual of `tokenizers`."""
    part: list[str] = []
    while sum(map(len, part)) < 12_000_000 and len(part) < len(texts):
        part += texts[len(part) : len(part) + 100]
    spent = [float("inf")] * 2
    for _ in range(3):
        start = time.perf_counter()
        train_vocabulary(part, VOCAB, "gpt-2", folder / "trained.gguf")
        spent[0] = min(spent[0], time.perf_counter() - start)
        start = time.perf_counter()
        peer = Tokenizer(models.BPE())
        peer.pre_tokenizer, peer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        options = {"vocab_size": VOCAB, "special_tokens": ["<|endoftext|>"], "show_progress": False}
        peer.train_from_iterator(part, trainers.BpeTrainer(initial_alphabet=alphabet, **options))
        spent[1] = min(spent[1], time.perf_counter() - start)
    size = sum(len(text.encode()) for text in part) / 1e6
    for name, seconds in zip(("linnet", "tokenizers"), spent, strict=True):
        report.row(f"a vocabulary from {size:.0f} MB", name, size / seconds, None, seconds / spent[0])
    report.at_least("training a vocabulary, against tokenizers", spent[1] / spent[0], 0.95, "×")


def loading(folder: Path, report: Report) -> None:
    """What a step waits for its batch, over an epoch or 2,000 steps; and how many of the tokens an epoch shows."""
    prepared = prepare(cache=folder)
    for name, batch in (("tiny", 1), ("demo", 8)):
        config = preset(name, vocab=prepared.vocab)
        batches = Batches(prepared.train, ctx=config.ctx, batch=batch)
        steps = min(2000, int(batches.steps_per_epoch))
        start = time.perf_counter()
        for step in range(steps):
            batches.at(step)
        waited = (time.perf_counter() - start) / steps
        taken = _seconds_of_a_step(config, batch, batches)
        rate = batch * config.ctx / waited / 1e6
        report.row(f"a batch of {batch} × {config.ctx}, preset {name}", "linnet", None, rate, None)
        report.at_most(f"share of a step of preset {name}", 100 * waited / (waited + taken), 0.5, "%")
    batches = Batches(prepared.train, ctx=256, batch=1)
    shown = sum(batches.at(step).n_targets for step in range(int(batches.steps_per_epoch)))
    report.at_least("tokens of the set predicted in an epoch", 100 * shown / (len(prepared.train) - 1), 100.0, "%")


def _seconds_of_a_step(config: Any, batch: int, batches: Batches) -> float:
    """The quickest of some steps, by the threads that are there: the harshest measure of what a batch costs."""
    settings = TrainSettings(batch=batch, device="cpu", optimizer="adamw")
    hardware = choose(settings, tokens=batch * config.ctx, weights=weights_of_layers(config))
    train = Step(build(config), settings, hardware)
    best = float("inf")
    for step in range(8):
        start = time.perf_counter()
        train(batches.at(step), 1e-3)
        best = min(best, time.perf_counter() - start)
    return best


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="12 MB of text instead of 50")


def main(chosen: argparse.Namespace) -> Report:
    texts = list(corpus(12_000_000 if chosen.quick else 50_000_000))
    columns = {"work": "", "who": "", "MB/s": ".1f", "M tokens/s": ".2f", "linnet is": ".2f"}
    report = Report(name="text_preparation", claim=(__doc__ or "").splitlines()[0], columns=columns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training(texts, folder, report)
        encoding(texts, Vocabulary(folder / "trained.gguf"), report)
        loading(folder, report)
    report.note(f"A vocabulary of {VOCAB:,}. Encoding: one core each. Steps: {torch.get_num_threads()} threads.")
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {}, flags))
