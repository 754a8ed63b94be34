"""`linnet drift`: how far each layer of a run moved from where it began."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.cli.findings import Out, Record, Theme, find_checkpoint, picture_or_text, record_finding
from linnet.cli.options import AsJson, ModelName, RunsFolder
from linnet.cli.printing import paint, print_json, print_table, width, wrapped

if TYPE_CHECKING:
    from linnet.analysis import Drift
    from linnet.analysis.drift import TokenDrift
    from linnet.board.figure.heat_map import HeatMap


def drift(
    model: ModelName = "latest",
    /,
    *,
    record: Record = False,
    out: Out = None,
    theme: Theme = None,
    cache: Path | None = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """How far each layer of a run moved from its first value: a RUN over its checkpoints, RUN@200 tensor by tensor.

    Args:
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    """
    from linnet.analysis.drift import drift as drift_of
    from linnet.cli.progress import preparing

    checkpoint = find_checkpoint(model, runs, recordable=record, of_run="latest")
    shows = sys.stdout.isatty() and not json
    moved = drift_of(model, cache=cache, runs=runs, progress=preparing if shows else None)
    heat = drift_map(moved)
    if json:
        print_json(moved.as_fields())
    else:
        picture_or_text(heat, out, theme)
        _print(moved)
    if record:
        record_finding(checkpoint, "drift", f"drift: {sentence(moved)}", heat, moved.as_fields())
    return 0


def drift_map(moved: Drift) -> HeatMap:
    """Layers against checkpoints; of one checkpoint kinds of tensor against layers. The scale is that of the layers."""
    from linnet.board.figure.heat_map import HeatMap

    title = f"{moved.run}: distance from {moved.origin}"
    if len(moved.steps) == 1:
        layers, kinds, values = moved.table()
        title = f"{moved.run}@{moved.steps[0]}: distance from {moved.origin}"
        rows, columns, labels, values = kinds, layers, ("tensor", "layer"), values.T
    else:
        rows, columns, labels = moved.layers, tuple(f"{step:,}" for step in moved.steps), ("layer", "step")
        values = moved.distances_LS
    inner = values if len(moved.steps) == 1 else values[1:-1]
    finite = inner[np.isfinite(inner)]
    high = float(finite.max()) if len(finite) and finite.max() > 0 else None
    return HeatMap(values, rows, columns, "distance", title, *labels, low=0.0, high=high)


def sentence(moved: Drift) -> str:
    """Which layers moved the most and the least, in words."""
    last = zip(moved.layers, moved.distances_LS[:, -1].tolist(), strict=True)
    inner = {name: value for name, value in last if name.isdigit() and math.isfinite(value)}
    if not inner:
        return f"at step {moved.steps[-1]:,}, from {moved.origin}"
    most, least = max(inner, key=inner.__getitem__), min(inner, key=inner.__getitem__)
    far, near = (f"by {_percent(inner[layer])} of its length" for layer in (most, least))
    at = f"at step {moved.steps[-1]:,}"
    if len(inner) == 1:
        return f"{at} layer {most} has moved {far} from {moved.origin}"
    return f"{at} layer {most} is the farthest from {moved.origin}, {far}; layer {least} the nearest, {near}"


def _print(moved: Drift) -> None:
    print(f"\n{wrapped(sentence(moved), width())}")
    if len(moved.steps) == 1:
        apart = [tensor for tensor in moved.tensors if tensor.layer is None]
        rows = [(tensor.tensor, _percent(tensor.distance), f"{tensor.cosine:.3f}") for tensor in apart]
        if rows:
            print()
            print_table(("besides the layers", "distance", "cosine"), rows, right=(1, 2))
    if moved.tokens is not None:
        _print_tokens(moved.tokens)


def _print_tokens(tokens: TokenDrift) -> None:
    print()
    rows = [
        (
            f"{part.fewest:,} to {part.most:,}" if part.most else "never",
            f"{part.tokens:,}",
            _percent(part.distance),
            f"{part.cosine:.3f}",
        )
        for part in tokens.bins
    ]
    print_table(("tokens that came so often", "tokens", "distance", "cosine"), rows, right=(1, 2, 3))
    r = tokens.correlation
    print(paint(f"log frequency against cosine: r = {r:.3f} (Pearson), over the tokens that came", "dim"))


def _percent(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.2g} %"
