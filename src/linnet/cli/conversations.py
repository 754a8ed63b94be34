"""`linnet data show` of conversations and of pairs of them: turns, tokens, and which of them are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.cells import cell_len, chop_cells

from linnet.board import words
from linnet.cli.options import find_model
from linnet.cli.printing import paint, print_facts, print_json, text_width
from linnet.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.data.chat_encoding import ChatEncoder
    from linnet.data.conversation_blocks import TrainOn
    from linnet.data.corpus import Corpus, RowKind
    from linnet.data.overview import Overview, Sample
    from linnet.gguf.chat_format import Message

_WHOLE = 1 << 20  # letters of a conversation that is shown, as a line of JSON
_ROWS = 12  # of pieces of a conversation
_LABELS = {"system": "yellow", "user": "cyan", "assistant": "green", "chosen": "green", "rejected": "red"}
_NOUNS: dict[RowKind, str] = {"conversations": "conversation", "preferences": "pair"}
_BEGIN, _END = "▶", "◀"  # round what is trained on
_SHADES = (22, 28)  # backgrounds of neighbouring pieces that are trained on, of the 256 colours


class Piece(NamedTuple):
    """The text of a token; where several stand for one character, it comes with the last of them."""

    text: str
    trained: bool


@dataclass
class Lengths:
    """Tokens of each conversation, up to the last that is trained on, and how many are; of pairs two each."""

    inputs: list[int] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)


def show_conversations(
    source: Corpus,
    base: str | None,
    runs: Path | None,
    *,
    samples: int,
    named: Sequence[str],
    lines: int,
    threshold: float,
    chat_format: str | None,
    train_on: TrainOn,
    ctx: int | None,
    json: bool,
) -> int:
    """Show a corpus of conversations; with a `base` as its chats are written, token by token."""
    from linnet.cli.corpus import reading_progress, require_documents
    from linnet.data.overview import look_at

    if source.rows == "preferences" and train_on == "all":
        raise UsageError("--train-on all is for conversations: of pairs the answers are compared, leave it out")
    encoder = None if base is None else _encoder(find_model(base, runs), chat_format)
    with reading_progress() as progress:
        overview = look_at(source, samples=samples, named=named, threshold=threshold, progress=progress, head=_WHOLE)
    require_documents(overview, named)
    lengths = None if encoder is None else _measure(source, encoder, train_on)
    if json:
        print_json(_as_json(overview, encoder, lengths, train_on, ctx))
    else:
        _print(overview, encoder, lengths, base, lines, train_on, ctx)
    return 0


def _encoder(path: Path, chat_format: str | None) -> ChatEncoder:
    from linnet.data.chat_encoding import ChatEncoder
    from linnet.data.tokenizer import Vocabulary
    from linnet.gguf.chat_families import AUTO, chat_format_of

    vocabulary = Vocabulary(path)
    written = chat_format_of(vocabulary.metadata, chat_format or AUTO)
    return ChatEncoder(vocabulary.tokenizer, vocabulary.metadata, written)


def _measure(source: Corpus, encoder: ChatEncoder, train_on: TrainOn) -> Lengths:
    """The lengths of all conversations, by encoding them."""
    from linnet.data.documents import passages

    lengths = Lengths()
    for passage in passages(source):
        for messages in _conversations(passage.text, source.rows).values():
            encoded = encoder.encode(messages)
            is_trained = np.ones_like(encoded.trained_N) if train_on == "all" else encoded.trained_N
            places = np.flatnonzero(is_trained[1:])
            lengths.inputs.append(int(places[-1]) + 1)
            lengths.trained.append(len(places))
    return lengths


def _conversations(line: str, rows: RowKind) -> dict[str, list[Message]]:
    """What a line of JSON holds: a conversation, or the two of a pair by what became of their answers."""
    from linnet.data.conversations import from_json
    from linnet.data.preferences import pair_from_json

    return pair_from_json(line)._asdict() if rows == "preferences" else {"": from_json(line)}


def _packing(lengths: Lengths, ctx: int, rows: RowKind) -> dict[str, Any]:
    """How a training would lay them out in rows of `ctx` tokens."""
    from linnet.data.packing import pack, pack_pairs

    inputs = np.array(lengths.inputs, np.int64)
    fitting = np.minimum(inputs, ctx)
    if rows == "preferences":
        count = 2 * len(pack_pairs(fitting.reshape(-1, 2), ctx))
        cut = int((inputs.reshape(-1, 2) > ctx).any(1).sum())
    else:
        count, cut = pack(fitting, ctx).rows, int((inputs > ctx).sum())
    return {"ctx": ctx, "rows": count, "padding": 1 - float(fitting.sum()) / max(1, count * ctx), "cut": cut}


def _print(
    overview: Overview,
    encoder: ChatEncoder | None,
    lengths: Lengths | None,
    base: str | None,
    lines: int,
    train_on: TrainOn,
    ctx: int | None,
) -> None:
    from linnet.cli.corpus import print_duplicates, print_left_out, print_lengths

    name, count = overview.corpus.name, len(overview.sizes)
    kinds = ", ".join(f"{files:,} × {kind}" for kind, (files, _) in sorted(overview.kinds.items()))
    rows, noun = overview.corpus.rows, _NOUNS[overview.corpus.rows]
    print(f"{paint(words.plain(name), 'bold')}  {count:,} {noun}{'s'[: count != 1]} in {kinds}")
    facts: dict[str, object] = {}
    if encoder is not None and lengths is not None:
        inputs, trained = sum(lengths.inputs), sum(lengths.trained)
        facts["written as"] = f"{encoder.format.name}, as chats of {words.plain(base)}"
        trained_on = "answers" if train_on == "answers" else "all"
        facts["tokens"] = f"{inputs:,}, trained on {trained:,} ({trained_on}; {trained / max(1, inputs):.1%})"
        if ctx is not None:
            packed = _packing(lengths, ctx, rows)
            cut = f", {packed['cut']:,} cut" if packed["cut"] else ""
            facts["rows"] = f"{packed['rows']:,} of {ctx:,} tokens, {packed['padding']:.1%} padding{cut}"
    print_facts(facts)
    for sample in overview.samples:
        _print_sample(sample, rows, encoder, lines, train_on)
    if encoder is None:
        print(paint("\n  --base MODEL shows its tokens, and which of them are trained on", "dim"))
    elif overview.samples:
        use = "compared" if rows == "preferences" else "trained on"
        print(paint(f"\n  {_BEGIN}…{_END} is {use}; the rest is read", "dim"))
    if lengths is None:
        print_lengths(overview, f"{noun}s")
    else:
        overview.sizes = lengths.inputs
        measured = "conversations, two of each pair" if rows == "preferences" else f"{noun}s"
        print_lengths(overview, measured, in_tokens=True)
    print_duplicates(overview)
    print_left_out(overview.left_out)


def _print_sample(sample: Sample, rows: RowKind, encoder: ChatEncoder | None, lines: int, train_on: TrainOn) -> None:
    columns = text_width()
    print(f"\n{paint(words.shorten(words.plain(sample.name), columns), 'cyan')}")
    if len(sample.text) >= _WHOLE:
        print("  too long to be shown")
        return
    conversations = _conversations(sample.text, rows)
    for label, message in _labelled(conversations):
        first = [line for line in message.content.splitlines() if line.strip()] or [""]
        for number, line in enumerate(first[: max(1, lines)]):
            begin = paint(f"{label:<10}", _LABELS[label]) if number == 0 else " " * 10
            print(f"  {begin} {next(iter(chop_cells(words.plain(line), max(20, columns - 13))), '')}")
    if encoder is None or not lines:
        return
    for messages in conversations.values():
        encoded = encoder.encode(messages)
        is_trained = np.ones_like(encoded.trained_N) if train_on == "all" else encoded.trained_N
        pieces = list(_pieces(encoder.words.tokenizer, encoded.ids_N.tolist(), is_trained.tolist()))
        printed = list(_rows(pieces, max(20, columns - 4)))
        for row in printed[:_ROWS]:
            print(f"    {row}")
        if len(printed) > _ROWS:
            print(f"    … and {len(printed) - _ROWS:,} rows more")


def _labelled(conversations: Mapping[str, list[Message]]) -> Iterator[tuple[str, Message]]:
    """The messages to show, each by its role; of a pair what both have once, then the answers by what they are."""
    shown: list[Message] = []
    for name, messages in conversations.items():
        for number, message in enumerate(messages):
            if number < len(shown) and shown[number][:2] == message[:2]:
                continue
            yield name if name and message.role == "assistant" and message.trained else message.role, message
        shown = shown or messages


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], is_trained: Sequence[bool]) -> Iterator[Piece]:
    held: list[int] = []
    for number, (id_, trained) in enumerate(zip(ids, is_trained, strict=True)):
        held.append(id_)
        text = tokenizer.decode(held, skip_special_tokens=False)
        is_last = number + 1 == len(ids) or is_trained[number + 1] != trained
        if not text.endswith("\ufffd") or len(held) == 4 or is_last:
            yield Piece(text, trained)
            held = []


def _rows(pieces: Sequence[Piece], columns: int) -> Iterator[str]:
    """Pieces in rows that fit, with marks round what is trained on."""
    colours = words.is_coloured()
    row, used = "", 0
    for number, piece in enumerate(pieces):
        before = pieces[number - 1].trained if number else False
        after = pieces[number + 1].trained if number + 1 < len(pieces) else False
        shown = words.plain(words.visible_blanks(piece.text, tab="→"))
        for part in chop_cells(shown, max(1, columns - 3)) or [""]:
            begin = _BEGIN if piece.trained and not before else "" if colours or not number else "│"
            end = _END if piece.trained and not after else ""
            room = cell_len(begin + part + end)
            if used and used + room > columns:
                yield row
                row, used = "", 0
            row += begin + _painted(part, piece.trained, number) * colours + part * (not colours) + end
            used += room
    if row:
        yield row


def _painted(text: str, trained: bool, number: int) -> str:
    style = f"97;48;5;{_SHADES[number % len(_SHADES)]}" if trained else ("2", "2;4")[number % 2]
    return f"\x1b[{style}m{text}\x1b[0m"


def _as_json(
    overview: Overview, encoder: ChatEncoder | None, lengths: Lengths | None, train_on: TrainOn, ctx: int | None
) -> dict[str, object]:
    samples, rows = [], overview.corpus.rows
    for sample in overview.samples:
        read = _conversations(sample.text, rows) if len(sample.text) < _WHOLE else {}
        shown = {name: _messages_as_json(messages, encoder, train_on) for name, messages in read.items()}
        if rows != "preferences":
            shown = shown.get("", _messages_as_json([], encoder, train_on))
        samples.append({"name": sample.name, **shown})
    return {
        "corpus": overview.corpus.name,
        "rows": rows,
        f"{_NOUNS[rows]}s": len(overview.sizes),
        "kinds": {kind: {"files": files, "size": size} for kind, (files, size) in overview.kinds.items()},
        "chat_format": None if encoder is None else encoder.format.name,
        "train_on": train_on,
        "tokens": None if lengths is None else sum(lengths.inputs),
        "trained": None if lengths is None else sum(lengths.trained),
        "packing": None if lengths is None or ctx is None else _packing(lengths, ctx, rows),
        "left_out": list(map(words.flags, overview.left_out)),
        "samples": samples,
    }


def _messages_as_json(messages: Sequence[Message], encoder: ChatEncoder | None, train_on: TrainOn) -> dict[str, Any]:
    shown: dict[str, Any] = {"messages": [message._asdict() for message in messages]}
    if encoder is not None:
        encoded = encoder.encode(messages)
        is_trained = np.ones_like(encoded.trained_N) if train_on == "all" else encoded.trained_N
        shown |= {"ids": encoded.ids_N.tolist(), "trained": is_trained.tolist()}
        shown["pieces"] = [
            encoder.words.tokenizer.decode([id_], skip_special_tokens=False) for id_ in encoded.ids_N.tolist()
        ]
    return shown
