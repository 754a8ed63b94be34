"""`linnet demo`: the main job from beginning to end, on this machine and in a folder of its own."""

from __future__ import annotations

import os
import shlex
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.printing import paint

# 2M parameters that learn to look like Python in under three minutes on two cores.
# So few steps of so few tokens want more than the rule of rates gives: 1.85 bits a byte instead of 1.88.
_RATES = ("--lr", "5e-3", "--lr-embedding", "5e-3", "--lr-vectors", "5e-3", "--weight-decay", "0.1")
_MODEL = ("--vocab", "2048", "--n-layers", "4", "--batch", "8", "--ctx", "128", *_RATES)
_STEPS = 480
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
        steps: So many steps (480).
    """
    from linnet.cli.app import main

    for package in ("torch", "tokenizers"):
        if find_spec(package) is None:  # told before anything is announced
            raise ModuleNotFoundError(package, name=package)
    folder = runs or _own_folder()
    place = [] if words.runs_flag(folder) == "" else ["--runs", words.shown_path(folder)]
    source = [] if corpus == "python" else ["--corpus", corpus]
    prompt = "def __init__(self" if corpus == "python" else "The"
    text = "Python's own library" if corpus == "python" else corpus
    print(f"A 2M llama learns from {words.plain(text)} on this machine. Everything goes to {words.plain(folder)}/.")
    for command in (
        ["train", "from-scratch", *source, *_MODEL, "--steps", str(steps)],
        ["show", "latest"],
        ["generate", "latest", "--prompt", prompt, "--temperature", "0.6", "--max-tokens", "80"],
    ):
        print(f"\n{paint(words.plain(f'$ linnet {shlex.join([*command, *place])}'), 'bold')}", flush=True)
        code = main([*command, *place])
        if code != 0:
            return code
    further = shlex.join(place)
    print("\nWhat to do next:")
    suggested = (
        (f"linnet board {further}", "the same as charts in the terminal, live while something trains"),
        (f"linnet resume latest --steps {2 * steps} {further}", "go on where it stopped"),
        (f"linnet convert latest model.gguf --type q8_0 {further}", "a small file for llama.cpp, Ollama, LM Studio"),
        ("linnet train from-scratch --corpus FOLDER", "your own text"),
        ("linnet help", "all commands; each has examples"),
        (f"linnet board --web {further}", "all runs in the browser, live"),
    )
    wide = max(len(line) for line, _ in suggested)
    for line, reason in suggested:
        print(f"  {line.rstrip():<{wide}}  {paint(f'# {reason}', 'dim')}")
    return 0


def _own_folder() -> Path:
    """A folder of runs in the current one; where that cannot be written to, a temporary one."""
    return Path(_FOLDER) if os.access(".", os.W_OK) else Path(tempfile.mkdtemp(prefix=f"{_FOLDER}-"))
