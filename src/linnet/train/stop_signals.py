"""Ctrl-C, SIGTERM and SIGHUP as a request: the step under way ends first, and a checkpoint is taken."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """Listens while its `with` block runs, the last save and the end of the run's folder included.

    - `caught`: the first signal that came; None: go on.

    A second Ctrl-C does not wait (KeyboardInterrupt). A second SIGTERM or SIGHUP changes nothing: a scheduler and a
    closing terminal send several. A signal that the process was started to ignore (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # handlers can be set there alone
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
