"""The weights that a run began with: kept, made again from its seed or its donor, or its parent's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from linnet.errors import LinnetError, UsageError
from linnet.files import is_file, step_files, step_path
from linnet.gguf import GGUFFile, read_params
from linnet.recipes.first_weights import first_weights
from linnet.recipes.job import Job
from linnet.recipes.registry import recipe_type
from linnet.runs import Run
from linnet.runs.folder import STATE, WEIGHTS
from linnet.train.hardware import choose

if TYPE_CHECKING:
    from linnet.train.protocols import RunData

_EMBEDDING, _LENS = "token_embd.weight", "lens.proj.weight"


@dataclass(frozen=True)
class Beginning:
    """The first weights of a run, `before` the step `step`; `origin`: where they come from, in words."""

    weights: Mapping[str, Tensor]
    step: int
    origin: str

    @classmethod
    def of(cls, run: Run) -> Beginning:
        """Those of a run of ours; where they cannot be had any more, those of its first checkpoint."""
        manifest = run.manifest
        if manifest.dialect != "linnet" or manifest.recipe is None or "arch" not in manifest.model:
            return cls._of_first_checkpoint(run)
        job = Job.from_fields(manifest.model, manifest.config, manifest.recipe)
        step, kind = manifest.parent_step or 0, recipe_type(manifest.recipe)
        if is_file(run.path / STATE / "first.safetensors") or (manifest.parent is None and kind.begins_from_seed(job)):
            weights = first_weights(run.path, job, forked=manifest.parent is not None)
            return cls(_folded(weights), step, f"seed {job.settings.seed}" if step == 0 else "its first weights")
        if manifest.parent is not None:
            parent = step_path(run.path.parent / manifest.parent / WEIGHTS, step)
            known = is_file(parent)
            origin = f"{manifest.parent}@{step}"
            return cls(weights_of(parent), step, origin) if known else cls._of_first_checkpoint(run)
        try:
            return cls(_folded(_from_donor(job, run)), step, f"the donor {getattr(job.options, 'donor_name', None)}")
        except (LinnetError, OSError):  # it is gone, or another by now
            return cls._of_first_checkpoint(run)

    @classmethod
    def _of_first_checkpoint(cls, run: Run) -> Beginning:
        steps = step_files(run.path / WEIGHTS)
        if not steps:
            raise UsageError(f"run {run.id} has no checkpoint yet: {run.path / WEIGHTS} holds no step_N.gguf")
        step, path = steps[0]
        return cls(weights_of(path), step, f"step {step}, its first checkpoint; what it began with is gone")


@dataclass(frozen=True)
class _Vocabulary:
    """All that a recipe asks of the data when it begins with a donor."""

    vocabulary: Mapping[str, object] | None


def _from_donor(job: Job, run: Run) -> Mapping[str, Tensor]:
    """The first weights made again from the donor that the run names, which must be the same file."""
    from linnet.recipes.donor import Donor

    donor, digest = getattr(job.options, "donor", None), getattr(job.options, "donor_sha256", None)
    if donor is None:
        raise UsageError(f"run {run.id} names no donor")
    if digest is not None:
        with Donor(donor) as opened:
            if opened.sha256() != digest:
                raise UsageError(f"{donor} is not the donor of run {run.id} any more")
    checkpoint = step_files(run.path / WEIGHTS)[-1][1]
    with GGUFFile.open(checkpoint) as file:
        vocabulary = {key: file.metadata[key] for key in file.metadata if key.startswith("tokenizer.")}
    settings = replace(job.settings, device="cpu", compile="off", graph="off")
    job = replace(job, settings=settings, teacher=None)
    hardware = choose(settings, tokens=1)
    data = cast("RunData", _Vocabulary(cast("Mapping[str, object]", vocabulary)))
    recipe, _ = recipe_type(job.recipe).from_job(job, data, hardware, False)
    return {name: parameter.detach() for name, parameter in recipe.trained.named_parameters()}


def _folded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as a checkpoint holds them: an embedding behind a lens as it is seen through it."""
    folded = dict(weights)
    if (lens_DW := folded.pop(_LENS, None)) is not None:
        folded[_EMBEDDING] = folded[_EMBEDDING] @ lens_DW.T
    return folded


def weights_of(path: Path) -> dict[str, Tensor]:
    """The parameters of a checkpoint by our names, in float32."""
    with GGUFFile.open(path) as file:
        return {name: torch.from_numpy(array) for name, array in read_params(file)}
