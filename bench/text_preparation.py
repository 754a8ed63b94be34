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

from linnet.data import Batches, prepare
from linnet.data.corpus import find_corpus
from linnet.data.documents import pieces
from linnet.data.encoder import Encoder
from linnet.data.vocabulary import Vocabulary, train_vocabulary

SIZE = 12_000_000 if "--quick" in sys.argv else 50_000_000
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


def encoding(texts: list[str], vocabulary: Vocabulary) -> None:
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
    print(f"\nencoding {size:.0f} MB on one core, {tokens:,} tokens of {VOCAB:,}; ids equal: {equal}")
    for name, seconds in zip(("linnet", "tokenizers, batches", "tokenizers, one by one"), spent, strict=True):
        rates = f"{size / seconds:6.1f} MB/s  {tokens / seconds / 1e6:5.2f} M tokens/s"
        print(f"  {name:<24}{rates}  linnet is {seconds / spent[0]:.1f}x")
    if not equal:
        sys.exit("the ids differ")


def training(texts: list[str], folder: Path) -> None:
    """Our way to a vocabulary, and the one in the manual of `tokenizers`, which may take all cores here too."""
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
    print(f"\na vocabulary of {VOCAB:,} from {size:.0f} MB, best of 2")
    for name, seconds in zip(("linnet", "tokenizers"), spent, strict=True):
        print(f"  {name:<24}{seconds:6.2f} s  {size / seconds:5.1f} MB/s  linnet is {seconds / spent[0]:.2f}x")


def loading(folder: Path) -> None:
    """What a step waits for its batch, over a whole epoch."""
    prepared = prepare(cache=folder)
    for batch, ctx in ((1, 32), (8, 256), (32, 1024)):
        batches = Batches(prepared.train, ctx=ctx, batch=batch)
        steps = min(5000, int(batches.steps_per_epoch))
        start = time.perf_counter()
        for step in range(steps):
            batches.at(step)
        spent = (time.perf_counter() - start) / steps
        print(
            f"  a batch of {batch} x {ctx:<5} {spent * 1e6:7.1f} us a step  {batch * ctx / spent / 1e6:5.0f} M tokens/s"
        )


def main() -> None:
    texts = list(corpus())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training(texts, folder)
        encoding(texts, Vocabulary(folder / "trained.gguf"))
        print("\nbatches from the memory map, CPU")
        loading(folder)


if __name__ == "__main__":
    main()
