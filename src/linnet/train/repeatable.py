"""The same bits every time on a GPU: torch is told to refuse operations whose sums have no fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import deterministic as torch_settings

from linnet.errors import UsageError

_WORKSPACE, _WORKSPACES = "CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8")


def set_up_cublas() -> None:
    """Ask cuBLAS for workspaces with which it repeats itself, where the user has not; it looks at its first product."""
    chosen = os.environ.setdefault(_WORKSPACE, _WORKSPACES[0])
    if chosen not in _WORKSPACES:
        raise UsageError(
            f"`deterministic` needs {_WORKSPACE} to be {' or '.join(_WORKSPACES)}, found {chosen!r}: unset it"
        )


@contextmanager
def refuse_unordered(refuse: bool) -> Iterator[None]:
    """While it is on, torch takes the ordered form of an operation, and one that has none is an error."""
    if not refuse:
        yield
        return
    settings: Any = torch_settings
    mode, fill = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    settings.fill_uninitialized_memory = False  # what is read was written before: no time for that
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise UsageError(f"`deterministic`: {_reason(str(error))}") from error
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = fill


def _reason(message: str) -> str:
    """What to do about an error of torch's, in a line."""
    if _WORKSPACE in message:  # it was looked at before a run asked for it
        return f"the GPU was in use before in this program: start Python with {_WORKSPACE}={_WORKSPACES[0]}"
    operation = message.split(" does not have a deterministic implementation")[0].split()[-1]
    return f"{operation} has no form that gives the same bits every time; leave the flag out, or use another operation"
