"""`linnet eval`: of a language model here, by multiple choice in choices.py, of a vision transformer in images.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.architectures import task_of
from linnet.board import words
from linnet.cli.options import AdapterNames, AnyBase, AsJson, ModelName, RunsFolder, find_model, print_choice
from linnet.cli.printing import paint, print_facts, print_json, print_table
from linnet.cli.prompt import Prompt, PromptFile, read_prompt
from linnet.cli.streams import draw_over
from linnet.data.errors import encodings_sentence, left_out_sentence, printable
from linnet.errors import UsageError
from linnet.files import step_of
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.runs import Run
from linnet.runs.run import add_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokenizers import Tokenizer

    from linnet.data import Prepared, TokenSet
    from linnet.data.conversation_blocks import TrainOn
    from linnet.models import LanguageModel
    from linnet.models.model_files import ModelFiles

_SHORT = 4096  # tokens: a longer window is not filled up where the text is shorter; a file may state a million
_TOKENS = "tokenizer.ggml.tokens"


def eval(
    model: ModelName,
    /,
    *,
    corpus: str | None = None,
    images: str | None = None,
    choices: Path | None = None,
    chat: bool = False,
    held_out: bool = False,
    all: bool = False,
    ctx: int | None = None,
    tokens: int | None = None,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    top_k: int = 5,
    tokenizer: str | None = None,
    adapter: AdapterNames = (),
    any_base: AnyBase = False,
    record: str | None = None,
    field: tuple[str, ...] = (),
    cache: Path | None = None,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Score a language model on a text or on multiple-choice rows, or a vision transformer on images; show what a model
    expects after a prompt.

    Args:
        corpus: A file, a folder, a pattern, a URL, or `python`; a RUN's own corpus when not given.
        images: Of a vision transformer: a folder, an IDX or .npz file, or `digits`; a RUN's own images when not given.
        choices: Rows with a prompt, choices and the right one, JSONL or Parquet: how often is that the likeliest?
        chat: Put the prompts of --choices as questions in the format of the model's chats.
        held_out: Score only the documents kept from training; so it is for a RUN's own corpus anyway.
        all: Score all documents; so it is for a `--corpus` anyway.
        ctx: Tokens of a window; the model's context when not given.
        tokens: Score at most so many tokens, from the beginning; all when not given.
        prompt: Show what the model expects after each token of this text; `-`: of what standard input holds.
        prompt_file: The same of a file's text, in UTF-8.
        top_k: How many of the likeliest tokens to show (5).
        tokenizer: Of a model without one, such as Toy's: the MODEL whose tokenizer it was trained with.
        record: Leave the figures in the model's run, as an evaluation of this name: `--record test` → test/loss.
        field: Where the text is in rows: a name, or '*.csv=name' for some files; text, or as a RUN's own was read.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
        device: auto, cpu, cuda or mps (auto).
    """
    from linnet.analysis.checkpoint import run_of
    from linnet.analysis.held_out import is_pack, prepared_text, reading_of
    from linnet.cli.progress import preparing
    from linnet.models import load, pick_device
    from linnet.models.model_files import find_files

    if held_out and all:
        raise UsageError("--held-out and --all exclude each other: give one of them")
    if tokens is not None and tokens < 1:
        raise UsageError(f"--tokens must be 1 or more, found {tokens}")
    chosen = pick_device(device)
    path = find_model(model, runs)
    prompt = read_prompt(prompt, prompt_file)
    run = run_of(path)
    if record is not None:
        scores = images is not None or choices is not None or corpus is not None or prompt is None
        _check_record(record, run, path, scores=scores)
    with GGUFFile.open(path) as file:
        task = task_of(file.architecture)
    if task == "images":
        from linnet.cli.images import eval_images

        text = {"--corpus": corpus, "--ctx": ctx, "--tokens": tokens, "--prompt": prompt, "--tokenizer": tokenizer}
        text |= {"--adapter": ", ".join(adapter) or None, "--choices": None if choices is None else str(choices)}
        for flag in (flag for flag, value in text.items() if value is not None):
            raise UsageError(f"{flag} is for text, and {path} tells images apart: score it with --images")
        code = eval_images(path, run, images, all, chosen, json, record)
        print_choice(model, path, json)
        return code
    if images is not None:
        raise UsageError(f"--images is for vision transformers, and {path} is a model of text: use --corpus")
    if choices is not None:
        from linnet.cli.choices import eval_choices

        others = {"--corpus": corpus, "--held-out": held_out, "--all": all, "--tokens": tokens, "--prompt": prompt}
        for flag in (flag for flag, value in {**others, "--field": field}.items() if value not in (None, False, ())):
            raise UsageError(f"{flag} does not go with --choices: score the one, then the other")
        files = find_files(path, adapter, runs, any_base=any_base)
        donor = None if tokenizer is None else find_model(tokenizer, runs)
        eval_choices(files, run, choices, chat=chat, ctx=ctx, tokenizer=donor, device=chosen, json=json, record=record)
        print_choice(model, path, json)
        return 0
    if chat:
        raise UsageError("--chat is for --choices: give a file of them")
    own = run.manifest.config if run is not None else {}
    scored = corpus or (own.get("corpus") if prompt is None else None)
    if scored is None and prompt is None:
        raise UsageError(f"{path} belongs to no run with a corpus of its own: give --corpus or --prompt")
    files = find_files(path, adapter, runs, any_base=any_base)
    reading = reading_of(own if corpus is None else None, field)
    reads_text = scored is not None and not is_pack(str(scored), reading)
    loaded = load(files.model, chosen, task="text", adapters=files.adapters)
    given_tokenizer = None if tokenizer is None else find_model(tokenizer, runs)
    tokenizer_file = tokenizer_file_of(files.model, given_tokenizer, loaded.config.vocab)
    if tokenizer_file is None and (reads_text or prompt is not None):
        raise UsageError(
            f"{path} has no tokenizer: give the one it was trained with, --tokenizer FILE.gguf, or score token ids,"
            " --corpus IDS.i32"
        )
    window = window_of(ctx or (own.get("context") if corpus is None else None), loaded, path)
    result: dict[str, Any] = {"model": str(path), "device": str(chosen), **adapters_of(files)}
    if tokenizer_file is not None and prompt is not None:
        with GGUFFile.open(tokenizer_file) as file:
            rebuilt = rebuild_tokenizer(file.metadata)
        result |= {"prompt": prompt, "predictions": _predictions(loaded, rebuilt, prompt, top_k)}
    if scored is not None:
        split = "held_out" if held_out or (corpus is None and not all) else "all"
        options: dict[str, Any] = {
            "held_out": float(own.get("held_out", 0.02)) if split == "held_out" else 0.0,
            **reading,
            "cache": cache or own.get("cache"),
            "progress": preparing if sys.stdout.isatty() else None,
        }
        trained_with = own if corpus is None and split == "held_out" else None
        prepared = prepared_text(str(scored), tokenizer_file, loaded.config.vocab, trained_with, options)
        result |= {
            "corpus": scored,
            "split": split,
            "ctx": window,
            "left_out": list(map(words.flags, prepared.left_out)),
        }
        result["encodings"] = prepared.encodings
        if prepared.rows == "preferences":
            if not files.adapters:
                raise UsageError(
                    f"corpus {scored} holds pairs, whose answers are worth what a model says beside its base: score an"
                    " adapter (a RUN of lora, or --adapter)"
                )
            from linnet.recipes.lora import DEFAULT_BETA

            reference = load(files.model, chosen, task="text")
            beta = float(own.get("beta") or DEFAULT_BETA)
            result |= _scored_pairs(loaded, reference, prepared, split, window, tokens, beta)
        else:
            train_on = own.get("train_on") if corpus is None else None
            result |= _scored(loaded, prepared, split, window, tokens, train_on or "answers")
        if run is not None and trained_with is not None:
            result["in_training"] = _in_training(run, step_of(path), result.get("pairs", result["tokens"]))
    if json:
        print_json(result)
    else:
        _print(result)
    print_choice(model, path, json)
    if record is not None and run is not None:
        figures = {name: result[name] for name in ("loss", *_figures_of(result), "corpus", "split")}
        add_evaluation(run, record, step_of(path), {**figures, "samples": result.get("pairs", result["tokens"])})
    return 0


