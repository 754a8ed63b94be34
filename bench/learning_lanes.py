"""The lanes of the study of learning: which shapes, rates, batches and changes are tried, the most worthful first."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from learning_lane import LaneSpec, Trial
from learning_tables import Record, correction, times

# Every shape has a vocabulary of 8,192 and sequences of 512 tokens, so that losses compare.
SHAPES: dict[str, dict[str, Any]] = {
    "1M": {"d_model": 96, "n_heads": 3, "n_kv": 3, "d_ff": 256, "n_layers": 4},
    "3M": {"d_model": 192, "n_heads": 6, "n_kv": 2, "d_ff": 512, "n_layers": 6},
    "15M": {"d_model": 384, "n_heads": 6, "n_kv": 6, "d_ff": 1024, "n_layers": 6},
    "50M": {"d_model": 512, "n_heads": 8, "n_kv": 4, "d_ff": 1408, "n_layers": 14},
    "135M": {"d_model": 576, "n_heads": 9, "n_kv": 3, "d_ff": 1536, "n_layers": 30},
}
# The same number of parameters otherwise spent.
OTHER_SHAPES: dict[str, dict[str, Any]] = {
    "3M qwen3": {**SHAPES["3M"], "arch": "qwen3"},
    "3M heads of 64": {**SHAPES["3M"], "n_heads": 3, "n_kv": 1},
    "3M deep": {"d_model": 144, "n_heads": 6, "n_kv": 2, "d_ff": 384, "n_layers": 12},
    "3M wide": {"d_model": 256, "n_heads": 8, "n_kv": 2, "d_ff": 704, "n_layers": 3},
    "15M qwen3": {**SHAPES["15M"], "arch": "qwen3"},
    "15M heads of 32": {**SHAPES["15M"], "n_heads": 12, "n_kv": 12},
    "15M heads of 128": {**SHAPES["15M"], "n_heads": 3, "n_kv": 3},
    "15M few kv": {**SHAPES["15M"], "n_kv": 2, "d_ff": 1152},
    "15M deep": {"d_model": 256, "n_heads": 4, "n_kv": 4, "d_ff": 704, "n_layers": 14},
    "15M wide": {"d_model": 576, "n_heads": 9, "n_kv": 9, "d_ff": 1536, "n_layers": 3},
    "50M qwen3": {**SHAPES["50M"], "arch": "qwen3"},
    "50M wide": {"d_model": 768, "n_heads": 12, "n_kv": 6, "d_ff": 2048, "n_layers": 6},
    "135M qwen3": {**SHAPES["135M"], "arch": "qwen3"},
    "135M wide": {"d_model": 896, "n_heads": 14, "n_kv": 7, "d_ff": 2432, "n_layers": 12},
}
CTX = 512
# Muon as it was in the first studies: fused matrices as one, updates of AdamW's size, no warm-up of its momentum.
BEFORE: dict[str, Any] = {"muon_norm": "rms", "momentum_warmup": 0}
MUON = {"optimizer": "muon", **BEFORE}


def rates(study: str, steps: int, grid: Iterable[float], **settings: Any) -> list[Trial]:
    """One trial for each rate."""
    return [Trial(study, steps, {**MUON, "lr": lr, "weight_decay": 0.1, **settings}) for lr in grid]


def changes(study: str, steps: int, name: str, values: Iterable[Any], lr: float) -> list[Trial]:
    """One trial for each value of a setting."""
    return [Trial(study, steps, {**MUON, "lr": lr, "weight_decay": 0.1, name: value}) for value in values]


def variants(steps: int, lr: float, *kinds: dict[str, Any], **settings: Any) -> list[Trial]:
    """One trial for each change of the optimizer."""
    given = {**MUON, "lr": lr, "weight_decay": 0.1, **settings}
    return [Trial("variant", steps, given, kind) for kind in kinds]


def lane(name: str, shape: str, batch: int, *trials: list[Trial], documents: bool = False) -> LaneSpec:
    """A lane of a named shape."""
    sizes = SHAPES.get(shape) or OTHER_SHAPES[shape]
    return LaneSpec(name, sizes, batch, CTX, tuple(trial for group in trials for trial in group), documents)


def first_study() -> list[LaneSpec]:
    """Rates against width, depth, batch and steps; the rates of embedding and vectors; decay; the most likely gains."""
    coarse = (4e-3, 2e-3, 8e-3, 1e-3, 1.6e-2)
    more = [
        lane(
            "15M 16k",
            "15M",
            32,
            rates("rate", 600, coarse),
            changes("embedding", 600, "lr_embedding", (1.6e-2, 8e-3, 2e-3, 3.2e-2), 4e-3),
            changes("decay", 600, "weight_decay", (0.3, 0.03, 0.6), 4e-3),
            variants(600, 4e-3, {"split": True}, {"norm": "spectral"}, {"momentum": 0.9}, {"momentum_warmup": 200}),
            changes("vectors", 600, "lr_vectors", (1.6e-2, 1e-3), 4e-3),
            variants(600, 4e-3, {}, schedule="wsd", decay=0.5),
            variants(600, 4e-3, {"ema": 0.98}, {"decay_by_schedule": True}, {"nesterov": False}),
            changes("schedule", 600, "lr_min", (1e-5,), 4e-3),
            changes("beta2", 600, "beta2", (0.99, 0.9), 4e-3),
            variants(600, 4e-3, {"norm": "keller"}, {"embedding_scale": 4.0}),
        ),
        lane("135M 16k", "135M", 32, rates("rate", 160, (2e-3, 4e-3, 1e-3, 8e-3)),
             changes("embedding", 160, "lr_embedding", (8e-3, 1.6e-2), 2e-3)),
        lane("3M 8k", "3M", 16, rates("rate", 1000, coarse), rates("rate", 4000, (4e-3, 2e-3, 8e-3, 1e-3)),
             changes("decay", 4000, "weight_decay", (0.3, 0.03), 4e-3),
             changes("embedding", 1000, "lr_embedding", (1.6e-2, 8e-3, 3.2e-2), 4e-3),
             rates("rate", 250, (8e-3, 4e-3, 1.6e-2))),
        lane("50M 16k", "50M", 32, rates("rate", 250, (4e-3, 2e-3, 8e-3, 1e-3)),
             changes("embedding", 250, "lr_embedding", (1.6e-2, 8e-3), 4e-3)),
        lane("15M 2k", "15M", 4, rates("rate", 1500, (2e-3, 4e-3, 1e-3, 8e-3, 5e-4))),
        lane("15M 131k", "15M", 256, rates("rate", 120, (8e-3, 4e-3, 1.6e-2, 2e-3))),
        lane("1M 8k", "1M", 16, rates("rate", 1000, (8e-3, 4e-3, 1.6e-2, 2e-3, 3.2e-2)),
             changes("embedding", 1000, "lr_embedding", (3.2e-2, 1.6e-2), 8e-3)),
        lane("3M 65k", "3M", 128, rates("rate", 300, (8e-3, 4e-3, 1.6e-2, 2e-3))),
        lane("3M 2k", "3M", 4, rates("rate", 1500, (4e-3, 2e-3, 8e-3, 1e-3))),
    ]  # fmt: skip
    shapes = [
        lane(f"{name} 16k", name, 32, rates("shape", 600, (4e-3, 8e-3)))
        for name in ("15M qwen3", "15M deep", "15M wide", "15M heads of 128", "15M heads of 32", "15M few kv")
    ]
    return more + shapes


def second_study() -> list[LaneSpec]:
    """AdamW by a grid, nanoGPT by its rate, the rule against sweeps, changes with three seeds, shapes."""
    grid = [
        Trial("adamw", 1000, {"optimizer": "adamw", "lr": lr, "weight_decay": decay, "beta2": beta2})
        for lr, decay, beta2 in (
            (2e-3, 0.1, 0.95), (1e-3, 0.1, 0.95), (2e-3, 0.3, 0.95), (1e-3, 0.3, 0.99),
            (3e-3, 0.1, 0.95), (2e-3, 0.1, 0.99), (2e-3, 0.3, 0.99), (1e-3, 0.1, 0.99),
        )
    ]  # fmt: skip
    peer = [Trial("nanogpt", 1000, {"lr": lr}) for lr in (2e-3, 1e-3, 4e-3)]
    three, five = (1.0, 2.0, 0.5), (1.0, 2.0, 0.5, 1.4, 0.7)
    return [
        lane("15M adamw a", "15M", 32, grid[::2]),
        lane("15M adamw b", "15M", 32, grid[1::2]),
        peer_lane("15M nanogpt", "15M", 32, peer),
        *(lane(f"15M changes {seed}", "15M", 32, [replace(trial, seed=seed) for trial in CHANGES]) for seed in SEEDS),
        lane("135M 16k sweep", "135M", 32, sweep(160, three)),
        lane("50M 16k sweep", "50M", 32, sweep(250, three)),
        lane("15M 131k sweep", "15M", 256, sweep(120, three)),
        lane("3M 8k sweep", "3M", 16, sweep(1000, five), sweep(4000, (1.0, 0.5))),
        lane("1M 8k sweep", "1M", 16, sweep(1000, five)),
        lane("15M 2k sweep", "15M", 4, sweep(1500, five)),
        lane("3M 65k sweep", "3M", 128, sweep(300, three)),
        *demo_lanes(),
        *(lane(name, name, 32, [Trial("shape", 600)]) for name in ("15M qwen3", "15M wide", "15M deep")),
    ]


def demo_lanes() -> list[LaneSpec]:
    """`linnet demo`: 8 × 128 tokens, a vocabulary of 2,048; a wide and a narrow model, as long as a CPU takes."""
    wide = {"d_model": 192, "n_heads": 6, "n_kv": 2, "d_ff": 512, "n_layers": 4}
    narrow = {"d_model": 128, "n_heads": 4, "n_kv": 2, "d_ff": 352, "n_layers": 4}
    before = {**MUON, "lr": 5e-3, "lr_embedding": 5e-3, "lr_vectors": 5e-3, "weight_decay": 0.1}
    trials = [Trial("demo", 480, before), *sweep(480, (1.0, 2.0, 3.0)), *sweep(700, (1.0, 2.0))]
    trials += [Trial("demo", 480, {"lr_embedding": rate}) for rate in (6e-3, 1.2e-2)]
    half = [*sweep(960, (1.0, 2.0)), *sweep(1400, (1.0, 2.0))]
    return [
        LaneSpec("demo wide", wide, 8, 128, tuple(trials), vocab=2048),
        LaneSpec("demo narrow", narrow, 8, 128, (*sweep(700, (1.0, 2.0)), *sweep(1000, (1.0, 2.0))), vocab=2048),
        LaneSpec("demo half", wide, 4, 128, tuple(half), vocab=2048),
    ]


SEEDS = (0, 1, 2)
# What is changed of the default, 600 steps of 15M; the first is the default itself, and a sweep around it.
CHANGES = [
    Trial("change", 600, BEFORE),
    Trial("change", 600, {**BEFORE, "weight_decay": 1.2}),
    Trial("change", 600, BEFORE, {"split": True}),
    Trial("change", 600, {**BEFORE, "schedule": "wsd", "decay": 0.5}),
    Trial("change", 600, BEFORE, {"times": 2.0}),
    Trial("change", 600, BEFORE, {"times": 0.5}),
    Trial("change", 600, {**BEFORE, "weight_decay": 0.3}),
    Trial("change", 600, BEFORE, {"norm": "spectral"}),
    Trial("change", 600, BEFORE, {"ema": 0.98}),
    Trial("change", 600, BEFORE, {"momentum_warmup": 150}),
    Trial("change", 600, BEFORE, {"decay_by_schedule": True}),
    Trial("change", 600, BEFORE, {"nesterov": False}),
    Trial("change", 600, {**BEFORE, "beta2": 0.99}),
    Trial("change", 600, BEFORE, {"momentum": 0.9}),
]


def sweep(steps: int, times: Iterable[float]) -> list[Trial]:
    """The rule, and rates around it."""
    return [Trial("sweep", steps, {}, {"times": factor}) for factor in times]


def third_study() -> list[LaneSpec]:
    """The rule against sweeps at each size and batch, as it is now."""
    four = (1.0, 1.4, 0.7, 2.0)

    def seeds(steps: int, count: int, times: Iterable[float] = four) -> list[Trial]:
        return [replace(trial, seed=seed) for seed in range(count) for trial in sweep(steps, times)]

    return [
        *(lane(f"15M 16k {seed}", "15M", 32, [replace(t, seed=seed) for t in sweep(1000, four)]) for seed in SEEDS),
        lane("135M 16k", "135M", 32, sweep(300, four[:3])),
        lane("50M 16k", "50M", 32, sweep(600, four)),
        lane("15M 131k", "15M", 256, sweep(150, four)),
        lane("15M 2k", "15M", 4, sweep(2000, four)),
        lane("3M 8k", "3M", 16, seeds(1000, 2), sweep(4000, four[:3])),
        lane("3M 65k", "3M", 128, sweep(400, four)),
        lane("1M 8k", "1M", 16, seeds(1000, 2)),
        *demo_lanes()[:1],
    ]


def fitted_study(found: Sequence[Record] = ()) -> list[LaneSpec]:
    """The rule as the third study's sweeps correct it, once in each of their lanes."""
    by_size = correction([record for record in found if record["study"] == "sweep"])
    lanes = []
    for spec in third_study():
        steps = sorted({(trial.steps, trial.seed) for trial in spec.trials if trial.study == "sweep"})
        sizes = [(spec.shape["d_model"], spec.batch * spec.ctx, count) for count, _ in steps]
        trials = [
            Trial("fitted", count, {}, {"times": times(by_size, *size)}, seed)
            for (count, seed), size in zip(steps, sizes, strict=True)
        ]
        lanes.append(replace(spec, trials=tuple(trials)))
    return lanes


