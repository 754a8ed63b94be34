"""The first commands of somebody who has just installed Linnet: help, doctor, demo, completion."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli import demo, doctor
from tests.conftest import Printed, Said

COMMAND = Path(sys.executable).parent / "linnet"


# -- help -------------------------------------------------------------------------------------------------------------


def test_help_is_a_command_and_a_flag(printed: Printed) -> None:
    assert printed("help") == printed("--help")
    assert printed("help", "train", "from-scratch") == printed("train", "from-scratch", "--help")
    assert "linnet --install-completion" not in printed("help", "help") and "doctor" in printed("help")


def test_help_of_what_is_no_command_is_an_error(said: Said) -> None:
    code, _, err = said("help", "shwo")
    assert (code, err.count("\n"), "shwo" in err) == (2, 1, True)


@pytest.mark.parametrize("flag", ["-v", "-V", "--version"])
def test_the_version_has_three_flags(printed: Printed, flag: str) -> None:
    assert printed(flag).strip() == linnet.__version__


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["--runs", "x", "runs"], "--runs goes after the command: linnet runs --runs x"),
        (["--runs", "runs", "runs"], "--runs goes after the command: linnet runs --runs runs"),
        (["--json", "show", "latest"], "--json goes after the command: linnet show latest --json"),
        (["--wat"], "unexpected option --wat before a command: options come after it"),
    ],
)
def test_an_option_before_its_command_says_where_it_goes(said: Said, typed: list[str], meant: str) -> None:
    code, _, err = said(*typed)
    assert (code, err.count("\n")) == (2, 1) and meant in err


# -- doctor -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What loading packages gives, to be changed; the real thing takes seconds."""
    torch = {"version": "2.13.0", "cuda": None, "mps": False, "devices": [], "threads": 2}
    found: dict[str, dict[str, Any]] = {"torch": torch}
    monkeypatch.setattr(doctor, "_probe", lambda names: {name: found.get(name, {"version": "1.0"}) for name in names})
    return found


def test_the_doctor_lists_versions_devices_and_folders(printed: Printed) -> None:
    told = json.loads(printed("doctor", "--json"))
    assert told["sound"] is True
    by_name = {check["name"]: check for check in told["checks"]}
    assert by_name["linnet"]["value"].startswith(linnet.__version__)
    assert re.match(r"2\.\d+", by_name["torch"]["value"]) and by_name["numpy"]["state"] == "ok"
    assert {"python", "system", "train", "compiler", "runs", "cache", "encoding", "command"} <= set(by_name)


def test_what_is_missing_has_the_line_that_installs_it(
    printed: Printed, quick_probe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = doctor._version
    absent = ("torch", "tokenizers", "pyarrow")
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in absent else found(name))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    out = printed("doctor")  # and that is no failure
    for line in ("pip install 'linnet[train]'", "pip install 'linnet[parquet]'", "apt install gcc"):
        assert line in out
    assert "- torch" in out and "Linnet works here" in out


def test_what_is_broken_is_an_exit_code_and_a_mark(said: Said, quick_probe: dict[str, Any]) -> None:
    quick_probe["torch"] = {"error": "OSError: libc10.so: \x1b[31mcannot open"}
    code, out, _ = said("doctor")
    assert code == 1 and re.search(r"! torch +OSError: libc10.so: ·\[31mcannot open", out)
    assert "pip install --force-reinstall 'linnet[train]'" in out
    quick_probe["msgspec"] = {"error": "ImportError: no"}
    assert sum(check["state"] == "broken" for check in json.loads(said("doctor", "--json")[1])["checks"]) == 2