def _check_record(name: str, run: Run | None, path: Path, *, scores: bool) -> None:
    """Refuse an evaluation that could not be kept before anything is computed."""
    if not scores:
        raise UsageError("--record keeps the figures of a corpus or of images: a --prompt alone has none")
    if run is None or step_of(path) is None or run.manifest.dialect not in ("linnet", "toy"):
        raise UsageError(f"--record keeps figures in a run's folder, and {path} is no checkpoint of a run of ours")
    if not name.strip() or name == "validation":
        raise UsageError(f"--record {name!r}: choose another name, such as test; validation is the run's own")
    if run.status == "live":
        raise UsageError(f"run {run.id} is being written: score it without --record, or when it has ended")


def window_of(ctx: int | None, model: LanguageModel, path: Path) -> int:
    """Tokens that a model sees at once: as asked, as far as its context goes."""
    if ctx is None:
        return model.config.ctx
    if not 1 <= ctx <= model.config.ctx:
        raise UsageError(f"--ctx {ctx} does not fit {path}: give a number from 1 to its context, {model.config.ctx}")
    return ctx


def tokenizer_file_of(path: Path, tokenizer: Path | None, vocab: int) -> Path | None:
    """The file with the model's tokenizer: its own, or the one that was given; None where there is neither."""
    with GGUFFile.open(path) as file:
        has_own = _TOKENS in file.metadata
    if tokenizer is None:
        return path if has_own else None
    if has_own:
        raise UsageError(f"--tokenizer is for a model without one, and {path} has its own: leave it out")
    with GGUFFile.open(tokenizer) as file:
        tokens = file.metadata.length(_TOKENS) if _TOKENS in file.metadata else 0
    if tokens != vocab:
        raise UsageError(
            f"--tokenizer {tokenizer} has {tokens:,} tokens, and {path} a vocabulary of {vocab:,}: give its own"
        )
    return tokenizer


