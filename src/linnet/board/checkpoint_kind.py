"""What a checkpoint takes, by which the commands that run it differ."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path


def model_kind(path: Path) -> str:
    """What a checkpoint takes: "text", "token ids" where it has no tokenizer, "images"; or it is an "adapter"."""
    try:
        stat = path.stat()
    except OSError:
        return "text"
    return _model_kind_of(path, stat.st_mtime_ns, stat.st_size)


def llama_cli(file: Path, base: object = None) -> str:
    """The line that lets llama.cpp go on from a prompt with a checkpoint; an adapter's beside the run's `base`."""
    if model_kind(file) != "adapter":
        return f'llama-cli -m {shlex.quote(str(file))} -p "…"'
    model = shlex.quote(base) if isinstance(base, str) else "BASE.gguf"
    return f'llama-cli -m {model} --lora {shlex.quote(str(file))} -p "…"'


@lru_cache(maxsize=16)
def _model_kind_of(path: Path, changed_ns: int, n_bytes: int) -> str:
    from linnet.architectures import task_of
    from linnet.gguf.errors import GGUFError
    from linnet.gguf.file import GGUFFile

    try:
        with GGUFFile.open(path) as file:
            if task_of(file.architecture) == "images":
                return "images"
            if file.is_adapter:
                return "adapter"
            tokenizer = file.metadata.get("tokenizer.ggml.model", "none")
            return "token ids" if tokenizer in ("none", "no_vocab") else "text"
    except GGUFError:  # what is wrong with it is said by the command that runs it
        return "text"
