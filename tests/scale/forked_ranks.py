"""Ranks that are forked from a server which has loaded torch once; as under srun, nobody watches over them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

Program = Callable[[list[str]], int]


@dataclass(frozen=True)
class ForkedRank:
    """A rank of a training that runs `linnet WORDS`, and the files that it writes its output and errors to."""

    process: ForkServerProcess
    out: Path
    err: Path

    def end(self, seconds: float = 90) -> tuple[int | None, str, str]:
        """Wait: exit code, output and errors."""
        self.process.join(seconds)
        return self.process.exitcode, self.out.read_text(), self.err.read_text()


def fork_ranks(
    words: list[str], folder: Path, count: int = 2, port: int | None = None, program: Program | None = None
) -> list[ForkedRank]:
    """So many ranks of one training, as processes of this machine; `program` takes the words instead of `linnet`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "linnet.cli", "linnet.recipes.training", "linnet.cli.training"])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port()), "WORLD_SIZE": str(count)}
    ranks = []
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
        files = [folder / f"rank{rank}.{name}" for name in ("out", "err")]
        given = {**os.environ, **address, **own}
        process = context.Process(target=_run, args=(words, given, Path.cwd(), *files, program), daemon=True)
        process.start()
        ranks.append(ForkedRank(process, *files))
    return ranks


def _run(
    words: list[str], environment: Mapping[str, str], folder: Path, out: Path, err: Path, program: Program | None
) -> None:
    for descriptor, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from linnet.cli import main

    sys.exit((program or main)(words))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
