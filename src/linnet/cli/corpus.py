"""`linnet data show`: a corpus before it is trained on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len, chop_cells

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder, find_model
from linnet.cli.printing import paint, print_facts, print_json, text_width, width, wrapped
from linnet.cli.streams import draw_over
from linnet.errors import UsageError
from linnet.gguf.chat_format import ChatFormatName

if TYPE_CHECKING:
    from linnet.data.overview import Overview, Sample
    from linnet.data.tokenizer import Vocabulary

_SHADES = (24, 58, 53, 23)  # backgrounds of neighbouring pieces, of the 256 colours; the text on them is white
_NAMED = 10  # duplicates and files that are listed; --json has all
_PIECES = 400  # characters of a document that are shown as pieces


def show(
    corpus: str = "python",
    /,
    *,
    documents: int = 3,
    document: tuple[str, ...] = (),
    lines: int = 4,
    vocab: int | None = None,
    tokenizer: str | None = None,
    field: tuple[str, ...] = (),
    dedup_threshold: float = 0.8,
    plain: bool = False,
    rows: Literal["text", "conversations", "preferences"] | None = None,
    base: str | None = None,
    chat_format: ChatFormatName | None = None,
    train_on: Literal["answers", "all"] = "answers",
    ctx: int | None = None,
    cache: Path | None = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Look at a corpus: documents, tokens as coloured pieces, lengths, duplicates, what was left out.

    Args:
        corpus: A file, a folder, a pattern, a URL (s3://bucket/texts), or `python`: the standard library of this
            interpreter.
        documents: How many documents to show (3), from all over the corpus; 0: none.
        document: Show this one: a file's name, or `rows.jsonl:17`; may be given several times.
        lines: How many lines of each (4).
        vocab: Show the tokens of a vocabulary of this size, trained on the corpus; 4096 by default.
        tokenizer: Show the tokens of this MODEL's tokenizer instead.
        field: Where the text is in JSONL, CSV and Parquet: text, a name, or '*.csv=name' for some files, several times.
        dedup_threshold: How alike documents are that count as nearly equal (0.8); 1: equal ones only.
        plain: Read HTML, CSV, notebooks and other documents as the text they are written in.
        rows: What rows of JSONL, CSV and Parquet are, text, conversations or preferences; else what the keys of the
            first say.
        base: Show conversations as this MODEL's chats are written, token by token, and which tokens are trained on.
        chat_format: Write them so; by default as chats of --base.
        train_on: Of conversations: answers (the default), or all.
        ctx: Say how conversations go into rows of so many tokens.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    """
    from linnet.data.corpus import find_corpus
    from linnet.data.overview import look_at
    from linnet.data.row_kinds import with_rows
    from linnet.data.rows import ROW_READERS

    if documents < 0 or lines < 0:
        raise UsageError("--documents and --lines are 0 or more")
    if vocab is not None and tokenizer is not None:
        raise UsageError("--vocab and --tokenizer exclude each other: give one of them")
    source = with_rows(find_corpus(corpus, field, plain=plain), rows, has_field=bool(field))
    if source.rows != "text":
        from linnet.cli.conversations import show_conversations

        if vocab is not None:
            raise UsageError(f"--vocab is for text, and {corpus} holds conversations: show them with --base MODEL")
        return show_conversations(
            source,
            base or tokenizer,
            runs,
            samples=documents,
            named=document,
            lines=lines,
            threshold=dedup_threshold,
            chat_format=chat_format,
            train_on=train_on,
            ctx=ctx,
            json=json,
        )
    misplaced: UsageError | None = None
    for flag in (flag for flag, value in {"--chat-format": chat_format, "--ctx": ctx}.items() if value is not None):
        misplaced = UsageError(f"{flag} is for conversations, and {corpus} is text: leave it out, or see --rows")
    if misplaced is not None and not any(file.kind in ROW_READERS for file in source.files):
        raise misplaced
    tokenizer = tokenizer or base
    with reading_progress() as progress:
        overview = look_at(source, samples=documents, named=document, threshold=dedup_threshold, progress=progress)
    if misplaced is not None:  # rows were read first: those that cannot be are what is wrong
        raise misplaced
    require_documents(overview, document)
    vocabulary, origin = _vocabulary(overview, vocab, tokenizer, cache, runs)
    if json:
        print_json(_as_json(overview, vocabulary, origin))
    else:
        _print(overview, vocabulary, origin, lines)
    return 0


