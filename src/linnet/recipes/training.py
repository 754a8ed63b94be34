"""A job on its way: started, or resumed. Data, device, run folder, recipe, loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from linnet import gguf
from linnet.data.errors import NAMED
from linnet.errors import LinnetError, UsageError, is_out_of_memory
from linnet.files import step_path
from linnet.recipes.baseline import baseline_callback, baseline_remark, check_baseline, with_baseline
from linnet.recipes.first_weights import copy_weights, first_weights, keep_first_weights
from linnet.recipes.fork import ForkPoint
from linnet.recipes.inspecting import inspector_of, is_inspected, require_inspectable
from linnet.recipes.job import Job, PrepareProgress, Rows, weights_of_layers
from linnet.recipes.rank_guard import rank_remarks, require_same_training, require_shared_folder, sharing_of
from linnet.recipes.recipe import AnyRecipe
from linnet.recipes.registry import imported, recipe_type
from linnet.recipes.restart import PreviousRun
from linnet.recipes.resume_checks import (
    check_pair,
    check_same_data,
    check_steps_left,
    newest_step,
    with_data_and_loss,
)
from linnet.recipes.teacher import TeacherFile, admitted, prepare_teacher, teacher_remark
from linnet.runs import Run, RunStore, Session
from linnet.runs import start as start_run
from linnet.runs.baseline import Baseline, Comparison
from linnet.runs.folder import WEIGHTS, check_template, require_writable
from linnet.runs.mirror import Mirror, MirrorReport, check_mirror
from linnet.train.baseline_callback import BaselineCallback
from linnet.train.callback import Callback, Callbacks
from linnet.train.flow import write_flow
from linnet.train.hardware import Hardware, choose
from linnet.train.inspection.inspector import Inspector
from linnet.train.loop import Loop
from linnet.train.metrics import Gate
from linnet.train.mirror_callback import MirrorCallback
from linnet.train.plan import Plan, make_plan, shortages
from linnet.train.process import StopSignals
from linnet.train.progress import Outcome, Progress
from linnet.train.protocols import RunData
from linnet.train.ranks import ALONE, Ranks, join
from linnet.train.state import load, state_path
from linnet.train.step import LossFunction

if TYPE_CHECKING:
    from torch import Tensor

_USUAL_SHARE = 0.4  # of a device's arithmetic, that a training comes to


class JobData(RunData, Protocol):
    """The data of a run, and the job that was given with what was found in them."""

    job: Job

    @property
    def left_out(self) -> tuple[str, ...]:
        """What of the data is not trained on, each by its name and with the reason."""
        ...


class Training:
    """A job on its way: made by `start` or `resume`, run once."""

    def __init__(
        self,
        session: Session,
        run_dir: Path,
        loop: Loop,
        remarks: Iterable[str] = (),
        ranks: Ranks = ALONE,
        mirror: Mirror | None = None,
        compared: BaselineCallback | None = None,
    ) -> None:
        self.run_dir, self.ranks = run_dir, ranks
        self.run_id = session.run_id
        self.unit = loop.unit  # what is counted: tokens or images
        self._session, self._compared = session, compared
        self._loop, self._remarks, self._mirror = loop, tuple(remarks), mirror
        self.mirrored: MirrorReport | None = None  # at the end, where the run has a mirror
        self.waiting: Callable[[str], None] = lambda _: None  # told when the end of the run waits for its mirror

    @property
    def plan(self) -> Plan | None:
        """What it will take; with the expected time once that is known."""
        return self._loop.plan

    @property
    def standing(self) -> tuple[str, Comparison] | None:
        """The baseline's id and how the run stands beside it; None without one, or where nothing was compared."""
        return None if self._compared is None else self._compared.standing

    def run(self) -> Outcome:
        """Train to the end and close the run with the true reason."""
        with StopSignals() as stop:
            try:
                with self._session as session:
                    outcome = self._loop.run(stop, self._remarks)
                    progress = outcome.progress
                    session.run_end(
                        progress.step or None,
                        progress.loss,
                        outcome.reason,
                        error=outcome.error,
                        quality_gate=outcome.gate,
                        exit_code=outcome.exit_code,
                    )
                if outcome.reason != "errored":  # else a rank may be gone
                    self.ranks.wait()  # until rank 0 has written it all
                if self._mirror is not None:  # the run is closed: whatever ends this, nothing of it is lost
                    self.mirrored = self._mirror.finish(lambda: bool(stop.caught), self.waiting)
            finally:
                if self._mirror is not None:
                    self._mirror.close()
        return outcome