def _scored(
    model: LanguageModel, prepared: Prepared, split: str, window: int, most: int | None, train_on: TrainOn
) -> dict[str, object]:
    from linnet.train.text import evaluate

    scored = _part_of(prepared, split)
    on_progress = show_progress if sys.stderr.isatty() else None
    began = time.perf_counter()
    if prepared.is_chat:
        return _scored_chats(model, prepared, scored, window, most, train_on, on_progress)
    window = min(window, max(len(scored) - 1, _SHORT))
    result = evaluate(
        model,
        scored,
        ctx=window,
        device=model.device,
        most=most or len(scored),
        bytes_per_token=prepared.bytes_per_token,
        on_progress=on_progress,
    )
    figures = {name: getattr(result, name) for name in ("tokens", "loss", "ppl", "bits_per_byte")}
    return {"ctx": window, **figures, "seconds": time.perf_counter() - began}


def _scored_chats(
    model: LanguageModel,
    prepared: Prepared,
    scored: TokenSet,
    window: int,
    most: int | None,
    train_on: TrainOn,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, object]:
    """How well a model predicts the answers of conversations, each read from its beginning."""
    from linnet.data.batches import in_order
    from linnet.data.conversation_blocks import ConversationBlocks, require_rows
    from linnet.infer import score_batches
    from linnet.train.text import rows_at_once

    began = time.perf_counter()
    blocks = ConversationBlocks(scored, prepared.vocab, min(window, max(scored.longest, 2)), train_on)
    require_rows(blocks, prepared.record.corpus)
    blocks.to(model.device)
    total = min(most or blocks.facts.trained, blocks.facts.trained)
    batches = in_order(blocks, rows_at_once(model.device, blocks.ctx, blocks.count))
    on_batch = None if on_progress is None else lambda done: on_progress(min(done, total), total)
    result = score_batches(model, batches, total, on_batch)
    facts = blocks.facts
    return {
        "ctx": blocks.ctx,
        "conversations": facts.conversations,
        "cut": facts.cut,
        "too_long": facts.left_out,
        "tokens": result.tokens,
        "loss": result.mean,
        "ppl": result.perplexity,
        "bits_per_byte": None,
        "seconds": time.perf_counter() - began,
    }


