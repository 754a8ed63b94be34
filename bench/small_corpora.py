"""Many epochs on little text: do dropout and more weight decay lower the best held-out loss?

`linnet.train` learns a few files of the standard library for 1, 10 and 50 epochs, for each share of `--dropout`, with
the weight decay of the rule and with a multiple of it, and each seed. Twelve evaluations of a run score all that is
held out: the best of them is what `RUN@best` would be, the last is what a run ends with.
"""

import argparse
import json
import logging
import math
import statistics
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sample
from report import Report

FILES = ("json", "collections")
LINES = 60  # of a document: pieces of a file, of which some are held out
SHAPE = {"preset": "micro", "d_model": 96, "d_ff": 256, "n_layers": 4, "n_heads": 4, "n_kv": 2, "ctx": 128}
VOCAB, BATCH, HELD_OUT = 1024, 8, 0.25
DROPOUTS, FACTORS, EPOCHS = (0.0, 0.1, 0.2, 0.3), (1.0, 3.0), (1, 10, 50)
LONG = 10  # epochs, from which on weight decay is multiplied for the first seed alone
EVALUATIONS = 12

Cell = tuple[int, float, float]  # epochs, times the weight decay of the rule, dropout


def write_corpus(folder: Path, names: list[str]) -> Path:
    """The files in pieces, each a document."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for name in names:
        path = Path(sysconfig.get_path("stdlib")) / name
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            lines = file.read_text().splitlines(keepends=True)
            for start in range(0, len(lines), LINES):
                piece = corpus / f"{file.parent.name}_{file.stem}_{start:05}.py"
                piece.write_text("".join(lines[start : start + LINES]))
    return corpus


def cells(chosen: argparse.Namespace) -> Iterator[tuple[Cell, int]]:
    """Each cell of the grid with each of its seeds: short ones first, then seed by seed."""
    for epochs in chosen.epochs:
        for seed in range(chosen.seeds):
            for factor in chosen.factors:
                if factor == 1 or seed == 0 or epochs < LONG:
                    for dropout in chosen.dropouts:
                        yield (epochs, factor, dropout), seed


def train(corpus: Path, folder: Path, cell: Cell, seed: int, tokens: int, held_out: int) -> dict[str, Any]:
    """One run: the held-out loss of each evaluation."""
    import linnet
    from linnet.architectures import preset
    from linnet.train import TrainSettings, rates

    epochs, factor, dropout = cell
    per_step = BATCH * SHAPE["ctx"]  # type: ignore[operator]
    steps = max(1, math.ceil(epochs * tokens / per_step))
    config = preset("micro", **{name: size for name, size in SHAPE.items() if name != "preset"})
    rule = rates.settled(TrainSettings(steps=steps), config, per_step)
    assert rule.weight_decay is not None
    run = linnet.train(
        "from-scratch",
        corpus=corpus, cache=folder / "cache", runs=folder / "runs", held_out=HELD_OUT, vocab=VOCAB, **SHAPE,
        batch=BATCH, steps=steps, seed=seed, dropout=dropout, weight_decay=factor * rule.weight_decay,
        eval_every=max(1, steps // EVALUATIONS), eval_tokens=held_out, sample_every=0, checkpoint_every=0, keep=1,
    )  # fmt: skip
    if run.status != "completed":  # a signal ends the run that is under way, and should end them all
        sys.exit(f"run {run.id} is {run.status}: stopped")
    metrics = run.metrics()
    losses, at = metrics["validation/loss"].value.tolist(), metrics["validation/loss"].step.tolist()
    best = min(range(len(losses)), key=losses.__getitem__)
    return {
        "epochs": epochs, "factor": factor, "weight_decay": factor * rule.weight_decay, "dropout": dropout,
        "seed": seed, "steps": steps, "best": losses[best], "best_at": at[best] / steps, "last": losses[-1],
        "train": statistics.mean(metrics["loss"].value.tolist()[-20:]), "held_out": losses,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, help="times the rule's weight decay")
    parser.add_argument("--dropouts", type=float, nargs="+", default=DROPOUTS)
    parser.add_argument("--files", nargs="+", default=FILES, help="packages or modules of the standard library")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the report to FILE as a line of JSON")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="append each run to FILE, a line of JSON each")
    parser.add_argument("--report", type=Path, metavar="FILE", help="train nothing: report the runs of such a FILE")
    chosen = parser.parse_args()
    results = read(chosen.report) if chosen.report else sweep(chosen)
    report = tabulated(results)
    print(report.markdown())
    if chosen.json:
        report.append_json(chosen.json)
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    """The runs of an earlier sweep."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def sweep(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Train every cell of the grid."""
    from linnet.data import prepare

    logging.getLogger("linnet").setLevel(logging.ERROR)
    results = []
    with sample.scratch() as folder:
        corpus = write_corpus(folder, chosen.files)
        prepared = prepare(corpus, vocab=VOCAB, held_out=HELD_OUT, cache=folder / "cache")
        tokens, held_out = len(prepared.train), len(prepared.held_out)
        print(f"{tokens:,} tokens, {held_out:,} held out", file=sys.stderr, flush=True)
        for cell, seed in cells(chosen):
            result = {**train(corpus, folder, cell, seed, tokens, held_out), "tokens": tokens, "scored": held_out}
            results.append(result)
            shown = {name: result[name] for name in ("epochs", "factor", "dropout", "seed", "best", "last", "train")}
            print("  ", *(f"{name} {value:g}" for name, value in shown.items()), file=sys.stderr, flush=True)
            if chosen.runs:
                with chosen.runs.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    return results


def tabulated(results: list[dict[str, Any]]) -> Report:
    """A row a cell: means over its seeds, and in how many of them dropout was better than none."""
    columns = {
        "epochs": "d", "decay ×": "g", "dropout": "g", "seeds": "d", "best": ".3f", "at": ".0%", "last": ".3f",
        "train": ".3f", "best - that of 0": "+.3f", "better in": "",
    }  # fmt: skip
    report = Report(name="small_corpora", claim=(__doc__ or "").splitlines()[0], columns=columns)
    found: dict[Cell, dict[int, dict[str, Any]]] = {}
    for result in results:
        cell = result["epochs"], result["factor"], result["dropout"]
        found.setdefault(cell, {})[result["seed"]] = result
    for cell in sorted(found):
        epochs, factor, dropout = cell
        own, without = found[cell], found.get((epochs, factor, 0.0), {})
        means = {name: statistics.mean(r[name] for r in own.values()) for name in ("best", "best_at", "last", "train")}
        gains = [own[seed]["best"] - without[seed]["best"] for seed in own.keys() & without.keys()]
        better = None if not dropout or not gains else f"{sum(gain < 0 for gain in gains)} of {len(gains)}"
        gain = statistics.mean(gains) if gains and dropout else None
        shown = (means["best"], means["best_at"], means["last"], means["train"])
        report.row(epochs, factor, dropout, len(own), *shown, gain, better)
    if results:
        one = results[0]
        report.note(
            f"A llama of 0.5M parameters, {one['tokens']:,} tokens to train on, {one['scored']:,} held out;"
            f" {BATCH} × {SHAPE['ctx']} tokens a step, rates by the rule. Held-out losses in nats; `at`: where in the"
            " run its best evaluation was; `train`: the loss of the last 20 steps, dropout included."
        )
    return report


if __name__ == "__main__":
    sys.exit(main())