def start(
    job: Job,
    *,
    runs_root: str | os.PathLike[str] | None = None,
    callbacks: Iterable[Callback] = (),
    preparing: PrepareProgress | None = None,
    run_id: str | None = None,
    fork: ForkPoint | None = None,
    previous: PreviousRun | None = None,
    **labels: Any,
) -> Training:
    """Prepare everything and claim a run folder; nothing is made when the job cannot be done.

    `run_id`: or a template for it, `{recipe}-{date}-{seq}`. `fork`: the checkpoint to begin at, whose job this is.
    `previous`: a run of the same command that came to no checkpoint; it is begun again in its folder.
    `labels`: name, experiment, tags, group, parent, flags.
    """
    ranks = join(job.settings.device, job.settings.rank_timeout)
    # A donor: nobody needs it once the recipe is built.
    with ranks.together(), job.donor if job.donor is not None else nullcontext():
        if run_id is not None and "{" in run_id:
            check_template(run_id)
            labels, run_id = {**labels, "template": run_id}, None
        if job.settings.gate:
            Gate.parse(job.settings.gate)
        if job.settings.mirror:
            check_mirror(job.settings.mirror)
        root, listeners = require_writable(runs_root), Callbacks(callbacks)
        job, baseline = with_baseline(job, runs_root, ranks)
        recipe, data, hardware, job = prepare(job, preparing, fork, ranks)
        check_baseline(baseline, job, data)
        first: Mapping[str, Tensor] | None = None
        progress, remarks = Progress(), []
        if fork is not None:
            progress, remark = fork.restore(recipe, data)
            remarks.append(remark)
            labels = {**labels, "parent": fork.run.id, "parent_step": fork.step, "from_step": fork.step}
        if ranks.is_first and is_inspected(job, "drift"):
            first = copy_weights(recipe)
        plan = plan_of(recipe, data, job, hardware, progress.step)
    require_same_training(recipe, data, job, ranks)
    start_fields = _start_fields(recipe, data, job, hardware, plan, baseline)
    with ranks.together():
        if previous is not None:
            session = _reopen(previous.run, job, progress.step, start_fields, ranks, flags=previous.kept_flags)
        else:
            session = start_run(
                root,
                run_id=run_id,
                arch=job.model.arch,
                recipe=recipe.name,
                model=job.model_fields(),
                config=job.config_fields(),
                exact=job.config_fields().keys(),  # resume reads them back
                total_steps=None if plan.steps is None else job.settings.steps,
                device=hardware.backend,
                plan=plan.fields(),
                mode=ranks.mode,  # a training always has its folder: that is where its checkpoints go
                **start_fields,
                **labels,
            )
        if ranks.is_first and not session.active:
            session.finish("errored", "the run folder cannot be written")
            raise LinnetError(f"the run folder {session.run_dir} cannot be written; choose another place with `runs`")
    with _ended_by_errors(session):
        run_dir = require_shared_folder(session, root, ranks)
        with ranks.together():
            if ranks.is_first:
                write_flow(session.run_dir, recipe.model, job.settings.batch, job.ctx)
            if first is not None:
                keep_first_weights(session.run_dir, session.run_id, job, first, forked=fork is not None)
            for remark in (*remarks, *data.remarks):
                session.note(remark)
            if len(data.left_out) > NAMED:  # a note names the first few of them
                session.text(0, "left out", "\n".join(data.left_out))
            inspector = inspector_of(session, job, data, recipe, hardware, first)
        loop_arguments: dict[str, Any] = {"inspector": inspector, "early_remarks": remarks, "baseline": baseline}
        return _training(session, run_dir, job, data, recipe, hardware, progress, listeners, plan, **loop_arguments)


@contextmanager
def _ended_by_errors(session: Session) -> Iterator[None]:
    """A run that is there and cannot be trained after all ends with the error, and not as if it were done."""
    try:
        yield
    except BaseException as error:
        session.__exit__(type(error), error, error.__traceback__)
        raise


