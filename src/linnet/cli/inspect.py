"""`linnet inspect`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson
from linnet.cli.terminal import paint, print_json, table, width
from linnet.gguf import Card, GGUFFile, read_card

_LONG = 5  # values of an array that are shown


def inspect(
    file: Annotated[Path, Parameter(help="A GGUF file.")],
    /,
    *,
    tensors: bool = False,
    metadata: bool = False,
    json: AsJson = False,
) -> int:
    """What is in a GGUF file: architecture, sizes, types, tokenizer, where it comes from.

    Parameters
    ----------
    tensors
        List every tensor with shape and type.
    metadata
        List every key with its value.
    """
    card = read_card(file)
    with GGUFFile.open(file) as opened:
        if json:
            print_json(_as_json(card, opened, tensors, metadata))
            return 0
        _print_card(card)
        if metadata:
            rows = [(words.shorten(key, 200), _shown(opened, key)) for key in opened.metadata]
            print("\n" + "\n".join(table(("key", "value"), rows)))
        if tensors:
            parts = [
                (t.name, "×".join(map(str, t.shape)), t.type.name.lower(), words.size(t.nbytes))
                for t in opened.tensors.values()
            ]
            print("\n" + "\n".join(table(("tensor", "shape", "type", "size"), parts, right=(3,))))
    return 0


def _clean(value: object, room: int = 200) -> str:
    """What a file says, as it may be printed: cut to `room` characters, and none that could steer a terminal."""
    return words.plain(words.shorten(str(value), room))


def _print_card(card: Card) -> None:
    print(f"{paint(_clean(card.name or card.path.name), 'bold')}  {_clean(card.arch)} {_clean(card.kind)}")
    facts = {
        "file": f"{card.path} ({words.size(card.bytes)}, GGUF version {card.version})",
        "type": f"{card.file_type}: " + ", ".join(f"{s.tensors} × {s.type}" for s in card.types),
        "parameters": f"{card.parameters:,} in {card.tensors} tensors" + _tied(card),
        "sizes": " · ".join(f"{word} {words.number(value)}" for word, value in card.sizes.items()),
    }
    if card.tokenizer is not None:
        held = card.tokenizer
        marks = " · ".join(f"{mark} {number}" for mark, number in held.marks.items())
        facts["tokenizer"] = f"{held.model} / {held.pre or 'no pre'}: {held.tokens:,} tokens, {held.merges:,} merges"
        facts["special"] = marks + (" · chat template" if held.chat_template else "")
    for name, value in facts.items():
        if value:
            print(f"  {paint(f'{name:<11}', 'dim')} {_clean(value, max(20, width() - 14))}")
    if card.provenance:
        print(f"  {paint('provenance', 'dim')}")
        for key, fact in card.provenance.items():
            print(f"    {_clean(key)} = {_clean(fact, max(20, width() - len(key) - 8))}")


def _tied(card: Card) -> str:
    return "" if card.tied is None else ", head tied to the embedding" if card.tied else ", head of its own"


def _shown(file: GGUFFile, key: str) -> str:
    if file.metadata.element_type(key) is None:
        return words.shorten(str(file.metadata[key]), 200)
    count = file.metadata.length(key)
    if count > 4096:  # a vocabulary: counted, not decoded
        return f"{count:,} values"
    values = file.metadata[key]
    assert isinstance(values, tuple)
    shown = (words.shorten(str(value), 200) for value in values[:_LONG])
    return f"{count:,} values: " + ", ".join(shown) + (" …" if count > _LONG else "")


def _as_json(card: Card, file: GGUFFile, tensors: bool, metadata: bool) -> dict[str, object]:
    found: dict[str, object] = {**dataclasses.asdict(card), "path": str(card.path)}
    if tensors:
        found["tensor_table"] = [
            {"name": t.name, "shape": t.shape, "type": t.type.name.lower(), "bytes": t.nbytes, "offset": t.offset}
            for t in file.tensors.values()
        ]
    if metadata:
        found["metadata"] = {key: file.metadata[key] for key in file.metadata}
    return found
