"""`find_files`: the files that a MODEL and the adapters beside it mean, found and made sure to belong together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet.errors import UsageError
from linnet.files import sha256_of, step_of
from linnet.gguf.adapter import AdapterFile
from linnet.gguf.config import config_of
from linnet.gguf.file import GGUFFile
from linnet.models.model_name import find_model
from linnet.runs import Run, RunError

_MOST = float(np.finfo(np.float32).max)
ModelRef = str | os.PathLike[str] | Run


@dataclass(frozen=True)
class ModelFiles:
    """A model's file, and adapters of it, each with the scale that it is applied with.

    `named`: the file that the MODEL meant: that of the model, or an adapter's in a run that has trained one.
    """

    model: Path
    named: Path
    adapters: tuple[tuple[AdapterFile, float], ...] = ()

    @property
    def name(self) -> str:
        """What the MODEL is called."""
        return name_of(self.named)


def name_of(path: Path) -> str:
    """What a MODEL could be called by: `llama-20260531-001@480` of a run's checkpoint, else the file's name."""
    step = step_of(path)
    return path.name if step is None else f"{path.parent.parent.name}@{step}"


def find_files(
    model: ModelRef,
    adapters: Iterable[ModelRef] = (),
    runs: str | os.PathLike[str] | None = None,
    *,
    any_base: bool = False,
    takes_adapters: bool = True,
) -> ModelFiles:
    """The files of a MODEL. A RUN that has trained an adapter means its base with that adapter.

    - `adapters`: MODELs that are adapters, each with a scale behind a colon if it is not 1: `notes.gguf:0.5`.
    - `any_base`: apply them although they were made for another file, if only the shapes fit.
    - `takes_adapters`: whoever asks could be given a model and adapters; else what is advised is to merge the two.
    """
    named = find_model(model, runs)
    base, chosen = named, []
    if _is_adapter(named):
        own = AdapterFile.read(named)
        base = _base_of(own, takes_adapters)
        chosen.append((own, 1.0))
    for reference in adapters:
        name, scale = _scaled(reference)
        chosen.append((AdapterFile.read(find_model(name, runs)), scale))
    if chosen:
        check_adapters(base, [adapter for adapter, _ in chosen], any_base=any_base)
    return ModelFiles(base, named, tuple(chosen))


def check_adapters(base: Path, adapters: Iterable[AdapterFile], *, any_base: bool = False) -> None:
    """Refuse adapters that were made for another base than this one."""
    if _is_adapter(base):
        raise UsageError(f"{base} is an adapter itself: give the model that both were made for")
    with GGUFFile.open(base) as file:
        config = config_of(file, task="text")
    digest = ""
    for adapter in adapters:
        adapter.require_fits(config, base)
        if adapter.base_sha256 and not any_base:
            digest = digest or sha256_of(base)
            adapter.require_base(digest, base)


def _is_adapter(path: Path) -> bool:
    with GGUFFile.open(path) as file:
        return file.is_adapter


def _base_of(adapter: AdapterFile, takes_adapters: bool) -> Path:
    """The base of a run's adapter, which `run.json` names; whether it is still the same file is seen later."""
    path, made_for = adapter.path, f" of {adapter.base}" if adapter.base else ""
    try:
        run = Run.load(path.resolve().parent.parent)
        base = run.manifest.config.get("base")
    except RunError:
        base = None
    if not isinstance(base, str):
        advice = f"give the model, and this file beside it (`adapter={path}`)"
        raise UsageError(
            f"{path} is an adapter{made_for}, which changes that model and knows nothing by itself:"
            f" {advice if takes_adapters else f'merge the two first, linnet merge MODEL {path} merged.gguf'}"
        )
    if not Path(base).is_file():
        advice = f"give the model where it is now, with the adapter beside it (`adapter={run.id}`)"
        raise UsageError(
            f"run {run.id} has trained an adapter of {base}, and there is no such file any more:"
            f" {advice if takes_adapters else 'put it back'}"
        )
    return Path(base)


def _scaled(reference: ModelRef) -> tuple[ModelRef, float]:
    """An adapter's name, and the scale behind its last colon."""
    if isinstance(reference, Run):
        return reference, 1.0
    name, colon, scale = os.fspath(reference).rpartition(":")
    try:
        factor = float(scale) if colon and name else 1.0
    except ValueError:
        return reference, 1.0
    if not abs(factor) <= _MOST:
        raise UsageError(f"the adapter {name} cannot be applied with the scale {scale}: give a finite number")
    return (name, factor) if colon and name else (reference, 1.0)
