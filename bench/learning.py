"""What a step teaches: the default recipe against AdamW tuned by a grid and nanoGPT; the rule of rates against sweeps.

python bench/learning.py                                # the figures: seven minutes of a GPU
python bench/learning.py report records                 # the figures from records that are there
python bench/learning.py study first --out records      # rates, batches, shapes, changes: seven minutes of a GPU
python bench/learning.py study small --device cpu       # the same in half a minute, on a CPU, to see that it runs
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from learning_lane import LaneSpec, play, prepared
from learning_lanes import STUDIES
from learning_tables import records

DATA = Path(__file__).parent / ".data" / "learning"


def study(flags: argparse.Namespace) -> int:
    """All lanes of a study, several at once: where speed is not what is measured, they may share the GPU."""
    began = time.time()
    until = began + flags.seconds
    lanes = [spec for spec in lanes_of(flags) if not flags.only or any(word in spec.name for word in flags.only)]
    flags.out.mkdir(parents=True, exist_ok=True)
    tokens = prepared(flags.data, flags.megabytes)
    print(
        f"corpus: {len(tokens.train):,} tokens, {len(tokens.held_out):,} held out, {time.time() - began:.0f} s",
        flush=True,
    )
    waiting, running = [spec.name for spec in lanes], list[subprocess.Popen[bytes]]()
    failed = 0
    while waiting or running:
        while waiting and len(running) < flags.lanes and time.time() < until:
            name = waiting.pop(0)
            command = [
                sys.executable,
                __file__,
                "lane",
                flags.name,
                name,
                "--until",
                str(until),
                "--out",
                str(flags.out),
            ]
            command += ["--device", flags.device, "--megabytes", str(flags.megabytes), "--data", str(flags.data)]
            running.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": str(flags.threads)}))
        if time.time() > until:
            waiting = []
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            failed += process.returncode != 0
        if time.time() > until + 20:
            for process in running:
                process.kill()
        time.sleep(0.2)
    print(f"{flags.name}: {time.time() - began:.0f} s, {failed} lanes failed", flush=True)
    return int(failed > 0)


def one_lane(flags: argparse.Namespace) -> int:
    """One lane, in this process."""
    spec = next(spec for spec in lanes_of(flags) if spec.name == flags.lane)
    out = flags.out / f"{spec.name.replace(' ', '-')}.jsonl"
    play(spec, flags.data, out, device=flags.device, megabytes=flags.megabytes, until=flags.until)
    return 0


def lanes_of(flags: argparse.Namespace) -> list[LaneSpec]:
    """The lanes of a study; what is timed follows from the records of the grid that are there already."""
    return STUDIES[flags.name](records(flags.out)) if flags.name in ("quiet", "fitted") else STUDIES[flags.name]()


def figures(flags: argparse.Namespace) -> int:
    """The figures of records that are there; without any, those of both studies, made now."""
    import sample
    from learning_report import pictures, report_of

    if not flags.records:
        sample.needs_cuda()
        for name, seconds, lanes in (("second", 270.0, 8), ("quiet", 110.0, 1)):
            given = {"name": name, "seconds": seconds, "lanes": lanes, "out": DATA / "figures", "only": []}
            study(argparse.Namespace(**given, data=DATA, device="cuda", megabytes=64.0, threads=2))
    found = records(*(flags.records or [DATA / "figures"]))
    report = report_of(found, flags.where)
    print(f"\n{report.name}\n\n{report.markdown()}")
    if flags.json:
        report.append_json(flags.json)
    for path in pictures(found, flags.pictures) if flags.pictures else []:
        print(path)
    return 0 if report.reached else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _report_flags(parser)
    parser.set_defaults(function=figures, records=[])
    commands = parser.add_subparsers()
    command = commands.add_parser("report")
    command.add_argument("records", nargs="+", type=Path, help="folders of records")
    _report_flags(command)
    command.set_defaults(function=figures)
    for name, function in (("study", study), ("lane", one_lane)):
        command = commands.add_parser(name)
        command.add_argument("name", choices=list(STUDIES))
        command.set_defaults(function=function)
        command.add_argument("--out", type=Path, default=DATA / "records", help="where records go, a line a trial")
        command.add_argument("--data", type=Path, default=DATA, help="where the corpus and its tokens are kept")
        command.add_argument("--device", default="cuda")
        command.add_argument("--megabytes", type=float, default=64, help="of Python sources to learn from")
        if name == "study":
            command.add_argument("--seconds", type=float, default=400, help="after which no trial is begun")
            command.add_argument("--lanes", type=int, default=6, help="processes at once")
            command.add_argument("--threads", type=int, default=2, help="of each process")
            command.add_argument("--only", nargs="*", default=[], help="lanes whose names have one of these words")
        else:
            command.add_argument("lane")
            command.add_argument("--until", type=float, default=float("inf"))
    flags = parser.parse_args()
    return int(flags.function(flags))


def _report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the result to FILE as one line of JSON")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write learning.svg there")
    parser.add_argument("--where", default="An H200", help="the machine, in words")


if __name__ == "__main__":
    sys.exit(main())
