"""The advisory lock by which a writer shows that it lives.

`flock` belongs to the open file, so the kernel drops it the instant the writer dies, however it dies.
Where there is no such lock (Windows, some network mounts) status falls back to the age of the last event.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType

from linnet.runs.place import open_regular

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

AVAILABLE = fcntl is not None
_READER_GLANCE = 0.25  # seconds a writer waits for a reader that is testing the lock just now


def take(fd: int) -> bool | None:
    """Lock an open stream for writing. False: another writer holds it. None: no lock is to be had here."""
    if fcntl is None:
        return None
    deadline = time.monotonic() + _READER_GLANCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        except OSError:
            return None


def is_held(path: str | Path) -> bool | None:
    """Does a living writer hold this stream? None: it cannot be told."""
    if fcntl is None:
        return None
    try:
        fd = open_regular(path)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
