"""Completion by the shell: `linnet --install-completion`, and what a RUN or a MODEL may be completed to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from linnet.board import words
from linnet.errors import LinnetError, UsageError

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from linnet.runs import RunStore

_STARTUP = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": ""}  # where a line is put that loads it
# A zsh as a Mac has it completes nothing by scripts: the last line of its start begins that where nobody else did.
_ZSH_BEGINS = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }  # completion by scripts"


def install_completion(*, shell: Literal["bash", "zsh", "fish"] | None = None, show: bool = False) -> int:
    """Let the shell complete commands, flags, runs and checkpoints.

    Args:
        shell: bash, zsh or fish; without it, the one this is called from.
        show: Print the script instead of installing it.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    from linnet.cli.app import build_app

    app = build_app()
    try:
        chosen = shell or detect_shell()
    except ShellDetectionError:
        raise UsageError("this shell is not known: say --shell bash, zsh or fish") from None
    if chosen == "powershell":
        raise UsageError("completion is for bash, zsh and fish: say --shell")
    if show:
        print(app.generate_completion(shell=chosen))
        return 0
    try:
        path = app.install_completion(shell=chosen, add_to_startup=bool(_STARTUP[chosen]))
        if chosen == "zsh":
            _begin_completion(Path(_STARTUP[chosen]).expanduser())
    except OSError as error:
        raise LinnetError(f"{error.filename}: {error.strerror or error}; `show` prints the script") from None
    loaded = f", loaded by {_STARTUP[chosen]}" if _STARTUP[chosen] else ""
    print(f"{words.plain(path)}: completion for {chosen}{loaded}. Open a new shell to use it.")
    return 0


def _begin_completion(startup: Path) -> None:
    """Let a zsh complete by scripts; where a line or a framework does so already, the one added here does nothing."""
    text = startup.read_bytes() if startup.exists() else b""
    line = f"{_ZSH_BEGINS}\n".encode()
    if line not in text:
        with startup.open("ab") as opened:
            opened.write(line if not text or text.endswith(b"\n") else b"\n" + line)


def complete_run(context: CompletionContext) -> list[str]:
    """The runs of the folder of runs, and `latest`."""
    return ["latest", *(folder.name for folder in _store(context).folders())]


def complete_model(context: CompletionContext) -> list[str]:
    """The same, a run's checkpoints behind an `@`, and the GGUF files and folders that a path may go on with."""
    reference, at, _ = context.incomplete.rpartition("@")
    if at:
        run = _store(context).find(reference)
        steps = [path.stem.removeprefix("step_") for path in run.checkpoints()]
        return [f"{reference}@{which}" for which in ("latest", "best", *steps)]
    return [*complete_run(context), *_paths(context.incomplete)]


def _store(context: CompletionContext) -> RunStore:
    from linnet.runs import RunStore

    try:
        runs = context["--runs"].value
    except KeyError:
        runs = None
    return RunStore(runs if isinstance(runs, str | Path) else None)


def _paths(incomplete: str) -> Iterator[str]:
    before, slash, _ = incomplete.rpartition("/")
    folder = Path(before + slash).expanduser() if slash else Path()
    try:
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.name.startswith("."):
                yield f"{before}{slash}{entry.name}/"
            elif entry.name.endswith(".gguf"):
                yield f"{before}{slash}{entry.name}"
    except OSError:
        return