def plan_of(recipe: AnyRecipe, data: JobData, job: Job, hardware: Hardware, done: int) -> Plan:
    """What a training that is built will take, after the steps that are done."""
    sharing = sharing_of(recipe, data, hardware)
    return make_plan(recipe, data, job.settings, hardware, prompts=len(job.prompts), done=done, sharing=sharing)


def prepare(
    job: Job,
    preparing: PrepareProgress | None = None,
    fork: ForkPoint | None = None,
    ranks: Ranks = ALONE,
) -> tuple[AnyRecipe, JobData, Hardware, Job]:
    """The recipe of a new job, built, with its data and device, and the job with what was found out on the way.

    That of a fork is still to be given the checkpoint.
    """
    hardware = _hardware(job, ranks)
    job = recipe_type(job.recipe).admitted(admitted(job, hardware))
    data = _read(job, hardware, preparing, tokenizer=None if fork is None else _tokenizer_in(fork.weights))
    if fork is not None:
        if not fork.has_same_tokens(data):
            data = _read(replace(job, data=fork.with_tokens(job.data)), hardware, preparing)
        fork.place(data)
    prepare_teacher(data, hardware, begun=False)
    if data.job.teacher is not None and data.job.teacher.teacher_cache is not None:
        hardware = _hardware(data.job, ranks)  # as a resume chooses it: the teacher does not run
    if fork is None or data.job.settings.lr is None:
        _settle(data, hardware)
    recipe, job = _built(data, hardware, resumed=fork is not None)
    _check_metrics(job, data)
    require_inspectable(job, data, hardware)
    return recipe, data, hardware, job


def resume(
    run: Run | str | os.PathLike[str],
    *,
    steps: int | None = None,
    force: bool = False,
    callbacks: Iterable[Callback] = (),
    preparing: PrepareProgress | None = None,
    rows: Rows | None = None,
    loss: LossFunction | None = None,
    runs_root: str | os.PathLike[str] | None = None,
    previous: PreviousRun | None = None,
) -> Training:
    """Continue a run from its newest checkpoint, to the bit where the run is repeatable.

    One that was killed between its last checkpoint and its end is closed as completed.

    - `run`: one that is open, or its name in the folder `runs_root`.
    - `rows`, `loss`: those of the program, where the run was started with its own.
    - `previous`: the run as the same command found it again, with the flags that it is given now.
    """
    listeners = Callbacks(callbacks)
    run = run if isinstance(run, Run) else RunStore(runs_root).find(os.fspath(run))
    job = Job.from_fields(run.manifest.model, run.manifest.config, run.manifest.recipe)
    ranks = join(job.settings.device, job.settings.rank_timeout)
    with ranks.together():
        at = newest_step(run, free=previous is not None)
    at = ranks.first(at)
    with ranks.together():
        # Rank 0 looks for damage, all of both files; each rank then reads what it needs of them.
        state = load(state_path(run.path, at), verify=ranks.is_first and not force)
        weights = step_path(run.path / WEIGHTS, at)
        if ranks.is_first and not force:
            check_pair(run, at, state, weights)
        job = with_data_and_loss(run, job, weights, rows, loss)
        if steps is not None:
            job = replace(job, settings=replace(job.settings, steps=steps, minutes=None))
        if previous is not None:
            job = previous.changed(job)
        job, baseline = with_baseline(job, run.path.parent, ranks, resumed=run)
        if job.settings.tokens is None and job.settings.epochs is None:
            check_steps_left(run, at, job.settings.steps)
        require_writable(run.path)
        hardware = _hardware(job, ranks)
        job = recipe_type(job.recipe).admitted(admitted(job, hardware, force=force), force=force)
        data = _read(job, hardware, preparing, tokenizer=_tokenizer_in(weights))
        if data.job.settings.lr is None:
            _settle(data, hardware)
        check_steps_left(run, at, data.job.settings.steps)
        prepare_teacher(data, hardware, begun=True)
        check_same_data(run, data, state, force)
        recipe, job = _built(data, hardware, resumed=True)
        recipe.restore(weights, state)
        _check_metrics(job, data)
        check_baseline(baseline, job, data)
        require_inspectable(job, data, hardware)
        first: Mapping[str, Tensor] | None = None
        if ranks.is_first and is_inspected(job, "drift"):
            first = first_weights(run.path, job, forked=run.manifest.parent is not None)
        plan = plan_of(recipe, data, job, hardware, at)
    require_same_training(recipe, data, job, ranks, state.digest)
    flags = None if previous is None else previous.kept_flags
    start_fields = _start_fields(recipe, data, job, hardware, plan, baseline)
    changed = steps is not None or previous is not None
    with ranks.together():
        session = _reopen(run, job, at, start_fields, ranks, changed=changed, flags=flags)
    progress = Progress.from_facts(at, state.facts)
    with _ended_by_errors(session):
        with ranks.together():
            inspector = inspector_of(session, job, data, recipe, hardware, first, state)
        loop_arguments: dict[str, Any] = {"inspector": inspector, "baseline": baseline}
        return _training(session, run.path, job, data, recipe, hardware, progress, listeners, plan, **loop_arguments)


