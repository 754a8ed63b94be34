"""`linnet inspect`, `convert`, `models` and `lens`: GGUF files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, ModelName, RunsFolder, tell_choice
from linnet.cli.printing import paint, print_facts, print_json, print_table, width
from linnet.errors import UsageError
from linnet.gguf import Card, Found, GGUFError, GGUFFile, find_models, read_card
from linnet.models.model_name import model_path

_SHOWN = 5  # values of an array
_COUNTED = 4096  # an array of more values is a vocabulary: counted, not decoded


def inspect(
    model: ModelName,
    /,
    *,
    tensors: bool = False,
    metadata: bool = False,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Print what is in a GGUF file.

    Args:
        tensors: List every tensor with shape and type.
        metadata: List every key with its value.
    """
    file = model_path(model, runs)
    card = read_card(file)
    with GGUFFile.open(file) as opened:
        if json:
            print_json(_card_as_json(card, opened, tensors, metadata))
            return 0
        _print_card(card)
        if metadata:
            print()
            print_table(("key", "value"), [(words.shorten(key, 200), _value(opened, key)) for key in opened.metadata])
        if tensors:
            rows = [
                (t.name, "×".join(map(str, t.shape)), t.type.name.lower(), words.size(t.nbytes))
                for t in opened.tensors.values()
            ]
            print()
            print_table(("tensor", "shape", "type", "size"), rows, right=(3,))
    tell_choice(model, file)
    return 0


def _clean(value: object, room: int = 200) -> str:
    """What a file says, as it may be printed: cut to `room` characters, and none that could steer a terminal."""
    return words.plain(words.shorten(str(value), room))


def _print_card(card: Card) -> None:
    print(f"{paint(_clean(card.name or card.path.name), 'bold')}  {_clean(card.arch)} {_clean(card.kind)}")
    tied = "" if card.tied is None else ", head tied to the embedding" if card.tied else ", head of its own"
    facts = {
        "file": f"{card.path} ({words.size(card.bytes)}, GGUF version {card.version})",
        "type": f"{card.file_type}: " + ", ".join(f"{s.tensors} × {s.type}" for s in card.types),
        "parameters": f"{card.parameters:,} in {card.tensors} tensors{tied}",
        "sizes": " · ".join(f"{name} {words.number(value)}" for name, value in card.sizes.items()),
    }
    if card.tokenizer is not None:
        held = card.tokenizer
        marks = " · ".join(f"{mark} {number}" for mark, number in held.marks.items())
        facts["tokenizer"] = f"{held.model} / {held.pre or 'no pre'}: {held.tokens:,} tokens, {held.merges:,} merges"
        facts["special"] = marks + (" · chat template" if held.chat_template else "")
    print_facts(facts, cut=True)
    if card.provenance:
        print(f"  {paint('provenance', 'dim')}")
        for key, fact in card.provenance.items():
            print(f"    {_clean(key)} = {_clean(fact, max(20, width() - len(key) - 8))}")


def _value(file: GGUFFile, key: str) -> str:
    if file.metadata.element_type(key) is None:
        return words.shorten(str(file.metadata[key]), 200)
    count = file.metadata.length(key)
    if count > _COUNTED:
        return f"{count:,} values"
    values = file.metadata[key]
    assert isinstance(values, tuple)
    shown = (words.shorten(str(value), 200) for value in values[:_SHOWN])
    return f"{count:,} values: " + ", ".join(shown) + (" …" if count > _SHOWN else "")


def _card_as_json(card: Card, file: GGUFFile, tensors: bool, metadata: bool) -> dict[str, object]:
    record: dict[str, object] = {**dataclasses.asdict(card), "path": str(card.path)}
    if tensors:
        record["tensor_table"] = [
            {"name": t.name, "shape": t.shape, "type": t.type.name.lower(), "bytes": t.nbytes, "offset": t.offset}
            for t in file.tensors.values()
        ]
    if metadata:
        record["metadata"] = {key: file.metadata[key] for key in file.metadata}
    return record


