"""What analysis commands found about a run's models and `--record` kept, for the page of its inside."""

from __future__ import annotations

import os

from linnet.board.analysis_results import LARGEST, analysis_results
from linnet.board.web.answer_json import plain_json
from linnet.board.web.answers import RequestError
from linnet.board.web.artifacts import numbered
from linnet.board.web.board import WebBoard
from linnet.board.web.inside_answer_types import InsideResult
from linnet.board.web.safe_store import open_inside
from linnet.runs import Artifact


def results(board: WebBoard, run_id: str) -> list[InsideResult]:
    """All that was kept, in the order in which it was found. Lines that Toy evaluated have numbers and no picture."""
    with board.open_whole(run_id) as run:
        folder = run.run.path

        def read(artifact: Artifact) -> bytes:
            try:
                file = open_inside(folder, artifact.path.relative_to(folder))
            except RequestError as error:
                raise OSError(str(error)) from None
            with os.fdopen(file, "rb") as opened:
                content = opened.read(LARGEST + 1)
            return content if len(content) <= LARGEST else b""

        numbers = {id(artifact): number for number, artifact in numbered(run).items()}
        return [
            InsideResult(
                kind=result.kind,
                step=result.step,
                text=result.text,
                picture=None if result.picture is None else numbers.get(id(result.picture)),
                numbers=plain_json(result.numbers),
            )
            for result in analysis_results(run.journal, read)
        ]
