"""Compressed text is read at 0.8 of `gzip -dc` or more; nearly equal documents are found at 20 MB a second and core.

    python bench/text_formats.py            # 60 MB of text for gzip, 40 MB for duplicates
    python bench/text_formats.py --quick

The text is Python's standard library, repeated, a tenth of the words spelled differently in every copy. Reading is the
whole way to documents: unpacked, checked, decoded, cut into passages. `gzip -dc file > /dev/null` runs in turns with
it, so that a busy moment hits both; the best of each counts. Duplicates are looked for on one core, in documents of a
file each and of 1 kB each; what is found is held against the Jaccard similarity, counted out.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sample
from linnet.data.corpus import find_corpus
from linnet.data.documents import Passage, passages
from linnet.data.duplicates import DuplicateFinder
from report import Report
from text_preparation import corpus

TURNS = 5


def reading(folder: Path, size: int, report: Report) -> None:
    """Text, JSONL and CSV, each packed by gzip, against gzip itself."""
    text = "".join(corpus(size))
    content = text.encode()
    for name, packed in {
        "a.txt.gz": content,
        "a.jsonl.gz": _json_lines(content),
        "a.csv.gz": _csv(content),
    }.items():
        path = folder / name
        path.write_bytes(gzip.compress(packed, 6))
        ours, theirs, read = float("inf"), float("inf"), 0
        for _ in range(TURNS):
            start = time.perf_counter()
            subprocess.run(["gzip", "-dc", str(path)], stdout=subprocess.DEVNULL, check=True)
            theirs = min(theirs, time.perf_counter() - start)
            start = time.perf_counter()
            read = sum(len(passage.text) for passage in passages(find_corpus(path)))
            ours = min(ours, time.perf_counter() - start)
        assert read > 0.9 * len(text)
        megabytes = len(packed) / 1e6
        report.row(f"{name}, {megabytes:.0f} MB of text", "linnet", megabytes / ours, theirs / ours)
        report.row("", "gzip -dc", megabytes / theirs, 1.0)
        if name == "a.txt.gz":
            report.at_least("reading .txt.gz, against gzip -dc", theirs / ours, 0.8, "×")


def _json_lines(content: bytes) -> bytes:
    import json

    parts = content.decode().split("\n\n\n")
    return "".join(json.dumps({"id": k, "text": part}) + "\n" for k, part in enumerate(parts)).encode()


def _csv(content: bytes) -> bytes:
    import csv
    import io

    table = io.StringIO()
    csv.writer(table).writerows([("id", "text"), *enumerate(content.decode().split("\n\n\n"))])
    return table.getvalue().encode()


def duplicates(size: int, report: Report) -> None:
    """The search over whole documents and over small ones, by the core's own time."""
    texts = list(corpus(size))
    small = [text[start : start + 1000] for text in texts for start in range(0, len(text), 1000)]
    for name, documents in (("a file", texts), ("1 kB", small)):
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            finder = DuplicateFinder()
            for text in documents:
                finder.add(Passage(text, True), 0)
            finder.found()
            best = min(best, time.process_time() - start)
        megabytes = sum(len(text.encode()) for text in documents) / 1e6
        report.row(f"near duplicates, {len(documents):,} documents of {name}", "linnet", megabytes / best, None)
        report.at_least(f"near duplicates, documents of {name}", megabytes / best, 20.0, "MB/s")


def accuracy(report: Report) -> None:
    """Pairs of documents of known similarity: which of them are found."""
    chance = random.Random(0)
    vocabulary = [f"word{number}" for number in range(5000)]
    texts, alike = [], []
    for share in (0.004, 0.008, 0.012, 0.016, 0.02, 0.03, 0.05) * 120:
        words = chance.choices(vocabulary, k=250)
        other = [chance.choice(vocabulary) if chance.random() < share else word for word in words]
        sets = [{tuple(part[k : k + 5]) for k in range(len(part) - 4)} for part in (words, other)]
        alike.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
        texts += [" ".join(words), " ".join(other)]
    finder = DuplicateFinder()
    for text in texts:
        finder.add(Passage(text, True), 0)
    dropped, similarity = finder.found()[0][1::2], np.array(alike)
    for low, high in ((0.9, 1.0), (0.85, 0.9), (0.8, 0.85), (0.7, 0.8), (0.0, 0.7)):
        chosen = (similarity >= low) & (similarity < high)
        report.note(f"Of {chosen.sum()} pairs of similarity {low} to {high}, {dropped[chosen].mean():.0%} are dropped.")
    report.at_least(
        "pairs of similarity 0.9 or more that are found", 100 * float(dropped[similarity >= 0.9].mean()), 99.0, "%"
    )
    report.at_most("pairs of similarity below 0.7 dropped", 100 * float(dropped[similarity < 0.7].mean()), 1.0, "%")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a fifth of the text")


def main(chosen: argparse.Namespace) -> Report:
    columns = {"work": "", "who": "", "MB/s": ".1f", "against gzip": ".2f"}
    report = Report(name="text_formats", claim=(__doc__ or "").splitlines()[0], columns=columns)
    share = 5 if chosen.quick else 1
    with tempfile.TemporaryDirectory() as name:
        reading(Path(name), 60_000_000 // share, report)
    duplicates(40_000_000 // share, report)
    accuracy(report)
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {}, flags))