def test_a_check_that_fails_itself_is_a_line(
    said: Said, quick_probe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_machine", "_devices", "_folders"):
        monkeypatch.setattr(doctor, name, lambda: 1 // 0)
    code, out, _ = said("doctor")
    assert (code, out.count("could not be made: ZeroDivisionError")) == (0, 3)


def test_a_package_that_ends_its_process_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fatal.py").write_text("print('hello')\nimport os; os.abort()")
    (tmp_path / "odd.py").write_text("raise RuntimeError('two\\nlines')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor._probe(("json", "odd", "fatal", "csv"))
    assert "version" in found["json"] and found["odd"]["error"].startswith("RuntimeError: two")
    assert found["fatal"]["error"] == found["csv"]["error"] == "ended the process that loaded it (-6)"


def test_without_a_package_that_every_command_needs_the_doctor_still_comes(
    capsys: pytest.CaptureFixture[str], quick_probe: dict[str, Any]
) -> None:
    block = "import sys; sys.modules['cyclopts'] = None\nfrom linnet.cli import main\nsys.exit(main(['runs']))"
    ended = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("linnet: cannot start: ") and "`linnet doctor` says more" in ended.stderr
    quick_probe["cyclopts"] = {"error": "ModuleNotFoundError: No module named 'cyclopts'"}
    assert doctor.broken_install(["doctor"], ImportError("cyclopts")) == 1
    assert "! cyclopts" in capsys.readouterr().out


# -- demo -------------------------------------------------------------------------------------------------------------


def test_the_demo_trains_shows_and_writes_in_a_folder_of_its_own(
    printed: Printed, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.cli.demo._activation", list)  # the shell finds linnet
    out = printed("demo", "--corpus", str(corpus / "json_*.py"), "--steps", "2")
    commands = [shlex.split(line[2:]) for line in out.splitlines() if line.startswith("$ linnet ")]
    assert [words[1] for words in commands] == ["train", "show", "generate"]
    assert all(words[-2:] == ["--runs", "linnet-demo"] for words in commands)
    (run,) = Path("linnet-demo").iterdir()
    assert linnet.Run.load(run).status == "completed" and not Path("runs").exists()
    ending = out.split("What to do next:")[1]
    suggested = [shlex.split(line.split("#")[0]) for line in ending.strip().splitlines()]
    assert [words[1] for words in suggested] == ["board", "resume", "convert", "train", "help", "board"]
    assert "--web" in suggested[-1]  # the last thing it says
    printed(*suggested[2][1:])  # as printed


def test_the_demo_says_what_the_browser_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `pip install 'linnet[train]'`, README's first line, there is no web server yet."""
    monkeypatch.setattr("linnet.cli.app.main", lambda words: 0)
    monkeypatch.setattr("linnet.cli.demo.find_spec", lambda name: None if name == "uvicorn" else object())
    assert demo.demo(corpus="books/") == 0
    last = " ".join(capsys.readouterr().out.splitlines()[-2:])
    assert "linnet board --web" in last and "pip install 'linnet[web]'" in last


def test_a_demo_that_cannot_be_trained_ends_as_the_training_did(said: Said) -> None:
    code, out, err = said("demo", "--corpus", "nowhere/", "--steps", "3")
    assert code != 0 and "nowhere" in err and "What to do next" not in out


def test_the_makefile_has_no_demo_of_its_own() -> None:
    text = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "linnet demo --runs runs" in text


# -- completion -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from linnet.cli.app import build_app

    script = tmp_path_factory.mktemp("completion") / "linnet.bash"
    script.write_text(build_app().generate_completion(shell="bash"))
    return script


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    listed = " ".join(shlex.quote(word) for word in (str(COMMAND), *words))
    program = f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _linnet"
    program += "; printf '%s\\n' \"${COMPREPLY[@]}\""
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_bash_completes_commands_flags_and_choices(bash_script: Path) -> None:
    assert {"show", "doctor", "demo", "train"} <= set(completed(bash_script, ""))
    assert completed(bash_script, "sh") == ["show"]
    assert "--temperature" in completed(bash_script, "generate", "latest", "--te")
    assert set(completed(bash_script, "train", "")) >= {"from-scratch", "warm-start", "vit-tiny"}
    assert "q8_0" in completed(bash_script, "convert", "a", "b", "--type", "")


def test_bash_completes_runs_and_their_checkpoints(bash_script: Path, root: Path) -> None:
    for name in ("wide-001", "narrow-001"):
        with linnet.start(run_id=name) as run:
            run.log(1, loss=1.0)
    (root / "wide-001" / "weights").mkdir()
    (root / "wide-001" / "weights" / "step_20.gguf").write_bytes(b"GGUF")
    assert set(completed(bash_script, "show", "")) == {"latest", "narrow-001", "wide-001"}
    assert "wide-001@20" in completed(bash_script, "inspect", "wide-001@")
    assert completed(bash_script, "train", "warm-start", "--donor", "wide-001@b") == ["wide-001@best"]
    Path("model.gguf").write_bytes(b"GGUF")
    Path("folder").mkdir()
    assert {"model.gguf", "folder/", "wide-001"} <= set(completed(bash_script, "generate", ""))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_installing_completion_says_what_it_did(
    printed: Printed, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    out = printed("--install-completion", "--shell", shell)
    path = Path(out.split(": ")[0])
    assert path.is_relative_to(tmp_path) and "linnet" in path.read_text() and f"completion for {shell}" in out
    if shell != "fish":
        startup = (tmp_path / f".{shell}rc").read_text()
        printed("--install-completion", "--shell", shell)
        assert (tmp_path / f".{shell}rc").read_text() == startup, "once is enough"


def test_a_bare_zsh_begins_to_complete(printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac's has no `compinit` in its start: a script in `fpath` alone is never loaded there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    startup = tmp_path / ".zshrc"
    startup.write_text("alias ll='ls -l'")  # without an end of line
    printed("--install-completion", "--shell", "zsh")
    lines = startup.read_text().splitlines()
    assert lines[1].startswith("fpath=(") and lines[-2] == "alias ll='ls -l'"
    assert lines[-1].startswith("(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }")


def test_completion_for_another_shell_is_refused_and_a_script_can_be_shown(said: Said, printed: Printed) -> None:
    assert said("--install-completion", "--shell", "tcsh")[0] == 2
    assert "complete" in printed("--install-completion", "--shell", "bash", "--show")


# -- python -OO -------------------------------------------------------------------------------------------------------


def test_flags_are_there_without_docstrings() -> None:
    program = "from linnet.recipes.job import TextData; from linnet.recipes.flags import flags_of\n"
    program += "print([(flag.name, flag.help) for flag in flags_of(TextData)])"
    outs = [
        subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, check=True).stdout
        for options in ([], ["-OO"])
    ]
    assert outs[0] == outs[1] and "'corpus'" in outs[0]
