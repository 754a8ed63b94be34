"""`Query`: which runs are meant by `loss<2 and lr>=1e-3 and tag:base`.

A comparison is a column ([columns.py]), an operator and a value: `<` `<=` `>` `>=` compare numbers; `=` `!=` numbers or
words; `:` a word or a pattern (`tag:wide*`); `~` what a text contains. `and`, `or`, `not` and parentheses join them;
comparisons side by side must all hold. `archived` stands by itself. What a run does not have, and NaN, fits no
comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from linnet.errors import UsageError, suggestion
from linnet.runs.columns import DURATIONS, FIELDS, STATISTICS, Column
from linnet.runs.summary import STATUSES

UNREAD: Final = object()  # a value that is not known yet
ValueOf = Callable[[Column], object]

_OPERATORS = ("<=", ">=", "==", "!=", "!~", "<", ">", "=", "~", ":")
_ORDERING = ("<", "<=", ">", ">=")
_NAME = re.compile(r"[^\s()<>=!~:\"'`&|]+")
_VALUE = re.compile(r"[^\s()\"'`]+")
_JOINING = re.compile(r"(?i)(?:(and|or)(?![^\s()\"'`])|(&&?)|(\|\|?))")
_NOT = re.compile(r"(?i)not(?![^\s()])|!(?![=~])")
_NUMBER = re.compile(r"([+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z%]*)")
_UNITS = {"": 1.0, "%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WILD = frozenset("*?[")
_DEEPEST = 50  # parentheses within parentheses


@dataclass(frozen=True)
class Comparison:
    """`loss<2`. `number`: the value as one, where it is; `at`: where in the text the column stands."""

    column: Column
    operator: str
    text: str
    number: float | None
    at: int

    def fits(self, value: object) -> bool:
        """Does a run with this value fit?"""
        if isinstance(value, list | tuple):
            if self.operator in ("!=", "!~"):
                return bool(value) and all(self.fits(item) for item in value)
            return any(self.fits(item) for item in value) or self._fits_text(str(value))
        if value is None or value is UNREAD or (isinstance(value, float) and math.isnan(value)):
            return False
        if isinstance(value, bool) and self.text.lower() in _TRUTH:
            return (value is _TRUTH[self.text.lower()]) != self.operator.startswith("!")
        if isinstance(value, int | float) and self.number is not None and "~" not in self.operator:
            return self._fits_number(value)
        return self._fits_text(str(value))

    def _fits_number(self, value: float) -> bool:
        number = self.number
        assert number is not None
        match self.operator:
            case "<":
                return value < number
            case "<=":
                return value <= number
            case ">":
                return value > number
            case ">=":
                return value >= number
            case "!=":
                return value != number
        return value == number

    def _fits_text(self, value: str) -> bool:
        value, text = value.lower(), self.text.lower()
        match self.operator:
            case ":":
                return value == text or (bool(_WILD & set(text)) and fnmatchcase(value, text))
            case "=" | "==":
                return value == text
            case "!=":
                return value != text
            case "~" | "!~":
                matches = text in value or (bool(_WILD & set(text)) and fnmatchcase(value, f"*{text}*"))
                return matches != (self.operator == "!~")
        return False  # words have no order


@dataclass(frozen=True)
class Word:
    """A word that must occur somewhere in what a run is called; the board's filter has them."""

    text: str


@dataclass(frozen=True)
class Joined:
    """`and`, `or` or `not` of parts."""

    how: str
    parts: tuple[Node, ...]


Node = Comparison | Word | Joined
ARCHIVED = Column("archived")  # what a run is or is not: it needs no operator
NAMED = tuple(Column(name) for name in ("run", "name", "status", "recipe", "experiment", "group", "tags"))


class Query:
    """Which runs are meant, parsed from text.

    `words`: as the board's filter has it. A word by itself is looked for in all that a run is called, and `tag:wi`
    finds a part of one.
    """

    def __init__(self, text: str, *, words: bool = False) -> None:
        self.text = text
        self._node = _Parser(text, words).parse()

    def comparisons(self) -> list[Comparison]:
        """All there are, in order."""
        return list(_comparisons(self._node))

    def fits(self, value_of: ValueOf) -> bool | None:
        """Does a run fit, whose values `value_of` gives? None: that depends on values that are `UNREAD`."""
        return _fits(self._node, value_of)

    def fail(self, comparison: Comparison, problem: str) -> UsageError:
        """An error about one comparison."""
        return _error(self.text, comparison.at, problem)


