"""The inside tab: likeness of layers, drift of tokens, what analyses recorded, attention, warnings."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from linnet.board.analysis_results import LARGEST, AnalysisResult, analysis_results
from linnet.board.figure.analysis_figures import figure_of, visible_token
from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.scales import Scale
from linnet.board.figure.scatter import Group, Scatter, ScatterSeries
from linnet.board.figure.text_scatter import scatter_lines
from linnet.board.gram_similarity import gram_regions, layers_alike, layers_over_steps
from linnet.board.terminal.artifact_lines import artifact_lines
from linnet.board.terminal.attention import newest_checkpoint
from linnet.board.terminal.inside_page import InsidePage
from linnet.board.terminal.spans import Line, around, cut, fill, fit, justify, pad, safe, wrap
from linnet.board.terminal.state import Board
from linnet.board.terminal.views.heat import map_lines
from linnet.board.terminal.views.scatter import in_colours
from linnet.board.token_texts import token_text
from linnet.board.watched_run import WatchedRun
from linnet.board.words import duration, number
from linnet.files import step_of
from linnet.runs.inspection import Inspection, TokenDrift

CORRELATION = "drift/token_frequency"  # the metric
_BESIDE = 100  # columns from which the list of what was recorded stands beside it
_LIST = 30  # columns of that list
_TEXT = 14  # columns of a text in a map
_MOST_TOKEN = 12  # columns of a token
_MOST_LISTED = 4  # lines of it above
_MOST_TOKENS = 8  # that are named
_AROUND_MAP = 3  # lines of a map besides its rows


def draw_likeness(board: Board, inspection: Inspection, width: int, height: int) -> list[Line]:
    """Linear CKA of layers with each other at a step, and of each with itself at the last; or one of both."""
    page = board.inside
    page.regions, page.steps = gram_regions(inspection), inspection.gram_steps
    region, step = page.chosen_region(), page.nearest_step(page.steps)
    if region is None or step is None:
        return []
    (layers, values), over_steps = layers_alike(inspection, region, step), _over_steps(page, inspection, region)
    page.rows, at = len(layers), page.steps.index(step)
    names = [str(layer) for layer in layers]
    beside = HeatMap(values, names, names, "CKA", "", "layer", "layers", low=0.0, high=1.0)
    later = HeatMap(over_steps, names, [number(one) for one in page.steps], "CKA", "", "layer", "", low=0.0, high=1.0)
    both = 2 * (len(layers) + _AROUND_MAP) <= height - 1
    lines: list[Line] = []
    if both or not page.over_steps:
        lines += [[("each layer beside each other", "dim")], *map_lines(board, beside, width - 1, height - 2)[0]]
    if both or page.over_steps:
        lines += [[("each layer beside itself at the last step", "dim")]]
        above = len(lines) + 1  # and the title
        drawn, cell_at, _ = map_lines(board, later, width - 1, height - above, (page.row, at))
        page.cell_at = lambda x, y: cell_at(x - 1, y - above)
        lines += drawn
    cursor_facts: Line = [(f"step {number(step)}  layer {names[page.row]}  ", "dim")]
    cursor_facts += [(f"{over_steps[page.row, at]:.3f} ", "title")]
    return [justify([(" CKA ", "dim"), (f"of {safe(region)}", "title")], cursor_facts, width), *_indented(lines)]


def _over_steps(page: InsidePage, inspection: Inspection, region: str) -> NDArray[np.float64]:
    """How alike each layer is to itself at the last step; computed again when there is more."""
    key, known = (inspection.changes, region), page.likeness
    if known is None or known[0] is not inspection or known[1] != key:
        known = page.likeness = inspection, key, layers_over_steps(inspection, region)
    return known[2]


def draw_tokens(board: Board, inspection: Inspection, width: int, height: int) -> list[Line]:
    """The drift of tokens of the embedding by how often they came."""
    page = board.inside
    page.steps = inspection.token_steps
    step = page.nearest_step(page.steps)
    if step is None:
        return []
    drift = inspection.tokens(step)
    came = (drift.freq > 0) & np.isfinite(drift.cos_to_init)
    title: Line = [(" drift of tokens ", "title"), ("  cosine with its first value, by how often it came", "dim")]
    head = justify(title, [(f"step {number(step)} ", "dim")], width)
    if came.sum() < 2:
        return [head, [], [("   none of these tokens has come yet", "dim")]]
    x, y = np.log10(drift.freq[came].astype(float)), drift.cos_to_init[came]
    points = zip(x.tolist(), y.tolist(), drift.token_id[came].tolist(), strict=True)
    groups = [Group(a, f"{10**a:g}", (b,), (str(token),)) for a, b, token in points]
    low, high = float(x.min()), float(x.max())
    scale = Scale(low, high if high > low else low + 1.0, log=True)
    scatter = Scatter([ScatterSeries("tokens", groups, 0, 0)], scale, "how often", "cosine", "", of="tokens")
    named = _farthest(board, drift, width)
    drawn = scatter_lines(scatter, width - 2, height - 1 - len(named))
    return [head, *fill(_indented(in_colours(drawn)), width, height - 1 - len(named)), *named]


def _farthest(board: Board, drift: TokenDrift, width: int) -> list[Line]:
    """The correlation that the training logged, over all tokens; and which of these moved the farthest."""
    assert board.watched is not None
    curve = board.watched.history.curve(CORRELATION)
    at = int(curve.step.searchsorted(drift.step, "right")) - 1 if curve is not None else -1
    summary = f" {len(drift.freq)} tokens of the vocabulary"
    if curve is not None and at >= 0:
        summary += f"; of all that came: r = {number(float(curve.mean[at]), 3)}, log frequency against cosine"
    order = np.argsort(np.where(drift.freq > 0, drift.cos_to_init, np.inf))[:_MOST_TOKENS]
    came = [at for at in order.tolist() if drift.freq[at] > 0]
    texts = [safe(token_text(board.watched.run, int(drift.token_id[at])), _MOST_TOKEN) for at in came]
    words = [f"{text} ({number(float(drift.cos_to_init[at]), 2)})" for text, at in zip(texts, came, strict=True)]
    return [[(cut(summary, width), "dim")], [(cut(f" farthest: {', '.join(words)}", width), "dim")]]


# -- what analyses recorded -----------------------------------------------------------------------------------------


def draw_recorded(board: Board, width: int, height: int) -> list[Line]:
    """A list of what was recorded, the newest first, and of one of it the map or the curve."""
    page, watched = board.inside, board.watched
    results = _recorded(page, watched) if watched is not None else []
    page.rows, page.steps = len(results), ()
    if not results:
        return []
    if page.opened:
        chosen = results[min(page.at_row.get("recorded", 0), len(results) - 1)]
        page.rows = 0
        return _figure_lines(board, chosen, width, height)
    listed = [_recorded_line(result, at == page.row) for at, result in enumerate(results)]
    chosen = results[page.row]
    if width >= _BESIDE:
        names = fill(around(listed, page.row, height), _LIST, height)
        drawn = fill(_figure_lines(board, chosen, width - _LIST - 2, height), width - _LIST - 2, height)
        return [[*name, ("  ", ""), *line] for name, line in zip(names, drawn, strict=True)]
    names = [fit(line, width, "") for line in around(listed, page.row, min(_MOST_LISTED, len(listed)))]
    return [*names, *_figure_lines(board, chosen, width, height - len(names))]


def _recorded(page: InsidePage, watched: WatchedRun) -> list[AnalysisResult]:
    """What `--record` of analyses kept; their files are read again when there is more."""
    key = (watched, watched.journal.artifacts(), len(watched.journal.evaluations()))
    if page.results is None or any(a is not b and a != b for a, b in zip(page.results[0], key, strict=True)):
        results = analysis_results(watched.journal, lambda artifact: artifact.read(LARGEST))
        page.results = key, results[::-1]
    return page.results[1]


def _recorded_line(result: AnalysisResult, chosen: bool) -> Line:
    on = ".on" if chosen else ""
    step = f"step {number(result.step)}" if result.step is not None else ""
    return [("▌" if on else " ", f"row{on}"), (pad(safe(result.kind), 14), f"row{on}"), (pad(step, 15), f"dim{on}")]


def _figure_lines(board: Board, result: AnalysisResult, width: int, height: int) -> list[Line]:
    note_lines: list[Line] = [[(f" {line}", "dim")] for line in wrap(result.text, max(8, width - 2), 3) if line]
    figure, room = figure_of(result.kind, result.numbers), max(4, height - len(note_lines))
    if isinstance(figure, HeatMap):
        return [*_map_of_finding(board, figure, width, room), *note_lines]
    if figure is not None:
        return [*_indented(in_colours(scatter_lines(figure, width - 2, room))), *note_lines]
    if result.picture is None:
        return [*note_lines, [], [("   its numbers do not fit together", "warning")]]
    return [*_indented(artifact_lines(result.picture, width - 1, room, color=board.color)), *note_lines]


def _map_of_finding(board: Board, figure: HeatMap, width: int, height: int) -> list[Line]:
    """The map; opened, with a cursor that moves through it. Of texts as many columns as have room, from there on."""
    page, cursor = board.inside, None
    if page.opened:
        page.rows, page.column = len(figure.rows), min(page.column, len(figure.columns) - 1)
        cursor = page.row, page.column
        value = figure.cell_texts[page.row][page.column]
        where = f"{figure.row_label} {figure.rows[page.row]}, {figure.column_label} {figure.columns[page.column]}"
        figure = replace(figure, title=f"{where}: {value}")
    if figure.texts is not None:
        first = min(page.column if page.opened else 0, max(0, len(figure.columns) - (width - 8) // _TEXT))
        shown = slice(first, first + max(1, (width - 8) // _TEXT))
        texts = [row[shown] for row in figure.texts]
        figure = replace(figure, values=figure.values[:, shown], columns=figure.columns[shown], texts=texts)
        cursor = None if cursor is None else (cursor[0], cursor[1] - first)
    lines, _, left_out = map_lines(board, figure, width - 1, height - 1, cursor)
    return _indented([*lines, [(left_out, "dim")]] if left_out else lines)[:height]


# -- attention ------------------------------------------------------------------------------------------------------


def draw_attention(board: Board, width: int, height: int) -> list[Line]:
    """What each head looks at in a prompt that somebody types."""
    page, request, watched = board.inside, board.inside.attention, board.watched
    page.steps, page.rows = (), 0
    file = newest_checkpoint(watched) if watched is not None else None
    if watched is None or file is None:
        return [[], [("   no checkpoint of a language model yet, whose attention could be shown", "dim")]]
    if request is None or request.file.parent != file.parent:
        text = f"Enter, and a prompt: what each head of {watched.id}@{step_of(file)} looks at"
        return [[], [(f"   {cut(safe(text), width - 4)}", "")]]
    if request.trouble:
        error_lines = wrap(request.trouble, max(8, width - 5), 6)
        return [[], *([(f"   {line}", "warning")] for line in error_lines), [], [("   Enter: another prompt", "dim")]]
    if (answer := request.answer) is None:
        text = f"linnet attention computes … ({duration(time.monotonic() - request.began)})"
        return [[], [(f"   {text}", "dim")]]
    layers = sorted(answer.layers)
    page.rows = len(layers)
    weights_HTS = answer.layers[layers[page.row]]
    head = None if page.head is None else min(page.head, len(weights_HTS) - 1)
    values = (weights_HTS.mean(0) if head is None else weights_HTS[head]).astype(np.float64)
    if values.shape[0] == values.shape[1]:
        values[np.triu(values == 0, 1)] = np.nan  # where a token cannot look
    tokens = [safe(visible_token(token), _MOST_TOKEN) for token in answer.tokens]
    rows = [f"{at} {token}" for at, token in enumerate(tokens)][-len(values) :]
    heat = HeatMap(values, rows, tokens, "attention", "", "from", "tokens", low=0.0, high=1.0)
    lines, _, left_out = map_lines(board, heat, width - 1, height - 1)
    named = f"layer {layers[page.row]}  {'mean of all heads' if head is None else f'head {head}'}"
    title: Line = [(" attention ", "dim"), (named, "title"), (f"  {left_out}" if left_out else "", "dim")]
    prompt = cut(safe(request.prompt), max(8, width - 60))
    return [justify(title, [(f"{prompt}  step {number(step_of(request.file))} ", "dim")], width), *_indented(lines)]


# -- warnings -------------------------------------------------------------------------------------------------------


def draw_warnings(board: Board, width: int, height: int) -> list[Line]:
    """What went wrong in the training, with its step and the likely cause."""
    page = board.inside
    entries = [one for one in (board.watched.journal.log_entries() if board.watched else []) if one.level != "info"]
    page.steps, page.rows = (), len(entries)
    lines: list[Line] = []
    begins: list[int] = []
    for entry in entries:
        begins.append(len(lines))
        sign = "✗" if entry.level == "error" else "!"
        step = f"step {number(entry.step)}" if entry.step is not None else ""
        finding, colon, cause = entry.text.partition(": ")
        first, *rest = wrap(finding, max(8, width - 20), 4) or [""]
        lines.append([(f" {sign} ", entry.level), (pad(step, 14), "dim"), (first, entry.level)])
        lines += [[(" " * 17, ""), (line, entry.level)] for line in rest]
        lines += [[(" " * 17, ""), (line, "")] for line in (wrap(cause, max(8, width - 20), 6) if colon else [])]
    first_line = min(begins[page.row], max(0, len(lines) - height)) if begins else 0
    return lines[first_line : first_line + height]


def _indented(lines: list[Line]) -> list[Line]:
    return [[(" ", ""), *line] for line in lines]
