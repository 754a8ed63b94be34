"""`linnet check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import EVERY_RUN, AsJson, RunFilters, RunsFolder, choose_runs, find_model
from linnet.cli.printing import paint, paint_status, print_json
from linnet.files import is_file, is_folder
from linnet.models.model_name import names_checkpoint
from linnet.runs import Run, RunStore, examine
from linnet.runs.store import is_pattern


def check(
    *what: Annotated[
        str,
        Parameter(
            help="RUNs, which are checked as folders, or patterns as in 'xor-*'; or files: a GGUF path, RUN@best or"
            " RUN@200. By default the latest run."
        ),
    ],
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Is a run folder sound? Would llama.cpp run this GGUF file? Exit code 1 when not."""
    checked = list(_checked(what, filters, runs))
    results = [_check_file(one, json) if isinstance(one, Path) else _check_run(one, json) for one in checked]
    if json:
        is_one = len(what) < 2 and not filters and not any(map(is_pattern, what))
        print_json(results[0].fields if is_one else [result.fields for result in results])
    return int(not all(result.sound for result in results))


@dataclass(frozen=True)
class _Result:
    """Of a run or a file: whether it is as it should be, and what `--json` says of it."""

    sound: bool
    fields: dict[str, object]


def _checked(names: Sequence[str], filters: RunFilters, runs: RunsFolder) -> Iterator[Run | Path]:
    """The runs and files that are meant, in the order of their names."""
    store = RunStore(runs)
    if filters:
        yield from choose_runs(store, names, filters)
        return
    for name in names or ("latest",):
        path = Path(name)
        if is_file(path) or (name.endswith(".gguf") and not is_folder(path)):
            yield path
        elif names_checkpoint(name):
            yield find_model(name, runs)
        else:
            yield from choose_runs(store, [name], filters)


def _check_run(run: Run, json: bool) -> _Result:
    findings = examine(run)
    if not json:
        verdict = paint("sound", "green") if findings.sound else paint("damaged", "red")
        counts = f"{words.number(findings.lines)} lines, {words.number(findings.events)} events"
        print(f"{words.bounded(findings.run_id)}  {paint_status(findings.status)}  {verdict}  ({counts})")
        _print(findings.faults, findings.remarks)
    fields = {field: getattr(findings, field) for field in findings.__struct_fields__}
    return _Result(findings.sound, {**fields, "sound": findings.sound})


def _check_file(path: Path, json: bool) -> _Result:
    from linnet.gguf.check import check as findings_of

    by_level: dict[str, list[str]] = {"refused": [], "aborts": [], "warnings": []}
    for finding in findings_of(path):
        level = finding.level if finding.level in by_level else "warnings"
        by_level[level].append(f"{finding.place}: {finding.problem}")
    faults = [*by_level["refused"], *by_level["aborts"]]
    if not json:
        refused = "llama.cpp would refuse it" if by_level["refused"] else "llama.cpp's programs abort on it"
        verdict = paint(refused, "red") if faults else paint(_accepted(path), "green")
        print(f"{words.plain(path)}  {verdict}")
        _print(faults, by_level["warnings"])
    return _Result(not faults, {"path": str(path), "runs": not faults, **by_level})


def _accepted(path: Path) -> str:
    from linnet.gguf import GGUFFile

    with GGUFFile.open(path) as file:
        return "llama.cpp applies it to its base" if file.is_adapter else "llama.cpp runs it"


def _print(faults: list[str], remarks: list[str]) -> None:
    for text in faults:
        print(f"  {paint('!', 'red')} {words.bounded(text)}")
    for text in remarks:
        print(f"  · {words.bounded(text)}")
