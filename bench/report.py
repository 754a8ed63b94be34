"""What a benchmark found: a table, the figures to reach, and whether they were reached.

A report prints itself as Markdown, which is what the terminal shows and what RESULTS.md keeps.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import machine
import peers

Cell = str | float | int | None


@dataclass
class Check:
    """One figure to reach."""

    what: str
    measured: float | None
    limit: float
    unit: str
    at_least: bool

    @property
    def reached(self) -> bool:
        """Whether the figure was measured and is on the right side of its limit."""
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


@dataclass
class Report:
    """The result of one script. `columns` maps each title to the format of its numbers."""

    name: str
    claim: str
    columns: dict[str, str]
    rows: list[list[Cell]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    peer_versions: dict[str, str] = field(default_factory=dict)

    def row(self, *cells: Cell) -> None:
        """Add a line to the table and show it at once: some take a minute to measure."""
        assert len(cells) == len(self.columns), (self.columns, cells)
        self.rows.append(list(cells))
        shown = zip(self.columns, self._texts(self.rows[-1]), strict=True)
        print("  " + "  ".join(f"{title} {text}" for title, text in shown), file=sys.stderr, flush=True)

    def at_most(self, what: str, measured: float | None, limit: float, unit: str) -> None:
        """A figure that must not be above its limit."""
        self.checks.append(Check(what, measured, limit, unit, at_least=False))

    def at_least(self, what: str, measured: float | None, limit: float, unit: str) -> None:
        """A figure that must not be below its limit."""
        self.checks.append(Check(what, measured, limit, unit, at_least=True))

    def note(self, text: str) -> None:
        """A sentence below the tables."""
        self.notes.append(text)

    @contextmanager
    def peer(self, name: str) -> Iterator[Path | None]:
        """The peer's interpreter, or None, with a note, where it cannot be installed."""
        try:
            python = peers.python_of(name)
        except peers.PeerMissingError as error:
            self.note(str(error))
            yield None
            return
        self.peer_versions[name] = peers.VERSIONS[name]
        yield python

    @property
    def reached(self) -> bool:
        """Whether every figure was reached."""
        return all(check.reached for check in self.checks)

    def record(self) -> dict[str, object]:
        """Everything as plain data, with the machine, the versions and the time."""
        checks = [asdict(check) | {"reached": check.reached} for check in self.checks]
        return {
            "name": self.name,
            "reached": self.reached,
            "claim": self.claim,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine.describe(),
            "versions": _versions() | self.peer_versions,
            "columns": list(self.columns),
            "rows": self.rows,
            "checks": checks,
            "notes": self.notes,
            "disturbed": self.disturbed,
            "markdown": self.markdown(),
        }

    def append_json(self, path: Path) -> None:
        """Append the record to `path` as one line of JSON."""
        with path.open("a") as file:
            file.write(json.dumps(self.record()) + "\n")

    def markdown(self) -> str:
        """The whole section, without its heading."""
        versions = ", ".join(f"{name} {version}" for name, version in (_versions() | self.peer_versions).items())
        parts = [
            self.claim,
            f"{datetime.now(UTC):%Y-%m-%d} · {machine.describe()} · {versions}",
            _table(list(self.columns), [self._texts(row) for row in self.rows]),
        ]
        if self.checks:
            parts.append(_table(["figure", "measured", "to reach", ""], [_check_texts(check) for check in self.checks]))
        parts += [f"- {note}" for note in self.notes]
        if self.disturbed:
            names = ", ".join(dict.fromkeys(self.disturbed))
            parts.append(f"- **Disturbed**: other processes used more than half a core while measuring: {names}.")
        lines = "\n\n".join(parts).splitlines()
        # Notes form one list: no blank line between two of them.
        kept = [
            line
            for i, line in enumerate(lines)
            if line or not (lines[i - 1].startswith("- ") and lines[i + 1].startswith("- "))
        ]
        return "\n".join(kept) + "\n"

    def _texts(self, row: list[Cell]) -> list[str]:
        formats = self.columns.values()
        return [_text(cell, shape) for cell, shape in zip(row, formats, strict=True)]


def _text(cell: Cell, shape: str) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else format(cell, shape)


def _check_texts(check: Check) -> list[str]:
    if check.measured is None:
        return [check.what, "not measured", _target(check), "NOT REACHED"]
    text = f"{check.measured:.4g}" if abs(check.measured) < 1000 else f"{check.measured:.0f}"
    return [check.what, f"{text} {check.unit}", _target(check), "reached" if check.reached else "NOT REACHED"]


def _target(check: Check) -> str:
    return f"at {'least' if check.at_least else 'most'} {check.limit:g} {check.unit}"


def _table(head: list[str], body: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]

    def line(cells: list[str]) -> str:
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(head), line(rule), *map(line, body)])


def _versions() -> dict[str, str]:
    found = {}
    for name in ("linnet", "msgspec", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    if shutil.which("git") is None:
        return found
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    if commit.returncode == 0:
        found["linnet"] += f" ({commit.stdout.strip()})"
    return found