def cpu_study() -> list[LaneSpec]:
    """What two cores can sweep in some hours: small models, small batches."""
    five = (1.0, 1.4, 0.7, 2.0, 0.5)
    was = {**BEFORE, "lr": 1.1e-2, "lr_embedding": 4.2e-3, "lr_vectors": 4.2e-3, "weight_decay": 0.81}
    wide, _, half = demo_lanes()
    return [
        replace(wide, name="demo cpu", trials=(*wide.trials[:1], *sweep(480, five))),
        replace(half, name="demo half cpu", trials=(*sweep(960, (1.0, 1.4, 2.0)),)),
        lane(
            "3M 2k cpu",
            "3M",
            4,
            sweep(1500, (1.0,)),
            [Trial("before", 1500, {**was, "lr": 5.4e-3})],
            sweep(1500, five[1:]),
        ),
        lane("1M 2k cpu", "1M", 4, sweep(1500, (1.0,)), [Trial("before", 1500, was)], sweep(1500, five[1:])),
    ]


def quiet_study(found: Sequence[Record] = ()) -> list[LaneSpec]:
    """What is timed, three seeds, one lane after the other: the default; AdamW and nanoGPT as they were best."""
    adamw = _best(found, "adamw") or {"lr": 2e-3, "weight_decay": 0.3, "beta2": 0.95}  # the best of the last grid
    peer = _best(found, "nanogpt") or {"lr": 2e-3}
    corrected = correction([record for record in found if record["study"] == "sweep"])
    variant = {"times": times(corrected, SHAPES["15M"]["d_model"], 32 * CTX, 1000)} if corrected else {}
    ours = [Trial("default", 1000, {}, variant, seed=seed, evaluations=25) for seed in SEEDS]
    tuned = [Trial("adamw best", 1000, {**adamw, "optimizer": "adamw"}, seed=seed, evaluations=25) for seed in SEEDS]
    theirs = [Trial("nanogpt best", 1000, peer, seed=seed, evaluations=25) for seed in SEEDS]
    in_turn = [trial for pair in zip(ours, tuned, strict=True) for trial in pair]
    return [lane("15M quiet", "15M", 32, in_turn), peer_lane("15M nanogpt quiet", "15M", 32, theirs)]


