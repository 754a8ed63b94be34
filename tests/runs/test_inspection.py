"""What a training told of its inside, as tables: by row and step, void after a resume, of any writer."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linnet
from linnet.errors import LinnetError
from linnet.runs import Inspection, RunBundle
from linnet.runs.figure_tables import Row, tensor_row
from linnet.runs.inspection_lines import inspection_runs, is_inspection, own_regions
from linnet.runs.region_tree import region_tree
from tests.conftest import FIXTURES, Printed, Said


def write_look(run: RunBundle, step: int) -> None:
    """What a look at a small model tells."""
    for layer in (0, 1):
        shape: dict[str, Any] = {"shape": [8, 4], "dtype": "f32"}
        counts = [step] * 32
        figures = {"mean": 0.0, "std": step + layer, "l2": 2.0, "edges": [-1.0, 3.0], "histogram": counts}
        run.tap(step, "ffn_out", layer, None, **shape, **figures)
        run.tap(step, "attn_out", layer, None, **shape, std=0.5, entropy=[0.25 * layer, 0.75])
        run.tap(step, "ffn_out", layer, None, shape=[2, 2], gram=[[1.0, 0.5], [0.5, float(step)]])
        run.grad(step, f"blk.{layer}.attn_q.weight", shape=[8, 8], l2=0.1 * step, abs_mean=0.01, nan_count=0)
        for head in (0, 1):
            run.grad(step, f"blk.{layer}.attn_q.weight", head=head, l2=step + head, update_ratio=1e-3)
        run.drift(step, f"blk.{layer}.attn_q.weight", 1 - 0.01 * step, 0.5)
    run.drift(step, "token_embd.weight", 0.9, 1.5)
    run.drift(step, "token_embd.weight", 0.8, 0.25, token_id=7, freq=100 * step)
    run.region_enter(step, "step", 0.0)
    run.region_enter(step, "forward", 10.0)
    run.region_exit(step, "forward", 40.0)
    run.region_exit(step, "step", 100.0)
    run.op_timing(step, 100, {"mm": 60, "other": 30})


@pytest.fixture
def run(tmp_path: Path, root: Path) -> linnet.Run:
    with linnet.start(root, run_id="a", system_every=0, config={"inspect": "all@5"}) as session:
        for step in range(1, 11):
            session.log(step, loss=1 / step)
            if step in (1, 5, 10):
                write_look(session, step)
    return linnet.open("a")


def test_a_figure_is_a_map_of_layers_and_steps(run: linnet.Run) -> None:
    seen = run.inspection()
    std = seen.taps.heat_map("std", "ffn_out")
    assert std.labels == ["0", "1"] and std.steps.tolist() == [1, 5, 10]
    assert std.values.tolist() == [[1, 5, 10], [2, 6, 11]]
    assert std.rows == [Row("ffn_out", 0), Row("ffn_out", 1)]
    everything = seen.taps.heat_map("std")
    assert everything.labels == ["ffn_out.0", "attn_out.0", "ffn_out.1", "attn_out.1"]
    assert seen.grads.heat_map("l2", "attn_q.weight", layer=1, heads=True).values.tolist() == [[1, 5, 10], [2, 6, 11]]
    entropy = seen.taps.heat_map("entropy", "attn_out", layer=0, heads=True)
    assert entropy.labels == ["0", "1"] and entropy.values[:, 0].tolist() == [0.0, 0.75]
    assert seen.taps.heat_map("entropy", "attn_out").values[:, 0].tolist() == [0.375, 0.5], "the mean of the heads"
    steps, cosines = seen.drift.series("cos_to_init", Row("attn_q.weight", 1))
    assert steps.tolist() == [1, 5, 10] and cosines.tolist() == pytest.approx([0.99, 0.95, 0.9])
    assert seen.grads.names == ["attn_q.weight"] and "update_ratio" in seen.grads.figures
    assert repr(seen).startswith("<Inspection: taps at 3 steps, grads at 3 steps")


def test_a_table_says_what_is_told_of_each_name(run: linnet.Run) -> None:
    ffn, attention = run.inspection().taps.contents
    assert (ffn.name, ffn.layers, ffn.figures, ffn.head_figures) == ("ffn_out", [0, 1], ["mean", "std", "l2"], [])
    assert (attention.figures, attention.head_figures) == (["std", "entropy"], ["entropy"])
    assert run.inspection().taps.histogram_rows == [Row("ffn_out", 0), Row("ffn_out", 1)]
    assert run.inspection().cells > run.inspection().taps.cells > 0


def test_histograms_grams_tokens_and_times_have_shapes_of_their_own(run: linnet.Run) -> None:
    seen = run.inspection()
    ridge = seen.taps.histograms("ffn_out", 1)
    assert ridge.counts.shape == (3, 32) and ridge.edges.shape == (3, 33)
    assert ridge.edges[0, 0] == -1 and ridge.edges[0, -1] == 3 and ridge.counts[2].tolist() == [10] * 32
    grams = seen.grams("ffn_out", 0)
    assert grams.values[1].tolist() == [[1.0, 0.5], [0.5, 5.0]] and grams.steps.tolist() == [1, 5, 10]
    tokens = seen.tokens(5)
    assert (tokens.token_id.tolist(), tokens.freq.tolist(), tokens.l2_to_init.tolist()) == ([7], [500], [0.25])
    assert Row("token_embd.weight") in seen.drift.rows and seen.tokens().step == 10
    root = seen.regions()
    assert (root.name, root.us, root.own_us) == ("step", 100.0, 70.0)
    assert [(depth, node.path, node.us) for depth, node in root.walk()] == [(0, "step", 100.0), (1, "forward", 30.0)]
    assert seen.op_timings[0].buckets == {"mm": 60.0, "other": 30.0}
    groups = ["taps", "grads", "drift", "gram", "tokens", "regions", "ops"]
    assert list(seen.looks) == groups and all(steps == [1, 5, 10] for steps in seen.looks.values())


def test_a_run_that_goes_on_makes_void_what_it_told_of_later_steps(run: linnet.Run, root: Path) -> None:
    seen = run.inspection()
    with linnet.start(root, resume="a", from_step=5, system_every=0) as session:
        write_look(session, 7)
    assert seen.refresh() and not seen.refresh()
    assert all(steps == [1, 5, 7] for steps in seen.looks.values()), seen.looks
    assert run.inspection().taps.histograms("ffn_out", 0).steps.tolist() == [1, 5, 7]
    assert run.inspection(superseded=True).taps.steps.tolist() == [1, 5, 7, 10]


def test_the_greatest_size_is_that_of_the_least_or_of_the_greatest(root: Path) -> None:
    with linnet.start(root, run_id="a", system_every=0) as session:
        for step, (least, greatest) in enumerate(((-3.0, 1.0), (-0.5, 2.0)), 1):
            session.tap(step, "ffn_out", 0, None, min=least, max=greatest)
    assert linnet.open("a").inspection().taps.heat_map("abs_max", "ffn_out").values.tolist() == [[3.0, 2.0]]


def test_numbers_that_are_not_finite_are_nan_again(root: Path) -> None:
    with linnet.start(root, run_id="a", system_every=0) as session:
        session.grad(1, "blk.0.ffn_up.weight", l2=math.nan, abs_mean=math.inf, nan_count=5)
        session.tap(1, "logits", None, None, max=math.inf, gram=[[math.nan, 1.0], [1.0, 2.0]])
        session.tap(1, "logits", None, None, max=math.inf)
    seen = linnet.open("a").inspection()
    assert math.isnan(seen.grads.series("l2", Row("ffn_up.weight", 0))[1][0])
    assert math.isinf(seen.grads.series("abs_mean", Row("ffn_up.weight", 0))[1][0])
    assert math.isinf(seen.taps.series("max", Row("logits"))[1][0])
    assert math.isnan(seen.grams("logits").values[0, 0, 0])


def test_lines_of_any_writer_are_read_and_damaged_ones_passed_over(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(
        "\n".join(
            [
                '{"kind": "tap", "t": 1.0, "step": 1, "region": "resid_post_block", "layer": 0, "head": null, "l2": 2}',
                '{"kind":"tap","t":1.0,"step":2,"region":"resid_post_block","layer":0,"head":null,"l2":3}',
                '{"kind":"tap","t":1.0,"step":3,"region":5,"layer":0,"l2":4}',
                '{"kind":"tap","t":1.0,"step":3,"region":"resid_post_bl',
                '{"kind":"grad","t":1.0,"step":3,"param":"blk.0.a","l2":null}',
                '{"kind":"step","t":1.0,"step":3,"loss":0.5,"text":"\\"tap\\""}',
                '{"kind":"region_enter","t":2.0,"step":3,"region":"a"}',
                '{"kind":"region_exit","t":2.5,"step":3,"region":"a"}',
                "",
            ]
        )
    )
    seen = Inspection(events)
    assert seen.taps.heat_map("l2", "resid_post_block").values.tolist() == [[2, 3]]
    assert seen.regions().us == 500_000.0, "by `t` where a region has no time of a device"
    assert seen.looks == {"taps": [1, 2], "regions": [3]}


def test_toys_own_are_read() -> None:
    seen = linnet.open(FIXTURES / "toy" / "llama-20260531-001").inspection()
    assert seen.looks.keys() == {"taps", "drift"}


@pytest.mark.parametrize(
    ("tensor", "row"),
    [
        ("blk.12.attn_q.weight", Row("attn_q.weight", 12)),
        ("v.blk.3.ln1.bias", Row("ln1.bias", 3)),
        ("token_embd.weight", Row("token_embd.weight")),
        ("v.patch_embd.weight", Row("v.patch_embd.weight")),
        ("blk.x.weight", Row("blk.x.weight")),
        ("lens.proj.weight", Row("lens.proj.weight")),
    ],
)
def test_a_tensors_name_says_its_layer(tensor: str, row: Row) -> None:
    assert tensor_row(tensor) == row


LINES = (
    b'{"kind":"tap","t":1.0,"step":1,"region":"ffn_out"}',
    b'{"kind":"drift","t":1.0,"step":1,"param":"a"}\r',
    b'{"kind":"region_enter","t":1.0,"step":1,"region":"step","us":0.0}',
    b'{"kind":"region_exit","t":1.0,"step":1,"region":"own"}',
    b'{"kind":"grad","t":1.0,"step":1,"par',
    b'{"kind":"note","t":1.0,"text":"{\\"kind\\":\\"tap\\",}","x":{"kind":"tap","us":1}}',
    b'{"kind":"tapestry","t":1.0}',
    b'{"kind": "tap", "t": 1.0}',
    b"",
)


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_lines_of_looks_are_known_in_stretches(lines: list[bytes]) -> None:
    block = b"".join(line + b"\n" for line in lines)
    stretches = [block[begin:end] for begin, end in inspection_runs(block)]
    looks = [line for line in lines if is_inspection(line)]
    assert b"".join(stretches) == b"".join(line + b"\n" for line in looks)
    own = [line for line in lines if line == LINES[3]]
    assert [line for stretch in stretches for line in own_regions(stretch)] == own


def test_what_was_not_told_is_an_error_that_helps(run: linnet.Run) -> None:
    seen = run.inspection()
    for look, words in (
        (lambda: seen.taps.heat_map("sd"), "no tap tells 'sd'; did you mean std?"),
        (lambda: seen.taps.heat_map("std", "ffn_ot"), "no tap of 'ffn_ot'; did you mean ffn_out?"),
        (lambda: seen.regions(3), "no regions were told of step 3; there are 1, 5, 10"),
        (lambda: seen.grams("ffn_out"), "no Gram matrix of ffn_out; did you mean ffn_out.1?"),
        (lambda: seen.tokens(2), "no drift of tokens was told at step 2; there are 1, 5, 10"),
    ):
        with pytest.raises(LinnetError) as error:
            look()
        assert str(error.value) == words


def test_a_table_is_a_dataframe_too(run: linnet.Run) -> None:
    frame = run.inspection().grads.to_pandas()
    assert list(frame.columns[:4]) == ["name", "layer", "head", "step"] and len(frame) == 2 * 3 * 3
    whole = frame[frame["head"].isna() & (frame["layer"] == 1)]
    assert whole["l2"].tolist() == pytest.approx([0.1, 0.5, 1.0])


_marks = st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.floats(0, 9)), max_size=12)


@given(_marks)
def test_any_regions_make_a_tree(marks: list[tuple[bool, str, float]]) -> None:
    nodes = [node for _, node in region_tree(marks).walk()]
    assert sum(bool(node.path) for node in nodes) == sum(entered for entered, _, _ in marks)
    assert all(np.isfinite(node.us) and node.own_us >= 0 for node in nodes)


def test_the_command_prints_tables_for_other_programs(run: linnet.Run, printed: Printed, said: Said) -> None:
    rows = list(csv.DictReader(io.StringIO(printed("metrics", "a", "--inspect", "taps", "--format", "csv"))))
    of_row = [row for row in rows if (row["name"], row["layer"], row["head"]) == ("ffn_out", "1", "")]
    assert [(row["step"], row["std"]) for row in of_row] == [("1", "2.0"), ("5", "6.0"), ("10", "11.0")]
    assert printed("metrics", "a", "--inspect", "regions").splitlines()[1] == "1\tstep\t0\t0.0\t100.0\t70.0"
    assert json.loads(printed("metrics", "a", "--inspect", "ops", "--json"))[0]["operation"] == "mm"
    assert len(printed("metrics", "a", "--inspect", "tokens").splitlines()) == 4
    code, _, err = said("metrics", "a", "--inspect", "taps", "--key", "loss")
    assert (code, err) == (2, "linnet: --inspect has columns of its own: leave out --key and --wide\n")
    with linnet.start(run.path.parent, run_id="plain", system_every=0) as session:
        session.log(1, loss=1.0)
    code, out, err = said("metrics", "plain", "--inspect", "tokens")
    assert (code, out) == (2, "")
    assert err == "linnet: run plain says nothing of tokens: that is told by a training with --inspect drift\n"
    assert len(printed("metrics", "a", "plain", "--inspect", "tokens").splitlines()) == 4


def test_show_says_what_was_looked_at(run: linnet.Run, printed: Printed) -> None:
    assert "inspected   all@5 · linnet board a --view inside" in printed("show", "a")


def test_what_no_training_tells_breaks_nothing(root: Path) -> None:
    with linnet.start(root, run_id="odd", system_every=0) as run:
        for step, size in ((1, 6), (2, 5), (3, 5)):  # somebody compares other samples from step 2 on
            run.tap(step, "ffn_out", 0, None, shape=[size, size], dtype="f32", gram=np.eye(size).tolist())
        run.grad(1, f"blk.{'9' * 5000}.attn_q.weight", l2=1.0)
        run.drift(1, "token_embd.weight", 0.5, 0.5, token_id=7, freq=3)
        run.drift(1, "token_embd.weight", 0.5, 0.5, token_id=1 << 63, freq=3)
        run.drift(1, "token_embd.weight", 0.5, 0.5, token_id=8, freq=1 << 63)
        for depth in range(5000):
            run.region_enter(1, f"r{depth}", float(depth))
    seen = linnet.open("odd", runs=root).inspection()
    grams = seen.grams("ffn_out", 0)
    assert grams.steps.tolist() == [2, 3] and grams.values.shape == (2, 5, 5)
    assert [row.layer for row in seen.grads.rows] == [None]
    assert seen.tokens().token_id.tolist() == [7]
    assert len(list(seen.regions().walk())) == 100
