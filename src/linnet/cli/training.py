"""A training on the screen, from its start to what it made and what to do with it next; `linnet resume`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.board import words
from linnet.cli.options import AsJson, RunName, RunsFolder
from linnet.cli.printing import paint, paint_status, print_json, width, wrapped
from linnet.cli.streams import complain, draw_over, lasting_output
from linnet.files import step_of
from linnet.gguf.card import read_card
from linnet.runs import Run
from linnet.train.process import is_first_rank

if TYPE_CHECKING:
    from linnet.recipes import Job, Training
    from linnet.recipes.fork import ForkPoint
    from linnet.recipes.restart import PreviousRun
    from linnet.recipes.training import JobData
    from linnet.train.plan import Plan
    from linnet.train.progress import Outcome


def resume(
    run: RunName = "latest",
    /,
    *,
    steps: int | None = None,
    force: bool = False,
    gpus: str | None = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Go on with a run from its newest checkpoint, to the bit where the run is repeatable.

    Args:
        steps: Train up to this step instead of the run's last one.
        force: Go on although the corpus or the config has changed.
        gpus: A number, or all: go on on so many GPUs of this machine, a process each, which torchrun starts.
    """
    from linnet.cli.torchrun import start_ranks
    from linnet.recipes import resume
    from linnet.remote import is_url

    start_ranks(gpus, "auto")

    if is_url(run):
        from linnet.cli.mirror import fetched

        run = str(fetched(run, runs))

    return run_training(partial(resume, run, steps=steps, force=force, runs_root=runs), json)


def run_training(begin: Callable[..., Training], json: bool) -> int:
    """Train to the end on the screen, or in silence for `json`; the exit code. `begin`: `start` or `resume`."""
    from linnet.cli.progress import preparing, screen_for

    with lasting_output():
        silent = json or not is_first_rank()
        screen = {} if silent else {"callbacks": [screen_for()], "preparing": preparing}
        return finish(begin(**screen), json)


def print_plan(job: Job, json: bool, fork: ForkPoint | None = None) -> int:
    """What a job would take, with nothing made; the exit code."""
    from linnet.cli.plan import plan_lines, time_line
    from linnet.cli.progress import preparing
    from linnet.recipes.dry_run import dry_run

    shows = is_first_rank() and not json
    terminal = shows and sys.stdout.isatty()
    left_out: list[str] = []

    def on_data(data: JobData) -> None:
        left_out.extend(map(words.flags, data.left_out))
        for remark in data.remarks if shows else ():
            print(paint(wrapped(words.flags(remark), max(20, width() - 1)), "dim"))

    def on_plan(plan: Plan) -> None:
        print("\n".join(plan_lines(plan)), flush=True)
        if terminal:
            draw_over(paint("time  a few steps on trial …", "dim"), sys.stdout)

    plan = dry_run(job, preparing if shows else None, fork, on_data, on_plan if shows else None)
    if terminal:
        draw_over("", sys.stdout)
    if shows:
        print(time_line(plan))
    elif is_first_rank():
        print_json({**plan.fields(), "left_out": left_out})
    return 0


def print_done(previous: PreviousRun, json: bool) -> int:
    """Say that a run has nothing left to do; the exit code it had."""
    if not is_first_rank():
        return previous.exit_code
    summary = previous.run.summarize()
    folder, end = previous.run.path, summary.end or {}
    if json:
        facts = {"run_id": previous.run.id, "run_dir": str(folder.absolute()), "reason": "completed"}
        loss, gate = summary.latest.get("loss"), end.get("quality_gate")
        print_json({**facts, "error": None, "steps": summary.step, "final_loss": loss, "quality_gate": gate})
    else:
        done = f"{paint_status('completed')} its {words.number(summary.step or 0)} steps before: nothing is left to do"
        print(f"{paint(previous.run.id, 'bold')} {done}\n\n  {words.command('show', folder)}")
    return previous.exit_code


def finish(training: Training, json: bool) -> int:
    """Run a training to its end and say what it made; the exit code."""
    if not json:
        training.waiting = lambda text: print(paint(words.plain(text), "dim"), flush=True)
    outcome = training.run()
    if not is_first_rank():
        if outcome.speaks and outcome.error:
            complain(outcome.error)  # rank 0 is gone
        return outcome.exit_code
    newest = outcome.model if outcome.model is not None and outcome.model.is_file() else None  # there may be none yet
    model = outcome.best or newest
    if json:
        print_json(_as_json(training, outcome, model))
    else:
        _print(training, outcome, model)
    return outcome.exit_code


