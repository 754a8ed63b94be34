"""The command line: one file a command; nothing but parsing and printing."""

from linnet.cli.app import main

__all__ = ["main"]
