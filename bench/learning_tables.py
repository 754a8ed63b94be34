"""What the records of the study say: the best rate of each lane, the powers of the rule, the figures of the issue."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def records(*folders: Path) -> list[Record]:
    """All trials below some folders."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*.jsonl"))]
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def optimum(points: Mapping[float, float]) -> tuple[float, float]:
    """The rate of the least loss, and that loss: of a parabola through the best three, over the logarithm."""
    xs = sorted(points)
    best = min(range(len(xs)), key=lambda i: points[xs[i]])
    if not 0 < best < len(xs) - 1:
        return xs[best], points[xs[best]]
    (a, fa), (b, fb), (c, fc) = ((math.log(x), points[x]) for x in xs[best - 1 : best + 2])
    above = (b - a) ** 2 * (fb - fc) - (b - c) ** 2 * (fb - fa)
    below = (b - a) * (fb - fc) - (b - c) * (fb - fa)
    x = b - 0.5 * above / below if below else b
    curvature = ((fc - fb) / (c - b) - (fb - fa) / (b - a)) / (c - a)
    slope = (fb - fa) / (b - a) + curvature * (b - a)
    return math.exp(x), fb + slope * (x - b) + curvature * (x - b) ** 2


def swept(found: Iterable[Record], study: str = "rate") -> dict[tuple[str, int], dict[float, float]]:
    """Losses by rate, of each lane and number of steps."""
    lanes: dict[tuple[str, int], dict[float, float]] = defaultdict(dict)
    for record in found:
        if record["study"] == study:
            lanes[record["lane"], record["steps"]][record["lr"]] = record["loss"]
    return lanes


def fit(found: Sequence[Record], study: str = "rate") -> dict[str, float]:
    """The rule's constant at 384 wide, 16,384 tokens and 1,000 steps, and its powers, by least squares."""
    import numpy as np

    about = {(record["lane"], record["steps"]): record for record in found if record["study"] == study}
    rows, targets = [], []
    for key, points in swept(found, study).items():
        rate, _ = optimum(points)
        if len(points) < 3 or rate in (min(points), max(points)):
            continue  # the best one lies outside
        record = about[key]
        sizes = record["shape"]["d_model"] / 384, record["tokens"] / 16_384, record["steps"] / 1_000
        rows.append([1.0, *map(math.log, sizes)])
        targets.append(math.log(rate))
    solution, *_ = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)
    constant, *powers = solution.tolist()
    left = np.abs(np.array(rows) @ solution - np.array(targets))
    named = dict(zip(("width", "tokens", "steps"), powers, strict=True))
    return {"matrix": math.exp(constant), **named, "worst factor": float(np.exp(left.max()))}


def correction(found: Sequence[Record]) -> dict[str, float]:
    """By what the rates of the rule are to be multiplied: a constant, and powers of width, tokens and steps.

    Least squares over the best of each sweep. The powers are held back a little: a lane more or less may not turn them.
    """
    import numpy as np

    rows, targets = [], []
    for trials in _lanes(found).values():
        by_times: dict[float, list[float]] = defaultdict(list)
        for record in trials:
            by_times[record["variant"].get("times", 1.0)].append(record["loss"])
        if len(by_times) < 3:
            continue
        best, _ = optimum({factor: statistics.fmean(losses) for factor, losses in by_times.items()})
        rows.append([1.0, *_sizes(trials[0]["shape"]["d_model"], trials[0]["tokens"], trials[0]["steps"])])
        targets.append(math.log(best))
    if not rows:
        return {}
    held_back = np.diag([0.0, 0.3, 0.3, 0.3])
    matrix = np.array(rows)
    solution = np.linalg.solve(matrix.T @ matrix + held_back, matrix.T @ np.array(targets))
    return dict(zip(("constant", "width", "tokens", "steps"), solution.tolist(), strict=True))


def times(by_size: Mapping[str, float], width: int, tokens: int, steps: int) -> float:
    """What a correction says of one size."""
    powers = zip(("width", "tokens", "steps"), _sizes(width, tokens, steps), strict=True)
    return round(math.exp(by_size["constant"] + sum(by_size[name] * size for name, size in powers)), 3)


def _sizes(width: int, tokens: int, steps: int) -> tuple[float, float, float]:
    return math.log(width / 384), math.log(min(tokens, 65_536) / 16_384), math.log(steps / 1_000)


def _lanes(found: Iterable[Record]) -> dict[tuple[str, int], list[Record]]:
    """The trials of each size: lanes that differ by their seed are one."""
    lanes: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in found:
        words = record["lane"].split()
        name = " ".join(words[:-1] if words[-1] in ("0", "1", "2") else words)
        lanes[name, record["steps"]].append(record)
    return lanes


def steps_to(curve: Sequence[Sequence[float]], loss: float) -> float | None:
    """After how many steps a curve first was at a loss, between two evaluations by a straight line."""
    before: Sequence[float] | None = None
    for step, value in curve:
        if value <= loss:
            if before is None:
                return float(step)
            share = (before[1] - loss) / (before[1] - value)
            return float(before[0] + share * (step - before[0]))
        before = (step, value)
    return None


def mean(found: Iterable[Record], name: str = "loss") -> float:
    """The mean of a number over some records."""
    return statistics.fmean(record[name] for record in found)


def told(found: Sequence[Record]) -> str:
    """Everything as text, to look at."""
    lines = []
    for (lane, steps), points in sorted(swept(found).items()):
        rate, loss = optimum(points)
        shown = "  ".join(f"{lr:g}: {points[lr]:.4f}" for lr in sorted(points))
        lines.append(f"{lane:>16} × {steps:<5} best {rate:.2e} {loss:.4f}   {shown}")
    by_lane: dict[str, list[Record]] = defaultdict(list)
    for record in found:
        if record["study"] != "rate":
            by_lane[record["lane"]].append(record)
    for lane, trials in sorted(by_lane.items()):
        lines.append(lane)
        for record in trials:
            given = {k: v for k, v in record["settings"].items() if k != "optimizer"}
            lines.append(f"    {record['study']:>10} {record['loss']:.4f} {record['step_ms']:.2f} ms"
                         f"  {record['steps']} steps {given} {record['variant']} seed {record['seed']}")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    import sys

    all_records = records(*map(Path, sys.argv[1:]))
    print(told(all_records))
    if any(record["study"] == "rate" for record in all_records):
        print(fit(all_records))
