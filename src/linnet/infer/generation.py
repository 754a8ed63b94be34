"""`generate(model, ids, max_tokens)`: the tokens that follow a prompt, one by one as they come.

A `Decoder` computes the logits after each token, a `Sampling` chooses the next one from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.kernels import DecodeWeights, Graph, Recording, decode_weights
from linnet.models import KVCache, LanguageModel

_AT_ONCE = 8  # tokens a GPU makes between two readings
_WORTH_IT = 16  # tokens from which the weights are prepared for decoding: it costs about as much as a few tokens
_Step = Callable[..., tuple[Tensor, ...]]


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    stop: Collection[int] = (),
    memory: Memory | None = None,
) -> Iterator[int]:
    """Yield up to `max_tokens` ids; ends after an id of `stop` (which is yielded), or where the context is full.

    The same seed gives the same tokens. Wrong arguments are refused at the call, not at the first token. `memory`: of
    the text before it, of which only what is new is then read.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    ids_BT = prompt_tensor(model, prompt)
    if max_tokens < 0:
        raise UsageError(f"max_tokens is {max_tokens}: give a number from 0")
    count = min(max_tokens, model.config.ctx - len(prompt) + 1)
    return _tokens(model, ids_BT, count, sampling, seed, frozenset(stop), memory or Memory())


def prompt_tensor(model: LanguageModel, prompt: Sequence[int]) -> Tensor:
    """A prompt as [1, T] on the model's device; refused when it is empty, too long, or has ids of another model."""
    ctx, vocab = model.config.ctx, model.config.vocab
    if isinstance(prompt, str | bytes):
        raise UsageError(
            "the prompt is text, and a model reads token ids: give tokenizer.encode(text).ids; the tokenizer of a file"
            " is linnet.gguf.rebuild_tokenizer(GGUFFile.open(path).metadata)"
        )
    if not len(prompt):
        raise UsageError("the prompt is empty: give at least one token")
    if len(prompt) > ctx:
        raise UsageError(f"the prompt has {len(prompt)} tokens and the model's context {ctx}: shorten the prompt")
    for token in prompt:
        if not 0 <= token < vocab:
            raise UsageError(f"the prompt has the token {token}, and the model's vocabulary goes from 0 to {vocab - 1}")
    return torch.tensor([list(prompt)], device=model.device)


def _tokens(
    model: LanguageModel,
    ids_1T: Tensor,
    count: int,
    sampling: Sampling,
    seed: int,
    stop: frozenset[int],
    memory: Memory,
) -> Iterator[int]:
    if count < 1:
        return
    decoder, logits_V = memory.read(model, ids_1T, count)
    texts = memory.texts
    if sampling.greedy:
        tokens = _greedy(decoder, logits_V, count)
    else:
        tokens = _sampled(decoder, logits_V, ids_1T[0], sampling, seed)
    for _, token in zip(range(count), tokens, strict=False):
        memory.ids.append(token)
        yield token
        if token in stop:
            return
        if memory.texts != texts:  # its keys and values are no longer those of this text
            raise UsageError(
                "another answer of this chat was begun before this one had ended: read one after the other"
            )


