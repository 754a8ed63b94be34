"""Memory that a step frees and the next one wants again, on a CPU."""

from __future__ import annotations

import ctypes
import functools
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # glibc's names for them, from malloc.h
_LARGEST = 32 << 20  # the highest threshold glibc takes


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc hold on to what is freed; were it to go back to the system, each step would get it page by page anew.

    For 15M parameters and 2,048 tokens that is 100,000 page faults a step, 7 % of its time (docs/log.md). Elsewhere
    than on Linux with glibc nothing is done.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = {_MMAP_THRESHOLD: _LARGEST, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 << 20}
    return all(mallopt(name, value) == 1 for name, value in wanted.items())