def _best(found: Iterable[Record], study: str) -> dict[str, Any]:
    """The settings of the least loss of a study; nothing where it was not done."""
    trials = [record for record in found if record["study"] == study]
    return dict(min(trials, key=lambda record: float(record["loss"]))["settings"]) if trials else {}


def peer_lane(name: str, shape: str, batch: int, trials: list[Trial]) -> LaneSpec:
    """nanoGPT in a shape's width and depth."""
    return LaneSpec(name, SHAPES[shape], batch, CTX, tuple(trials), peer=True)


def small_study() -> list[LaneSpec]:
    """A form for a CPU: the same lanes in seconds, to see that they run."""
    tiny = {"d_model": 64, "n_heads": 2, "n_kv": 2, "d_ff": 128, "n_layers": 2}
    trials = (
        *rates("rate", 12, (4e-3, 8e-3)),
        *changes("embedding", 12, "lr_embedding", (1.6e-2,), 4e-3),
        *changes("decay", 12, "weight_decay", (0.3,), 4e-3),
        *variants(12, 4e-3, {"ema": 0.98}, {"decay_by_schedule": True}, {"nesterov": False}, {"embedding_scale": 4.0}),
        *variants(12, 4e-3, {"split": True}, {"norm": "spectral"}, {"momentum": 0.9}, {"momentum_warmup": 10}),
        *variants(12, 4e-3, {}, schedule="wsd", decay=0.5),
        Trial("adamw", 12, {"optimizer": "adamw", "lr": 2e-3, "weight_decay": 0.1}, evaluations=4),
        Trial("default", 12, {}, evaluations=4),
        *sweep(12, (1.0, 2.0)),
    )
    peer = (Trial("nanogpt", 12, {"lr": 2e-3}, evaluations=4),)
    return [LaneSpec("tiny nanogpt", tiny, 8, 64, peer, peer=True), LaneSpec("tiny", tiny, 8, 64, trials)]


