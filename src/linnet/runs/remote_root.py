"""A folder of runs in a store (`--runs s3://bucket/runs`): what its runs say, fetched to be read here.

Descriptions and events are fetched, once in a process and only where they have changed; checkpoints and artifacts stay
where they are. `linnet resume s3://bucket/runs/RUN` fetches a run whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from linnet.files import write_file
from linnet.remote import RemoteError, Store
from linnet.runs.folder import EVENTS, FLOW, MANIFEST

_VERSIONS = ".versions.json"
_AT_ONCE = 8


@cache
def fetched_root(url: str) -> Path:
    """A folder here with the runs of a store, as they are now."""
    store = Store(url)
    base = Path(os.environ.get("LINNET_CACHE") or _own_temporary_folder())
    root = base / "runs" / hashlib.blake2b(url.encode(), digest_size=12).hexdigest()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    versions: dict[str, str] = {}
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        versions = msgspec.json.decode((root / _VERSIONS).read_bytes(), type=dict[str, str])
    wanted = {name: f"{file.size} {file.version}" for name, file in store.files().items() if _is_description(name)}
    stale = [name for name, version in wanted.items() if versions.get(name) != version or not (root / name).exists()]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda name: store.download(name, root / name), stale))
    for name in versions.keys() - wanted.keys():
        (root / name).unlink(missing_ok=True)
    with suppress(OSError):
        write_file(root / _VERSIONS, msgspec.json.encode(wanted), sync=False)
    return root


def _own_temporary_folder() -> Path:
    """A folder among the temporary files, always the same, that nobody else can write to.

    Its name can be told before, so on a machine of many people another may have made it.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(tempfile.gettempdir()) / f"linnet-runs-{user}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    facts = path.lstat()
    if hasattr(os, "getuid") and not (stat.S_ISDIR(facts.st_mode) and facts.st_uid == user):
        raise RemoteError(f"{path} belongs to somebody else: name a folder of yours for what is fetched, $LINNET_CACHE")
    path.chmod(0o700)
    return path


def _is_description(name: str) -> bool:
    """Is this `RUN/run.json`, or what stands beside it?"""
    folder, _, file = name.rpartition("/")
    return file in (MANIFEST, EVENTS, FLOW) and bool(folder) and "/" not in folder and folder not in (".", "..")
