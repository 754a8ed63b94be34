"""`.gitignore`: which files of a folder are not meant to be kept, by the rules of git."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from linnet.data.errors import printable

_NAME = ".gitignore"
_NOTHING = re.compile("(?!)")
_LARGEST = 1 << 20  # bytes of such a file that are read
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~",
}


class _Rule(NamedTuple):
    segments: list[re.Pattern[str] | None]  # between slashes; None: `**`, any number of folders
    is_anchored: bool  # held against the path from the file's folder, else against the name alone
    only_folders: bool
    ignores: bool  # False: takes back, `!`

    def fits(self, path: tuple[str, ...]) -> bool:
        """Whether a path fits, in at most segments × folders steps."""
        at = rule_at = 0
        behind_stars = back_to = -1
        while at < len(path):
            segment = self.segments[rule_at] if rule_at < len(self.segments) else _NOTHING
            if segment is None:
                if rule_at == len(self.segments) - 1:
                    return True
                behind_stars, back_to = rule_at + 1, at
                rule_at += 1
            elif segment.fullmatch(path[at]):
                at += 1
                rule_at += 1
            elif behind_stars >= 0:
                back_to += 1
                at, rule_at = back_to, behind_stars
            else:
                return False
        return rule_at == len(self.segments)


class GitIgnore:
    """The rules of a folder and of those below it. What lies above the folder, which was named, does not count.

    `ignored`: what was asked for and is ignored, with the file that says so.
    """

    def __init__(self, folder: Path) -> None:
        self.ignored: dict[str, str] = {}
        self._root = folder
        self._rules: dict[Path, list[_Rule]] = {}

    def ignores(self, path: Path, is_folder: bool = False) -> bool:
        """Whether a path is ignored, whose own folder is not. The innermost file that says anything decides."""
        folder = path.parent
        while True:
            relative = path.relative_to(folder).parts
            for rule in reversed(self._rules_of(folder)):
                if (is_folder or not rule.only_folders) and rule.fits(relative if rule.is_anchored else relative[-1:]):
                    if rule.ignores:
                        name = printable(path.relative_to(self._root)) + ("/" if is_folder else "")
                        self.ignored[name] = printable((folder / _NAME).relative_to(self._root))
                    return rule.ignores
            if folder == self._root:
                return False
            folder = folder.parent

    def _rules_of(self, folder: Path) -> list[_Rule]:
        if folder not in self._rules:
            self._rules[folder] = _read(folder / _NAME)
        return self._rules[folder]


def _read(path: Path) -> list[_Rule]:
    try:
        if path.is_symlink() or not path.is_file():  # git does not follow such a link either
            return []
        with path.open("rb") as file:
            lines = os.fsdecode(file.read(_LARGEST)).removeprefix("\ufeff").split("\n")
    except OSError:
        return []
    return [rule for line in lines if (rule := _rule(line.removesuffix("\r"))) is not None]


def _rule(line: str) -> _Rule | None:
    """A line as a rule; None for a blank one, a comment, and what can match nothing."""
    if line.startswith("#"):
        return None
    line = _without_blanks(line)
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    only_folders = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    segments = pattern.removeprefix("/").split("/")
    try:
        expressions = [None if segment == "**" else re.compile(_expression(segment)) for segment in segments]
    except re.error:
        return None
    return _Rule(expressions, "/" in pattern, only_folders, ignores)


def _without_blanks(line: str) -> str:
    """A line without the blanks at its end, unless a backslash stands before them."""
    end = at = 0
    while at < len(line):
        is_escaped = line[at] == "\\"
        at += 2 if is_escaped else 1
        if is_escaped or line[at - 1] != " ":
            end = at
    return line[:end]


def _expression(segment: str) -> str:
    """A regular expression for a part of a pattern between slashes.

    What stands behind a star is taken where it first fits: if the whole fits at all, it fits so. The group is atomic,
    so that no number of stars makes it slow.
    """
    parts: list[str] = [""]  # between stars
    at, end = 0, len(segment)
    while at < end:
        character = segment[at]
        if character == "*":
            if at == 0 or segment[at - 1] != "*" or parts[-1]:
                parts.append("")
            at += 1
        elif character == "?":
            parts[-1] += "."
            at += 1
        elif character == "[":
            inside, at = _bracket(segment, at)
            parts[-1] += inside
        else:
            if character == "\\":
                at += 1
                if at == end:
                    raise re.error("a backslash at the end")
            parts[-1] += re.escape(segment[at])
            at += 1
    first, *rest = parts
    if not rest:
        return f"(?s:{first})"
    return "(?s:" + first + "".join(f"(?>.*?{part})" for part in rest[:-1]) + f".*{rest[-1]})"


def _bracket(pattern: str, start: int) -> tuple[str, int]:
    """A class such as `[a-z]` or `[!0-9]`, and where it ends; one that is not closed matches nothing."""
    at = start + 1
    negated = at < len(pattern) and pattern[at] in "!^"
    at += negated
    parts: list[str] = []
    is_first = True
    while at < len(pattern) and (is_first or pattern[at] != "]"):
        is_first = False
        if pattern.startswith("[:", at):
            close = pattern.find(":]", at)
            if close < 0 or pattern[at + 2 : close] not in _CLASSES:
                raise re.error("no such class")
            parts.append(_CLASSES[pattern[at + 2 : close]])
            at = close + 2
            continue
        low, at = _one(pattern, at)
        if pattern.startswith("-", at) and at + 1 < len(pattern) and pattern[at + 1] != "]":
            high, at = _one(pattern, at + 1)
            if low <= high:
                parts.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            parts.append(re.escape(low))
    if at >= len(pattern):
        raise re.error("not closed")
    inside = "".join(parts)
    if negated:
        return (f"[^{inside}]" if inside else "."), at + 1
    return (f"[{inside}]" if inside else "(?!)"), at + 1


def _one(pattern: str, at: int) -> tuple[str, int]:
    """A character of a class, which may stand behind a backslash."""
    if pattern[at] == "\\":
        at += 1
        if at == len(pattern):
            raise re.error("not closed")
    return pattern[at], at + 1
