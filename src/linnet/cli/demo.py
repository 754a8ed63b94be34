"""`linnet demo`: the main job from beginning to end, on this machine and in a folder of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.printing import paint, width, wrapped

# Half a million parameters that learn to look like Python: of the shapes, batches and rates that take as long on two
# cores this one learns most (docs/log.md). So few steps want more than the rule of rates gives: 1.68 bits a byte
# instead of 1.72.
_SHAPE = ("--d-model", "96", "--n-layers", "3", "--n-heads", "3", "--n-kv", "3", "--d-ff", "256")
_RATES = ("--lr", "1.7e-2", "--lr-embedding", "8.3e-3", "--lr-vectors", "8.3e-3")
_MODEL = ("--vocab", "2048", *_SHAPE, "--batch", "32", "--ctx", "128", *_RATES)
_STEPS = 460
_FOLDER = "linnet-demo"


def demo(
    *,
    corpus: str = "python",
    steps: int = _STEPS,
    runs: Annotated[Path | None, Parameter(help="The folder that the run goes to; ./linnet-demo by default.")] = None,
) -> int:
    """Train a small model here, look at its run, and let it write: about three minutes on two cores, no downloads.

    Args:
        corpus: Text to learn from: a file, a folder, a pattern, or `python`: the standard library of this interpreter.
        steps: So many steps (460).
    """
    from linnet.cli.app import main

    for package in ("torch", "tokenizers"):
        if find_spec(package) is None:  # told before anything is announced
            raise ModuleNotFoundError(package, name=package)
    folder = runs or _own_folder()
    where = [] if words.runs_flag(folder) == "" else ["--runs", words.shown_path(folder)]
    source = [] if corpus == "python" else ["--corpus", corpus]
    prompt = "def __init__(self" if corpus == "python" else "The"
    text = "Python's own library" if corpus == "python" else corpus
    begin = f"A 0.5M llama learns from {words.plain(text)} on this machine. Everything goes to {words.plain(folder)}/."
    print(wrapped(begin, max(40, width() - 1), ""))
    for command in (
        ["train", "from-scratch", *source, *_MODEL, "--steps", str(steps)],
        ["show", "latest"],
        ["generate", "latest", "--prompt", prompt, "--temperature", "0.6", "--max-tokens", "80"],
    ):
        print(f"\n{paint(words.plain(f'$ linnet {shlex.join([*command, *where])}'), 'bold')}", flush=True)
        code = main([*command, *where])
        if code != 0:
            return code
    further = shlex.join(where)
    print("\nWhat to do next:")
    suggested = (
        *_activation(),
        (f"linnet board {further}", "the same as charts in the terminal, live while something trains"),
        (f"linnet resume latest --steps {2 * steps} {further}", "go on where it stopped"),
        (f"linnet convert latest model.gguf --type q8_0 {further}", "a small file for llama.cpp, Ollama, LM Studio"),
        ("linnet train from-scratch --corpus FOLDER", "your own text"),
        ("linnet help", "all commands; each has examples"),
        (f"linnet board --web {further}", f"all runs in the browser, live{_without_web()}"),
    )
    longest = max(len(line) for line, _ in suggested)
    beside = width() > 2 + longest + 2 + max(len(f"# {reason}") for _, reason in suggested)
    for line, reason in suggested:
        shown = f"  {line.rstrip():<{longest}}" if beside else f"  {line.rstrip()}\n     "
        print(f"{shown}  {paint(f'# {reason}', 'dim')}")
    return 0


def _without_web() -> str:
    """What to install first, where `linnet[train]` is all that is here."""
    return "" if all(map(find_spec, ("starlette", "uvicorn"))) else ": after pip install 'linnet[web]'"


def _activation() -> list[tuple[str, str]]:
    """What makes the shell find `linnet`, where it lies in a virtual environment that is not active: `make demo`."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("linnet") is not None or not script.is_file():
        return []
    return [(f"source {shlex.quote(words.shown_path(script))}", "first: so that the shell finds linnet")]


def _own_folder() -> Path:
    """A folder of runs in the current one; where that cannot be written to, a temporary one."""
    return Path(_FOLDER) if os.access(".", os.W_OK) else Path(tempfile.mkdtemp(prefix=f"{_FOLDER}-"))
