"""`linnet show`."""

from __future__ import annotations

from linnet.board import words
from linnet.board.settings import commit
from linnet.board.words import command
from linnet.cli.options import AsJson, RunName, RunsFolder, require_metrics
from linnet.cli.terminal import paint, paint_status, print_json, table, width
from linnet.runs import Metrics, Run, RunStore, RunSummary, Series
from linnet.runs.metric_names import Goal

_CHART_HEIGHT = 14
_CHART_WIDTH = 100


def show(
    run: RunName = "latest",
    /,
    *,
    key: str | None = None,
    runs: RunsFolder = None,
    all: bool = False,
    json: AsJson = False,
) -> int:
    """Show one run: status, settings, metrics and a chart.

    Parameters
    ----------
    key
        The metric to draw; by default the loss.
    all
        List the machine's figures (sys/…) among the metrics too.
    """
    found = RunStore(runs).find(run)
    summary, metrics = found.summarize(), found.metrics()
    if key is not None:
        require_metrics([key], metrics.names(), f"run {found.id} has")
    series = metrics.main if key is None else metrics[key]
    if json:
        print_json(_as_json(found, summary, metrics))
        return 0
    _print_head(found, summary)
    if series is not None:
        _print_chart(series)
    _print_metrics(metrics, all)
    if summary.warning is not None:
        print(paint(f"\n! {summary.warning}", "yellow"))
    if metrics.damaged:
        count = f"{metrics.damaged} damaged {'line was' if metrics.damaged == 1 else 'lines were'}"
        print(paint(f"\n{count} passed over; see: {command('check', found.path)}", "yellow"))
    return 0


def _print_head(run: Run, summary: RunSummary) -> None:
    manifest = run.manifest
    print(f"{paint(words.bounded(run.id), 'bold')}  {paint_status(summary.status)}  {words.duration(summary.t)}")
    steps = words.number(summary.step) + (f" of {words.number(manifest.total_steps)}" if manifest.total_steps else "")
    facts = {
        "name": manifest.name,
        "recipe": manifest.recipe,
        "experiment": manifest.experiment,
        "group": manifest.group,
        "parent": manifest.parent,
        "tags": " ".join(manifest.tags),
        "step": steps,
        "model": _pairs(manifest.model),
        "config": _pairs(manifest.config),
        "summary": _pairs(manifest.summary),
        "started": words.moment(manifest.created_at),
        "host": manifest.provenance.get("host"),
        "git": commit(manifest, branch=True),
        "written by": manifest.dialect if manifest.dialect != "linnet" and summary.warning is None else None,
        "error": words.flags(str((summary.end or {}).get("error") or "")),
        "folder": run.path,
    }
    gate = (summary.end or {}).get("quality_gate")
    if isinstance(gate, dict):
        verdict = "reached" if gate.get("passed") else "missed"
        facts["gate"] = f"{verdict}: {gate.get('metric')} {gate.get('value')} against {gate.get('threshold')}"
    for name, value in facts.items():
        if value:
            print(f"  {paint(f'{name:<11}', 'dim')} {words.shorten(words.plain(value), max(20, width() - 14))}")


def _pairs(fields: dict[str, object]) -> str:
    return " · ".join(f"{name} {value}" for name, value in fields.items())


def _print_chart(series: Series) -> None:
    from linnet.board.curve import Curve
    from linnet.board.plot import BEST_MARK, chart

    across, best = min(width(), _CHART_WIDTH), series.best
    step, value = series.downsample(across * 4)
    lines = chart(Curve.through(step.astype(float), value), across, _CHART_HEIGHT, mark=best)
    if lines:
        legend = (
            f"  {BEST_MARK} best {words.number(best[1])} at step {words.number(best[0])}" if best is not None else ""
        )
        print(f"\n{paint(words.plain(series.name), 'bold')}{paint(legend, 'dim')}")
        print("\n".join(lines))


def _print_metrics(metrics: Metrics, all: bool) -> None:
    names = [name for name in metrics.names() if all or not name.startswith("sys/")]
    rows = []
    for name in names:
        series = metrics[name]
        latest, best = series.latest, series.best
        rows.append(
            (
                name,
                words.number(latest[1] if latest else None),
                words.number(best[1] if best else None),
                words.number(best[0] if best else None),
                words.number(len(series)),
            )
        )
    if rows:
        print()
        print("\n".join(table(("metric", "last", "best", "at step", "points"), rows, right=(1, 2, 3, 4))))


def _as_json(run: Run, summary: RunSummary, metrics: Metrics) -> dict[str, object]:
    from linnet.cli.runs import as_json

    manifest = run.manifest
    return {
        **as_json(summary),
        "model": manifest.model,
        "config": manifest.config,
        "summary": manifest.summary,
        "provenance": manifest.provenance,
        "end": summary.end,
        "damaged_lines": metrics.damaged,
        "metrics": {name: series_summary(metrics[name], metrics[name].goal) for name in metrics},
    }


def series_summary(series: Series, goal: Goal | None) -> dict[str, object]:
    """A metric in four numbers, and which way is better; `best` is None where that is not known."""
    latest, best = series.latest, series.best_by(goal) if goal is not None else None
    return {
        "last": latest[1] if latest else None,
        "last_step": latest[0] if latest else None,
        "best": best[1] if best else None,
        "best_step": best[0] if best else None,
        "points": len(series),
        "goal": goal,
    }
