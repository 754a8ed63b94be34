"""`linnet lmc`: the loss on the straight line between two models."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.cli.findings import Out, Record, Theme, find_checkpoint, picture_or_text, record_finding
from linnet.cli.options import AsJson, ModelName, RunsFolder
from linnet.cli.printing import paint, print_json, width, wrapped
from linnet.cli.streams import draw_over
from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.analysis import LossLine
    from linnet.board.figure.scatter import Scatter

_LINES = 18  # of the chart
_KINDS = {"residual": "the channels", "hidden": "the hidden units", "heads": "the heads"}
_STYLES = {"same basin": "green", "barrier": "yellow"}


def lmc(
    model: ModelName,
    other: Annotated[str, Parameter(help="Another MODEL of the same shape.")],
    /,
    *,
    align: bool = False,
    alphas: str | None = None,
    corpus: str | None = None,
    images: str | None = None,
    tokens: int = 16_384,
    record: Record = False,
    out: Out = None,
    theme: Theme = None,
    cache: Path | None = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """The loss on the straight line between two models of one shape: one basin, or a barrier between them?

    Args:
        align: Put the other model's units into the order in which they are most like the first one's, before.
        alphas: How much of the other model is in each that is scored, as in 0,0.25,0.5,0.75,1; by default in tenths.
        corpus: What they are scored on; by default what the first one's run held out.
        images: The same of vision transformers.
        tokens: Tokens that are scored at each place (16,384).
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.analysis.connectivity import ALPHAS
    from linnet.analysis.connectivity import lmc as loss_line
    from linnet.cli.progress import preparing

    places = ALPHAS if alphas is None else _alphas(alphas)
    checkpoint = find_checkpoint(model, runs, recordable=record)
    shows = sys.stderr.isatty() and not json
    line = loss_line(
        model,
        other,
        alphas=places,
        aligned=align,
        corpus=corpus,
        images=images,
        tokens=tokens,
        cache=cache,
        device=device,
        runs=runs,
        progress=preparing if sys.stdout.isatty() and not json else None,
        on_loss=_show_progress if shows else None,
    )
    if shows:
        draw_over("", sys.stderr)
    scatter = loss_chart(line)
    if json:
        print_json(line.as_fields())
    else:
        picture_or_text(scatter, out, theme, lines=_LINES)
        _print(line)
    if record:
        evaluations = [
            {"loss": loss, "ppl": math.exp(min(loss, 700.0)), "samples": line.samples, "extra": {"alpha": alpha}}
            for alpha, loss in zip(line.alphas, line.losses, strict=True)
        ]
        note = f"lmc {line.a} → {line.b}: {line.verdict}, {sentence(line)}"
        record_finding(checkpoint, "lmc", note, scatter, line.as_fields(), evaluations)
    return 0


def loss_chart(line: LossLine) -> Scatter:
    """The losses by place; with alignment also those without it."""
    from linnet.board.figure.scales import Scale
    from linnet.board.figure.scatter import Group, Scatter, ScatterSeries

    def series(label: str, losses: tuple[float, ...], at: int) -> ScatterSeries:
        pairs = zip(line.alphas, losses, strict=True)
        return ScatterSeries(label, [Group(a, f"{a:g}", (loss,), (label,)) for a, loss in pairs], at, at)

    shown = [series("aligned" if line.before else "loss", line.losses, 0)]
    shown += [series("as they are", line.before, 1)] if line.before is not None else []
    x_label = f"how much of {line.b}"
    return Scatter(shown, Scale(0.0, 1.0), x_label, "held-out loss", f"{line.a} → {line.b}", of="models")


def sentence(line: LossLine) -> str:
    """What was found, in words, behind the verdict."""
    height = f"a barrier of {line.barrier:.3g} nats, {100 * line.share:.3g} % of the loss at the ends"
    if line.barrier <= 0:
        height = "the loss rises nowhere above the line between the ends"
    before = f" ({line.barrier_before:.3g} nats before they were aligned)" if (line.barrier_before or 0) > 0 else ""
    return f"{height}{before}"


def _print(line: LossLine) -> None:
    verdict = paint(line.verdict, _STYLES[line.verdict])
    print(f"\n{verdict}: {wrapped(sentence(line), width() - len(line.verdict) - 2)}")
    scored = f"{line.samples:,} {line.unit} of {line.source}, at {len(line.alphas)} places"
    print(paint(wrapped(scored, width()), "dim"))
    if line.aligned is not None:
        moved = ", ".join(f"{100 * share:.0f} % of {_KINDS[kind]}" for kind, share in line.aligned.moved.items())
        cosines = f"cosine of the weights {line.aligned.before:.3f} → {line.aligned.after:.3f}"
        print(paint(wrapped(f"{cosines}; another place: {moved}", width()), "dim"))


def _alphas(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.replace(" ", ",").split(",") if word)
    except ValueError:
        raise UsageError(f"--alphas {text!r}: expected numbers from 0 to 1, as in 0,0.25,0.5,0.75,1") from None


def _show_progress(alpha: float, loss: float) -> None:
    draw_over(f"{paint('scoring', 'dim')} {alpha:.2f}: {loss:.4g}", sys.stderr)
