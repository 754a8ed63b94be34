"""What the server tells of runs is what is in their folders."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from linnet.board.run_list import RunList
from linnet.board.run_table import RunTable
from linnet.board.web.ahead import read_ahead
from linnet.board.web.board import WebBoard
from linnet.board.web.colours import COLOURS, colour_of
from linnet.board.web.open_runs import OpenRun, OpenRuns
from linnet.board.web.safe_store import SafeStore
from linnet.board.web.static_files import STATIC, StaticFiles
from linnet.gguf import GGUFWriter, MetadataBlock
from linnet.runs import RunStore
from tests.board.conftest import ABOUT, BEGAN, END, FIGURES, append, steps, training, write
from tests.board.web.conftest import client_of


def test_an_empty_folder_has_a_page_and_no_runs(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/api/runs").json()["rows"] == []


@pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the page is not built: make web")
def test_all_scripts_and_styles_of_the_page_are_no_more_than_120_kb_and_17_for_who_looks_inside() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css")]
    packed = {path.name: StaticFiles().get(str(path.relative_to(STATIC))) for path in files}
    sizes = {name: len(file.packed or file.content) for name, file in packed.items() if file is not None}
    assert len(files) == len(sizes) >= 4
    (inside,) = (size for name, size in sizes.items() if name.startswith("inside-tab"))
    assert inside <= 17_000 and sum(sizes.values()) - inside <= 120_000


def test_without_the_built_page_it_says_how_to_build_it(tmp_path: Path) -> None:
    page = StaticFiles(tmp_path).get("")
    assert page is not None and b"make web" in page.content
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/app-3f.js").write_text("let a = 1;" * 100)
    (tmp_path / "index.html").write_text("<!doctype html>")
    built = StaticFiles(tmp_path)
    script = built.get("assets/app-3f.js")
    assert script is not None and script.lasting and script.mime.startswith("text/javascript")
    assert script.packed is not None and gzip.decompress(script.packed) == script.content
    assert built.get("../secret") is None


def test_a_row_names_the_baseline_of_its_run(client: TestClient, root: Path) -> None:
    write(root / "base", training(), **ABOUT)
    write(root / "own", training(), **ABOUT, compare_to="base")
    named = {row["id"]: row["compare_to"] for row in client.get("/api/runs").json()["rows"]}
    assert named == {"base": None, "own": "base"}


def test_the_newest_run_or_those_of_the_command_line_are_read_before_somebody_asks(root: Path) -> None:
    for created, name in enumerate(("first", "second", "third")):
        write(root / name, training(), **(ABOUT | {"created_at": 1_780_000_000.0 + created}))
    newest = WebBoard(SafeStore(root))
    read_ahead(newest)
    named = WebBoard(SafeStore(root), (root / "first", root / "second"))
    read_ahead(named)
    assert [Path(path).name for path in newest.open_runs.paths()] == ["third"]
    assert [Path(path).name for path in named.open_runs.paths()] == ["first", "second"]
    newest.close()
    named.close()


def test_what_a_long_run_said_is_read_where_its_numbers_come_from_a_cache(root: Path) -> None:
    sample = {"kind": "sample", "t": 1.0, "step": 5, "prompt": "the", "text": "the whale"}
    write(root / "long", [*steps(12_000), sample], **ABOUT)
    with client_of(root) as first:
        assert len(first.get("/api/runs/long/samples").json()) == 1
    assert (root / "long/.cache/metrics").exists()
    with client_of(root) as second:
        assert [one["text"] for one in second.get("/api/runs/long/samples").json()] == ["the whale"]


def test_numbers_are_had_while_what_a_run_said_is_still_being_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "long", training(), **ABOUT)
    runs, asked, held = OpenRuns(), threading.Event(), threading.Event()

    def read_a_little(run: OpenRun, seconds: float) -> bool:
        assert seconds < 0.1
        return held.is_set()

    monkeypatch.setattr(OpenRun, "read", read_a_little)

    def ask() -> None:
        asked.set()
        with runs.use_whole(str(root / "long")):
            pass

    reader = threading.Thread(target=ask)
    reader.start()
    assert asked.wait(5)
    for _ in range(20):
        with runs.use(str(root / "long")) as run:
            run.read_numbers()
    assert reader.is_alive()
    held.set()
    reader.join(5)
    assert not reader.is_alive()
    runs.close()


def test_an_empty_or_missing_folder_is_read_ahead_without_a_word(tmp_path: Path) -> None:
    board = WebBoard(SafeStore(tmp_path / "nowhere"))
    read_ahead(board)
    assert not len(board.open_runs)
    board.close()


def test_a_folder_named_from_here_is_the_same_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "a", steps(5))
    monkeypatch.chdir(root.parent)
    board = WebBoard(SafeStore(root.name), (Path(root.name) / "a",))
    assert board.info().chosen == ["a"] and board.row("a").path == str(root / "a")
    board.close()


def test_the_board_says_where_it_looks(client: TestClient, root: Path) -> None:
    info = client.get("/api/board").json()
    assert info["root"].endswith(root.name) and info["writable"] is True


def test_a_run_is_in_the_table_with_its_settings(client: TestClient, root: Path) -> None:
    write(root / "llama-20260528-001", training(), **ABOUT)
    table = client.get("/api/runs?columns=lr,d_model,best(loss)").json()
    (row,) = table["rows"]
    assert (row["id"], row["status"], row["step"]) == ("llama-20260528-001", "completed", 400)
    assert row["values"][:2] == [0.0003, 192] and row["values"][2] < 2.0
    assert [(column["kind"], column["goal"]) for column in table["columns"]] == [
        ("setting", None), ("setting", None), ("metric", "min"),
    ]  # fmt: skip
    assert "config.lr" in table["settings"] and "loss" in table["metrics"]


@pytest.fixture
def grid(root: Path) -> Path:
    """Runs of two experiments that differ in their learning rate."""
    for number in range(6):
        about = {"experiment": f"e{number % 2}", "tags": ["good"] if number > 3 else [], "created_at": BEGAN + number}
        value = 1.0 + number
        events = steps(20, loss=lambda step, value=value: value + 1 / step)  # type: ignore[misc]
        write(root / f"run-{number}", [*events, END], config={"lr": 10.0**-number, "seed": number}, **about)
    return root


@pytest.mark.parametrize(
    ("where", "sort", "reverse"),
    [
        ("", "age", False), ("", "run", True), ("loss<3", "run", False), ("tag:good", "best(loss)", False),
        ("e1", "lr", True), ("lr>=1e-3 and not run:run-1", "loss", True), ("experiment:e0", "created", False),
        ("lr<", "run", False), ("lrr<2", "run", False), ("loss<3 or best(los)<2", "age", False),
    ],
)  # fmt: skip
def test_the_table_is_that_of_the_terminal_board(
    client: TestClient, grid: Path, where: str, sort: str, reverse: bool
) -> None:
    shown = client.get("/api/runs", params={"where": where, "sort": sort, "reverse": int(reverse)}).json()
    listed = RunList(sort=sort, reverse=reverse, filter=where)
    table = RunTable(RunStore(grid), figures=lambda rows: (rows, listed.compared(rows)))
    while table.read(1.0):
        pass
    assert [row["id"] for row in shown["rows"]] == [row.summary.run_id for row in listed.select(table.rows)]
    assert (shown["problem"] or "") == listed.problem
    assert shown["total"] == 6


def test_a_name_that_no_run_has_is_said_and_filters_nothing(client: TestClient, grid: Path) -> None:
    table = client.get("/api/runs", params={"where": "lrr<2"}).json()
    assert table["problem"] == "no run here has a setting or metric 'lrr'; did you mean lr?"
    assert len(table["rows"]) == 6
    known = client.get("/api/runs", params={"where": "lr<1e-9 or loss<0"}).json()
    assert known["problem"] is None and not known["rows"], "names that runs have, and a filter that none fits"


def test_runs_are_grouped_by_any_column(client: TestClient, grid: Path) -> None:
    table = client.get("/api/runs?group=experiment&sort=run").json()
    assert [(group["key"], group["first"], group["count"]) for group in table["groups"]] == [("e0", 0, 3), ("e1", 3, 3)]
    assert [row["id"] for row in table["rows"]] == ["run-0", "run-2", "run-4", "run-1", "run-3", "run-5"]
    assert table["groups"][0]["best"] == pytest.approx(1.05)
    assert len(client.get("/api/runs?group=lr").json()["groups"]) == 6
    assert "group" in client.get("/api/runs?group=mean(loss)").json()["problem"]


def test_rows_on_the_screen_get_their_best_value_and_curve(client: TestClient, grid: Path) -> None:
    first, second = client.get("/api/curves?runs=run-3&runs=run-0&runs=gone").json()
    assert (first["id"], first["best_step"], len(first["spark"])) == ("run-3", 20, 20)
    assert second["best"] == pytest.approx(1.05)


def test_sorted_by_the_best_value_all_are_read(client: TestClient, grid: Path) -> None:
    assert [row["id"] for row in client.get("/api/runs?sort=best").json()["rows"]] == [f"run-{n}" for n in range(6)]
    assert client.get("/api/runs?sort=best&reverse=1").json()["rows"][0]["id"] == "run-5"


def test_what_could_not_be_read_in_time_is_said_and_comes_later(client: TestClient, grid: Path) -> None:
    table = client.get("/api/runs?columns=best(loss)&seconds=0").json()
    assert table["unread"] == 5, "one at least is read, so that asking again ends"
    assert sorted(row["values"] == [None] for row in table["rows"]) == [False] + 5 * [True]
    table = client.get("/api/runs?columns=best(loss)&sort=run").json()
    assert (table["unread"], table["problem"]) == (0, None)
    assert table["rows"][0]["values"] == [pytest.approx(1.05)]


def test_sorting_by_the_best_value_goes_on_from_question_to_question(client: TestClient, grid: Path) -> None:
    unread = []
    while not unread or unread[-1]:
        table = client.get("/api/runs?sort=best&seconds=0").json()
        unread.append(table["unread"])
    assert unread == [5, 4, 3, 2, 1, 0]
    assert [row["id"] for row in table["rows"]] == [f"run-{n}" for n in range(6)]
    (curve,) = client.get("/api/curves?runs=run-0").json()
    assert curve["best"] == pytest.approx(1.05) and len(curve["spark"]) == 20, "the curve is read when it is seen"


def test_a_colour_stays_with_its_run_and_neighbours_differ() -> None:
    numbered = [colour_of(f"llama-20260531-{number:03d}") for number in range(1, COLOURS + 1)]
    assert len(set(numbered)) == COLOURS
    assert colour_of("vit-20260531-002") == numbered[1], "it is a matter of the id alone"
    assert {colour_of(name) for name in ("", "wide", "ünï", "\ud800", "9" * 500)} <= set(range(COLOURS))


def test_everything_about_a_run(client: TestClient, root: Path) -> None:
    start = {"kind": "run_start", "schema": "toy/v1", "t": 0.0, "chosen": {"dtype": "float32"}}
    write(root / "a", [start, *training()[1:]], **ABOUT)
    write(root / "b", training(), parent="a", parent_step=100)
    told = client.get("/api/runs/a").json()
    assert told["chosen"] == {"dtype": "float32"}
    assert told["settings"]["config.lr"] == 0.0003 and told["manifest"]["model"] == {"arch": "llama", "d_model": 192}
    assert told["axes"] == ["step", "tokens", "epoch", "wall time", "relative time"]
    metrics = {metric["key"]: metric for metric in told["metrics"]}
    assert metrics["validation/loss"]["held_out_of"] == "loss"
    assert metrics["tokens"]["constant"] and not metrics["loss"]["constant"]
    assert metrics["loss"]["rows"] == 400 and metrics["loss"]["last_step"] == 400
    assert metrics["loss"]["low"] == metrics["loss"]["best"] < metrics["loss"]["high"]
    assert told["family"] == {"ancestors": [], "children": ["b"]}
    assert told["has"]["samples"] and told["has"]["system"] and not told["has"]["flow"]
    assert client.get("/api/runs/b").json()["family"]["ancestors"] == [{"id": "a", "step": 100}]
    assert [one["id"] for one in client.get("/api/metrics?runs=b&runs=a").json()] == ["b", "a"]
    assert client.get("/api/sizes?runs=a&runs=gone").json() == {
        "a": sum(file.stat().st_size for file in (root / "a").iterdir())
    }


def test_the_pages_of_a_run(client: TestClient, root: Path) -> None:
    folder = write(root / "a", training(), **ABOUT)
    assert [sample["step"] for sample in client.get("/api/runs/a/samples").json()] == [200, 400]
    assert client.get("/api/runs/a/notes").json()[0]["text"] == "the good seed; keep"
    assert "run completed" in client.get("/api/runs/a/log").text
    (folder / "flow.json").write_text('{"nodes": [{"name": "x"}]}')
    assert client.get("/api/runs/a/flow").json()["nodes"] == [{"name": "x"}]
    (folder / "flow.json").write_text("{")
    assert client.get("/api/runs/a/flow").status_code == 422


def test_evaluations_and_where_the_time_went(client: TestClient, root: Path) -> None:
    confusion: dict[str, Any] = {"labels": ["cat", "dog"], "counts": [[3, 1], [0, 4]]}
    graded = {"kind": "eval", "t": 1.0, "name": "validation", "accuracy": 0.875, "samples": 8, "confusion": confusion}
    graded |= {"per_class": {"cat": 0.75, "dog": 1.0}}
    timing = {"kind": "op_timing", "t": 2.0, "step": 10, "compute_us": 500.0, "buckets": {"matmul": 400, "other": 100}}
    resume = {"kind": "resume", "t": 3.0, "step": 10}
    write(root / "a", [{**graded, "step": 10}, timing, {**graded, "step": 20}, resume, {**graded, "step": 15}])
    evaluations = client.get("/api/runs/a/evaluations").json()
    assert [one["step"] for one in evaluations] == [10, 15], "what was trained again is left out"
    assert evaluations[0]["figures"] == {"accuracy": 0.875}
    assert (evaluations[0]["per_class"], evaluations[0]["confusion"]) == ({"cat": 0.75, "dog": 1.0}, confusion)
    assert client.get("/api/runs/a/profile").json()[0]["buckets"] == {"matmul": 400, "other": 100}
    has = client.get("/api/runs/a").json()["has"]
    assert has["profile"] and has["classes"]


def test_a_checkpoint_with_metadata_tensors_and_a_histogram(client: TestClient, root: Path) -> None:
    said = {"kind": "checkpoint", "t": 5.0, "step": 5, "path": "weights/step_5.gguf", "train_loss": 9.0}
    folder = write(root / "a", [*steps(5, loss=lambda step: 7.0 - step, tokens=lambda step: 10.0), said])
    (folder / "weights").mkdir()
    values = np.array([[0.0, 1.0, 2.0, np.nan], [1.0, 1.0, 2.0, 0.0]], dtype=np.float32)
    file = GGUFWriter(MetadataBlock().text("general.architecture", "llama"))
    file.add("blk.0.weight", values)
    file.write(folder / "weights/step_5.gguf")
    (folder / "weights/latest").symlink_to("step_5.gguf")
    (checkpoint,) = client.get("/api/runs/a/checkpoints").json()
    assert (checkpoint["step"], checkpoint["train_loss"], checkpoint["tokens"]) == (5, 2.0, 50)
    assert checkpoint["latest"] and not checkpoint["best"] and "linnet" in checkpoint["commands"][0]
    detail = client.get("/api/runs/a/checkpoints/5").json()
    assert detail["tensors"] == [{"name": "blk.0.weight", "shape": [2, 4], "type": "f32", "bytes": 32}]
    assert {"key": "general.architecture", "type": "string", "value": "llama"} in detail["metadata"]
    told = client.get("/api/runs/a/checkpoints/5/tensor?name=blk.0.weight").json()
    assert (sum(told["counts"]), told["zeros"], told["nonfinite"], told["max"]) == (7, 2, 1, 2.0)
    assert client.get("/api/runs/a/checkpoints/5/tensor?name=no").status_code == 404
    assert client.get("/api/runs/a/checkpoints/6").status_code == 404
    (folder / "weights/step_6.gguf").write_bytes(b"GGUF")
    assert client.get("/api/runs/a/checkpoints/6").status_code == 422


def test_a_live_run_tells_how_long_it_will_take(client: TestClient, root: Path) -> None:
    now = {"kind": "system", "t": 100.0, **FIGURES}
    folder = write(root / "a", [*steps(100), now], total_steps=200, provenance={"host": "elsewhere"}, created_at=BEGAN)
    append(folder, [{"kind": "heartbeat", "t": 100.0, "at": "2000-01-01T00:00:00Z"}])
    told = client.get("/api/runs/a").json()
    assert told["row"]["total_steps"] == 200 and told["row"]["status"] == "stalled"
    assert told["remaining"] is None, "who writes nothing never ends"
    assert told["row"]["warning"] == "stalled"


def test_nan_is_a_word_in_json(client: TestClient, root: Path) -> None:
    nan = {"kind": "step", "t": 6.0, "step": 6, "loss": None, "nonfinite": {"loss": "nan"}}
    write(root / "a", [*steps(5), nan], config={"clip": 1})
    (row,) = client.get("/api/runs").json()["rows"]
    assert (row["last"], row["warning"]) == ("nan", "NaN at 6")
    assert json.loads(client.get("/api/runs/a").text)["metrics"][0]["last"] == "nan"


def test_few_runs_are_held_open_and_letting_go_waits_for_nobody(root: Path) -> None:
    held = OpenRuns(most_runs=2)
    paths = [str(write(root / name, steps(5))) for name in "abc"]
    for path in paths:
        with held.use(path) as run:
            run.read()
    assert held.paths() == paths[1:]
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with held.use(paths[1]) as run:
            reading.set()
            assert done.wait(10)
            run.read()

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(10)
    held.forget(paths[1])  # while it is read
    done.set()
    reader.join()
    assert held.paths() == paths[2:]
    held.close()
