"""`linnet attention`: which tokens the heads of a model read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.cli.findings import Out, Record, Theme, find_checkpoint, picture_or_text, record_finding
from linnet.cli.lens_words import shown
from linnet.cli.options import AsJson, ModelName, RunsFolder, print_choice
from linnet.cli.printing import json_line, paint, width, wrapped
from linnet.cli.prompt import Prompt, PromptFile, read_prompt
from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.analysis import AttentionMaps
    from linnet.board.figure.heat_map import HeatMap


def attention(
    model: ModelName,
    /,
    *,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    layer: int | None = None,
    head: int | None = None,
    record: Record = False,
    out: Out = None,
    theme: Theme = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Which tokens of a prompt a language model attends to, after each of them; --json has every head.

    Args:
        layer: The heads of this layer, on average, counted from 0; by default all heads of all layers.
        head: This head of the --layer alone.
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.analysis.attention import attention as maps_of

    text = read_prompt(prompt, prompt_file)
    if not text:
        raise UsageError('attention needs a text: --prompt "The cat sat on the mat"')
    checkpoint = find_checkpoint(model, runs, recordable=record)
    maps = maps_of(model, text, device=device, runs=runs)
    heat = attention_map(maps, layer, head)
    if json:
        print(json_line(maps.as_fields()))  # on one line: it has a number for each pair of tokens in each head
    else:
        picture_or_text(heat, out, theme)
        print(paint(wrapped("a row a token: how much it attends to each token up to itself, in %", width(), ""), "dim"))
    print_choice(model, checkpoint.path, json)
    if record:
        record_finding(checkpoint, "attention", f"attention of {text!r}", heat, maps.as_fields())
    return 0


def attention_map(maps: AttentionMaps, layer: int | None, head: int | None) -> HeatMap:
    """Tokens by the tokens that they attend to; what comes later is left empty."""
    from linnet.board.figure.heat_map import HeatMap

    values = maps.mean(layer, head)
    values[np.triu_indices(len(values), 1)] = np.nan
    averaged_over = (
        "mean of all heads"
        if layer is None
        else f"layer {layer}, {'mean of its heads' if head is None else f'head {head}'}"
    )
    tokens = [shown(token) for token in maps.tokens]
    rows = [f"{at} {token}" for at, token in enumerate(tokens)]
    title = f"{maps.model}: attention, {averaged_over}"
    return HeatMap(values, rows, tokens, "attention", title, "token", "tokens attended to", low=0.0, high=1.0)