def _print(training: Training, outcome: Outcome, model: Path | None) -> None:
    from linnet.train.state import steps_with_state

    progress, folder = outcome.progress, training.run_dir
    print(f"{paint(training.run_id, 'bold')} {paint_status(outcome.reason)} after {words.number(progress.step)} steps")
    if outcome.error:
        print(f"  {paint(words.plain(words.flags(outcome.error)), 'red')}")
    if outcome.early:
        _print_wrapped("  ", f"ended early: {words.flags(outcome.early)}")
    facts = [f"loss {words.number(progress.loss)}"]
    if progress.validation is not None:
        facts += _held_out(progress.validation.figures)
    before = progress.seconds  # of a run that was resumed
    now = f" (this session: {words.duration(outcome.seconds - before)})" if before else ""
    facts.append(f"{words.number(progress.seen)} {training.unit} in {words.duration(outcome.seconds)}{now}")
    _print_wrapped("  ", " · ".join(facts))
    if outcome.rise is not None:
        _print_wrapped("  warning ", words.flags(outcome.rise))
    if outcome.gate is not None:
        verdict = paint("reached", "green") if outcome.gate["passed"] else paint("missed", "red")
        print(f"  gate {verdict}: {outcome.gate['metric']} {outcome.gate['value']} against {outcome.gate['threshold']}")
    if training.standing is not None:
        baseline, comparison = training.standing
        at = "" if comparison.step == progress.step else f" at step {comparison.step:,}"
        _print_wrapped("  compare ", f"{comparison.standing(baseline)}{at}: {comparison.figures}")
    _print_wrapped("  folder  ", words.shown_path(folder))
    of_text = training.unit == "tokens"
    if model is not None:
        use = _use(model) if of_text else "a GGUF with its classes"
        step = step_of(model)
        is_last = step is None or step == progress.step
        which = "" if is_last else f"step {step:,}, the best of {progress.step:,}; "
        _print_wrapped("  model   ", f"{words.shown_path(model)} ({words.size(model.stat().st_size)}), {which}{use}")
    if (mirrored := training.mirrored) is not None:
        advice = f"; {words.command('mirror', folder)} copies the rest" if mirrored.missing or mirrored.error else ""
        _print_wrapped("  mirror  ", f"{mirrored.sentence}{advice}")
    if not of_text and progress.validation is not None:
        _print_wrapped("  wrong   ", f"{words.shown_path(folder / 'artifacts')}: what was taken for what, as pictures")
    if not of_text and progress.step:
        _print_hint(progress.validation, folder, progress.step)
    next_commands = [words.command("show", folder)]
    if model is not None:
        verb, arguments = ("generate", '--prompt "…"') if of_text else ("classify", "IMAGE…")
        if "chat_format" in Run.load(folder).config:
            verb, arguments = "chat", ""
        next_commands.append(words.command(verb, folder, arguments))
    if "inspect" in Run.load(folder).config:
        next_commands.append(words.command("board", folder, "--view inside"))
    if outcome.reason != "completed" and steps_with_state(folder):
        next_commands.append(words.command("resume", folder))
    print("\n  " + "\n  ".join(next_commands))


def _use(model: Path) -> str:
    """What a checkpoint of text is for."""
    adapter = read_card(model).adapter
    if adapter is None:
        return "a GGUF for llama.cpp, Ollama and LM Studio"
    base = words.plain(words.shorten(adapter.base, 60))
    return f"an adapter of {base} for llama.cpp (--lora); linnet merge makes a model of both"


def _print_hint(validation: object, folder: Path, steps: int) -> None:
    """A classifier that has hardly learned: what to hold its accuracy against, and how to go on."""
    from linnet.train.images import ImageEvaluation

    if isinstance(validation, ImageEvaluation) and (baseline := validation.hardly_better) is not None:
        guess = f"naming one class for all would be right in {baseline:.0%}: it has hardly learned yet"
        _print_wrapped(
            "  hint    ", f"{guess}; train longer: {words.command('resume', folder, f'--steps {10 * steps}')}"
        )


def _held_out(figures: dict[str, float]) -> list[str]:
    """What the last evaluation found, in words."""
    if "accuracy" in figures:
        return [f"held-out {figures['accuracy']:.2%} right (loss {words.number(figures['loss'])})"]
    facts = [f"held-out {words.number(figures['loss'])} (ppl {words.number(figures['ppl'])})"]
    if "bits_per_byte" in figures:
        facts.append(f"{words.number(figures['bits_per_byte'])} bits per byte")
    return facts


def _print_wrapped(label: str, text: str) -> None:
    """A line that begins with `label`; where the terminal is narrow, its rest below the text."""
    print(
        textwrap.fill(
            words.plain(text),
            max(40, width() - 1),
            initial_indent=label,
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _as_json(training: Training, outcome: Outcome, model: Path | None) -> dict[str, object]:
    progress = outcome.progress
    held_out = progress.validation.figures if progress.validation else {}
    return {
        "run_id": training.run_id,
        "run_dir": str(training.run_dir.absolute()),
        "reason": outcome.reason,
        "error": words.flags(outcome.error) if outcome.error else None,
        "ended_early": words.flags(outcome.early) if outcome.early else None,
        "plan": training.plan.fields() if training.plan is not None else None,
        "steps": progress.step,
        "final_loss": progress.loss,
        "validation_loss": held_out.get("loss"),
        "validation_ppl": held_out.get("ppl"),
        "validation_accuracy": held_out.get("accuracy"),
        "bits_per_byte": held_out.get("bits_per_byte"),
        training.unit: progress.seen,
        "seconds": outcome.seconds,
        "best_step": progress.best_step,
        "best_validation_loss": progress.best_evaluation,
        "warning": words.flags(outcome.rise) if outcome.rise else None,
        "model": str(model.absolute()) if model is not None else None,
        "latest": str(outcome.model.absolute()) if outcome.model is not None else None,
        "mirror": None if training.mirrored is None else asdict(training.mirrored),
        "quality_gate": outcome.gate,
        "baseline": _standing_fields(training),
    }


def _standing_fields(training: Training) -> dict[str, object] | None:
    if training.standing is None:
        return None
    baseline, comparison = training.standing
    return {"run_id": baseline, "step": comparison.step, "share": comparison.share, **comparison.fields()}
