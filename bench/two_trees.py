"""A training step in two trees, in turns on the same machine: the speed that a refactor may not change.

    python bench/two_trees.py HEAD~1          # on a CPU, the shapes of train_cpu.py
    python bench/two_trees.py HEAD~1 --gpu    # on a GPU, the shapes of train_gpu.py, with the peak memory

The base is a commit, or the folder of another checkout. Each tree's own benchmark plays its role.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import sample
import train_cpu
import train_gpu

TREE = Path(__file__).parents[1]
TURNS = 40  # on a CPU, of AT_ONCE steps each
MOST = {"CPU": 1.03, "GPU": 1.01, "memory": 1.02}  # after divided by before


def compare(chosen: argparse.Namespace) -> bool:
    """Print every shape's ratio; True when none is beyond the most that is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(chosen.base)
        if not (base / "src").is_dir():
            base = Path(folder)
            packed = subprocess.run(["git", "archive", chosen.base], cwd=TREE, check=True, capture_output=True).stdout
            with tarfile.open(fileobj=BytesIO(packed)) as archive:
                archive.extractall(base, filter="data")
        rows = _gpu(base, chosen.rounds) if chosen.gpu else _cpu(base)
    return all(rows)


def _cpu(base: Path) -> list[bool]:
    """The median over all pairs of turns, each of one tree and the other right after it."""
    return [_row(shape, "s", *_turns(shape, base), MOST["CPU"]) for shape in train_cpu.SHAPES]


def _turns(shape: str, base: Path) -> tuple[float, float]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = []
        for tree in (base, TREE):
            script = str(tree / "bench/train_cpu.py")
            command = sample.command(script, "side", {"who": "linnet", "shape": shape}, folder / "answer")
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            threads = {"OMP_NUM_THREADS": str(train_cpu.THREADS)}
            environment = {**_environment(tree), **threads}
            processes.append(stack.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes)))
        seconds: tuple[list[float], list[float]] = ([], [])
        for turn in range(train_cpu.WARM_UP + TURNS):
            for process, times in zip(processes, seconds, strict=True):
                process.stdin.write(f"{train_cpu.AT_ONCE[shape]}\n")
                process.stdin.flush()
                took = float(process.stdout.readline())
                if turn >= train_cpu.WARM_UP:
                    times.append(took)
        for process in processes:
            process.stdin.close()
            process.wait()
    before = statistics.median(seconds[0])
    return before, before * statistics.median(b / a for a, b in zip(*seconds, strict=True))


def _gpu(base: Path, rounds: int) -> list[bool]:
    rows = []
    for shape in train_gpu.SHAPES:
        answers: dict[Path, list[dict[str, Any]]] = {base: [], TREE: []}
        for _ in range(rounds):
            for tree, taken in answers.items():
                taken.append(_play(tree, shape))
        for key, unit, most in (("ms", "ms", MOST["GPU"]), ("gigabytes", "GB", MOST["memory"])):
            before, after = (min(answer[key] for answer in taken) for taken in answers.values())
            rows.append(_row(shape, unit, before, after, most))
    return rows


def _play(tree: Path, shape: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        command = sample.command(str(tree / "bench/train_gpu.py"), "ours", {"shape": shape}, answer)
        subprocess.run(command, env=_environment(tree), check=True, stdout=subprocess.DEVNULL)
        return dict(json.loads(answer.read_text()))


def _environment(tree: Path) -> dict[str, str]:
    """Both trees with the same packages, each with its own sources before what is installed."""
    paths = [str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _row(shape: str, unit: str, before: float, after: float, most: float) -> bool:
    reached = after <= before * most
    verdict = "reached" if reached else "NOT REACHED"
    print(
        f"{shape:<28} {before:10.4f} → {after:10.4f} {unit:<3} × {after / before:.3f}, at most {most}  {verdict}",
        flush=True,
    )
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a commit, or the folder of a checkout")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each tree and shape, on a GPU")
    sys.exit(0 if compare(parser.parse_args()) else 1)
