"""How the process of a command begins and ends: packages that are not there, Ctrl-C, outputs that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet.cli import app, main

# Runs the commands of its standard input in one process that cannot import what the base install does not have.
WITHOUT_EXTRAS = """
import shlex, sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"torch", "tokenizers", "safetensors", "PIL", "sklearn", "pyarrow", "xllamacpp"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from linnet.cli import main
for line in sys.stdin:
    print(main(shlex.split(line)), file=sys.stderr)
"""

# Sends itself Ctrl-C at the moment when a module is imported.
INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

module, *words = sys.argv[1:]
sys.meta_path.insert(0, Interrupt())
from linnet.cli import main
sys.argv[1:] = [module, *words]
sys.exit(main(words))
"""


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> str:
    with linnet.start(run_id="first", system_every=0) as session:
        for step in range(1, 6):
            session.log(step, loss=1 / step)
    return "first"


def shell(script: str) -> tuple[int, str, str]:
    """A line of bash, with `linnet`: exit code, output, errors."""
    linnet = f'linnet() {{ "{sys.executable}" -m linnet "$@"; }}; '
    done = subprocess.run(["bash", "-c", linnet + script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_base_install_says_what_to_install(run: str, tmp_path: Path) -> None:
    Path("text.txt").write_text("Some text to learn from. " * 400)
    commands = [
        "train from-scratch",
        "train from-scratch --corpus text.txt --json",
        "train warm-start --donor model.gguf",
        "train vit-tiny",
        "resume first",
        "generate first",
        "eval first",
        "classify first picture.png",
        "data prepare text.txt --vocab 300",
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    lines = iter(done.stderr.splitlines())
    for command in commands:
        name = " ".join(command.split()[: 2 if command.startswith(("train", "data")) else 1])
        package = "tokenizers" if name == "data prepare" else "torch"
        told = f"linnet: {name} needs the package {package}, which is not installed: pip install 'linnet[train]'"
        assert next(lines) == told
        assert next(lines) == "1"
    assert not list(lines)
    assert done.stdout == ""


def test_a_base_install_reads_runs_and_shows_all_help(run: str) -> None:
    helps = ["train from-scratch", "train warm-start", "train vit-tiny", "resume", "generate", "eval", "data prepare"]
    commands = ["runs", "show", "board --once", "check first", *(f"{name} --help" for name in helps)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    assert done.stderr.split() == ["0"] * len(commands)


def test_a_package_that_no_extra_brings_is_a_fault_of_ours_and_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'linnet.nowhere'", name="linnet.nowhere")

    monkeypatch.setattr(app, "wait_asleep_where_shared", broken)
    with pytest.raises(ModuleNotFoundError):
        main(["runs"])


@pytest.mark.parametrize(
    ("module", "words"),
    [("cyclopts", ["runs"]), ("linnet.runs.store", ["show"]), ("torch", ["generate", "first"])],
)
def test_ctrl_c_while_something_is_loaded_is_exit_code_130_and_no_traceback(module: str, words: list[str]) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("command", ["runs", "runs --help", "board --once"])
def test_a_reader_that_has_had_enough_is_no_error(run: str, command: str) -> None:
    code, _, err = shell(f"linnet {command} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert (code, err) == (0, "")


def test_streams_that_are_closed_from_the_start_are_no_error(run: str) -> None:
    assert shell("linnet runs >&-") == (0, "", "")
    assert shell("linnet runs 2>&- | wc -l")[1].strip() == "2"
    assert shell("linnet show nope 2>&-") == (1, "", "")
    assert shell("linnet delete first <&-")[2].startswith("linnet: delete asks before it deletes")
    assert shell("linnet note first seen <&- >&- 2>&-")[0] == 0
    assert "seen" in (Path(os.environ["LINNET_RUNS"]) / "first/events.jsonl").read_text()


def test_an_encoding_of_few_letters_is_no_error(run: str) -> None:
    code, out, err = shell("export PYTHONIOENCODING=ascii; linnet show первый; linnet show first")
    assert (code, err) == (0, "linnet: no run '??????' in the folder " + os.environ["LINNET_RUNS"] + " (1 run there)\n")
    assert "completed" in out


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")],
)
def test_no_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise error

    monkeypatch.setattr(app, "wait_asleep_where_shared", full)
    assert main(["runs"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("linnet: ") and "memory" in err
    assert err.count("\n") == 1
