"""What a run takes on the disk, and which of its checkpoints could go."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from linnet.errors import UsageError
from linnet.files import STATE_SUFFIX, link_target, step_files
from linnet.runs.folder import ARTIFACTS, CACHE, EVENTS, MEDIA, STATE, WEIGHTS
from linnet.runs.run import Run
from linnet.runs.scan import events_of_kinds

PARTS = (WEIGHTS, STATE, "events", ARTIFACTS, "other")
_PART_OF = {WEIGHTS: WEIGHTS, STATE: STATE, EVENTS: "events", ARTIFACTS: ARTIFACTS, MEDIA: ARTIFACTS, CACHE: "other"}


def bytes_of(folder: Path) -> dict[str, int]:
    """The bytes of a run's weights, state, events, artifacts and the rest; links count as the links they are."""
    parts = dict.fromkeys(PARTS, 0)
    for parent, _, names in os.walk(folder):
        within = Path(parent).relative_to(folder).parts
        for name in names:
            try:
                size = os.lstat(f"{parent}/{name}").st_size
            except OSError:  # removed meanwhile
                continue
            parts[_PART_OF.get(within[0] if within else name, "other")] += size
    return parts


class Keep(msgspec.Struct, frozen=True):
    """Which checkpoints stay: `best`, `latest`, the `last` so many, those of `every` so many steps, `steps` by name."""

    best: bool = False
    latest: bool = False
    last: int = 0
    every: int = 0
    steps: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Keep:
        """Read `best,latest,every=1000,last=3,200`."""
        fields: dict[str, int | bool] = {}
        steps: list[int] = []
        for word in filter(None, (part.strip() for part in text.split(","))):
            if word in ("best", "latest"):
                fields[word] = True
            elif number := re.fullmatch(r"(every|last)=([1-9][0-9]{0,17})", word):
                fields[number[1]] = int(number[2])
            elif re.fullmatch(r"[0-9]{1,18}", word):
                steps.append(int(word))
            else:
                raise UsageError(f"`keep`: {word!r} is none of best, latest, last=3, every=1000, or a step")
        if not fields and not steps:
            raise UsageError("`keep` names no checkpoint to stay; write best, latest, last=3, every=1000, or steps")
        return cls(**fields, steps=tuple(steps))  # type: ignore[arg-type]

    def has(self, step: int, steps: list[int], best: str, latest: str, name: str) -> bool:
        """Does the checkpoint of a step, a file called `name`, stay? `steps`: of all checkpoints, in order."""
        return (
            (self.best and name == best)
            or (self.latest and name == latest)
            or step in self.steps
            or bool(self.every and step % self.every == 0)
            or bool(self.last and step in steps[-self.last :])
        )


class Surplus(msgspec.Struct):
    """What `keep` leaves over.

    - `files`: of checkpoints, with their states and the links to them; `steps`: theirs; `bytes`: all of it.
    - `foreign`: steps whose files this run did not write; they stay.
    - `can_resume`: a state is among what stays.
    """

    files: list[Path]
    steps: list[int]
    foreign: list[int]
    bytes: int
    can_resume: bool


def surplus_of(run: Run, keep: Keep) -> Surplus:
    """The checkpoints of a run, with their states, that `keep` does not name; only those that the run itself wrote."""
    weights = run.path / WEIGHTS
    checkpoints = [] if weights.is_symlink() else step_files(weights)
    steps = [step for step, _ in checkpoints]
    best, latest = link_target(weights / "best"), link_target(weights / "latest")
    latest = latest or (checkpoints[-1][1].name if checkpoints else "")
    written = _written(run)
    states = dict(step_files(run.path / STATE, STATE_SUFFIX))
    surplus = Surplus([], [], [], 0, can_resume=False)
    for step, path in checkpoints:
        if keep.has(step, steps, best, latest, path.name):
            surplus.can_resume |= step in states
        elif path.is_symlink() or written.get(f"{WEIGHTS}/{path.name}") != path.stat().st_size:
            surplus.foreign.append(step)
        else:
            surplus.steps.append(step)
            surplus.files += [path, *([states[step]] if step in states else [])]
    surplus.bytes = sum(path.stat().st_size for path in surplus.files)
    surplus_names = {path.name for path in surplus.files}
    surplus.files += [weights / name for name in ("best", "latest") if link_target(weights / name) in surplus_names]
    return surplus


def _written(run: Run) -> dict[str, int | None]:
    """The checkpoints that the run's stream tells of, with their bytes; by paths from the run folder."""
    events = events_of_kinds(run.events_path, ("checkpoint",), run.origin)
    return {str(event.data.get("path")): event.data.get("bytes") for event in events}
