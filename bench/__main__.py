"""Run the benchmarks and write what they found into RESULTS.md.

`python -m bench` runs every script; `python -m bench crash follow` only these, and leaves the other sections
of RESULTS.md as they are. A benchmark is a file here with a `main`. It ends with 0 if its figures were reached
and with 1 if not; made with `sample.start` it also leaves a record, `--json FILE`.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import sample

HOME = Path(__file__).parent
RESULTS = HOME / "RESULTS.md"
_HEAD = """# What was measured

Written by `python -m bench`; one section a script, replaced when that script runs again. Each ratio is of two
figures from the same run. Peers are installed by the scripts, each into an environment of its own. A sample
taken while other processes used more than half a core is taken again. Where none was calm, it is said.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    scripts = find_scripts()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(scripts)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each result to FILE as a line of JSON")
    parser.add_argument("--record", type=Path, metavar="FILE", help="run nothing: take results from such a file")
    chosen = parser.parse_args()
    if chosen.record:
        for record in map(json.loads, chosen.record.read_text().splitlines()):
            replace_section(RESULTS, record["name"], record["markdown"])
            print(f"{record['name']:20} {'reached' if record['reached'] else 'NOT REACHED'}")
        return 0
    if unknown := sorted(set(chosen.names) - set(scripts)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(scripts)}")
    verdicts = {}
    for name in chosen.names or scripts:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        section, verdicts[name] = run(name, chosen.json)
        if verdicts[name] not in ("failed", "left out"):
            replace_section(RESULTS, name, section)
        print(f"== {name}: {verdicts[name]}, {time.monotonic() - began:.0f} s\n", flush=True)
    for name, verdict in verdicts.items():
        print(f"{name:20} {verdict}")
    return 0 if all(verdict in ("reached", "left out") for verdict in verdicts.values()) else 1


def find_scripts() -> list[str]:
    """Every file of this folder that has a `main`."""
    return [path.stem for path in sorted(HOME.glob("[a-z]*.py")) if "main" in _names(path)[0]]


def _names(path: Path) -> tuple[set[str], set[str]]:
    """What a file defines and what it imports, without running it."""
    body = ast.parse(path.read_text()).body
    defined = {part.name for part in body if isinstance(part, ast.FunctionDef)}
    imported = {alias.name for part in body if isinstance(part, ast.Import) for alias in part.names}
    return defined, imported


def run(name: str, keep: Path | None) -> tuple[str, str]:
    """Run one script; its section and whether its figures were reached.

    A script that was not made with `sample` writes no record: its section is what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "record.jsonl"
        script = HOME / f"{name}.py"
        command = [sys.executable, str(script)]
        if "sample" in _names(script)[1]:
            command += ["--json", str(found)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(done.stdout, flush=True)
        record = found.read_text() if found.exists() else ""
    if keep and record:
        with keep.open("a") as file:
            file.write(record)
    lines = record.splitlines()
    section = json.loads(lines[-1])["markdown"] if lines else f"```\n{done.stdout.strip()}\n```\n"
    verdicts = {0: "reached", 1: "NOT REACHED" if lines else "failed", sample.NOT_HERE: "left out"}
    return section, verdicts.get(done.returncode, "failed")


def replace_section(results: Path, name: str, section: str) -> None:
    """Put a section in place of the one of that name, or in its place in the alphabet."""
    text = results.read_text() if results.exists() else ""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    sections[name] = f"\n{section.strip()}\n"
    body = "\n".join(f"## {title}\n\n{sections[title].strip()}\n" for title in sorted(sections))
    unfinished = results.with_suffix(".tmp")
    unfinished.write_text(f"{_HEAD}\n{body}")
    unfinished.replace(results)


if __name__ == "__main__":
    sys.exit(main())
