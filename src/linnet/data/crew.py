"""Encoding on all cores: worker processes that read pieces from a pipe and answer with tokens, in order.

They are plain child processes of this module, not of `multiprocessing`, which would run the user's script once more in
each of them. A worker ends when its pipe ends, so none outlives a killed parent.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from linnet.data.documents import Piece
from linnet.data.encoded import Encoded, Share, encode
from linnet.data.encoder import Encoder
from linnet.data.errors import DataError
from linnet.data.vocabulary import Vocabulary

_WORTH = 16 << 20  # bytes of text that repay the start of one more worker


def crew_size(workers: int | None, n_bytes: int) -> int:
    """How many processes to encode with: as asked, else by cores and text."""
    if workers is not None:
        return max(1, workers)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, n_bytes // _WORTH))


class Crew:
    """`with Crew(2, "tokenizer.gguf", share) as crew: for part in crew.encode(jobs): ...`"""

    def __init__(self, size: int, tokenizer: Path, share: Share, slow: str) -> None:
        command = f"import sys; sys.path[:] = {sys.path!r}; from linnet.data.crew import work; work()"
        self._all = [
            subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(size)
        ]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(size)
        for worker in self._all:
            _send(worker, (tokenizer, share, slow))
            self._idle.put(worker)

    def encode(self, jobs: Iterable[list[Piece]]) -> Iterator[Encoded]:
        """Each job's result, in the order of the jobs; a few are under way at a time."""
        under_way: deque[Future[Encoded]] = deque()
        for job in jobs:
            under_way.append(self._threads.submit(self._do, job))
            if len(under_way) > 2 * len(self._all):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.kill()  # nothing of theirs is needed any more, and a blocked pipe would keep the threads waiting
        self._threads.shutdown(cancel_futures=True)
        for worker in self._all:
            worker.communicate()

    def _do(self, job: list[Piece]) -> Encoded:
        worker = self._idle.get()
        _send(worker, job)
        assert worker.stdout is not None
        try:
            answer = pickle.load(worker.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise DataError(
                f"a worker process ended before its work was done (exit code {worker.wait()}): out of memory?"
                " Try --workers 1"
            ) from None
        finally:
            self._idle.put(worker)
        assert isinstance(answer, Encoded)
        return answer


def work() -> None:
    """What a worker does until its pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        tokenizer, share, slow = pickle.load(source)
        vocabulary = Vocabulary(tokenizer)
        encoder = Encoder(vocabulary.tokenizer, vocabulary.metadata)
        if slow:
            encoder.slow(slow)
        while True:
            pickle.dump(encode(pickle.load(source), encoder, share), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        os._exit(0)  # the parent is gone or done; there is nothing to flush
    except MemoryError:
        os._exit(1)  # the parent says so


def _send(worker: subprocess.Popen[bytes], value: object) -> None:
    assert worker.stdin is not None
    try:
        pickle.dump(value, worker.stdin, pickle.HIGHEST_PROTOCOL)
        worker.stdin.flush()
    except BrokenPipeError:
        pass  # it is dead, and its missing answer says so
