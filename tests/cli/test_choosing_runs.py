"""Several runs wherever a RUN is taken: by pattern, part, label and `--where`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import linnet
from linnet.runs import RunStore
from tests.conftest import Printed, Said


@pytest.fixture
def sweep(root: Path) -> Path:
    """Six runs of two seeds and three rates, whose held-out loss is least at 0.01."""
    for number, (lr, seed) in enumerate((lr, seed) for lr in (0.001, 0.01, 0.1) for seed in (0, 1)):
        with linnet.start(
            run_id=f"xor-20260531-{number + 12:03d}",
            experiment="grid" if lr < 0.1 else None,
            group=f"lr{lr}",
            tags=["base"] if seed else ["base", "odd"],
            config={"lr": lr, "seed": seed, "width": 32},
            total_steps=20,
            system_every=0,
        ) as run:
            for step in range(1, 21):
                run.log(step, loss=1 / step + lr, acc=step / 20 - lr, lr=lr / step)
            run.eval(20, "validation", loss=abs(lr - 0.01) + seed / 100)
    return root


def ids(out: str) -> list[str]:
    return [run["run_id"][-3:] for run in json.loads(out)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["xor-*"], ["012", "013", "014", "015", "016", "017"]),
        (["*-01[23]"], ["012", "013"]),
        (["015", "012"], ["015", "012"]),
        (["--where", "lr>=0.01 and tag:odd"], ["014", "016"]),
        (["--where", "best(validation/loss)<0.015"], ["012", "014", "015"]),
        (["--where", "loss@10>0.15 or not experiment:grid"], ["016", "017"]),
        (["--experiment", "grid", "--tag", "odd"], ["012", "014"]),
        (["--group", "lr0.1"], ["016", "017"]),
        (["xor-*", "--where", "seed=1 and lr<1"], ["013", "015", "017"]),
    ],
)
def test_runs_are_chosen_alike_by_every_command(
    sweep: Path, printed: Printed, words: list[str], expected: list[str]
) -> None:
    assert ids(printed("compare", *words, "--json")) == expected


def test_a_part_of_an_id_that_no_other_has_is_enough(sweep: Path, said: Said) -> None:
    assert said("show", "015")[1].startswith("xor-20260531-015")
    assert said("show", "31-016")[1].startswith("xor-20260531-016")
    code, _, err = said("show", "01")
    assert code == 1
    assert err.startswith("linnet: '01' could be any of 6 runs: xor-20260531-012, xor-20260531-013, ")


def test_delete_takes_what_where_leaves(sweep: Path, printed: Printed, said: Said) -> None:
    printed("delete", "--where", "lr=0.1 and seed=0", "--yes")
    printed("delete", "*-012", "013", "--yes")
    assert sorted(path.name[-3:] for path in sweep.glob("xor-*")) == ["014", "015", "017"]
    assert said("delete", "--yes")[0] == 2  # not all of them, because none was named
    code, _, err = said("delete", "--where", "lr>5", "--yes")
    assert (code, err) == (1, f"linnet: no run in the folder {sweep} fits; `linnet runs` lists them\n")


def test_the_board_takes_patterns_and_filters(sweep: Path, printed: Printed) -> None:
    frame = printed("board", "--where", "lr=0.01", "--once", "--size", "120x30")
    assert "xor-20260531-014" in frame
    assert "+1 more" in frame


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["compare", "nor-*"], 1, "linnet: no run fits the pattern 'nor-*' in the folder"),
        (
            ["compare", "--where", "los<2"],
            2,
            "linnet: --where 'los<2', at 'los<2': no run here has a setting",
        ),
        (["compare", "--where", "loss<"], 2, "linnet: --where 'loss<', at its end: expected a value after '<'"),
        (["compare", "--where", "best(lr)<1"], 2, "linnet: --where 'best(lr)<1', at 'best(lr)<1': which way is better"),
        (["compare", "--status", "dead"], 2, "linnet: status 'dead' does not exist; choose from live"),
        (["compare", "--where", "lr=0.1 and seed=1"], 2, "linnet: compare needs two runs or more, found 1"),
    ],
)
def test_an_error_is_one_line(sweep: Path, said: Said, words: list[str], code: int, message: str) -> None:
    got, out, err = said(*words)
    assert (got, out) == (code, "")
    assert err.startswith(message), err
    assert err.count("\n") == 1


def test_where_is_a_word_of_python_too(sweep: Path) -> None:
    runs = linnet.list_runs(where="best(validation/loss)<0.015 and lr=0.01")
    assert [run.run_id[-3:] for run in runs] == ["014", "015"]
    assert [run.run_id[-3:] for run in linnet.list_runs(group="lr0.1")] == ["016", "017"]


def test_one_note_goes_to_several_runs(sweep: Path, printed: Printed) -> None:
    assert printed("note", "*-01[23]", "017", "the same data").splitlines() == [
        f"noted on xor-20260531-0{number}" for number in (12, 13, 17)
    ]
    printed("note", "--where", "lr=0.01", "the best rate")
    noted = {
        run.id[-2:]: [event.data["text"] for event in run.events().read_events() if event.kind == "note"]
        for run in RunStore(sweep).find_all("*")
    }
    assert noted == {
        "12": ["the same data"],
        "13": ["the same data"],
        "14": ["the best rate"],
        "15": ["the best rate"],
        "16": [],
        "17": ["the same data"],
    }


def test_several_runs_are_checked_and_one_that_is_damaged_is_enough(sweep: Path, printed: Printed) -> None:
    assert [line.split()[0][-3:] for line in printed("check", "*-01[23]", "017").splitlines()] == ["012", "013", "017"]
    with (sweep / "xor-20260531-013/events.jsonl").open("a", encoding="utf-8") as events:
        events.write("no event\n")
    assert printed("check", "xor-*", code=1).count(" sound ") == 5
    both = json.loads(printed("check", "*-013", "012", "--json", code=1))
    sound = {found["run_id"][-3:]: found["sound"] for found in both}
    assert sound == {"012": True, "013": False}
    assert json.loads(printed("check", "012", "--json"))["sound"]


def test_several_runs_are_mirrored(sweep: Path, tmp_path: Path, printed: Printed, said: Said) -> None:
    store = tmp_path / "store"
    assert len(printed("mirror", "*-01[23]", "017", store.as_uri()).splitlines()) == 3
    assert sorted(path.name[-3:] for path in store.iterdir()) == ["012", "013", "017"]
    told = json.loads(printed("mirror", "--where", "lr=0.01", store.as_uri(), "--json"))
    assert [(copied["run"][-3:], copied["error"]) for copied in told] == [("014", None), ("015", None)]
    code, _, err = said("mirror", "012", "backup")
    assert code == 1 and err.endswith("; the place of a mirror is a URL, as in file:///backup/runs\n")


@pytest.mark.parametrize("command", ["show", "tail", "resume"])
def test_a_pattern_where_one_run_is_expected(sweep: Path, said: Said, command: str) -> None:
    code, _, err = said(command, "*-01[23]")
    assert code == 1
    assert err == (
        "linnet: the pattern '*-01[23]' fits 2 runs, expected one: xor-20260531-012, xor-20260531-013;"
        " `linnet compare`, `linnet plot` and `linnet metrics` take several\n"
    )


def test_a_pattern_that_fits_one_run_names_it(sweep: Path, printed: Printed) -> None:
    assert printed("show", "*-01[5x]").startswith("xor-20260531-015")
