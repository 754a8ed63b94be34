"""`linnet inspect`, `convert`, `models` and `lens`: GGUF files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.board.checkpoint_kind import metadata_text
from linnet.cli.options import AsJson, ModelName, RunsFolder, print_choice, refuse_to_replace
from linnet.cli.printing import paint, print_facts, print_json, print_table, width
from linnet.errors import UsageError
from linnet.gguf import AdapterFile, Card, GGUFError, GGUFFile, LocatedModel, find_models, read_card
from linnet.models.model_name import model_path

_SHOWN = 5  # values of an array
_LEAST_NAME, _LEAST_PATH = 20, 12  # columns of a terminal


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
            print_table(
                ("key", "value"),
                [
                    (words.shorten(key, 200), metadata_text(opened.metadata, key, 200, _SHOWN, 200))
                    for key in opened.metadata
                ],
            )
        if tensors:
            rows = [
                (t.name, "×".join(map(str, t.shape)), t.type.name.lower(), words.size(t.nbytes))
                for t in opened.tensors.values()
            ]
            print()
            print_table(("tensor", "shape", "type", "size"), rows, right=(3,))
    print_choice(model, file)
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
    if (adapter := card.adapter) is not None:
        facts["adapter"] = f"rank {adapter.rank} · alpha {adapter.alpha:g} · of {', '.join(adapter.targets)}"
        digest = f" (sha256 {adapter.base_sha256[:12]}…)" if adapter.base_sha256 else ""
        facts["base"] = f"{_clean(adapter.base or 'not named')}{digest}"
    if card.tokenizer is not None:
        held = card.tokenizer
        marks = " · ".join(f"{mark} {number}" for mark, number in held.marks.items())
        facts["tokenizer"] = f"{held.model} / {held.pre or 'no pre'}: {held.tokens:,} tokens, {held.merges:,} merges"
        chat = f" · chat template, {held.chat_format or 'in no format that is known'}" if held.chat_template else ""
        facts["special"] = marks + chat
    print_facts(facts, cut=True)
    if card.provenance:
        print(f"  {paint('provenance', 'dim')}")
        for key, fact in card.provenance.items():
            print(f"    {_clean(key)} = {_clean(fact, max(20, width() - len(key) - 8))}")


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
    target: Annotated[Path, Parameter(help="The GGUF file to write; of an adapter for peft, the folder.")],
    /,
    *,
    type: Literal["f32", "f16", "bf16", "q8_0"] | None = None,
    tokenizer: str | None = None,
    base: str | None = None,
    force: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Write a GGUF file again in another type; everything else is copied.

    Toy's checkpoints become files that llama.cpp runs: heads are joined, a lens is folded into the embedding. Where the
    target is no .gguf file, an adapter becomes one of the library peft; a folder of peft's becomes a GGUF.

    Args:
        type: The type of the matrices; tensors of one dimension stay f32. An adapter's is f32 by default.
        tokenizer: The MODEL whose tokenizer the result gets: for Toy's checkpoints, which have none.
        base: The MODEL that an adapter of peft was made for.
        force: Replace the target if it is there.
    """
    from linnet.gguf.convert import convert
    from linnet.gguf.peft import is_peft_folder

    if is_peft_folder(model):
        return _from_peft(model, target, base, type or "f32", force, runs)
    if target.suffix != ".gguf" and read_card(model_path(model, runs)).kind == "adapter":
        return _to_peft(model_path(model, runs), target, base, force, runs)
    if base is not None:
        raise UsageError("--base is for adapters of peft, and none is to be read or written here: leave it out")
    if type is None:
        raise UsageError("convert: --type needs a value: f32, f16, bf16 or q8_0")
    refuse_to_replace(target, force)
    source, tokenizer_file = model_path(model, runs), None if tokenizer is None else model_path(tokenizer, runs)
    for file in (source, tokenizer_file):
        if file is not None and target.exists() and file.exists() and target.samefile(file):
            raise UsageError(f"{target} is the file to be read; name another")
    written = convert(source, target, type, tokenizer=tokenizer_file)
    before, after = source.stat().st_size, written.stat().st_size
    read = words.plain(words.shown_path(source))
    print(f"{read} ({words.size(before)}) → {words.plain(written)} ({words.size(after)}, {type})")
    print_choice(model, source)
    return 0


