"""`linnet show` and `tail`: one run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from linnet.board import words
from linnet.board.gallery import describe
from linnet.cli.artifacts import LoggedArtifacts, artifact_fields, choose_artifact, print_artifact, write_artifact
from linnet.cli.metrics import series_summary
from linnet.cli.options import AsJson, RunName, RunsFolder, require_metrics
from linnet.cli.plan import rates_words
from linnet.cli.printing import json_line, paint, paint_status, print_facts, print_json, print_table, width, wrapped
from linnet.cli.runs import as_json
from linnet.errors import UsageError
from linnet.runs import RunStore
from linnet.runs.artifacts import to_artifact
from linnet.runs.baseline import latest_of, logged_comparisons
from linnet.runs.family import origin_of
from linnet.runs.metric_names import counts_as_training, rows
from linnet.runs.settings import commit

if TYPE_CHECKING:
    from linnet.runs import Event, Metrics, Run, RunSummary, Series

_CHART_HEIGHT = 14
_CHART_WIDTH = 100
_QUIET = ("heartbeat", "system")  # kinds of events that are shown with --all only
_UNDER_WAY = ("live", "stalled")
_EVENT_INDENT = 33  # columns before what an event says
_UNBROKEN = "\u00a0"  # a space at which no line ends


def show(
    run: RunName = "latest",
    /,
    *,
    key: str | None = None,
    artifact: str | None = None,
    out: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    runs: RunsFolder = None,
    all: bool = False,
    json: AsJson = False,
) -> int:
    """Show one run: status, settings, metrics and a chart, and what else was logged.

    Args:
        key: The metric to draw; by default the loss.
        artifact: NAME or NAME@STEP: show that image, table, histogram, text, sound or file instead.
        out: Write that artifact into this file or folder (a table to .csv too), or to standard output (-).
        all: List everything: the machine's figures (sys/…), every name of an artifact, all notes.
    """
    shown = RunStore(runs).find(run)
    if artifact is not None or out is not None:
        return _show_artifact(shown, artifact, out, json)
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
                **LoggedArtifacts(shown).as_json(),
            }
        )
        return 0
    _print_head(shown, summary)
    series = metrics.main if key is None else metrics[key]
    if series is not None:
        _print_chart(series)
    _print_metrics(metrics, all)
    LoggedArtifacts(shown).print(all)
    if summary.warning is not None:
        print(paint(f"\n! {summary.warning}", "yellow"))
    if metrics.damaged:
        count = f"{metrics.damaged} damaged {'line was' if metrics.damaged == 1 else 'lines were'}"
        print(paint(f"\n{count} passed over; see: {words.command('check', shown.path)}", "yellow"))
    return 0


def _show_artifact(run: Run, reference: str | None, out: str | None, json: bool) -> int:
    if reference is None:
        raise UsageError("--out needs --artifact NAME: which one is to be written?")
    artifact = choose_artifact(run, reference)
    if out is not None:
        write_artifact(artifact, out)
    elif json:
        print_json(artifact_fields(artifact))
    else:
        print_artifact(artifact)
    return 0


def _base(config: Mapping[str, Any]) -> str | None:
    """The model that a training goes on with, and what of it is adapted."""
    name, rank, targets = (config.get(key) for key in ("base_name", "rank", "targets"))
    if not isinstance(name, str):
        return None
    if not isinstance(rank, int):
        return name
    return f"{name} · {'DoRA' if config.get('dora') else 'LoRA'} of rank {rank} on {targets}"


def _print_head(run: Run, summary: RunSummary) -> None:
    manifest, end = run.manifest, summary.end or {}
    print(f"{paint(words.bounded(run.id), 'bold')}  {paint_status(summary.status)}  {words.duration(summary.t)}")
    facts = {
        "name": manifest.name,
        "recipe": manifest.recipe,
        "experiment": manifest.experiment,
        "group": manifest.group,
        "parent": origin_of(manifest.parent, manifest.parent_step),
        "baseline": _baseline(run),
        "tags": " ".join(manifest.tags),
        "step": words.number(summary.step)
        + (f" of {words.number(manifest.total_steps)}" if manifest.total_steps else ""),
        "base": _base(manifest.config),
        "parameters": _parameters(manifest.plan),
        "rates": _rates(manifest.plan),
        "model": _pairs(manifest.model.items(), " · "),
        "config": _pairs(manifest.config.items(), " · "),
        "inspected": _inspected(run),
        "summary": _pairs(manifest.summary.items(), " · "),
        "started": words.moment(manifest.created_at),
        "host": manifest.provenance.get("host"),
        "git": commit(manifest, branch=True),
        "written by": manifest.dialect if manifest.dialect != "linnet" and summary.warning is None else None,
        "error": words.flags(str(end.get("error") or "")),
        "folder": run.path,
        "gate": _verdict(end.get("quality_gate")),
    }
    print_facts(facts, cut=True)


def _inspected(run: Run) -> str:
    """What its training was asked to tell of its inside, and where that is seen."""
    schedule = run.config.get("inspect")
    if not isinstance(schedule, str):
        return ""
    return words.bounded(f"{schedule} · {words.command('board', run.path, '--view inside')}")


def _baseline(run: Run) -> str:
    """The run that it was compared with, and how it stood beside that."""
    name = run.manifest.compare_to
    if name is None or (latest := latest_of(logged_comparisons(run))) is None:
        return name or ""
    return f"{latest.standing(name)} at step {latest.step:,}: {latest.figures}"


def _rates(plan: Mapping[str, object]) -> str:
    """Optimizer and rates, as the plan says; nothing of a run without one."""
    optimizer, rates = plan.get("optimizer"), plan.get("rates")
    if not isinstance(optimizer, str) or not isinstance(rates, Mapping):
        return ""
    known = {str(name): float(rate) for name, rate in rates.items() if isinstance(rate, int | float)}
    return words.bounded(" · ".join(rates_words(optimizer, known)))


def _parameters(plan: Mapping[str, object]) -> str:
    """How large the model is, as its plan says; nothing of a run without one."""
    count, embedding = plan.get("parameters"), plan.get("embedding")
    if not isinstance(count, int):
        return ""
    part = f" ({words.compact(embedding)} embedding)" if isinstance(embedding, int) and embedding else ""
    return f"{words.compact(count)}{part}"


def _verdict(gate: object) -> str:
    if not isinstance(gate, dict):
        return ""
    verdict = "reached" if gate.get("passed") else "missed"
    return f"{verdict}: {gate.get('metric')} {gate.get('value')} against {gate.get('threshold')}"


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
    lines = []
    for name in metrics.names():
        if all or not name.startswith("sys/"):
            series = metrics[name]
            latest, best = series.latest or (None, None), series.best or (None, None)
            lines.append((name, *map(words.number, (latest[1], best[1], best[0], len(series)))))
    if lines:
        print()
        print_table(("metric", "last", "best", "at step", "points"), lines, right=(1, 2, 3, 4))


def tail(
    run: RunName = "latest",
    /,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], show_default=True)] = 10,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="--no-follow")] = True,
    all: bool = False,
    runs: RunsFolder = None,
    json: bool = False,
) -> int:
    """Follow a run's events as they are written.

    Args:
        lines: How many events of the past to begin with.
        follow: Go on until the run ends; it does unless told not to.
        all: Show heartbeats and the machine's figures too.
        json: Each event as one line of JSON.
    """
    if lines < 0:
        raise UsageError(f"--lines must be 0 or more, found {lines}")
    followed = RunStore(runs).find(run)
    stream, status = followed.events(), followed.status  # asked before reading: an ended run has no more to say
    for event in stream.last(lines, lambda event: all or event.kind not in _QUIET):
        _print_event(event, json)
    last_look = time.monotonic()

    def ended() -> bool:
        nonlocal last_look, status
        if status in _UNDER_WAY and time.monotonic() - last_look > 0.5:
            last_look, status = time.monotonic(), followed.status
        return status not in _UNDER_WAY

    if follow and status in _UNDER_WAY:
        for batch in stream.follow(ended):
            for event in batch:
                if all or event.kind not in _QUIET:
                    _print_event(event, json)
            if any(event.kind == "run_end" for event in batch):
                status = followed.status
                break
    if not json:
        print(f"{words.bounded(followed.id)} is {paint_status(status)}", flush=True)
    return 0


def _print_event(event: Event, json: bool) -> None:
    if json:
        print(json_line(event.data), flush=True)
        return
    at = paint(f"{words.duration(event.t):>9}", "dim")
    kind, step = event.kind, "" if event.step is None else f"step {event.step}"
    if not counts_as_training(event):  # a token of a text, or a request
        kind, step = event.data["phase"], step.replace("step", "no.")
    text = wrapped(words.bounded(_text(event)), max(20, width() - _EVENT_INDENT - 1), " " * _EVENT_INDENT)
    shown = f"{at}  {words.shorten(words.plain(kind), 100):<10} {step:<10} {text.replace(_UNBROKEN, ' ')}"
    print(shown.rstrip(), flush=True)


def _text(event: Event) -> str:
    data: dict[str, Any] = event.data
    if not counts_as_training(event):
        return _figures((name.removeprefix(f"{data['phase']}/"), words.number(value)) for name, value in rows(event))
    match event.kind:
        case "region_enter" | "region_exit":
            return f"{'→' if event.kind == 'region_enter' else '←'} {data.get('region', '')}"
        case "align" | "mask":
            weight = data.get("wname") or f"layer {data.get('li')} weight {data.get('wi')}"
            figures = _figures((name.rpartition("/")[2], words.number(value)) for name, value in rows(event))
            return "  ".join(filter(None, (str(weight), figures)))
        case "step" | "scalars" | "eval":
            return _figures((name, words.number(value)) for name, value in rows(event))
        case "sample":
            return f"{data.get('prompt', '')}{data.get('text', '')}"
        case "artifact" if (artifact := to_artifact(event, Path())) is not None:
            return "  ".join(filter(None, (artifact.media, artifact.name, describe(artifact))))
        case "run_end":
            names = ("reason", "error", "final_step", "final_loss")
            return words.flags(_figures((name, _rounded(data[name])) for name in names if name in data))
    # A digest tells a person nothing; `--json` has it, and `linnet check` compares it.
    own = ("kind", "t", "step", "phase", "schema", *(("sha256",) if event.kind == "checkpoint" else ()))
    return _figures((name, _rounded(value)) for name, value in data.items() if name not in own)


def _rounded(value: object) -> object:
    return words.number(value) if isinstance(value, float) else value


def _figures(fields: Iterable[tuple[str, object]]) -> str:
    """Names and values that stay in one line."""
    return "  ".join(f"{name}{_UNBROKEN}{value}" for name, value in fields)


def _pairs(fields: Iterable[tuple[str, object]], between: str) -> str:
    return between.join(f"{name} {value}" for name, value in fields)
