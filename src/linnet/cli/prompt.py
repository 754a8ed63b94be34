"""The text of `--prompt` and `--prompt-file`: as it is given, out of a file, or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from linnet.errors import UsageError
from linnet.infer.text_options import require_utf8

_MOST_BYTES = 64 << 20  # more than any context holds

Prompt = Annotated[
    str | None,
    Parameter(
        help="The text to go on from; -: what standard input holds; without one the model begins by itself.",
        allow_leading_hyphen=True,
    ),
]
PromptFile = Annotated[
    str | None, Parameter(help="A file with the prompt, in UTF-8; -: standard input.", allow_leading_hyphen=True)
]


def read_prompt(prompt: str | None, file: str | None) -> str | None:
    """The prompt that was asked for; of a file and of standard input without the line end that an editor puts last."""
    if prompt is not None and file is not None:
        raise UsageError("--prompt and --prompt-file exclude each other: give one of them")
    if file is None and prompt != "-":
        if prompt is not None:
            require_utf8(prompt, "--prompt")
        return prompt
    if file in (None, "-"):
        return _decoded(_standard_input(), "standard input")
    assert file is not None
    with Path(file).open("rb") as opened:
        return _decoded(_bounded(opened, file), file)


def _standard_input() -> bytes:
    if sys.stdin.isatty():
        print("linnet: type the prompt, and Ctrl-D on a line of its own at its end", file=sys.stderr)
    return _bounded(sys.stdin.buffer, "standard input")


def _bounded(stream: BinaryIO, name: str) -> bytes:
    content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{name} holds more than {_MOST_BYTES >> 20} MB, and no model reads so long a prompt")
    return content


def _decoded(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: expected text in UTF-8, found another byte at {error.start:,}") from None
    return text.removesuffix("\n").removesuffix("\r")
