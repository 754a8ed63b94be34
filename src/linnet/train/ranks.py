"""`Ranks`: the processes that train one run together (torch.distributed), who this one is, and what they agree on.

A launcher (torchrun, srun) starts the processes and says which one is which; a program that has a process group
already (Ray, a notebook) lends it. One process alone is a rank too, and none of this costs it anything.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from linnet.errors import LinnetError, UsageError, error_text
from linnet.train.ordered_sum import OrderedSum, all_gather
from linnet.train.process import Placement, leave_at_end, placement
from linnet.train.wait_clock import WaitClock

T = TypeVar("T")

# What travels behind the gradients of a step, besides its metrics: does this rank want to stop; and of rank 0 its clock
# and how long a step takes, for a run by the clock.
SIGNALS = ("stop", "seconds", "step_seconds")

# How long a rank waits for another. Rank 0 writes samples and checkpoints meanwhile, on a CPU also slowly.
_PATIENCE = {"nccl": timedelta(minutes=10), "gloo": timedelta(minutes=30)}

_FAILED_MINUTES = 1.0  # that a rank which has failed before all have met waits for them


class Pending(Protocol):
    """A sum that is under way."""

    def wait(self) -> Any:
        """Until it is there."""


class RankError(LinnetError):
    """Ranks cannot go on together; the last checkpoint stands."""


class RankLostError(RankError):
    """Another rank does not answer any more: its process or its machine is gone, or it hangs.

    `speaks`: does this rank say so? One does for all; rank 0, unless that is the one that is gone.
    """

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: the same command may well succeed the next time

    def __init__(self, message: str, speaks: bool = True) -> None:
        super().__init__(message)
        self.speaks = speaks


class Ranks:
    """The ranks of a run, of which this process is one.

    - `rank`, `count`: this one's number, and how many there are; `local_rank`: its number among those of its machine.
    - `hosts`: the machine of each rank.
    - `signals`: what this rank tells the others with the next step, by the names of `SIGNALS`.
    - `explain_loss`: finds out which rank is gone, and whether this one says so (`RankMonitor`).
    - `waits`: how long this rank has waited for gradients and weights of others.
    """

    explain_loss: Callable[[str], tuple[bool, str]] | None = None

    def __init__(self, placed: Placement | None = None, group: dist.ProcessGroup | None = None) -> None:
        placed = placed or Placement()
        self.rank, self.count = placed.rank, placed.count
        self.local_rank, self.local_count = placed.local_rank, placed.local_count
        self.signals = dict.fromkeys(SIGNALS, 0.0)
        self._group = group  # for what is not on a GPU; None: the default one
        self._background: dist.ProcessGroup | None = None
        self._ordered_sum = OrderedSum(self.rank, self.count)
        self.waits = WaitClock()
        self.hosts = self.gather(socket.gethostname())

    @property
    def alone(self) -> bool:
        """Is there no other rank?"""
        return self.count == 1

    @property
    def is_first(self) -> bool:
        """Does this rank write the run's folder and speak for all?"""
        return self.rank == 0

    @property
    def mode(self) -> str:
        """Of this rank's session: rank 0 writes the run, the others write nothing (`linnet.start(mode=)`)."""
        return "enabled" if self.is_first else "disabled"

    @property
    def on_one_machine(self) -> bool:
        """Do all ranks share a host?"""
        return len(set(self.hosts)) == 1

    def name(self, rank: int) -> str:
        """A rank in words: `rank 3 on node7`."""
        return f"rank {rank} on {self.hosts[rank]}"

    def device(self, name: str) -> str:
        """The device of this rank, where the settings name none by its number: a GPU each."""
        if self.alone or name not in ("auto", "cuda") or not torch.cuda.is_available():
            return name
        return f"cuda:{self.local_rank % torch.cuda.device_count()}"

    def share(self, rows: int, batch: str) -> slice:
        """Which rows of a batch are this rank's; `batch` names it where it cannot be shared out."""
        if rows < self.count:
            raise UsageError(
                f"{batch} is {rows} rows, too few for {self.count} ranks: take fewer ranks or larger batches"
            )
        if rows % self.count:
            advice = f"choose a multiple of {self.count} rows"
            raise UsageError(f"{batch} is {rows} rows, which {self.count} ranks cannot share evenly: {advice}")
        mine = rows // self.count
        return slice(self.rank * mine, (self.rank + 1) * mine)

    def sum_(self, flat: Tensor, *, ordered: bool) -> None:
        """Add up a vector over all ranks, in place.

        `ordered`: by a fixed binary tree over the ranks, whose number is a power of two. A sum of two has one order
        only. Without it the backend decides, by the length of the vector and the network: equal on all ranks.
        """
        with self.collective(flat):
            if ordered and self.count > 2:
                self._ordered_sum(flat, self._group_for(flat))
            else:
                dist.all_reduce(flat, group=self._group_for(flat))

    def start_sum(self, part: Tensor) -> Pending:
        """Begin to add up a vector over all ranks, in place, in the backend's order; `wait` for it before it is read.

        All ranks must start their sums in the same order.
        """
        with self._collective_errors():
            work: Pending = dist.all_reduce(part, group=self._group_for(part), async_op=True)
        return work

    def finish(self, sums: Iterable[Pending], flat: Tensor) -> None:
        """Wait until sums of parts of a vector are there; on a GPU its stream does, not the host."""
        with self.collective(flat):
            for pending in sums:
                pending.wait()

    def all_gather(self, out: Tensor, part: Tensor) -> None:
        """The parts of all ranks, one behind the other. Gloo knows no GPU here: such parts go by way of the host."""
        with self.collective(out):
            if part.is_cuda and "nccl" not in dist.get_backend_config():
                host = torch.empty(out.shape, dtype=out.dtype)
                all_gather(host, part.cpu(), self._group)
                out.copy_(host)
            else:
                all_gather(out, part, self._group_for(part))

    def _group_for(self, tensor: Tensor) -> dist.ProcessGroup | None:
        """The default group moves what is on a GPU; what is not, where that one cannot, another."""
        return None if tensor.is_cuda else self._group

    def open_background(self) -> None:
        """Make a way for tensors that threads send while the ranks train. All ranks ask for it together."""
        if self._background is None and self.count > 1:
            with self._collective_errors():
                self._background = dist.new_group(backend="gloo", timeout=_PATIENCE["gloo"])

    def send_to_first(self, part: Tensor) -> None:
        """Send a tensor of the host's memory to rank 0, which waits for it (`receive`)."""
        with self._collective_errors():
            dist.send(part.contiguous(), 0, group=self._background)

    def receive(self, part: Tensor, rank: int) -> None:
        """Take what a rank sends."""
        with self._collective_errors():
            dist.recv(part, rank, group=self._background)

    def gather(self, value: T) -> list[T]:
        """What each rank gives, by rank; on every rank. The host waits."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        with self._collective_errors():
            dist.all_gather_object(values, value, group=self._group)
        return values

    def first(self, value: T) -> T:
        """What rank 0 gives."""
        return value if self.count == 1 else self.gather(value if self.is_first else None)[0]  # type: ignore[return-value]

    def wait(self) -> None:
        """Until all ranks are here."""
        self.gather(None)

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that succeeds on all ranks or fails on all: rank 0 says what went wrong, and where."""
        error: Exception | None = None
        try:
            yield
        except Exception as problem:
            if self.count == 1 or isinstance(problem, RankLostError):
                raise
            error = problem
        if self.count == 1:
            return
        failures = self.gather(None if error is None else (_sentence(error), getattr(error, "exit_code", 1)))
        if error is not None:
            raise error
        for rank, failure in enumerate(failures):
            if failure is not None:
                failed = LinnetError(f"{self.name(rank)}: {failure[0]}")
                failed.exit_code = failure[1]
                raise failed

    def require_same(self, facts: Mapping[str, object]) -> None:
        """Refuse to train together where a fact is another one on some rank: versions, settings, data, weights.

        `facts` are named in words, as the error has them: `version of Linnet`.
        """
        everyones = self.gather(dict(facts))
        for rank, theirs in enumerate(everyones):
            for name in {**everyones[0], **theirs}:  # in the order of `facts`: the first difference explains others
                mine, other = everyones[0].get(name), theirs.get(name)
                if mine != other:
                    raise LinnetError(
                        f"{self.name(rank)} has another {name} than {self.name(0)}: expected {_short(mine)},"
                        f" found {_short(other)}; start all ranks with the same Linnet, flags and data"
                    )

    def require_equal_weights(self, parameters: Iterable[Tensor], step: int) -> None:
        """Refuse to go on where a rank's weights have become others: a faulty device, or another program on it."""
        if self.count == 1:
            return
        checksums = self.gather(weights_checksum(parameters))
        for rank, checksum in enumerate(checksums):
            if checksum != checksums[0]:
                raise RankError(
                    f"{self.name(rank)} has other weights than {self.name(0)} after step {step}, though all began with"
                    " the same: one of them computes wrongly; leave its machine out and resume"
                )

    @contextmanager
    def collective(self, tensor: Tensor, *, beside_work: bool = False) -> Iterator[None]:
        """A collective of the training on this tensor: where it fails, a rank is gone; its time counts as waiting.

        `beside_work`: on a GPU it is in a stream of its own, and does not.
        """
        with (
            self._collective_errors(),
            nullcontext() if beside_work and tensor.is_cuda else self.waits.measured(tensor),
        ):
            yield

    @contextmanager
    def _collective_errors(self) -> Iterator[None]:
        """Where a collective fails, a rank is gone."""
        try:
            yield
        except (dist.DistError, RuntimeError) as problem:  # gloo raises the latter
            first_line = _plain_problem(problem)
            if self.explain_loss is None:
                raise RankLostError(f"a rank is gone, or hangs: {first_line}", speaks=self.is_first) from problem
            speaks, explanation = self.explain_loss(first_line)
            raise RankLostError(explanation, speaks) from problem


