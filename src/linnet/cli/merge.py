"""`linnet merge`: a model and adapters of it as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AnyBase, ModelName, RunsFolder, print_choice, refuse_to_replace
from linnet.errors import UsageError
from linnet.gguf import read_card


def merge(
    model: ModelName,
    /,
    *others: Annotated[
        str, Parameter(help="Adapters of it, with :SCALE behind one if it is not 1; the file to write.")
    ],
    type: Literal["f32", "f16", "bf16", "q8_0"] | None = None,
    any_base: AnyBase = False,
    force: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Write a model with adapters added to its weights, as a model of its own.

    A RUN that has trained an adapter needs no other: linnet merge RUN OUT.gguf.

    Args:
        type: The type of the matrices; by default the model's, and f16 where that is one that only llama.cpp writes.
        force: Replace the file if it is there.
    """
    from linnet.gguf.merge import merge  # with numpy, which `--help` does without
    from linnet.models.model_files import find_files

    if not others:
        raise UsageError("merge: name the file to write: linnet merge MODEL ADAPTER OUT.gguf")
    *adapters, out = others
    target = Path(out)
    refuse_to_replace(target, force)
    files = find_files(model, adapters, runs, any_base=any_base)
    if not files.adapters:
        raise UsageError(f"merge: there is no adapter to add to {files.model}: linnet merge MODEL ADAPTER OUT.gguf")
    for file in (files.model, *(adapter.path for adapter, _ in files.adapters)):
        if target.exists() and target.samefile(file):
            raise UsageError(f"{target} is a file to be read; name another")
    written = merge(files.model, files.adapters, target, type)
    named = ", ".join(f"{adapter.name}{'' if scale == 1 else f' × {scale:g}'}" for adapter, scale in files.adapters)
    about = f"{words.size(written.stat().st_size)}, {read_card(written).file_type}"
    print(f"{words.plain(words.shown_path(files.model))} + {words.plain(named)} → {words.plain(written)} ({about})")
    print_choice(model, files.named)
    return 0