def convert(
    model: ModelName,
    target: Annotated[Path, Parameter(help="The GGUF file to write.")],
    /,
    *,
    type: Literal["f32", "f16", "bf16", "q8_0"],
    tokenizer: str | None = None,
    force: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Write a GGUF file again in another type; everything else is copied.

    Toy's checkpoints become files that llama.cpp runs: heads are joined, a lens is folded into the embedding.

    Args:
        type: The type of the matrices; tensors of one dimension stay f32.
        tokenizer: The MODEL whose tokenizer the result gets: for Toy's checkpoints, which have none.
        force: Replace the target if it is there.
    """
    from linnet.gguf.convert import convert

    _refuse_to_replace(target, force)
    source, tokenizer_file = model_path(model, runs), None if tokenizer is None else model_path(tokenizer, runs)
    for file in (source, tokenizer_file):
        if file is not None and target.exists() and file.exists() and target.samefile(file):
            raise UsageError(f"{target} is the file to be read; name another")
    written = convert(source, target, type, tokenizer=tokenizer_file)
    before, after = source.stat().st_size, written.stat().st_size
    read = words.plain(words.shown_path(source))
    print(f"{read} ({words.size(before)}) → {words.plain(written)} ({words.size(after)}, {type})")
    tell_choice(model, source)
    return 0


def _refuse_to_replace(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise UsageError(f"{target} is there already; say --force to replace it")


def models(*, runs: RunsFolder = None, json: AsJson = False) -> int:
    """Find the GGUF files of this machine: runs, this folder, Hugging Face, Ollama, LM Studio, llama.cpp."""
    files = find_models(runs=runs)
    if json:
        print_json([{**dataclasses.asdict(file), "path": str(file.path), "about": _about(file)} for file in files])
    elif files:
        rows = [(file.name, _about(file), words.size(file.bytes), file.place, str(file.path)) for file in files]
        print_table(("model", "about", "size", "from", "file"), rows, right=(2,))
    else:
        print("No GGUF files in the runs, this folder, Hugging Face's, Ollama's, LM Studio's or llama.cpp's.")
    return 0


def _about(file: Found) -> str:
    try:
        card = read_card(file.path)
    except GGUFError:
        return "cannot be read"
    count = f"{card.parameters / 1e6:,.0f}M" if card.parameters >= 10_000_000 else f"{card.parameters:,}"
    return f"{words.shorten(card.arch, 40)} {count} {card.file_type}"


def lens(
    donor: ModelName,
    /,
    *,
    d_model: int,
    out: Path,
    force: bool = False,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Write the principal axes of a donor's embedding as a lens file, as Toy's `lens` files are.

    Args:
        donor: A MODEL of the llama family, quantised or not: a GGUF file, a RUN, RUN@best or RUN@200.
        d_model: The width of the model it is for: at most the donor's.
        out: The file to write.
        force: Replace the file if it is there.
    """
    from linnet.gguf import Lens, write_lens
    from linnet.recipes.donor import Donor, principal_axes

    _refuse_to_replace(out, force)
    is_path = Path(donor).is_file()
    with Donor(Path(donor) if is_path else model_path(donor, runs), of_run=not is_path) as opened:
        axes = principal_axes(opened.embedding, d_model)
        rows, donor_width = opened.embedding.shape[0], opened.width
        write_lens(Lens(axes.proj_DW, opened.source), out)
    if json:
        facts = {"d_model": d_model, "donor_d_in": donor_width, "rows": rows, "explained_variance": axes.explained}
        print_json({**facts, "path": str(out)})
        return 0
    print(
        f"{words.plain(out)}: {rows:,} rows, {donor_width} → {d_model} wide, {axes.explained:.1%} of their variance"
        f" explained ({words.size(out.stat().st_size)})"
    )
    return 0
