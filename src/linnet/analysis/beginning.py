"""The weights that a run began with: kept, made again from its seed or its donor, or its parent's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from torch import Tensor

from linnet.errors import LinnetError, UsageError
from linnet.files import is_file, sha256_of, step_files, step_path
from linnet.gguf import AdapterFile, GGUFFile
from linnet.models import load
from linnet.models.model_files import find_files
from linnet.recipes.base_file import BaseOptions
from linnet.recipes.first_weights import first_weights
from linnet.recipes.job import Job
from linnet.recipes.lora import LoraOptions
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
        try:
            return cls(_first_weights(run, job), manifest.parent_step or 0, _origin(run, job))
        except (LinnetError, OSError):  # what it began with is gone, or another by now
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


def _origin(run: Run, job: Job) -> str:
    """What the run began with, in words."""
    options, parent = job.options, run.manifest.parent
    if parent is not None:
        return f"{parent}@{run.manifest.parent_step or 0}"
    if recipe_type(job.recipe).begins_from_seed(job):
        return f"seed {job.settings.seed}"
    if isinstance(options, BaseOptions):
        adapter = getattr(options, "adapter", None)
        beside = "" if adapter is None else f" with the adapter {Path(adapter).name}"
        return f"the base {options.base_name or Path(options.base).name}{beside}"
    donor = getattr(options, "donor_name", None) or Path(str(getattr(options, "donor", None))).name
    return f"the donor {donor}"


def _first_weights(run: Run, job: Job) -> Mapping[str, Tensor]:
    """The weights that a run of ours began with, by the names of its checkpoints."""
    manifest, kind = run.manifest, recipe_type(job.recipe)
    is_adapter = isinstance(job.options, LoraOptions)  # what is kept of one are pairs, not the model's weights
    is_kept = is_file(run.path / STATE / "first.safetensors") and not is_adapter
    if is_kept or (manifest.parent is None and kind.begins_from_seed(job)):
        return _folded(first_weights(run.path, job, forked=manifest.parent is not None))
    if manifest.parent is not None:
        parent = Run.load(run.path.parent / manifest.parent)
        if parent.manifest.created_at > manifest.created_at:
            raise UsageError(f"run {parent.id} is another than the one that {run.id} began with")
        return weights_of(step_path(parent.path / WEIGHTS, manifest.parent_step or 0))
    if isinstance(job.options, BaseOptions):
        return _from_base(job.options)
    return _folded(_from_donor(job, run))


def _from_base(options: BaseOptions) -> Mapping[str, Tensor]:
    """The weights of a base, with the adapter that the run went on with."""
    if options.base_sha256 not in (None, sha256_of(Path(options.base))):
        raise UsageError(f"{options.base} is another file than the run began with")
    adapter = getattr(options, "adapter", None)
    adapters = () if adapter is None else ((AdapterFile.read(adapter), 1.0),)
    return load(options.base, adapters=adapters).params()


def _from_donor(job: Job, run: Run) -> Mapping[str, Tensor]:
    """The first weights made again from the donor that the run names, which must be the same file."""
    donor, digest = getattr(job.options, "donor", None), getattr(job.options, "donor_sha256", None)
    if donor is None:
        raise UsageError(f"run {run.id} names no donor")
    if digest not in (None, sha256_of(Path(donor))):
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
    """The parameters of a checkpoint by our names, in float32; of an adapter those of its base with it."""
    files = find_files(path, takes_adapters=False)
    return load(files.model, adapters=files.adapters).params()
