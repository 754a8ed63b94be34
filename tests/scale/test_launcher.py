"""What launchers say of a rank, in torchrun's words; `--gpus`, which starts torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import linnet
from linnet.cli.torchrun import rank_count
from linnet.errors import LinnetError, UsageError
from linnet.train import launcher
from linnet.train.launcher import adopt_launcher, first_host, slurm_variables
from tests.conftest import Said

# As srun 22.05 sets them for the third of four tasks on two nodes.
TASK = {
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu-[003-004]",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_GTIDS": "0,1,2",
}


def test_a_task_of_srun_is_a_rank() -> None:
    variables = slurm_variables(TASK)
    port = variables.pop("MASTER_PORT")
    assert variables == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "gpu-003",
    }
    assert 20_000 <= int(port) < 30_000
    assert slurm_variables({**TASK, "SLURM_PROCID": "3"})["MASTER_PORT"] == port
    assert slurm_variables({**TASK, "SLURM_STEP_ID": "1"})["MASTER_PORT"] != port
    own = slurm_variables({**TASK, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5000"})
    assert (own["MASTER_ADDR"], own["MASTER_PORT"]) == ("10.0.0.1", "5000")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**TASK, "RANK": "1", "WORLD_SIZE": "2"},  # torchrun under srun
        {**TASK, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {name: value for name, value in TASK.items() if "STEP" not in name},  # a batch script itself
    ],
)
def test_what_is_no_task_among_others_is_left_alone(environment: dict[str, str]) -> None:
    assert slurm_variables(environment) == {}
    adopted = dict(environment)
    adopt_launcher(adopted)
    assert adopted.items() - environment.items() == ({("TORCH_CPP_LOG_LEVEL", "ERROR")} if "RANK" in adopted else set())


def test_restarts_that_cannot_succeed_are_warned_of() -> None:
    assert launcher.restart_warning({}) is None
    assert launcher.restart_warning({"TORCHELASTIC_MAX_RESTARTS": "0"}) is None
    assert launcher.restart_warning({"TORCHELASTIC_MAX_RESTARTS": "3", launcher.OWN_STORE: "1"}) is None
    assert launcher.OWN_STORE in (launcher.restart_warning({"TORCHELASTIC_MAX_RESTARTS": "3"}) or "")


def test_variables_that_make_no_sense_are_named() -> None:
    with pytest.raises(LinnetError, match=r"srun's variables cannot be understood .*'x'"):
        slurm_variables({**TASK, "SLURM_PROCID": "x"})
    with pytest.raises(LinnetError, match="SLURM_STEP_NODELIST"):
        slurm_variables({name: value for name, value in TASK.items() if name != "SLURM_STEP_NODELIST"})


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("n1", "n1"),
        ("n[1-2]", "n1"),
        ("gpu-[003-006,9],login", "gpu-003"),
        ("a,b[1-3]", "a"),
        ("rack[1,3]node[07-09]x", "rack1node07x"),
        ("tux[5]", "tux5"),
    ],
)
def test_the_first_of_a_list_of_hosts(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_a_name_that_no_server_knows_has_the_address_that_slurm_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho NodeName=$3 NodeAddr=10.1.2.3 Port=1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert launcher.reachable("localhost") == "localhost"
    assert launcher.reachable("no-such-host.invalid") == "10.1.2.3"
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    assert launcher.reachable("no-such-host.invalid") == "no-such-host.invalid"
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert launcher.reachable("no-such-host.invalid") == "no-such-host.invalid"


@pytest.mark.parametrize(
    ("gpus", "present", "complaint"),
    [
        ("4", 2, "--gpus 4: this machine has 2; ask for as many, or for all"),
        ("all", 0, "--gpus all: there is no CUDA GPU here"),
        ("0", 8, "--gpus '0': expected a number from 1, or all"),
        ("many", 8, "--gpus 'many': expected a number from 1, or all"),
    ],
)
def test_more_gpus_than_there_are_is_one_line(
    said: Said, monkeypatch: pytest.MonkeyPatch, gpus: str, present: int, complaint: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: present)
    code, _, err = said("train", "from-scratch", "--gpus", gpus)
    assert code == 2
    assert err.startswith(f"linnet: {complaint}")
    assert err.count("\n") == 1


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert [rank_count(gpus, "auto") for gpus in ("all", "4", "1")] == [4, 4, 1]
    assert rank_count("3", "cpu") == 3
    with pytest.raises(UsageError, match="give a number of processes"):
        rank_count("all", "cpu")


def test_gpus_become_torchrun_with_the_same_words(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    started: list[list[str]] = []

    class Replaced(BaseException):
        """In the place of the process that is no more."""

    def execv(program: str, command: list[str]) -> None:
        started.append(command)
        raise Replaced

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr("sys.argv", ["linnet", "train", "from-scratch", "--gpus", "3", "--device", "cpu"])
    for name in (launcher.OWN_STORE, "LINNET_GPUS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with pytest.raises(Replaced):
        said("train", "from-scratch", "--gpus", "3", "--device", "cpu")
    command = started[0]
    assert command[command.index("--nproc-per-node") + 1] == "3"
    assert command[command.index("linnet") + 1 :] == ["train", "from-scratch", "--gpus", "3", "--device", "cpu"]
    assert os.environ[launcher.OWN_STORE] == "1"
    assert int(os.environ["OMP_NUM_THREADS"]) >= 1


def test_gpus_under_a_launcher_are_refused(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setenv("RANK", "0")
    code, _, err = said("train", "from-scratch", "--gpus", "2")
    assert (code, "--gpus starts ranks itself, and a launcher has started these already" in err) == (2, True)


SMALL = ["--d-model", "32", "--n-layers", "1", "--n-heads", "2", "--vocab", "300", "--ctx", "32"]


def on_gpus(*words: str, folder: Path) -> subprocess.Popen[str]:
    """A training in two processes on this machine, as a user starts it."""
    command = [sys.executable, "-m", "linnet", "train", "from-scratch", "--gpus", "2", "--device", "cpu", *words]
    clean = {name: value for name, value in os.environ.items() if name not in ("LINNET_GPUS", launcher.OWN_STORE)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_what_is_wrong_on_ranks_that_gpus_started_is_one_line(tmp_path: Path, corpus: Path) -> None:
    ranks = on_gpus(*SMALL, "--corpus", str(corpus), "--batch", "1", "--batch-tokens", "32", folder=tmp_path)
    _, err = ranks.communicate(timeout=120)
    assert ranks.returncode == 2
    assert err.count("\n") == 1 and err.startswith("linnet: "), err
    assert not (tmp_path / "runs").exists()


def test_gpus_are_interrupted_as_one_process_is(tmp_path: Path, corpus: Path) -> None:
    words = [*SMALL, "--corpus", str(corpus), "--batch", "2", "--steps", "1000000", "--run-id", "a"]
    ranks = on_gpus(*words, folder=tmp_path)
    events, deadline = tmp_path / "runs/a/events.jsonl", time.monotonic() + 120
    while not (events.exists() and '"step":3,' in events.read_text()):
        assert ranks.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(ranks.pid, signal.SIGINT)  # as a terminal does
    _, err = ranks.communicate(timeout=120)
    assert linnet.open(tmp_path / "runs/a").status == "interrupted"
    assert ranks.returncode == 130
    assert "Traceback" not in err, err
