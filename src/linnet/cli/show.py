"""`linnet show`."""

from __future__ import annotations

from linnet.board import words
from linnet.board.settings import commit
from linnet.board.words import command
from linnet.cli.metrics import series_summary
from linnet.cli.options import AsJson, RunName, RunsFolder, require_metrics
from linnet.cli.printing import paint, paint_status, print_facts, print_json, print_table, width
from linnet.cli.runs import as_json
from linnet.runs import Metrics, Run, RunStore, RunSummary, Series

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

    Args:
        key: The metric to draw; by default the loss.
        all: List the machine's figures (sys/…) among the metrics too.
    """
    shown = RunStore(runs).find(run)
    summary, metrics = shown.summarize(), shown.metrics()
    if key is not None:
        require_metrics([key], metrics.names(), f"run {shown.id} has")
    if json:
        print_json(
            {
                **as_json(summary),
                **{name: getattr(shown.manifest, name) for name in ("model", "config", "summary", "provenance")},
                "end": summary.end,
                "damaged_lines": metrics.damaged,
                "metrics": {name: series_summary(metrics[name], metrics[name].goal) for name in metrics},
            }
        )
        return 0
    _print_head(shown, summary)
    series = metrics.main if key is None else metrics[key]
    if series is not None:
        _print_chart(series)
    _print_metrics(metrics, all)
    if summary.warning is not None:
        print(paint(f"\n! {summary.warning}", "yellow"))
    if metrics.damaged:
        count = f"{metrics.damaged} damaged {'line was' if metrics.damaged == 1 else 'lines were'}"
        print(paint(f"\n{count} passed over; see: {command('check', shown.path)}", "yellow"))
    return 0


def _print_head(run: Run, summary: RunSummary) -> None:
    manifest, end = run.manifest, summary.end or {}
    print(f"{paint(words.bounded(run.id), 'bold')}  {paint_status(summary.status)}  {words.duration(summary.t)}")
    facts = {
        "name": manifest.name,
        "recipe": manifest.recipe,
        "experiment": manifest.experiment,
        "group": manifest.group,
        "parent": manifest.parent,
        "tags": " ".join(manifest.tags),
        "step": words.number(summary.step)
        + (f" of {words.number(manifest.total_steps)}" if manifest.total_steps else ""),
        "model": _pairs(manifest.model),
        "config": _pairs(manifest.config),
        "summary": _pairs(manifest.summary),
        "started": words.moment(manifest.created_at),
        "host": manifest.provenance.get("host"),
        "git": commit(manifest, branch=True),
        "written by": manifest.dialect if manifest.dialect != "linnet" and summary.warning is None else None,
        "error": words.flags(str(end.get("error") or "")),
        "folder": run.path,
        "gate": _verdict(end.get("quality_gate")),
    }
    print_facts(facts, cut=True)


def _verdict(gate: object) -> str:
    if not isinstance(gate, dict):
        return ""
    verdict = "reached" if gate.get("passed") else "missed"
    return f"{verdict}: {gate.get('metric')} {gate.get('value')} against {gate.get('threshold')}"


def _pairs(fields: dict[str, object]) -> str:
    return " · ".join(f"{name} {value}" for name, value in fields.items())


def _print_chart(series: Series) -> None:
    from linnet.board.curve import Curve
    from linnet.board.plot import BEST_MARK, chart

    across, best = min(width(), _CHART_WIDTH), series.best
    step, value = series.downsample(across * 4)
    if lines := chart(Curve.through(step.astype(float), value), across, _CHART_HEIGHT, mark=best):
        legend = f"  {BEST_MARK} best {words.number(best[1])} at step {words.number(best[0])}" if best else ""
        print(f"\n{paint(words.plain(series.name), 'bold')}{paint(legend, 'dim')}")
        print("\n".join(lines))


def _print_metrics(metrics: Metrics, all: bool) -> None:
    rows = []
    for name in metrics.names():
        if all or not name.startswith("sys/"):
            series = metrics[name]
            latest, best = series.latest or (None, None), series.best or (None, None)
            rows.append((name, *map(words.number, (latest[1], best[1], best[0], len(series)))))
    if rows:
        print()
        print_table(("metric", "last", "best", "at step", "points"), rows, right=(1, 2, 3, 4))