ALONE = Ranks()


def join(device: str = "auto", minutes: float | None = None) -> Ranks:
    """The ranks that this process was started with: of a group that exists, or of the one its launcher describes.

    `device`: as in the settings; GPUs talk by NCCL where each rank has its own, all else by gloo. `minutes`: that a
    rank waits for another.
    """
    if not dist.is_available():
        return ALONE
    placed = placement()
    if dist.is_initialized():
        placed = Placement(dist.get_rank(), dist.get_world_size(), placed.local_rank, placed.local_count)
        return ALONE if placed.count == 1 else Ranks(placed, _group_of_hosts())
    if placed.count == 1:
        return ALONE
    on_gpus = device not in ("cpu", "mps") and torch.cuda.is_available()
    own_gpu = on_gpus and placed.local_count <= torch.cuda.device_count()
    if on_gpus:
        torch.cuda.set_device(placed.local_rank % torch.cuda.device_count())
    backend = "cpu:gloo,cuda:nccl" if own_gpu else "gloo"
    patience = _PATIENCE["nccl" if own_gpu else "gloo"]
    try:
        dist.init_process_group(
            backend,
            rank=placed.rank,
            world_size=placed.count,
            timeout=patience if minutes is None else timedelta(minutes=minutes),
            device_id=torch.device("cuda", torch.cuda.current_device()) if own_gpu else None,
        )
    except (dist.DistError, ValueError, RuntimeError) as problem:
        raise LinnetError(_join_error(placed, error_text(problem))) from None
    leave_at_end(_destroy_group)
    return Ranks(placed)


