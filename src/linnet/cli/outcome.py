"""What a training run made, and what to do with it next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from linnet.board import words
from linnet.cli.terminal import paint, paint_status
from linnet.gguf import GGUFError, resolve_link

if TYPE_CHECKING:
    from linnet.recipes import Training
    from linnet.train.loop import Outcome


def tell(training: Training, outcome: Outcome) -> None:
    """Print it."""
    progress = outcome.progress
    print(f"{paint(training.run_id, 'bold')} {paint_status(outcome.reason)} after {words.number(progress.step)} steps")
    if outcome.error:
        print(f"  {paint(words.plain(outcome.error), 'red')}")
    facts = [f"loss {words.number(progress.loss)}"]
    if progress.validation is not None:
        facts += _held_out(progress.validation.figures)
    facts.append(f"{words.number(progress.seen)} {training.unit} in {words.duration(outcome.seconds)}")
    print(f"  {' · '.join(facts)}")
    if outcome.gate is not None:
        verdict = paint("reached", "green") if outcome.gate["passed"] else paint("missed", "red")
        print(f"  gate {verdict}: {outcome.gate['metric']} {outcome.gate['value']} against {outcome.gate['threshold']}")
    print(f"  folder  {training.run_dir}")
    model = _model(training)
    if model is not None:
        what = "a GGUF for llama.cpp, Ollama and LM Studio" if training.unit == "tokens" else "a GGUF with its classes"
        print(f"  model   {model} ({words.size(model.stat().st_size)}), {what}")
    if training.unit == "images" and progress.validation is not None:
        print(f"  wrong   {training.run_dir / 'artifacts'}: what was taken for what, as pictures")
    print(f"\n  linnet show {training.run_id}")
    if model is not None:
        use = 'generate {} --prompt "…"' if training.unit == "tokens" else "classify {} IMAGE…"
        print(f"  linnet {use.format(training.run_id)}")
    if outcome.reason != "completed":
        print(f"  linnet resume {training.run_id}")


def as_json(training: Training, outcome: Outcome) -> dict[str, object]:
    """The same for other programs."""
    progress = outcome.progress
    held = progress.validation.figures if progress.validation else {}
    model = _model(training)
    return {
        "run_id": training.run_id,
        "run_dir": str(training.run_dir),
        "reason": outcome.reason,
        "error": outcome.error,
        "steps": progress.step,
        "final_loss": progress.loss,
        "validation_loss": held.get("loss"),
        "validation_ppl": held.get("ppl"),
        "validation_accuracy": held.get("accuracy"),
        "bits_per_byte": held.get("bits_per_byte"),
        training.unit: progress.seen,
        "seconds": outcome.seconds,
        "model": str(model) if model is not None else None,
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


def _model(training: Training) -> Path | None:
    try:
        return resolve_link(training.run_dir / "weights" / "latest")
    except GGUFError:  # it ended before its first checkpoint
        return None