def _scored_pairs(
    model: LanguageModel,
    reference: LanguageModel,
    prepared: Prepared,
    split: str,
    window: int,
    most: int | None,
    beta: float,
) -> dict[str, object]:
    """How well a model tells the chosen answers of pairs from the rejected ones, beside its reference."""
    from linnet.data.batches import in_order
    from linnet.data.preference_blocks import ROWS, PreferenceBlocks, require_pairs
    from linnet.train.preferences import PreferenceLoss, evaluate_preferences
    from linnet.train.text import rows_at_once

    scored = _part_of(prepared, split)
    began = time.perf_counter()
    blocks = PreferenceBlocks(scored, prepared.vocab, min(window, max(scored.longest, 2)))
    require_pairs(blocks, prepared.record.corpus)
    blocks.to(model.device)
    facts = blocks.facts
    pairs = facts.conversations if most is None else max(1, min(1.0, most / facts.trained) * facts.conversations)
    batches = in_order(blocks, max(1, rows_at_once(model.device, blocks.ctx, facts.rows) // ROWS))
    result = evaluate_preferences(PreferenceLoss(model, beta, reference), batches, round(pairs))
    return {
        "ctx": blocks.ctx,
        "beta": beta,
        "pairs": result.pairs,
        "cut": facts.cut,
        "too_long": facts.left_out,
        "tokens": facts.trained * result.pairs // facts.conversations,
        **result.figures,
        "seconds": time.perf_counter() - began,
    }


def _figures_of(result: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the figures beside the loss."""
    if "pairs" in result:
        return ("accuracy", "reward_margin", "reward_chosen", "reward_rejected")
    return ("ppl", "bits_per_byte")


def _part_of(prepared: Prepared, split: str) -> TokenSet:
    """What of a corpus is scored."""
    scored = prepared.held_out if split == "held_out" else prepared.train
    if len(scored) < 2:
        raise UsageError("no document of this corpus is held out: score all of it with --all")
    return scored


def _in_training(run: Run, step: int | None, tokens: int) -> dict[str, float] | None:
    """What the run's own evaluation of this step found, where it scored fewer of the held-out tokens."""
    metrics = run.metrics()
    figures = [metrics.get(name) for name in ("validation/loss", "validation/samples")]
    by_step = [{} if series is None else dict(zip(series.step, series.value, strict=True)) for series in figures]
    loss, scored = (values.get(step) for values in by_step)
    if loss is None or scored is None or not scored < tokens:
        return None
    return {"loss": float(loss), "tokens": int(scored)}


def show_progress(done: int, total: int) -> None:
    """A line on stderr that is written over, and taken away at the end."""
    draw_over("" if done >= total else f"{paint('scoring', 'dim')} {done / total:4.0%}", sys.stderr)


def _predictions(model: LanguageModel, tokenizer: Tokenizer, prompt: str, k: int) -> list[dict[str, Any]]:
    from linnet.infer import top_tokens

    ids: list[int] = tokenizer.encode(prompt).ids
    if not 1 <= k <= model.config.vocab:
        raise UsageError(f"--top-k {k} does not fit: give a number from 1 to the vocabulary, {model.config.vocab}")

    def text(token: int) -> str:
        return str(tokenizer.decode([token], skip_special_tokens=False))

    def scored(token: int, logprob: float) -> dict[str, Any]:
        return {"token": token, "text": text(token), "logprob": logprob}

    return [
        {
            "token": token,
            "text": text(token),
            "next": None if ranked.actual is None else scored(ranked.actual.token, ranked.actual.logprob),
            "top": [scored(likely.token, likely.logprob) for likely in ranked.top],
        }
        for token, ranked in zip(ids, top_tokens(model, ids, k), strict=True)
    ]


def _print(result: dict[str, Any]) -> None:
    print(paint(words.plain(result["model"]), "bold"))
    print_facts(adapter_facts(result))
    if "pairs" in result:
        part = "held-out" if result["split"] == "held_out" else "all"
        margin = f"{result['reward_margin']:.5g} ({result['reward_chosen']:.5g} and {result['reward_rejected']:.5g})"
        print_facts(
            {
                "corpus": f"{result['corpus']}, {part} {result['pairs']:,} pairs, in rows of {result['ctx']}",
                "loss": f"{result['loss']:.6g} nats a pair, at beta {result['beta']:g}",
                "accuracy": f"{result['accuracy']:.2%} of the chosen answers are worth more than the rejected ones",
                "margin": f"{margin}: what chosen answers are worth beside the base, less what rejected ones are",
                "in training": _shorter_score(result.get("in_training"), "pairs"),
                "took": words.duration(result["seconds"]),
                "files": left_out_sentence(result["left_out"], printable(result["corpus"])),
            }
        )
    elif "loss" in result:
        of_chats = "conversations" in result
        kind = f"{result['conversations']:,} conversations" if of_chats else "documents"
        part = f"{'held-out' if result['split'] == 'held_out' else 'all'} {kind}"
        count = f"{result['tokens']:,} tokens {'to be said, in rows' if of_chats else 'in windows'} of {result['ctx']}"
        print_facts(
            {
                "corpus": f"{result['corpus']}, {part}: {count}",
                "loss": f"{result['loss']:.6g} nats a token",
                "perplexity": f"{result['ppl']:.6g}",
                "bits/byte": "" if result["bits_per_byte"] is None else f"{result['bits_per_byte']:.5g}",
                "in training": _shorter_score(result.get("in_training")),
                "took": words.duration(result["seconds"]),
                "files": left_out_sentence(result["left_out"], printable(result["corpus"])),
                "encodings": encodings_sentence(result["encodings"]),
            }
        )
    if "predictions" in result:
        rows = [
            (
                _quoted(after["text"]),
                "" if after["next"] is None else f"{after['next']['logprob']:.3f}",
                "  ".join(f"{_quoted(likely['text'])} {likely['logprob']:.3f}" for likely in after["top"]),
            )
            for after in result["predictions"]
        ]
        print_table(("after", "log p of next", "expected, with log p"), rows, right=(1,))


def adapters_of(files: ModelFiles) -> dict[str, Any]:
    """What an evaluation tells of the adapters that are beside a model."""
    if not files.adapters:
        return {}
    adapters = [{"file": str(file.path), "scale": scale} for file, scale in files.adapters]
    return {"base": str(files.model), "adapters": adapters}


def adapter_facts(result: dict[str, Any]) -> dict[str, object]:
    """The same for people; nothing without adapters."""
    scales = {part["file"]: part["scale"] for part in result.get("adapters", ())}
    named = (file if scale == 1 else f"{file} × {scale:g}" for file, scale in scales.items())
    return {"base": result["base"], "adapter": ", ".join(named)} if scales else {}


def _shorter_score(in_training: dict[str, float] | None, unit: str = "tokens") -> str:
    if in_training is None:
        return ""
    return f"{in_training['loss']:.6g}, over the first {in_training['tokens']:,} of these {unit}"


def _quoted(text: str) -> str:
    """A token's text; a file may hold one of a megabyte."""
    return repr(words.shorten(text, 100))
