"""`linnet generate`."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

from linnet.architectures import task_of
from linnet.board import words
from linnet.cli.options import AsJson, ModelName, RunsFolder, find_model
from linnet.cli.printing import paint, print_json
from linnet.cli.streams import complain
from linnet.errors import UsageError
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import END_TEXTS, rebuild_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTEXT = 16  # tokens before a new one that its text may depend on
_BYTE_TOKEN = re.compile("<0x..>")  # SentencePiece's name for a byte


def generate(
    model: ModelName,
    /,
    *,
    prompt: str = "",
    max_tokens: int = 128,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 0.95,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Go on from a prompt; the text is printed as it comes.

    Args:
        prompt: The text to go on from; without one the model begins by itself.
        max_tokens: At most so many tokens (128); the end of the model's context ends it too.
        temperature: 0: always the likeliest token; higher: bolder (0.8).
        top_k: Choose from so many of the likeliest tokens; 0: from all (0).
        top_p: Choose from the likeliest tokens that together have this probability (0.95).
        min_p: Choose from tokens at least so likely, measured by the likeliest (0).
        repetition_penalty: Above 1: what was there before becomes less likely (1).
        seed: The same seed gives the same text (0).
        device: auto, cpu, cuda or mps (auto).
    """
    import torch

    from linnet.infer.generation import generate
    from linnet.models import load, pick_device

    chosen = pick_device(device)
    path = find_model(model, runs)
    with GGUFFile.open(path) as file:
        if task_of(file.architecture) == "images":
            example = f"linnet classify {model} IMAGE… {words.runs_flag(runs)}".rstrip()
            raise UsageError(f"{path} classifies images and writes no text; look at images with: {example}")
        tokenizer = rebuild_tokenizer(file.metadata)
        ids = _prompt_ids(tokenizer, file, prompt)
        loaded = load(file, chosen, task="text")
    if chosen.type == "cuda":
        loaded.set_compute_dtype(torch.bfloat16)
    ends = {id_ for text in END_TEXTS if (id_ := tokenizer.token_to_id(text)) is not None}
    settings: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }

    def say(text: str) -> None:
        if not json:
            sys.stdout.write(_shown(text))
            sys.stdout.flush()

    tokens = generate(loaded, ids, max_tokens, **settings, seed=seed, stop=ends)
    begun = time.perf_counter()
    decoder = StreamDecoder(tokenizer, ids)
    if not json:
        sys.stdout.write(paint(_shown(prompt), "dim"))
    for token in tokens:
        say(decoder.add(token))
    say(decoder.finish())
    seconds = time.perf_counter() - begun
    stopped = _stop_reason(decoder.tokens, ends, max_tokens)
    if json:
        print_json(
            {
                "model": str(path),
                "prompt": prompt,
                "text": decoder.text,
                "prompt_tokens": ids,
                "tokens": decoder.tokens,
                "stopped": stopped,
                "seed": seed,
                **settings,
                "device": str(chosen),
                "tokens_per_second": len(decoder.tokens) / seconds if seconds > 0 else None,
            }
        )
        return 0
    print()
    if stopped == "context":
        complain(f"stopped where the model's context of {loaded.config.ctx} tokens is full")
    return 0


class StreamDecoder:
    """Tokens as text while they come: what is given out is the decoding of all of them, and is never taken back.

    A letter of several bytes may come in several tokens. SentencePiece's byte tokens are read together up to the next
    token of another kind, and if they are no UTF-8 each of them becomes U+FFFD: until then they are held.
    (`tokenizers.DecodeStream` gives such bytes out one by one, and raises an error when they turn out to be none.)
    """

    def __init__(self, tokenizer: Tokenizer, prompt: list[int]) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self._tokenizer = tokenizer
        self._skipped = {id_ for id_, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        # A first word has no space before it, a later one has: a token is decoded after some that came before.
        tail = prompt[-_CONTEXT:]
        self._context = tail if self._decode(tail) else list(prompt)
        self._prefix = self._decode(self._context)
        self._given = len(self._context)  # so many of its tokens are in the text

    def add(self, token: int) -> str:
        """Take one token more; the text that is certain now."""
        self.tokens.append(token)
        self._context.append(token)
        decoded = self._decode(self._context)
        if decoded.endswith("\ufffd") or self._within_bytes():
            return ""
        return self._give(decoded)

    def finish(self) -> str:
        """The text that was held for what might have followed."""
        return self._give(self._decode(self._context))

    def _give(self, decoded: str) -> str:
        if decoded.startswith(self._prefix):
            new = decoded[len(self._prefix) :]
        else:  # bytes of the prompt and bytes after it, which are no letters together
            new = self._decode(self._context[self._given :])
        self.text += new
        if len(self._context) > 2 * _CONTEXT and (kept := self._decode(self._context[-_CONTEXT:])):
            self._context, decoded = self._context[-_CONTEXT:], kept
        self._prefix, self._given = decoded, len(self._context)
        return new

    def _within_bytes(self) -> bool:
        for token in reversed(self._context[self._given :]):
            if token not in self._skipped:
                return _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token) or "") is not None
        return False

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


def _shown(text: str) -> str:
    """For a terminal, text that cannot steer it; a pipe gets what the model said."""
    if not sys.stdout.isatty():
        return text
    return "".join(letter if letter in "\n\t" else words.plain(letter) for letter in text)


def _prompt_ids(tokenizer: Tokenizer, file: GGUFFile, prompt: str) -> list[int]:
    ids: list[int] = tokenizer.encode(prompt).ids
    if ids:
        return ids
    first = file.metadata.get("tokenizer.ggml.bos_token_id")
    if not isinstance(first, int):
        raise UsageError(f"{file.path} names no token to begin a text with: give a --prompt")
    return [first]


def _stop_reason(tokens: list[int], ends: set[int], max_tokens: int) -> str:
    """What ended the text: the model (`end`), `max_tokens`, or the `context`."""
    if tokens and tokens[-1] in ends:
        return "end"
    return "max_tokens" if len(tokens) >= max_tokens else "context"
