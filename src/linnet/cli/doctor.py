"""`linnet doctor`: what is installed here, what is missing, and the line that installs it.

It needs nothing but Python itself, and loads other packages in a process of their own: it is for the day on which
one of them is missing, broken, or ends the process that loads it.
"""

from __future__ import annotations

import importlib.metadata
import json as encoder
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["ok", "missing", "broken"]

# What each extra is for; docs/i-want-to.md and README have the same table.
_ALL = "all"
EXTRAS = {
    "train": "training, generation, evaluation; images too",
    "vision": "image files, and the digits that vit-tiny learns by itself",
    "documents": "text out of PDF, in other encodings, packed as .zst",
    "parquet": "Parquet files as a corpus",
    "s3": "corpora and mirrors in s3://",
    "gs": "corpora and mirrors in gs://",
    "hf": "corpora and mirrors in hf://",
    "remote": "these three",
    "notebook": "metrics as a DataFrame of pandas",
    "web": "the board in the browser",
    "serve": "a model behind an HTTP API: linnet serve",
    _ALL: "all of these",
}
_BASE = ("cyclopts", "docstring_parser", "msgspec", "numpy", "psutil", "rich", "textual", "tsdownsample")
_COMPILERS = ("cc", "gcc", "clang")
_PROBE_SECONDS = 120
_MARKS = {"ok": "+", "missing": "-", "broken": "!"}
_NAME = 16  # letters of the longest name
_LOW_SPACE = 2 << 30

# Each package by itself: one that cannot be loaded says so, and the others are still looked at.
_PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
        facts = {"version": str(getattr(module, "__version__", ""))}
        if name == "torch":
            facts["cuda"] = module.version.cuda or module.version.hip
            facts["mps"] = bool(module.backends.mps.is_available())
            count = module.cuda.device_count() if module.cuda.is_available() else 0
            devices = [module.cuda.get_device_properties(index) for index in range(count)]
            facts["devices"] = [[device.name, device.total_memory] for device in devices]
            facts["threads"] = module.get_num_threads()
    except BaseException as error:
        facts = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps([name, facts]), flush=True)
"""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `ok`, `missing` (nothing depends on it), or `broken` (something does)."""

    group: str
    name: str
    state: State
    value: str
    advice: str = ""


def doctor(*, json: bool = False) -> int:
    """Say what is installed here, what is missing, and the line that installs it.

    Exit code 1 only when something that is needed does not work.

    Args:
        json: As JSON, for other programs.
    """
    checks: list[Check] = []
    for check in _checks():  # torch takes seconds: what is known is shown meanwhile
        if not json:
            _print_check(check, is_first=not checks or checks[-1].group != check.group)
        checks.append(check)
    broken = [check for check in checks if check.state == "broken"]
    if json:
        print(encoder.dumps({"sound": not broken, "checks": [asdict(check) for check in checks]}, indent=2))
        return int(bool(broken))
    print()
    if broken:
        print(f"{len(broken)} of these {'is' if len(broken) == 1 else 'are'} broken (!): see the lines below them.")
    else:
        print("Linnet works here. What has a - is not needed until you ask for it.")
    return int(bool(broken))


def _print_check(check: Check, is_first: bool) -> None:
    """One check; the first of a group with the group's name above it."""
    if is_first:
        print(f"\n{check.group}", flush=True)
    _print_wrapped(f"  {_MARKS[check.state]} {check.name:<{_NAME}} ", check.value)
    if check.advice:
        _print_wrapped(" " * (_NAME + 5), check.advice)


def _print_wrapped(label: str, text: str) -> None:
    """A line that begins with `label`; in a narrow terminal its rest below the text."""
    columns = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 10_000
    layout = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(_harmless(text), max(30, columns - len(label) - 1), **layout) or [""]  # type: ignore[arg-type]
    print(f"\n{' ' * len(label)}".join([f"{label}{lines[0]}", *lines[1:]]))


def broken_install(arguments: list[str], error: ImportError) -> int:
    """The command, where the packages that it is made with cannot be loaded: the doctor, or one line."""
    if arguments[:1] == ["doctor"]:
        return doctor(json="--json" in arguments)
    reason = " ".join(_harmless(str(error)).split())
    repair = "pip install --force-reinstall linnet"
    print(f"linnet: cannot start: {reason}; `linnet doctor` says more, `{repair}` may repair it", file=sys.stderr)
    return 1


def _checks() -> Iterator[Check]:
    """All checks; one that fails itself is a line like the others."""
    for group, look in (
        ("This machine", _machine),
        ("Linnet needs", _base_packages),
        ("Extras", _extras),
        ("Devices and compilers", _devices),
        ("Folders", _folders),
        ("Shell", _shell),
    ):
        try:
            yield from (Check(group, *check) for check in look())
        except Exception as error:  # whatever is wrong with this machine, the other checks are wanted all the more
            yield Check(group, "this check", "missing", f"could not be made: {type(error).__name__}: {error}")


_Found = tuple[Any, ...]


def _machine() -> Iterator[_Found]:
    from linnet import __version__

    yield "linnet", "ok", f"{__version__} in {Path(__file__).parents[1]}"
    version, is_old = platform.python_version(), sys.version_info < (3, 11)
    advice = "Linnet needs Python 3.11 or newer" if is_old else ""
    yield "python", "broken" if is_old else "ok", f"{version} at {sys.executable}", advice
    yield "system", "ok", f"{platform.system()} {platform.release()} on {platform.machine()}, {os.cpu_count()} cores"


