"""`linnet check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder, find_model
from linnet.cli.printing import paint, paint_status, print_json
from linnet.files import is_file, is_folder
from linnet.models.model_name import names_checkpoint
from linnet.runs import RunStore, examine


def check(
    what: Annotated[
        str, Parameter(help="A RUN, which is checked as a folder; or a file: a GGUF path, RUN@best or RUN@200.")
    ] = "latest",
    /,
    *,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Is a run folder sound? Would llama.cpp run this GGUF file? Exit code 1 when not."""
    path = Path(what)
    if is_file(path) or (what.endswith(".gguf") and not is_folder(path)):
        return _check_file(path, json)
    if names_checkpoint(what):
        return _check_file(find_model(what, runs), json)
    return _check_run(what, runs, json)


def _check_run(name: str, runs: RunsFolder, json: bool) -> int:
    findings = examine(RunStore(runs).find(name))
    if json:
        fields = {field: getattr(findings, field) for field in findings.__struct_fields__}
        print_json({**fields, "sound": findings.sound})
    else:
        verdict = paint("sound", "green") if findings.sound else paint("damaged", "red")
        counts = f"{words.number(findings.lines)} lines, {words.number(findings.events)} events"
        print(f"{words.bounded(findings.run_id)}  {paint_status(findings.status)}  {verdict}  ({counts})")
        _print(findings.faults, findings.remarks)
    return int(not findings.sound)


def _check_file(path: Path, json: bool) -> int:
    from linnet.gguf.check import check as findings_of

    by_level: dict[str, list[str]] = {"refused": [], "aborts": [], "warnings": []}
    for finding in findings_of(path):
        level = finding.level if finding.level in by_level else "warnings"
        by_level[level].append(f"{finding.place}: {finding.problem}")
    faults = [*by_level["refused"], *by_level["aborts"]]
    if json:
        print_json({"path": str(path), "runs": not faults, **by_level})
    else:
        refused = "llama.cpp would refuse it" if by_level["refused"] else "llama.cpp's programs abort on it"
        verdict = paint(refused, "red") if faults else paint(_accepted(path), "green")
        print(f"{words.plain(path)}  {verdict}")
        _print(faults, by_level["warnings"])
    return int(bool(faults))


def _accepted(path: Path) -> str:
    from linnet.gguf import GGUFFile

    with GGUFFile.open(path) as file:
        return "llama.cpp applies it to its base" if file.is_adapter else "llama.cpp runs it"


def _print(faults: list[str], remarks: list[str]) -> None:
    for text in faults:
        print(f"  {paint('!', 'red')} {words.bounded(text)}")
    for text in remarks:
        print(f"  · {words.bounded(text)}")
