"""Which field of a row is its text: one for all files, or others for those that fit a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from linnet.data.corpus_file import CorpusFile
from linnet.data.documents import TEXT_FORMATS
from linnet.data.errors import DataError
from linnet.data.rows import DEFAULT_FIELD

_RULE = re.compile(r"([^=]*[*?\[\]./][^=]*)=(.+)", re.DOTALL)  # a name with `=` alone is the name of a field


@dataclass(frozen=True)
class FieldRules:
    """`body` for all files; `*.csv=text` for those whose path ends so. The first pattern that fits counts."""

    default: str
    patterns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, field: str | Sequence[str] | None) -> FieldRules:
        """From what `field` was given: a name, `PATTERN=NAME`, or several."""
        words = [field] if isinstance(field, str) else list(field or ())
        patterns, names = [], []
        for word in words:
            if match := _RULE.fullmatch(word):
                patterns.append((match[1], match[2]))
            else:
                names.append(word)
        if len(names) > 1:
            raise DataError(
                f"`field` names two fields for all files, {names[0]!r} and {names[1]!r}: say of which files one is, as"
                f" in '*.csv={names[0]}'"
            )
        return cls(names[0] if names else DEFAULT_FIELD, tuple(patterns))

    def applied(self, files: Sequence[CorpusFile]) -> tuple[CorpusFile, ...]:
        """The files with their fields; a pattern that fits none of those that have fields is an error."""
        used: set[str] = set()
        ruled = []
        for file in files:
            has_fields = file.kind in TEXT_FORMATS and TEXT_FORMATS[file.kind].has_fields
            rule = next((rule for rule in self.patterns if has_fields and _fits(file.path, rule[0])), None)
            if rule is not None:
                used.add(rule[0])
            ruled.append(replace(file, field=rule[1]) if rule is not None and rule[1] != self.default else file)
        for pattern, name in self.patterns:
            if pattern not in used:
                raise DataError(
                    f"`field`: no file with rows (JSONL, CSV, TSV, Parquet) fits the pattern of '{pattern}={name}'"
                )
        return tuple(ruled)


def _fits(path: PurePath, pattern: str) -> bool:
    try:
        return path.match(pattern)
    except ValueError:  # an empty pattern
        return False
