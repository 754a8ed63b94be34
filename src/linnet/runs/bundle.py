"""`RunBundle`: the writer of a run's events, one method for each kind."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar

from linnet.display import Shown, one_line
from linnet.runs import provenance
from linnet.runs.encode import drop_none, encode_lines, flat_names, jsonable_record, safe_text, whole_number
from linnet.runs.events import iso_now
from linnet.runs.folder import ARTIFACTS, EVENTS, ID_TEMPLATE, MANIFEST, WEIGHTS, absolute
from linnet.runs.manifest import Manifest
from linnet.runs.owned_folder import OwnedFolder
from linnet.runs.sink import Upkeep

log = logging.getLogger("linnet")

_OWN_FIELDS = ("kind", "phase", "t", "step", "nonfinite")  # of every event
_VIT_SHAPE = ("image_size", "patch_size", "d_model", "n_layers", "num_classes")
# What a process that was stopped returns, where nobody says which signal it was: that of Ctrl-C.
INTERRUPTED_EXIT_CODE = 130

_Method = TypeVar("_Method", bound=Callable[..., Any])


def never_raises(method: _Method, instead: Callable[[], Any] | None = None) -> _Method:
    """A decorator: no exception of the method reaches the training loop, that of wrong arguments included.

    The call is left out, with a warning once a method; what `instead` makes is returned, else None.
    """

    @functools.wraps(method)
    def guarded(self: RunBundle, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            self._complain(method.__name__.lstrip("_"), error)
            return instead() if instead else None

    return guarded  # type: ignore[return-value]


def join_fields(own: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Merge an event's own fields with others; those that are called like an event's own go under `values`."""
    apart = {name: value for name, value in others.items() if name in _OWN_FIELDS}
    if not apart:
        return own | others
    apart |= {name: value for name, value in others.items() if name == "values"}
    return own | {name: value for name, value in others.items() if name not in apart} | {"values": apart}


def _encode_figures(record: dict[str, Any]) -> bytes:
    """A line of plain figures; of those that are not finite, which the encoder makes null of, the careful way."""
    line = encode_lines([record])
    if b"null" in line:
        line = encode_lines([jsonable_record(record)])
    return line


