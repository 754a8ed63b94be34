"""One lane of the study of learning: a model of one shape, compiled and captured once, trained again and again.

Weights and moments begin anew in place, so that a trial costs its steps and an evaluation, not a start. Every trial is
a line of JSON, written when it ends: whatever ends the lane loses one trial.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

VOCAB = 8192


@dataclass(frozen=True)
class Trial:
    """A training of so many steps: what of `TrainSettings` is set, and what only this study knows (`variant`)."""

    study: str
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)
    variant: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    evaluations: int = 1


@dataclass(frozen=True)
class LaneSpec:
    """A shape, the tokens of its step, and its trials, the most worthful first."""

    name: str
    shape: dict[str, Any]
    batch: int
    ctx: int
    trials: tuple[Trial, ...]
    documents: bool = False
    peer: bool = False  # nanoGPT's model and training
    vocab: int = VOCAB


def corpus_file(folder: Path, megabytes: float) -> Path:
    """Python sources of this interpreter and its packages as one file of JSON rows, each source once."""
    import hashlib
    import random
    import sysconfig

    target = folder / f"python-{megabytes:g}.jsonl"
    if target.exists():
        return target
    roots = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    paths = sorted({path for root in roots for path in root.rglob("*.py") if path.is_file()})
    random.Random(0).shuffle(paths)
    seen, size, rows = set(), 0, []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        digest = hashlib.sha256(text.encode()).digest()
        if len(text) < 200 or len(text) > 200_000 or digest in seen:
            continue
        seen.add(digest)
        rows.append(json.dumps({"text": text}))
        size += len(text)
        if size > megabytes * 1e6:
            break
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_text("\n".join(rows), encoding="utf-8")
    part.rename(target)
    return target


def prepared(folder: Path, megabytes: float, vocab: int = VOCAB) -> Any:
    """The tokens of that corpus, from the cache after the first time."""
    from linnet.data import prepare

    return prepare(str(corpus_file(folder, megabytes)), vocab=vocab, held_out=0.02, cache=str(folder / "cache"))


class Lane:
    """The model, its step and its data."""

    def __init__(self, spec: LaneSpec, tokens: Any, device: str, held_out: int) -> None:
        from linnet.models import build
        from linnet.recipes.from_scratch import shaped_config
        from linnet.recipes.job import weights_of_layers
        from linnet.train.hardware import choose
        from linnet.train.settings import TrainSettings
        from linnet.train.step import Step

        self.spec, self._tokens, self._held_out = spec, tokens, held_out
        shape = dict(spec.shape)
        base, arch = shape.pop("preset", "demo"), shape.pop("arch", None)
        self.config = shaped_config(base, arch, {"vocab": tokens.vocab, "ctx": spec.ctx, **shape})
        self._settings = TrainSettings(batch=spec.batch, device=device, lr=1e-3, eval_every=0)
        self.hardware = choose(
            self._settings,
            tokens=spec.batch * spec.ctx,
            weights=weights_of_layers(self.config),
            head_size=self.config.head_size,
        )
        self.model = build(self.config, device=str(self.hardware.device))
        self.model.set_compute_dtype(self.hardware.dtype)
        self._step = Step(self.model, self._settings, self.hardware)
        self._captured: Any = None
        self._averages: list[Any] = []

    def run(self, trial: Trial) -> dict[str, Any]:
        """Train a trial from its first weights to its last step; what came of it."""
        import torch

        from linnet.data import Batches
        from linnet.models.initial import initialise
        from linnet.train.rates import settled

        per_step = self.spec.batch * self.spec.ctx
        settings = replace(self._settings, **{"steps": trial.steps, "lr": None, "seed": trial.seed, **trial.settings})
        settings = settled(settings, self.config, per_step)
        if times := trial.variant.get("times"):
            rule = settings.rates()
            settings = replace(
                settings, **{name: rate * times for name, rate in rule.items() if name != "weight_decay"}
            )
        self._renew(settings, trial.variant)
        initialise(self.model, trial.seed, trial.variant.get("init_scale", 1.0))
        if scale := trial.variant.get("embedding_scale"):
            with torch.no_grad():
                self.model.token_embd.weight.mul_(scale)
        batches = Batches(
            self._tokens.train, ctx=self.spec.ctx, batch=self.spec.batch, seed=trial.seed, documents=self.spec.documents
        ).to(self.hardware.device)
        at = {round(trial.steps * (k + 1) / trial.evaluations) for k in range(trial.evaluations)}
        ema, decays = trial.variant.get("ema"), self._decays(settings, trial.variant)
        curve, training, began = [], 0.0, self._now()
        for step in range(trial.steps):
            lr = settings.learning_rate(step)
            for group, decay in decays:
                group["weight_decay"].fill_(decay * lr / settings.top_lr)
            if warm := trial.variant.get("momentum_warmup"):
                self._captured[2].fill_(0.85 + 0.1 * min(1.0, step / warm))
            self._step(batches.at(step), lr, settings.momentum(step))
            if ema:
                self._follow(ema, step)
            if step + 1 in at:
                training += self._now() - began
                curve.append([step + 1, self._loss(bool(ema))])
                began = self._now()
        return {
            "lane": self.spec.name,
            "study": trial.study,
            "shape": {**self.spec.shape, "arch": self.config.arch, "d_model": self.config.d_model}
            | {"n_layers": self.config.n_layers, "head": self.config.head_size},
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "tokens": per_step,
            "steps": trial.steps,
            "optimizer": settings.optimizer,
            **settings.rates(),
            "settings": trial.settings,
            "variant": trial.variant,
            "seed": trial.seed,
            "loss": curve[-1][1],
            "curve": curve,
            "seconds": round(training, 3),
            "step_ms": round(1e3 * training / trial.steps, 3),
        }

    def _renew(self, settings: Any, variant: dict[str, Any]) -> None:
        """Other settings of the optimizer, which a captured step holds as constants: capture it again if they differ.

        What was compiled stays, and so do the weights; moments begin at zero.
        """
        from learning_muon import variant_of
        from linnet.architectures.parameters import stacked_rows
        from linnet.train.optim import OPTIMIZERS, Optimizers
        from linnet.train.rates import shares
        from linnet.train.step import _captured_by

        fixed = (
            settings.optimizer,
            settings.muon_norm,
            settings.weight_decay,
            settings.beta1,
            settings.beta2,
            settings.eps,
            settings.clip,
        )
        proportions = sorted((kind, round(share, 6)) for kind, share in shares(settings).items())
        key = (fixed, tuple(proportions), json.dumps({**variant, "times": 0}, sort_keys=True))
        if self._captured is not None and self._captured[0] == key:
            self._step.optimizers.load({})
            return
        usual = OPTIMIZERS["muon"]
        momentum: Any = None
        kind = variant_of(variant, self.model)
        if kind is not None and settings.optimizer == "muon":
            OPTIMIZERS["muon"] = kind
        try:
            rows = stacked_rows(self.config)
            self._step.optimizers = Optimizers(self.model.named_parameters(), settings, rows=rows)
        finally:
            OPTIMIZERS["muon"] = usual
        if "momentum_warmup" in variant:
            muon = self._step.optimizers._parts[0]
            momentum = muon.param_groups[0]["momentum"]
        step = self._step
        step._whole = _captured_by(self.hardware)(lambda *inputs: (*step._accumulate(*inputs), *step._update()))
        self._captured = (key, None, momentum)

    def _decays(self, settings: Any, variant: dict[str, Any]) -> list[tuple[Any, float]]:
        """The groups whose weight decay follows the schedule a second time, where the variant asks for it."""
        if not variant.get("decay_by_schedule"):
            return []
        muon = self._step.optimizers._parts[0]
        return [(group, settings.weight_decay) for group in muon.param_groups]

    def _follow(self, ema: float, step: int) -> None:
        import torch

        weights = [p.data for p in self.model.parameters()]
        if step == 0:
            self._averages = [weight.clone() for weight in weights]
        torch._foreach_lerp_(self._averages, weights, 1 - min(ema, (1 + step) / (10 + step)))

    def _loss(self, averaged: bool) -> float:
        from linnet.train.text import evaluate

        weights = [p.data for p in self.model.parameters()]
        own = [weight.clone() for weight in weights] if averaged else []
        for weight, average in zip(weights if averaged else [], self._averages, strict=False):
            weight.copy_(average)
        device = self.hardware.device
        tokens = self._tokens.held_out
        score = evaluate(
            self.model, tokens, ctx=self.spec.ctx, device=device, most=self._held_out, bytes_per_token=None
        )
        for weight, value in zip(weights if averaged else [], own, strict=False):
            weight.copy_(value)
        return round(float(score.loss), 5)

    def _now(self) -> float:
        import torch

        if self.hardware.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def play(
    spec: LaneSpec, folder: Path, out: Path, *, device: str, megabytes: float, until: float, held_out: int | None = None
) -> None:
    """Run the trials of a lane that fit before the time `until`; each is a line of `out`."""
    from learning_peer import PeerLane

    tokens = prepared(folder, megabytes, spec.vocab)
    kind: Any = PeerLane if spec.peer else Lane
    scored = held_out or (131_072 if device == "cuda" else 4_096)
    lane = kind(spec, tokens, device, min(scored, len(tokens.held_out) - 1))
    lane.run(Trial("warm", 6, {"lr": 1e-3}))  # compiles
    with lines(out) as write:
        for trial in spec.trials:
            if time.time() > until:
                print(f"{spec.name}: out of time before {trial.study} {trial.settings} {trial.variant}", flush=True)
                break
            began = time.perf_counter()
            record = lane.run(trial)
            write(record)
            spent = time.perf_counter() - began
            what = f"{spec.name} {trial.study} {trial.settings} {trial.variant} seed {trial.seed}"
            print(f"{what}: {record['loss']:.4f}, {record['step_ms']:.2f} ms a step, {spent:.1f} s", flush=True)


@contextmanager
def lines(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes a record as a line, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:

        def write(record: dict[str, Any]) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        yield write
