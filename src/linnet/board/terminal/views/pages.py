"""The tabs that are read from top to bottom: samples, checkpoints, settings, notes, the log, help, differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from linnet.board.checkpoint_kind import checkpoint_commands, model_kind
from linnet.board.terminal.keys import SECTIONS
from linnet.board.terminal.spans import Line, cells, cut, fill, fit, pad, safe, wrap
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.board.words import command, duration, moment, number, size
from linnet.files import link_target, step_of
from linnet.runs import Run
from linnet.runs.folder import WEIGHTS
from linnet.runs.settings import ABSENT, commit, differing, flatten, settings

_SAMPLE_LINES = 24  # of one sample
_VALUE_LINES = 6  # of one setting


def draw(board: Board, width: int, height: int) -> list[Line]:
    """The part of a long page that is scrolled to. Notes and log stay at their end, until somebody scrolls away."""
    name = board.overlay or board.view
    lines = _PAGES[name](board, width)
    most = max(0, len(lines) - height)
    end = name in ("notes", "log")
    at = board.top_line[name] = min(board.scroll.get(name, most if end else 0), most)
    if end and at == most:
        board.scroll.pop(name, None)
    elif name in board.scroll:
        board.scroll[name] = at
    shown = fill(lines[at:], width, height)
    if most and shown:
        mark = f" {at + height}/{len(lines)} "
        shown[-1] = [*fit(shown[-1], width - len(mark)), (mark, "dim")]
    return shown


def _message(text: str) -> list[Line]:
    return [[], [(f"   {text}", "dim")]]


def _samples(board: Board, width: int) -> list[Line]:
    lines: list[Line] = []
    for sample in reversed(board.watched.journal.samples() if board.watched is not None else []):
        step = f"step {number(sample.step)}" if sample.step is not None else ""
        lines.append([(" ", ""), (step, "title"), (f"  {duration(sample.t)}", "dim")])
        prompt = wrap(sample.prompt, max(8, width - 4), _SAMPLE_LINES)
        for at, line in enumerate(wrap(sample.prompt + sample.text, max(8, width - 4), _SAMPLE_LINES)):
            lines.append([("  ", ""), *_prompt_first(line, prompt, at)])
        lines.append([])
    return lines or _message("the run has written no samples (yet)")


def _prompt_first(line: str, prompt: list[str], at: int) -> Line:
    if at < len(prompt) - 1 or (at == len(prompt) - 1 and line == prompt[at]):
        return [(line, "prompt")]
    if at == len(prompt) - 1 and line.startswith(prompt[at]):
        return [(prompt[at], "prompt"), (line[len(prompt[at]) :], "")]
    return [(line, "")]


def _checkpoints(board: Board, width: int) -> list[Line]:
    """The checkpoints there are, with the commands that run the latest."""
    watched = board.watched
    files = watched.run.checkpoints() if watched is not None and not watched.gone else []
    if watched is None or not files:
        return _message("no checkpoints (yet)")
    links = {link_target(watched.run.path / WEIGHTS / name): name for name in ("latest", "best")}
    columns = {"step": 8, "size": 9, "loss": 9, "validation": 10}
    lines: list[Line] = [[(pad(name, wide, right=True) + "  ", "head") for name, wide in columns.items()]]
    lines[0].append(("file", "head"))
    for file in reversed(files):
        event, step = watched.journal.checkpoint(f"{WEIGHTS}/{file.name}"), step_of(file) or 0
        loss = _loss(watched, "loss", step, event.get("train_loss"))
        held_out = _loss(watched, "validation/loss", step, event.get("validation_loss"))
        lines.append([])
        for text, wide in zip((number(step), _file_size(file), loss, held_out), columns.values(), strict=True):
            lines[-1] += [(pad(text, wide, right=True), ""), ("  ", "")]
        lines[-1] += [(f"{WEIGHTS}/{file.name}", "dim")]
        if isinstance(event.get("loss"), int | float) and "validation_loss" not in event:  # it did not say which loss
            lines[-1] += [("  ", ""), (f"written with loss {number(event['loss'])}", "dim")]
        if name := links.get(file.name):
            lines[-1] += [("  ", ""), (name, "notice")]
    lines += [[], [(" to run one", "group")]]
    lines += [[("   ", ""), span] for span in _ways_to_run(watched.run, files[-1])]
    return lines


def _ways_to_run(run: Run, newest: Path) -> Line:
    """A line each for what can be done with a checkpoint."""
    commands: Line = [(safe(text), "code") for text in checkpoint_commands(run, newest)]
    if model_kind(newest) == "token ids":
        return [("there is no tokenizer inside: it runs on token ids alone", "dim"), *commands]
    return commands


def _file_size(file: Path) -> str:
    try:
        return size(file.stat().st_size)
    except OSError:
        return "gone"


def _loss(watched: WatchedRun, metric: str, step: int, written: object) -> str:
    """What the run had logged by that step, else what it said when it wrote the checkpoint."""
    curve = watched.history.curve(metric)
    at = int(curve.step.searchsorted(step, "right")) - 1 if curve is not None else -1
    if curve is not None and at >= 0 and (curve.exact or curve.step[at] == step):
        return number(float(curve.mean[at]))
    return number(float(written)) if isinstance(written, int | float) else "–"


def _config(board: Board, width: int) -> list[Line]:
    """What was set, and where the run comes from."""
    if board.watched is None:
        return _message("no run is open")
    lines: list[Line] = []
    for title, fields in _sections(board.watched).items():
        if fields:
            lines += [[(f" {title}", "group")], *_pairs(fields, width), []]
    return lines or _message("the run tells nothing of its settings")


def _sections(watched: WatchedRun) -> dict[str, dict[str, object]]:
    manifest, end = watched.summary.manifest, watched.summary.end or {}
    provenance = {name: value for name, value in manifest.provenance.items() if name not in ("git", "command")}
    words = manifest.provenance.get("command")
    about = {
        "name": manifest.name,
        "recipe": manifest.recipe,
        "experiment": manifest.experiment,
        "group": manifest.group,
        "parent": manifest.parent,
        "tags": " ".join(manifest.tags),
        "started": moment(manifest.created_at),
        "total steps": manifest.total_steps,
        "total epochs": manifest.total_epochs,
        "written by": manifest.dialect,
        "folder": watched.run.path,
    }
    return {
        "run": {name: value for name, value in about.items() if value not in (None, "")},
        "end": flatten({name: value for name, value in end.items() if name not in ("kind", "type", "t", "phase")}),
        "config": flatten(manifest.config),
        "model": flatten(manifest.model),
        "goals": dict(manifest.goals),
        "provenance": {
            "command": " ".join(map(str, words)) if isinstance(words, list) else words,
            "git": commit(manifest, branch=True),
            **flatten(provenance),
        },
    }


def _pairs(fields: dict[str, object], width: int) -> list[Line]:
    wide = min(max((cells(safe(name)) for name in fields), default=0), 28, width // 3)
    lines: list[Line] = []
    for name, value in fields.items():
        if value in (None, ""):
            continue
        text = ", ".join(map(str, value[:200])) if isinstance(value, list) else str(value)
        first, *rest = wrap(text, max(8, width - wide - 5), _VALUE_LINES) or [""]
        lines.append([("   ", ""), (pad(safe(name), wide), "dim"), ("  ", ""), (first, "")])
        lines += [[(" " * (wide + 5), ""), (line, "")] for line in rest]
    return lines


def _notes(board: Board, width: int) -> list[Line]:
    lines: list[Line] = []
    for note in board.watched.journal.notes() if board.watched is not None else []:
        when = note.at.replace("T", " ").removesuffix("Z") or duration(note.t)
        step = f"  step {number(note.step)}" if note.step is not None else ""
        lines.append([(" ", ""), (safe(when, 40), "dim"), (step, "dim")])
        lines += [[("   ", ""), (line, "")] for line in wrap(note.text, max(8, width - 5), 50)]
        lines.append([])
    return lines or _message("no notes; press n to write one")


def _log(board: Board, width: int) -> list[Line]:
    watched = board.watched
    if watched is None:
        return _message("no run is open")
    lines: list[Line] = []
    for entry in watched.journal.log_entries():
        style = "" if entry.level == "info" else entry.level
        sign = {"info": " ", "warning": "!", "error": "✗"}[entry.level]
        t = duration(entry.t) if entry.t else ""
        step = f"step {number(entry.step)}" if entry.step is not None else ""
        first, *rest = wrap(entry.text, max(8, width - 30), 4) or [""]
        lines.append(
            [(f" {sign} ", style), (pad(t, 11, True), "dim"), ("  ", ""), (pad(step, 13), "dim"), (first, style)]
        )
        lines += [[(" " * 29, ""), (line, style)] for line in rest]
    if watched.history.damaged > watched.journal.damaged and watched.history.caught_up:
        text = f"{watched.history.damaged:,} damaged lines in all; {command('check', watched.run.path)} names them"
        lines.append([(" ! ", "warning"), (text, "warning")])
    return lines or _message("nothing was said")


def _differences(board: Board, width: int) -> list[Line]:
    """What was set differently in the marked runs, or in those that are shown."""
    rows = board.marked() if board.view == "runs" else []
    summaries = [row.summary for row in rows] or [watched.summary for watched in board.watched_runs]
    lines: list[Line] = [[(" what was set differently", "group")], []]
    if len(summaries) < 2:
        text = "mark two runs or more with space in the runs tab, or open several"
        return [*lines, [(f"   {text}", "dim")]]
    by_run = [settings(summary.manifest) for summary in summaries]
    names = differing(by_run)
    if not names:
        lines.append([("   the settings are the same", "dim")])
    wide = min(max((cells(safe(name)) for name in names), default=8), 32, width // 3)
    room = max(8, (width - wide - 4) // len(summaries) - 2)
    lines.append([("   ", ""), (pad("", wide), "")])
    for index, summary in enumerate(summaries):
        title = cut(safe(summary.manifest.name or summary.run_id), room)
        lines[-1] += [("  ", ""), (pad(title, room), f"run{index % 8}")]
    for name in names:
        lines.append([("   ", ""), (pad(safe(name), wide), "dim")])
        for values in by_run:
            lines[-1] += [("  ", ""), (pad(safe(values.get(name, ABSENT)), room), "")]
    return lines


def _help(board: Board, width: int) -> list[Line]:
    lines: list[Line] = []
    for title, keys in SECTIONS.items():
        lines.append([(f" {title}", "group")])
        lines += [[("   ", ""), (pad(key.shown, 16), "key"), (key.text, "")] for key in keys]
        lines.append([])
    return lines


_PAGES: dict[str, Callable[[Board, int], list[Line]]] = {
    "samples": _samples,
    "checkpoints": _checkpoints,
    "config": _config,
    "notes": _notes,
    "log": _log,
    "differences": _differences,
    "help": _help,
}
