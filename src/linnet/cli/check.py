"""`linnet check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder
from linnet.cli.terminal import paint, paint_status, print_json
from linnet.files import is_file, is_folder
from linnet.runs import RunStore, examine


def check(
    what: Annotated[
        str, Parameter(help="A GGUF file; or a run: an id, the beginning of one, a path, or 'latest'.")
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
    return _check_run(what, runs, json)


def _check_run(name: str, runs: RunsFolder, json: bool) -> int:
    found = examine(RunStore(runs).find(name))
    if json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "sound": found.sound})
        return int(not found.sound)
    verdict = paint("sound", "green") if found.sound else paint("damaged", "red")
    counts = f"{words.number(found.lines)} lines, {words.number(found.events)} events"
    print(f"{words.bounded(found.run_id)}  {paint_status(found.status)}  {verdict}  ({counts})")
    _print(found.faults, found.remarks)
    return int(not found.sound)


def _check_file(path: Path, json: bool) -> int:
    from linnet.gguf.check import check as findings_of

    findings = findings_of(path)
    refused, aborts = (
        [f"{finding.place}: {finding.problem}" for finding in findings if finding.level == level]
        for level in ("refused", "aborts")
    )
    warnings = [f"{f.place}: {f.problem}" for f in findings if not (f.refused or f.aborts)]
    runs = not (refused or aborts)
    if json:
        print_json({"path": str(path), "runs": runs, "refused": refused, "aborts": aborts, "warnings": warnings})
        return int(not runs)
    if refused:
        verdict = paint("llama.cpp would refuse it", "red")
    elif aborts:
        verdict = paint("llama.cpp's programs abort on it", "red")
    else:
        verdict = paint("llama.cpp runs it", "green")
    print(f"{words.plain(path)}  {verdict}")
    _print([*refused, *aborts], warnings)
    return int(not runs)


def _print(faults: list[str], remarks: list[str]) -> None:
    for text in faults:
        print(f"  {paint('!', 'red')} {words.bounded(text)}")
    for text in remarks:
        print(f"  · {words.bounded(text)}")
