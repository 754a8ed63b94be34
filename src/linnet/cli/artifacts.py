"""What a run has besides numbers, for `linnet show`: its artifacts, checkpoints, samples and notes; and one of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet import files
from linnet.board import words
from linnet.board.gallery import describe, find_artifact, series_of
from linnet.cli.printing import paint, print_facts, print_table, width
from linnet.cli.streams import complain
from linnet.errors import LinnetError, UsageError
from linnet.files import link_target, step_of
from linnet.runs.artifacts import Artifact, ArtifactList
from linnet.runs.folder import WEIGHTS, safe_name
from linnet.runs.scan import events_of_kinds

if TYPE_CHECKING:
    from linnet.runs import Event, Run

_MOST_SERIES = 20  # names of artifacts that are listed without --all
_MOST_SAID = 3  # notes and samples, of each the latest
_NOTE = 240  # characters of a note
_HEIGHT = 30  # lines of a drawing
_STYLES = {"head": "bold", "graph": "cyan", "axis": "dim", "dim": "dim", "warning": "yellow"}


class LoggedArtifacts:
    """What a stream and its folder tell besides numbers, read once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._artifacts = ArtifactList(run.path)
        self._events: dict[str, list[Event]] = {"sample": [], "note": [], "checkpoint": []}
        for event in events_of_kinds(run.events_path, ("artifact", "resume", *self._events), run.origin):
            if event.kind in ("artifact", "resume"):
                self._artifacts.take(event)
            else:
                self._events[event.kind].append(event)

    def as_json(self) -> dict[str, Any]:
        """Lists for other programs."""
        texts = {"samples": ("sample", ("prompt", "text")), "notes": ("note", ("text", "at"))}
        return {
            "artifacts": [artifact_fields(artifact) for artifact in self._artifacts],
            "checkpoints": [
                {"step": step_of(path), "path": str(path), "bytes": _size(path)} for path in self._run.checkpoints()
            ],
            **{
                name: [
                    {"step": event.step, "t": event.t, **{field: event.data.get(field) for field in fields}}
                    for event in self._events[kind]
                ]
                for name, (kind, fields) in texts.items()
            },
        }

    def print(self, all: bool) -> None:
        """Tables and lines for people; the latest of what is much, and a count."""
        self._print_artifacts(all)
        facts = {
            "checkpoints": self._checkpoints(),
            **{f"sample{_at(event)}": _sample(event) for event in self._events["sample"][-_MOST_SAID:]},
        }
        if any(facts.values()):
            print()
            print_facts(facts, cut=True)
        notes = [event for event in self._events["note"] if isinstance(event.data.get("text"), str)]
        if notes:
            print()
        for event in notes if all else notes[-_MOST_SAID:]:
            text = event.data["text"]
            print_facts({f"note{_at(event)}": text if all else words.shorten(text, _NOTE)})
        if len(notes) > _MOST_SAID and not all:
            print(paint(f"  {len(notes) - _MOST_SAID} earlier notes: --all", "dim"))

    def _print_artifacts(self, all: bool) -> None:
        series = series_of(self._artifacts)
        shown = series if all else series[:_MOST_SERIES]
        rows = [
            (
                entry.name[:60],
                entry.media,
                words.number(len(entry.artifacts)),
                entry.steps,
                describe(entry.artifacts[-1]),
            )
            for entry in shown
        ]
        if rows:
            print()
            print_table(("artifact", "kind", "files", "steps", "the last"), rows, right=(2,))
            if len(series) > len(shown):
                print(paint(f"{len(series) - len(shown)} more names: --all", "dim"))

    def _checkpoints(self) -> str:
        checkpoints = self._run.checkpoints()
        if not checkpoints:
            return ""
        links = {name: link_target(self._run.path / WEIGHTS / name) for name in ("latest", "best")}
        named = [f"{name} {step_of(Path(target))}" for name, target in links.items() if target]
        steps = [words.number(step_of(path)) for path in checkpoints]
        listed = ", ".join(steps) if len(steps) <= 6 else f"{', '.join(steps[:2])} … {', '.join(steps[-3:])}"
        total = words.size(sum(_size(path) or 0 for path in checkpoints))
        return f"{len(steps)} ({total}) of steps {listed}" + (f"; {', '.join(named)}" if named else "")


