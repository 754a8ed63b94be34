"""Several ranks: one costs nothing, two on two cores are 0.9 × two threads, a sum is an all_reduce, overlap hides it.

Ranks are processes of this machine that talk by gloo. The link of the last figure is simulated: a sum takes as long as
its bytes would at that speed, and changes nothing.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import sample
from report import Report

PRESET, BATCH, CTX = "nano", 8, 256  # 15M
STEPS, WARM_UP = 8, 3
LINK = 25e9  # bytes a second
OVERLAPPED = ("smollm2-135m", 1, 64)  # preset, sequences, context


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
    found = {}
    for how in ("off", "on"):
        link = SlowLink()
        step, batch = step_of(*OVERLAPPED, link, overlap=how)
        for number in range(2 + steps):
            if number == 2:
                link.busy = link.blocked = 0.0
            step(batch, 1e-4)
        found |= {f"{how} busy": link.busy / steps, f"{how} blocked": link.blocked / steps}
        del step
    return found


def main() -> Report:
    report = Report(
        name="ranks",
        claim=(__doc__ or "").splitlines()[0],
        columns={"what": "", "ms": ",.1f", "against": "", "ms ": ",.1f", "ratio": ".3f"},
    )

    def taken(role: str, label: str, **options: Any) -> sample.Samples:
        samples = sample.take(__file__, role, lambda: options, repeats=3)
        if samples.disturbed:
            report.disturbed.append(label)
        return samples

    plain = taken("train", "one process", threads=2)
    alone = taken("several", "one rank", role="train", ranks=1, threads=2)
    two = taken("several", "two ranks", role="train", ranks=2, threads=1)
    ours, plain_ms = alone.median("seconds") * 1000, plain.median("seconds") * 1000
    report.row("15M, 8×256: one rank, launched", ours, "a plain process", plain_ms, plain_ms / ours)
    report.at_least("one rank under a launcher, against none", plain_ms / ours, 0.99, "×")
    ours = two.median("seconds") * 1000
    report.row("15M, 8×256: 2 ranks, a core each", ours, "one process, 2 threads", plain_ms, plain_ms / ours)
    report.at_least("two ranks on two cores against two threads, 15M", plain_ms / ours, 0.9, "×")
    for count in (2, 4):
        sums = taken("several", f"the sum of {count} ranks", role="add_up", ranks=count)
        mine, bare = sums.median("sum") * 1000, sums.median("bare") * 1000
        report.row(f"sum of 15M gradients, {count} ranks", mine, "a bare all_reduce", bare, mine / bare)
        if count == 2:
            report.at_most("sum of gradients against a bare all_reduce, 2 ranks", mine / bare, 1.2, "×")
    hidden = taken("overlap", "overlap", steps=6)
    for how, label in (("off", "after the backward pass"), ("on", "during it")):
        waited, busy = hidden.median(f"{how} blocked") * 1000, hidden.median(f"{how} busy") * 1000
        report.row(f"135M over 25 GB/s, sums {label}: waited for", waited, "on the link", busy, waited / busy)
    share = 1 - hidden.median("on blocked") / hidden.median("on busy")
    report.at_least("share of the sum that overlap hides, 135M at 25 GB/s", share, 0.8, "")
    report.note(
        "Four ranks of this machine share two cores. More than two ranks add up by a fixed tree, for the same bits on"
        " any number of them: an all_to_all and an all_gather, which move a ring's bytes."
    )
    report.note(
        f"Simulated: {OVERLAPPED[0]}, {OVERLAPPED[1]} × {OVERLAPPED[2]} tokens on two threads; two ranks, of which one"
        " is imagined; a sum takes its bytes' time on a link of 25 GB/s. The embedding's gradient, a fifth of all, is"
        " complete last: norms of the others are computed while it is under way."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"train": train, "add_up": add_up, "several": several, "overlap": overlap}))
