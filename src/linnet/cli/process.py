"""The process of a command: Ctrl-C ends it without a traceback, also while the commands are still being loaded."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code, which is 130 after Ctrl-C."""
    try:
        from linnet.cli import app

        return app.main(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments is None:
            _end_quietly()


def _end_quietly() -> None:
    """A Ctrl-C that comes while the interpreter puts itself away ends the process at once."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
