"""The commands, as a person types them."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from tests.conftest import FIXTURES, Said


@pytest.fixture
def two_runs(root: Path) -> Path:
    for name, lr in (("first", 0.1), ("second", 0.2)):
        config = {"lr": lr, "opt": {"beta": 0.9}}
        with linnet.start(run_id=name, config=config, tags=["t"], total_steps=50, system_every=0) as run:
            for step in range(1, 51):
                run.log(step, loss=1 / step + lr, acc=step * lr)
    return root


def test_runs_lists_each_with_status_and_last_loss(two_runs: Path, said: Said) -> None:
    code, out, _ = said("runs")
    assert code == 0
    head, first, second = out.splitlines()
    assert head.split() == ["run", "status", "step", "loss", "lr", "time", "age", "about"]
    assert first.split()[:5] == ["first", "completed", "50/50", "0.12", "0.1"]
    assert "#t" in second
    _, out, _ = said("runs", "--sort", "loss", "--json")
    assert [run["run_id"] for run in json.loads(out)] == ["first", "second"]
    assert json.loads(out)[0]["last"] == 1 / 50 + 0.1


def test_runs_names_the_folder_of_a_copy(two_runs: Path, said: Said) -> None:
    shutil.copytree(two_runs / "first", two_runs / "copy")
    _, out, _ = said("runs")
    assert [line.endswith("in copy") for line in out.splitlines()[1:] if line.startswith("first")].count(True) == 1
    assert said("show", "copy")[0] == 0


def test_runs_of_an_empty_folder_says_so(root: Path, said: Said) -> None:
    code, out, _ = said("runs")
    assert (code, out) == (0, f"There are no runs in the folder {root}.\n")


def test_show_has_settings_chart_and_metrics(two_runs: Path, said: Said) -> None:
    code, out, _ = said("show", "sec")
    assert code == 0
    assert out.startswith("second  completed")
    assert "lr 0.2" in out
    assert "50 of 50" in out
    assert any(0x2800 < ord(c) <= 0x28FF for c in out)
    assert "└──" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("acc "))
    assert row == ["acc", "10", "10", "50", "50"]
    _, out, _ = said("show", "second", "--json")
    assert json.loads(out)["metrics"]["loss"]["best_step"] == 50


def test_show_of_every_ancestors_run(said: Said) -> None:
    for folder in ("toy", "kaun-board", "munin"):
        code, out, _ = said("show", "latest", "--runs", str(FIXTURES / folder))
        assert code == 0
        assert f"written by  {folder}" in out


def test_compare_shows_what_differs_and_marks_the_best(two_runs: Path, said: Said) -> None:
    code, out, _ = said("compare", "first", "second")
    assert code == 0
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert lines["config.lr"] == ["0.1", "0.2"]
    assert "config.opt.beta" not in lines
    assert lines["loss"] == ["0.12*", "(0.12)", "0.22", "(0.22)"]
    assert lines["acc"] == ["5", "(5)", "10*", "(10)"]
    _, out, _ = said("compare", "first", "second", "--json")
    assert json.loads(out)[1]["differs"]["config.lr"] == 0.2


def test_metrics_gives_all_digits_of_every_float(two_runs: Path, said: Said) -> None:
    wanted = [1 / step + 0.1 for step in range(1, 51)]
    _, out, _ = said("metrics", "first", "--key", "loss", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["value"]) for row in rows] == wanted
    assert list(rows[0]) == ["step", "t", "value", "epoch"]
    _, out, _ = said("metrics", "first", "--key", "loss")
    assert [float(line.split("\t")[2]) for line in out.splitlines()[1:]] == wanted
    _, out, _ = said("metrics", "first", "--key", "loss", "--format", "jsonl")
    assert [json.loads(line)["value"] for line in out.splitlines()] == wanted
    _, out, _ = said("metrics", "first", "--key", "loss", "--json")
    assert [row["value"] for row in json.loads(out)] == wanted
    _, out, _ = said("metrics", "first")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["metric", "loss", "acc"]


def test_metrics_spells_what_json_cannot(root: Path, said: Said) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=float("nan"))
        run.log(2, loss=float("inf"))
    _, out, _ = said("metrics", "a", "--key", "loss", "--format", "jsonl")
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["value"], first["nonfinite"]) == (None, {"value": "nan"})
    assert second["nonfinite"] == {"value": "inf"}
    _, out, _ = said("metrics", "a", "--key", "loss")
    assert [line.split("\t")[2] for line in out.splitlines()] == ["value", "nan", "inf"]


def test_note_is_kept_and_does_not_reopen_the_run(two_runs: Path, said: Said) -> None:
    assert said("note", "first", "the good seed")[0] == 0
    events = linnet.open("first").events().read_events()
    assert (events[-1].kind, events[-1].data["text"]) == ("note", "the good seed")
    assert linnet.open("first").status == "completed"
    code, _, err = said("note", "first", "  ")
    assert (code, err) == (2, "linnet: the note is empty\n")


def test_delete_asks_or_is_told_yes(two_runs: Path, said: Said) -> None:
    code, _, err = said("delete", "first")
    assert code == 2
    assert "--yes" in err
    assert (two_runs / "first").exists()
    assert said("delete", "first", "--yes")[0] == 0
    assert not (two_runs / "first").exists()


def test_check_names_each_fault_and_exits_1(two_runs: Path, said: Said) -> None:
    assert said("check", "first") == (0, "first  completed  sound  (52 lines, 52 events)\n", "")
    events = two_runs / "first/events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    lines[10] = b'{"kind":"step","t":0.0\n'
    lines[20], lines[30] = lines[30], lines[20]
    events.write_bytes(b"".join(lines) + b'{"kind":"checkpoint","path":"weights/step_9.gguf"}\n{"unfinished')
    (two_runs / "first/weights").mkdir()
    (two_runs / "first/weights/latest").symlink_to("step_9.gguf")
    code, out, _ = said("check", "first")
    assert code == 1
    for words in (
        "line 11 is damaged",
        "t goes back",
        "step goes back from 30 to 21",
        "the last line has no end",
        "weights/latest leads to step_9.gguf, which is not there",
    ):
        assert words in out
    _, out, _ = said("check", "first", "--json")
    assert json.loads(out)["sound"] is False


def test_tail_follows_a_run_until_it_ends(root: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    writer = script("""
import linnet, time
with linnet.start(run_id="live", system_every=0) as run:
    run.log(1, loss=0.5)
    print("up", flush=True)
    time.sleep(60)
