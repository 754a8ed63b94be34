"""Work that is done ahead on a thread of its own, so that whoever asks for it next does not wait."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Prefetch(Generic[Key, Result]):
    """Calls `work` for keys before they are asked for, one after the other.

    What is asked for and was not foreseen is done at once, on the caller's thread. What `work` raises, `take` raises.
    """

    def __init__(self, work: Callable[[Key], Result]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="linnet-prefetch")
        self._ahead: dict[Key, Future[Result]] = {}

    def take(self, key: Key, following: Iterable[Key]) -> Result:
        """The result of `key`; the `following` are worked on from here on, and what else was foreseen is dropped."""
        under_way = self._ahead.pop(key, None)
        wanted = list(following)
        for other in [other for other in self._ahead if other not in wanted]:
            self._ahead.pop(other).cancel()
        try:
            return self._work(key) if under_way is None else under_way.result()
        finally:
            for other in wanted:
                if other not in self._ahead:
                    self._ahead[other] = self._thread.submit(self._work, other)

    def close(self) -> None:
        """Drop what is foreseen; the thread ends."""
        self._ahead.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)
