"""`linnet eval --choices`: how often a model finds the right choice the likeliest."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.board import words
from linnet.cli.eval import adapter_facts, adapters_of, show_progress, tokenizer_file_of, window_of
from linnet.cli.printing import paint, print_facts, print_json, print_table
from linnet.errors import UsageError
from linnet.files import step_of
from linnet.gguf.adapter import chat_format_beside
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import donor_keys, rebuild_tokenizer
from linnet.runs.run import add_evaluation

if TYPE_CHECKING:
    import torch

    from linnet.infer import Accuracy, ChoicesScore
    from linnet.models.model_files import ModelFiles
    from linnet.runs import Run

_BY = {  # the ways in which a choice is the likeliest, by the names of lm-evaluation-harness
    "acc": "log p",
    "acc_norm": "log p a byte",
    "acc_token": "log p a token",
}


def eval_choices(
    files: ModelFiles,
    run: Run | None,
    choices: Path,
    *,
    chat: bool,
    ctx: int | None,
    tokenizer: Path | None,
    device: torch.device,
    json: bool,
    record: str | None,
) -> None:
    """Score a model on the rows of a file, print the figures, and leave them in its run where that was asked for."""
    from linnet.data.choices import read_choices
    from linnet.infer import ChoiceEncoder, score_choices
    from linnet.models import load

    rows = read_choices(choices)
    model = load(files.model, device, task="text", adapters=files.adapters)
    window = window_of(ctx, model, files.named)
    vocabulary = tokenizer_file_of(files.model, tokenizer, model.config.vocab)
    if vocabulary is None:
        raise UsageError(f"{files.named} has no tokenizer: give the one it was trained with, --tokenizer FILE.gguf")
    with GGUFFile.open(vocabulary) as file:
        metadata = {key: file.metadata[key] for key in donor_keys(file.metadata)}
    chat_format = chat_format_of(metadata, chat_format_beside(files.adapters)) if chat else None
    encoder = ChoiceEncoder(rebuild_tokenizer(metadata), metadata, chat_format)
    began = time.perf_counter()
    score = score_choices(model, encoder, rows, window, show_progress if sys.stderr.isatty() else None)
    result: dict[str, Any] = {
        "model": str(files.named),
        "device": str(device),
        **adapters_of(files),
        "choices": str(choices),
        "rows": len(score.rows),
        "ctx": window,
        "chat_format": None if chat_format is None else chat_format.name,
        **_figures(score),
        "chance": score.chance,
        "cut": score.cut,
        "seconds": time.perf_counter() - began,
    }
    if json:
        items = [
            {"answer": scored.row.answer, "logprobs": scored.logprobs, "tokens": scored.tokens, "bytes": scored.bytes}
            for scored in score.rows
        ]
        print_json({**result, "items": items})
    else:
        _print(result)
    if record is not None and run is not None:
        names = ("choices", "chat_format", "chance", "cut", *_figures(score))
        figures = {name: result[name] for name in names if result[name] is not None}
        add_evaluation(run, record, step_of(files.named), {**figures, "samples": result["rows"]})


def _figures(score: ChoicesScore) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name in _BY:
        accuracy: Accuracy = getattr(score, name)
        figures |= {name: accuracy.value, f"{name}_stderr": accuracy.stderr}
    return figures


def _print(result: dict[str, Any]) -> None:
    print(paint(words.plain(result["model"]), "bold"))
    longer = f"longer than the context of {result['ctx']:,} tokens and lost"
    cut = f"1 prompt is {longer} its" if result["cut"] == 1 else f"{result['cut']:,} prompts are {longer} their"
    chat_format = f", asked as {result['chat_format']}" if result["chat_format"] else ""
    print_facts(
        {
            **adapter_facts(result),
            "choices": f"{result['choices']}: {result['rows']:,} row{'s'[: result['rows'] != 1]}{chat_format}",
            "by chance": f"{result['chance']:.2%}",
            "cut": f"{cut} beginning" if result["cut"] else "",
            "took": words.duration(result["seconds"]),
        }
    )
    rows = []
    for name, meaning in _BY.items():
        error = result[f"{name}_stderr"]
        rows.append((meaning, f"{result[name]:.2%}", "" if error is None else f"± {error:.2%}", name))
    print_table(("likeliest by", "right", "", ""), rows, right=(1, 2))
