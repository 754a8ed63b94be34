"""What a checkpoint takes, the commands that run it, and what its metadata say in short."""

from __future__ import annotations

import math
import shlex
import struct
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.board.words import command, plain, shorten
from linnet.files import step_of
from linnet.runs import Run

if TYPE_CHECKING:
    from linnet.gguf.metadata import Metadata

_LARGE = 1e38  # beyond, a float of 32 bits may have no neighbour with fewer digits
_COUNTED = 4096  # an array of more values is a vocabulary: counted, not decoded


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


def checkpoint_commands(run: Run, file: Path) -> list[str]:
    """What can be done with a checkpoint of a run, to copy."""
    step, kind, folder = step_of(file) or 0, model_kind(file), run.path
    if kind == "images":
        return [command("classify", folder, "IMAGE…", checkpoint=step)]
    if kind == "token ids":
        return [command("eval", folder, "--corpus IDS", checkpoint=step)]
    with_llama_cpp = plain(llama_cli(file, run.manifest.config.get("base")))
    return [command("generate", folder, '--prompt "…"', checkpoint=step), with_llama_cpp]


def metadata_text(metadata: Metadata, key: str, longest: int, most: int, longest_item: int) -> str:
    """A value of at most `longest` characters; of an array its length, and `most` values of `longest_item` each."""
    if metadata.element_type(key) is None:
        return shorten(_value_text(metadata[key]), longest)
    count = metadata.length(key)
    if count > _COUNTED:
        return f"{count:,} values"
    values = metadata[key]
    assert isinstance(values, tuple)
    shown = ", ".join(shorten(_value_text(value), longest_item) for value in values[:most])
    return f"{count:,} values: {shown}{' …' if count > most else ''}"


def _value_text(value: object) -> str:
    """As one writes it; of a float of 32 bits as few digits as tell it apart: 1e-06, not 9.999999974752427e-07."""
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) > _LARGE:
        return str(value)
    bits = struct.pack("<f", value)
    if struct.unpack("<f", bits)[0] != value:
        return str(value)
    shorter = (float(f"{value:.{digits}g}") for digits in range(1, 9))
    return str(next((short for short in shorter if struct.pack("<f", short) == bits), value))


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
