"""`linnet check`."""

from __future__ import annotations

from linnet.board import words
from linnet.cli.options import AsJson, RunName, RunsFolder
from linnet.cli.terminal import paint, paint_status, print_json
from linnet.runs import RunStore, examine


def check(
    run: RunName = "latest",
    /,
    *,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Is a run folder sound? What was lost or damaged?"""
    found = examine(RunStore(runs).find(run))
    if json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "sound": found.sound})
        return int(not found.sound)
    verdict = paint("sound", "green") if found.sound else paint("damaged", "red")
    counts = f"{words.number(found.lines)} lines, {words.number(found.events)} events"
    print(f"{words.plain(found.run_id)}  {paint_status(found.status)}  {verdict}  ({counts})")
    for text in found.faults:
        print(f"  {paint('!', 'red')} {words.plain(text)}")
    for text in found.remarks:
        print(f"  · {words.plain(text)}")
    return int(not found.sound)
