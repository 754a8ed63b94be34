"""What `linnet cka`, `lmc`, `drift`, `lens-words` and `attention` found about a run's models, and `--record` kept."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import msgspec

from linnet.board.journal import Evaluation, Journal
from linnet.board.web.answers import InsideResult, RequestError, plain_json
from linnet.board.web.artifacts import numbered
from linnet.board.web.board import WebBoard
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.safe_store import open_inside
from linnet.runs import Artifact

KINDS = ("cka", "lmc", "drift", "lens-words", "attention")
_LARGEST = 4 << 20  # bytes of a file of numbers
_MOST = 200  # results; of more, the latest


def has_results(journal: Journal) -> bool:
    """Was anything kept?"""
    return any(series.name in KINDS for series in journal.artifacts()) or any(map(_is_place, journal.evaluations()))


def results(board: WebBoard, run_id: str) -> list[InsideResult]:
    """All that was kept, in the order in which it was found. Lines that Toy evaluated have numbers and no picture."""
    with board.open_whole(run_id) as run:
        pictures, numbers = _artifacts(run)
        lines = _lines(run.journal.evaluations())
        answers = []
        for number, artifact in pictures[-_MOST:]:
            fields = _read(run, numbers.get(number))
            if artifact.name == "lmc":
                line = next((line for line in lines if line["step"] == artifact.step), None)
                if line is not None:
                    lines.remove(line)
                fields = fields if fields is not None or line is None else line["numbers"]
            caption = artifact.fields.get("caption")
            text = caption[:2_000] if isinstance(caption, str) else artifact.name
            answers.append(InsideResult(artifact.name, artifact.step, text, number, plain_json(fields)))
    answers += [InsideResult("lmc", line["step"], "lmc", None, plain_json(line["numbers"])) for line in lines[-_MOST:]]
    return answers


def _artifacts(run: OpenRun) -> tuple[list[tuple[int, Artifact]], dict[int, Artifact]]:
    """The pictures as they were kept, and by the number of each the file of its numbers, written right before it."""
    logged = {id(artifact): number for number, artifact in numbered(run).items()}
    by_series = {series.key: series.artifacts for series in run.journal.artifacts()}
    pictures, files = list[tuple[int, Artifact]](), dict[int, Artifact]()
    for kind in KINDS:
        waiting = list(by_series.get((f"{kind}.json", "file"), []))
        for artifact in by_series.get((kind, "image"), []):
            number = logged.get(id(artifact))
            if number is None:
                continue
            pictures.append((number, artifact))
            own = next((one for one in waiting if one.step == artifact.step and one.t <= artifact.t), None)
            if own is not None:
                waiting.remove(own)
                files[number] = own
    return sorted(pictures, key=lambda pair: pair[1].t), files


def _read(run: OpenRun, artifact: Artifact | None) -> dict[str, Any] | None:
    if artifact is None:
        return None
    try:
        with os.fdopen(open_inside(run.run.path, artifact.path.relative_to(run.run.path)), "rb") as file:
            content = file.read(_LARGEST + 1)
        return None if len(content) > _LARGEST else msgspec.json.decode(content, type=dict[str, Any])
    except (RequestError, OSError, ValueError, RecursionError):
        return None  # there is the picture


def _is_place(one: Evaluation) -> bool:
    """Is it the loss at a place on the line between two models?"""
    return one.name == "lmc" and "alpha" in one.figures and "loss" in one.figures


def _lines(evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    """The lines that were evaluated, each with its step and its numbers: a place that does not go on begins another."""
    lines: list[tuple[int | None, list[tuple[float, float]]]] = []
    for one in filter(_is_place, evaluations):
        alpha, loss = one.figures["alpha"], one.figures["loss"]
        if not lines or lines[-1][0] != one.step or alpha <= lines[-1][1][-1][0]:
            lines.append((one.step, []))
        lines[-1][1].append((alpha, loss))
    return [{"step": step, "numbers": _numbers(places)} for step, places in lines]


def _numbers(places: list[tuple[float, float]]) -> dict[str, Any]:
    """As `linnet lmc --json` names them."""
    (first, begin), (last, end) = places[0], places[-1]
    span = last - first or 1.0
    heights = [loss - (begin + (end - begin) * (alpha - first) / span) for alpha, loss in places]
    barrier = max((height for height in heights if math.isfinite(height)), default=0.0)
    return {"alphas": [alpha for alpha, _ in places], "losses": [loss for _, loss in places], "barrier": barrier}