def _base_packages() -> Iterator[_Found]:
    for name, state in _probe(_BASE).items():
        if "error" in state:
            yield name, "broken", state["error"], "pip install --force-reinstall linnet"
        else:
            yield name, "ok", _version(name) or state["version"]


def _extras() -> Iterator[_Found]:
    try:
        requirements = importlib.metadata.requires("linnet") or []
    except importlib.metadata.PackageNotFoundError:
        yield (
            "packages",
            "missing",
            "linnet is not installed as a package, so its extras are not known",
            "pip install linnet",
        )
        return
    for extra, purpose in EXTRAS.items():
        packages = [match[1] for line in requirements if (match := _requirement(line, extra))]
        if not packages or extra == _ALL:  # each of which has a line of its own
            continue
        absent = [name for name in packages if _version(name) is None]
        if absent:
            yield extra, "missing", f"{purpose} (without {', '.join(absent)})", f"pip install 'linnet[{extra}]'"
        else:
            yield extra, "ok", f"{purpose}: {', '.join(f'{name} {_version(name)}' for name in packages)}"


def _requirement(line: str, extra: str) -> re.Match[str] | None:
    """The package that a line of the metadata asks for with this extra: `torch<2.14,>=2.11; extra == "train"`."""
    requirement = re.match(r"\s*([A-Za-z0-9._-]+)", line)
    asked = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
    return requirement if asked and asked[1] == extra and requirement and requirement[1] != "linnet" else None


def _devices() -> Iterator[_Found]:
    driver = _graphics_cards()
    if _version("torch") is None:
        yield "torch", "missing", "not installed: no training and no generation", "pip install 'linnet[train]'"
    else:
        torch = _probe(("torch",))["torch"]
        if "error" in torch:
            yield "torch", "broken", torch["error"], "pip install --force-reinstall 'linnet[train]'"
        else:
            yield "torch", "ok", f"{torch['version']}, {torch['threads']} threads"
            for name, memory in torch["devices"]:
                yield "cuda", "ok", f"{name}, {memory / 1e9:.0f} GB"
            if driver and not torch["devices"]:
                built = "sees none of them" if torch["cuda"] else "was built without CUDA"
                yield "cuda", "missing", f"{', '.join(driver)}; torch {built}", "see https://pytorch.org/get-started"
            elif not torch["devices"] and not torch["mps"]:
                yield "gpu", "missing", "none: models are trained on the CPU"
            if torch["mps"]:
                yield "mps", "ok", "Metal"
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler:
        yield "compiler", "ok", compiler
    else:
        advice = "apt install gcc, or: xcode-select --install"
        yield "compiler", "missing", "no C compiler: `--compile` and GPU kernels need one", advice
    if sys.platform == "linux":
        triton = _version("triton")
        if triton:
            yield "triton", "ok", triton
        else:
            yield "triton", "missing", "for kernels on a GPU", "it comes with torch for CUDA"


def _graphics_cards() -> list[str]:
    """The NVIDIA cards that the driver knows, without torch."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(":", 1)[1].split("(")[0].strip() for line in listed.stdout.splitlines() if ":" in line][:8]


def _folders() -> Iterator[_Found]:
    from linnet.data.cache import cache_folder
    from linnet.runs.folder import runs_folder

    for name, folder in (("runs", runs_folder(None)), ("cache", cache_folder())):
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        text = f"{folder} ({free / 1e9:.1f} GB free{'' if folder.exists() else ', made when it is needed'})"
        if not os.access(existing, os.W_OK):
            variable = {"runs": "LINNET_RUNS", "cache": "LINNET_CACHE"}[name]
            yield name, "missing", f"{text}: cannot be written to", f"choose another with --{name} or ${variable}"
        else:
            yield name, "ok" if free > _LOW_SPACE else "missing", text, "" if free > _LOW_SPACE else "little is left"


def _shell() -> Iterator[_Found]:
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    is_unicode = encoding.lower().replace("-", "") == "utf8"
    advice = "" if is_unicode else "charts need UTF-8: export PYTHONUTF8=1"
    yield "encoding", "ok" if is_unicode else "missing", encoding, advice
    on_path = shutil.which("linnet")
    yield "command", "ok" if on_path else "missing", on_path or "not on the PATH", "" if on_path else "python -m linnet"


def _probe(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What loading each package in a process of their own gives: its version, or what went wrong."""
    try:
        words = [sys.executable, "-c", _PROBE, *names]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=_PROBE_SECONDS)
        lines, failure = ended.stdout.splitlines(), f"ended the process that loaded it ({ended.returncode})"
    except subprocess.TimeoutExpired:
        lines, failure = [], f"took more than {_PROBE_SECONDS} s to load"
    states: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            name, facts = encoder.loads(line)
            states[name] = facts
        except (ValueError, TypeError):  # a package that prints when it is loaded
            continue
    return {name: states.get(name, {"error": failure}) for name in names}


def _version(name: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _harmless(text: str) -> str:
    return "".join(letter if letter.isprintable() else "·" for letter in text)
