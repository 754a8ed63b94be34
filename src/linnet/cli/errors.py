"""What is wrong, in one line that says what to do: with a command line, a config file, the machine's memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Literal, get_args, get_origin

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    Token,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from linnet.errors import is_out_of_memory, near_words

_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}


def explain(error: CycloptsError, app: App) -> str:
    """The error in the user's terms."""
    command = " ".join(error.command_chain or ())
    linnet = f"linnet {command}".rstrip()
    match error:
        case UnusedCliTokensError():
            words = " ".join(error.unused_tokens or ())
            return f"{command}: unexpected arguments: {words} (put words that belong together in quotes)"
        case MissingArgumentError(argument=argument) if argument is not None:
            missing = f"{error.keyword} needs a value" if error.keyword else f"{argument.name} is missing"
            return f"{command}: {missing}; `{linnet} --help` has examples"
        case UnknownOptionError():
            return _unknown_option(error, app, command)
        case UnknownCommandError() if error.unused_tokens and error.unused_tokens[0].startswith("-"):
            return _option_before_command(list(error.unused_tokens), app, linnet)
        case RepeatArgumentError():
            return f"{_name(error.token)} is given more than once"
        case CoercionError(token=token, target_type=target) if token is not None and target in _EXPECTED:
            return f"{_name(token)} {token.value!r}: expected {_EXPECTED[target]}"
        case CoercionError(token=token, target_type=target) if token is not None and get_origin(target) is Literal:
            return f"{_name(token)} {token.value!r}: choose from {', '.join(map(str, get_args(target)))}"
    return str(error)


def _option_before_command(tokens: list[str], app: App, linnet: str) -> str:
    """An option that stands before the command it is for; where that comes later, the line as it is meant."""
    first = 2 if tokens[0] == "--runs" else 1  # behind its value, which may be called as a command is: ./runs
    commands = [at for at, token in enumerate(tokens) if at >= first and not token.startswith("-") and token in app]
    at = commands[0] if commands else None
    if at is None:
        wrong = f"unexpected option {tokens[0]} before a command"
        return f"{wrong}: options come after it; `{linnet} --help` lists commands"
    meant = shlex.join([*linnet.split(), *tokens[at:], *tokens[:at]])
    return f"{tokens[0]} goes after the command: {meant}"


def _name(token: Token) -> str:
    """A flag as it was written: on the command line, or as a key of a file."""
    name = token.keyword or "an argument"
    return name if token.source == "cli" else f"--config {token.source}: {name.strip('[]')} ="


def _unknown_option(error: UnknownOptionError, app: App, command: str) -> str:
    token = error.token
    name = (token.keyword or token.value).strip("[]").partition("=")[0]
    wrong = f"Unknown option: {name}." if token.source == "cli" else f"--config {token.source}: unknown key {name!r}."
    flag = f"--{name.lstrip('-').replace('_', '-')}"
    hints = []
    known = {flag.lstrip("-"): flag for flag in _flags(app, command)}
    if close := near_words(flag.lstrip("-"), known, cutoff=0.65):
        hints.append(f"Did you mean {known[close[0]] if token.source == 'cli' else close[0].replace('-', '_')}?")
    if owners := [f"`linnet {other}`" for other in _commands_beside(command, app) if flag in _flags(app, other)]:
        if not command.startswith("train ") and any(flag in _flags(app, other) for other in _commands_of("train", app)):
            owners.append("`linnet train`")
        *others, last = owners
        hints.append(f"It belongs to {', '.join(others)} and {last}." if others else f"It belongs to {last}.")
    return " ".join([wrong, *(hints or [f"`linnet {command} --help` lists them."])])


def _commands_beside(command: str, app: App) -> Iterable[str]:
    """The other commands of a group: the other recipes of `train`."""
    group = command.rpartition(" ")[0]
    return [name for name in _commands_of(group, app) if name != command] if group else []


def _commands_of(group: str, app: App) -> list[str]:
    return [f"{group} {name}" for name in app[group] if not name.startswith("-")]


def _flags(app: App, command: str) -> set[str]:
    """The options of a command."""
    for name in command.split():
        app = app[name]
    return {name for argument in app.assemble_argument_collection() for name in argument.names if name[:2] == "--"}


def out_of_memory(error: BaseException) -> str | None:
    """One line about an error that means there was too little memory; None for any other error."""
    if not is_out_of_memory(error):
        return None
    first = next(iter(str(error).splitlines()), "").strip()
    # "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried …"
    detail = first[max(0, first.find("DefaultCPUAllocator")) :]
    line = "there is not enough memory for this: take less at once (a smaller model, batch, context or file)"
    return f"{line}; {detail[:200]}" if detail else line
