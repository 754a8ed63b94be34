"""The description of the API for other programs: `python -m linnet.board.web.openapi` writes `openapi.json`.

Answers are described by the types they are made of, so what is written here is only where they are to be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from linnet.board.curve import AXES
from linnet.board.journal import LogEntry, Note, Sample
from linnet.board.web import answers
from linnet.board.web import inside_answer_types as inside
from linnet.board.web.inside_answers import MOST_COLUMNS, MOST_RIDGES, TABLES
from linnet.board.web.parameters import LONGEST, MOST_KEYS, MOST_POINTS, MOST_RUNS

FILE = Path(__file__).parent / "openapi.json"
BINARY, STREAM, FILES = "application/octet-stream", "text/event-stream", "*/*"
_FLAG = {"type": "string", "enum": ["0", "1", "true", "false"]}
_TEXT = {"type": "string", "maxLength": LONGEST}
_REFUSALS = {
    400: "a parameter is out of its bounds",
    401: "a token is needed",
    403: "the name, the origin or the header X-Linnet is not right",
    404: "there is no such run, step or file",
    408: "the body did not come",
    409: "the run does not allow it now",
    413: "too large",
    415: "the body is not JSON",
    416: "the file has no such part",
    422: "a file of the run cannot be read",
    503: "too many streams, or a folder that cannot be read just now",
}


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked. `answer`: its type, or the media type of what is no JSON."""

    method: str
    path: str
    summary: str
    answer: Any
    parameters: tuple[dict[str, Any], ...] = ()
    body: Any = None
    status: int = 200


def _query(name: str, about: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "required": required, "schema": schema}


def _several(name: str, about: str, most: int, *, required: bool = False, words: Sequence[str] = ()) -> dict[str, Any]:
    items: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": r"^[^\u0000]+$"}
    items = {"type": "string", "enum": list(words)} if words else items
    schema = {"type": "array", "items": items, "maxItems": most, "minItems": int(required)}
    return {**_query(name, about, schema, required=required), "style": "form", "explode": True}


def _number(name: str, about: str, **bounds: float) -> dict[str, Any]:
    return _query(name, about, {"type": "number", **bounds})


def _integer(name: str, about: str, low: int, high: int) -> dict[str, Any]:
    return _query(name, about, {"type": "integer", "minimum": low, "maximum": high})


_WHERE = _query("where", "which runs, as `linnet runs --where` takes it; words by themselves too", _TEXT)
_COLUMNS = _query("columns", "with commas: lr,best(loss),loss@200; without, the settings that differ", _TEXT)
_RUNS = _several("runs", "ids of runs", MOST_RUNS)
_AXIS = _query("axis", "what stands on the x axis", {"type": "string", "enum": list(AXES)})
_RUN = "/api/runs/{run_id}"
_LAYER = _integer("layer", "this layer", 0, (1 << 53) - 1)
_STEP = _integer("step", "at this step; without it at the newest, or at all", 0, (1 << 53) - 1)

