"""What `linnet cka`, `lmc`, `drift`, `lens-words` and `attention` found about a run's models, and `--record` kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from linnet.board.journal import Evaluation, Journal
from linnet.runs import Artifact

KINDS = ("cka", "lmc", "drift", "lens-words", "attention")
LARGEST = 4 << 20  # bytes of a file of numbers
_MOST = 200  # results; of more, the latest


@dataclass(frozen=True)
class AnalysisResult:
    """One finding. `numbers`: what `--json` had printed; None where they were not kept, or are gone.

    - `picture`: None of a line that Toy evaluated, which has numbers alone.
    """

    kind: str
    step: int | None
    text: str
    picture: Artifact | None
    numbers: dict[str, Any] | None


def has_results(journal: Journal) -> bool:
    """Was anything kept?"""
    return any(series.name in KINDS for series in journal.artifacts()) or any(map(_is_place, journal.evaluations()))


def analysis_results(journal: Journal, read: Callable[[Artifact], bytes]) -> list[AnalysisResult]:
    """All that was kept, in the order in which it was found; `read` gives the content of a file of numbers."""
    pictures, files = _artifacts(journal)
    lines = _lines(journal.evaluations())
    results = []
    for artifact in pictures[-_MOST:]:
        fields = _numbers_of(files.get(id(artifact)), read)
        if artifact.name == "lmc":
            line = next((line for line in lines if line[0] == artifact.step), None)
            if line is not None:
                lines.remove(line)
            fields = fields if fields is not None or line is None else line[1]
        caption = artifact.fields.get("caption")
        text = caption[:2_000] if isinstance(caption, str) else artifact.name
        results.append(AnalysisResult(artifact.name, artifact.step, text, artifact, fields))
    return results + [AnalysisResult("lmc", step, "lmc", None, numbers) for step, numbers in lines[-_MOST:]]


def _artifacts(journal: Journal) -> tuple[list[Artifact], dict[int, Artifact]]:
    """The pictures as they were kept, and by the identity of each the file of its numbers, written right before it."""
    by_series = {series.key: series.artifacts for series in journal.artifacts()}
    pictures, files = list[Artifact](), dict[int, Artifact]()
    for kind in KINDS:
        waiting = list(by_series.get((f"{kind}.json", "file"), []))
        for artifact in by_series.get((kind, "image"), []):
            pictures.append(artifact)
            own = next(
                (
                    evaluation
                    for evaluation in waiting
                    if evaluation.step == artifact.step and evaluation.t <= artifact.t
                ),
                None,
            )
            if own is not None:
                waiting.remove(own)
                files[id(artifact)] = own
    return sorted(pictures, key=lambda artifact: artifact.t), files


def _numbers_of(file: Artifact | None, read: Callable[[Artifact], bytes]) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        return msgspec.json.decode(read(file), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return None  # there is the picture


def _is_place(evaluation: Evaluation) -> bool:
    """Is it the loss at a place on the line between two models?"""
    return evaluation.name == "lmc" and "alpha" in evaluation.figures and "loss" in evaluation.figures


def _lines(evaluations: Iterable[Evaluation]) -> list[tuple[int | None, dict[str, Any]]]:
    """The lines that were evaluated, each with its step and its numbers: a place that does not go on begins another."""
    lines: list[tuple[int | None, list[tuple[float, float]]]] = []
    for evaluation in filter(_is_place, evaluations):
        alpha, loss = evaluation.figures["alpha"], evaluation.figures["loss"]
        if not lines or lines[-1][0] != evaluation.step or alpha <= lines[-1][1][-1][0]:
            lines.append((evaluation.step, []))
        lines[-1][1].append((alpha, loss))
    return [(step, _line_numbers(places)) for step, places in lines]


def _line_numbers(places: list[tuple[float, float]]) -> dict[str, Any]:
    """As `linnet lmc --json` names them."""
    (first, begin), (last, end) = places[0], places[-1]
    span = last - first or 1.0
    heights = [loss - (begin + (end - begin) * (alpha - first) / span) for alpha, loss in places]
    barrier = max((height for height in heights if math.isfinite(height)), default=0.0)
    return {"alphas": [alpha for alpha, _ in places], "losses": [loss for _, loss in places], "barrier": barrier}
