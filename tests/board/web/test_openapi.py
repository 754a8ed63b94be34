"""The description of the API tells the truth: routes, parameters, answers. A machine asks for all it allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi import checks as openapi_checks
from starlette.routing import Route
from starlette.testclient import TestClient

from linnet.board.web import openapi
from linnet.board.web.app import Api
from linnet.board.web.board import WebBoard
from linnet.board.web.changes import Changes
from linnet.board.web.safe_store import SafeStore
from tests.board.conftest import ABOUT, END, training, write
from tests.board.web.conftest import HERE, client_of

DESCRIBED: dict[str, Any] = json.loads(openapi.FILE.read_text())
SLOW = list(hypothesis.HealthCheck)
CHECKS = (
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
)


def test_the_file_is_the_one_that_is_generated() -> None:
    written = json.loads(json.dumps(openapi.described()))
    assert written == DESCRIBED, "run: python -m linnet.board.web.openapi"


def test_every_route_is_described_and_no_other(tmp_path: Path) -> None:
    board = WebBoard(SafeStore(tmp_path))
    routes = [route for route in Api(board, Changes(board)).routes() if isinstance(route, Route)]
    known = {(route.path, method.lower()) for route in routes for method in route.methods or () if method != "HEAD"}
    known.discard(("/{path:path}", "get"))  # the page itself
    assert {(path, method) for path, methods in DESCRIBED["paths"].items() for method in methods} == known


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("runs")
    logged = {"kind": "artifact", "t": 5.0, "name": "note", "path": "artifacts/note.txt", "bytes": 2}
    folder = write(root / "a", [*training()[:-1], logged, END], **ABOUT)
    (folder / "artifacts").mkdir()
    (folder / "artifacts/note.txt").write_text("hi")
    write(root / "b", training())
    with client_of(root) as client:
        yield client


def _schema() -> Any:
    """The description, with ids of runs that are there."""
    described = json.loads(json.dumps(DESCRIBED))
    for methods in described["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                known = {"enum": ["a", "b"]}
                if parameter["name"] == "run_id":
                    parameter["schema"] = {"anyOf": [known, parameter["schema"]]}
                if parameter["name"] == "runs":
                    parameter["schema"]["items"] = {"anyOf": [known, parameter["schema"]["items"]]}
                if parameter["schema"].get("type") == "array":
                    parameter["schema"]["maxItems"] = 4  # so many take long to make up
    return schemathesis.openapi.from_dict(described)


SCHEMA = _schema()
ASKED = [(path, method) for path, methods in DESCRIBED["paths"].items() for method in methods]
ASKED.remove(("/api/changes", "get"))  # a stream has no end; test_changes.py asks for it


@pytest.mark.parametrize(("path", "method"), ASKED)
def test_whatever_is_asked_the_answer_is_as_described(client: TestClient, path: str, method: str) -> None:
    operation = SCHEMA[path][method.upper()]
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
    if operation.query or operation.body:
        cases |= operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @hypothesis.given(case=cases)
    @hypothesis.settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
    def ask(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=HERE)
        question = {name: asked[name] for name in ("method", "url", "headers", "params", "json") if name in asked}
        case.validate_response(client.request(**question, content=asked.get("data")), checks=CHECKS)

    ask()
