"""Families of runs: which run was forked from which, and the part of a curve that a fork has from its ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from linnet.errors import LinnetError
from linnet.runs.run import Run
from linnet.runs.summary import RunSummary

_MOST_ANCESTORS = 100


@dataclass(frozen=True)
class FamilyMember:
    """A run in the tree of its family: `lines` to draw before its name, and `gone`, a parent that is not there."""

    summary: RunSummary
    lines: str
    gone: str | None = None


def family_tree(summaries: Iterable[RunSummary]) -> list[FamilyMember]:
    """Every run once, each below its parent, families and children in the order that the runs came in."""
    ordered = list(summaries)
    known = {summary.run_id: summary for summary in ordered}
    children: dict[str, list[RunSummary]] = {}
    roots = []
    for summary in ordered:
        parent = summary.manifest.parent
        if parent in known and not _descends(parent, summary.run_id, known):
            children.setdefault(parent, []).append(summary)
        else:
            roots.append(summary)
    members: list[FamilyMember] = []
    for root in roots:
        parent = root.manifest.parent
        members.append(FamilyMember(root, "", gone=parent if parent not in known else None))
        members.extend(_below(root, children, ""))
    return members


def _below(parent: RunSummary, children: dict[str, list[RunSummary]], before: str) -> Iterator[FamilyMember]:
    stack = [
        (child, before, child is children[parent.run_id][-1]) for child in reversed(children.get(parent.run_id, []))
    ]
    while stack:
        summary, lines, last = stack.pop()
        yield FamilyMember(summary, lines + ("└─ " if last else "├─ "))
        below = lines + ("   " if last else "│  ")
        own = children.get(summary.run_id, [])
        stack += [(child, below, child is own[-1]) for child in reversed(own)]


def _descends(run_id: str, ancestor: str, known: dict[str, RunSummary]) -> bool:
    """Is `ancestor` an ancestor of a run, or the run itself? Manifests may say anything, a circle too."""
    visited: set[str] = set()
    at: str | None = run_id
    while at is not None and at in known and at not in visited:
        if at == ancestor:
            return True
        visited.add(at)
        at = known[at].manifest.parent
    return False


@dataclass(frozen=True)
class Ancestor:
    """A run that another one came from.

    - `until`: the last of its steps that belong to that one too.
    - `after`: the last step that belongs to the run that it came from itself.
    """

    run: Run
    until: int
    after: int = -1


def ancestors(run: Run) -> list[Ancestor]:
    """The runs that a fork came from, as far as they are still there beside it, the nearest first."""
    chain: list[Ancestor] = []
    visited = {run.id}
    at = run
    while (parent := at.manifest.parent) is not None and at.manifest.parent_step is not None:
        if parent in visited or Path(parent).name != parent or len(chain) >= _MOST_ANCESTORS:
            break
        try:
            until = at.manifest.parent_step if not chain else min(at.manifest.parent_step, chain[-1].until)
            at = Run.load(run.path.parent / parent)
        except (LinnetError, OSError):
            break
        visited.add(parent)
        chain.append(Ancestor(at, until))
    return [*(replace(ancestor, after=older.until) for ancestor, older in pairwise(chain)), *chain[-1:]]


def origin_of(run_id: str | None, step: int | None) -> str | None:
    """`base@600`: where a run began; None for one that has no parent."""
    if run_id is None:
        return None
    return run_id if step is None else f"{run_id}@{step}"


def children_of(run_id: str, summaries: Sequence[RunSummary]) -> list[str]:
    """The runs that were forked from a run."""
    return [summary.run_id for summary in summaries if summary.manifest.parent == run_id]