def _comparisons(node: Node) -> Iterator[Comparison]:
    if isinstance(node, Comparison):
        yield node
    elif isinstance(node, Joined):
        for part in node.parts:
            yield from _comparisons(part)


def _fits(node: Node, value_of: ValueOf) -> bool | None:
    if isinstance(node, Comparison):
        value = value_of(node.column)
        return None if value is UNREAD else node.fits(value)
    if isinstance(node, Word):
        texts = (value_of(column) for column in NAMED)
        return any(node.text.lower() in str(text).lower() for text in texts if text)
    if node.how == "not":
        fits = _fits(node.parts[0], value_of)
        return None if fits is None else not fits
    decided, unknown = node.how == "or", False
    for part in node.parts:
        fits = _fits(part, value_of)
        if fits is decided:
            return decided
        unknown = unknown or fits is None
    return None if unknown else not decided


class _Parser:
    """Recursive descent over the text."""

    def __init__(self, text: str, words: bool) -> None:
        self._text, self._words = text, words
        self._at = self._depth = 0

    def parse(self) -> Node:
        if not self._rest():
            raise UsageError("`where` is empty; it takes comparisons, as in 'loss<2 and tag:base'")
        node = self._either()
        if self._rest():
            raise self._error("unexpected ')'" if self._text[self._at] == ")" else "expected and, or")
        return node

    def _either(self) -> Node:
        parts = [self._all()]
        while self._joining() == "or":
            self._join()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def _all(self) -> Node:
        parts = [self._one()]
        while self._rest() and self._text[self._at] != ")" and self._joining() != "or":
            self._join()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _one(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} parentheses and nots within each other")
        try:
            return self._unguarded()
        finally:
            self._depth -= 1

    def _unguarded(self) -> Node:
        remaining = self._rest()
        if not remaining:
            raise self._error("expected a comparison, as in loss<2")
        if (word := _NOT.match(self._text, self._at)) is not None:
            self._at = word.end()
            return Joined("not", (self._one(),))
        if remaining.startswith("("):
            begin, self._at = self._at, self._at + 1
            node = self._either()
            if not self._rest().startswith(")"):
                raise _error(self._text, begin, "'(' is never closed")
            self._at += 1
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        begin = self._at
        column = self._column()
        after = self._at
        remaining = self._rest()
        operator = next((sign for sign in _OPERATORS if remaining.startswith(sign)), "")
        if not operator:
            word = self._text[begin:after]
            if column == ARCHIVED and not self._words:
                return Comparison(column, "=", "yes", None, begin)
            if self._words:
                return Word(column.name if column == Column(column.name) else word)
            raise _error(self._text, begin, _missing_operator(word, remaining))
        self._at += len(operator)
        text = self._value(operator)
        number = self._number(column, operator, text)
        if self._words and operator == ":" and column.name in FIELDS:
            operator = "~"
        is_status = column == Column("status") and operator in (":", "=", "==") and not _WILD & set(text)
        if is_status and text.lower() not in STATUSES:
            raise self._error(f"status {text!r} does not exist{suggestion(text, STATUSES)}", back=len(text))
        return Comparison(column, operator, text, number, begin)

    def _column(self) -> Column:
        begin = self._at
        if (name := self._quoted()) is not None:
            return self._with_step(name)
        word = _NAME.match(self._text, self._at)
        if word is None:
            raise self._error(f"expected a name, found {self._text[self._at]!r}")
        self._at = word.end()
        if self._text[self._at : self._at + 1] == "(":
            if word[0] not in STATISTICS:
                raise _error(self._text, begin, f"{word[0]}() does not exist{suggestion(word[0], STATISTICS)}")
            self._at += 1
            self._rest()
            inner = self._quoted()
            if inner is None and (name_in := _NAME.match(self._text, self._at)) is not None:
                inner, self._at = name_in[0], name_in.end()
            if not inner or not self._rest().startswith(")"):
                raise self._error(f"expected the name of one metric and ')' after {word[0]}(")
            self._at += 1
            return Column(inner, next(name for name in STATISTICS if name == word[0]))
        return Column.parse(word[0])

    def _with_step(self, name: str) -> Column:
        step = re.compile("@([0-9]{1,18})").match(self._text, self._at)
        if step is None:
            return Column(name)
        self._at = step.end()
        return Column(name, step=int(step[1]))

    def _value(self, operator: str) -> str:
        if not self._rest():
            raise self._error(f"expected a value after {operator!r}")
        if (text := self._quoted()) is not None:
            return text
        word = _VALUE.match(self._text, self._at)
        if word is None or word[0].startswith(("<", ">", "=", "!", "~")):
            raise self._error(f"expected a value after {operator!r}, found {self._text[self._at]!r}")
        self._at = word.end()
        return word[0]

    def _number(self, column: Column, operator: str, text: str) -> float | None:
        plain = not column.is_metric
        if plain and column.name == "created":
            if operator not in _ORDERING:
                raise self._error(f"created takes {' '.join(_ORDERING)}, found {operator!r}", back=len(text))
            number, expected = _moment(text), "a date, as in 2026-05-31 or 2026-05-31T12:00"
        elif plain and column.name in DURATIONS:
            number, expected = _figure(text, _SECONDS), "a time, as in 90s, 15m, 2h or 3d"
        else:
            number, expected = _figure(text, _UNITS), "a number, as in 0.5, 1e-3 or 2M"
        if number is None and operator in _ORDERING:
            raise self._error(f"expected {expected} after {operator!r}, found {text!r}", back=len(text))
        return number

    def _quoted(self) -> str | None:
        quote = self._text[self._at : self._at + 1]
        if quote not in ('"', "'", "`") or not quote:
            return None
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise self._error(f"the quote {quote} is never closed")
        text, self._at = self._text[self._at + 1 : end], end + 1
        return text

    def _joining(self) -> str:
        """The word that comes next, if it joins."""
        word = _JOINING.match(self._text, self._skip())
        return "" if word is None else "or" if word[3] or (word[1] or "").lower() == "or" else "and"

    def _join(self) -> None:
        if (word := _JOINING.match(self._text, self._skip())) is not None:
            self._at = word.end()

    def _skip(self) -> int:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _rest(self) -> str:
        return self._text[self._skip() :]

    def _error(self, problem: str, back: int = 0) -> UsageError:
        return _error(self._text, self._at - back, problem)


