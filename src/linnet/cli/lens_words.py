"""`linnet lens-words`: what each layer of a model would say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.cli.findings import Out, Record, Theme, find_checkpoint, picture_or_text, record_finding
from linnet.cli.options import AsJson, ModelName, RunsFolder, print_choice
from linnet.cli.printing import paint, print_json, width, wrapped
from linnet.cli.prompt import Prompt, PromptFile, read_prompt
from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.analysis import LensWords
    from linnet.board.figure.heat_map import HeatMap

_LONGEST = 10  # characters of a token in its cell


def lens_words(
    model: ModelName,
    /,
    *,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    layers: str | None = None,
    positions: str | None = None,
    top: int = 1,
    record: Record = False,
    out: Out = None,
    theme: Theme = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """What each layer of a language model would say after each token of a prompt, if the head read it there.

    Args:
        layers: Only these: FIRST:LAST, as in 20: or 4:8, or one number.
        positions: Only what is said after these tokens, counted from 0; -3: for the last three.
        top: How many of the likeliest tokens --json has of each place (1).
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.analysis.logit_lens import lens_words as words_of

    text = read_prompt(prompt, prompt_file)
    if not text:
        raise UsageError('lens-words needs a text: --prompt "The capital of France is"')
    checkpoint = find_checkpoint(model, runs, recordable=record)
    said = words_of(model, text, top=top, device=device, runs=runs)
    rows = _chosen("--layers", layers, len(said.layers) - 1)
    rows = [0, *(at + 1 for at in rows)] if layers is None else [at + 1 for at in rows]
    columns = _chosen("--positions", positions, len(said.tokens))
    heat = lens_map(said, rows, columns)
    if json:
        print_json(said.as_fields())
    else:
        picture_or_text(heat, out, theme)
        said_of = "after each token of the prompt: what a layer finds likeliest to come, and how likely in %"
        print(paint(wrapped(said_of, width(), ""), "dim"))
    print_choice(model, checkpoint.path, json)
    if record:
        last = said.words_LT[-1][-1]
        note = f"lens-words after {text!r}: {last.text!r} ({100 * last.probability:.0f} %)"
        record_finding(checkpoint, "lens-words", note, heat, said.as_fields())
    return 0


def lens_map(said: LensWords, rows: list[int], columns: list[int]) -> HeatMap:
    """The likeliest tokens by layer and place, on the colour of their probability."""
    from linnet.board.figure.heat_map import HeatMap

    words_LT = said.words_LT
    chosen = [[words_LT[row][column] for column in columns] for row in rows]
    return HeatMap(
        np.array([[word.probability for word in line] for line in chosen]).reshape(len(rows), len(columns)),
        [said.layers[row] for row in rows],
        [shown(said.tokens[column]) for column in columns],
        "probability",
        f"{said.model}: what its layers would say",
        "layer",
        "tokens",
        low=0.0,
        high=1.0,
        texts=[[f"{shown(word.text)} {100 * word.probability:.0f}" for word in line] for line in chosen],
    )


def shown(token: str) -> str:
    """A token with its blanks and line ends to be seen."""
    from linnet.board.words import plain, shorten, visible_blanks

    visible = visible_blanks(token)
    return shorten(plain(visible), _LONGEST) or "∅"


def _chosen(flag: str, text: str | None, count: int) -> list[int]:
    """The numbers that FIRST:LAST means, of so many; both ends belong to it."""
    if text is None:
        return list(range(count))
    first, colon, last = text.partition(":")
    try:
        begin = int(first) if first.strip() else 0
        end = (int(last) if last.strip() else count - 1) if colon else (count - 1 if begin < 0 else begin)
    except ValueError:
        raise UsageError(f"{flag} {text!r}: expected FIRST:LAST, as in 4:8, 20: or -3:") from None
    begin, end = (at + count if at < 0 else at for at in (begin, end))
    if not 0 <= begin <= end < count:
        raise UsageError(f"{flag} {text!r}: there are {count}, from 0 to {count - 1}")
    return list(range(begin, end + 1))