SPLIT: dict[str, Any] = {"split": True}
WARM: dict[str, Any] = {"split": True, "momentum_warmup": 150}
SPECTRAL: dict[str, Any] = {**WARM, "norm": "spectral"}
WSD: dict[str, Any] = {"schedule": "wsd", "decay": 0.5}


def combined_study() -> list[LaneSpec]:
    """What helped each by itself, together, around the rule's rates; the embedding of narrow models."""
    together: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}), ({}, SPLIT), ({}, WARM), ({}, SPECTRAL)]
    together += [(WSD, WARM), (WSD, SPECTRAL)]
    around = [({}, {**kind, "times": times}) for times in (1.4, 0.7) for kind in (WARM, SPECTRAL)]
    around += [(WSD, {**kind, "times": times}) for times in (1.4, 0.7) for kind in (WARM, SPECTRAL)]

    def trials(steps: int, seed: int, kinds: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Trial]:
        return [Trial("combined", steps, {**BEFORE, **given}, dict(kind), seed) for given, kind in kinds]

    narrow = [({"lr_embedding": rate}, WARM) for rate in (4e-3, 1.6e-2, 3.2e-2)]
    return [
        *(lane(f"15M combined {seed}", "15M", 32, trials(600, seed, together + around)) for seed in SEEDS),
        *(lane(f"3M combined {seed}", "3M", 16, trials(1000, seed, together + narrow + around)) for seed in SEEDS),
        *(lane(f"1M combined {seed}", "1M", 16, trials(1000, seed, [*together, *narrow])) for seed in SEEDS[:2]),
    ]


STUDIES = {
    "first": first_study,
    "second": second_study,
    "combined": combined_study,
    "third": third_study,
    "fitted": fitted_study,
    "cpu": cpu_study,
    "quiet": quiet_study,
    "small": small_study,
}
