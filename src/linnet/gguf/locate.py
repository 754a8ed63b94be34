"""GGUF files on this machine: where other programs keep theirs, in this folder, and in our runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from linnet.files import is_file, is_folder, step_of

_DEPTH = 6  # how far below a place a file may lie
_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True)
class LocatedModel:
    """A GGUF file: where it lies, who put it there, what that program calls it, its size."""

    path: Path
    place: str
    name: str
    bytes: int


def find_models(here: str | os.PathLike[str] = ".", runs: str | os.PathLike[str] | None = None) -> list[LocatedModel]:
    """Every GGUF file of the Hugging Face cache, Ollama, LM Studio, llama.cpp's cache, `here` and the runs.

    A file that is reached twice (a link, a run below `here`) is listed once. What cannot be read is passed
    over.
    """
    runs_root = Path(runs if runs is not None else os.environ.get("LINNET_RUNS") or Path(here) / "runs")
    elsewhere = (_hugging_face(), _ollama(), _lm_studio(), _below(_llama_cpp(), "llama.cpp"))
    models: dict[Path, LocatedModel] = {}
    for model in chain(_runs(runs_root), _below(Path(here), "here", depth=3), *elsewhere):
        models.setdefault(model.path.resolve(), model)
    return list(models.values())


def _runs(root: Path) -> Iterator[LocatedModel]:
    for run in sorted(_folders(root)):
        for path in sorted(_files(run / "weights", depth=0)):
            step = step_of(path)
            yield from _found(path, "run", f"{run.name}@{path.stem if step is None else step}")


def _hugging_face() -> Iterator[LocatedModel]:
    home = Path(os.environ.get("HF_HOME") or _cache() / "huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repo in sorted(_folders(hub)):
        if repo.name.startswith("models--"):
            owner_and_name = repo.name.removeprefix("models--").replace("--", "/")
            for path in sorted(_files(repo / "snapshots")):
                inside = path.relative_to(repo / "snapshots").parts[1:]
                yield from _found(path, "huggingface", "/".join((owner_and_name, *inside)))


def _ollama() -> Iterator[LocatedModel]:
    """Ollama's blobs are named by their digest; its manifests say which of them is a model, and whose."""
    root = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models").expanduser()
    for manifest in sorted(_files(root / "manifests", suffix="")):
        try:
            with manifest.open("rb") as file:
                content = json.loads(file.read(_MANIFEST_BYTES))
            layers = [layer for layer in content["layers"] if layer["mediaType"].endswith("image.model")]
            blobs = [root / "blobs" / Path(layer["digest"].replace(":", "-")).name for layer in layers]
            owner, model, tag = manifest.relative_to(root / "manifests").parts[-3:]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        name = f"{model}:{tag}" if owner == "library" else f"{owner}/{model}:{tag}"
        for blob in blobs:
            yield from _found(blob, "ollama", name)


def _lm_studio() -> Iterator[LocatedModel]:
    home = Path.home()
    pointer = home / ".lmstudio-home-pointer"
    roots = [home / ".lmstudio", home / ".cache" / "lm-studio"]
    if pointer.is_file():
        roots.insert(0, Path(pointer.read_text(errors="replace").strip()))
    for root in roots:
        yield from _below(root / "models", "lmstudio")


def _llama_cpp() -> Path:
    mac = Path.home() / "Library" / "Caches"
    return Path(os.environ.get("LLAMA_CACHE") or (mac if mac.is_dir() else _cache()) / "llama.cpp").expanduser()


def _below(root: Path, place: str, depth: int = _DEPTH) -> Iterator[LocatedModel]:
    for path in sorted(_files(root, depth=depth)):
        yield from _found(path, place, path.relative_to(root).as_posix())


def _found(path: Path, place: str, name: str) -> Iterator[LocatedModel]:
    try:
        if not is_file(path):  # a pipe would be waited for
            return
        with path.open("rb") as file:
            if file.read(4) == b"GGUF":
                yield LocatedModel(path, place, name, path.stat().st_size)
    except OSError:
        return


def _files(root: Path, suffix: str = ".gguf", depth: int = _DEPTH) -> Iterator[Path]:
    """Files below a folder, not following links to folders and not entering hidden ones."""
    for folder, subfolders, names in os.walk(root):
        levels = len(Path(folder).relative_to(root).parts)
        subfolders[:] = [name for name in subfolders if levels < depth and not name.startswith(".")]
        paths = (Path(folder, name) for name in names if name.endswith(suffix) and not name.startswith("."))
        yield from filter(is_file, paths)


def _folders(root: Path) -> Iterator[Path]:
    try:
        yield from filter(is_folder, root.iterdir())
    except OSError:
        return


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
