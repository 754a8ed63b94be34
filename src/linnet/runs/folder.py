"""A run's folder: the names of what lies in it, its id, and how a new one is claimed.

Readers import these names, so nothing here loads the writer, or `logging`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from linnet.errors import UsageError
from linnet.files import is_staged

EVENTS = "events.jsonl"
MANIFEST = "run.json"
FLOW = "flow.json"
WEIGHTS = "weights"
STATE = "state"
ARTIFACTS = "artifacts"
CACHE = ".cache"
LOGGED_MEDIA = "artifacts/media"  # images, tables …, each under its SHA-256
MEDIA = "media"  # munin's

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

ID_TEMPLATE = "{arch}-{date}-{seq}"
_TOKENS = ("arch", "recipe", "date", "time", "seq", "hex", "experiment")
_LONGEST = 40  # characters of one label in an id
_ATTEMPTS = 1000


def is_leftover(subfolder: str, name: str) -> bool:
    """Is a file of this name what a killed writer leaves in `weights`, `state` or (`""`) the run folder itself?"""
    return subfolder in LEFTOVERS and (is_staged(name) or _fits(name, LEFTOVERS[subfolder]))


def belongs(name: str) -> bool:
    """Is this the name of something that a writer of runs puts into a run folder?"""
    return name in (MANIFEST, EVENTS, FLOW, *SUBFOLDERS) or is_leftover("", name) or _fits(name, _LITTER)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def runs_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the runs: the one given, else `$LINNET_RUNS`, else `./runs`.

    Of a URL, such as `s3://bucket/runs`: a folder with what its runs say, fetched when it is asked for first.
    """
    root = given or os.environ.get("LINNET_RUNS") or "runs"
    if (url := root_url(root)) is not None:
        from linnet.runs.remote_root import fetched_root

        return fetched_root(url)
    return Path(root)


def root_url(root: str | os.PathLike[str]) -> str | None:
    """The URL that a folder of runs is named by; None for a folder. As a path it has lost one of its slashes."""
    match = re.match(r"([a-z][a-z0-9+.-]+):/(/?[^/].*)", os.fspath(root), re.DOTALL)
    return None if match is None else f"{match[1]}://{match[2].removeprefix('/')}"


def require_writable(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of runs; a UsageError when it cannot be written or made. Nothing is made yet."""
    if (url := root_url(given or os.environ.get("LINNET_RUNS") or "")) is not None:
        raise UsageError(f"runs are written to a disk: give a folder with `runs`; `mirror={url}` copies them there")
    root = runs_folder(given)
    folder = next((part for part in (root, *root.absolute().parents) if part.exists()), root)
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return root
    reason = "cannot be written" if folder.is_dir() else "is no folder"
    raise UsageError(f"runs cannot be kept in {root}: {folder} {reason}; choose another folder with `runs`")


def absolute(root: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder: the program may change its own later (`os.chdir`)."""
    try:
        return Path(root).absolute()
    except OSError:  # the working directory is gone
        return Path(root)


def safe_name(text: str) -> str:
    """Make `text` fit to be (part of) a folder's name on any file system."""
    return re.sub(r"[^\w.+=@-]+", "-", text, flags=re.ASCII).strip("-.")[:200]


def check_template(template: str) -> None:
    """Refuse a template with a token that does not exist."""
    for token in re.findall(r"{([^}]*)}", template):
        if token not in _TOKENS:
            known = " ".join(f"{{{name}}}" for name in _TOKENS)
            raise UsageError(f"run id template {template!r}: {{{token}}} is not a token; known are {known}")


def propose_id(root: Path, template: str, labels: Mapping[str, str], skip: int = 0) -> str:
    """Fill a template in for this moment. `{seq}` is one more than the largest number among today's runs,
    and `skip` more when those were taken meanwhile."""
    check_template(template)
    now = time.localtime()
    date = time.strftime("%Y%m%d", now)
    words = {token: safe_name(labels.get(token, ""))[:_LONGEST] for token in _TOKENS}
    words |= {"date": date, "time": time.strftime("%H%M%S", now), "hex": os.urandom(2).hex(), "seq": ""}
    if "{seq}" in template:
        words["seq"] = f"{_largest_today(root, date) + 1 + skip:03d}"
    return safe_name(re.sub(r"{(\w+)}", lambda token: words[token[1]], template)) or "run"


def claim_folder(root: Path, template: str, labels: Mapping[str, str]) -> Path:
    """Make a new folder from the template; when another start takes the same name first, take the next.

    Raises OSError when the root cannot be written.
    """
    root.mkdir(parents=True, exist_ok=True)
    if "{seq}" not in template and "{hex}" not in template:
        return claim_named(root, propose_id(root, template, labels))
    for attempt in range(_ATTEMPTS):
        folder = root / propose_id(root, template, labels, skip=attempt)
        if _make(folder):
            return folder
    return claim_named(root, folder.name)


def claim_named(root: Path, run_id: str) -> Path:
    """Make the folder `run_id`, or `run_id-2`, `-3` … when it is taken."""
    root.mkdir(parents=True, exist_ok=True)
    base = safe_name(run_id) or "run"
    folders = (root / (base if number == 1 else f"{base}-{number}") for number in count(1))
    return next(folder for folder in folders if _make(folder))


def claim_or_name(root: Path, run_id: str | None, template: str, labels: Mapping[str, str]) -> Path:
    """Make a new folder, of that id or from the template; when the root cannot be written, the name it would have."""
    check_template(template)
    try:
        return claim_folder(root, template, labels) if run_id is None else claim_named(root, run_id)
    except OSError:
        return root / (propose_id(root, template, labels) if run_id is None else safe_name(run_id) or "run")


def _make(folder: Path) -> bool:
    """Make a folder that is not there: exclusively, so two starts never share one."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _largest_today(root: Path, date: str) -> int:
    try:
        names = [name for name in os.listdir(root) if date in name]  # noqa: PTH208 - names alone are wanted
    except OSError:
        return 0
    numbers = (re.search(r"(?<!\d)\d{3,5}$", name) for name in names)  # six digits at the end are a time of day
    return max((int(digits[0]) for digits in numbers if digits), default=0)
