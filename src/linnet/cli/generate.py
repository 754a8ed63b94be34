"""`linnet generate`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AdapterNames, AnyBase, AsJson, ModelName, RunsFolder, find_model, print_choice
from linnet.cli.printing import paint, print_json
from linnet.cli.prompt import Prompt, PromptFile, read_prompt
from linnet.cli.streams import complain
from linnet.errors import UsageError
from linnet.infer.text_options import TextOptions

if TYPE_CHECKING:
    from linnet.infer import LoadedModel, TextStream


def generate(
    model: ModelName,
    /,
    *,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    samples: int = 1,
    options: Annotated[TextOptions, Parameter(name="*", allow_leading_hyphen=True)] = TextOptions(),  # noqa: B008 (it is frozen)
    adapter: AdapterNames = (),
    any_base: AnyBase = False,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Go on from a prompt; the text is printed as it comes.

    Args:
        samples: So many texts from the same prompt, of the seeds --seed, --seed + 1, … (1).
        device: auto, cpu, cuda or mps (auto).
    """
    import linnet
    from linnet.infer.loaded_model import seeds, task_of_file

    path = find_model(model, runs)
    if task_of_file(path) == "images":
        example = f"linnet classify {model} IMAGE… {words.runs_flag(runs)}".rstrip()
        raise UsageError(f"{path} classifies images and writes no text; look at images with: {example}")
    numbers = seeds(options, samples)
    text = read_prompt(prompt, prompt_file) or ""
    loaded = linnet.load(path, device=device, runs=runs, adapter=adapter, any_base=any_base)
    results: list[dict[str, Any]] = []
    for number, seed in enumerate(numbers, 1):
        stream = loaded.stream(text, **{**asdict(options), "seed": seed})
        if not json:
            if samples > 1:
                print(paint(f"--- sample {number} of {samples}, seed {seed}", "dim"))
            _print(text, stream)
        else:
            "".join(stream)
        results.append(_as_json(stream, seed))
    if json:
        shared = {"prompt": text, "prompt_tokens": stream.prompt_tokens, **options.sampling(), "stop": options.stop}
        print_json({"model": str(path), **shared, "device": str(loaded.device), **results[0], "samples": results})
        return 0
    _explain_end(loaded, text, stream)
    print_choice(model, path)
    return 0


def _print(prompt: str, stream: TextStream) -> None:
    sys.stdout.write(paint(_shown(prompt), "dim"))
    for piece in stream:
        sys.stdout.write(_shown(piece))
        sys.stdout.flush()
    print()


def _as_json(stream: TextStream, seed: int) -> dict[str, Any]:
    return {
        "text": stream.text,
        "tokens": stream.tokens,
        "stopped": stream.stopped,
        "stop_string": stream.stop_string,
        "seed": seed,
        "tokens_per_second": len(stream.tokens) / stream.seconds if stream.seconds > 0 else None,
    }


def _explain_end(model: LoadedModel, prompt: str, stream: TextStream) -> None:
    """What a reader of the text could not know: that there was no room for more, why nothing came."""
    if stream.stopped == "context":
        complain(f"stopped where the model's context of {model.config.ctx} tokens is full")
    elif reason := model.why_silent(prompt, stream):
        explanation, advice = reason
        complain(words.flags(explanation) + ("" if advice is None else f": --prompt {_shell_word(advice)}"))


def _shell_word(text: str) -> str:
    r"""A text as bash and zsh read it in one line: `$'two\nlines'`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def _shown(text: str) -> str:
    """For a terminal, text that cannot steer it; a pipe gets what the model said."""
    if not sys.stdout.isatty():
        return text
    return "".join(letter if letter in "\n\t" else words.plain(letter) for letter in text)