class RunBundle(Shown):
    """A run folder being written: `run.json` and the `toy/v1` stream.

    - `runs_root`: the folder of runs; made when missing.
    - `run_id`: the run's own folder. When it is taken, the next free one (`-2`, `-3` …) is used, with a warning.
      None: made from `template`, whose tokens `labels` fill in.
    - `resume`: go on in the folder `run_id` that is there already; with `strict` a LinnetError where that cannot be
      done, instead of a run beside it.
    - `system_every`: seconds between two `system` events; 0 for none.
    - `exact`: names of config fields that a program reads back, and that are therefore never masked as secrets.
    - `manifest`: more fields of `run.json`: name, experiment, group, parent, recipe, tags, total_steps,
      total_epochs, goals, model, config.

    Nothing here raises into a training loop: what cannot be written is warned about once, and kept if it can be.
    """

    # What was logged last, and the last of it with a loss; both are replaced whole, never changed.
    _last: dict[str, Any] = {}  # noqa: RUF012
    _last_loss: dict[str, Any] = {}  # noqa: RUF012
    more_system_figures: Callable[[], Mapping[str, Any]] = dict  # what a program adds to each `system` event

    def __init__(
        self,
        runs_root: str | os.PathLike[str],
        run_id: str | None = None,
        *,
        template: str = ID_TEMPLATE,
        labels: Mapping[str, str] | None = None,
        resume: bool = False,
        strict: bool = False,
        system_every: float = 0.0,
        exact: Collection[str] = (),
        **manifest: Any,
    ) -> None:
        root = absolute(runs_root)
        self._pid = os.getpid()
        self._ended = False
        self._start_implied = False  # run_start was written because another event came first
        self._complaints: set[str] = set()
        reopens = resume and run_id is not None
        reopened = OwnedFolder.reopen(root, str(run_id), manifest, exact, strict) if reopens else None
        self._folder = reopened or OwnedFolder.claim(root, run_id, template, labels or {}, manifest, exact)
        self._sink = self._folder.sink
        self._started = self._folder.has_events
        self._open = self._started  # started and not ended: events may go straight into the stream
        if self._started:
            self._last = self._folder.last_logged()
        self._append: Callable[[dict[str, Any]], None] = self._sink.append
        self._probe: Any = None
        self._upkeep = Upkeep(self._maintain, self._sink.size, self._beat, self._sample_system, system_every)
        self._upkeep.start()

    # -- where things are --------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Events are reaching the disk."""
        return self._sink.active

    @property
    def run_dir(self) -> Path:
        """The run's folder; another one when it was deleted and its name was taken meanwhile."""
        return self._folder.path

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._folder.run_id

    @property
    def manifest(self) -> Manifest:
        """What `run.json` says."""
        return self._folder.manifest

    @property
    def root(self) -> Path:
        """The folder of runs that this one lies in."""
        return self.run_dir.parent

    @property
    def events_path(self) -> Path:
        """The event stream."""
        return self.run_dir / EVENTS

    @property
    def git_sha(self) -> str:
        """The commit this run is of; empty when there is none."""
        return str(self._folder.commit.get("sha", ""))

    @property
    def git_branch(self) -> str:
        """The branch of that commit; empty when there is none."""
        return str(self._folder.commit.get("branch", ""))

    @property
    def weights_dir(self) -> Path:
        """The folder of checkpoints, made on first asking."""
        return self._folder.subfolder(WEIGHTS)

    @property
    def artifacts_dir(self) -> Path:
        """The folder for files of the user's own, made on first asking."""
        return self._folder.subfolder(ARTIFACTS)

    def __repr__(self) -> str:
        facts = [f"step {self._last['step']}"] if "step" in self._last else []
        facts += [f"loss {self._last_loss['loss']}"] if "loss" in self._last_loss else []
        return one_line(type(self).__name__, self.run_id, [*facts, "ended" if self._ended else "open"])

    def _shown(self) -> tuple[str, dict[str, object]]:
        facts = {"step": self._last.get("step"), "loss": self._last_loss.get("loss")}
        return self.run_id, {**facts, "state": "ended" if self._ended else "open", "folder": self.run_dir}

    # -- beginning and end -------------------------------------------------------------------------------------

    @never_raises
    def git(self, sha: str, branch: str) -> None:
        """Say which commit this is; when not called, or with empty texts, it is the one that was found.

        Best before `run_start`, which has it; later it goes into `run.json` and a note.
        """
        if not sha and not branch:
            return
        commit: dict[str, object] = {"sha": str(sha), "branch": str(branch)}
        known = self._folder.commit
        if "dirty" in known and known.get("sha") == commit["sha"]:
            commit["dirty"] = known["dirty"]  # of the same commit; of another nothing is known
        self.manifest.provenance["git"] = commit
        if self._started:
            self._add_late(f"this run is of commit {commit['sha']} {commit['branch']}", git=commit)

    @never_raises
    def run_start(
        self,
        arch: str,
        vocab: int | None = None,
        d_model: int | None = None,
        n_layers: int | None = None,
        context: int | None = None,
        steps: int | None = None,
        lr: float | None = None,
        seed: int | None = None,
        *,
        model: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        phase: str = "train",
        device: str | None = None,
        **fields: Any,
    ) -> None:
        """The first event: once, before any compute. `model` and `config` add to the fields named here.

        `fields`: `schedule`, `name`, `compare_to`, `cost` or anything else the schema leaves open.
        """
        if self._started and not self._start_implied:
            log.warning("run %s: run_start was written already; this one is left out", self.run_id)
            return
        shape = drop_none({"arch": arch, "vocab": vocab, "d_model": d_model, "n_layers": n_layers})
        settings = drop_none({"context": context, "steps": steps, "lr": lr, "seed": seed})
        config = provenance.mask_config(config or {}, self._folder.exact)
        if self._start_implied:
            self._run_start_late({**shape, **(model or {})}, {**settings, **config}, steps, fields)
            return
        self.manifest.model = {**shape, **self.manifest.model, **(model or {})}
        self.manifest.config = {**settings, **self.manifest.config, **config}
        if self.manifest.total_steps is None:
            self.manifest.total_steps = steps
        record = jsonable_record(self.manifest.run_start(phase=phase, device=device, **fields))
        self._started = True
        self._folder.write_manifest()
        self._append(record)
        self._open = True
        self._sink.sync()

    def _run_start_late(
        self, model: dict[str, Any], config: dict[str, Any], steps: int | None, fields: dict[str, Any]
    ) -> None:
        """The stream has its one `run_start`, which knew nothing: `run.json` and a note say what this one says."""
        log.warning(
            "run %s: run_start came after other events; what it says is in %s and a note. Call it first",
            self.run_id,
            MANIFEST,
        )
        self._start_implied = False
        self.manifest.model = {**self.manifest.model, **model}
        self.manifest.config = {**self.manifest.config, **config}
        self.manifest.total_steps = self.manifest.total_steps or steps
        fields = {"model": self.manifest.model, "config": self.manifest.config, **drop_none(fields)}
        self._add_late(f"run_start came late: this is a {self.manifest.model.get('arch')}", **fields)

    def _add_late(self, text: str, **fields: Any) -> None:
        """What the first event did not know yet."""
        self._folder.write_manifest()
        self._event("note", None, {"text": text, **fields})

    @never_raises
    def run_start_llama(self, cfg: Any, steps: int, lr: float, seed: int, **fields: Any) -> None:
        """`run_start` of a llama; its shape is read off the config: `vocab`, `d_model`, `n_layers`, `ctx`."""
        self.run_start("llama", cfg.vocab, cfg.d_model, cfg.n_layers, cfg.ctx, steps, lr, seed, **fields)

    @never_raises
    def run_start_vit(self, cfg: Any, steps: int, lr: float, seed: int, **fields: Any) -> None:
        """`run_start` of a vision transformer: the image's shape in `model`, no context in `config`."""
        shape = {"arch": "vit", **{name: getattr(cfg, name) for name in _VIT_SHAPE}}
        self.run_start("vit", steps=steps, lr=lr, seed=seed, model=shape | fields.pop("model", {}), **fields)

    @never_raises
    def run_end(
        self,
        final_step: int | None = None,
        final_loss: float | None = None,
        reason: str = "completed",
        *,
        quality_gate: Mapping[str, Any] | None = None,
        error: str | None = None,
        exit_code: int | None = None,
        **fields: Any,
    ) -> None:
        """The last event, with the true reason: `completed`, `interrupted`, `aborted` or `errored`. It closes the run.

        - `final_step`, `final_loss`: those logged last, when not given.
        - `quality_gate`: `{passed, metric, value, threshold}`.
        - `exit_code`: what the process will return; when not given 0, or 1 after a failure or a missed gate, or 130.
        """
        if self._ended or os.getpid() != self._pid:  # a forked child must not end its parent's run
            return
        reason = safe_text(reason)
        if exit_code is None:
            missed = isinstance(quality_gate, Mapping) and not quality_gate.get("passed")
            exit_code = INTERRUPTED_EXIT_CODE if reason == "interrupted" else int(missed or reason != "completed")
        if not self._started:
            self._imply_run_start()
        self._before_end()
        record = drop_none({"kind": "run_end", "t": 0.0, "ended_at": iso_now(), "reason": reason, "error": error})
        record |= {
            "final_step": self._last.get("step") if final_step is None else final_step,
            "final_loss": self._last_loss.get("loss") if final_loss is None else final_loss,
        }
        record |= drop_none({"quality_gate": quality_gate, "lost_events": self._sink.lost or None, **fields})
        self._sink.close(jsonable_record(record | {"exit_code": exit_code}))
        self._ended, self._open = True, False
        self._append = self._too_late
        self._upkeep.stop()
        self._folder.end()

    # -- training ----------------------------------------------------------------------------------------------

    @never_raises
    def step(self, step: int, loss: Any = None, *, phase: Any = "train", **fields: Any) -> None:
        """One optimiser step, counted from 1: loss in nats, and `lr`, `tokens`, `wall_us`, `grad_norm`, …

        With `phase="decode"` one token that was generated: `token_id`, `logprob`, `wall_us`.
        """
        fields = {"loss": loss, **fields}
        if not isinstance(phase, str):  # a metric of that name
            fields, phase = {**fields, "phase": phase}, "train"
        record = self._event("step", step, fields, phase=phase)
        if phase == "train":
            self._last = record
            if loss is not None:
                self._last_loss = record

    @never_raises
    def scalars(self, step: int | None, values: Mapping[str, Any], epoch: float | None = None) -> None:
        """Metrics of the user's own, all of one step; `{"val": {"acc": …}}` is `val/acc`."""
        record = self._event("scalars", step, {"epoch": epoch, "values": flat_names(values)})
        if step is not None:
            self._last = record

    @never_raises
    def eval(self, step: int, name: str, loss: Any = None, **fields: Any) -> None:
        """An evaluation: `ppl`, `samples`, `extra={…}` and whatever else it measured."""
        self._event("eval", step, {"name": name, "loss": loss, **fields}, phase="eval")

    @never_raises
    def sample(self, step: int, prompt: str, text: str, **fields: Any) -> None:
        """A text the model wrote."""
        self._event("sample", step, {"prompt": prompt, "text": text, **fields}, phase="decode")

    @never_raises
    def checkpoint(self, path: Any, /, step: int, loss: Any = None, **fields: Any) -> Path | None:
        """A checkpoint that is complete on the disk; `path` is kept relative to the run folder."""
        file = Path(path)
        self._event("checkpoint", step, {**self._folder.file_fields(file), "loss": loss, **fields})
        self._sink.sync()
        return file

    @never_raises
    def compare(
        self, step: int, baseline_run_id: str, loss_delta: Any, ppl_ratio: Any, verdict: str, **fields: Any
    ) -> None:
        """How the run stands against another: `ahead`, `behind`, `par` (within 1 %) or `abort`.

        `fields`: `metric`, which was compared, and what both runs have of it: `loss`, `baseline_loss`.
        """
        fields = {"loss_delta": loss_delta, "ppl_ratio": ppl_ratio, "verdict": verdict, **fields}
        self._event("compare", step, {"baseline_run_id": baseline_run_id, **fields})

    # -- looking inside ----------------------------------------------------------------------------------------

    @never_raises
    def tap(self, step: int, region: str, layer: int | None, head: int | None, **figures: Any) -> None:
        """A summary of activations: `shape`, `dtype`, `l2`, `abs_mean`, `nan_count`, `histogram`, `gram`, …"""
        self._event("tap", step, {"region": region, "layer": layer, "head": head, **figures}, keep=("layer", "head"))

    @never_raises
    def grad(self, step: int, param: str, **figures: Any) -> None:
        """A summary of one parameter's gradient: `shape`, `l2`, `abs_mean`, `nan_count`, `head`?"""
        self._event("grad", step, {"param": param, **figures})

    @never_raises
    def drift(self, step: int, param: str, cos_to_init: Any, l2_to_init: Any, **fields: Any) -> None:
        """How far a parameter is from where it began; `head`, `token_id`, `freq` where they apply."""
        figures = {"cos_to_init": cos_to_init, "l2_to_init": l2_to_init}
        self._event("drift", step, {"param": param, **figures, **fields})

    @never_raises
    def op_timing(self, step: int, compute_us: int, buckets: Mapping[str, int]) -> None:
        """Where a step's time went, in microseconds by operation."""
        self._event("op_timing", step, {"compute_us": compute_us, "buckets": buckets})

    @never_raises
    def align(self, step: int, li: int, wi: int, wname: str, cos: Any, dfa_norm: Any, bp_norm: Any) -> None:
        """How one weight's update agrees with back-propagation's. Readers key on `wname`."""
        figures = {"cos": cos, "dfa_norm": dfa_norm, "bp_norm": bp_norm}
        self._event("align", step, {"li": li, "wi": wi, "wname": wname, **figures}, phase="train")

    @never_raises
    def mask(self, step: int, li: int, wi: int, density: Any, wname: str | None = None) -> None:
        """The share of one weight that is in use; metrics are called by `wname`, where it is given."""
        self._event("mask", step, {"li": li, "wi": wi, "wname": wname, "density": density})

    @functools.partial(never_raises, instead=nullcontext)
    @contextmanager
    def region(self, step: int, region: str) -> Iterator[None]:
        """A named stretch of work, in a `with` block; regions may nest."""
        self.region_enter(step, region)
        try:
            yield
        finally:
            self.region_exit(step, region)

    @never_raises
    def region_enter(self, step: int, region: str, us: Any = None) -> None:
        """A stretch of work begins. `us`: microseconds since the step began, by the device's clock; None: `t` tells."""
        self._event("region_enter", step, {"region": region, "us": us})

    @never_raises
    def region_exit(self, step: int, region: str, us: Any = None) -> None:
        """The stretch that began last, and has not ended, ends."""
        self._event("region_exit", step, {"region": region, "us": us})

    @never_raises
    def looked(self, step: int, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """What a look has seen in a step, as the methods of its kinds write it, but by one call of the system."""
        if not self._open or self._append != self._sink.append:  # before its start, after its end: one by one
            for kind, fields in events:
                getattr(self, kind)(step, **fields)
            return
        records = []
        for kind, fields in events:
            record: dict[str, Any] = {"kind": kind, "t": 0.0, "step": step}
            if kind == "drift":  # these first, as `drift` has them
                record |= {name: fields[name] for name in ("param", "cos_to_init", "l2_to_init")}
            records.append({**record, **fields})
        self._sink.append_lines(records, _encode_figures)

    # -- the rest ----------------------------------------------------------------------------------------------

    @never_raises
    def note(
        self,
        text: str,
        step: int | None = None,
        level: Literal["warning", "error"] | None = None,
        metric: str | None = None,
    ) -> None:
        """A remark for whoever reads the run.

        One with a `level` stands in the log and as a mark on the curves: on that of `metric`, or on all.
        """
        self._event("note", step, {"text": text, "level": level, "metric": metric})

    @never_raises
    def artifact(self, source: str | os.PathLike[str], name: str | None = None, step: int | None = None) -> None:
        """Keep a file with the run: copied into `artifacts/`, with its size and SHA-256 in the stream."""
        file = Path(source)
        try:
            fields = self._folder.keep_artifact(file, name)
        except OSError as error:
            log.warning("run %s: artifact %s was not kept (%s)", self.run_id, safe_text(file), safe_text(error))
            return
        self._event("artifact", step, fields)

    @never_raises
    def resume(self, from_step: int | None = None, **fields: Any) -> None:
        """Training goes on from `from_step`: readers drop the steps beyond it that were logged before.

        None: it goes on where it was, and nothing is dropped.
        """
        origin = self.manifest.provenance
        process = {name: origin[name] for name in ("host", "pid", "boot_id")}
        if (step := whole_number(from_step)) is not None:
            self._last, self._last_loss = {"step": step}, {}
        self._event(
            "resume", from_step, {"resumed_at": iso_now(), **process, "git": origin.get("git") or None, **fields}
        )
        self._sink.sync()

    @never_raises
    def system(self, figures: Mapping[str, Any]) -> None:
        """Figures of the machine; `linnet.start` records them by itself."""
        self._event("system", None, figures)

    @never_raises
    def heartbeat(self) -> None:
        """Still alive, though there is nothing to say."""
        self._event("heartbeat", None, {"at": iso_now()})

    # -- within ------------------------------------------------------------------------------------------------

    def _event(
        self,
        kind: str,
        step: int | None,
        fields: Mapping[str, Any],
        *,
        phase: str | None = None,
        keep: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Write an event and return it. Its own fields win, others of those names go under `values`.

        `keep`: fields whose null says something.
        """
        own = drop_none({"kind": kind, "phase": phase, "t": 0.0, "step": step})
        others = {safe_text(name): value for name, value in fields.items() if value is not None or name in keep}
        if not self._started:
            self._imply_run_start()
        record = jsonable_record(join_fields(own, others))
        self._append(record)
        return record

    def _imply_run_start(self) -> None:
        """An event came before `run_start`: the stream must begin with one, of what is known."""
        self.run_start(str(self.manifest.model.get("arch", "unknown")))
        self._start_implied = True

    def _before_end(self) -> None:
        """A hook for what must be written before the last event."""

    def _too_late(self, record: dict[str, Any]) -> None:
        self._append = lambda _: None
        log.warning("run %s has ended; a %s event after its end is left out", self.run_id, record.get("kind"))

    def _complain(self, method: str, error: Exception) -> None:
        """A call that cannot be understood is a fault of the program, but not one worth a week of training."""
        if method not in self._complaints:
            self._complaints.add(method)
            kind, text = type(error).__name__, safe_text(error)
            log.warning("run %s: a call of %s() was left out (%s: %s)", self.run_id, method, kind, text)

    def _maintain(self) -> None:
        self._sink.maintain()
        self._folder.points.collect()
        if self._folder.manifest_due and not self._ended:
            self._folder.write_manifest()

    def _beat(self) -> None:
        """A heartbeat of the background thread, which never comes before `run_start`."""
        if self._open:
            self.heartbeat()

    def _sample_system(self) -> None:
        if self._probe is None:
            from linnet.runs.system import SystemProbe

            self._probe = SystemProbe(self.run_dir)
            time.sleep(0.1)  # the first rates need an interval to be taken over
        if self._open:
            self.system({**self._probe.figures(), **self.more_system_figures()})
