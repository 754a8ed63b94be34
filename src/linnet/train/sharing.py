"""A machine that others use too: how torch's threads wait for each other there. Without torch, which comes after."""

from __future__ import annotations

import os
import sys

_POLICY = "OMP_WAIT_POLICY"


def wait_asleep_where_shared() -> None:
    """Before torch is loaded: threads that wait give their core away, if others already keep half of the cores busy.

    By default a thread waits awake for some milliseconds. Alone that is quicker by a few per cent; beside other work it
    keeps the core from the very thread it waits for, and a step takes two to four times as long (docs/log.md).
    """
    if "torch" in sys.modules or _POLICY in os.environ or not hasattr(os, "getloadavg"):
        return
    if os.getloadavg()[0] >= 0.5 * (os.cpu_count() or 1):
        os.environ[_POLICY] = "PASSIVE"


def waits_asleep() -> bool:
    """Was that chosen, here or by the user?"""
    return os.environ.get(_POLICY, "").upper() == "PASSIVE"
