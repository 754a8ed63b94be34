"""Kill writers and trainings, damage files, and count what goes wrong. Nothing should.

    python -m bench.campaign                      all three; some 70 minutes on two quiet cores
    python -m bench.campaign writers trainings    these two
    python -m bench.campaign files=2000 --first 50000
    python -m bench.campaign --case 4711          of the files, one case again, with what it printed; its files stay

The exit code is 0 when nothing went wrong. `--results` writes the figures into bench/RESULTS.md.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

_BENCH = Path(__file__).parents[1]
sys.path.insert(0, str(_BENCH))  # benchmarks import each other by their bare names

from bench.__main__ import RESULTS, replace_section  # noqa: E402
from bench.campaign import hostile_files, killed_trainings, killed_writers  # noqa: E402
from report import Report  # noqa: E402

COUNTS = {"writers": 1_000, "trainings": 200, "files": 100_000}


def report_writers(home: Path, seed: int, count: int, workers: int) -> Report:
    """Kill writers, one after the other."""
    report = Report(
        name="campaign: writers",
        claim=_claim(killed_writers),
        columns={
            "writer": "",
            "killed": ",d",
            "before the start": ",d",
            "calls returned": ",d",
            "lost": ",d",
            "cut off in a call": ",d",
            "torn lines": ",d",
            "unsound": ",d",
            "not crashed": ",d",
        },
    )
    tallies = killed_writers.run_campaign(home, seed, count)
    for name, tally in tallies.items():
        report.row(
            name,
            tally.kills,
            tally.before_start,
            tally.logged,
            tally.lost,
            tally.cut,
            tally.torn,
            tally.unsound,
            tally.not_crashed,
        )
    every = list(tallies.values())
    report.at_most("logged calls lost", sum(tally.lost for tally in every), 0, "calls")
    report.at_most("lines torn", sum(tally.torn for tally in every), 0, "lines")
    report.at_most("runs that `check` finds fault with", sum(tally.unsound for tally in every), 0, "runs")
    report.at_most("runs whose status is not `crashed`", sum(tally.not_crashed for tally in every), 0, "runs")
    report.note(
        f"`python -m bench.campaign writers={count} --seed {seed}`; a quarter are killed at any moment of their life."
    )
    report.note(
        "Cut off in a call: the kill came while a long line was being written, so the call had not returned; the line"
        " has no end, and readers pass over it."
    )
    return report


def report_trainings(home: Path, seed: int, count: int, workers: int) -> Report:
    """Kill trainings and resume them."""
    report = Report(
        name="campaign: trainings",
        claim=_claim(killed_trainings),
        columns={
            "training": "",
            "runs": ",d",
            "SIGKILL": ",d",
            "other signals": ",d",
            "not completed": ",d",
            "other losses": ",d",
            "other bytes": ",d",
            "other links": ",d",
            "left over": ",d",
            "unsound": ",d",
        },
    )
    tallies = killed_trainings.run_campaign(home, seed, count, workers=workers)
    for name, tally in tallies.items():
        killed = tally.kills["SIGKILL"]
        report.row(
            name,
            tally.trainings,
            killed,
            tally.kills.total() - killed,
            tally.not_completed,
            tally.other_losses,
            tally.other_bytes,
            tally.other_links,
            tally.leftovers,
            tally.unsound,
        )
    every = list(tallies.values())
    report.at_most("trainings that did not complete", sum(tally.not_completed for tally in every), 0, "trainings")
    report.at_most("trainings with other losses", sum(tally.other_losses for tally in every), 0, "trainings")
    report.at_most("trainings with other bytes", sum(tally.other_bytes for tally in every), 0, "trainings")
    report.at_most("other `best` or `latest`", sum(tally.other_links for tally in every), 0, "trainings")
    report.at_most("trainings with leftovers", sum(tally.leftovers for tally in every), 0, "trainings")
    report.at_most("runs that `check` finds fault with", sum(tally.unsound for tally in every), 0, "runs")
    report.note(f"`python -m bench.campaign trainings={count} --seed {seed}`; {killed_trainings.STEPS} steps each.")
    for fault in [fault for tally in every for fault in tally.faults][:20]:
        report.note(fault)
    return report


def report_files(home: Path, seed: int, count: int, workers: int, first: int = 0) -> Report:
    """Let commands read mutated files."""
    kinds = ("traceback", "hang", "died", "control character", "memory", "long line", "exit code", "no word")
    report = Report(
        name="campaign: files",
        claim=_claim(hostile_files),
        columns={"files": "", "cases": ",d", **dict.fromkeys(kinds, ",d")},
    )
    tally = hostile_files.Campaign(home, seed, count, first, workers).run()
    for group in ("model", "run", "data"):
        failures = [failure for failure in tally.failures if failure.of.startswith(group)]
        cases = sum(number for kind, number in tally.cases.items() if kind.startswith(group))
        report.row(
            {"model": "GGUF files", "run": "run folders", "data": "corpora and images"}[group],
            cases,
            *(sum(failure.kind == kind for failure in failures) for kind in kinds),
        )
    for kind in kinds:
        report.at_most(_NAMES[kind], sum(failure.kind == kind for failure in tally.failures), 0, "commands")
    report.note(
        f"`python -m bench.campaign files={count} --seed {seed}`: {tally.commands:,} commands. A hang takes more than"
        f" {hostile_files.HANG_SECONDS:g} s of CPU time."
    )
    for (kind, command, text), failures in list(tally.groups().items())[:60]:
        report.note(f"{len(failures)} × {kind}, `{command}`: {text} (case {failures[0].case}, {failures[0].of})")
    return report


_NAMES = {
    "traceback": "tracebacks",
    "hang": "hangs",
    "died": "processes that died",
    "control character": "outputs with raw control characters",
    "memory": "commands that took memory out of proportion",
    "long line": "outputs with lines of more than 100,000 characters",
    "exit code": "exit codes that are none of 0, 1, 2",
    "no word": "failures without a word",
}
_CAMPAIGNS: dict[str, Callable[..., Report]] = {
    "writers": report_writers,
    "trainings": report_trainings,
    "files": report_files,
}


def _claim(module: object) -> str:
    return (module.__doc__ or "").splitlines()[0]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__, formatter_class=form)
    told = ", ".join(f"{name}={count}" for name, count in COUNTS.items())
    parser.add_argument("names", nargs="*", metavar="NAME[=COUNT]", help=f"by default {told}")
    parser.add_argument("--seed", type=int, default=0, help="other dice (0)")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (2)")
    parser.add_argument("--first", type=int, default=0, help="of the files: the number of the first case (0)")
    parser.add_argument("--case", type=int, metavar="N", help="of the files: this case alone, shown in full")
    parser.add_argument("--home", type=Path, default=_BENCH / ".data" / "campaign", help="where it works")
    parser.add_argument("--results", action="store_true", help="write the figures into bench/RESULTS.md")
    chosen = parser.parse_args(arguments)
    counts = {name: int(count or COUNTS.get(name, 0)) for name, _, count in (n.partition("=") for n in chosen.names)}
    if unknown := sorted(set(counts) - set(COUNTS)):
        parser.error(f"no campaign {', '.join(unknown)}; there are {', '.join(COUNTS)}")
    if chosen.case is not None:
        return int(bool(hostile_files.repeat(chosen.home / "files", chosen.seed, chosen.case)))
    reached = True
    for name, count in (counts or COUNTS).items():
        home = chosen.home / name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        more = {"first": chosen.first} if name == "files" else {}
        began = time.monotonic()
        report = _CAMPAIGNS[name](home, chosen.seed, count, chosen.workers, **more)
        print(f"\n{report.name}, {time.monotonic() - began:.0f} s\n\n{report.markdown()}", flush=True)
        if chosen.results:
            replace_section(RESULTS, report.name, report.markdown())
        reached &= report.reached
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
