"""What stands on the screen, tab by tab."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from linnet.board.terminal.actions import act
from linnet.board.terminal.keys import VIEWS
from linnet.board.terminal.spans import text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import screen
from linnet.board.terminal.views.screen import frame
from linnet.board.words import shorten_apart
from linnet.gguf import GGUFWriter, MetadataBlock
from linnet.runs import RunStore
from tests.board.conftest import ABOUT, BEGAN, END, append, board_of, look, read, steps, styles, training, write
from tests.conftest import FIXTURES


def test_the_header_says_what_the_run_is_and_how_far(trained: Path) -> None:
    header = look(board_of(trained.parent, "latest")).splitlines()[:3]
    for word in ("llama-20260528-001", "✓ completed", "from-scratch", "width", "#wide", "#seed3"):
        assert word in header[0]
    for word in ("step 400/400", "epoch 2/2", "elapsed 6 m 40 s", "5,815 tok/s", "MFU 43.0 %", "100 %"):
        assert word in header[1]
    assert all(view in header[2].lower() for view in VIEWS)


def compared(step: int, loss: float, verdict: str) -> dict[str, object]:
    own = {"metric": "validation/loss", "loss": loss, "baseline_loss": 2.0, "verdict": verdict}
    event = {"kind": "compare", "t": float(step), "step": step, "baseline_run_id": "base"}
    return {**event, "loss_delta": loss - 2.0, "ppl_ratio": 1.0, **own}


def test_a_run_beside_its_baseline_shows_that_ones_line_as_far_as_it_has_come(root: Path) -> None:
    write(root / "base", steps(400, loss=lambda _: 2.0))
    events = [*steps(100, loss=lambda _: 3.0), *(compared(step, 2.5, "behind") for step in (50, 100)), END]
    write(root / "own", events, compare_to="base")
    board = board_of(root, "own")
    shown = look(board, 100, 24)
    assert "25.0 % behind base" in shown.splitlines()[0]
    assert "baseline" in styles(screen.whole(board, 100, 24))
    assert "1 ━" in shown and "━ 100 ┛" in shown, "its axis ends where the run does"
    assert "2.15" not in shown.splitlines()[4]
    board.open_metric("loss")
    detail = look(board, 100, 24)
    assert "b base" in detail.splitlines()[3]
    assert re.search(r"^ +2\.?0* .*b", detail, re.MULTILINE), "its line ends in a letter"
    board.show("log")
    log = look(board, 100, 24)
    assert log.count("25.0 % behind base: held-out loss 2.5 against 2") == 1, "a verdict is told where it changes"


def test_a_baseline_that_is_shown_itself_is_not_drawn_twice_and_one_that_is_gone_not_at_all(root: Path) -> None:
    write(root / "base", steps(50))
    write(root / "own", steps(50), compare_to="base")
    assert "baseline" not in styles(screen.whole(board_of(root, "own", "base"), 100, 24))
    shutil.rmtree(root / "base")
    board = board_of(root, "own")
    assert "baseline" not in styles(screen.whole(board, 100, 24))
    assert "beside" not in look(board)


def with_status(root: Path, status: str) -> Board:
    """A board on the one run `a`, as if that stood so."""
    board = board_of(root, "a")
    board.watched_runs[0].summary.status = status
    return board


def test_a_live_run_tells_the_time_left(root: Path) -> None:
    write(root / "a", steps(100), total_steps=300)
    header = look(with_status(root, "live"))
    assert "● live" in header
    assert "ETA 3 m 20 s" in header


@pytest.mark.parametrize("none", [-1, 0])
def test_a_run_without_an_end_shows_no_total(root: Path, none: int) -> None:
    write(root / "a", steps(100), total_steps=none, total_epochs=none)
    header = look(board_of(root, "a"))
    assert "step 100 " in header
    assert "/-1" not in header and "/0" not in header


@pytest.mark.parametrize("status", ["live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled"])
def test_every_status_has_a_word_and_a_colour(root: Path, status: str) -> None:
    write(root / "a", steps(3))
    board = with_status(root, status)
    assert status in look(board).splitlines()[0]
    assert f"status.{status}" in styles(screen.whole(board, 100, 30))


def test_charts_are_grouped_numbered_and_say_latest_and_best(trained: Path) -> None:
    text = look(board_of(trained.parent, "latest"))
    assert "1 loss" in text
    assert "2 validation/loss" in text
    assert "3 lr" in text
    best = min(e["loss"] for e in training() if e["kind"] == "step")
    assert f"best {best:.4g}"[:10] in text
    assert "sys/" not in text
    assert "machine" in text  # beside the charts, where there is room


def test_a_narrow_screen_has_pages(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    first = look(board, 60, 14)
    assert "page 1/" in first
    act(board, "page_on")
    second = look(board, 60, 14)
    assert "page 2/" in second
    assert "loss" in first
    assert first.splitlines()[3:] != second.splitlines()[3:]


@pytest.mark.parametrize("size", [(20, 8), (40, 12), (60, 20), (80, 24), (100, 30), (130, 36), (130, 37), (200, 50)])
@pytest.mark.parametrize("runs", [1, 2])
def test_the_number_of_the_page_is_always_there(root: Path, runs: int, size: tuple[int, int]) -> None:
    values = {f"g{i}/{v}": float for i in range(12) for v in "vw"}
    for number in range(runs):
        write(root / f"r{number}", steps(20, **values))
    board = board_of(root, *(f"r{number}" for number in range(runs)))
    assert "page 1/" in look(board, *size)
    for _ in values:
        act(board, "page_on")
    last = re.search(r"page (\d+)/(\d+)", look(board, *size))
    assert last is not None
    assert last[1] == last[2]


def test_titles_and_legend_say_how_many_runs_they_have_no_room_for(root: Path) -> None:
    for number in range(6):
        write(root / f"r{number}", [*steps(20, loss=lambda _, number=number: 1.125 + number), END])
    board = board_of(root, *(f"r{number}" for number in range(6)))
    wide, narrow = look(board, 110), look(board, 36)
    assert "1.125 2.125 3.125 4.125 5.125 6.125 ┓" in wide
    assert "1.125 2.125 3.125 +3 ┓" in narrow
    assert " F  r5" in wide.splitlines()[3]
    assert narrow.splitlines()[3].split() == ["A", "r0", "✓", "B", "r1", "✓", "C", "r2", "✓", "+3"]


def test_several_runs_are_overlaid_with_a_legend(root: Path) -> None:
    write(root / "wide", training(0.2), **ABOUT)
    write(root / "narrow", training(0.4), **{**ABOUT, "name": "the narrow one"})
    board = board_of(root, "wide", "narrow")
    text = look(board)
    assert " A  wide ✓   B  the narrow one ✓" in text
    assert {"run0.block", "run1.block"} <= styles(screen.whole(board, 120, 40))
    act(board, "chart:1")
    detail = look(board)
    assert "A wide" in detail
    assert "B the narrow one" in detail


def test_names_of_overlaid_runs_are_cut_where_they_are_the_same(root: Path) -> None:
    rates = ("0.001", "0.003", "0.010", "0.030", "0.100", "0.300")
    for rate in rates:
        write(root / f"sweep-lr-{rate}", training(0.2), **ABOUT)
    board = board_of(root, *(f"sweep-lr-{rate}" for rate in rates))
    legend = look(board, 80).splitlines()[3]
    assert [word for word in legend.split() if "…" in word] == [f"…r-{rate}" for rate in rates[:4]]
    assert shorten_apart(["base-0.1-long-name", "base-0.2-long-name"], 8) == ["…0.1-lo…", "…0.2-lo…"]


def test_the_machine_is_shown_as_the_run_logged_it(trained: Path) -> None:
    board = board_of(trained.parent, "latest", view="system")
    text = look(board)
    for words in ("user 30 + system 12 %", "8.0 GB of 16.0 GB", "180 %", "400 GB free", "1.0 MB/s", "trainer"):
        assert words in text
    for words in ("GPU 0 ", "90 %", "6.0 GB of 8.0 GB", "220 W", "71 °C", "as the run logged it"):
        assert words in text
    assert {"bar.ok", "bar.high"} <= styles(screen.body(board, 120, 36))


def test_every_rank_has_a_line_and_a_slow_one_is_called_so(root: Path) -> None:
    rows = [
        {"rank": 0, "host": "node1", "tokens_per_s": 1350.0, "busy_percent": 64.0, "slowdown": 0.67, "rss": 2e9},
        {"rank": 1, "host": "node2", "tokens_per_s": 900.0, "busy_percent": 97.0, "slowdown": 1.5, "gpu_percent": 88}
        | {"gpu_memory_used": 6e10},
    ]
    events = [*steps(3), {"kind": "system", "t": 2.0, "ranks": rows}, END]
    write(root / "a", events, provenance={"hosts": ["node1", "node2"], "host": "node1"})
    lines = [line.strip() for line in look(board_of(root, "a", view="system")).splitlines() if "rank " in line]
    assert [" ".join(line.replace("━", "").replace("─", "").split()) for line in lines] == [
        "rank 0 node1 1,350 tok/s · busy 64 % · 2.0 GB",
        "rank 1 node2 900 tok/s · busy 97 % · GPU 88 % · 60.0 GB · slow, 1.5 ×",
    ]
    assert "ranks" in look(board_of(root, "a", view="system"))


def test_munins_figures_of_the_machine_are_known(root: Path) -> None:
    lines = [
        {"type": "metric", "key": key, "step": 1, "timestamp": 1.78e9 + 1, "value": value}
        for key, value in (
            ("sys/cpu_user", 40.0),
            ("sys/cpu_system", 5.0),
            ("sys/mem_used_gb", 3.0),
            ("sys/proc_mem_mb", 700.0),
        )
    ]
    folder = write(root / "a", lines)
    (folder / "run.json").write_text(json.dumps({"id": "a", "started_at": 1.78e9}))
    text = look(board_of(root, "a", view="system"))
    assert "user 40 + system 5 %" in text
    assert "700 MB" in text


def test_a_run_in_the_table_is_as_old_as_its_last_event(root: Path) -> None:
    for name, last in (("younger", 500), ("older", 100)):
        write(root / name, steps(last))
    (root / "older" / "events.jsonl").touch()  # the file that was written last
    board = Board(RunStore(root), view="runs", now=lambda: BEGAN + 500 + 3600)
    lines = text_of(frame(board, 120, 20)).splitlines()
    younger, older = (next(line for line in lines if name in line) for name in ("younger", "older"))
    assert "1 h 00 m" in younger
    assert "1 h 06 m" in older
    assert lines.index(younger) < lines.index(older)


def test_the_table_of_runs(root: Path) -> None:
    for index in range(3):
        write(root / f"run-{index}", training(0.1 * index), **{**ABOUT, "tags": [f"seed{index}"]})
    write(root / "other", [*steps(20), END], recipe="lora")
    board = board_of(root, view="runs")
    read(board)
    text = look(board, 150, 20)
    assert "4 runs" in text
    for word in ("run-0", "✓ completed", "from-scratch", "width", "#seed2", "400/400", "▁"):
        assert word in text
    board.answer("")
    board.asking = "filter"
    board.answer("tag:seed1")
    assert "1 of 4 runs" in look(board)
    board.asking = "filter"
    board.answer("lora")
    assert [row.summary.run_id for row in board.rows()] == ["other"]
    board.table.filter = ""
    act(board, "sort:run")
    assert [row.summary.run_id for row in board.rows()] == ["other", "run-0", "run-1", "run-2"]
    act(board, "sort:run")
    assert board.rows()[0].summary.run_id == "run-2"
    act(board, "sort:best")
    best = [row.best[1] for row in board.rows() if row.best]
    assert best == sorted(best)


def test_marked_runs_are_opened_together_and_compared(root: Path) -> None:
    write(root / "a", training(), **{**ABOUT, "config": {"lr": 0.1, "batch": 8}})
    write(root / "b", training(), **{**ABOUT, "config": {"lr": 0.2, "batch": 8}})
    board = board_of(root, view="runs")
    act(board, "sort:run")
    act(board, "first")
    act(board, "space")
    act(board, "space")
    assert "2 marked" in look(board)
    act(board, "differences")
    text = look(board)
    assert "config.lr" in text
    assert "0.1" in text
    assert "0.2" in text
    assert "config.batch" not in text
    act(board, "back")
    act(board, "open")
    read(board)
    assert [watched.id for watched in board.watched_runs] == ["a", "b"]


def test_the_other_tabs(trained: Path) -> None:
    weights = trained / "weights"
    weights.mkdir()
    for step in (200, 400):
        (weights / f"step_{step}.gguf").write_bytes(b"\0" * 2_000_000)
    (weights / "latest").symlink_to("step_400.gguf")
    board = board_of(trained.parent, "latest")

    def tab(view: str) -> str:
        act(board, f"view:{view}")
        return look(board)

    samples = tab("samples")
    assert "step 400" in samples
    assert "def main():" in samples
    assert samples.index("step 400") < samples.index("step 200 ")
    checkpoints = tab("checkpoints")
    assert "2.0 MB" in checkpoints
    assert "latest" in checkpoints
    assert "linnet generate llama-20260528-001@400" in checkpoints
    config = tab("config")
    assert "d_model" in config
    assert "0.0003" in config
    assert "the good seed; keep" in tab("notes")
    log = tab("log")
    assert "run started" in log
    assert "run completed" in log
    act(board, "help")
    assert "every command, by name" in look(board, 120, 60)


def test_a_note_typed_into_the_board_is_in_the_run(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    act(board, "notes")
    act(board, "notes")
    assert board.asking == "note"
    board.answer("look at step 200")
    read(board)
    assert "look at step 200" in look(board)
    last = json.loads((trained / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["text"], last["step"]) == ("note", "look at step 200", 400)


@pytest.mark.parametrize("run", ["kaun-board", "munin", "toy"])
def test_runs_of_other_writers(run: str) -> None:
    board = board_of(FIXTURES / run, "latest")
    text = look(board)
    assert "loss" in text
    for view in VIEWS:
        act(board, f"view:{view}")
        look(board)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (300, 80), (20, 8)])
def test_every_tab_fits_every_size(root: Path, size: tuple[int, int]) -> None:
    write(root / "wide", training(0.2), **ABOUT)
    write(root / "narrow", training(0.4), **ABOUT)
    board = board_of(root, "wide", "narrow")
    for view in VIEWS:
        act(board, f"view:{view}")
        look(board, *size)
    board.open_metric("loss")
    look(board, *size)
    for action in ("left", "smoothing", "zoom_in", "log_scale", "clip", "help", "differences"):
        act(board, action)
        look(board, *size)


def test_more_runs_than_colours_are_drawn_as_far_as_they_go(root: Path) -> None:
    for index in range(10):
        write(root / f"run{index}", training())
    board = board_of(root, *(f"run{index}" for index in range(10)))
    assert "the first 8 of 10 runs are drawn" in look(board)
    assert [watched.id for watched in board.watched_runs] == [f"run{index}" for index in range(8)]


def test_a_run_named_twice_is_drawn_once(trained: Path) -> None:
    board = board_of(trained.parent, "latest", trained.name)
    assert len(board.watched_runs) == 1
    assert len(Board(board.store, [trained, trained]).opening or []) == 1


def test_a_long_log_is_scrolled_from_its_end_and_followed_there(root: Path) -> None:
    folder = write(root / "a", [{"kind": "warning", "t": 1.0, "text": f"number {i}."} for i in range(100)])
    board = board_of(root, "a", view="log")
    assert "number 99." in look(board)
    act(board, "up")
    assert "number 98." in look(board)
    assert "number 99." not in look(board)
    append(folder, [{"kind": "warning", "t": 1.0, "text": "number 100."}])
    assert "number 98." in look(read(board))  # what is being read stays where it is
    act(board, "last")
    assert "number 100." in look(board)
    append(folder, [{"kind": "warning", "t": 1.0, "text": "number 101."}])
    assert "number 101." in look(read(board))


def test_home_and_end_scroll_the_help_over_a_metric(trained: Path) -> None:
    board = board_of(trained.parent, "latest")
    board.open_metric("loss")
    look(board, 60, 20)
    act(board, "help")
    look(board, 60, 20)
    act(board, "last")
    assert "open the file with" in look(board, 60, 20)
    assert board.zoom.cursor is None


def test_what_could_not_be_opened_is_told_also_without_a_run(trained: Path) -> None:
    board = board_of(trained.parent, view="runs")
    look(board)
    shutil.rmtree(trained)
    act(board, "open")
    read(board, 1)
    assert "is not a run: no such folder" in look(board)


def test_why_a_note_was_not_written_is_seen_on_a_narrow_screen(trained: Path) -> None:
    board = board_of(trained.parent, "latest", view="notes")
    (trained / "events.jsonl").unlink()
    (trained / "events.jsonl").mkdir()
    board.ask_for_note()
    board.answer("lost")
    assert "not a regular file" in look(board, 60, 20) or "Is a directory" in look(board, 60, 20)


def test_one_run_that_cannot_be_read_does_not_stop_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "bad", steps(5))
    good = write(root / "good", steps(5))
    board = board_of(root, "bad", "good", view="runs")

    def fail(seconds: float) -> bool:
        raise RuntimeError("odd")

    monkeypatch.setattr(board.watched_runs[0], "read", fail)
    append(good, steps(5, first=6))
    with pytest.raises(RuntimeError, match="odd"):
        read(board, 1)
    assert board.watched_runs[1].step() == 10


def test_commands_for_checkpoints_can_be_pasted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(root / "two words", training(), **ABOUT)
    (folder / "weights").mkdir()
    (folder / "weights" / "step_400.gguf").write_bytes(b"GGUF")
    text = look(board_of(root, "two words", view="checkpoints"), 300, 40)
    assert "linnet generate 'two words@400' --prompt" in text
    assert "--runs" not in text
    assert "/two words/weights/step_400.gguf' -p" in text
    monkeypatch.delenv("LINNET_RUNS")  # now the folder is none that a command finds by itself
    text = look(board_of(root, "two words", view="checkpoints"), 300, 40)
    assert f"linnet generate 'two words@400' --prompt \"…\" --runs {root}" in text


def test_checkpoints_offer_only_what_their_file_can_do(root: Path) -> None:
    offers = {}
    for name, arch, tokenizer in (("ids", "llama", "none"), ("text", "llama", "gpt2"), ("images", "vit", None)):
        folder = write(root / name, training(), **ABOUT)
        (folder / "weights").mkdir()
        metadata = MetadataBlock().text("general.architecture", arch)
        if tokenizer is not None:
            metadata.text("tokenizer.ggml.model", tokenizer)
        GGUFWriter(metadata).write(folder / "weights" / "step_400.gguf")
        text = look(board_of(root, name, view="checkpoints"), 300, 40)
        offers[name] = [
            word for word in ("llama-cli", "linnet generate", "linnet eval", "linnet classify") if word in text
        ]
    assert offers["ids"] == ["linnet eval"]
    assert offers["text"] == ["llama-cli", "linnet generate"]
    assert offers["images"] == ["linnet classify"]


def test_the_loss_that_a_checkpoint_carries_is_called_by_its_name(root: Path) -> None:
    written = [
        {"kind": "checkpoint", "t": 9.0, "step": 10, "path": "weights/step_10.gguf", "bytes": 4, "loss": 1.5},
        {"kind": "checkpoint", "t": 9.0, "step": 20, "path": "weights/step_20.gguf", "bytes": 4}
        | {"train_loss": 2.5, "validation_loss": 3.5},
    ]
    folder = write(root / "a", written)
    (folder / "weights").mkdir()
    for event in written:
        (folder / str(event["path"])).write_bytes(b"GGUF")
    text = look(board_of(root, "a", view="checkpoints"))
    rows = {row[0]: row[3:] for row in map(str.split, text.splitlines()) if row and row[0] in ("10", "20")}
    assert rows["20"] == ["2.5", "3.5", "weights/step_20.gguf"]
    assert rows["10"] == ["–", "–", "weights/step_10.gguf", "written", "with", "loss", "1.5"]  # which, it did not say


def test_a_newer_run_does_not_hide_that_this_one_cannot_be_read(root: Path) -> None:
    folder = write(root / "old", [])
    (folder / "events.jsonl").unlink()
    (folder / "events.jsonl").mkdir()
    write(root / "new", steps(3), created_at=time.time())  # by its events it is being written now
    board = board_of(root, "old")
    text = look(board)
    assert "events.jsonl cannot be read: not a regular file" in text  # in place of the charts
    assert "events.jsonl cannot be read" in text.splitlines()[0]
    assert "new: new" in text.splitlines()[0]
