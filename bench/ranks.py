"""Several ranks: one costs nothing, two on two cores are 0.9 × two threads, a sum is an all_reduce, overlap hides it.

python bench/ranks.py                      # all of it, some 8 minutes
python bench/ranks.py --only sums overlap  # these; the rest as it was measured last

Ranks are processes of this machine that talk by gloo. The link of `overlap` is simulated: a sum takes as long as its
bytes would at that speed, and changes nothing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import sample
from report import Report

PRESET, BATCH, CTX = "nano", 8, 256  # 15M
STEPS, WARM_UP = 6, 2
LINK = 25e9  # bytes a second
OVERLAPPED = ("smollm2-135m", 1, 64)  # preset, sequences, context
RESUMED, STOPPED = "smollm2-135m", "smollm2-360m"
BILLION = 12e9  # bytes of a checkpoint of 1B parameters
KEPT = sample.DATA / "ranks.json"  # what was measured last, by its name
TINY = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --vocab 300 --batch 2 --batch-tokens 512"
QUIET = "--device cpu --eval-every 0 --sample-every 0 --optimizer adamw --lr 1e-3"


def train(threads: int, **_: Any) -> dict[str, Any]:
    """Steps of one rank of several, or of one alone: the median of their seconds."""
    import torch

    torch.set_num_threads(threads)
    from linnet.train.ranks import join

    ranks = join("cpu")
    step, batch = step_of(PRESET, BATCH, CTX, ranks)
    seconds = []
    for number in range(WARM_UP + STEPS):
        began = time.perf_counter()
        float(step(batch, 1e-3).loss)
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds), "ranks": ranks.count}


def step_of(preset_name: str, rows: int, ctx: int, ranks: Any, **settings: Any) -> tuple[Callable[..., Any], Any]:
    """The step that `linnet train` makes for a rank, and its share of a batch."""
    import torch

    from linnet.models import build, preset
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    config = preset(preset_name, ctx=ctx)
    chosen = TrainSettings(**{"batch": rows, "device": "cpu", "optimizer": "adamw", **settings})
    hardware = choose(chosen, tokens=rows * ctx, weights=weights_of_layers(config), ranks=ranks)
    ids = torch.randint(0, config.vocab, (rows, ctx + 1), generator=torch.Generator().manual_seed(0))
    ids = ids[ranks.share(rows, "the batch")] if rows >= ranks.count else ids

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), rows * ctx

    return Step(build(config, seed=0), chosen, hardware), Batch()


def add_up(**_: Any) -> dict[str, Any]:
    """The sum of the gradients of a step, and a bare all_reduce of as many bytes, in turns: the best of each."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    from linnet.models import build, preset
    from linnet.train.gradients import GradientBuffer, SumOrder
    from linnet.train.ranks import join

    ranks = join("cpu")
    parameters = list(build(preset(PRESET), seed=0).parameters())
    buffer = GradientBuffer(parameters, ranks, torch.device("cpu"))
    buffer.begin(SumOrder.of(8, 1, ranks.count))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    buffer.add([torch.zeros(())])
    bare = torch.zeros_like(buffer.flat)
    times: dict[str, list[float]] = {"sum": [], "bare": []}
    for _ in range(12):
        for name, work in (("sum", buffer.sum), ("bare", lambda: dist.all_reduce(bare))):
            dist.barrier()
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def several(role: str, ranks: int, **options: Any) -> dict[str, Any]:
    """So many processes that play a role together; the answer of rank 0."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    with sample.scratch() as folder:
        started = []
        for rank in range(ranks):
            words = sample.command(__file__, role, options, folder / f"{rank}.json")
            environment = {**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(subprocess.Popen(words, env=environment))
        codes = [process.wait() for process in started]
        assert not any(codes), codes
        return dict(json.loads((folder / "0.json").read_text()))


def overlap(steps: int) -> dict[str, Any]:
    """Steps of a 135M llama over a simulated link, with sums after the backward pass and during it, in turns.

    How long sums took on the link, and how long the step was kept waiting for them.
    """
    import torch

    from linnet.train.process import Placement
    from linnet.train.ranks import Ranks

    class SlowLink(Ranks):
        """Two ranks of which one is imagined: what it would add takes its time on the link, and is nothing."""

        def __init__(self) -> None:
            self._queue: SimpleQueue[Transfer] = SimpleQueue()
            self.busy = self.blocked = 0.0
            threading.Thread(target=self._carry, daemon=True).start()
            super().__init__(Placement(0, 2, 0, 2))

        def gather(self, value: Any) -> list[Any]:
            return [value, value]

        def start_sum(self, part: Any) -> Any:
            transfer = Transfer(self, part.nbytes / LINK)  # of two ranks each sends as many bytes as the vector has
            self._queue.put(transfer)
            return transfer

        def sum_(self, flat: Any, *, ordered: bool) -> None:
            self.start_sum(flat).wait()

        def _carry(self) -> None:
            while True:
                transfer = self._queue.get()
                began = time.perf_counter()
                time.sleep(transfer.seconds)
                self.busy += time.perf_counter() - began
                transfer.done.set()

    class Transfer:
        """A sum that is under way."""

        def __init__(self, link: SlowLink, seconds: float) -> None:
            self._link, self.seconds, self.done = link, seconds, threading.Event()

        def wait(self) -> None:
            began = time.perf_counter()
            self.done.wait()
            self._link.blocked += time.perf_counter() - began

    torch.set_num_threads(2)
    seconds = {}
    for how in ("off", "on"):
        link = SlowLink()
        step, batch = step_of(*OVERLAPPED, link, overlap=how)
        for number in range(2 + steps):
            if number == 2:
                link.busy = link.blocked = 0.0
            step(batch, 1e-4)
        seconds |= {f"{how} busy": link.busy / steps, f"{how} blocked": link.blocked / steps}
        del step
    return seconds


def corpus(folder: Path) -> Path:
    """Some text that is on every machine."""
    text = folder / "text"
    shutil.copytree(Path(sysconfig.get_path("stdlib")) / "json", text, ignore=shutil.ignore_patterns("__pycache__"))
    return text


def recover(kills: int) -> dict[str, Any]:
    """Two ranks under torchrun, of which one after the other is killed: seconds from each kill to the next step.

    And seconds of a start: from the command to the first step.
    """
    with sample.scratch() as folder:
        words = f"train from-scratch --corpus {corpus(folder)} {TINY} {QUIET} --steps 400 --checkpoint-every 5"
        words += f" --runs {folder} --run-id a --resume auto"
        command = [sys.executable, "-m", "tests.scale.killed_ranks", str(kills), "1", "2", str(folder / "a")]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "LINNET_CACHE": str(folder)}
        done = subprocess.run([*command, *words.split()], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        report = json.loads(done.stdout)
    assert report["code"] == 0 and len(report["recovery"]) == kills, report
    return {"recovery": max(report["recovery"]), "start": report["start_up"]}


def stop() -> dict[str, Any]:
    """SIGTERM to a training of 360M parameters: seconds until its step has ended, and until its process has."""
    with sample.scratch() as folder:
        words = (
            f"train from-scratch --corpus {corpus(folder)} --preset {STOPPED} --vocab 2048 --ctx 64 --batch 1 {QUIET}"
        )
        words += f" --checkpoint-every 0 --steps 1000 --runs {folder} --run-id a"
        command = [sys.executable, "-m", "linnet", *words.split()]
        environment = {**os.environ, "LINNET_CACHE": str(folder)}
        events = folder / "a/events.jsonl"
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as training:
            while training.poll() is None and not (events.exists() and '"step":2,' in events.read_text()):
                time.sleep(0.05)
            training.send_signal(signal.SIGTERM)
            asked = time.perf_counter()
            logged = events.read_text().count('"kind":"step"')
            while events.read_text().count('"kind":"step"') == logged and training.poll() is None:
                time.sleep(0.02)
            stepped = time.perf_counter()
            code = training.wait()
            ended = time.perf_counter()
        assert code == 128 + signal.SIGTERM, code
        size = sum(
            file.stat().st_size for part in ("weights", "state") for file in (folder / "a" / part).glob("step_*")
        )
    return {"step": stepped - asked, "checkpoint": ended - stepped, "bytes": size}


def resume_run(run: str, **_: Any) -> dict[str, Any]:
    """One of two ranks goes on with a run, up to its next step: the most memory it had, and its parts."""
    from linnet.recipes import resume
    from machine import memory_peak

    training = resume(run, steps=2)
    recipe = training._loop._recipe
    held = sum(tensor.nbytes for tensor in {**recipe.parameters(), **recipe.moments()}.values())
    return {"peak": memory_peak(), "held": held}


def resumed() -> dict[str, Any]:
    """Two ranks that go on with a run of 135M parameters, moments shared out."""
    with sample.scratch() as folder:
        words = f"train from-scratch --corpus {corpus(folder)} --preset {RESUMED} --ctx 64 --batch 2 {QUIET}"
        words += f" --shard moments --steps 1 --runs {folder} --run-id a --vocab 2048"
        environment = {**os.environ, "LINNET_CACHE": str(folder)}
        os.environ["LINNET_CACHE"] = str(folder)
        command = [sys.executable, "-m", "linnet", *words.split()]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return several("resume_run", 2, run=str(folder / "a"))


# What is measured: a role and its options, under the name by which it is chosen and kept.
MEASURED: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("train", {"threads": 2}),
    "launched": ("several", {"role": "train", "ranks": 1, "threads": 2}),
    "two": ("several", {"role": "train", "ranks": 2, "threads": 1}),
    "sums": ("several", {"role": "add_up", "ranks": 2}),
    "sums-of-four": ("several", {"role": "add_up", "ranks": 4}),
    "overlap": ("overlap", {"steps": 6}),
    "recovery": ("recover", {"kills": 2}),
    "stop": ("stop", {}),
    "resume": ("resumed", {}),
}
ONCE = ("recovery", "stop", "resume")  # which take long


def measure(names: list[str]) -> dict[str, sample.Samples]:
    """What is chosen, measured now; the rest as it was kept."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in names:
        role, options = MEASURED[name]
        samples = sample.take(__file__, role, lambda options=options: options, repeats=1 if name in ONCE else 3)
        kept[name] = {"answers": samples.answers, "disturbed": samples.disturbed}
        KEPT.write_text(json.dumps(kept))
        print(f"  {name}: {samples.answers}{' (disturbed)' if samples.disturbed else ''}", file=sys.stderr, flush=True)
    return {name: sample.Samples(**entry) for name, entry in kept.items()}


