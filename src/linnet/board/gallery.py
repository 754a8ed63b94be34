"""Artifacts by name and step: the series that both boards walk through, and `NAME@STEP` for the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from linnet.board.words import number, plain, shorten, size
from linnet.errors import UsageError, near_words
from linnet.runs import Artifact
from linnet.runs.artifacts import MEDIA_KINDS


@dataclass(frozen=True)
class ArtifactSeries:
    """What was logged under one name, by step."""

    name: str
    media: str
    artifacts: list[Artifact]

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.media

    @property
    def steps(self) -> str:
        """The first and the last step."""
        steps = [artifact.step for artifact in self.artifacts if artifact.step is not None]
        if not steps:
            return "–"
        return number(steps[0]) if steps[0] == steps[-1] else f"{number(steps[0])} … {number(steps[-1])}"


def series_of(artifacts: Iterable[Artifact]) -> list[ArtifactSeries]:
    """Series by kind and name, images first; within one, by step and then as they were logged."""
    by_key: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in artifacts:
        by_key.setdefault((artifact.name, artifact.media), []).append(artifact)
    for logged in by_key.values():
        logged.sort(key=lambda artifact: -1 if artifact.step is None else artifact.step)
    series = [ArtifactSeries(name, media, logged) for (name, media), logged in by_key.items()]
    return sorted(series, key=lambda entry: (MEDIA_KINDS.index(entry.media), entry.name))


def find_artifact(artifacts: list[Artifact], reference: str) -> Artifact:
    """What `NAME` (its latest step) or `NAME@STEP` means; a UsageError that says what there is."""
    name, at, step = reference.rpartition("@")
    by_name = [artifact for artifact in artifacts if artifact.name == reference]
    if not by_name and at and step.lstrip("-").isdecimal():
        named = [artifact for artifact in artifacts if artifact.name == name]
        exact = [artifact for artifact in named if artifact.step == int(step)]
        if named and not exact:
            steps = [number(artifact.step) for artifact in named if artifact.step is not None]
            shown = ", ".join(steps[-8:]) if len(steps) <= 8 else f"{', '.join(steps[:4])} … {', '.join(steps[-4:])}"
            raise UsageError(f"{plain(name)!r} was not logged at step {step}; there are steps {shown or 'none'}")
        by_name = exact
    if not by_name:
        names = list(dict.fromkeys(artifact.name for artifact in artifacts))
        close = near_words(name or reference, names, 3, cutoff=0.6)
        hint = f"did you mean {', '.join(map(plain, close))}?" if close else f"there are {_some(names)}"
        raise UsageError(f"there is no artifact {shorten(plain(reference), 100)!r}; {hint}")
    return max(by_name, key=lambda artifact: -1 if artifact.step is None else artifact.step)


def _some(names: list[str]) -> str:
    shown = ", ".join(shorten(plain(name), 60) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "none"


def describe(artifact: Artifact) -> str:
    """What its event says of it, in few words: `64×64, 2.1 kB`."""
    facts = artifact.fields

    def count(name: str) -> str:
        value = facts.get(name)
        return number(value) if isinstance(value, int | float) else "?"

    words = {
        "image": [f"{count('width')}×{count('height')}"] if "width" in facts else [],
        "table": [f"{count('rows')} row{'' if facts.get('rows') == 1 else 's'} × {count('columns')}"]
        if "rows" in facts
        else [],
        "histogram": [f"{count('count')} values"] if "count" in facts else [],
        "text": [f"{count('characters')} characters"] if "characters" in facts else [],
        "audio": [f"{count('seconds')} s at {count('rate')} Hz"] if "seconds" in facts else [],
    }.get(artifact.media, [])
    return ", ".join([*words, size(artifact.size)] if artifact.size is not None else words)