OPERATIONS = (
    Operation("get", "/api/board", "The folder and what may be done in it.", answers.BoardInfo),
    Operation(
        "get",
        "/api/runs",
        "The table of runs.",
        answers.TableAnswer,
        (
            _WHERE,
            _COLUMNS,
            _query("sort", "age, run, status, best … or a column", _TEXT),
            _query("reverse", "the other way", _FLAG),
            _query("group", "a column in which the runs of a group agree", _TEXT),
            _query("hidden", "hidden runs too", _FLAG),
            _number("seconds", "that may be spent on reading streams; `unread` counts those left"),
        ),
    ),
    Operation("get", "/api/curves", "Best value and sparkline of runs.", list[answers.RowCurve], (_RUNS,)),
    Operation("get", "/api/metrics", "Which charts of runs there are.", list[answers.RunMetrics], (_RUNS,)),
    Operation("get", "/api/sizes", "Bytes of runs on the disk.", dict[str, int], (_RUNS,)),
    Operation(
        "get",
        "/api/series",
        "Series, reduced to so many columns without a spike lost; binary, see docs/web-api.md.",
        BINARY,
        (
            _several("runs", "ids of runs", MOST_RUNS, required=True),
            _several("keys", "metrics", MOST_KEYS, required=True),
            _number("from", "where the range begins on the axis; without, at the first row"),
            _number("to", "where it ends; without, at the last"),
            _integer("points", "columns of the grid", 2, MOST_POINTS),
            _AXIS,
            _number("alpha", "the weight of a new value in a smoothed line; 1 for none", exclusiveMinimum=0, maximum=1),
            _query("superseded", "also rows that a resumed run trained again", _FLAG),
            _query("inherited", "by step: also what forks have from the runs they came from", _FLAG),
            _several("beside", "runs whose series lie on the grid of the others, as far as those go", MOST_RUNS),
        ),
    ),
    Operation(
        "get",
        "/api/changes",
        "What is new, as server-sent events: runs, series, run.",
        STREAM,
        (
            _RUNS,
            _several("keys", "metrics", MOST_KEYS),
            _several("watch", "runs of whose parts, besides those of `runs`, it is told that they are new", MOST_RUNS),
            _several("axis", "what stands on the x axis; each that is given", len(AXES), words=AXES),
            _query(
                "positions",
                "rows of each series that the page has",
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
            ),
            _COLUMNS,
        ),
    ),
    Operation("get", "/api/openapi.json", "This description.", dict[str, Any]),
    Operation("get", _RUN, "Everything about a run but its curves.", answers.RunDetail),
    Operation("patch", _RUN, "Another name, other tags, hidden or not.", answers.RunRow, body=answers.RunChange),
    Operation("delete", _RUN, "Move a run to the trash, for a day.", answers.Deleted),
    Operation("post", f"{_RUN}/restore", "Take a run back out of the trash.", answers.RunRow),
    Operation("get", f"{_RUN}/notes", "What people remarked.", list[Note]),
    Operation("post", f"{_RUN}/notes", "Add a remark.", dict[str, Any], body=answers.NewNote, status=201),
    Operation("get", f"{_RUN}/samples", "What the model wrote.", list[Sample]),
    Operation("get", f"{_RUN}/log", "Turns, warnings, damaged lines.", list[LogEntry]),
    Operation("get", f"{_RUN}/evaluations", "What evaluations found.", list[answers.EvaluationInfo]),
    Operation("get", f"{_RUN}/profile", "Where the time of profiled steps went.", list[answers.TimingInfo]),
    Operation("get", f"{_RUN}/flow", "flow.json as it is.", Any),
    Operation("get", f"{_RUN}/inside", "What a training told of its inside.", inside.InsideInfo),
    Operation(
        "get",
        f"{_RUN}/inside/map",
        "A figure by layer and step, as a heat map of bounded size without a spike lost.",
        inside.InsideMap,
        (
            _query("table", "activations, gradients or distance", {"type": "string", "enum": list(TABLES)}),
            _query("figure", "as `inside` names them: std, l2, update_ratio …", _TEXT, required=True),
            _query("name", "a region or tensor; without it all", _TEXT),
            _LAYER,
            _query("heads", "of their heads instead", _FLAG),
            _integer("columns", "at most", 2, MOST_COLUMNS),
        ),
    ),
    Operation(
        "get",
        f"{_RUN}/inside/histograms",
        "How the numbers of a region were spread, over the steps or at one.",
        inside.InsideHistograms,
        (
            _query("name", "a region", _TEXT, required=True),
            _LAYER,
            _STEP,
            _integer("rows", "histograms at most", 1, MOST_RIDGES),
        ),
    ),
    Operation("get", f"{_RUN}/inside/regions", "Where the time of a step went.", inside.InsideRegions, (_STEP,)),
    Operation("get", f"{_RUN}/inside/tokens", "How far tokens drifted.", inside.InsideTokens, (_STEP,)),
    Operation(
        "get",
        f"{_RUN}/inside/similarity",
        "CKA of the layers at a step, or of one layer between the steps.",
        inside.InsideSimilarity,
        (_query("name", "a region", _TEXT, required=True), _LAYER, _STEP),
    ),
    Operation("get", f"{_RUN}/inside/results", "What analysis commands found and kept.", list[inside.InsideResult]),
    Operation(
        "post",
        f"{_RUN}/attention",
        "What the heads of a layer look at in a prompt; computed by a process of its own, nothing is written.",
        inside.AttentionMap,
        body=inside.AttentionQuestion,
    ),
    Operation(
        "get",
        f"{_RUN}/events",
        "Events behind a position.",
        answers.EventPage,
        (
            _integer("after", "0, or a position that an answer told", 0, 1 << 50),
            _integer("limit", "events at most", 1, 1_000),
        ),
    ),
    Operation("get", f"{_RUN}/checkpoints", "Checkpoints, the newest first.", list[answers.Checkpoint]),
    Operation("get", f"{_RUN}/checkpoints/{{step}}", "What is in one.", answers.CheckpointDetail),
    Operation(
        "get",
        f"{_RUN}/checkpoints/{{step}}/tensor",
        "How the values of a tensor are spread.",
        answers.TensorHistogram,
        (_query("name", "the tensor", _TEXT, required=True),),
    ),
    Operation("get", f"{_RUN}/artifacts", "Files that were logged, by name.", list[answers.ArtifactGroup]),
    Operation(
        "get",
        f"{_RUN}/artifacts/{{number}}",
        "The content of one; images as images, texts as text, all else as a download.",
        FILES,
        (_query("download", "as a download in any case", _FLAG),),
    ),
)