def flags(parser: argparse.ArgumentParser) -> None:
    """`--only`."""
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=list(MEASURED), metavar="NAME")


def main(chosen: argparse.Namespace) -> Report:
    report = Report(
        name="ranks",
        claim=(__doc__ or "").splitlines()[0],
        columns={"what": "", "ms": ",.1f", "against": "", "ms ": ",.1f", "ratio": ".3f"},
    )
    samples = measure(chosen.only)
    report.disturbed += [name for name, taken in samples.items() if taken.disturbed]

    def ms(name: str, key: str) -> float:
        return samples[name].median(key) * 1000 if name in samples else float("nan")

    plain, launched, two = (ms(name, "seconds") for name in ("plain", "launched", "two"))
    report.row("15M, 8×256: one rank, launched", launched, "a plain process", plain, launched / plain)
    report.at_most("one rank under a launcher, against none", launched / plain, 1.01, "×")
    report.row("15M, 8×256: 2 ranks, a core each", two, "one process, 2 threads", plain, two / plain)
    report.at_least("speed of two ranks on two cores, of two threads', 15M", plain / two, 0.9, "×")
    for count, name in ((2, "sums"), (4, "sums-of-four")):
        ours, bare = ms(name, "sum"), ms(name, "bare")
        report.row(f"sum of 15M gradients, {count} ranks", ours, "a bare all_reduce", bare, ours / bare)
        report.at_most(f"sum of gradients against a bare all_reduce, {count} ranks", ours / bare, 1.2, "×")
    hidden = late = None
    if "overlap" in samples:
        for how, label in (("off", "after the backward pass"), ("on", "during it")):
            waited, busy = ms("overlap", f"{how} blocked"), ms("overlap", f"{how} busy")
            report.row(f"135M over 25 GB/s, sums {label}: waited for", waited, "on the link", busy, waited / busy)
        hidden = 1 - ms("overlap", "on blocked") / ms("overlap", "on busy")
    report.at_least("share of the sum that overlap hides, 135M at 25 GB/s", hidden, 0.8, "")
    if "recovery" in samples:
        recovery, start = ms("recovery", "recovery"), ms("recovery", "start")
        report.row("a killed rank, until the next step", recovery, "a start, until its first", start, recovery / start)
        late = (recovery - start) / 1000
    report.at_most("recovery from a killed rank, besides the start", late, 20, "s")
    if "stop" in samples:
        step, checkpoint = ms("stop", "step"), ms("stop", "checkpoint")
        size = samples["stop"].median("bytes")
        whole = step + checkpoint
        report.row("360M: SIGTERM, until the end of the process", whole, "of it, the step", step, whole / step)
        speed = size / checkpoint * 1000
        report.at_most("a checkpoint of 1B at the same bytes a second", BILLION / speed, 30, "s")
        report.note(f"SIGTERM: {size / 1e9:.2f} GB at {speed / 1e9:.2f} GB a second; 1B (12 GB) is extrapolated.")
    if "resume" in samples:
        peak, held = samples["resume"].median("peak") / 1e6, samples["resume"].median("held") / 1e6
        report.note(f"Resume of {RESUMED} on two ranks, moments shared out: a rank's peak {peak:,.0f} MB, of which"
                    f" weights and moments are {held:,.0f} MB.")  # fmt: skip
    report.note(
        "Four ranks of this machine share two cores. More than two add up by a fixed tree, for the same bits on any"
        " number of them: each adds up a slice, which moves a ring's bytes."
    )
    report.note(
        f"Simulated: {OVERLAPPED[0]}, {OVERLAPPED[1]} × {OVERLAPPED[2]} tokens on two threads; two ranks, of which one"
        " is imagined; a sum takes its bytes' time on a link of 25 GB/s. The embedding's gradient, a fifth of all, is"
        " complete last: norms of the others are computed while it is under way."
    )
    return report


if __name__ == "__main__":
    roles = {"train": train, "add_up": add_up, "several": several, "overlap": overlap, "recover": recover}
    roles |= {"stop": stop, "resumed": resumed, "resume_run": resume_run}
    sys.exit(sample.start(main, roles, flags))