def _at(event: Event) -> str:
    return f" {event.step}" if event.step is not None else ""


def _sample(event: Event) -> str:
    return " ".join(f"{event.data.get('prompt') or ''}{event.data.get('text') or ''}".split())


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def artifact_fields(artifact: Artifact) -> dict[str, Any]:
    """An artifact for other programs."""
    names = ("name", "media", "step", "t", "mime", "sha256")
    facts = {"path": str(artifact.path), "bytes": artifact.size, **artifact.fields}
    return {**{name: getattr(artifact, name) for name in names}, **facts}


def choose_artifact(run: Run, reference: str) -> Artifact:
    """The artifact that `NAME` or `NAME@STEP` means."""
    artifacts = run.artifacts()
    if not artifacts:
        raise UsageError(f"run {words.bounded(run.id)} has logged no artifacts")
    return find_artifact(artifacts, reference)


def print_artifact(artifact: Artifact) -> None:
    """What an artifact is, and a drawing of it; an image in the terminal's own graphics where it has such."""
    facts = {
        "kind": artifact.media,
        "step": "" if artifact.step is None else words.number(artifact.step),
        "caption": artifact.fields.get("caption"),
        "content": describe(artifact),
        "file": artifact.path,
    }
    print(paint(words.bounded(artifact.name), "bold"))
    print_facts(facts)  # a path is whole, to be copied
    if problem := artifact.problem():
        raise LinnetError(f"{artifact.path} {problem}")
    print()
    _draw(artifact)


def _draw(artifact: Artifact) -> None:
    from linnet.board.terminal.artifact_lines import artifact_lines
    from linnet.board.terminal.spans import text_of

    columns = min(width(), 200)
    colored = words.is_coloured()
    if artifact.media == "image" and colored and _draw_in_graphics(artifact, columns):
        return
    if artifact.media == "text" and not colored:
        print("\n".join(words.plain(line) for line in artifact.load().splitlines()))
        return
    lines = artifact_lines(
        artifact, min(columns, 100) if artifact.media != "table" else columns, _HEIGHT, color=colored
    )
    print("\n".join("".join(map(_painted, line)) for line in lines) if colored else text_of(lines))


def _painted(span: tuple[str, str]) -> str:
    """A piece of a drawing on a terminal that keeps its own ground."""
    text, style = span
    if not style.startswith("pixel."):
        return paint(text, _STYLES[style]) if style in _STYLES else text
    from rich.color import ColorSystem

    from linnet.board.terminal.palette import style_of

    return style_of(style, "dark").render(text, color_system=ColorSystem.TRUECOLOR)


def _draw_in_graphics(artifact: Artifact, columns: int) -> bool:
    from linnet.board.terminal import full_screen, graphics

    terminal = full_screen.terminal_of_process()
    if terminal is None:
        return False
    with terminal:
        protocol = graphics.choose_protocol(terminal.ask)
    if protocol is None:
        return False
    _, lines, *cell = terminal.size()
    sys.stdout.flush()
    drawn = full_screen.in_graphics(protocol, artifact, columns, min(_HEIGHT, lines - 4), (cell[0], cell[1]))
    sys.stdout.buffer.write(drawn + b"\n")
    sys.stdout.flush()
    return True


def write_artifact(artifact: Artifact, out: str) -> None:
    """Copy an artifact: into a file, a folder, or (`-`) to standard output. A table as CSV where the name ends so."""
    target = Path(out)
    as_csv = artifact.media == "table" and target.suffix.lower() == ".csv" and artifact.path.suffix.lower() != ".csv"
    pieces = [artifact.load().to_csv().encode()] if as_csv else artifact.pieces()
    if problem := artifact.problem():
        complain(f"{artifact.path} {problem}")
    if out == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if files.is_folder(target):
        suffix = artifact.path.suffix
        target /= f"{safe_name(artifact.label.removesuffix(suffix)) or artifact.media}{suffix}"
    with files.StagedFile(target) as file:
        for piece in pieces:
            file.write(piece)
    print(f"{words.plain(words.shown_path(target))}  {words.size(file.written)}")
