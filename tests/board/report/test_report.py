"""A report holds what the server would have answered."""

from __future__ import annotations

import json
import math
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from linnet.board.report.page import Page, is_report
from linnet.board.report.report import POINTS
from linnet.errors import LinnetError
from tests.board.conftest import ABOUT, END, Event, append, steps, training, write
from tests.board.report.reports import OpenedReport, make
from tests.board.web.conftest import client_of

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 \u2029 ]]> <img src=x onerror=alert(1)> &amp; \"'"


def api_series(client: TestClient, query: str) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The first entry of an answer and its columns."""
    content = client.get(f"/api/series?{query}").content
    (length,) = struct.unpack("<I", content[4:8])
    entry = json.loads(content[8 : 8 + length])["series"][0]
    kind = "<f8" if entry["exact"] else "<f4"
    numbers = np.frombuffer(content[8 + length + entry["offset"] :], kind, entry["rows"] * len(entry["columns"]))
    return entry, dict(zip(entry["columns"], numbers.reshape(len(entry["columns"]), -1), strict=True))


def long_run(folder: Path, rows: int = 9_000, **manifest: Any) -> Path:
    """More rows than a report holds, with a spike of one step, values that are none, tokens, epochs and evaluations."""
    events = training()[:1]
    for step in range(1, rows + 1):
        loss = 2 + 5 * math.exp(-step / 900) + 0.1 * math.sin(step * 12.9898)
        loss = 40.0 if step == 5_003 else math.nan if step % 1_000 == 0 else loss
        at = {"t": step * 0.25 + 0.01 * math.sin(step), "step": step, "epoch": step / 3_000}
        events.append({"kind": "step", "phase": "train", **at, "loss": loss, "tokens": 1024})
        if step % 500 == 0:
            events.append({"kind": "eval", "phase": "eval", **at, "name": "validation", "loss": loss + 0.1})
    return write(folder, [*events, {**END, "t": rows * 0.25, "final_step": rows}], **{**ABOUT, **manifest})


def test_a_short_run_is_held_whole(root: Path, trained: Path) -> None:
    report = OpenedReport(make(root).content)
    held = report.series("llama-20260528-001", "loss")
    logged = [event["loss"] for event in training() if event["kind"] == "step"]
    assert held["grid"] is None
    assert report.column(held["rows"]["value"]).tolist() == logged
    assert report.column(held["rows"]["step"]).tolist() == list(range(1, 401))
    assert report.column(held["rows"]["x"]["tokens"])[-1] == 400 * 1024
    assert held["axes"]["step"]["last"] == [400.0, logged[-1]]


def test_a_run_is_told_as_the_server_tells_it(root: Path, trained: Path) -> None:
    run_id = "llama-20260528-001"
    held = OpenedReport(make(root).content).run(run_id)
    with client_of(root) as client:
        for part in ("samples", "notes", "log", "checkpoints", "artifacts", "evaluations", "profile"):
            assert held[part] == client.get(f"/api/runs/{run_id}/{part}").json(), part
        detail = client.get(f"/api/runs/{run_id}").json()
        (curve,) = client.get(f"/api/curves?runs={run_id}").json()
        table = client.get("/api/runs").json()
    for told in (held["detail"]["row"], detail["row"]):
        told["age"] = 0.0
    assert held["detail"] == detail
    assert held["curve"] == curve
    assert [row["id"] for row in table["rows"]] == [run_id]


@pytest.mark.parametrize("key", ["loss", "tokens"])
def test_the_grid_of_a_long_run_is_the_servers_to_the_bit(root: Path, key: str) -> None:
    long_run(root / "long")
    report = OpenedReport(make(root).content)
    held = report.series("long", key)
    with client_of(root) as client:
        entry, columns = api_series(client, f"runs=long&keys={key}&from=1&to=9000&points={POINTS}")
    assert not entry["exact"]
    for name in ("low", "high", "mean"):
        assert report.column(held["grid"][name]).tobytes() == columns[name].tobytes()
    assert report.column(held["grid"]["count"]).sum() == 9_000 - (9 if key == "loss" else 0)
    assert held["axes"]["step"]["best"] == entry["best"]
    assert held["axes"]["step"]["last"] == entry["last"]
    assert [mark["text"] for mark in held["axes"]["step"]["marks"]] == [mark["text"] for mark in entry["marks"]]


def test_the_last_rows_of_a_long_run_are_as_they_were_logged(root: Path) -> None:
    long_run(root / "long")
    report = OpenedReport(make(root).content)
    rows = report.series("long", "loss")["rows"]
    with client_of(root) as client:
        _, columns = api_series(client, "runs=long&keys=loss&from=8873&to=9000&points=500&axis=step")
    assert rows["first"] == 9_000 - 128
    assert report.column(rows["value"]).tobytes() == columns["value"][1:].tobytes()


@pytest.mark.parametrize(("axis", "first", "last"), [("tokens", 1024, 9000 * 1024), ("epoch", 1 / 3000, 3.0)])
def test_columns_have_their_places_on_other_axes(root: Path, axis: str, first: float, last: float) -> None:
    long_run(root / "long")
    report = OpenedReport(make(root).content)
    held = report.series("long", "loss")
    middles = report.column(held["grid"]["x"][axis])
    width = (last - first) / POINTS
    expected = first + (np.arange(POINTS) + 0.5) * width
    assert np.abs(middles - expected).max() < 1.01 * width
    assert held["axes"][axis]["span"] == pytest.approx([first, last])


def test_a_spike_and_values_that_are_no_numbers_are_held(root: Path) -> None:
    long_run(root / "long")
    report = OpenedReport(make(root).content)
    held = report.series("long", "loss")
    high = report.column(held["grid"]["high"])
    assert high.max() == 40.0
    kinds = [mark["kind"] for mark in held["axes"]["step"]["marks"]]
    assert kinds.count("nan") == 9 and "spike" in kinds
    assert held["axes"]["step"]["last"][1] == "nan"
    # A mark stands in the middle of the column that has its value.
    spike = next(mark for mark in held["axes"]["step"]["marks"] if mark["kind"] == "spike")
    grid = held["grid"]
    column = int((spike["x"] - grid["from"]) / (grid["to"] - grid["from"]) * grid["points"])
    assert high[column] == 40.0


def test_what_a_resume_replaced_is_held_beside(root: Path) -> None:
    resume: Event = {"kind": "resume", "t": 60.0, "step": 40}
    write(root / "resumed", [*steps(60), resume, *[{**e, "loss": 1.0} for e in steps(30, first=41)]], **ABOUT)
    report = OpenedReport(make(root).content)
    held = report.series("resumed", "loss", superseded=True)
    assert report.column(held["rows"]["step"]).tolist() == list(range(41, 61))
    assert report.series("resumed", "loss")["axes"]["step"]["resumes"] == [40.0]
    assert report.series("resumed", "loss")["total"] == 70


def test_a_fork_has_its_parents_line_though_that_is_not_in_the_report(root: Path) -> None:
    long_run(root / "base")
    write(root / "fork", steps(200, first=6_001), parent="base", parent_step=6_000)
    report = OpenedReport(make(root, "fork").content)
    assert [run["id"] for run in report.contents["runs"]] == ["fork"]
    held = report.series("fork", "loss", inherited="base")
    assert (held["total"], held["axes"]["step"]["span"]) == (6_000, [1.0, 6_000.0])
    with client_of(root) as client:
        entry, columns = api_series(client, "runs=fork&keys=loss&inherited=1&from=1&to=6000&points=2000")
    assert entry["inherited"] == "base"
    for name in ("low", "high", "mean"):
        assert report.column(held["grid"][name]).tobytes() == columns[name].tobytes()
    assert report.series("fork", "loss")["total"] == 200


def test_a_damaged_run_is_reported_as_far_as_it_can_be_read(root: Path) -> None:
    folder = write(root / "damaged", steps(50), **ABOUT)
    append(
        folder, [b'{"kind": "step", "loss": \xff\xfe', b"nonsense", b'{"kind":"step","t":1e99,"step":51,"loss":nan}']
    )
    (folder / "flow.json").write_text("no JSON")
    report = OpenedReport(make(root).content)
    assert report.run("damaged")["detail"]["damaged"] > 0
    assert report.series("damaged", "loss")["total"] >= 50
    assert "no JSON" in report.run("damaged")["problems"]["flow"]


def test_a_run_without_any_row_is_in_the_report(root: Path) -> None:
    write(root / "empty", [])
    report = OpenedReport(make(root).content)
    assert report.run("empty")["series"] == []
    assert report.contents["board"]["chosen"] == ["empty"]


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.comments = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def test_script_in_every_field_stays_text(root: Path) -> None:
    events = [{**event, HOSTILE: 1.0} if event["kind"] == "step" else event for event in steps(5)]
    texts = {"text": HOSTILE, "prompt": HOSTILE}
    events += [{"kind": "sample", "t": 5.0, "step": 5, **texts}, {"kind": "note", "t": 5.0, **texts, "at": HOSTILE}]
    about = {"name": HOSTILE, "experiment": HOSTILE, "group": HOSTILE, "recipe": HOSTILE, "tags": [HOSTILE]}
    write(root / "hostile", events, **about, config={HOSTILE: HOSTILE}, provenance={"host": HOSTILE})
    content = make(root, title=HOSTILE).content
    elements = Elements()
    elements.feed(content.decode())
    assert elements.tags == ["html", "head", "meta", "title", "body", "script", "script"]
    assert elements.comments == 0
    report = OpenedReport(content)
    assert report.run("hostile")["samples"][0]["text"] == HOSTILE
    assert HOSTILE in [metric["key"] for metric in report.run("hostile")["detail"]["metrics"]]


def test_only_the_metrics_that_are_asked_for_are_held(root: Path, trained: Path) -> None:
    report = OpenedReport(make(root, keys=frozenset({"loss"})).content)
    run = report.run("llama-20260528-001")
    assert [series["key"] for series in run["series"]] == ["loss"]
    assert [metric["key"] for metric in run["detail"]["metrics"]] == ["loss"]
    assert "tokens" in run["series"][0]["axes"]
    (part,) = report.contents["left_out"]
    assert part["chosen"] and part["part"].startswith("metrics that were not asked for: ")


def test_what_was_told_of_the_inside_is_left_out_by_name(root: Path) -> None:
    tap = b'{"kind":"tap","t":1.0,"step":1,"region":"ffn_out","layer":0,"std":1.5}'
    write(root / "a", [*steps(3), tap], **ABOUT)
    report = OpenedReport(make(root).content)
    assert report.run("a")["detail"]["has"]["inside"] is False
    assert [part["part"] for part in report.contents["left_out"]] == [
        "what was told of the inside of the training: linnet board --web"
    ]


def with_files(folder: Path) -> Path:
    """A run that logged pictures, a text and a large file."""
    write(folder, steps(3), **ABOUT)
    (folder / "artifacts" / "media").mkdir(parents=True)
    logged = [
        ("grid", "image", "png", b"\x89PNG\r\n\x1a\n" + bytes(2_000)),
        ("words", "text", "txt", b"words " * 5_000),
    ]
    for name, media, suffix, content in [*logged, ("trace", "file", "bin", np.random.default_rng(0).bytes(90_000))]:
        for step in (1, 2, 3):
            path = f"artifacts/media/{name}-{step}.{suffix}"
            (folder / path).write_bytes(content)
            about = {"kind": "artifact", "t": float(step), "step": step, "name": name, "media": media, "path": path}
            append(folder, [{**about, "bytes": len(content)}])
    return folder


def test_images_and_texts_are_held_and_what_is_large_is_named(root: Path) -> None:
    with_files(root / "files")
    report = make(root)
    opened = OpenedReport(report.content)
    mimes = [file["mime"] for file in opened.contents["files"]]
    assert (mimes.count("image/png"), mimes.count("text/plain; charset=utf-8"), len(mimes)) == (3, 3, 6)
    text = next(file for file in opened.contents["files"] if file["mime"].startswith("text/plain"))
    assert opened.column(text["column"]).tobytes() == b"words " * 5_000
    assert [(part["part"], part["bytes"]) for part in opened.contents["left_out"]] == [
        (f"trace of step {step}", 90_000) for step in (3, 2, 1)
    ]
    assert [part.part for part in report.left_out] == [part["part"] for part in opened.contents["left_out"]]


def test_of_every_name_the_latest_file_is_taken_first(root: Path) -> None:
    with_files(root / "files")
    opened = OpenedReport(make(root, files=4_000).content)
    groups = opened.run("files")["artifacts"]
    steps_of = {item["number"]: (group["name"], item["step"]) for group in groups for item in group["items"]}
    held = [steps_of[file["number"]] for file in opened.contents["files"]]
    assert ("grid", 3) in held and ("words", 3) in held and ("grid", 1) not in held


def test_a_file_that_leads_out_of_the_run_is_not_read(root: Path, tmp_path: Path) -> None:
    folder = with_files(root / "files")
    (tmp_path / "secret").write_text("secret")
    (folder / "artifacts/media/words-3.txt").unlink()
    (folder / "artifacts/media/words-3.txt").symlink_to(tmp_path / "secret")
    opened = OpenedReport(make(root).content)
    assert b"secret" not in opened._body
    assert any("words of step 3" in part["part"] for part in opened.contents["left_out"])


def test_with_very_many_metrics_columns_are_fewer_and_the_file_small(root: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2_500, 120))
    names = [f"layer{number}/norm" for number in range(120)]
    events = (
        {"kind": "step", "t": s, "step": s} | dict(zip(names, values[s - 1], strict=True)) for s in range(1, 2_501)
    )
    write(root / "many", events)
    report = make(root)
    assert len(report.content) < 2_000_000
    assert 250 <= report.points < POINTS
    assert len(OpenedReport(report.content).run("many")["series"]) == 120


def test_ten_runs_of_100_000_steps_are_under_2_mb(root: Path) -> None:
    step = np.arange(1, 100_001)
    noise = np.random.default_rng(0).normal(size=(3, len(step)))
    loss, accuracy = 2 + 6 * np.exp(-step / 9e3) + 0.15 * noise[0], 1 - np.exp(-step / 3e4) + 0.02 * noise[1]
    lr, grad_norm, speed = 3e-4 * np.cos(step / 7e4), np.exp(noise[2]), 12e3 + 300 * noise[0]
    names = ("loss", "accuracy", "lr", "grad_norm", "speed")
    columns = zip(*(column.tolist() for column in (loss, accuracy, lr, grad_norm, speed)), strict=True)
    values = [",".join(f'"{name}":{x:.9g}' for name, x in zip(names, row, strict=True)) + "}" for row in columns]
    heads = [f'{{"kind":"step","t":{at * 0.05:.3f},"step":{at},' for at in step.tolist()]
    for number in range(10):  # each has its rows elsewhere, so that no two have a column in common
        rolled = values[-9_973 * number :] + values[: -9_973 * number]
        folder = write(root / f"big-{number}", [], **ABOUT)
        (folder / "events.jsonl").write_text("\n".join(map(str.__add__, heads, rolled)) + "\n")
    report = make(root)
    room_for_the_page = 500_000
    assert len(report.content) + room_for_the_page < 2_000_000
    assert report.points == POINTS
    assert len(OpenedReport(report.content).contents["runs"]) == 10


def test_a_report_is_told_from_other_files(root: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_bytes(make(root).content)
    (tmp_path / "page.html").write_text("<html><title>mine</title>")
    assert is_report(tmp_path / "report.html")
    assert not is_report(tmp_path / "page.html")
    assert not is_report(tmp_path / "none.html")


def test_without_a_built_page_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LinnetError, match="make web"):
        Page(tmp_path / "none.html")
    (tmp_path / "other.html").write_text("<html>")
    with pytest.raises(LinnetError, match="build it anew: make web"):
        Page(tmp_path / "other.html")


def test_the_theme_is_that_of_the_page(root: Path, trained: Path) -> None:
    assert b'<html data-theme="dark" lang="en">' in make(root, theme="dark").content
    assert b"data-theme" not in make(root).content