def fail_together(message: str, code: int, device: str = "auto") -> bool:
    """Tell the other ranks of a failure before they have met: they wait for this one. Does one of them speak for it?

    What all ranks do first with each other is to say whether they have failed (`Ranks.together`). One that cannot meet
    them within a minute speaks for itself.
    """
    try:
        ranks = join(device, _FAILED_MINUTES)
        if ranks.alone:
            return False
        ranks.gather((message, code))
    except LinnetError:
        return False
    return not ranks.is_first


def group_timeout() -> float:
    """Seconds that a rank of the group waits for another."""
    kinds = dist.get_backend_config()
    return _PATIENCE["nccl" if "nccl" in kinds else "gloo"].total_seconds()


@torch.no_grad()
def weights_checksum(parameters: Iterable[Tensor]) -> int:
    """A number that changes with any bit of some float32 tensors. The host waits for the device once."""
    bits = [parameter.detach().reshape(-1).view(torch.int32).sum(dtype=torch.int64) for parameter in parameters]
    checksum = 0
    for part in torch.stack(bits).tolist():
        checksum = (checksum * 1_000_003 + part) & (1 << 63) - 1
    return checksum


def _join_error(placed: Placement, problem: str) -> str:
    """Why the ranks did not come together, in one line."""
    rendezvous = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    if "EADDRINUSE" in problem or "address already in use" in problem.lower():
        return f"the ranks cannot meet at {rendezvous}: the port is in use; choose another with MASTER_PORT"
    if "MASTER_ADDR" in problem or "MASTER_PORT" in problem:
        return "the ranks do not know where to meet: set MASTER_ADDR and MASTER_PORT, or start them with torchrun"
    first_line = (problem.strip().splitlines() or ["no answer"])[0][:160]
    return f"rank {placed.rank} of {placed.count} did not meet the others at {rendezvous}: {first_line}"


def _group_of_hosts() -> dist.ProcessGroup | None:
    """A group that moves what is not on a GPU, where the one that a program lends cannot."""
    if "gloo" in dist.get_backend_config():
        return None
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_PATIENCE["gloo"])
    return group


def _sentence(error: Exception) -> str:
    """An error in one line; of a fault of the program its kind too."""
    text = (error_text(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, LinnetError) else f"{type(error).__name__}: {text}"


def _plain_problem(problem: Exception) -> str:
    """What a collective failed of, without the place in C++ where that was noticed and guesses at the cause."""
    first_line = (error_text(problem).strip().splitlines() or [""])[0]
    plain = re.sub(r"^(\[\S*/\S*\] )+", "", first_line).partition(" This is typically")[0]
    return plain[:160].strip(" .,") or type(problem).__name__


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _destroy_group() -> None:
    """End the group that `join` made."""
    with suppress(Exception):
        dist.destroy_process_group()
