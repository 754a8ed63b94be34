"""The settings a run began with, by dotted name, and where runs differ in them."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.runs.manifest import Manifest

ABSENT = "–"


def settings(manifest: Manifest) -> dict[str, object]:
    """All of them by dotted name: `config.lr`, `model.d_model`, `recipe` …"""
    top = {"recipe": manifest.recipe, "experiment": manifest.experiment, "total_steps": manifest.total_steps}
    flat: dict[str, object] = {name: value for name, value in top.items() if value is not None}
    for room, fields in (("model", manifest.model), ("config", manifest.config)):
        flat |= flatten(fields, f"{room}.")
    if git := commit(manifest):
        flat["git"] = git
    return flat


def flatten(fields: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Nested fields by dotted name."""
    flat: dict[str, object] = {}
    for name, value in fields.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def differing(runs: Sequence[dict[str, object]]) -> list[str]:
    """The names under which not all runs' settings are the same."""
    names = dict.fromkeys(name for fields in runs for name in fields)
    return [name for name in names if len({repr(fields.get(name, ABSENT)) for fields in runs}) > 1]


def commit(manifest: Manifest, *, branch: bool = False) -> str:
    """The commit a run was started from, in short; empty where it is not known."""
    git = manifest.provenance.get("git")
    if not isinstance(git, dict) or not git.get("sha"):
        return ""
    named = f" {git['branch']}" if branch and git.get("branch") else ""
    return f"{str(git['sha'])[:9]}{named}{' + changes' if git.get('dirty') else ''}"
