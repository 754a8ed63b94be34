"""What several ranks make sure of before they train one run: the same versions, flags, data, weights and folder."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from linnet.errors import LinnetError
from linnet.kernels.executor import source_digest
from linnet.recipes.job import Job
from linnet.recipes.recipe import AnyRecipe
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.launcher import restart_warning
from linnet.train.memory import Shard, Sharing
from linnet.train.protocols import RunData
from linnet.train.ranks import Ranks, weights_checksum
from linnet.train.shards import shards_moments

_LATE_SECONDS = 10.0  # after which a new folder has appeared on every machine that shares it
# Settings that may be others on each machine: of data and donors their content is compared.
_OF_A_MACHINE = (
    *("device", "cache", "profile", "corpus", "images"),
    *("donor", "tokenizer", "lens", "teacher", "base", "adapter", "baseline"),
)


def require_shared_folder(session: Session, root: Path, ranks: Ranks) -> Path:
    """The run's folder, which every rank must see: after a restart another one may be rank 0, and reads it."""
    if ranks.alone:
        return session.run_dir
    folder, written = ranks.first((session.run_dir.name, time.time_ns()))
    run_dir = root / folder
    mark = run_dir / f".seen-{written}"
    if ranks.is_first:
        mark.touch()
    ranks.wait()
    patience = 0.0 if ranks.on_one_machine else _LATE_SECONDS
    missing = [rank for rank, seen in enumerate(ranks.gather(_wait_for_file(mark, patience))) if not seen]
    if ranks.is_first:
        mark.unlink(missing_ok=True)
    if missing:
        error = f"the run folder {run_dir} is not on shared storage: {ranks.name(missing[0])} does not see it"
        session.finish("errored", error)
        raise LinnetError(f"{error}; choose one with `runs` that all machines have")
    return run_dir


def _wait_for_file(path: Path, seconds: float) -> bool:
    """Is a file there? A network's file system may be some seconds late."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() >= deadline or not path.parent.parent.exists():
            return False
        list(path.parent.parent.iterdir())  # makes NFS look again
        time.sleep(0.05)
    return True


def require_same_training(recipe: AnyRecipe, data: RunData, job: Job, ranks: Ranks, state: str = "") -> None:
    """Refuse ranks that would not train the same: another version, other flags, data, weights or `state` (a digest)."""
    if ranks.alone:
        return
    import torch

    settings = {**job.model_fields(), **job.config_fields()}
    flags = {f"`{name}`": value for name, value in settings.items() if name not in _OF_A_MACHINE}
    versions = {"version of Linnet": _own_version(), "version of torch": torch.__version__}
    versions["Linnet"] = source_digest()[-12:]  # a checkout has one version for long
    facts: dict[str, object] = {**versions, **flags, "fingerprint of its data": data.fingerprint}
    if job.settings.shard != "weights":  # of which each rank has others
        facts["weights"] = weights_checksum(recipe.trained.parameters())
    ranks.require_same({**facts, "state of the checkpoint": state})


def rank_remarks(recipe: AnyRecipe, data: RunData, hardware: Hardware) -> list[str]:
    """What several ranks make of the run: on how many machines, and whether its numbers are those of one rank."""
    ranks = hardware.ranks
    if ranks.alone:
        return []
    machines = len(set(ranks.hosts))
    where = "on one machine" if machines == 1 else f"on {machines} machines"
    exact = hardware.device.type == "cpu" and recipe.sum_order(data.rows_per_step).exact
    same = "to the bit as on one rank" if exact else "as on one rank to rounding"
    warning = restart_warning()
    remarks = [f"{ranks.count} ranks {where}; losses and weights {same}", *(() if warning is None else (warning,))]
    if hardware.shards_weights:
        remarks.append("weights are shared out: no samples are written; let a checkpoint write them (linnet generate)")
    return remarks


def sharing_of(recipe: AnyRecipe, data: RunData, hardware: Hardware) -> Sharing:
    """What the ranks of a training share out, for its plan."""
    settings = data.settings
    n_params = sum(parameter.numel() for parameter in recipe.trained.parameters() if parameter.requires_grad)
    sharded = shards_moments(settings, hardware.ranks, n_params)
    shard: Shard = "weights" if hardware.shards_weights else "moments" if sharded else "none"
    return Sharing(hardware.ranks.count, shard, settings.recompute)


def _own_version() -> str:
    try:
        return version("linnet")
    except PackageNotFoundError:  # run from its sources, whose digest is compared as well
        return "of these sources"
