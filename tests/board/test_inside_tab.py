"""The inside tab: what a training told of its inside, page by page, in any room, read when somebody looks."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.style import Style

import linnet
from linnet.analysis.logit_lens import LensWords, Word
from linnet.board.terminal import palette
from linnet.board.terminal.actions import act, point
from linnet.board.terminal.attention import AttentionRequest
from linnet.board.terminal.inside_page import PAGES, InsidePage
from linnet.board.terminal.keys import FOOTERS
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import screen
from linnet.board.terminal.views.inside_map import binned
from linnet.board.token_texts import token_text
from linnet.gguf import GGUFWriter, MetadataBlock
from linnet.runs import RunBundle
from linnet.runs.run import add_image, add_numbers
from tests.board.conftest import append, board_of, look, read, styles, training, write
from tests.board.terminals import PtyTerminal, see

STEPS = (1, 20, 40)
LAYERS = 3
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080200000090"
    "7753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def write_look(run: RunBundle, step: int) -> None:
    """What a look at a model of three layers tells; figures that tell where they come from."""
    shape: dict[str, Any] = {"shape": [8, 4], "dtype": "f32"}
    for layer in range(LAYERS):
        spread = {"edges": [-1.0 - step, 1.0 + step], "histogram": [1, 2, 4, 2, 1]}
        run.tap(step, "resid_post_block", layer, None, **shape, mean=0.5, std=100.0 * layer + step, min=-1.0, **spread)
        run.tap(step, "attn_out", layer, None, **shape, std=1.0, entropy=[0.25, 0.75])
        gram = [
            [math.sin(row * (1 + layer)) * math.sin(at * (1 + layer)) + (row == at) for at in range(6)]
            for row in range(6)
        ]
        run.tap(step, "resid_post_block", layer, None, shape=[6, 6], gram=gram)
        run.grad(step, f"blk.{layer}.attn_q.weight", shape=[8, 8], l2=0.1 * step, update_ratio=1e-3 * (layer + 1))
        run.grad(step, f"blk.{layer}.attn_q.weight", head=1, l2=7.0 + layer)
        run.drift(step, f"blk.{layer}.attn_q.weight", 1 - 0.01 * step, 0.5 * layer)
    run.grad(step, "token_embd.weight", shape=[8, 8], l2=3.0, update_ratio=0.5)
    for token in (3, 7, 9):
        run.drift(step, "token_embd.weight", 1 - 0.1 * token, 0.25, token_id=token, freq=10**token)
    times = [("step", 0.0, 10_000.0), ("forward", 0.0, 4_000.0), ("forward/blocks.0", 0.0, 1_500.0)]
    for name, begin, _ in [*times, ("forward/blocks.0/attn_norm", 0.0, 500.0)]:
        run.region_enter(step, name, begin)
    for name, _, end in [("forward/blocks.0/attn_norm", 0.0, 500.0), *reversed(times)]:
        run.region_exit(step, name, end)
    run.op_timing(step, 10_000, {"aten::mm": 6_000, "other": 2_000})


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was looked into at three steps; its folder of runs."""
    root = tmp_path_factory.mktemp("inspected")
    with linnet.start(root, run_id="a", system_every=0, model={"arch": "llama"}) as run:
        for step in range(1, 41):
            run.log(step, loss=1 / step)
            if step in STEPS:
                write_look(run, step)
    nodes = [
        {"name": "blocks.0.attn_norm.weight", "role": "weight", "shape": "64", "nelements": 64, "nbytes": 256},
        {"name": "blocks.0.attn_norm.rms_norm", "role": "ephemeral", "op": "rms_norm", "shape": "64×8", "inputs": []},
        {"name": "blocks.0.transpose", "role": "ephemeral", "op": "transpose", "shape": "8×64", "inputs": []},
        {"name": "blocks.1.add", "role": "ephemeral", "op": "add", "shape": "64×8", "inputs": []},
        {"name": "cross_entropy", "role": "loss", "op": "cross_entropy", "shape": "1", "inputs": []},
    ]
    (root / "a" / "flow.json").write_text(json.dumps({"format": "toy/v1", "nodes": nodes}))
    return root