class Memory:
    """What a model has read: the keys and values of `ids`, all but the last of them, kept from one text to the next.

    A text that begins as the one before it is read from where they part. `texts`: how many were begun.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.texts = 0
        self._decoder: Decoder | None = None

    def read(self, model: LanguageModel, ids_1T: Tensor, count: int) -> tuple[Decoder, Tensor]:
        """A decoder that has read these ids and has room for `count` tokens more, and the logits [V] after them."""
        ids = ids_1T[0].tolist()
        known = min(_common(self.ids[:-1], ids), len(ids) - 1)  # one at least is read, for what comes after it
        slots = min(len(ids) + count, model.config.ctx)
        self.texts += 1
        with torch.inference_mode():
            if self._decoder is None or self._decoder.slots < slots:
                room = slots if self._decoder is None else min(max(slots, 2 * self._decoder.slots), model.config.ctx)
                self._decoder = Decoder(model, room, self._decoder if known else None)
            self._decoder.rewind(known)
            self.ids = ids[:known]  # whatever ends the reading, what is known of it is not more than this
            logits_V = self._decoder.read(ids_1T[:, known:])
        self.ids = ids
        return self._decoder, logits_V


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids two texts begin with that are the same."""
    pairs = zip(left, right, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def _greedy(decoder: Decoder, logits_V: Tensor, count: int) -> Iterator[int]:
    """The device runs ahead of what is read from it, by a few tokens where waiting for it costs."""
    at_once = _AT_ONCE if logits_V.is_cuda else 1
    with torch.inference_mode():
        token = logits_V.argmax()
    first = True
    for start in range(0, count, at_once):
        # Only around the step: between two tokens the caller's own mode counts.
        with torch.inference_mode():
            tokens = []
            for _ in range(min(at_once, count - start)):
                if not first:
                    _, token = decoder.next(token)
                first = False
                tokens.append(token.clone())
            ids = torch.stack(tokens).tolist()
        yield from ids


def _sampled(decoder: Decoder, logits_V: Tensor, seen_N: Tensor, sampling: Sampling, seed: int) -> Iterator[int]:
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that every device draws the same
    while True:
        with torch.inference_mode():
            chance = torch.rand((), generator=generator, dtype=torch.float64).item()
            token = sampling.choose(logits_V, seen_N, chance)
            seen_N = torch.cat((seen_N, token.view(1)))
        yield int(token)
        with torch.inference_mode():
            logits_V, _ = decoder.next(token)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the logits: greedily, or drawn at random within bounds.

    They are applied in llama.cpp's order: repetition penalty, top-k, top-p, min-p, temperature.
    """

    temperature: float = 0.0  # 0: always the likeliest
    top_k: int = 0  # only so many of the likeliest; 0: all
    top_p: float = 1.0  # only the likeliest that together have this probability; 1: all
    min_p: float = 0.0  # only those at least so likely, measured by the likeliest; 0: all
    repetition_penalty: float = 1.0  # above 1: tokens that were there before become less likely

    def __post_init__(self) -> None:
        for name, most in {"temperature": math.inf, "top_k": math.inf, "top_p": 1.0, "min_p": 1.0}.items():
            value = getattr(self, name)
            if not 0 <= value <= most or value == math.inf:
                raise UsageError(f"{name} is {value}: give a number from 0 {'to 1' if most == 1 else 'on'}")
        if not 0 < self.repetition_penalty < math.inf:
            raise UsageError(f"repetition_penalty is {self.repetition_penalty}: give a number above 0 (1: none)")

    @property
    def greedy(self) -> bool:
        """Is it always the likeliest token, by the logits as they are?"""
        return self.temperature == 0 and self.repetition_penalty == 1.0

    def choose(self, logits_V: Tensor, seen_N: Tensor, chance: float) -> Tensor:
        """The next token's id, a tensor of one number. `seen_N`: ids so far; `chance`: a draw from [0, 1)."""
        if self.repetition_penalty != 1.0:
            logits_N = logits_V[seen_N]
            logits_N = torch.where(logits_N > 0, logits_N / self.repetition_penalty, logits_N * self.repetition_penalty)
            logits_V = logits_V.index_put((seen_N,), logits_N)
        if self.temperature == 0:
            return logits_V.argmax()
        logits_V, order_V = logits_V.sort(descending=True, stable=True)
        if 0 < self.top_k < len(logits_V):
            logits_V, order_V = logits_V[: self.top_k], order_V[: self.top_k]
        p_V = logits_V.softmax(0)
        kept_V = (p_V.cumsum(0) - p_V < self.top_p) & (p_V >= self.min_p * p_V[0])
        kept_V[0] = True
        p_V = (logits_V / self.temperature).softmax(0).masked_fill(~kept_V, 0.0)
        up_to_V = p_V.cumsum(0)
        index = torch.searchsorted(up_to_V, up_to_V[-1:] * chance, right=True)
        # Rounding may put the draw at the very end: the last kept token is meant.
        return order_V[index.clamp(max=kept_V.sum() - 1)][0]


class Decoder:
    """Single-token decoding with a KV cache. On CUDA a step is a captured graph, on a CPU a recording.

    Every step is the same work on the same memory as long as the cache shows the same number of slots; then the next
    one is captured.
    """

    def __init__(self, model: LanguageModel, slots: int, before: Decoder | None = None) -> None:
        self._device, self.slots = model.device.type, slots
        self._cache = KVCache(model.config, slots, device=model.device, dtype=model.compute_dtype)
        weights = decode_weights(model) if slots >= _WORTH_IT and self._device != "mps" else None
        self._forward = _Forward(model, self._cache, weights)
        self._captured: tuple[int, _Step] = (0, self._forward.step)
        if before is not None:  # that of a shorter text, whose keys and values it goes on with
            self._cache.k_LBKSD[..., : before.slots, :].copy_(before._cache.k_LBKSD)
            self._cache.v_LBKSD[..., : before.slots, :].copy_(before._cache.v_LBKSD)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens."""
        self._cache.rewind(length)

    def read(self, ids_1T: Tensor) -> Tensor:
        """[V]: the logits after these tokens, which come after those seen before."""
        return self._forward.read(ids_1T)

    def next(self, token: Tensor) -> tuple[Tensor, Tensor]:
        """[V]: the logits after one token more, and the likeliest. Both are overwritten by the next call.

        Something has been read before, in the same thread.
        """
        assert self._cache.length, "a capture is no time for libraries to be loaded: read a prompt first"
        visible = self._cache.visible(1)
        if visible != self._captured[0]:
            self._captured = visible, self._capture()
        length = self._cache.length
        logits_V, likeliest = self._captured[1](token.view(1, 1))
        if self._cache.length == length:  # a replay moves the position on the device only
            self._cache.length += 1
        return logits_V, likeliest

    def _capture(self) -> _Step:
        step = self._forward.step
        if self._device == "cuda":
            return Graph(step, plain_calls=0)  # the prompt has been read: libraries are loaded
        return Recording(step, plain_calls=0) if self._device == "cpu" else step


@dataclass(frozen=True)
class _Forward:
    """What is captured. It does not know the decoder, which holds the capture.

    In a circle they would wait for Python's collector, which is off while a model is trained (`train.loop`), and every
    sample would leave a copy of the weights behind.
    """

    model: LanguageModel
    cache: KVCache
    weights: DecodeWeights | None

    def read(self, ids_1T: Tensor) -> Tensor:
        return self.model.logits(self.model.hidden(ids_1T, cache=self.cache)[:, -1:])[0, 0]

    def step(self, token_11: Tensor) -> tuple[Tensor, Tensor]:
        with self.weights.used_by(self.model) if self.weights is not None else nullcontext():
            logits_V = self.read(token_11)
        return logits_V, logits_V.argmax()
