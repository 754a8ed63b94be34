"""`ChartList`: which metrics have a chart, in which order: those pinned, the loss and its held-out loss, the rest."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from linnet.board.preferences import ChartPreferences, PreferenceFile
from linnet.board.terminal.layout import group_of
from linnet.board.watched_run import WatchedRun
from linnet.board.words import number
from linnet.runs.metric_names import main_metrics

_LEAST_ROWS = 3  # of a metric that is said to be constant
_MOST_JUDGED = 200  # metrics that are looked at for that
_JUDGED_AGAIN = 1.0  # seconds


class ChartList:
    """The charts of the board, in groups. `root`: whose choices are remembered; None for nobody's.

    `show_hidden`: hidden metrics and constants have charts too, for as long as somebody looks for them.
    """

    def __init__(self, root: Path | None) -> None:
        self._file = PreferenceFile(root)
        self.show_hidden = False
        self.live_filter: str | None = None  # while it is being typed
        self._constants: dict[str, str] = {}
        self._judged: tuple[object, object, float] = (None, None, 0.0)
        self._varying: tuple[object, set[str]] = (None, set())  # of these runs, what cannot be constant any more

    @property
    def preferences(self) -> ChartPreferences:
        return self._file.preferences

    @property
    def filter(self) -> str:
        """The words that names must have."""
        return self.preferences.filter if self.live_filter is None else self.live_filter

    def groups(self, names: Sequence[str], constants: dict[str, str]) -> dict[str, list[str]]:
        """Names by group, in order: first, without a heading, what matters most and what has no group."""
        chosen = self.preferences
        shown = [name for name in names if self.is_shown(name, constants)]
        known = set(shown)
        first = [name for name in chosen.pinned if name in known]
        first += [name for name in main_metrics(shown) if name not in first]
        ranks = {name: at for at, name in enumerate(chosen.order)}
        others = [name for name in shown if name not in first]
        others.sort(key=lambda name: ranks.get(name, len(ranks)))
        groups: dict[str, list[str]] = {"": first}
        for name in others:
            groups.setdefault(group_of(name), []).append(name)
        alone = [group for group, members in groups.items() if group and len(members) == 1]
        for group in alone:  # a heading and a row for one chart would leave a hole beside it
            groups[""] += groups.pop(group)
        pinned = len([name for name in first if name in chosen.pinned])
        groups[""] = groups[""][:pinned] + sorted(
            groups[""][pinned:], key=lambda name: ranks.get(name, -1 if name in first else len(ranks))
        )
        return {group: members for group, members in groups.items() if members}

    def is_shown(self, name: str, constants: dict[str, str]) -> bool:
        """Does it have a chart?"""
        chosen = self.preferences
        if self.filter and not matches(name, self.filter):
            return False
        if self.show_hidden or name in chosen.pinned:
            return True
        return name not in chosen.hidden and (chosen.constants or bool(self.filter) or name not in constants)

    def hidden(self, names: Sequence[str]) -> list[str]:
        """Of these metrics, those that were hidden and are not shown now."""
        chosen = self.preferences
        return (
            [] if self.show_hidden else [name for name in chosen.hidden if name in names and name not in chosen.pinned]
        )

    def constants(self, watched_runs: Sequence[WatchedRun], names: Sequence[str]) -> dict[str, str]:
        """The metrics that never change, with their values. No result (`loss`, `accuracy`), which would be news."""
        runs = (tuple(names), tuple((watched.id, watched.history.caught_up) for watched in watched_runs))
        rows = tuple(watched.history.last_step for watched in watched_runs)
        now = time.monotonic()
        known_runs, known_rows, judged_at = self._judged
        if runs != known_runs or (rows != known_rows and now - judged_at >= _JUDGED_AGAIN):
            self._judged = runs, rows, now
            self._constants = self._judge(watched_runs, names)
        return self._constants

    def _judge(self, watched_runs: Sequence[WatchedRun], names: Sequence[str]) -> dict[str, str]:
        runs = [watched.id for watched in watched_runs]
        if self._varying[0] != runs:
            self._varying = runs, set()
        varying = self._varying[1]
        main = main_metrics(names)
        values = {
            name: _constant_value(watched_runs, name)
            for name in names[:_MOST_JUDGED]
            if name not in varying and name not in main
        }
        varying |= {name for name, value in values.items() if value is None}
        return {name: value for name, value in values.items() if value}

    def toggle_pin(self, name: str) -> str:
        """Pin a metric behind those that are, or let it go; why that is not remembered, or ''."""
        return self._change(pinned=lambda names: _toggled(names, name))

    def toggle_hidden(self, name: str) -> str:
        if name in self.preferences.pinned:
            self._change(pinned=lambda names: _toggled(names, name))
        return self._change(hidden=lambda names: _toggled(names, name))

    def move(self, name: str, by: int, groups: dict[str, list[str]]) -> str:
        """Move a chart among those of its group; a pinned one among the pinned."""
        pinned = self.preferences.pinned
        if name in pinned:
            return self._change(pinned=lambda names: _moved(names, name, by))
        group = next((members for members in groups.values() if name in members), [])
        free = [member for member in group if member not in pinned]
        order = _moved(free, name, by)
        listed = {*pinned, *free}
        unlisted = [member for members in groups.values() for member in members if member not in listed]
        placed = {*order, *unlisted}
        return self._change(order=lambda names: [*order, *unlisted, *(other for other in names if other not in placed)])

    def set_filter(self, text: str) -> str:
        return self._file.change(lambda chosen: msgspec.structs.replace(chosen, filter=text.strip()))

    def toggle_constants(self) -> str:
        return self._file.change(lambda chosen: msgspec.structs.replace(chosen, constants=not chosen.constants))

    def reset(self) -> str:
        """All charts as without any choice."""
        self.show_hidden = False
        return self._file.change(lambda _: ChartPreferences())

    def _change(self, **changes: object) -> str:
        def changed(chosen: ChartPreferences) -> ChartPreferences:
            fields = {name: change(getattr(chosen, name)) for name, change in changes.items() if callable(change)}
            return msgspec.structs.replace(chosen, **fields)

        return self._file.change(changed)


def matches(name: str, filter_text: str) -> bool:
    """Do all words of a filter occur in a name? A word with a star is a pattern for all of it."""
    name = name.lower()
    return all(
        fnmatch.fnmatchcase(name, word) if "*" in word or "?" in word else word in name
        for word in filter_text.lower().split()
    )


def _constant_value(watched_runs: Sequence[WatchedRun], name: str) -> str | None:
    """The value that a metric has in every row of every run that has it; empty where it is too early to say.

    None where it changes, or is a result.
    """
    values: list[str] = []
    for watched in watched_runs:
        curve = watched.history.curve(name)
        if curve is None or not len(curve):
            continue
        stats = curve.stats
        if curve.goal is not None or (stats.low and stats.high and stats.low[1] != stats.high[1]):
            return None
        if stats.low is None or stats.count < _LEAST_ROWS or stats.empty:
            return ""
        values.append(number(stats.low[1]))
    return " / ".join(dict.fromkeys(values))


def _toggled(names: list[str], name: str) -> list[str]:
    return [other for other in names if other != name] if name in names else [*names, name]


def _moved(names: list[str], name: str, by: int) -> list[str]:
    if name not in names:
        return names
    others = [other for other in names if other != name]
    at = min(max(names.index(name) + by, 0), len(others))
    return [*others[:at], name, *others[at:]]
