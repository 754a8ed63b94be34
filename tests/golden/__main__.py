"""`make golden BASE=<commit>`: does this tree compute what the base computes, to the bit?

Both are run on this machine, one after the other: bits depend on the processor and on torch, not only on the code.

    python -m tests.golden HEAD~1
    python -m tests.golden HEAD~1 llama vit        only these cases
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from itertools import zip_longest
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.record import Record, record

TREE = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.cases) - set(CASES)):
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    cases = _with_donors(chosen.cases or list(CASES))
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        check_out(chosen.base, base)
        print(f"{len(cases)} cases, with the code of {chosen.base} and with that of this tree", flush=True)
        before = record(base, cases, Path(folder) / "work")
        after = record(TREE, cases, Path(folder) / "work")
    return int(not report(before, after))


def check_out(commit: str, folder: Path) -> None:
    """The sources of a commit, into a new folder."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=TREE, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def report(before: Record, after: Record) -> bool:
    """Say of each case whether it is the same, and where it first is not; True when all are."""
    same = True
    for name, lines in before.items():
        differing = [pair for pair in zip_longest(lines, after[name], fillvalue="(nothing)") if pair[0] != pair[1]]
        failed = lines[:1] == after[name][:1] and lines[0].startswith("exit code")
        same = same and not differing and not failed
        verdict = "FAILED in both" if failed else "DIFFERS" if differing else "same"
        print(
            f"  {name:<22} {verdict}, {len(lines)} numbers and files" + (f", {len(differing)} differ" * bool(differing))
        )
        for one, other in differing[:2]:
            print(f"    base: {one[:200]}\n    here: {other[:200]}")
        if failed:
            print("    " + "\n    ".join(lines[-3:]))
    print("the same to the bit" if same else "NOT the same")
    return same


def _with_donors(cases: list[str]) -> list[str]:
    """The cases in their order, with the one whose model others begin with."""
    needed = set(cases) | {"halves" for name in cases if name.startswith("warm-")}
    return [name for name in CASES if name in needed]


if __name__ == "__main__":
    sys.exit(main())
