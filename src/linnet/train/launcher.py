"""Launchers: torchrun's words for a rank from what SLURM says. Without torch.

torchrun, Kubeflow, SkyPilot and Ray give each process RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. srun
has names of its own for them.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping, MutableMapping

from linnet.errors import LinnetError

# Without it, ranks that torchrun starts again meet the addresses of the dead ones (docs/scale.md).
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_PORTS = range(20_000, 30_000)  # below those that Linux gives to outgoing connections


def adopt_launcher(environment: MutableMapping[str, str] = os.environ) -> None:
    """Before torch is loaded: let a task of srun be a rank as torchrun's are, and keep torch's own words few.

    When a rank dies, torch's C++ code warns the others with a page of addresses each; Linnet has a line for it. A
    process that nobody has started as one of several stays as it is.
    """
    variables = slurm_variables(environment)
    if variables.get("MASTER_ADDR") and "MASTER_ADDR" not in environment:
        variables["MASTER_ADDR"] = reachable(variables["MASTER_ADDR"])
    environment.update(variables)
    if "RANK" in environment:
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def restart_warning(environment: Mapping[str, str] = os.environ) -> str | None:
    """What is said where torchrun is to start dead ranks again and will not succeed."""
    if environment.get("TORCHELASTIC_MAX_RESTARTS", "0") == "0" or environment.get(OWN_STORE) == "1":
        return None
    return f"torchrun needs {OWN_STORE}=1 in its environment: without it ranks that it starts again do not meet"


def slurm_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """torchrun's variables of a task that srun started among others; none for one alone, or under torchrun.

    A batch script has SLURM_PROCID and SLURM_NTASKS too, and is one process: only srun says how many tasks its step
    has. MASTER_ADDR and MASTER_PORT, where they are set, decide.
    """
    if "RANK" in environment or "SLURM_STEP_NUM_TASKS" not in environment:
        return {}
    try:
        count, rank = int(environment["SLURM_STEP_NUM_TASKS"]), int(environment["SLURM_PROCID"])
        job, step = int(environment["SLURM_JOB_ID"]), int(environment.get("SLURM_STEP_ID", "0"))
        local_rank, nodes = int(environment["SLURM_LOCALID"]), environment["SLURM_STEP_NODELIST"]
    except (KeyError, ValueError) as problem:
        raise LinnetError(
            f"srun's variables cannot be understood ({problem}): start the ranks with torchrun, or set RANK,"
            " WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"
        ) from None
    if count == 1:
        return {}
    tasks = environment.get("SLURM_GTIDS", "").split(",")  # of this node
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(max(len(tasks), local_rank + 1)),
        "MASTER_ADDR": environment.get("MASTER_ADDR") or first_host(nodes),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(_PORTS[(31 * job + step) % len(_PORTS)]),
    }


def first_host(nodes: str) -> str:
    """The first of a list of hosts as SLURM writes it: `gpu-[003-006,9],login` begins with `gpu-003`."""
    outside = re.sub(r"\[[^]]*\]", lambda brackets: brackets[0].replace(",", ";"), nodes)
    first = outside.partition(",")[0]
    return re.sub(r"\[([^];-]*)[^]]*\]", r"\1", first)


def reachable(host: str) -> str:
    """A node's name, or the address that SLURM has for it where no name server knows it."""
    try:
        socket.getaddrinfo(host, None)
        return host
    except OSError:
        pass
    try:
        command = ["scontrol", "show", "node", host]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return host
    address = re.search(r"\bNodeAddr=(\S+)", shown)
    return address[1] if address else host
