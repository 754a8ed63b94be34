"""The figures of the study of learning, as a section of RESULTS.md, and pictures of it for docs/learning.md."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from learning_tables import Record, mean, optimum, steps_to
from report import Report

WHO = {"default": "linnet, no flags", "adamw best": "AdamW, best of the grid", "nanogpt best": "nanoGPT, best rate"}


def report_of(found: Sequence[Record], where: str) -> Report:
    """Who needs how many steps and seconds to whose loss; how far the rule is from the best of a sweep."""
    report = Report(
        name="learning",
        claim="What a step teaches: the default recipe without flags against AdamW tuned by a grid and nanoGPT.",
        columns={"who": "", "held-out loss": ".4f", "by seed": "", "ms a step": ".2f", "settings": ""},
    )
    report.note(
        f"{where}: a vocabulary of 8,192 on the Python sources of its interpreter and packages, 14M parameters,"
        " 32 × 512 tokens a step, 1,000 steps, one process alone on the GPU; the last rows shared it, and have no time."
    )
    timed = {who: [record for record in found if record["study"] == who] for who in WHO}
    for who, trials in timed.items():
        if trials:
            seeds = ", ".join(f"{record['loss']:.3f}" for record in trials)
            ms = statistics.median(record["step_ms"] for record in trials)
            report.row(WHO[who], mean(trials), seeds, ms, _given(trials[0]))
    for study in ("adamw", "nanogpt"):
        for record in sorted((r for r in found if r["study"] == study), key=lambda r: float(r["loss"])):
            report.row(f"{study} grid", record["loss"], "", None, _given(record))
    _judge_peers(report, timed)
    _judge_rule(report, found)
    return report


def _judge_peers(report: Report, timed: dict[str, list[Record]]) -> None:
    ours = timed["default"]
    for who, limit in (("adamw best", 0.60), ("nanogpt best", 0.30)):
        theirs = timed[who]
        shares, seconds = [], []
        for record in ours if theirs else []:
            steps = steps_to(record["curve"], mean(theirs))
            if steps is not None:
                shares.append(steps / theirs[0]["steps"])
                median = statistics.median(other["step_ms"] for other in theirs)
                seconds.append(shares[-1] * statistics.median(r["step_ms"] for r in ours) / median)
        if who == "adamw best":
            share = statistics.fmean(shares) if shares else None
            report.at_most("steps to the final loss of AdamW, best of the grid", share, 0.55, "×")
        wall = statistics.fmean(seconds) if seconds else None
        report.at_most(f"time to the final loss of {WHO[who]}", wall, limit, "×")


def _judge_rule(report: Report, found: Sequence[Record]) -> None:
    """The rule's loss over that of the best rate around it, as a parabola has it, of every size and batch."""
    lanes: dict[tuple[str, int], dict[float, list[float]]] = {}
    for record in found:
        plain = record["study"] == "sweep" or (record["study"] == "change" and not record["settings"])
        if plain and set(record["variant"]) <= {"times"}:
            name = record["lane"].removesuffix(" sweep").split(" changes")[0]
            name = f"{name} 16k" if name == "15M" else name
            points = lanes.setdefault((name, record["steps"]), {})
            points.setdefault(record["variant"].get("times", 1.0), []).append(record["loss"])
    for (name, steps), points in sorted(lanes.items()):
        means = {times: statistics.fmean(losses) for times, losses in points.items()}
        if 1.0 not in means or len(means) < 2:
            continue
        best, least = optimum(means)
        least = min(least, *means.values())
        what = f"the rule's loss above the best of a sweep, {name}, {steps} steps"
        report.at_most(f"{what} (best at {best:.2g} × the rule's rates)", 100 * (means[1.0] / least - 1), 1.0, "%")


def _given(record: Record) -> str:
    settings = {name: value for name, value in record["settings"].items() if name != "optimizer"}
    return ", ".join(f"{name} {value:g}" for name, value in settings.items()) or "by rule"


def pictures(found: Sequence[Record], folder: Path) -> list[Path]:
    """Held-out loss against steps of the three, as an SVG."""
    curves = {who: [record for record in found if record["study"] == who] for who in WHO}
    curves = {who: trials for who, trials in curves.items() if trials}
    if not curves:
        return []
    path = folder / "learning.svg"
    path.write_text(_picture(curves), encoding="utf-8")
    return [path]


_COLOURS = {"default": "#2563eb", "adamw best": "#d97706", "nanogpt best": "#6b7280"}


def _picture(curves: dict[str, list[Record]]) -> str:
    from linnet.board.plot import ticks

    width, height, left, top, right, bottom = 720, 400, 60, 30, 560, 350
    points = [point for trials in curves.values() for record in trials for point in record["curve"]]
    last = max(step for step, _ in points)
    low, high = min(loss for _, loss in points) * 0.97, sorted(loss for _, loss in points)[int(len(points) * 0.97)]

    def x(step: float) -> float:
        return left + (right - left) * step / last

    def y(loss: float) -> float:
        return bottom - (bottom - top) * (min(loss, high) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif"'
        ' font-size="12" fill="#6b7280">',
        "<title>Held-out loss against steps, 14M parameters, three seeds each</title>",
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#9ca3af"/>',
        f'<text x="{(left + right) / 2}" y="{height - 12}" text-anchor="middle">steps of 16,384 tokens</text>',
        f'<text x="{left}" y="{top - 12}">held-out loss, nats a token</text>',
    ]
    for value in ticks(low, high, 6):
        at = f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        parts += [f'<path d="M{left} {y(value):.1f}H{right}" stroke="#9ca3af" opacity="0.25"/>', at]
    for value in ticks(0, last, 6):
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
    for number, (who, trials) in enumerate(curves.items()):
        colour = _COLOURS[who]
        for record in trials:
            line = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in record["curve"])
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(f'<text x="{right + 8}" y="{top + 20 + 20 * number}" fill="{colour}">{WHO[who]}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
