"""The tabs that are read from top to bottom: samples, checkpoints, settings, notes, the log, help, differences."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

from linnet.board.commands import command
from linnet.board.settings import ABSENT, commit, differing, flatten, settings
from linnet.board.terminal.keys import SECTIONS
from linnet.board.terminal.spans import Line, cells, cut, fit, foreign, put, wrap
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.board.words import duration, moment, number, size
from linnet.files import link_target, step_of
from linnet.runs import Manifest
from linnet.runs.folder import WEIGHTS

_SAMPLE_LINES = 24  # of one sample
_VALUE_LINES = 6  # of one setting


def page(board: Board, name: str, lines: list[Line], width: int, height: int, end: bool = False) -> list[Line]:
    """The part of a long page that is scrolled to. `end`: it stays at its end, until somebody scrolls away from it."""
    most = max(0, len(lines) - height)
    at = board.top_line[name] = min(board.scroll.get(name, most if end else 0), most)
    if end and at == most:
        board.scroll.pop(name, None)
    elif name in board.scroll:
        board.scroll[name] = at
    shown = [fit(line, width) for line in lines[at : at + height]]
    if most and shown:
        mark = f" {at + height}/{len(lines)} "
        shown[-1] = [*fit(shown[-1], width - len(mark)), (mark, "dim")]
    return shown + [fit([], width) for _ in range(height - len(shown))]


def samples(board: Board, width: int, height: int) -> list[Line]:
    """What the model wrote, the latest first."""
    watched = board.watched
    found = watched.journal.samples() if watched is not None else []
    lines: list[Line] = []
    for sample in reversed(found):
        step = f"step {number(sample.step)}" if sample.step is not None else ""
        lines.append([(" ", ""), (step, "title"), (f"  {duration(sample.t)}", "dim")])
        prompt = wrap(sample.prompt, max(8, width - 4), _SAMPLE_LINES)
        text = wrap(sample.prompt + sample.text, max(8, width - 4), _SAMPLE_LINES)
        for at, line in enumerate(text):
            lines.append([("  ", ""), *_prompt_first(line, prompt, at)])
        lines.append([])
    return page(board, "samples", lines or _nothing("the run has written no samples (yet)"), width, height)


def _prompt_first(line: str, prompt: list[str], at: int) -> Line:
    if at < len(prompt) - 1 or (at == len(prompt) - 1 and line == prompt[at]):
        return [(line, "prompt")]
    if at == len(prompt) - 1 and line.startswith(prompt[at]):
        return [(prompt[at], "prompt"), (line[len(prompt[at]) :], "")]
    return [(line, "")]


def checkpoints(board: Board, width: int, height: int) -> list[Line]:
    """The checkpoints there are, with the commands that run the latest."""
    watched = board.watched
    files = watched.run.checkpoints() if watched is not None and not watched.gone else []
    if watched is None or not files:
        return page(board, "checkpoints", _nothing("no checkpoints (yet)"), width, height)
    named = {link_target(watched.run.path / WEIGHTS / name): name for name in ("latest", "best")}
    head = [("step", 8), ("size", 9), ("loss", 9), ("validation", 10)]
    lines: list[Line] = [[(put(name, wide, right=True) + "  ", "head") for name, wide in head] + [("file", "head")]]
    for file in reversed(files):
        told = watched.journal.checkpoint(f"{WEIGHTS}/{file.name}")
        step = step_of(file) or 0
        loss = _loss(watched, "loss", step, told.get("train_loss"))
        held_out = _loss(watched, "validation/loss", step, told.get("validation_loss"))
        line: Line = [(put(number(step), 8, True), ""), ("  ", ""), (put(_bytes(file), 9, True), "")]
        line += [("  ", ""), (put(loss, 9, True), ""), ("  ", ""), (put(held_out, 10, True), "")]
        line += [("  ", ""), (f"{WEIGHTS}/{file.name}", "dim")]
        if isinstance(told.get("loss"), int | float) and "validation_loss" not in told:  # which loss, it did not say
            line += [("  ", ""), (f"written with loss {number(told['loss'])}", "dim")]
        if name := named.get(file.name):
            line += [("  ", ""), (name, "notice")]
        lines.append(line)
    newest = step_of(files[-1]) or 0
    lines += [[], [(" to run one", "group")]]
    kind = _model_kind(files[-1])
    if kind == "images":
        lines += [[("   ", ""), (command("classify", watched.run.path, "IMAGE…", checkpoint=newest), "code")]]
    elif kind == "token ids":
        lines += [[("   ", ""), ("there is no tokenizer inside: it runs on token ids alone", "dim")]]
        lines += [[("   ", ""), (command("eval", watched.run.path, "--corpus IDS", checkpoint=newest), "code")]]
    else:
        lines += [[("   ", ""), (command("generate", watched.run.path, '--prompt "…"', checkpoint=newest), "code")]]
        lines += [[("   ", ""), (f'llama-cli -m {foreign(shlex.quote(str(files[-1])))} -p "…"', "code")]]
    return page(board, "checkpoints", lines, width, height)


def _model_kind(path: Path) -> str:
    """What a checkpoint takes: "text", "token ids" where it has no tokenizer, or "images"."""
    try:
        about = path.stat()
    except OSError:
        return "text"
    return _model_kind_of(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=16)
def _model_kind_of(path: Path, changed_ns: int, n_bytes: int) -> str:
    from linnet.architectures import task_of
    from linnet.gguf.errors import GGUFError
    from linnet.gguf.file import GGUFFile

    try:
        with GGUFFile.open(path) as file:
            if task_of(file.architecture) == "images":
                return "images"
            tokenizer = file.metadata.get("tokenizer.ggml.model", "none")
            return "token ids" if tokenizer in ("none", "no_vocab") else "text"
    except GGUFError:  # what is wrong with it is said by the command that runs it
        return "text"


def _bytes(file: Path) -> str:
    try:
        return size(file.stat().st_size)
    except OSError:
        return "gone"


def _loss(watched: WatchedRun, metric: str, step: int, told: object) -> str:
    """What the run had logged by that step, else what it said when it wrote the checkpoint."""
    curve = watched.history.curve(metric)
    at = int(curve.step.searchsorted(step, "right")) - 1 if curve is not None else -1
    if curve is not None and at >= 0 and (curve.exact or curve.step[at] == step):
        return number(float(curve.mean[at]))
    return number(float(told)) if isinstance(told, int | float) else "–"


def config(board: Board, width: int, height: int) -> list[Line]:
    """What was set, and where the run comes from."""
    watched = board.watched
    if watched is None:
        return page(board, "config", _nothing("no run is open"), width, height)
    manifest = watched.summary.manifest
    lines: list[Line] = []
    for title, fields in _rooms(watched, manifest).items():
        if fields:
            lines += [[(f" {title}", "group")], *_pairs(fields, width), []]
    return page(board, "config", lines or _nothing("the run tells nothing of its settings"), width, height)


def _rooms(watched: WatchedRun, manifest: Manifest) -> dict[str, dict[str, object]]:
    provenance = {name: value for name, value in manifest.provenance.items() if name not in ("git", "command")}
    command = manifest.provenance.get("command")
    words = " ".join(str(word) for word in command) if isinstance(command, list) else command
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
    ended: dict[str, Any] = watched.summary.end or {}
    return {
        "run": {name: value for name, value in about.items() if value not in (None, "")},
        "end": flatten({k: v for k, v in ended.items() if k not in ("kind", "type", "t", "phase")}),
        "config": flatten(manifest.config),
        "model": flatten(manifest.model),
        "goals": dict(manifest.goals),
        "provenance": {"command": words, "git": commit(manifest, branch=True), **flatten(provenance)},
    }


def _pairs(fields: dict[str, object], width: int) -> list[Line]:
    wide = min(max((cells(foreign(name)) for name in fields), default=0), 28, width // 3)
    lines: list[Line] = []
    for name, value in fields.items():
        if value in (None, ""):
            continue
        first, *rest = wrap(_said(value), max(8, width - wide - 5), _VALUE_LINES) or [""]
        lines.append([("   ", ""), (put(foreign(name), wide), "dim"), ("  ", ""), (first, "")])
        lines += [[(" " * (wide + 5), ""), (line, "")] for line in rest]
    return lines


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value[:200])
    return str(value)


def notes(board: Board, width: int, height: int) -> list[Line]:
    """What people remarked."""
    watched = board.watched
    lines: list[Line] = []
    for note in watched.journal.notes() if watched is not None else []:
        when = note.at.replace("T", " ").removesuffix("Z") or duration(note.t)
        step = f"  step {number(note.step)}" if note.step is not None else ""
        lines.append([(" ", ""), (foreign(when, 40), "dim"), (step, "dim")])
        lines += [[("   ", ""), (line, "")] for line in wrap(note.text, max(8, width - 5), 50)]
        lines.append([])
    lines = lines or _nothing("no notes; press n to write one")
    return page(board, "notes", lines, width, height, end=True)


def log(board: Board, width: int, height: int) -> list[Line]:
    """Turns, warnings and damaged lines."""
    watched = board.watched
    lines: list[Line] = []
    if watched is None:
        return page(board, "log", _nothing("no run is open"), width, height)
    for remark in watched.journal.remarks():
        look = "" if remark.weight == "info" else remark.weight
        sign = {"info": " ", "warning": "!", "error": "✗"}[remark.weight]
        at = duration(remark.t) if remark.t else ""
        step = f"step {number(remark.step)}" if remark.step is not None else ""
        line: Line = [(f" {sign} ", look), (put(at, 11, True), "dim"), ("  ", ""), (put(step, 13), "dim")]
        room = max(8, width - 30)
        first, *rest = wrap(remark.text, room, 4) or [""]
        lines.append([*line, (first, look)])
        lines += [[(" " * 29, ""), (more, look)] for more in rest]
    missing = watched.history.damaged - watched.journal.damaged
    if missing > 0 and watched.history.caught_up:
        text = f"{watched.history.damaged:,} damaged lines in all; {command('check', watched.run.path)} names them"
        lines.append([(" ! ", "warning"), (text, "warning")])
    return page(board, "log", lines or _nothing("nothing was said"), width, height, end=True)


def differences(board: Board, width: int, height: int) -> list[Line]:
    """What was set differently in the marked runs, or in those that are shown."""
    rows = board.marked() if board.view == "runs" else []
    found = [(row.summary.run_id, row.summary.manifest) for row in rows]
    found = found or [(watched.id, watched.summary.manifest) for watched in board.watched_runs]
    lines: list[Line] = [[(" what was set differently", "group")], []]
    if len(found) < 2:
        text = "mark two runs or more with space in the runs tab, or open several"
        return page(board, "differences", [*lines, [(f"   {text}", "dim")]], width, height)
    each = [settings(manifest) for _, manifest in found]
    names = differing(each)
    if not names:
        lines.append([("   the settings are the same", "dim")])
    wide = min(max((cells(foreign(name)) for name in names), default=8), 32, width // 3)
    room = max(8, (width - wide - 4) // len(found) - 2)
    head: Line = [("   ", ""), (put("", wide), "")]
    for index, (run, manifest) in enumerate(found):
        head += [("  ", ""), (put(cut(foreign(manifest.name or run), room), room), f"run{index % 8}")]
    lines.append(head)
    for name in names:
        line: Line = [("   ", ""), (put(foreign(name), wide), "dim")]
        for values in each:
            line += [("  ", ""), (put(foreign(values.get(name, ABSENT)), room), "")]
        lines.append(line)
    return page(board, "differences", lines, width, height)


def help(board: Board, width: int, height: int) -> list[Line]:
    """Every key."""
    lines: list[Line] = []
    for title, keys in SECTIONS:
        lines.append([(f" {title}", "group")])
        lines += [[("   ", ""), (put(key.shown, 16), "key"), (key.text, "")] for key in keys]
        lines.append([])
    return page(board, "help", lines, width, height)


def _nothing(text: str) -> list[Line]:
    return [[], [(f"   {text}", "dim")]]
