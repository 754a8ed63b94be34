"""What a training run made, and what to do with it next."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.board import words
from linnet.board.words import command, shown_path
from linnet.cli.terminal import paint, paint_status, width
from linnet.train.state import steps_with_state

if TYPE_CHECKING:
    from linnet.recipes import Training
    from linnet.train.loop import Outcome


def tell(training: Training, outcome: Outcome) -> None:
    """Print it."""
    progress = outcome.progress
    print(f"{paint(training.run_id, 'bold')} {paint_status(outcome.reason)} after {words.number(progress.step)} steps")
    if outcome.error:
        print(f"  {paint(words.plain(words.flags(outcome.error)), 'red')}")
    facts = [f"loss {words.number(progress.loss)}"]
    if progress.validation is not None:
        facts += _held_out(progress.validation.figures)
    facts.append(f"{words.number(progress.seen)} {training.unit} in {words.duration(outcome.seconds)}{_now(outcome)}")
    _print_wrapped("  ", " · ".join(facts))
    if outcome.gate is not None:
        verdict = paint("reached", "green") if outcome.gate["passed"] else paint("missed", "red")
        print(f"  gate {verdict}: {outcome.gate['metric']} {outcome.gate['value']} against {outcome.gate['threshold']}")
    _print_wrapped("  folder  ", shown_path(training.run_dir))
    model = _model(outcome)
    if model is not None:
        use = "a GGUF for llama.cpp, Ollama and LM Studio" if training.unit == "tokens" else "a GGUF with its classes"
        _print_wrapped("  model   ", f"{shown_path(model)} ({words.size(model.stat().st_size)}), {use}")
    if training.unit == "images" and progress.validation is not None:
        pictures = shown_path(training.run_dir / "artifacts")
        _print_wrapped("  wrong   ", f"{pictures}: what was taken for what, as pictures")
    print()
    for line in _next_commands(training, outcome, model is not None):
        print(f"  {line}")


def _next_commands(training: Training, outcome: Outcome, has_model: bool) -> list[str]:
    """What to type now; only what can work."""
    lines = [command("show", training.run_dir)]
    if has_model and training.unit == "tokens":
        lines.append(command("generate", training.run_dir, '--prompt "…"'))
    elif has_model:
        lines.append(command("classify", training.run_dir, "IMAGE…"))
    if outcome.reason != "completed" and steps_with_state(training.run_dir):
        lines.append(command("resume", training.run_dir))
    return lines


def _print_wrapped(label: str, text: str) -> None:
    """A line that begins with `label`; where the terminal is narrow, its rest below the text."""
    below = " " * len(label)
    print(
        textwrap.fill(
            words.plain(text),
            max(40, width() - 1),
            initial_indent=label,
            subsequent_indent=below,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def as_json(training: Training, outcome: Outcome) -> dict[str, object]:
    """The same for other programs."""
    progress = outcome.progress
    held = progress.validation.figures if progress.validation else {}
    model = _model(outcome)
    return {
        "run_id": training.run_id,
        "run_dir": str(training.run_dir.absolute()),
        "reason": outcome.reason,
        "error": words.flags(outcome.error) if outcome.error else None,
        "steps": progress.step,
        "final_loss": progress.loss,
        "validation_loss": held.get("loss"),
        "validation_ppl": held.get("ppl"),
        "validation_accuracy": held.get("accuracy"),
        "bits_per_byte": held.get("bits_per_byte"),
        training.unit: progress.seen,
        "seconds": outcome.seconds,
        "model": str(model.absolute()) if model is not None else None,
        "quality_gate": outcome.gate,
    }


def _held_out(figures: dict[str, float]) -> list[str]:
    """What the last evaluation found, in words."""
    if "accuracy" in figures:
        return [f"held-out {figures['accuracy']:.2%} right (loss {words.number(figures['loss'])})"]
    facts = [f"held-out {words.number(figures['loss'])} (ppl {words.number(figures['ppl'])})"]
    if "bits_per_byte" in figures:
        facts.append(f"{words.number(figures['bits_per_byte'])} bits per byte")
    return facts


def _now(outcome: Outcome) -> str:
    """Of a run that was resumed, the part of its time that was spent since."""
    before = outcome.progress.seconds
    return f" (this session: {words.duration(outcome.seconds - before)})" if before else ""


def _model(outcome: Outcome) -> Path | None:
    """The newest checkpoint; None where the run ended before its first, or lost it."""
    return outcome.model if outcome.model is not None and outcome.model.is_file() else None
