"""The process of a command: how it ends when it is interrupted before the command itself can say so."""

from __future__ import annotations

import signal
from contextlib import suppress


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code. Ctrl-C is 130 from the first moment on, also while the commands are loaded."""
    try:
        from linnet.cli import app

        return app.main(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments is None:  # this process is the command's: a Ctrl-C while it is put away ends it without a word
            with suppress(ValueError):
                signal.signal(signal.SIGINT, signal.SIG_DFL)