def described() -> dict[str, Any]:
    """The whole description."""
    types = [kind for operation in OPERATIONS for kind in (operation.answer, operation.body) if not _is_media(kind)]
    kinds = [kind for kind in types if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*kinds, answers.Problem], ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(map(repr, kinds), schemas, strict=False))
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The board of Linnet",
            "version": "1",
            "description": "Runs, their series and files, and a stream of what changes. docs/web-api.md says more.",
        },
        "servers": [{"url": "http://127.0.0.1:6464"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): {"description": text, "content": problem} for status, text in _REFUSALS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if _is_media(operation.answer):
        content = {operation.answer: {"schema": {"type": "string"} if operation.answer == STREAM else {}}}
    else:
        content = {"application/json": {"schema": schemas[repr(operation.answer)]}}
    refusals = {str(status): {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS}
    answer: dict[str, Any] = {
        "operationId": f"{operation.method} {operation.path}".replace("/api/", "").replace("/", "_"),
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *operation.parameters, *_write_parameters(operation)],
        "responses": {str(operation.status): {"description": operation.summary, "content": content}, **refusals},
    }
    if operation.answer == FILES:
        answer["responses"]["206"] = {"description": "the part that was asked for", "content": content}
    if operation.body is not None:
        answer["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[repr(operation.body)]}},
        }
    return answer


def _path_parameters(path: str) -> list[dict[str, Any]]:
    integer = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
    kinds: dict[str, dict[str, Any]] = {
        "run_id": {"type": "string", "minLength": 1, "pattern": r"^[^/]+$"},
        "step": integer,
        "number": integer,
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in kinds.items()
        if f"{{{name}}}" in path
    ]


def _write_parameters(operation: Operation) -> list[dict[str, Any]]:
    """The header that other sites cannot send."""
    if operation.method == "get":
        return []
    return [{"name": "X-Linnet", "in": "header", "required": True, "schema": {"type": "string", "enum": ["1"]}}]


def _is_media(kind: Any) -> bool:
    return isinstance(kind, str)


def main() -> None:
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(described(), order="deterministic"), indent=1) + b"\n")


if __name__ == "__main__":
    main()
