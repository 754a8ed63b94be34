"""`linnet models`."""

from __future__ import annotations

import dataclasses

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder
from linnet.cli.terminal import print_json, table
from linnet.gguf import Found, GGUFError, find_models, read_card


def models(*, runs: RunsFolder = None, json: AsJson = False) -> int:
    """Find the GGUF files of this machine: runs, this folder, Hugging Face, Ollama, LM Studio, llama.cpp."""
    found = find_models(runs=runs)
    if json:
        print_json([{**dataclasses.asdict(each), "path": str(each.path), "about": _about(each)} for each in found])
        return 0
    if not found:
        print("No GGUF files in the runs, this folder, Hugging Face's, Ollama's, LM Studio's or llama.cpp's.")
        return 0
    rows = [(each.name, _about(each), words.size(each.bytes), each.place, str(each.path)) for each in found]
    print("\n".join(table(("model", "about", "size", "from", "file"), rows, right=(2,))))
    return 0


def _about(found: Found) -> str:
    try:
        card = read_card(found.path)
    except GGUFError:
        return "cannot be read"
    count = f"{card.parameters / 1e6:,.0f}M" if card.parameters >= 10_000_000 else f"{card.parameters:,}"
    return f"{words.shorten(card.arch, 40)} {count} {card.file_type}"
