"""`linnet cka`: how alike the layers of two models represent the same text or images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from cyclopts import Parameter

from linnet.cli.completion import complete_model
from linnet.cli.findings import Out, Record, Theme, find_checkpoint, picture_or_text, record_finding
from linnet.cli.options import AsJson, ModelName, RunsFolder
from linnet.cli.printing import paint, print_json, width, wrapped

if TYPE_CHECKING:
    from linnet.analysis import Similarity
    from linnet.board.figure.heat_map import HeatMap


def cka(
    model: ModelName = "latest",
    other: Annotated[
        str | None, Parameter(help="Another MODEL; without it the model's own layers.", completer=complete_model)
    ] = None,
    /,
    *,
    region: str = "resid_post_block",
    corpus: str | None = None,
    text: str | None = None,
    images: str | None = None,
    samples: int = 1024,
    record: Record = False,
    out: Out = None,
    theme: Theme = None,
    cache: Path | None = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """How alike the layers of two models represent a text (linear CKA), or those of one model.

    Args:
        region: What is compared of each layer: resid_post_block (the residual stream behind it), attn_norm, attn_q,
            attn_k, attn_v, attn_out, resid_post_attn, ffn_norm, ffn_act or ffn_out.
        corpus: What they are shown; by default what the model's run held out, else Python's library.
        text: The same, as it is given.
        images: The same of vision transformers.
        samples: Tokens, or patches of images, that are compared (1,024).
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.analysis.similarity import cka as similarity_of
    from linnet.cli.progress import preparing

    checkpoint = find_checkpoint(model, runs, recordable=record)
    similarity = similarity_of(
        model,
        other,
        region=region,
        corpus=corpus,
        text=text,
        images=images,
        samples=samples,
        cache=cache,
        device=device,
        runs=runs,
        progress=preparing if sys.stdout.isatty() and not json else None,
    )
    heat = cka_map(similarity)
    if json:
        print_json(similarity.as_fields())
    else:
        picture_or_text(heat, out, theme)
        _print(similarity)
    if record:
        record_finding(checkpoint, "cka", f"cka: {sentence(similarity)}", heat, similarity.as_fields())
    return 0


def cka_map(similarity: Similarity) -> HeatMap:
    """Layers of the one against layers of the other."""
    from linnet.board.figure.heat_map import HeatMap

    a, b = similarity.a, similarity.b
    title = f"CKA of {a} and {b}" if a != b else f"CKA of the layers of {a}"
    label = f"layers of {b}" if a != b else "layers"
    rows, columns = similarity.rows, similarity.columns
    return HeatMap(similarity.values_RC, rows, columns, "CKA", title, "layer", label, low=0.0, high=1.0)


def sentence(similarity: Similarity) -> str:
    """How alike they are in a few numbers, in words."""
    values, a, b = similarity.values_RC, similarity.a, similarity.b
    said = np.diagonal(values, 1) if a == b else np.diagonal(values) if values.shape[0] == values.shape[1] else values
    if a == b and len(values) < 2:
        return f"{a} has one layer of this, and nothing to compare it with"
    if not np.isfinite(said).any():
        both = a if a == b else f"{a} and {b}"
        return f"{both}: activations are not finite, or all the same: no layer is like another"
    if a == b:
        beside = np.diagonal(values, 1)
        least = int(np.nanargmin(beside))
        before, after = similarity.rows[least : least + 2]
        return f"{a}: the largest change is from {before} to {after} ({beside[least]:.2f})"
    if values.shape[0] == values.shape[1]:
        same = np.diagonal(values)
        parts = f"mean of layers with the same number {np.nanmean(same):.2f}, least {np.nanmin(same):.2f}"
        return f"{a} and {b}: {parts} (layer {similarity.rows[int(np.nanargmin(same))]})"
    comparable = [(row, alike) for row, alike in zip(similarity.rows, values, strict=True) if np.isfinite(alike).any()]
    pairs = ", ".join(f"{row}–{similarity.columns[int(np.nanargmax(alike))]}" for row, alike in comparable)
    return f"{a} and {b}: layers that are most alike: {pairs}"


def _print(similarity: Similarity) -> None:
    print(f"\n{wrapped(sentence(similarity), width(), '')}")
    measure = f"unbiased linear CKA of {similarity.region}, over {similarity.samples:,} {similarity.unit}"
    print(paint(wrapped(f"{measure} of {similarity.source}", width(), ""), "dim"))