""")
    assert writer.stdout is not None
    writer.stdout.readline()
    command = [sys.executable, "-m", "linnet", "tail", "live"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(2)]
    assert "step 1" in seen[1]
    assert "loss 0.5" in seen[1]
    writer.terminate()
    out, _ = follower.communicate(timeout=20)
    assert "reason interrupted" in out
    assert out.splitlines()[-1] == "live is interrupted"


def test_tail_notices_a_crash(root: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    writer = script("""
import linnet, time
run = linnet.start(run_id="live", system_every=0)
run.log(1, loss=0.5)
print("up", flush=True)
time.sleep(60)
""")
    assert writer.stdout is not None
    writer.stdout.readline()
    follower = subprocess.Popen([sys.executable, "-m", "linnet", "tail", "live"], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert "run_start" in follower.stdout.readline()
    writer.kill()
    began = time.monotonic()
    out, _ = follower.communicate(timeout=20)
    assert out.splitlines()[-1] == "live is crashed"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["shw"], 2, 'linnet: Unknown command "shw". Did you mean "show"?'),
        (["show", "--kee", "x"], 2, "linnet: Unknown option: --kee. Did you mean --key?"),
        (["show", "nope"], 1, "linnet: no run 'nope' in the folder"),
        (["show", "first", "--key", "los"], 2, "linnet: run first has no metric 'los'; did you mean loss?"),
        (["compare", "first"], 2, "linnet: compare needs two runs or more, found 1"),
        (["runs", "--status", "dead"], 2, "linnet: status 'dead' does not exist; choose from live"),
        (["runs", "--sort", "size"], 2, "linnet: --sort 'size': no run here has a setting or metric 'size'"),
        (["metrics", "first", "--key", "x"], 2, "linnet: run first has no metric 'x'"),
        (["metrics", "first", "--format", "xml"], 2, "linnet: --format 'xml': choose from tsv, csv, json, jsonl"),
        (["delete"], 2, "linnet: delete needs the name of a run"),
        (["note", "first"], 2, "linnet: the text of the note is missing"),
        (["note", "first", "a", "b"], 2, "linnet: put the note in quotes: linnet note first 'a b'"),
        (["note"], 2, 'linnet: note needs a run and the text: linnet note latest "what to say"'),
        (["show", "first", "second"], 2, "linnet: show: unexpected arguments: second"),
        (["show", ""], 1, "linnet: the name of the run is empty"),
        (["show", "x" * 5000], 1, "linnet: no run 'xxx"),
        (["check", "x" * 5000], 1, "linnet: no run 'xxx"),
        (
            ["compare", "first", "second", "--key", "los"],
            2,
            "linnet: these runs have no metric 'los'; did you mean loss?",
        ),
        (["metrics", "first", "--key", "los"], 2, "linnet: run first has no metric 'los'; did you mean loss?"),
        (["tail", "first", "--lines", "-3"], 2, "linnet: --lines must be 0 or more, found -3"),
        (["runs", "--runs", "nowhere"], 1, "linnet: there is no folder nowhere"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(
    two_runs: Path, said: Said, words: list[str], code: int, message: str
) -> None:
    got, out, err = said(*words)
    assert got == code
    assert err.startswith(message), err
    assert "Traceback" not in err + out


def test_control_characters_in_a_run_are_shown_and_not_obeyed(root: Path, said: Said) -> None:
    with linnet.start(run_id="a", name="\x1b[2Jgone", config={"x": "a\nb\u202e"}, system_every=0) as run:
        run.log(1, {"loss": 1.0, "\x1b[31mred": 2.0})
        run.note("\x07bell")
    for words in (["show", "a"], ["runs"], ["tail", "a"], ["compare", "a", "a"]):
        _, out, _ = said(*words)
        assert not any(c in out for c in "\x1b\x07\u202e")


def test_control_characters_in_a_name_are_not_obeyed_either(root: Path, said: Said) -> None:
    bad = "\x1b[31ma"
    (root / "x").mkdir(parents=True)
    (root / "x/run.json").write_text(json.dumps({"run_id": bad, "provenance": {"git": "no object", "host": [bad]}}))
    (root / "x/events.jsonl").write_text(json.dumps({"kind": bad, "t": 1.0}) + '\n{"dama\n')
    for words in (
        ["show", "x"],
        ["tail", "x", "--no-follow"],
        ["compare", "x", "x"],
        ["note", "x", "text"],
        ["show", "x", "--key", bad],
        ["show", f"nope{bad}"],
        ["check", "x"],
        ["delete", "x", "--yes"],
    ):
        _, out, err = said(*words)
        assert "\x1b" not in out + err


@pytest.mark.parametrize(
    "fields",
    [
        {"provenance": {"git": "main", "host": 7}},
        {"provenance": {"git": {"sha": 5, "branch": {}}, "boot_id": []}},
        {"created_at": 1e18},
        {"created_at": -1e18},
        {"config": {"a": [{"b": None}]}, "total_steps": 10**30, "tags": [1]},
    ],
)
def test_show_and_compare_take_any_manifest(root: Path, said: Said, fields: dict[str, object]) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a/run.json").write_text(json.dumps({"run_id": "a", "created_at": 1.0, **fields}))
    (root / "a/events.jsonl").write_text('{"kind":"run_end","t":1,"error":["x"],"quality_gate":{"value":{}}}\n')
    for words in (["show", "a"], ["show", "a", "--json"], ["runs"], ["compare", "a", "a"], ["check", "a"]):
        assert said(*words)[0] in (0, 1)


def test_best_is_shown_only_where_one_way_is_better(root: Path, said: Said) -> None:
    with linnet.start(run_id="a", goals={"size": "min"}, system_every=0) as run:
        for step in (1, 2):
            run.log(step, loss=1 / step, lr=0.1 / step, wall_us=9.0 * step, acc=0.5, size=step)
    _, out, _ = said("show", "a")
    best = {row[0]: row[2:4] for row in map(str.split, out.splitlines()) if len(row) == 5}
    assert best["loss"] == ["0.5", "2"]
    assert best["size"] == ["1", "1"]
    assert best["lr"] == best["wall_us"] == ["–", "–"]
    _, out, _ = said("compare", "a", "a")
    assert [line.split() for line in out.splitlines() if line.startswith("lr ")] == [
        ["lr", "–", "(0.05)", "–", "(0.05)"]
    ]
    _, out, _ = said("show", "a", "--json")
    assert json.loads(out)["metrics"]["lr"]["best"] is None


def test_deleting_one_run_under_two_names_deletes_it_once(two_runs: Path, said: Said) -> None:
    code, out, _ = said("delete", "latest", "second", "--yes")
    assert (code, out.splitlines()[0]) == (0, f"deleted {two_runs / 'second'}")
    assert out.count("deleted /") == 1


def test_an_end_of_input_at_the_question_means_no(two_runs: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code, out, err = said("delete", "first")
    assert (code, err) == (1, "")
    assert out.endswith("nothing was deleted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_one_line(two_runs: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "linnet", "runs"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "linnet: cannot write the output: No space left on device\n")


def test_tail_has_the_flags_of_tail(two_runs: Path, said: Said) -> None:
    _, out, _ = said("tail", "first", "-n", "2", "-f")
    assert [line.split()[2:4] for line in out.splitlines()[:2]] == [["step", "step"], ["run_end", "reason"]]
    assert len(out.splitlines()) == 3


def test_help_shows_defaults_and_no_marks(said: Said) -> None:
    assert "[default: 10]" in said("tail", "--help")[1]
    assert "--format json" in said("metrics", "--help")[1]
    for command in ("runs", "show", "check", "metrics", "inspect", "convert", "generate", "classify", "help"):
        assert "`" not in said(command, "--help")[1]


def test_help_has_examples_and_is_quick_to_load(said: Said) -> None:
    for command in (
        "runs",
        "show",
        "tail",
        "compare",
        "metrics",
        "note",
        "delete",
        "check",
        "inspect",
        "convert",
        "models",
    ):
        _, out, _ = said(command, "--help")
        assert "Examples:" in out
        assert f"linnet {command}" in out
    program = (
        "import sys; from linnet.cli import main; main(['--help']); "
        "heavy = {'torch', 'numpy', 'psutil', 'tsdownsample'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tail_cuts_events_that_nobody_could_read(root: Path, said: Said) -> None:
    with linnet.start(run_id="wide", system_every=0) as run:
        run.log(1, {f"group/metric{n}": n for n in range(20_000)})
    _, out, _ = said("tail", "wide")
    assert max(map(len, out.splitlines())) < 11_000
    _, out, _ = said("tail", "wide", "--json")
    assert "metric19999" in out
