"""`RunBundle`: the writing side of a run folder, one method for each kind of event."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from linnet.runs import ids, provenance
from linnet.runs.clock import iso_now
from linnet.runs.encode import spell_record
from linnet.runs.folder import ARTIFACTS, EVENTS, WEIGHTS
from linnet.runs.glance import last_seconds, load_manifest
from linnet.runs.keeper import Keeper
from linnet.runs.manifest import Manifest, sync_folder
from linnet.runs.sink import Sink

log = logging.getLogger("linnet")


# What every event has of its own.
_OWN = ("kind", "phase", "t", "step", "nonfinite")

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _kept_from_the_loop(method: _Method) -> _Method:
    """Nothing that goes wrong in a method so marked reaches the training loop: it is warned about, once a run."""

    @functools.wraps(method)
    def guarded(self: RunBundle, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            self._complain(f"{method.__name__}()", error)

    return guarded  # type: ignore[return-value]


class LlamaShape(Protocol):
    """What `run_start_llama` reads off a config."""

    vocab: int
    d_model: int
    n_layers: int
    ctx: int


class VitShape(Protocol):
    """What `run_start_vit` reads off a config."""

    image_size: int
    patch_size: int
    d_model: int
    n_layers: int
    num_classes: int


class RunBundle:
    """A run folder being written: `run.json` and the `toy/v1` stream.

    - `runs_root`: the folder of runs; made when missing.
    - `run_id`: the run's own folder. When it is taken, the next free one (`-2`, `-3` …) is used, with a warning.
      None: made from `template`, whose tokens `labels` fill in.
    - `resume`: go on in the folder `run_id` that is there already.
    - `system_every`: seconds between two `system` events; 0 for none.
    - `manifest`: more fields of `run.json`: name, experiment, group, parent, recipe, tags, total_steps,
      total_epochs, goals, model, config.

    Nothing here raises into a training loop: what cannot be written is warned about once, and kept if it can be.
    """

    def __init__(
        self,
        runs_root: str | os.PathLike[str],
        run_id: str | None = None,
        *,
        template: str = ids.TEMPLATE,
        labels: Mapping[str, str] | None = None,
        resume: bool = False,
        system_every: float = 0.0,
        **manifest: Any,
    ) -> None:
        root = Path(runs_root)
        self._git: dict[str, object] | None = None
        self._pid = os.getpid()
        self._started = self._ended = self._complained = False
        self._manifest_due = False
        if not (resume and run_id is not None and self._reopen(root, str(run_id), manifest)):
            self._begin(_claim(root, run_id, template, labels or {}), manifest)
        self._append: Callable[[dict[str, Any]], None] = self._sink.append
        self._probe: Any = None
        self._keeper = Keeper(self._tend, self._sink.size, self.heartbeat, self._sample_system, system_every)
        self._keeper.start()

    def _begin(self, folder: Path, fields: Mapping[str, Any]) -> None:
        self.run_dir, self.run_id = folder, folder.name
        self.manifest = Manifest(run_id=self.run_id, created_at=time.time(), **fields)
        self.manifest.config = provenance.mask_config(self.manifest.config)
        self.manifest.provenance = provenance.gather()
        self._write_manifest()
        sync_folder(folder.parent)
        self._sink = Sink(self.events_path, remade=self._move_to)

    def _reopen(self, root: Path, run_id: str, fields: dict[str, Any]) -> bool:
        """Go on in a folder that is there. False, with a word why: there is none, or it is not ours to write."""
        folder = root / run_id
        manifest = load_manifest(folder) if folder.parent == root else None
        if manifest is None:
            log.warning("there is no run %s in %s to resume; this is a new one", run_id, root)
            return False
        if manifest.dialect != "linnet":
            log.warning("%s was written by %s; this run goes on beside it", folder, manifest.dialect)
            fields["parent"] = run_id
            return False
        sink = Sink(folder / EVENTS, start_t=last_seconds(folder / EVENTS), remade=self._move_to)
        if sink.locked is False:
            sink.close()
            log.warning("%s is being written by another process; this run goes on beside it", folder)
            fields["parent"] = run_id
            return False
        self.run_dir, self.run_id = folder, run_id
        self._sink, self._started = sink, True
        self.manifest = manifest
        self.manifest.provenance = provenance.gather()
        self._write_manifest()
        return True

    # -- where things are --------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Events are reaching the disk."""
        return self._sink.active

    @property
    def events_path(self) -> Path:
        """The event stream."""
        return self.run_dir / EVENTS

    @property
    def weights_dir(self) -> Path:
        """The folder of checkpoints, made on first asking."""
        return self._subfolder(WEIGHTS)

    @property
    def artifacts_dir(self) -> Path:
        """The folder for files of the user's own, made on first asking."""
        return self._subfolder(ARTIFACTS)

    # -- beginning and end -------------------------------------------------------------------------------------

    def git(self, sha: str, branch: str) -> None:
        """Say which commit this is, before `run_start`; when not called it is found out."""
        self._git = {"sha": sha, "branch": branch}

    @_kept_from_the_loop
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
        **more: Any,
    ) -> None:
        """The first event: once, before any compute. `model` and `config` add to the fields named here.

        `more`: `schedule`, `name`, `compare_to`, `cost` or anything else the schema leaves open.
        """
        if self._started:
            log.warning("run %s: run_start was written already; this one is left out", self.run_id)
            return
        self._started = True
        shape = {"arch": arch, "vocab": vocab, "d_model": d_model, "n_layers": n_layers}
        settings = {"context": context, "steps": steps, "lr": lr, "seed": seed}
        self.manifest.model = {**_given(shape), **self.manifest.model, **(model or {})}
        self.manifest.config = {
            **_given(settings),
            **self.manifest.config,
            **provenance.mask_config(config or {}),
        }
        if self.manifest.total_steps is None:
            self.manifest.total_steps = steps
        origin = self.manifest.provenance
        if self._git is not None:
            origin["git"] = {**origin.get("git", {}), **self._git}
        self._write_manifest()
        record = {
            "kind": "run_start",
            "schema": "toy/v1",
            "t": 0.0,
            "started_at": iso_now(),
            "run_id": self.run_id,
            "phase": phase,
            "host": provenance.host(),
            "backend": {"kind": device or provenance.backend()},
            "git": origin.get("git") or None,
            "model": self.manifest.model,
            "config": self.manifest.config,
        }
        self._write(_given(record) | _given(more))
        self._sink.sync()

    @_kept_from_the_loop
    def run_start_llama(self, cfg: LlamaShape, steps: int, lr: float, seed: int, **more: Any) -> None:
        """`run_start` of a llama, its shape read off the config."""
        self.run_start("llama", cfg.vocab, cfg.d_model, cfg.n_layers, cfg.ctx, steps, lr, seed, **more)

    @_kept_from_the_loop
    def run_start_vit(self, cfg: VitShape, steps: int, lr: float, seed: int, **more: Any) -> None:
        """`run_start` of a vision transformer: the image's shape in `model`, no context in `config`."""
        model = {
            "arch": "vit",
            "image_size": cfg.image_size,
            "patch_size": cfg.patch_size,
            "d_model": cfg.d_model,
            "n_layers": cfg.n_layers,
            "num_classes": cfg.num_classes,
        }
        model |= more.pop("model", {})
        self.run_start("vit", steps=steps, lr=lr, seed=seed, model=model, **more)

    @_kept_from_the_loop
    def run_end(
        self,
        final_step: int | None,
        final_loss: float | None,
        reason: str = "completed",
        *,
        quality_gate: Mapping[str, Any] | None = None,
        error: str | None = None,
        exit_code: int | None = None,
        **more: Any,
    ) -> None:
        """The last event, with the true reason: `completed`, `interrupted`, `aborted` or `errored`.

        `quality_gate`: `{passed, metric, value, threshold}`. Closes the run; what is logged later is left out.
        """
        if self._ended or os.getpid() != self._pid:  # a forked child must not end its parent's run
            return
        if exit_code is None:
            missed = quality_gate is not None and not quality_gate.get("passed")
            exit_code = int(missed or reason in ("errored", "aborted"))
        if not self._started:
            self.run_start(str(self.manifest.model.get("arch", "unknown")))
        record = {"kind": "run_end", "t": 0.0, "ended_at": iso_now(), "reason": reason, "error": error}
        optional = {"quality_gate": quality_gate, "lost_events": self._sink.lost or None, **more}
        ending = {"final_step": final_step, "final_loss": final_loss}
        self._sink.close(spell_record(_given(record) | ending | _given(optional) | {"exit_code": exit_code}))
        self._ended = True
        self._append = self._too_late
        self._keeper.stop()
        if self._manifest_due:
            self._write_manifest()

    # -- training ----------------------------------------------------------------------------------------------

    @_kept_from_the_loop
    def step(self, step: int, loss: Any, **more: Any) -> None:
        """One optimiser step, counted from 1: loss in nats, and `lr`, `tokens`, `wall_us`, `grad_norm`, …"""
        self._event("step", step, {"loss": loss, **more}, phase="train")

    @_kept_from_the_loop
    def scalars(self, step: int | None, values: Mapping[str, Any], epoch: float | None = None) -> None:
        """Metrics of the user's own, all of one step."""
        self._event("scalars", step, {"epoch": epoch, "values": values})

    @_kept_from_the_loop
    def eval(self, step: int, name: str, loss: Any = None, **more: Any) -> None:
        """An evaluation: `ppl`, `samples`, `extra={…}` and whatever else it measured."""
        self._event("eval", step, {"name": name, "loss": loss, **more}, phase="eval")

    @_kept_from_the_loop
    def sample(self, step: int, prompt: str, text: str, **more: Any) -> None:
        """A text the model wrote."""
        self._event("sample", step, {"prompt": prompt, "text": text, **more}, phase="decode")

    @_kept_from_the_loop
    def checkpoint(self, path: Any, /, step: int, loss: Any = None, **more: Any) -> Path | None:
        """A checkpoint that is complete on the disk; `path` is kept relative to the run folder."""
        file = Path(path)
        self._event("checkpoint", step, {"path": self._relative(file), "bytes": _size(file), "loss": loss, **more})
        self._sink.sync()
        return file

    @_kept_from_the_loop
    def compare(self, step: int, baseline_run_id: str, loss_delta: Any, ppl_ratio: Any, verdict: str) -> None:
        """How the run stands against another: `ahead`, `behind`, `par` (within 1 %) or `abort`."""
        figures = {"loss_delta": loss_delta, "ppl_ratio": ppl_ratio, "verdict": verdict}
        self._event("compare", step, {"baseline_run_id": baseline_run_id, **figures})

    # -- looking inside ----------------------------------------------------------------------------------------

    @_kept_from_the_loop
    def tap(self, step: int, region: str, layer: int | None, head: int | None, **figures: Any) -> None:
        """A summary of activations: `shape`, `dtype`, `l2`, `abs_mean`, `nan_count`, `histogram`, `gram`, …"""
        self._event("tap", step, {"region": region, "layer": layer, "head": head, **figures}, keep=("layer", "head"))

    @_kept_from_the_loop
    def grad(self, step: int, param: str, **figures: Any) -> None:
        """A summary of one parameter's gradient: `shape`, `l2`, `abs_mean`, `nan_count`, `head`?"""
        self._event("grad", step, {"param": param, **figures})

    @_kept_from_the_loop
    def drift(self, step: int, param: str, cos_to_init: Any, l2_to_init: Any, **more: Any) -> None:
        """How far a parameter is from where it began; `head`, `token_id`, `freq` where they apply."""
        figures = {"cos_to_init": cos_to_init, "l2_to_init": l2_to_init}
        self._event("drift", step, {"param": param, **figures, **more})

    @_kept_from_the_loop
    def op_timing(self, step: int, compute_us: int, buckets: Mapping[str, int]) -> None:
        """Where a step's time went, in microseconds by operation."""
        self._event("op_timing", step, {"compute_us": compute_us, "buckets": buckets})

    @_kept_from_the_loop
    def align(self, step: int, li: int, wi: int, wname: str, cos: Any, dfa_norm: Any, bp_norm: Any) -> None:
        """How one weight's update agrees with back-propagation's. Readers key on `wname`."""
        figures = {"cos": cos, "dfa_norm": dfa_norm, "bp_norm": bp_norm}
        self._event("align", step, {"li": li, "wi": wi, "wname": wname, **figures}, phase="train")

    @_kept_from_the_loop
    def mask(self, step: int, li: int, wi: int, density: Any) -> None:
        """The share of one weight that is in use."""
        self._event("mask", step, {"li": li, "wi": wi, "density": density})

    @contextmanager
    def region(self, step: int, region: str) -> Iterator[None]:
        """A named stretch of work; regions may nest."""
        self._event("region_enter", step, {"region": region})
        try:
            yield
        finally:
            self._event("region_exit", step, {"region": region})

    # -- the rest ----------------------------------------------------------------------------------------------

    @_kept_from_the_loop
    def note(self, text: str, step: int | None = None) -> None:
        """A remark for whoever reads the run."""
        self._event("note", step, {"text": text})

    @_kept_from_the_loop
    def artifact(self, source: str | os.PathLike[str], name: str | None = None, step: int | None = None) -> None:
        """Keep a file with the run: copied into `artifacts/`, with its size and SHA-256 in the stream."""
        file = Path(source)
        target = self.artifacts_dir / (name or file.name)
        try:
            if not target.resolve().is_relative_to(self.artifacts_dir.resolve()):
                raise OSError(f"{name!r} leads out of the run's artifacts folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.resolve() != target.resolve():
                shutil.copyfile(file, target)
            with target.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            log.warning("run %s: artifact %s was not kept (%s)", self.run_id, file, error)
            return
        kept: dict[str, Any] = {"name": name or file.name, "path": self._relative(target), "bytes": _size(target)}
        self._event("artifact", step, {**kept, "sha256": digest})

    @_kept_from_the_loop
    def resume(self, from_step: int | None = None, **more: Any) -> None:
        """Training goes on from `from_step`: readers drop the steps beyond it that were logged before.

        None: it goes on where it was, and nothing is dropped.
        """
        origin = self.manifest.provenance
        here = {name: origin[name] for name in ("host", "pid", "boot_id")}
        self._event("resume", from_step, {"resumed_at": iso_now(), **here, "git": origin.get("git") or None, **more})
        self._sink.sync()

    @_kept_from_the_loop
    def system(self, figures: Mapping[str, Any]) -> None:
        """Figures of the machine; `linnet.start` records them by itself."""
        self._event("system", None, figures)

    @_kept_from_the_loop
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
    ) -> None:
        """Write an event. Its own fields win, others of those names go under `values`. `keep`: null says something."""
        own = {"kind": kind, **_given({"phase": phase}), "t": 0.0, **_given({"step": step})}
        rest = {str(name): value for name, value in fields.items() if value is not None or name in keep}
        if apart := {name: value for name, value in rest.items() if name in _OWN}:
            rest = {name: value for name, value in rest.items() if name not in _OWN} | {"values": apart}
        self._write(own | rest)

    def _write(self, record: dict[str, Any]) -> None:
        if not self._started:
            self.run_start(str(self.manifest.model.get("arch", "unknown")))
        self._append(spell_record(record))

    def _too_late(self, record: dict[str, Any]) -> None:
        self._append = lambda _: None
        log.warning("run %s has ended; a %s event after its end is left out", self.run_id, record.get("kind"))

    def _complain(self, what: str, error: Exception) -> None:
        """A call that cannot be understood is a fault of the program, but not one worth a week of training."""
        if not self._complained:
            self._complained = True
            log.warning("run %s: a call of %s was left out (%s: %s)", self.run_id, what, type(error).__name__, error)

    def _write_manifest(self) -> None:
        try:
            self.manifest.write(self.run_dir)
            self._manifest_due = False
        except Exception as error:  # the sink meets the same disk and warns; this is tried again with it
            self._manifest_due = True
            log.debug("run.json was not written: %s", error)

    def _move_to(self, folder: Path) -> None:
        """The folder was made again, perhaps under another name."""
        self.run_dir = folder
        if folder.name != self.run_id:
            self.run_id = self.manifest.run_id = folder.name
        self._write_manifest()

    def _tend(self) -> None:
        self._sink.tend()
        if self._manifest_due and not self._ended:
            self._write_manifest()

    def _sample_system(self) -> None:
        if self._probe is None:
            from linnet.runs.system import SystemProbe

            self._probe = SystemProbe(self.run_dir)
            time.sleep(0.1)  # the first rates need an interval to be taken over
        if self._started and not self._ended:
            self.system(self._probe.figures())

    def _subfolder(self, name: str) -> Path:
        folder = self.run_dir / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.warning("cannot make %s (%s)", folder, error.strerror or error)
        return folder

    def _relative(self, file: Path) -> str:
        try:
            return file.resolve().relative_to(self.run_dir.resolve()).as_posix()
        except ValueError:
            return str(file)


def _claim(root: Path, run_id: str | None, template: str, labels: Mapping[str, str]) -> Path:
    """A folder of our own; when the root cannot be written, the name it would have had."""
    ids.check_template(template)
    try:
        if run_id is None:
            return ids.claim(root, template, labels)
        folder = ids.claim_id(root, run_id)
        if folder.name != ids.clean(run_id):
            log.warning("run id %s is taken in %s; this run is %s", run_id, root, folder.name)
        return folder
    except OSError:
        return root / (ids.propose(root, template, labels) if run_id is None else ids.clean(run_id) or "run")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None