def _hardware(job: Job, ranks: Ranks) -> Hardware:
    head_size = job.model.head_size if job.loss is None else None
    weights = weights_of_layers(job.model)
    if job.teacher is not None and job.teacher.teacher_cache is None:
        weights += TeacherFile(job.teacher.teacher).layer_weights // 3  # it passes forwards only
    together = 1
    if job.learns_preferences:
        weights += weights // 3  # the base passes forwards as well
        together = 2  # a pair stands in two rows
    hardware = choose(
        job.settings,
        tokens=job.tokens_at_once,
        weights=weights,
        ranks=ranks,
        head_size=head_size,
        together=together,
    )
    if job.loss is None:
        return hardware
    # A function of the user's may do anything: it is run as it stands, in one thread.
    why = f"{hardware.why}; a loss of one's own: neither compiled nor captured"
    return replace(hardware, compile=False, graph=False, halves=False, why=why)


def _tokenizer_in(weights: Path) -> Path | None:
    """A checkpoint to read the tokenizer from; None where it has none, as an adapter: then the job's file is read."""
    with gguf.GGUFFile.open(weights) as file:
        return None if file.is_adapter else weights


def _read(job: Job, hardware: Hardware, preparing: PrepareProgress | None, tokenizer: Path | None = None) -> JobData:
    data: JobData = imported(job.data.run_data)(job, hardware, preparing, tokenizer)
    return data


def _settle(data: JobData, hardware: Hardware) -> None:
    """Fill in the rates that were not given, now that tokens and steps are known.

    Several ranks may not ask each other here, as one of them may have failed: what they take must not depend on the
    speed that each has measured.
    """
    job = data.job
    steps = _expected_steps(job, data.per_step, hardware) if hardware.ranks.alone else None
    corpus = data.per_epoch if job.settings.minutes is None or steps is not None else None
    settings = recipe_type(job.recipe).settled(job, data.per_step, steps, corpus=corpus)
    data.settings = settings
    data.job = replace(job, settings=settings)


def _expected_steps(job: Job, tokens: int, hardware: Hardware) -> int | None:
    """About how many steps a run by the clock will have, by its arithmetic; None where the device's is not known."""
    peak = hardware.peak_flops
    if peak is None or job.settings.minutes is None:
        return None
    weights = weights_of_layers(job.model) + job.model.d_model * getattr(job.model, "vocab", 0)
    seconds = 6.0 * weights * tokens / (_USUAL_SHARE * peak * hardware.ranks.count)
    return max(1, round(60 * job.settings.minutes / seconds))


def _reopen(
    run: Run,
    job: Job,
    step: int,
    start_fields: dict[str, Any],
    ranks: Ranks,
    *,
    changed: bool = True,
    flags: dict[str, Any] | None = None,
) -> Session:
    """Go on writing a run, from a step on. `changed`: its settings may be others than `run.json` has."""
    session = start_run(
        run.path.parent, resume=run.path.name, from_step=step, strict=True, mode=ranks.mode, **start_fields
    )
    if changed and ranks.is_first:
        settings = {**session.manifest.config, **job.config_fields()}
        if job.settings.minutes is None:
            session.manifest.total_steps = job.settings.steps
            settings.pop("minutes", None)
        session.manifest.config = settings
        session.manifest.flags = session.manifest.flags if flags is None else flags
        session.manifest.compare_to = start_fields.get("compare_to", session.manifest.compare_to)
        session.manifest.write(session.run_dir)
    return session


