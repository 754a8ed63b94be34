"""Where a run comes from: command, versions, machine, git. No environment dump, and no secrets."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from linnet import files
from linnet.runs.encode import safe_text

_PACKAGES = "linnet torch numpy tokenizers safetensors transformers peft lightning jax flax mlx tinygrad scikit-learn"
_SECRET_NAME = re.compile(
    r"(^|[_\-.])(api[_-]?key|(secret|private|access|signing|encryption|ssh)[_-]?key|secret|passw(or)?d|passphrase|"
    r"credentials?|(auth|access|api|hf|hub|wandb|github|gitlab|bearer|refresh|session|bot)[_-]?token)$|^(auth|token)$",
    re.IGNORECASE,
)  # not pad_token, eos_token and their like: those are the tokenizer's
_SECRET_VALUE = re.compile(
    r"(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abpr]-|AKIA|AIza)[A-Za-z0-9_\-]{12,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+"
)
_URL_PASSWORD = re.compile(r"(\w+://[^/\s:@]*:)[^/\s@]+@")
MASK = "***"
_DEEPEST = 16


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line fit to be kept: the values of arguments that look like secrets are masked."""
    kept: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            kept.append(MASK)
        elif equals and _SECRET_NAME.search(name.lstrip("-")):
            kept.append(f"{name}={MASK}")
        else:
            kept.append(_mask_text(argument))
        hide_next = argument.startswith("-") and not equals and bool(_SECRET_NAME.search(argument.lstrip("-")))
    return kept


def mask_labels(labels: Sequence[str]) -> list[str]:
    """Names and tags fit to be kept: each is masked like a word of a command line."""
    return [mask_arguments([safe_text(label)])[0] for label in labels]


def mask_config(config: Mapping[str, object], exact: Collection[str] = ()) -> dict[str, object]:
    """A configuration fit to be kept: secrets are masked, at any depth; the fields named in `exact` stay as they are.

    A secret is a text under a name that says so, one that looks like a token from end to end, and the password of a
    URL. What only contains such a text, as a path may (`data/hf_wikipedia_en.txt`), is none: it may be read back.
    """
    return {
        safe_text(name): value if name in exact else _mask_entry(safe_text(name), value, 0)
        for name, value in config.items()
    }


def _mask_entry(name: str, value: object, depth: int) -> object:
    if isinstance(value, str):
        if (value and _SECRET_NAME.search(name)) or _SECRET_VALUE.fullmatch(value):
            return MASK
        return _URL_PASSWORD.sub(rf"\1{MASK}@", value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {safe_text(key): _mask_entry(safe_text(key), inner, depth + 1) for key, inner in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [_mask_entry(name, inner, depth + 1) for inner in value]
    return value


def _mask_text(text: str) -> str:
    return _URL_PASSWORD.sub(rf"\1{MASK}@", _SECRET_VALUE.sub(MASK, text))


def host() -> dict[str, str]:
    """The machine as `run_start` names it."""
    import platform  # here, as below: who only reads runs does without, and is 30 ms sooner
    import socket

    return {"name": socket.gethostname(), "os": platform.system().lower(), "arch": platform.machine()}


@cache
def boot_id() -> str:
    """An id that changes when the machine boots; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "kern.bootsessionuuid"]).strip()
    return ""


def backend() -> str:
    """`cuda`, `metal` or `cpu`, from what is in use already; a device is never woken for it."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            return "cuda"
        if torch is not None and torch.backends.mps.is_available() and torch.mps.current_allocated_memory() > 0:
            return "metal"
    except Exception:  # a torch built without these parts
        pass
    return "cpu"


def git(folder: Path | None = None) -> dict[str, object]:
    """Commit, branch and whether tracked files differ from it; empty outside a repository."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    status = _output(command, folder)
    if not status:
        return {}
    commit: dict[str, object] = {"sha": "", "branch": "", "dirty": False}
    for line in status.splitlines():
        if line.startswith("# branch.oid "):
            commit["sha"] = line.split(" ", 2)[2].replace("(initial)", "")
        elif line.startswith("# branch.head "):
            commit["branch"] = line.split(" ", 2)[2]
        elif not line.startswith("#"):
            commit["dirty"] = True
    return commit


def gather() -> dict[str, object]:
    """Everything the manifest keeps of a run's origin."""
    import platform

    machine = host()
    return {
        "command": mask_arguments([sys.executable, *sys.argv]),
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "host": machine["name"],
        "os": machine["os"],
        "arch": machine["arch"],
        "cpus": os.cpu_count() or 0,
        "pid": os.getpid(),
        "boot_id": boot_id(),
        "lock": "flock" if files.LOCKS else "none",
        "git": git(),
    }


@cache
def _versions() -> Mapping[str, str]:
    """Of the packages that numbers may depend on; read once, since a process keeps what it has loaded."""
    from importlib import metadata

    versions = {}
    for name in _PACKAGES.split():
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _output(command: list[str], folder: Path | None = None) -> str:
    """What a command prints; empty when it fails."""
    import subprocess

    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=2, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
