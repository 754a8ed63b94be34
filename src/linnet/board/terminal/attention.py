"""`AttentionRequest`: what the heads of a run's model look at in a prompt, while nobody who draws waits for it."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

from linnet.board.attention_answer import (
    LINNET,
    AttentionAnswer,
    attention_command,
    attention_environment,
    attention_error,
    can_attend,
    read_attention,
)
from linnet.board.watched_run import WatchedRun


def newest_checkpoint(watched: WatchedRun) -> Path | None:
    """A run's newest checkpoint of a model of text; None where there is none."""
    return watched.run.checkpoints()[-1] if not watched.gone and can_attend(watched.run) else None


class AttentionRequest:
    """`linnet attention` for a prompt, started at once; `answer` or `trouble` come when it has ended.

    - `file`: the checkpoint. `began`: by the monotonic clock. `linnet`: how the command line is started.
    """

    def __init__(self, file: Path, prompt: str, linnet: tuple[str, ...] = LINNET) -> None:
        self.file, self.prompt = file, prompt
        self.answer: AttentionAnswer | None = None
        self.trouble = ""
        self.began = time.monotonic()
        self._command = attention_command(file, prompt, linnet)
        self._told = self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        # A thread: its pipes have to be emptied while it computes.
        self._thread = threading.Thread(target=self._wait, name="linnet-board-attention", daemon=True)
        self._thread.start()

    @property
    def computes(self) -> bool:
        """It has not ended."""
        return self.answer is None and not self.trouble

    def has_news(self) -> bool:
        """Has it ended since this was last asked?"""
        if self.computes or self._told:
            return False
        self._told = True
        return True

    def stop(self) -> None:
        """Have the process end; nothing comes of it any more."""
        self._stopped = True
        if (process := self._process) is not None and process.poll() is None:
            process.terminate()

    def _wait(self) -> None:
        pipe = subprocess.PIPE
        try:
            self._process = process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=attention_environment()
            )
        except (OSError, ValueError) as error:  # a prompt with a null character
            self.trouble = f"linnet attention did not start: {error}"
            return
        if self._stopped:
            process.terminate()
        printed, stderr = process.communicate()
        answer = read_attention(printed) if process.returncode == 0 else None
        if answer is None:
            self.trouble = attention_error(stderr)
        self.answer = answer