def _built(data: JobData, hardware: Hardware, *, resumed: bool) -> tuple[AnyRecipe, Job]:
    """The job's recipe, ready to step, and the job with what was found out on the way."""
    try:
        return recipe_type(data.job.recipe).from_job(data.job, data, hardware, resumed)
    except RuntimeError as problem:
        if not is_out_of_memory(problem):
            raise
        raise LinnetError(
            f"the model does not fit into the memory of {hardware.device}: choose a smaller one"
        ) from None


def _check_metrics(job: Job, data: RunData) -> None:
    """Refuse a gate on a metric that the run will not have, and patience where nothing is evaluated."""
    settings = job.settings
    if settings.patience is not None and (settings.eval_every == 0 or not data.held_out_metrics):
        missing = "`eval_every=0` makes none" if settings.eval_every == 0 else "nothing is held out (`held_out`)"
        raise UsageError(f"`patience` waits for a better evaluation, and {missing}: leave it out, or evaluate")
    if settings.gate:
        held_out = data.held_out_metrics if settings.eval_every != 0 else ()
        Gate.parse(settings.gate).require([*data.step_metrics, *(f"validation/{name}" for name in held_out)])


def _start_fields(
    recipe: AnyRecipe, data: JobData, job: Job, hardware: Hardware, plan: Plan, baseline: Baseline | None
) -> dict[str, Any]:
    """What the run really does, for `run_start`: derived settings, what `auto` became, its cost, its baseline."""
    tokens = data.per_step if data.unit == "tokens" else None
    at_once = job.settings.batch // 2 if hardware.halves else job.settings.batch
    rows = data.rows_per_step // hardware.ranks.count
    derived = {
        **hardware.fields(),
        "passes": -(-rows // at_once),  # of one rank, for one step
        "shard": sharing_of(recipe, data, hardware).shard,
        **recipe.chosen(data.rows_per_step),
        **job.settings.derived(tokens),
    }
    compared = {} if baseline is None else {"compare_to": baseline.id}
    return {
        "schedule": job.settings.schedule_fields(),
        "chosen": derived,
        "cost": plan.cost(recipe.trained),
        **compared,
    }


def _training(
    session: Session,
    run_dir: Path,
    job: Job,
    data: RunData,
    recipe: AnyRecipe,
    hardware: Hardware,
    progress: Progress,
    callbacks: Callbacks,
    plan: Plan,
    *,
    inspector: Inspector | None,
    early_remarks: Iterable[str] = (),
    baseline: Baseline | None,
) -> Training:
    progress.fingerprints = {"config": job.fingerprint(), "data": data.fingerprint}
    mirror = None
    if job.settings.mirror and hardware.ranks.is_first:
        mirror = Mirror(session.run_dir, job.settings.mirror)
        callbacks = callbacks.followed_by(MirrorCallback(mirror))
    compared = None
    if baseline is not None:
        compared = baseline_callback(baseline, job, data, progress, callbacks)
        callbacks = callbacks.followed_by(compared)
    loop_arguments: dict[str, Any] = {
        "progress": progress,
        "callbacks": callbacks,
        "plan": plan,
        "inspector": inspector,
    }
    loop = Loop(recipe, data, job.settings, hardware, session, **loop_arguments)
    remarks = [hardware.why, *rank_remarks(recipe, data, hardware), *early_remarks, *data.remarks]
    if recipe.remark is not None and progress.step == 0:
        remarks.append(recipe.remark)
    if job.teacher is not None:
        remarks.append(teacher_remark(job.teacher, int(job.model.vocab)))  # type: ignore[union-attr]
    if (remark := baseline_remark(baseline, job)) is not None:
        remarks.append(remark)
    all_remarks = [*remarks, *shortages(plan, run_dir)]
    return Training(session, run_dir, loop, all_remarks, hardware.ranks, mirror, compared)