def require_documents(overview: Overview, named: Sequence[str]) -> None:
    """Refuse names that no document has."""
    known = {sample.name for sample in overview.samples}
    if missing := [name for name in named if name not in known]:
        raise UsageError(f"corpus {overview.corpus.name} has no document {missing[0]!r}")


def _vocabulary(
    overview: Overview, vocab: int | None, tokenizer: str | None, cache: Path | None, runs: Path | None
) -> tuple[Vocabulary | None, str]:
    """The tokenizer whose pieces are shown, and where it comes from; None: there is nothing to show."""
    from linnet.data.prepared import corpus_vocabulary
    from linnet.data.tokenizer import Vocabulary

    if tokenizer is not None:
        return Vocabulary(find_model(tokenizer, runs)), f"of {tokenizer}"
    if overview.corpus.is_pack or not any(sample.text for sample in overview.samples):
        return None, ""
    vocabulary, is_cached = corpus_vocabulary(overview.corpus, vocab=vocab, cache=cache)
    return vocabulary, "as prepared in the cache" if is_cached else "trained on the corpus for this look"


def _print(overview: Overview, vocabulary: Vocabulary | None, origin: str, lines: int) -> None:
    corpus, unit = overview.corpus, "tokens" if overview.corpus.is_pack else "text"
    total = f"{overview.size:,} tokens" if corpus.is_pack else f"{words.size(overview.size)} of text"
    print(f"{paint(words.plain(corpus.name), 'bold')}  {words.counted(len(overview.sizes), 'document')}, {total}")
    for kind, (files, size) in sorted(overview.kinds.items()):
        print_facts({kind: f"{words.counted(files, 'file')}, {words.size(size)}"}, cut=True)
    for encoding, names in overview.encodings.items():
        print_facts({encoding: f"{words.counted(len(names), 'file')}: {', '.join(names[:_NAMED])}"}, cut=True)
    if corpus.remark:
        print(f"  {wrapped(words.flags(corpus.remark), max(20, text_width() - 3))}")
    for sample in overview.samples:
        _print_document(sample, unit, vocabulary, lines)
    if vocabulary is not None and overview.samples:
        print(paint(f"\n  pieces: {vocabulary.rows:,} tokens, {words.plain(origin)}", "dim"))
    print_lengths(overview, "documents", in_tokens=corpus.is_pack)
    if not corpus.is_pack:
        print_duplicates(overview)
    print_left_out(overview.left_out)


def _print_document(sample: Sample, unit: str, vocabulary: Vocabulary | None, lines: int) -> None:
    size = words.size(sample.size) if unit == "text" else f"{sample.size:,} tokens"
    print(f"\n{paint(words.shorten(words.plain(sample.name), max(20, width() - 14)), 'cyan')}  {size}")
    if sample.ids:
        text = " ".join(map(str, sample.ids)) if vocabulary is None else vocabulary.tokenizer.decode(list(sample.ids))
        print(f"  {words.shorten(words.plain(text), max(20, text_width() - 2))}")
        return
    first = [line for line in sample.text.splitlines() if line.strip()][:lines]
    for line in first:
        print(f"  {next(iter(chop_cells(words.plain(line), max(20, text_width() - 2))), '')}")
    if vocabulary is not None and lines:
        pieces = list(_pieces(vocabulary, "\n".join(first)[:_PIECES]))
        for row in _wrapped(pieces, max(20, text_width() - 4))[: max(2, lines)]:
            print(f"    {_painted(row)}")


def _pieces(vocabulary: Vocabulary, text: str) -> Iterator[str]:
    """The text of each token; where several stand for one character, it comes with the first of them."""
    vocabulary.tokenizer.encode_special_tokens = True
    end = 0
    for start, stop in vocabulary.tokenizer.encode(text, add_special_tokens=False).offsets:
        if stop > end:
            yield text[max(start, end) : stop]
            end = stop


def _wrapped(pieces: Sequence[str], columns: int) -> list[list[str]]:
    """Pieces in rows that fit; a blank, a tab and a line end are seen as marks."""
    rows: list[list[str]] = [[]]
    used = 0
    for piece in pieces:
        shown = words.plain(words.visible_blanks(piece, tab="→"))
        for part in chop_cells(shown, max(1, columns - 1)) or [""]:
            if used + cell_len(part) + 1 > columns and rows[-1]:
                rows.append([])
                used = 0
            rows[-1].append(part)
            used += cell_len(part) + 1
    return rows


