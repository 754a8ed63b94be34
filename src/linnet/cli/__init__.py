"""The command line: one file a command; nothing but parsing and printing."""

from linnet.cli.process import main

__all__ = ["main"]
