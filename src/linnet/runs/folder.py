"""The names of what lies in a run folder, and what killed writers leave in it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from linnet.files import is_staged

EVENTS = "events.jsonl"
MANIFEST = "run.json"
FLOW = "flow.json"
WEIGHTS = "weights"
STATE = "state"
ARTIFACTS = "artifacts"
CACHE = ".cache"
MEDIA = "media"  # munin's

ENTRIES = (MANIFEST, EVENTS, FLOW, WEIGHTS, STATE, ARTIFACTS, CACHE, MEDIA)
SUBFOLDERS = (WEIGHTS, STATE, ARTIFACTS, CACHE, MEDIA)

# What a writer of an older version that was killed leaves behind besides staged files, by folder ("" is the run's own);
# `.tmpXXXXXX` is how safetensors names a file that it has not finished.
LEFTOVERS = {
    "": (".run.json.*", ".flow.json.*"),
    WEIGHTS: (".*.tmp",),
    STATE: (".*.tmp", ".tmp??????"),
}
# What file managers and network file systems put into any folder.
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini", ".nfs*", "._*")


def is_leftover(subfolder: str, name: str) -> bool:
    """Is a file of this name what a killed writer leaves in `weights`, `state` or (`""`) the run folder itself?"""
    if subfolder not in LEFTOVERS:
        return False
    return is_staged(name) or any(fnmatchcase(name, pattern) for pattern in LEFTOVERS[subfolder])


def belongs(name: str) -> bool:
    """Is this the name of something that a writer of runs puts into a run folder?"""
    return name in ENTRIES or is_leftover("", name) or any(fnmatchcase(name, pattern) for pattern in _LITTER)
