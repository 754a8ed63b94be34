"""Command lines and config files that are wrong: one line that says what, where, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet.cli import main


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train from-scratch --donor x", "Unknown option: --donor. It belongs to `linnet train warm-start` and"),
        ("train warm-start --donor x --images y", "Unknown option: --images. It belongs to `linnet train vit-tiny`."),
        (
            "data show --dedup",
            "Unknown option: --dedup. It belongs to `linnet data prepare`, `linnet data teach` and `linnet train`.",
        ),
        ("train from-scratch --stepz 3", "Unknown option: --stepz. Did you mean --steps?"),
        ("train from-scratch --layers=3", "Unknown option: --layers. Did you mean --n-layers?"),
        ("resume --lr 3", "Unknown option: --lr. `linnet resume --help` lists them."),
        ("train from-scratch x y", "train from-scratch: unexpected arguments: x y (put words that belong together"),
        ("train from-scratch --steps x", "--steps 'x': expected a whole number"),
        ("train from-scratch --lr fast", "--lr 'fast': expected a number"),
        ("train from-scratch --schedule step", "--schedule 'step': choose from cosine, constant, wsd"),
        ("train from-scratch --steps 3 --steps 4", "--steps is given more than once"),
        ("train from-scratch --config a.toml --config b.toml", "--config is given more than once"),
        ("--runs elsewhere runs", "--runs goes after the command: linnet runs --runs elsewhere"),
        ("generate", "generate: MODEL is missing; `linnet generate --help` has examples"),
    ],
)
def test_a_wrong_command_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"linnet: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 5\nlr = = 3\n", "not TOML: Invalid value (at line 2, column 6)"),
        ('name = "caf\\é"', "not TOML: "),
        (b"name = '\xff\xfe'", "expected a TOML file in UTF-8, found other bytes"),
        ("stepz = 5", "unknown key 'stepz'. Did you mean steps?"),
        ("layers = 5", "unknown key 'layers'. Did you mean n_layers?"),
        ("images = 'photos'", "unknown key 'images'. It belongs to `linnet train vit-tiny`."),
        ("[train]\nsteps = 5", "[train] is a table; write flags at the top, as in `steps = 500`"),
        ("steps = 'five'", "steps = 'five': expected a whole number"),
        ("steps = true", "steps = 'True': expected a whole number"),
        ("steps = [1, 2]", "steps = '[1, 2]': expected a whole number"),
        ("dtype = 'float64'", "dtype = 'float64': choose from auto, float32, bfloat16"),
    ],
)
def test_a_wrong_config_file_is_named_with_the_key(
    text: str | bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["train", "from-scratch", "--config", "run.toml"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"linnet: --config run.toml: {message}")
    assert err.count("\n") == 1


def test_a_config_file_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ("--config", "--config needs the name"),
        ("--config=no.toml", "--config no.toml: no such file"),
    ):
        assert main(["train", "from-scratch", words]) == 2
        assert capsys.readouterr().err.startswith(f"linnet: {message}")


def test_every_flag_may_stand_in_the_file_and_the_command_line_wins(capsys: pytest.CaptureFixture[str]) -> None:
    with linnet.start("elsewhere", run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    Path("file.toml").write_text('runs = "elsewhere"\nkey = "lozz"\n')  # `runs` is a command as well
    assert main(["show", "a", "--config", "file.toml"]) == 2
    assert "run a has no metric 'lozz'" in capsys.readouterr().err
    assert main(["show", "a", "--config", "file.toml", "--key", "loss"]) == 0


def test_help_lists_config_and_no_default_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for recipe in ("from-scratch", "warm-start", "vit-tiny"):
        assert main(["train", recipe, "--help"]) == 0
        out = capsys.readouterr().out
        assert "--config" in out.split("Examples:")[0]
        assert "[default: None]" not in out and "[default: False]" not in out and "[default: ()]" not in out
        assert "[default: 0.9]" in out


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flags in (("help", "--help"), ("help train from-scratch", "train from-scratch --help")):
        assert main(words.split()) == 0
        told = capsys.readouterr().out
        assert main(flags.split()) == 0
        assert told == capsys.readouterr().out


def test_the_example_of_an_age_is_in_days(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["du", "--help"]) == 0
    assert "--where 'age>30d'" in capsys.readouterr().out


def test_commands_in_errors_have_the_folder_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["note", "a", "two", "words", "--runs", "my runs"]) == 2
    assert "put the note in quotes: linnet note a 'two words' --runs 'my runs'" in capsys.readouterr().err
    assert main(["compare", "a", "--runs", "my runs"]) == 2
    assert "`linnet runs --runs 'my runs'` lists them" in capsys.readouterr().err


def test_damage_is_shown_with_a_command_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    with linnet.start("my runs", run_id="a", system_every=0) as run:
        run.log(1, loss=1.0)
    with Path("my runs/a/events.jsonl").open("a") as file:
        file.write("{broken\n")
    assert main(["show", "a", "--runs", "my runs"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "linnet check" in line]
    command = line.partition("see: ")[2]
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
