"""The lanes of the study of learning: which shapes, rates, batches and changes are tried, the most worthful first."""

from collections.abc import Iterable
from typing import Any

from learning_lane import LaneSpec, Trial

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
MUON = {"optimizer": "muon"}


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
    )
    return [LaneSpec("tiny", tiny, 8, 64, trials)]


STUDIES = {"first": first_study, "small": small_study}
