"""`linnet help`: what `--help` prints, for who types it first."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def help(
    *command: Annotated[str, Parameter(help="A command, as in: train from-scratch; without, all.")],
) -> int:
    """Show what a command does, its flags and examples of it."""
    from linnet.cli.app import main

    return main([*command, "--help"])
