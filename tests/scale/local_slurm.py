"""A real SLURM of two nodes on this machine: a controller, two daemons and munge, all in one folder, for root."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
NODES = ("n1", "n2")
CONFIG = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[0]} CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class LocalSlurm:
    """The cluster while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *words: str, seconds: float = 30, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | variables
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=seconds, check=False)

    def submit(self, *words: str, **variables: str) -> str:
        """The id of a new batch job."""
        done = self.call("sbatch", "--parsable", *words, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job: str) -> Mapping[str, str]:
        """What SLURM says of a job."""
        shown = self.call("scontrol", "show", "job", job, "--oneliner").stdout
        return dict(pair.partition("=")[::2] for pair in shown.split() if "=" in pair)

    def wait(self, job: str, *states: str, seconds: float = 120) -> Mapping[str, str]:
        """The job, once it is in one of these states."""
        deadline = time.monotonic() + seconds
        while (shown := self.job(job)).get("JobState") not in states:
            assert time.monotonic() < deadline, f"job {job} is {shown.get('JobState')}, not {' or '.join(states)}"
            time.sleep(0.2)
        return shown

    def wait_until_idle(self, seconds: float = 60) -> None:
        """Until no node has anything of a job left."""
        deadline = time.monotonic() + seconds
        while set(states := self.call("sinfo", "--noheader", "--Node", "--format=%T").stdout.split()) != {"idle"}:
            assert time.monotonic() < deadline, f"nodes are {', '.join(states)}"
            time.sleep(0.2)


@contextmanager
def local_slurm(folder: Path) -> Iterator[LocalSlurm]:
    """Start the cluster and end it; a skip, with a word, where it cannot be had."""
    _install()
    slurm = LocalSlurm(folder)
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    host, ports = socket.gethostname(), _free_ports(3)
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, host=host, port=ports[0], ports=ports[1:]))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
    files |= {"log-file": folder / "munged.log", "seed-file": folder / "munged.seed"}
    daemons = [["munged", "--force", *(f"--{name}={path}" for name, path in files.items())]]
    daemons += [["slurmctld", "-c"], *(["slurmd", "-N", node] for node in NODES)]
    try:
        for command in daemons:
            done = slurm.call(*command)
            if done.returncode:
                pytest.skip(f"{command[0]} does not start here: {done.stderr.strip()[-200:]}")
        deadline = time.monotonic() + 20
        while slurm.call("sinfo", "--noheader", "--format=%T %D").stdout.strip() != "idle 2":
            if time.monotonic() > deadline:
                pytest.skip("SLURM's nodes do not come up here")
            time.sleep(0.1)
        yield slurm
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            slurm.call("scancel", "--user=root", "--full", "--signal=KILL")
            slurm.call("scontrol", "shutdown")
        _end([int(file.read_text()) for file in folder.glob("*.pid")])


def _end(daemons: list[int]) -> None:
    """Daemons that were asked to end are waited for, a while: they write into the folder until then."""
    deadline = time.monotonic() + 10
    for number in (signal.SIGTERM, signal.SIGKILL):
        for daemon in daemons:
            with suppress(OSError):
                os.kill(daemon, number)
        while any(_lives(daemon) for daemon in daemons) and time.monotonic() < deadline:
            time.sleep(0.05)


def _lives(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _install() -> None:
    if all(shutil.which(program) for program in PROGRAMS):
        return
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(
            f"SLURM is not installed ({', '.join(PACKAGES)}), and only root on Debian can install it for a test"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with Path("/var/lock/linnet-tests-slurm").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["install"], ["update"], ["install"]):
            named = ["-y", "--no-install-recommends", *PACKAGES] if command == ["install"] else []
            with suppress(subprocess.SubprocessError):
                subprocess.run(["apt-get", *command, *named], env=quiet, capture_output=True, timeout=180, check=False)
            if all(shutil.which(program) for program in PROGRAMS):
                return
    pytest.skip(f"SLURM cannot be installed here: apt-get install {' '.join(PACKAGES)}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports
