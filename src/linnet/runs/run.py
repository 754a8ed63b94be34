"""`Run`: one run folder, for reading."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from linnet import files
from linnet.display import Shown, one_line
from linnet.errors import LinnetError
from linnet.files import is_file, is_folder
from linnet.runs import provenance
from linnet.runs.encode import drop_none, encode_lines, jsonable_record
from linnet.runs.events import iso_now, to_event
from linnet.runs.folder import EVENTS, ID_TEMPLATE, LOGGED_MEDIA, MANIFEST, WEIGHTS, absolute, claim_folder, runs_folder
from linnet.runs.lines import ends_inside_a_line
from linnet.runs.manifest import LiveTags, Manifest, take_munin_events
from linnet.runs.stream import EventStream
from linnet.runs.summary import RunSummary, last_event, last_seconds, load_manifest, summarize

if TYPE_CHECKING:  # numpy takes longer to load than a list of runs to print
    from pandas import DataFrame

    from linnet.runs.artifacts import Artifact
    from linnet.runs.inspection import Inspection
    from linnet.runs.metrics import Metrics


class RunError(LinnetError):
    """A run that is not there, is not one, or cannot be told from another."""


class Run(Shown):
    """A run folder, made by Linnet, Toy, kaun-board or munin."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._clock: tuple[float, float] | None = None  # of `append_event`: the run's seconds, and ours, at the first

    @classmethod
    def create(
        cls,
        runs_root: str | os.PathLike[str] | None = None,
        *,
        template: str = ID_TEMPLATE,
        arch: str = "run",
        **fields: Any,
    ) -> Run:
        """Claim a new folder and write its manifest; `fields` are the manifest's. Raises when it cannot be made.

        Log into it with `append_event`, or with `linnet.start(resume=run.id)`.
        """
        root = absolute(runs_folder(runs_root))
        recipe, experiment = (str(fields.get(key) or "") for key in ("recipe", "experiment"))
        labels = {"arch": arch, "recipe": recipe, "experiment": provenance.mask_labels([experiment])[0]}
        # Nobody holds the lock of a run that is logged into event by event: its status is by the time of the last.
        origin = {**provenance.gather(), "lock": "none"}
        fields["model"] = {"arch": arch, **fields.get("model", {})}
        try:
            folder = claim_folder(root, template, labels)
            manifest = Manifest(run_id=folder.name, created_at=time.time(), provenance=origin, **fields)
            manifest.mask()
            manifest.write(folder)
        except OSError as error:
            raise RunError(f"cannot make a run in {root}: {error.strerror or error}") from error
        return cls(folder, manifest)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Open a run folder."""
        folder = Path(path)
        manifest = load_manifest(folder) if is_folder(folder) else None
        if manifest is None:
            if not is_folder(folder):
                problem = "no such folder"
            elif is_file(folder / MANIFEST):
                problem = f"its {MANIFEST} cannot be read as a manifest, and there is no {EVENTS}"
            else:
                problem = f"a folder without {MANIFEST} or {EVENTS}"
            raise RunError(f"{folder} is not a run: {problem}")
        if manifest.dialect == "munin":
            take_munin_events(manifest, folder / EVENTS)
        return cls(folder, manifest)

    @classmethod
    def latest(cls, runs_root: str | os.PathLike[str] | None = None) -> Run | None:
        """The newest run of a root; None when it has none."""
        from linnet.runs.store import RunStore

        return RunStore(runs_root).latest()

    @property
    def id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def name(self) -> str | None:
        """What its owner called it; `run.name = "wide"` renames it, as `linnet rename` does."""
        return self.manifest.name

    @name.setter
    def name(self, name: str | None) -> None:
        from linnet.runs import labels

        labels.rename(self, name or "")

    @property
    def experiment(self) -> str | None:
        """The experiment it belongs to."""
        return self.manifest.experiment

    @property
    def group(self) -> str | None:
        """The group it belongs to, as seeds of one setting."""
        return self.manifest.group

    @property
    def parent(self) -> str | None:
        """The id of the run it was forked from."""
        return self.manifest.parent

    @property
    def tags(self) -> LiveTags:
        """Its tags; `run.tags += ["good"]` adds one, as `linnet tag` does."""
        return LiveTags(lambda: self.manifest.tags, self._put_tags)

    @tags.setter
    def tags(self, tags: str | Iterable[str]) -> None:
        self._put_tags(tags)

    def _put_tags(self, tags: str | Iterable[str]) -> None:
        from linnet.runs import labels

        labels.retag(self, tags)

    @property
    def config(self) -> dict[str, Any]:
        """Its hyper-parameters."""
        return self.manifest.config

    @property
    def summary(self) -> dict[str, Any]:
        """The figures that its writer declared to be the run's: `run.summary["best_accuracy"] = 0.97`."""
        return self.manifest.summary

    @property
    def created_at(self) -> float:
        """When it was made, in Unix seconds."""
        return self.manifest.created_at

    @property
    def total_epochs(self) -> int | None:
        """How many epochs it is meant to have."""
        return self.manifest.total_epochs

    @property
    def events_path(self) -> Path:
        """The event stream."""
        return self.path / EVENTS

    def summarize(self) -> RunSummary:
        """How the run stands now: status, last step, last loss."""
        summary = summarize(self.path)
        if summary is None:
            raise RunError(f"{self.path} is gone")
        return summary

    @property
    def status(self) -> str:
        """`live`, `completed`, `interrupted`, `aborted`, `errored`, `crashed` or `stalled`."""
        return self.summarize().status

    def append_event(self, event: Mapping[str, Any]) -> None:
        """Append one event, as kaun-board's logger does; `t` is filled in, and a stream without one gets a `run_start`.

        `event` names its `kind`: `{"kind": "scalars", "step": 1, "values": {"loss": 0.5}}`, or a `type` as kaun-board
        does: `{"type": "scalar", "step": 1, "tag": "loss", "value": 0.5}`. It is one write of a whole line, so it never
        mixes with what another process writes. Raises RunError when it cannot be written. A training loop is better
        served by `linnet.start(resume=run.id)`.
        """
        if not isinstance(event.get("kind"), str) and not isinstance(event.get("type"), str):
            raise RunError("an event needs a kind, such as scalars, note or run_end; this one has none")
        foreign = self.manifest.dialect in ("kaun-board", "munin")
        if foreign and "type" not in event:
            raise RunError(
                f"run {self.id} was written by {self.manifest.dialect}, whose events name a type, not a kind"
            )
        record = dict(event) if foreign else self._translate(event)
        try:
            fd = files.open_regular(self.events_path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                lines = encode_lines([jsonable_record(record)])
                if ends_inside_a_line(fd):
                    lines = b"\n" + lines
                if not foreign and record["kind"] != "run_start" and self._lacks_run_start(fd):
                    lines = encode_lines([jsonable_record(self.manifest.run_start())]) + lines
                if os.write(fd, lines) != len(lines):
                    raise OSError("the disk is full")
            finally:
                os.close(fd)
        except OSError as error:
            raise RunError(f"the event was not written to {self.events_path}: {error.strerror or error}") from error

    def _translate(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """An event in `toy/v1` words, with its time: the one it has, else that of the run's clock going on."""
        translated = to_event(dict(event), self.created_at)
        seconds = last_seconds(self.events_path)
        if "t" in event or "wall_time" in event:
            now = translated.t
        else:
            began, clock = self._clock = self._clock or (seconds, time.monotonic())
            now = began + time.monotonic() - clock
        fields = {name: value for name, value in translated.data.items() if name not in ("kind", "t", "type")}
        return {"kind": translated.kind, "t": max(seconds, now), **fields}

    def _lacks_run_start(self, fd: int) -> bool:
        """Nothing was logged yet, and no writer lives who would begin the stream; two who ask never both hear yes."""
        if last_event(self.events_path) is not None or files.lock(fd, wait=files.READER_SECONDS) is False:
            return False
        return last_event(self.events_path) is None

    def events(self) -> EventStream:
        """The events, from the beginning, and on as they come."""
        return EventStream(self.events_path, origin=self.origin)

    def metrics(self, *, superseded: bool = False, cached: bool = True) -> Metrics:
        """All metrics; with `superseded` also the steps that a resumed run trained again."""
        from linnet.runs.metrics import Metrics

        goals = self.manifest.goals
        return Metrics(self.events_path, goals=goals, origin=self.origin, superseded=superseded, cached=cached)

    def inspection(self, *, superseded: bool = False) -> Inspection:
        """What its training told of its inside (`inspect`); `superseded` as for `metrics`."""
        from linnet.runs.inspection import Inspection

        return Inspection(self.events_path, superseded=superseded)

    def artifacts(
        self,
        name: str | None = None,
        step: int | None = None,
        *,
        media: str | None = None,
        superseded: bool = False,
    ) -> list[Artifact]:
        """The files that were logged, in order: those of one name, of one step, of one kind of `media`, or all.

        `superseded`: also those of steps that a resumed run trained again.
        """
        from linnet.runs.artifacts import ArtifactList
        from linnet.runs.scan import events_of_kinds

        artifacts = ArtifactList(self.path, superseded)
        for event in events_of_kinds(self.events_path, ("artifact", "resume"), self.origin):
            artifacts.take(event)
        conditions = (("name", name), ("step", step), ("media", media))
        return [a for a in artifacts if all(value is None or getattr(a, key) == value for key, value in conditions)]

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, by step."""
        return [path for _, path in files.step_files(self.path / WEIGHTS)]

    @property
    def origin(self) -> float:
        """The Unix time at which a kaun-board or munin run began, to tell seconds from; 0 for ours and Toy's."""
        return self.manifest.origin

    def __repr__(self) -> str:
        facts = self._facts()
        status, step, metric = facts["status"], facts.get("step"), facts.get("metric")
        shown = [status] + ([] if step is None else [f"step {step}"]) + ([metric] if metric else [])
        return one_line("Run", self.id, shown)

    def _facts(self) -> dict[str, object]:
        """How it stands, for people."""
        summary = summarize(self.path)
        if summary is None:
            return {"status": "gone"}
        step, of = summary.step, self.manifest.total_steps
        facts: dict[str, object] = {"status": summary.status}
        if step is not None:
            facts["step"] = step if of is None or of == step else f"{step} of {of}"
        if summary.metric is not None:
            value = summary.value
            facts["metric"] = f"{summary.metric} {f'{value:.5g}' if isinstance(value, float) else value}"
        return facts

    def _shown(self) -> tuple[str, dict[str, object]]:
        labels = {"name": self.name, "experiment": self.experiment, "tags": ", ".join(self.tags)}
        shape = {"recipe": self.manifest.recipe, "model": _listed(self.manifest.model), "config": _listed(self.config)}
        return self.id, {**self._facts(), **labels, **shape, "folder": self.path}

    def _figure(self) -> str:
        main = self.metrics().main
        return "" if main is None else main._figure()

    def to_pandas(self, names: Iterable[str] | None = None) -> DataFrame:
        """The metrics as a DataFrame, a row a step; `linnet.runs.Metrics.to_pandas`."""
        return self.metrics().to_pandas(names)


def _listed(fields: Mapping[str, object]) -> str:
    return " · ".join(f"{name} {value}" for name, value in fields.items())


def add_note(run: Run, text: str, step: int | None = None) -> None:
    """Append a `note` event: one write of a whole line, so it never mixes with a writer's."""
    seconds = last_seconds(run.events_path, run.origin)
    # Like the other events of its stream: kaun-board and munin name a `type`, and tell Unix time.
    notes: dict[str, dict[str, object]] = {
        "kaun-board": {"type": "note", "wall_time": run.origin + seconds, "text": text},
        "munin": {"type": "notes", "timestamp": run.origin + seconds, "value": text},
    }
    note = notes.get(run.manifest.dialect, {"kind": "note", "t": seconds, "text": text})
    run.append_event(drop_none({**note, "step": step, "at": iso_now()}))


def add_evaluation(run: Run, name: str, step: int | None, figures: Mapping[str, object]) -> None:
    """Append an `eval` event to a run of ours or of Toy's that nobody writes; its status, steps and best stay."""
    seconds = last_seconds(run.events_path, run.origin)
    event = {"kind": "eval", "phase": "eval", "t": seconds, "step": step, "name": name, **figures, "at": iso_now()}
    run.append_event(drop_none(event))


def add_numbers(run: Run, name: str, step: int | None, fields: Mapping[str, object]) -> Path:
    """Keep plain values as `NAME.json` among the media of such a run, with its event; the file's path."""
    content = msgspec.json.encode(jsonable_record(fields))
    return _add_media(run, step, f"{name}.json", "file", content, "json", {"mime": "application/json"})


def add_image(run: Run, name: str, step: int | None, png: bytes, size: tuple[int, int], caption: str) -> Path:
    """Keep a PNG among the media of a run of ours or of Toy's that nobody writes, with its event; the file's path."""
    about = {"mime": "image/png", "width": size[0], "height": size[1], "channels": 3, "caption": caption}
    return _add_media(run, step, name, "image", png, "png", about)


def _add_media(
    run: Run, step: int | None, name: str, media: str, content: bytes, suffix: str, fields: Mapping[str, object]
) -> Path:
    """Write a file that is named by its digest, and its event; its path."""
    digest = hashlib.sha256(content).hexdigest()
    path = f"{LOGGED_MEDIA}/{digest[:2]}/{digest}.{suffix}"
    try:
        (run.path / path).parent.mkdir(parents=True, exist_ok=True)
        files.write_file(run.path / path, content)
    except OSError as error:
        raise RunError(f"the file was not written to {run.path / path}: {error.strerror or error}") from error
    about = {"name": name, "media": media, "path": path, "bytes": len(content), "sha256": digest, **fields}
    event = {"kind": "artifact", "t": last_seconds(run.events_path, run.origin), "step": step, **about}
    run.append_event(drop_none({**event, "at": iso_now()}))
    return run.path / path