def _from_peft(folder: str, target: Path, base: str | None, type: str, force: bool, runs: Path | None) -> int:
    """Write an adapter of peft as a GGUF."""
    from linnet.files import sha256_of
    from linnet.gguf.config import config_of
    from linnet.gguf.peft import from_peft
    from linnet.models.model_files import find_files

    if base is None:
        raise UsageError(f"{folder} is an adapter of peft, which does not say what its base is like: give it, --base")
    refuse_to_replace(target, force)
    file = find_files(base, runs=runs).model
    with GGUFFile.open(file) as opened:
        config = config_of(opened, task="text")
    name = read_card(file).name or file.name
    written = from_peft(folder, config, target, base=name, base_sha256=sha256_of(file), type=type)
    _print_adapter(Path(folder), written)
    return 0


def _to_peft(source: Path, target: Path, base: str | None, force: bool, runs: Path | None) -> int:
    """Write an adapter as a folder of peft's."""
    from linnet.gguf.config import config_of
    from linnet.gguf.peft import is_peft_folder, to_peft

    if target.is_file() or (target.is_dir() and any(target.iterdir()) and not (force and is_peft_folder(target))):
        raise UsageError(f"{target} is there already; an adapter of peft is a folder of its own: name another")
    heads = None
    if base is not None:
        with GGUFFile.open(model_path(base, runs)) as opened:
            config = config_of(opened, task="text")
        heads = (config.n_heads, config.n_kv)
    written = to_peft(AdapterFile.read(source), target, heads)
    print(f"{words.plain(words.shown_path(source))} → {words.plain(written)}, an adapter for peft")
    return 0


def _print_adapter(source: Path, written: Path) -> None:
    size = words.size(written.stat().st_size)
    print(f"{words.plain(words.shown_path(source))} → {words.plain(written)} ({size}, an adapter)")


def models(*, runs: RunsFolder = None, json: AsJson = False) -> int:
    """Find the GGUF files of this machine: runs, this folder, Hugging Face, Ollama, LM Studio, llama.cpp."""
    files = find_models(runs=runs)
    if json:
        print_json([{**dataclasses.asdict(file), "path": str(file.path), "about": _about(file)} for file in files])
    elif files:
        _print_models(files)
    else:
        print("No GGUF files in the runs, this folder, Hugging Face's, Ollama's, LM Studio's or llama.cpp's.")
    return 0


def _print_models(files: Sequence[LocatedModel]) -> None:
    """A row a file; where there is little room, of names and paths their ends, and no paths that tell nothing."""
    facts = [(_about(file), words.size(file.bytes), file.place) for file in files]
    columns = zip(("about", "size", "from"), *facts, strict=True)
    room = width() - sum(2 + max(map(words.cells, column)) for column in columns) - 2
    names, paths = [words.plain(file.name) for file in files], [words.plain(file.path) for file in files]
    longest = max(map(words.cells, (*names, "model")))
    of_name = min(longest, max(room // 2, room - max(map(words.cells, paths)), _LEAST_NAME))
    head, right = ["model", "about", "size", "from"], (2,)
    rows = [[words.shorten_front(name, of_name), *about] for name, about in zip(names, facts, strict=True)]
    if room - of_name >= _LEAST_PATH:
        head.append("file")
        for row, path in zip(rows, paths, strict=True):
            row.append(words.shorten_front(path, room - of_name))
    print_table(head, rows, right=right)
    if "file" not in head:
        print(paint("no room for their files (--json has them)", "dim"))


def _about(file: LocatedModel) -> str:
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

    refuse_to_replace(out, force)
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
