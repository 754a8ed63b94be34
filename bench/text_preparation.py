"""Text to token ids on one core, ours against `tokenizers` alone; training a vocabulary; taking a batch.

    python bench/text_preparation.py            # 50 MB
    python bench/text_preparation.py --quick    # 12 MB

The text is Python's standard library, repeated; in every copy a tenth of the words is spelled differently, so that a
copy brings new words, as new text would. Both sides take the same 2 MB in turns, so that a busy moment hits both, and
their ids are compared. `tokenizers` is given its quicker ways to work as well: whole batches, without offsets.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"  # one core for `tokenizers`, before it is loaded

import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import sample
from linnet.data import Batches, prepare
from linnet.data.corpus import find_corpus
from linnet.data.documents import pieces
from linnet.data.encoder import Encoder
from linnet.data.vocabulary import Vocabulary, train_vocabulary
from report import Report

QUICK = "--quick" in sys.argv
if QUICK:
    sys.argv.remove("--quick")
SIZE = 12_000_000 if QUICK else 50_000_000
VOCAB = 8192
TURN = 2_000_000


def corpus() -> Iterator[str]:
    """Documents until there are SIZE bytes."""
    library, made, copy = [piece.text for piece in pieces(find_corpus())], 0, 0
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
            if made >= SIZE:
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


def encoding(report: Report, texts: list[str], vocabulary: Vocabulary) -> None:
    ours, peer = Encoder(vocabulary.tokenizer, vocabulary.metadata), vocabulary.tokenizer
    spent, tokens, equal = [0.0, 0.0, 0.0], 0, True
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
        tokens += sum(map(len, batch))
        equal &= single == batch == [np.frombuffer(ids, ours.kind).tolist() for ids in found]
    size = sum(len(text.encode()) for text in texts) / 1e6
    for name, seconds in zip(("linnet", "tokenizers, batches", "tokenizers, one by one"), spent, strict=True):
        report.row(f"encoding {size:.0f} MB", name, seconds, size / seconds, seconds / spent[0])
    report.at_least("encoding on one core against tokenizers at its best", min(spent[1:]) / spent[0], 3.0, "×")
    report.at_least(f"ids equal, of {tokens:,}", float(equal), 1, "")


def training(report: Report, texts: list[str], folder: Path) -> None:
    """Our way to a vocabulary, and the one in the manual of `tokenizers`."""
    part = texts[: len(texts) * 12_000_000 // SIZE]
    spent = [float("inf")] * 2
    for _ in range(2):
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
        report.row(f"a vocabulary of {VOCAB:,} from {size:.0f} MB", name, seconds, size / seconds, seconds / spent[0])
    report.at_least("training a vocabulary against tokenizers", spent[1] / spent[0], 1.0, "×")


def loading(report: Report, folder: Path) -> None:
    """What a step waits for its batch, over a whole epoch; as a share of a step of 3M parameters on this CPU."""
    prepared = prepare(cache=folder)
    spent = {}
    for batch, ctx in ((1, 32), (8, 256), (32, 1024)):
        batches = Batches(prepared.train, ctx=ctx, batch=batch)
        steps = min(5000, int(batches.steps_per_epoch))
        start = time.perf_counter()
        for step in range(steps):
            batches.at(step)
        spent[batch] = (time.perf_counter() - start) / steps
        report.note(f"A batch of {batch} × {ctx} from the memory map: {spent[batch] * 1e6:.1f} µs a step.")
    report.at_most("the loader's share of a step, 3M parameters, 8 × 256", 100 * spent[8] / a_step(), 0.5, "%")


def a_step() -> float:
    """Seconds of a training step of the preset `demo`, 8 × 256 tokens."""
    import torch

    from linnet.models import build, preset
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    config, settings = preset("demo", ctx=256), TrainSettings(batch=8, device="cpu")
    ids = torch.randint(0, config.vocab, (8, 257))

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), ids[:, 1:].numel()

    step, times = Step(build(config), settings, choose(settings, tokens=8 * 256)), []
    for _ in range(4):
        start = time.perf_counter()
        step(Batch(), 1e-3)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> Report:
    report = Report(
        name="text_preparation",
        claim=(__doc__ or "").splitlines()[0],
        columns={"what": "", "who": "", "s": ".2f", "MB/s": ".1f", "linnet is": ".2f"},
    )
    texts = list(corpus())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training(report, texts, folder)
        encoding(report, texts, Vocabulary(folder / "trained.gguf"))
        loading(report, folder)
    report.note(
        "The text is Python's standard library, repeated, in every copy a tenth of the words spelled differently; both "
        "sides take the same 2 MB in turns. Vocabularies: the best of 2, one thread each; ours goes to a file too."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {}))