def _painted(row: Sequence[str]) -> str:
    """Pieces side by side: on shades of their own in a terminal, with bars between them elsewhere."""
    if not words.is_coloured():
        return "│".join(row)
    return "".join(f"\x1b[97;48;5;{_SHADES[k % len(_SHADES)]}m{part}\x1b[0m" for k, part in enumerate(row))


def print_lengths(overview: Overview, noun: str, *, in_tokens: bool = False) -> None:
    """How long documents are, as bars."""
    if not overview.sizes:
        return
    shown = (lambda count: words.compact(count)) if in_tokens else words.size
    print(paint(f"\nlengths of {noun}, in {'tokens' if in_tokens else 'bytes of text'}", "bold"))
    rows = overview.histogram()
    most = max(count for _, _, count in rows)
    room = max(10, min(40, text_width() - 36))
    for low, high, count in rows:
        bar = "█" * round(room * count / most) or ("▏" if count else "")
        print(f"  {shown(low):>8} – {shown(high):<8} {bar:<{room}} {count:,}".rstrip())
    facts = {"least": overview.quantile(0), "median": overview.quantile(0.5), "90 %": overview.quantile(0.9)}
    facts["most"] = overview.quantile(1)
    print("  " + ", ".join(f"{name} {shown(value)}" for name, value in facts.items()))


def print_duplicates(overview: Overview) -> None:
    """How much is there twice."""
    duplicates = overview.duplicates
    if not duplicates.count:
        print(f"\n{paint('duplicates', 'bold')}  none")
        return
    counts = f"{duplicates.equal:,} equal, {duplicates.near:,} nearly equal"
    kinds = f"{counts}, {words.size(duplicates.bytes)}; --dedup drops them"
    print(f"\n{paint('duplicates', 'bold')}  {kinds}")
    _print_some(overview.duplicate_names, duplicates.count)


def print_left_out(left_out: Sequence[str]) -> None:
    """What is not read, and why."""
    from linnet.data.errors import mendable_first

    if left_out:
        print(f"\n{paint('left out', 'bold')}  {words.counted(len(left_out), 'file')}")
        _print_some(mendable_first(left_out), len(left_out))


def _print_some(sentences: Sequence[str], count: int) -> None:
    for sentence in sentences[:_NAMED]:
        print(f"  {wrapped(words.flags(sentence), max(20, text_width() - 3), '    ')}")
    if count > _NAMED:
        print(f"  and {count - _NAMED:,} more; --json lists them")


def _as_json(overview: Overview, vocabulary: Vocabulary | None, origin: str) -> dict[str, object]:
    duplicates = overview.duplicates
    return {
        "corpus": overview.corpus.name,
        "unit": "tokens" if overview.corpus.is_pack else "bytes",
        "files": len(overview.corpus.files),
        "documents": len(overview.sizes),
        "size": overview.size,
        "kinds": {kind: {"files": files, "size": size} for kind, (files, size) in overview.kinds.items()},
        "encodings": overview.encodings,
        "lengths": {
            **{
                name: overview.quantile(share)
                for name, share in (("min", 0), ("median", 0.5), ("p90", 0.9), ("max", 1))
            },
            "histogram": [{"from": low, "below": high, "documents": n} for low, high, n in overview.histogram()],
        },
        "duplicates": {
            "equal": duplicates.equal,
            "near": duplicates.near,
            "bytes": duplicates.bytes,
            "named": list(overview.duplicate_names),
        },
        "left_out": list(map(words.flags, overview.left_out)),
        "remark": words.flags(overview.corpus.remark),
        "tokenizer": None if vocabulary is None else {"vocab": vocabulary.rows, "origin": origin},
        "samples": [
            {
                "name": sample.name,
                "size": sample.size,
                "text": sample.text,
                "pieces": list(_pieces(vocabulary, sample.text[:_PIECES])) if vocabulary and sample.text else [],
                "ids": list(sample.ids),
            }
            for sample in overview.samples
        ],
    }


@contextmanager
def reading_progress() -> Iterator[Callable[[int, int], None] | None]:
    """What tells how far the reading is; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return

    def show_progress(done: int, total: int) -> None:
        draw_over(f"{paint('reading', 'dim')} {done / max(1, total):4.0%}", sys.stderr)

    yield show_progress
    draw_over("", sys.stderr)
