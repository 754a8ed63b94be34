"""`linnet convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.errors import UsageError
from linnet.gguf.convert import convert as write_converted


def convert(
    source: Annotated[Path, Parameter(help="The GGUF file to read; quantised ones too.")],
    target: Annotated[Path, Parameter(help="The GGUF file to write.")],
    /,
    *,
    type: Literal["f32", "f16", "bf16", "q8_0"],
    tokenizer: Path | None = None,
    force: bool = False,
) -> int:
    """Write a GGUF file again in another type; everything else is copied.

    Toy's checkpoints become files that llama.cpp runs: heads are joined, a lens is folded into the embedding.

    Parameters
    ----------
    type
        The type of the matrices; tensors of one dimension stay f32.
    tokenizer
        A GGUF whose tokenizer the result gets: for Toy's checkpoints, which have none.
    force
        Replace the target if it is there.
    """
    if target.exists() and not force:
        raise UsageError(f"{target} is there already; say --force to replace it")
    for file in (source, tokenizer):
        if file is not None and target.exists() and file.exists() and target.samefile(file):
            raise UsageError(f"{target} is the file to be read; name another")
    written = write_converted(source, target, type, tokenizer=tokenizer)
    before, after = source.stat().st_size, written.stat().st_size
    print(f"{words.plain(source)} ({words.size(before)}) → {words.plain(written)} ({words.size(after)}, {type})")
    return 0