def inside(root: Path, *actions: str, size: tuple[int, int] = (100, 30)) -> Board:
    """The tab with everything read, after some actions, each of which was seen."""
    board = board_of(root, "a", view="inside")
    for action in actions:
        look(board, *size)
        act(board, action)
    return board


def told(board: Board, text: str, size: tuple[int, int] = (100, 30)) -> str:
    """The screen after figure and region were chosen by name."""
    look(board, *size)
    assert board.inside.choose(text) == ""
    return look(board, *size)


# -- reading --------------------------------------------------------------------------------------------------------


def test_nothing_is_read_before_somebody_looks(inspected: Path) -> None:
    board = board_of(inspected, "a")
    assert not board.watched_runs[0].inside.caught_up and board.watched_runs[0].inside.share_read == 0
    act(board, "view:inside")
    assert "reading … 0 %" in look(board)
    assert "resid_post_block" in look(read(board))


def test_a_long_stream_is_read_a_block_at_a_time(inspected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.lines.LineReader.block_bytes", 4096)
    board = board_of(inspected, "a")
    watched, seen = board.watched_runs[0].inside, set()
    while not watched.caught_up:
        watched.read(0.0)
        with watched.held() as inspection:
            assert inspection is not None
            seen.add(len(inspection.looks.get("taps", [])))
    assert seen == {0, 1, 2, 3} or seen == {1, 2, 3}, "what was read is shown before all is"


def test_what_is_told_while_one_looks_comes_by_itself(root: Path) -> None:
    tap: dict[str, Any] = {"kind": "tap", "t": 1.0, "region": "ffn_out", "layer": 0, "shape": [2], "dtype": "f32"}
    folder = write(root / "a", [{**tap, "step": 1, "std": 0.125}])
    board = board_of(root, "a", view="inside")
    assert "step 1  0.125" in look(board)
    append(folder, [{**tap, "step": 7, "std": 0.875}])
    assert "step 7  0.875" in look(read(board)), "the cursor stays with the newest"
    act(board, "left")
    append(folder, [{**tap, "step": 9, "std": 0.5}])
    assert "step 1  0.125" in look(read(board)), "it was put elsewhere"
    append(folder, [{"kind": "resume", "t": 2.0, "step": 1}])
    assert " 7 " not in look(read(board)).splitlines()[5], "what a resume made void is gone"


def test_without_inspection_a_line_names_the_command_that_makes_it(root: Path) -> None:
    write(root / "a", training(), recipe="warm-start")
    for page, asked in enumerate(("taps,grads,drift", "taps", "regions,ops"), 1):
        board = inside(root, f"chart:{page}")
        assert f"not looked into: linnet train warm-start --inspect {asked}@100" in look(board, 80, 24)
    assert "no flow.json" in look(inside(root, "chart:4"), 80, 24)
    assert "--record" in look(inside(root, "chart:7"), 80, 24)
    assert "nothing to warn of" in look(inside(root, "chart:9"), 80, 24)


@pytest.mark.parametrize("size", [(20, 8), (40, 12), (80, 24), (104, 30), (220, 60)])
def test_every_page_fits_any_screen(inspected: Path, root: Path, size: tuple[int, int]) -> None:
    write(root / "a", training())
    for folder in (inspected, root):
        for color in (False, True):
            board = board_of(folder, "a", view="inside")
            board.color = color
            for page in range(1, len(PAGES) + 1):
                act(board, f"chart:{page}")
                for action in ("down", "left", "turn_rows", "up"):
                    look(board, *size)
                    act(board, action)
                look(board, *size)


def test_the_footer_names_the_keys_of_the_page(inspected: Path) -> None:
    board = inside(inspected)
    for page, words in enumerate(("figure", "region", "open, shut", "open, shut", "over", "step", "open", "prompt"), 1):
        act(board, f"chart:{page}")
        assert words in look(board, 80, 24).splitlines()[-1]
    assert {InsidePage(page).keys for page in PAGES} <= set(FOOTERS)


def test_no_event_of_a_stream_breaks_a_page_or_speaks_to_the_terminal(root: Path) -> None:
    tap: dict[str, Any] = {"kind": "tap", "t": 1.0, "step": 1, "layer": 0, "shape": [2], "dtype": "f32"}
    region: dict[str, Any] = {"t": 1.0, "step": 1, "region": "\x1b[2Jr"}
    same = [[float(row == at) for at in range(6)] for row in range(6)]
    odd: list[dict[str, Any]] = [
        {**tap, "region": "a\x1b[31m", "std": 1e300, "edges": [0, 1], "histogram": []},
        {**tap, "region": "a\x1b[31m", "layer": 1, "std": 1e300, "edges": [0], "histogram": [1]},
        {**tap, "region": "b\x1b[31m", "gram": [[1, 2], [3]]},
        {**tap, "region": "b\x1b[31m", "layer": 1, "gram": same},
        {**region, "kind": "region_enter", "us": -1e308},
        {**region, "kind": "region_exit", "us": 1e308},
    ]
    write(root / "a", [*training(), *odd])
    board = board_of(root, "a", view="inside")
    for page in range(1, len(PAGES) + 1):
        for action in (f"chart:{page}", "down", "left", "turn_rows"):
            act(board, action)
            for size in ((40, 12), (104, 30)):
                assert "\x1b" not in look(board, *size)


# -- the map --------------------------------------------------------------------------------------------------------


def test_a_figure_is_a_map_of_layers_and_steps_with_the_value_at_the_cursor(inspected: Path) -> None:
    shown = look(inside(inspected)).splitlines()
    assert shown[4].startswith(" taps std of resid_post_block") and shown[4].rstrip().endswith("layer 0  step 40  40")
    assert [line.split() for line in shown[5:9]] == [
        ["layer", "1", "20", "40"],
        ["0", "1", "20", "40"],
        ["1", "101", "120", "140"],
        ["2", "201", "220", "240"],
    ]
    assert "std" in shown[9] and "steps across" in shown[9]
    assert any("◆" in line for line in shown[10:]), "the curve of the row has the cursor's point"


def test_arrows_move_the_cursor(inspected: Path) -> None:
    board = inside(inspected, "down", "left")
    assert "layer 1  step 20  120" in look(board)
    act(board, "first")
    assert "layer 1  step 1  101" in look(board)
    for _ in range(5):
        act(board, "down")
        act(board, "right")
    assert "layer 2  step 40  240" in look(board)


def test_keys_choose_figure_region_and_heads(inspected: Path) -> None:
    board = inside(inspected, "figure_back")
    assert "taps mean of resid_post_block" in look(board)
    act(board, "family")
    assert "drift l2_to_init of attn_q.weight" in look(board), "from the first back to the last"
    assert "grads update_ratio of attn_q.weight" in told(board, "update_ratio")
    act(board, "axis")
    assert "grads update_ratio of besides the layers" in look(board)
    assert "token_embd.weight  step 40  0.5" in look(board)
    act(board, "region_back")
    assert "grads l2 of attn_q.weight" in told(board, "l2")
    act(board, "down")
    act(board, "hide")
    assert "heads" in look(board) and "layer 1 head 1  step 40  8" in look(board)
    act(board, "hide")
    assert "layer 1  step 40  4" in look(board)


def test_figure_and_region_are_chosen_by_name_and_kept_across_groups(inspected: Path) -> None:
    board = inside(inspected)
    assert "taps std of attn_out" in told(board, "attn_out")
    assert "grads update_ratio of attn_q.weight" in told(board, "update_ratio attn_q")
    assert "drift cos_to_init of attn_q.weight" in told(board, "cos")
    assert board.inside.choose("nonsense") == "there is no figure and no region 'nonsense'"
    act(board, "filter")
    board.answer("nonsense")
    assert "no region 'nonsense'" in look(board)


def test_all_of_a_layer_has_a_row_for_each_region(inspected: Path) -> None:
    shown = told(inside(inspected, "down", "down"), "all")
    assert "of all of layer 2" in shown
    assert [line.split()[0] for line in shown.splitlines()[6:8]] == ["resid_post_block", "attn_out"]


def test_colours_by_the_logarithm(inspected: Path) -> None:
    board = inside(inspected, "log_scale")
    shown = look(board)
    assert "log scale" in shown
    legend = next(line for line in shown.splitlines() if line.startswith(" std ")).split()[1:11]
    ratios = np.diff(np.log([float(word) for word in legend]))
    assert ratios == pytest.approx(np.full(9, ratios.mean()), abs=0.2)


def test_many_rows_are_half_blocks_in_colours_and_scroll_without(root: Path) -> None:
    tap: dict[str, Any] = {"kind": "tap", "t": 1.0, "region": "ffn_out", "shape": [2], "dtype": "f32"}
    write(root / "a", [{**tap, "step": step, "layer": layer, "std": layer} for step in (1, 2) for layer in range(40)])
    board = board_of(root, "a", view="inside")
    assert "1 … 15 of 40 rows" in look(board, 80, 24)
    for _ in range(39):
        look(board, 80, 24)
        act(board, "down")
    assert "26 … 40 of 40 rows" in look(board, 80, 24)
    board.color = True
    assert "11 … 40 of 40 rows" in look(board, 80, 24)
    drawn = [span for line in screen.whole(board, 80, 24) for span in line if span[1].startswith("pixel.")]
    assert any(set(text) == {"▀"} for text, _ in drawn)


def test_a_spike_of_one_look_in_hundreds_is_seen_and_the_cursor_finds_it(root: Path) -> None:
    tap: dict[str, Any] = {"kind": "tap", "t": 1.0, "region": "ffn_out", "layer": 0, "shape": [2], "dtype": "f32"}
    write(root / "a", [{**tap, "step": step, "std": 99.0 if step == 321 else 1.0} for step in range(1, 501)])
    board = board_of(root, "a", view="inside")
    row = look(board, 80, 24).splitlines()[6]
    assert row.split()[1].count("9") == 1
    point(board, "click", 1 + 6 + row.split()[1].index("9"), 3)
    assert "step 32" in look(board, 80, 24)


def test_the_mouse_puts_the_cursor_and_turns_pages(inspected: Path) -> None:
    board = inside(inspected)
    lines = look(board).splitlines()
    point(board, "click", lines[7].index("120"), 4)
    assert "layer 1  step 20  120" in look(board)
    point(board, "click", lines[3].index("time") + 1, 0)
    assert "time of step 20" in look(board)


def test_without_colour_cells_have_digits_and_the_cursor_is_reversed() -> None:
    assert palette.style_of("pixel.ff0000.00ff00", palette.PLAIN) == Style()
    assert palette.style_of("cursor.cell", palette.PLAIN).reverse


# -- histograms, times, the model -----------------------------------------------------------------------------------


def test_enter_shows_the_histogram_of_the_cell_and_its_change(inspected: Path) -> None:
    board = inside(inspected, "down", "open")
    shown = look(board, 80, 24)
    assert "resid_post_block.1  step 40" in shown and "mean 0.5" in shown and "std 140" in shown
    assert "10 values, at most 4 in a bar" in shown
    ridge = shown[shown.index("the spread of the numbers") :].splitlines()
    assert [line.split()[0] for line in ridge[1:4]] == ["1", "20", "40"]
    widths = [len(line.split(maxsplit=1)[1].strip()) for line in ridge[1:4]]
    assert widths[0] < widths[1] < widths[2], "all steps are on one axis"
    act(board, "left")
    assert "step 20" in look(board, 80, 24)


def test_a_histogram_on_other_bins_keeps_its_shape() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    assert binned(edges, np.array([8, 4]), np.linspace(0, 2, 5)) == [8, 8, 4, 4]
    assert binned(edges, np.array([0, 1000]), np.linspace(-2, 2, 5)) == [0, 0, 0, 8]
    assert binned(edges, np.array([1, 1000]), np.linspace(0, 2, 3)) == [1, 8], "what is there is seen"


def test_where_the_time_went_is_a_tree_that_opens(inspected: Path) -> None:
    board = inside(inspected, "chart:3")
    shown = look(board, 80, 24)
    rows = {line.split()[1]: line.split() for line in shown.splitlines() if "%" in line}
    assert rows["step"][-4:] == ["10", "ms", "100", "%"] or rows["▾"][-4:] == ["10", "ms", "100", "%"]
    assert "forward" in shown and "40 %" in shown and "▸ blocks.0" in shown and "attn_norm" not in shown
    assert "aten::mm" in shown and "75 %" in shown
    for action in ("down", "down", "open"):
        act(board, action)
        look(board, 80, 24)
    assert "500 µs" in look(board, 80, 24)
    act(board, "open")
    assert "500 µs" not in look(board, 80, 24)


def test_the_model_is_a_list_whose_parts_have_figures_and_times(inspected: Path) -> None:
    board = inside(inspected, "chart:4")
    shown = look(board, 120, 30)
    head = next(line for line in shown.splitlines() if "params" in line).split()
    assert {"shape", "params", "std", "forward", "update"} <= set(head)
    block = next(line for line in shown.splitlines() if "blocks.0" in line)
    assert "64" in block and "40" in block and "1.5 ms" in block
    norm = next(line for line in shown.splitlines() if "attn_norm" in line)
    assert "500 µs" in norm
    assert "transpose" not in shown, "it only gives numbers another shape"
    act(board, "first")
    assert "step 1" in look(board, 120, 30)


# -- likeness, tokens, findings -------------------------------------------------------------------------------------


def test_layers_are_compared_by_what_gram_told(inspected: Path) -> None:
    shown = look(inside(inspected, "chart:5"))
    lines = shown.splitlines()
    assert "CKA of resid_post_block" in shown
    first = next(at for at, line in enumerate(lines) if "beside each other" in line)
    matrix = [[int(word) for word in line.split()[1:]] for line in lines[first + 2 : first + 5]]
    assert [matrix[at][at] for at in range(3)] == [100, 100, 100] and matrix[0][1] == matrix[1][0]
    later = next(at for at, line in enumerate(lines) if "at the last step" in line)
    assert [line.split()[-1] for line in lines[later + 2 : later + 5]] == ["100"] * 3


def test_tokens_are_told_of_by_how_often_they_came(inspected: Path) -> None:
    shown = look(inside(inspected, "chart:6"))
    assert shown.count("●") >= 3
    assert "farthest: 9 (0.1), 7 (0.3), 3 (0.7)" in shown


@pytest.mark.parametrize(
    ("model", "tokens", "texts"),
    [
        ("gpt2", ["Ġthe", "Ċ", "Ã©", "Ã"], ["·the", "⏎", "é", "Ã", "4"]),
        ("llama", ["▁the", "<0x0A>"], ["·the", "<0x0A>", "2"]),
        ("none", [], ["0"]),
    ],
)
def test_tokens_have_their_texts_where_a_checkpoint_has_a_tokenizer(
    root: Path, model: str, tokens: list[str], texts: list[str]
) -> None:
    run = linnet.Run.load(write(root / "a", training()))
    assert token_text(run, 0) == "0", "there is no checkpoint"
    (root / "a" / "weights").mkdir()
    metadata = MetadataBlock().text("general.architecture", "llama").text("tokenizer.ggml.model", model)
    if tokens:
        metadata.texts("tokenizer.ggml.tokens", tokens)
    GGUFWriter(metadata).write(root / "a" / "weights" / "step_400.gguf")
    assert [token_text(run, at) for at in range(len(texts))] == texts


def words_after(said: list[list[list[tuple[str, float]]]], tokens: list[str]) -> dict[str, Any]:
    """What `linnet lens-words --record` keeps of words by layer, place and likelihood."""
    words_LTK = tuple(tuple(tuple(Word(0, *word, None) for word in top) for top in layer) for layer in said)
    return LensWords("a", "".join(tokens), tuple(tokens), tuple(map(str, range(len(said)))), words_LTK).as_fields()


@pytest.mark.parametrize(
    ("kind", "numbers", "words"),
    [
        ("cka", {"a": "a", "b": "b", "rows": ["embd", "0"], "columns": ["0"], "cka": [[0.25], [None]]}, ["25", "·"]),
        (
            "drift",
            {"run": "a", "origin": "seed 0", "steps": [10], "layers": ["0", "1", "2"], "distance": [[0.1], [0.2], [9]]},
            ["distance from seed 0", "20"],
        ),
        ("lmc", {"a": "a", "b": "b", "alphas": [0, 0.5, 1], "losses": [2, 3.5, 2]}, ["how much of b", "●"]),
        (
            "lens-words",
            words_after([[[(" France", 0.5), (" Spain", 0.25)]]], ["of"]),
            ["·France 50"],
        ),
    ],
)
def test_what_an_analysis_recorded_is_drawn(root: Path, kind: str, numbers: dict[str, Any], words: list[str]) -> None:
    with linnet.start(root, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    opened = linnet.open("a")
    add_numbers(opened, kind, 1, numbers)
    add_image(opened, kind, 1, _PNG, (1, 1), f"{kind}: what was found")
    shown = look(inside(root, "chart:7"), 80, 24)
    assert all(word in shown for word in (kind, "step 1", "what was found", *words)), shown


def test_a_finding_that_is_opened_has_a_cursor(root: Path) -> None:
    with linnet.start(root, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    words = [[[(f"w{layer}.{at}", 0.5)] for at in range(40)] for layer in range(30)]
    add_numbers(linnet.open("a"), "lens-words", 1, words_after(words, [f"t{at}" for at in range(40)]))
    add_image(linnet.open("a"), "lens-words", 1, _PNG, (1, 1), "what layers say")
    board = inside(root, "chart:7", size=(80, 24))
    assert "w0.39" not in look(board, 80, 24)
    act(board, "open")
    for _ in range(50):
        look(board, 80, 24)
        act(board, "right")
        act(board, "down")
    shown = look(board, 80, 24)
    assert "layer 29, tokens t39: w29.39 50" in shown and "t38" in shown and "w0.39" not in shown
    act(board, "back")
    assert board.view == "inside" and "w0.0" in look(board, 80, 24)
    act(board, "back")
    assert board.view == "metrics"


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("cka", {"rows": ["0"], "columns": ["0", "1"], "cka": [[0.5]]}),
        ("lens-words", {"tokens": ["of"], "layers": ["0"], "words_LTK": [[[]]]}),
    ],
)
def test_numbers_that_do_not_fit_together_leave_the_picture(root: Path, kind: str, numbers: dict[str, Any]) -> None:
    with linnet.start(root, run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    opened = linnet.open("a")
    add_numbers(opened, kind, 1, numbers)
    add_image(opened, kind, 1, _PNG, (1, 1), f"{kind}: found")
    board = inside(root, "chart:7")
    board.color = True
    assert f"{kind}: found" in look(board, 80, 24)
    assert "pixel." in "".join(styles(screen.whole(board, 80, 24)))


def test_warnings_have_their_step_and_likely_cause(root: Path) -> None:
    note = {"kind": "note", "t": 9.0, "step": 90, "level": "warning"}
    text = "the gradient of layer 2 vanishes: is its input zero?"
    write(root / "a", [*training()[:-1], {**note, "text": text}])
    shown = look(inside(root, "chart:9"), 80, 24).splitlines()
    at = next(number for number, line in enumerate(shown) if "step 90" in line)
    assert "the gradient of layer 2 vanishes" in shown[at] and "is its input zero?" in shown[at + 1]


# -- attention ------------------------------------------------------------------------------------------------------

_ANSWER = {
    "tokens": ["The", " cat", "\n"],
    "layers": [
        {"layer": layer, "heads": [[[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5 + layer + head]] for head in (0, 1)]}
        for layer in (0, 1)
    ],
}
_SAYS = f"import sys; assert '--prompt=The cat' in sys.argv; print({json.dumps(_ANSWER)!r})"


def asking(root: Path, program: str) -> Board:
    """The attention page, with a prompt for which another program than Linnet was started."""
    write(root / "a", training(), model={"arch": "llama"})
    (root / "a" / "weights").mkdir(exist_ok=True)
    file = root / "a" / "weights" / "step_400.gguf"
    file.write_bytes(b"GGUF")
    board = inside(root, "chart:8")
    board.inside.attention = AttentionRequest(file, "The cat", (sys.executable, "-c", program))
    return board


def wait_for(request: AttentionRequest | None, patience: float = 30.0) -> None:
    assert request is not None
    request._thread.join(patience)
    assert not request.computes


def test_attention_is_asked_for_with_a_prompt(root: Path) -> None:
    write(root / "a", training(), model={"arch": "llama"})
    board = inside(root, "chart:8")
    assert "no checkpoint of a language model" in look(board)
    (root / "a" / "weights").mkdir()
    (root / "a" / "weights" / "step_400.gguf").write_bytes(b"GGUF")
    assert "Enter, and a prompt: what each head of a@400 looks at" in look(board)
    act(board, "open")
    assert board.asking == "prompt"
    board.answer("")
    assert board.inside.attention is None, "nothing was typed"


def test_attention_is_a_map_of_tokens_by_layer_and_head(root: Path) -> None:
    board = asking(root, _SAYS)
    wait_for(board.inside.attention)
    assert board.inside.read() and not board.inside.read(), "it is news once"
    shown = look(board)
    assert "layer 0  mean of all heads" in shown and "2 ⏎" in shown and "The cat" in shown
    for action in ("down", "right"):
        act(board, action)
        shown = look(board)
    assert "layer 1  head 0" in shown
    act(board, "right")
    act(board, "right")
    assert "mean of all heads" in look(board), "round from the last head"


def test_attention_that_fails_says_why_and_may_be_asked_for_again(root: Path) -> None:
    board = asking(root, "import sys; print('linnet: the prompt is too long', file=sys.stderr); sys.exit(2)")
    wait_for(board.inside.attention)
    shown = look(board)
    assert "the prompt is too long" in shown and "another prompt" in shown


def test_a_process_that_still_computes_ends_with_the_board(root: Path) -> None:
    board = asking(root, "import time; time.sleep(600)")
    assert "linnet attention computes" in look(board)
    began = time.monotonic()
    board.close()
    wait_for(board.inside.attention)
    assert time.monotonic() - began < 60


# -- a real terminal ------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(inspected: Path) -> Callable[..., PtyTerminal]:
    return lambda **environment: PtyTerminal(["a", "--runs", str(inspected)], 80, 24, **environment)


def test_the_tab_in_a_real_terminal(opened: Callable[..., PtyTerminal]) -> None:
    terminal = opened()
    try:
        see(terminal, "1 loss")
        terminal.press("I")
        see(terminal, "1 map", "taps std of resid_post_block", "step 40  40")
        terminal.press("f")
        see(terminal, "taps min")
        terminal.press("/")
        see(terminal, "figure and region by name")
        terminal.press("update_ratio\r")
        see(terminal, "grads update_ratio of attn_q.weight")
        terminal.press("3")
        see(terminal, "time of step 40", "aten::mm")
        terminal.press("q")
        see(terminal, "1 loss")
        terminal.press("q")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_own_figures_of_alignment_and_masks_have_charts(root: Path) -> None:
    with linnet.start(root, run_id="a", system_every=0) as run:
        for step in range(1, 6):
            run.log(step, loss=1 / step)
            run.align(step, 0, 1, "blk.0.attn_q.weight", cos=0.1 * step, dfa_norm=1.0 + step, bp_norm=2.0)
            run.mask(step, 0, 2, 1 - 0.1 * step, "blk.0.ffn_up.weight")
            run.mask(step, 0, 3, 1 / step)
    names = board_of(root, "a").names()
    charted = {"align/blk.0.attn_q.weight/cos", "align/blk.0.attn_q.weight/dfa_norm"}
    assert charted | {"mask/blk.0.ffn_up.weight/density", "mask/0.3/density"} <= set(names)