def _missing_operator(word: str, remaining: str) -> str:
    if word.lower() in ("and", "or"):
        return f"expected a comparison, found {word!r}"
    following = re.match(r"[^\s()]*", remaining)
    found = f", found {following[0]!r}" if following and following[0] else ""
    if following and following[0].lower() == "in":
        return f"`in` is no operator; one of several values is {word}=1 or {word}=2"
    compares = re.match(r"[^\s()]*[<>=!~:(]", remaining) is not None
    advice = suggestion(word.lower(), ("and", "or", "not")) if len(word) < 5 and compares else ""
    hint = advice if "did you mean" in advice else f"; a part of a run's name is run~{word}, a tag is tag:{word}"
    return f"expected one of < <= > >= = != : ~ after {word!r}{found}{hint}"


def _figure(text: str, units: dict[str, float]) -> float | None:
    """A number with a unit behind it; None where it is none."""
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        return -math.inf if text.startswith("-") else math.inf
    number = _NUMBER.fullmatch(text)
    if number is None or number[2] not in units:
        return None
    return float(number[1].replace("_", "")) * units[number[2]]


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _error(text: str, at: int, problem: str) -> UsageError:
    """One line that names the place by the words that stand there."""
    rest, shown = text[at : at + 24], text if len(text) <= 100 else f"{text[:99]}…"
    return UsageError(f"`where` {shown!r}, {f'at {rest!r}' if rest else 'at its end'}: {problem}")
