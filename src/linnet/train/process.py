"""The process that trains: its rank, signals that stop it, threads that wait, memory that it keeps. No torch here."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

_WAIT_POLICY = "OMP_WAIT_POLICY"  # read by OpenMP when torch is loaded
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # glibc's names for them, from malloc.h
_LARGEST = 32 << 20  # the highest threshold glibc takes
_LONGEST_END = 30.0  # seconds that a process which has abandoned a thread may take to end


@dataclass(frozen=True)
class Placement:
    """Which of the processes of a training this one is: `rank` of `count`, and the same among those of its machine."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1


def placement() -> Placement:
    """As the launcher says it in the environment (torchrun's names); a process that was started alone is the first."""
    try:
        rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        return Placement(rank, count, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", local_rank + 1)))
    except (KeyError, ValueError):
        return Placement()


def is_first_rank() -> bool:
    """Does this process speak for all that were started with it?"""
    return placement().rank == 0


def is_one_of_several() -> bool:
    """Was this process started with others, by a launcher?"""
    return placement().count > 1


def rank_name() -> str:
    """This process in words: `rank 3 on node7`."""
    import socket

    return f"rank {placement().rank} on {socket.gethostname()}"


def has_process_group() -> bool:
    """Is there a process group, by which one rank can speak for all?"""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and bool(dist.is_initialized())


@contextmanager
def together_where_met() -> Iterator[None]:
    """A block that succeeds on all ranks or fails on all (`Ranks.together`), where they have met; else as it stands."""
    if not has_process_group():
        yield
        return
    from linnet.train.ranks import join

    with join().together():
        yield


_abandoned: list[threading.Thread] = []
_groups_joined: list[Callable[[], None]] = []  # how each is left


def abandon_thread(thread: threading.Thread) -> None:
    """Go on without a thread that does not come back from a call of C++."""
    _abandoned.append(thread)


def leave_at_end(leave: Callable[[], None]) -> None:
    """Have a process group left by this call when the process ends: its next training uses the group too."""
    _groups_joined.append(leave)
    atexit.register(leave)


def end_process(code: int) -> None:
    """End the process with this code, at once, where a thread was abandoned or a process group joined; else do nothing.

    When the interpreter is taken down, a thread that comes back from C++ then takes the process with it (SIGABRT), and
    the exit code is 134 instead of the one that the ranks have agreed on. A process group has such threads of its own.
    What the interpreter would still have done before that is done here: threads are waited for, exit functions called.
    """
    if not _ends_at_once():
        return
    if _has_abandoned():
        for leave in _groups_joined:  # it may wait for that thread
            atexit.unregister(leave)
        late = threading.Timer(_LONGEST_END, os._exit, (code,))  # what that thread waits for, others may too
        late.daemon = True
        late.start()
    # As a process of `multiprocessing` does. The second name is CPython's own too.
    for finish in (getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)):
        with suppress(Exception, KeyboardInterrupt):
            if finish is not None:
                finish()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def end_process_by(error: BaseException) -> None:
    """The same where an exception goes through to the interpreter, which would say which, and end with 1."""
    if not _ends_at_once():
        return
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):  # the words of `sys.exit("…")`
            print(error.code, file=sys.stderr)
            end_process(1)
        end_process(error.code or 0)  # type: ignore[arg-type]
    sys.last_value = error  # by which a run that nobody has ended knows why
    sys.excepthook(type(error), error, error.__traceback__)
    end_process(128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1)


def _ends_at_once() -> bool:
    return _has_abandoned() or bool(_groups_joined)


def _has_abandoned() -> bool:
    return any(thread.is_alive() for thread in _abandoned)


class StopSignals:
    """Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 as a request: the step under way ends first, and a checkpoint is taken.

    Listens while its `with` block runs, the last save and the end of the run's folder included.

    - `caught`: the first signal that came; None: go on.

    A second Ctrl-C does not wait (KeyboardInterrupt). A second one of the others changes nothing: a scheduler and a
    closing terminal send several. SIGUSR1 is what some clusters send before a time limit or a preemption. A signal that
    the process was started to ignore (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # handlers can be set there alone
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
                number = getattr(signal, name, None)  # Windows has neither SIGHUP nor SIGUSR1
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """What a shell calls the end by a signal: 128 and its number."""
        return 128 + (self.caught or signal.SIGINT)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or signal.Signals(number)


def wait_asleep_where_shared() -> None:
    """Before torch is loaded: threads that wait give their core away, if others already keep half of the cores busy.

    By default a thread waits awake for some milliseconds. Alone that is quicker by a few per cent; beside other work it
    keeps the core from the very thread it waits for, and a step takes two to four times as long (docs/log.md).
    """
    if "torch" in sys.modules or _WAIT_POLICY in os.environ or not hasattr(os, "getloadavg"):
        return
    if os.getloadavg()[0] >= 0.5 * (os.cpu_count() or 1):
        os.environ[_WAIT_POLICY] = "PASSIVE"


def waits_asleep() -> bool:
    """Was that chosen, here or by the user?"""
    return os.environ.get(_WAIT_POLICY, "").upper() == "PASSIVE"


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc hold on to what is freed; were it to go back to the system, each step would get it page by page anew.

    For 15M parameters and 2,048 tokens that is 100,000 page faults a step, 7 % of its time (docs/log.md). Elsewhere
    than on Linux with glibc nothing is done.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {_MMAP_THRESHOLD: _LARGEST, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 << 20}
    return all(mallopt(name, value) == 1 for name, value in options.items())


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many of the CPU's threads for a while; the change itself costs nothing."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads(count: int) -> None:
    """Let this thread's operations on tensors have so many threads, from now on."""
    import torch

    torch.get_num_threads()  # else its first large operation would take the number that was set last, by any thread
    torch.set_num_threads(count)
