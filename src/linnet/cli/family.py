"""`linnet runs --tree`: the table of runs with each of them below the one it was forked from."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.board import words
from linnet.cli.run_table import print_runs
from linnet.runs.columns import Term
from linnet.runs.family import FamilyMember, family_tree
from linnet.runs.selection import Selection


def print_family(selection: Selection, terms: Sequence[Term], *, chosen: Sequence[Term] = ()) -> None:
    """A row a run, families together; children say at which step of their parent they began."""
    members = family_tree(record.summary for record in selection)
    by_path = {record.path: record for record in selection}
    ordered = Selection(selection.root, (by_path[member.summary.path] for member in members))
    print_runs(ordered, terms, chosen=chosen, names=[_name(member) for member in members])


def _name(member: FamilyMember) -> str:
    step = member.summary.manifest.parent_step
    at = f" @{step}" if step is not None and member.gone is None else ""
    gone = f" (from {words.plain(member.gone)}, which is gone)" if member.gone is not None else ""
    return f"{member.lines}{words.plain(member.summary.run_id)}{at}{gone}"
