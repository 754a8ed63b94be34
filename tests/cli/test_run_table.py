"""`linnet runs` as a table: a row a run, with the settings that differ and the metrics somebody chose."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from tests.conftest import Printed, Said

RATES, SEEDS = (0.001, 0.01, 0.1), (0, 1)


def final_loss(lr: float, seed: int) -> float:
    return 1 / 20 + lr + seed / 100


@pytest.fixture
def sweep(root: Path) -> Path:
    """Six runs of three rates and two seeds; the accuracy grows, the held-out loss is best in the middle."""
    for number, (lr, seed) in enumerate((lr, seed) for lr in RATES for seed in SEEDS):
        config = {"lr": lr, "seed": seed, "width": 32, "optimizer": {"beta": 0.9}}
        with linnet.start(
            run_id=f"xor-{number}", group=f"g{seed}", config=config, tags=["t"], total_steps=20, system_every=0
        ) as run:
            for step in range(1, 21):
                run.log(step, loss=1 / step + lr + seed / 100, acc=step / 20 + lr, lr=lr / step)
                if step % 5 == 0:
                    run.eval(step, "validation", loss=abs(step - 10) + lr)
    return root


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_a_row_a_run_with_the_settings_that_differ(sweep: Path, printed: Printed) -> None:
    head, first, *_ = rows(printed("runs"))
    assert head == ["run", "status", "step", "loss", "lr", "seed", "time", "age", "about"]
    assert first[:6] == ["xor-0", "completed", "20/20", "0.051", "0.001", "0"]
    assert "g0 · #t" in printed("runs")  # the group
    assert "width" not in printed("runs")


def test_columns_are_metrics_at_any_point_settings_and_labels(sweep: Path, printed: Printed) -> None:
    head, first, *_ = rows(printed("runs", "--columns", "loss,best(validation/loss),loss@10,max(acc),first(loss)"))
    assert head == ["run", "loss", "best(validation/loss)", "loss@10", "max(acc)", "first(loss)", "lr", "seed"]
    assert first == ["xor-0", "0.051", "0.001", "0.101", "1.001", "1.001", "0.001", "0"]
    head, first, *_ = rows(printed("runs", "--columns", "width, optimizer.beta,lr, last(lr),group,loss@21"))
    assert head == ["run", "width", "beta", "config.lr", "last(lr)", "group", "loss@21"]
    assert first == ["xor-0", "32", "0.9", "0.001", "5e-5", "g0", "–"]  # it never came to step 21


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("loss", "021345"),
        ("acc", "452301"),  # more is better
        ("-acc", "012345"),
        ("best(validation/loss)", "012345"),
        ("lr", "012345"),
        ("-lr", "452301"),
        ("-seed,lr", "135024"),
        ("seed,-lr", "420531"),
        ("group", "024135"),
        ("name", "012345"),
        ("-name", "543210"),
        ("time", "012345"),
        ("last(lr)", "012345"),
    ],
)
def test_sort_goes_by_the_columns_own_direction(sweep: Path, printed: Printed, sort: str, order: str) -> None:
    listed = json.loads(printed("runs", "--sort", sort, "--json"))
    assert "".join(run["run_id"][-1] for run in listed) == order
    backwards = json.loads(printed("runs", "--sort", sort, "--reverse", "--json"))
    assert backwards[0]["run_id"][-1] in (order[3:] if sort == "group" else order[-2:])


def test_what_a_run_does_not_have_comes_last_whichever_way(sweep: Path, printed: Printed) -> None:
    with linnet.start(run_id="odd", config={"lr": 1.0}, system_every=0) as run:
        run.log(1, loss=float("nan"))
    for words in (["--sort", "acc"], ["--sort", "-acc"], ["--sort", "best(loss)"], ["--sort", "seed", "--reverse"]):
        assert json.loads(printed("runs", *words, "--json"))[-1]["run_id"] == "odd"
    assert "NaN" in printed("runs", "--columns", "loss,best(loss)")


def test_what_it_is_sorted_by_is_shown(sweep: Path, printed: Printed) -> None:
    assert "best(acc)" in printed("runs", "--sort", "best(acc)").splitlines()[0]
    assert len(printed("runs", "--sort", "best(acc)", "--limit", "2").splitlines()) == 3


def test_by_groups_seeds_with_mean_and_spread(sweep: Path, printed: Printed) -> None:
    lines = printed("runs", "--by", "lr", "--columns", "loss,acc").splitlines()
    assert lines[0].split() == ["lr", "runs", "loss", "acc"]
    values = [final_loss(0.001, seed) for seed in SEEDS]
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    assert lines[1].split()[:5] == ["0.001", "2", f"{mean:.4g}", "±", f"{deviation:.2g}"]
    assert lines[-1] == "mean ± standard deviation over seed"
    best_first = printed("runs", "--by", "lr", "--sort", "acc").splitlines()
    assert [line.split()[0] for line in best_first[1:4]] == ["0.1", "0.01", "0.001"]
    groups = json.loads(printed("runs", "--by", "lr,width", "--json"))
    assert groups[2]["by"] == {"lr": 0.1, "width": 32}
    assert groups[2]["runs"] == ["xor-4", "xor-5"]
    assert groups[2]["columns"]["loss"]["mean"] == statistics.fmean(final_loss(0.1, seed) for seed in SEEDS)


def test_a_mean_says_how_many_runs_it_leaves_out(sweep: Path, printed: Printed) -> None:
    with linnet.start(run_id="odd", config={"lr": 0.1, "seed": 9}, system_every=0) as run:
        run.log(1, loss=float("nan"))
    last = printed("runs", "--by", "lr").splitlines()[3]
    assert last.split()[:2] == ["0.1", "3"]
    assert last.endswith("(2 of 3)")


def test_csv_has_all_columns_and_all_digits(sweep: Path, printed: Printed) -> None:
    table = list(csv.DictReader(io.StringIO(printed("runs", "--csv", "--columns", "best(validation/loss)"))))
    assert [float(row["best(validation/loss)"]) for row in table] == [lr for lr in RATES for _ in SEEDS]
    assert [float(row["last"]) for row in table] == [final_loss(lr, seed) for lr in RATES for seed in SEEDS]
    assert [(row["lr"], row["seed"], row["group"], row["tags"]) for row in table][3] == ("0.01", "1", "g1", "t")
    groups = list(csv.DictReader(io.StringIO(printed("runs", "--csv", "--by", "seed"))))
    assert list(groups[0]) == ["seed", "runs", "loss", "loss std", "loss n"]


def test_json_keeps_its_fields_and_has_all_settings(sweep: Path, printed: Printed) -> None:
    run = json.loads(printed("runs", "--json", "--columns", "loss@10"))[0]
    assert {"run_id", "status", "step", "total_steps", "metric", "last", "seconds", "group", "tags"} <= run.keys()
    assert run["settings"] == {
        "config.lr": 0.001,
        "config.seed": 0,
        "config.width": 32,
        "config.optimizer.beta": 0.9,
        "model.arch": "run",
        "total_steps": 20,
        **{name: value for name, value in run["settings"].items() if name == "git"},
    }
    assert run["columns"] == {"loss@10": 0.1 + 0.001}


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 132, 200])
def test_a_terminal_gets_the_columns_that_fit_and_the_names_of_the_others(
    sweep: Path, terminal: Callable[..., list[str]], columns: int
) -> None:
    for words in (["runs"], ["runs", "--columns", "loss,acc,best(acc),loss@3,loss@4,loss@5,group,age"]):
        lines = terminal(columns, *words)
        assert max(map(len, lines)) <= columns
        assert len([line for line in lines if line.startswith("xor-")]) == len(RATES) * len(SEEDS)
    lines = terminal(columns, "runs", "--columns", "loss,acc,best(acc),loss@3,loss@4,loss@5,group,age")
    if columns <= 60:
        assert any(line.startswith("no room for ") for line in lines)
    if columns >= 100:
        assert "no room" not in lines[-1]


def test_settings_come_before_times_where_there_is_little_room(sweep: Path, terminal: Callable[..., list[str]]) -> None:
    lines = terminal(44, "runs")
    assert lines[0].split() == ["run", "status", "step", "loss", "lr", "seed"]
    notice = "no room for time, age, about (--columns time,age,experiment shows them; --csv all)"
    assert " ".join(lines[-2:]) == notice


def test_a_run_of_another_kind_does_not_push_out_what_the_others_differ_in(
    sweep: Path, terminal: Callable[..., list[str]]
) -> None:
    with linnet.start(run_id="mine", config={"lr": 0.5}, system_every=0) as run:  # none of the others' settings
        run.log(1, loss=1.0)
    lines = terminal(62, "runs", "--columns", "loss")
    assert lines[0].split() == ["run", "loss", "lr", "seed", "width", "beta"]


def test_a_pipe_is_not_cut(sweep: Path, printed: Printed) -> None:
    with linnet.start(run_id="x" * 150, config={"note": "long " * 50}, system_every=0) as run:
        run.log(1, loss=1.0)
    out = printed("runs")
    assert "x" * 150 in out
    assert ("long " * 50).strip() in out


def test_odd_names_steer_nothing_and_are_typed_in_quotes(root: Path, printed: Printed) -> None:
    config = {"a, b": 1, "\x1b[31mred": "\x1b[2J", "deep": {"lr": 1}, "other": {"lr": 2}}
    for number in (1, 2):
        with linnet.start(run_id=f"r{number}", config={**config, "a, b": number}, system_every=0) as run:
            run.log(1, {"loss": 1.0, "my metric, (odd)": number, "\x1b[31mred": 2.0})
    out = printed("runs", "--columns", '"a, b","my metric, (odd)",max("my metric, (odd)"),"deep.lr"')
    assert rows(out)[1][:1] == ["r1"]
    assert "\x1b" not in out + printed("runs", "--csv") + printed("runs", "--by", '"\x1b[31mred"')
    assert [run["run_id"] for run in json.loads(printed("runs", "--where", '"my metric, (odd)">1', "--json"))] == ["r2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "los"], "--sort 'los': no run here has a setting or metric 'los'; did you mean loss?"),
        (
            ["--columns", "lr,acc2"],
            "--columns 'lr,acc2': no run here has a setting or metric 'acc2'; did you mean acc?",
        ),
        (["--columns", "best(lr)"], "--columns 'best(lr)': which way is better for 'lr' is not known: say min(lr) or"),
        (["--columns", "bets(loss)"], "--columns 'bets(loss)': bets() of a metric does not exist; did you mean best?"),
        (["--columns", ","], "--columns names no column"),
        (["--by", "sed"], "--by 'sed': no run here has a setting or metric 'sed'; did you mean seed?"),
        (["--limit", "0"], "--limit must be 1 or more, found 0"),
        (["--csv", "--json"], "--csv and --json are two forms of the same"),
    ],
)
def test_a_mistyped_column_is_one_line(sweep: Path, said: Said, words: list[str], message: str) -> None:
    code, out, err = said("runs", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"linnet: {message}"), err
    assert err.count("\n") == 1


def test_compare_is_a_row_a_run_beyond_four(sweep: Path, printed: Printed, terminal: Callable[..., list[str]]) -> None:
    assert printed("compare", "xor-[0123]").startswith("setting ")
    head, *body = rows(printed("compare", "xor-*"))
    assert head == [
        "run",
        "config.lr",
        "seed",
        "best(loss)",
        "best(acc)",
        "last(lr)",
        "best(validation/loss)",
        "status",
    ]
    assert [row[0] for row in body] == [f"xor-{number}" for number in range(6)]
    assert [row[3] for row in body][:2] == ["0.051*", "0.061"]
    assert [row[4].endswith("*") for row in body] == [False] * 4 + [True] * 2
    lines = terminal(60, "compare", "xor-*")
    assert max(map(len, lines)) <= 60
    assert lines[0].split()[:3] == ["run", "config.lr", "seed"]
    assert "no room for" in lines[7]


def test_compare_draws_the_curves_of_a_key_over_each_other(
    sweep: Path, printed: Printed, terminal: Callable[..., list[str]]
) -> None:
    for runs in ("xor-[01]", "xor-*"):  # a column a run, and a row a run
        out = printed("compare", runs, "--key", "loss")
        assert "loss by step" in out
        assert any(0x2800 < ord(character) <= 0x28FF for character in out)
        assert " A xor-0  loss  last 0.051" in out
    assert "by step" not in printed("compare", "xor-*")
    assert max(map(len, terminal(70, "compare", "xor-*", "--key", "validation/loss"))) <= 70


def test_metrics_of_several_runs_name_the_run(sweep: Path, printed: Printed) -> None:
    table = list(csv.DictReader(io.StringIO(printed("metrics", "xor-[01]", "--key", "loss", "--format", "csv"))))
    assert list(table[0]) == ["run", "step", "t", "value", "epoch"]
    assert [row["run"] for row in table] == ["xor-0"] * 20 + ["xor-1"] * 20
    summaries = json.loads(printed("metrics", "--where", "lr=0.1", "--json"))
    assert [(row["run"], row["metric"]) for row in summaries][:2] == [("xor-4", "loss"), ("xor-4", "acc")]


def test_metrics_are_wide_with_a_row_a_step(sweep: Path, printed: Printed) -> None:
    words = ["--key", "loss", "--key", "validation/loss", "--wide", "--format", "csv"]
    table = list(csv.DictReader(io.StringIO(printed("metrics", "xor-0", *words))))
    assert list(table[0]) == ["step", "loss", "validation/loss"]
    assert (table[0]["validation/loss"], float(table[4]["validation/loss"])) == ("", 5.001)
    table = list(csv.DictReader(io.StringIO(printed("metrics", "xor-*", "--wide", "--format", "csv"))))
    assert list(table[0]) == ["run", "step", "loss", "acc", "lr", "validation/loss"]
    assert len(table) == 120
