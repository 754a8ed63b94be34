"""The command line: a command parses, calls a room, and prints."""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code, which is 130 after Ctrl-C, also while the commands are still being loaded."""
    try:
        try:
            from linnet.cli import app
        except ImportError as error:  # a package that every command needs
            import sys

            from linnet.cli.doctor import broken_install

            return broken_install(sys.argv[1:] if arguments is None else arguments, error)
        return app.main(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments is None:  # a Ctrl-C that comes while the interpreter shuts down ends the process at once
            import signal

            signal.signal(signal.SIGINT, signal.SIG_DFL)
