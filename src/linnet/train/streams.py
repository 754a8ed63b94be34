"""`run_concurrently`: pieces of work that do not need each other, on a GPU at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import torch

Work = Callable[[], None]


def run_concurrently(works: Mapping[str, Work], device: torch.device) -> None:
    """Do the first work on the current stream and each other one on the stream of its name; all wait for all.

    A graph that is being captured takes it so. Elsewhere than on a GPU one follows the other.
    """
    if device.type != "cuda":
        for work in works.values():
            work()
        return
    current = torch.cuda.current_stream(device)
    (first, *others), aside = works.values(), [_stream(device, name) for name in list(works)[1:]]
    for stream in aside:
        stream.wait_stream(current)
    first()
    for work, stream in zip(others, aside, strict=True):
        with torch.cuda.stream(stream):
            work()
    for stream in aside:
        current.wait_stream(stream)


@cache
def _stream(device: torch.device, name: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
