"""`--gpus N|all`: the same command line under torchrun, with a rank for each GPU of this machine.

As a program (`python -m linnet.cli.torchrun`) it is torchrun that ends as its ranks do.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from linnet.errors import UsageError
from linnet.train.launcher import OWN_STORE

_STARTED = "LINNET_GPUS"  # set for the ranks that `gpus` has started


def rank_count(gpus: str, device: str) -> int:
    """How many ranks `gpus` asks for on this machine; a UsageError where it has not got as many.

    On `device=cpu` it is a number of processes, to try things out without a GPU.
    """
    if gpus != "all" and not (gpus.isascii() and gpus.isdigit() and int(gpus) > 0):
        raise UsageError(f"`gpus` {gpus!r}: expected a number from 1, or all")
    if device == "cpu":
        if gpus == "all":
            raise UsageError("`gpus=all` with `device=cpu`: give a number of processes")
        return int(gpus)
    import torch

    present = torch.cuda.device_count()
    if present == 0:
        raise UsageError(f"`gpus={gpus}`: there is no CUDA GPU here; leave it out to train on what there is")
    if gpus == "all":
        return present
    if int(gpus) > present:
        raise UsageError(f"`gpus={gpus}`: this machine has {present}; ask for as many, or for all")
    return int(gpus)


def start_torchrun(count: int, words: Sequence[str]) -> None:
    """Become torchrun, with so many ranks of `linnet WORDS` on this machine. Does not return.

    The cores are shared out among them; torchrun itself would leave each rank one.
    """
    command = [sys.executable, "-m", __name__, "--standalone", "--nproc-per-node", str(count)]
    threads = max(1, (os.cpu_count() or 1) // count)
    defaults = {OWN_STORE: "1", "OMP_NUM_THREADS": str(threads)}
    os.environ.update({_STARTED: str(count)} | {name: os.environ.get(name, value) for name, value in defaults.items()})
    sys.stdout.flush()
    os.execv(sys.executable, [*command, "-m", "linnet", *words])


def start_ranks(gpus: str | None, device: str) -> None:
    """Start the ranks that `gpus` asks for, as torchrun does, with this process's own command line; nothing for one."""
    if gpus is None or _STARTED in os.environ:  # the ranks themselves are given the same words
        return
    if "RANK" in os.environ:
        raise UsageError("`gpus` starts ranks itself, and a launcher has started these already: leave it out")
    count = rank_count(gpus, device)
    if count > 1:
        start_torchrun(count, sys.argv[1:])


def main(words: Sequence[str]) -> int:
    """torchrun; its exit code is that of the rank which ended first, or tells of the signal that ended all.

    The ranks have said in a line what was wrong: torchrun's own log of it, and its traceback, would bury that. Of one
    that was killed nobody has said anything.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run.run(run.parse_args(list(words)))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return int(failure.exitcode)
        number = -int(failure.exitcode)
        print(f"linnet: rank {rank} was ended by {signal.Signals(number).name}", file=sys.stderr)
        return 128 + number
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
