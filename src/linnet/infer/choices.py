"""`score_choices`: the log-probability of each choice of multiple-choice rows, and how often the right one wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linnet.data.chat_encoding import ChatEncoder
from linnet.data.choices import ChoiceRow
from linnet.errors import LinnetError
from linnet.gguf.chat_format import Message
from linnet.models import KVCache, LanguageModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf.chat_format import ChatFormat

_AT_ONCE = 4096  # tokens whose keys and values are held at once
_REPAYS = 128  # tokens in a batch that repay reading all weights once more, rather than filling up shorter choices
_LOGITS_AT_ONCE = 256  # rows of as many numbers as the vocabulary has


@dataclass(frozen=True)
class EncodedRow:
    """The ids of what is asked, and those of each choice behind it; `is_cut`: the prompt's beginning was left out."""

    prompt: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]
    is_cut: bool = False


@dataclass(frozen=True)
class ScoredRow:
    """The log-probability (natural) of each choice of a row, and how many tokens and bytes it has."""

    row: ChoiceRow
    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]

    @property
    def bytes(self) -> tuple[int, ...]:
        """Of the choices as the file has them."""
        return tuple(len(choice.encode("utf-8", "surrogatepass")) for choice in self.row.choices)

    def chosen(self, lengths: Sequence[int] | None = None) -> int:
        """The likeliest choice; with `lengths` by its log-probability over its length. Of equal ones the first."""
        scores = self.logprobs
        if lengths is not None:
            scores = tuple(total / length for total, length in zip(scores, lengths, strict=True))
        return scores.index(max(scores))


@dataclass(frozen=True)
class Accuracy:
    """The share of rows whose right choice is the likeliest, and its standard error (None of a single row)."""

    value: float
    stderr: float | None

    @classmethod
    def of(cls, hits: Sequence[bool]) -> Accuracy:
        """Of each row: was it answered right?"""
        share = sum(hits) / len(hits)
        return cls(share, math.sqrt(share * (1 - share) / (len(hits) - 1)) if len(hits) > 1 else None)


@dataclass(frozen=True)
class ChoicesScore:
    """Rows as a model answers them: `acc` by the log-probability of a choice, `acc_norm` by that a byte.

    `acc_token` is by that a token. `cut`: rows whose prompt did not fit the context whole.
    """

    rows: tuple[ScoredRow, ...]
    cut: int

    @property
    def acc(self) -> Accuracy:
        """By the log-probability of the whole choice."""
        return Accuracy.of([scored.chosen() == scored.row.answer for scored in self.rows])

    @property
    def acc_norm(self) -> Accuracy:
        """By the log-probability a byte, so that a long choice is not the less likely for it."""
        return Accuracy.of([scored.chosen(scored.bytes) == scored.row.answer for scored in self.rows])

    @property
    def acc_token(self) -> Accuracy:
        """By the log-probability a token."""
        return Accuracy.of([scored.chosen(scored.tokens) == scored.row.answer for scored in self.rows])

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return sum(1 / len(scored.logprobs) for scored in self.rows) / len(self.rows)


class ChoiceEncoder:
    """Encodes rows for a model: each choice as the text that follows the prompt, or as an answer in a chat.

    As `lm-evaluation-harness` does it: the prompt's own ids, and behind them what those of prompt and choice together
    have more. In a text there is a blank between the two, unless there is one already.
    """

    def __init__(
        self, tokenizer: Tokenizer, metadata: Mapping[str, object], chat_format: ChatFormat | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._chats = None if chat_format is None else ChatEncoder(tokenizer, metadata, chat_format)
        letter = tokenizer.encode("a", add_special_tokens=False).ids
        ids: list[int] = tokenizer.encode("a").ids
        starts = (at for at in range(len(ids)) if ids[at : at + len(letter)] == letter)
        self._begin = ids[: next(starts, 0)]  # what stands before a text; what ends one ends no choice
        first = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        self._before_nothing = [id_ for id_ in first if isinstance(id_, int)][:1]

    def encode(self, row: ChoiceRow, ctx: int) -> EncodedRow:
        """The ids of a row, in a context of so many tokens: a prompt that is too long loses its beginning."""
        encoded = self._chat(row) if self._chats is not None else self._text(row)
        if not encoded.prompt:
            raise LinnetError(f"{row.place} has an empty prompt, and the tokenizer no token to begin a text with")
        longest = max(map(len, encoded.choices))
        if longest > ctx:
            raise LinnetError(
                f"{row.place} has a choice of {longest:,} tokens, and the context is {ctx:,}: leave the row out"
            )
        room = ctx + 1 - longest  # the last token of a choice is predicted and never read
        if len(encoded.prompt) <= room:
            return encoded
        begin = encoded.prompt[: len(self._begin)] if len(self._begin) < room else ()
        kept = room - len(begin)
        return replace(encoded, prompt=begin + encoded.prompt[-kept:], is_cut=True)

    def _text(self, row: ChoiceRow) -> EncodedRow:
        text = row.text.rstrip()
        blanks = row.text[len(text) :]
        prompt = self._ids(text)
        choices = []
        for choice in row.choices:
            follows = blanks + choice if blanks or choice[:1].isspace() or not text else f" {choice}"
            choices.append(_behind(self._ids(text + follows), prompt) or self._ids(follows))
        begin = self._begin or ([] if prompt else self._before_nothing)
        return EncodedRow((*begin, *prompt), tuple(map(tuple, choices)))

    def _chat(self, row: ChoiceRow) -> EncodedRow:
        assert self._chats is not None
        question = Message("user", row.prompt)
        prompt: list[int] = self._chats.encode([question], answer=True).ids_N.tolist()
        choices = []
        for choice in row.choices:
            segments = self._chats.format.segments([question, Message("assistant", choice)])
            while not segments[-1].is_content:  # the end of the answer
                segments.pop()
            ids: list[int] = self._chats.encode_segments(segments).ids_N.tolist()
            choices.append(_behind(ids, prompt) or self._chats.encode_segments(segments[-1:]).ids_N.tolist())
        return EncodedRow(tuple(prompt), tuple(map(tuple, choices)))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _behind(ids: list[int], prompt: list[int]) -> list[int]:
    return ids[len(prompt) :]


def score_choices(
    model: LanguageModel,
    encoder: ChoiceEncoder,
    rows: Sequence[ChoiceRow],
    ctx: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ChoicesScore:
    """Score each choice of each row; `on_progress(rows done, rows)`."""
    encoded = [encoder.encode(row, ctx or model.config.ctx) for row in rows]
    logprobs = choice_logprobs(model, encoded, on_progress)
    scored = (
        ScoredRow(row, totals, tuple(map(len, ids.choices)))
        for row, totals, ids in zip(rows, logprobs, encoded, strict=True)
    )
    return ChoicesScore(tuple(scored), sum(ids.is_cut for ids in encoded))


@torch.inference_mode()
def choice_logprobs(
    model: LanguageModel, rows: Sequence[EncodedRow], on_progress: Callable[[int, int], None] | None = None
) -> list[tuple[float, ...]]:
    """The log-probability of each choice after its row's prompt, which is read once.

    Rows with prompts of one length are read together: nothing of them is padding.
    """
    totals: list[tuple[float, ...]] = [()] * len(rows)
    done = 0
    for numbers in _groups(rows):
        # Equal choices are scored once, so that none of them is the likelier by rounding.
        group = [EncodedRow(rows[n].prompt, tuple(dict.fromkeys(rows[n].choices))) for n in numbers]
        for number, row, logprobs in zip(numbers, group, _group_logprobs(model, group), strict=True):
            if not all(map(math.isfinite, logprobs)):
                raise LinnetError(
                    "the model's numbers are not finite, so it prefers nothing: its weights may have diverged in"
                    " training; try an earlier checkpoint"
                )
            of_choice = dict(zip(row.choices, logprobs, strict=True))
            totals[number] = tuple(of_choice[choice] for choice in rows[number].choices)
        done += len(numbers)
        if on_progress is not None:
            on_progress(done, len(rows))
    return totals


def _groups(rows: Sequence[EncodedRow]) -> Iterator[list[int]]:
    """The rows in groups of equally long prompts, as many as are held at once, those of alike choices together."""

    def size(number: int) -> int:
        return len(rows[number].choices) * (len(rows[number].prompt) + max(map(len, rows[number].choices)))

    order = sorted(range(len(rows)), key=lambda n: (len(rows[n].prompt), max(map(len, rows[n].choices))))
    group: list[int] = []
    for number in order:
        is_alike = not group or len(rows[group[0]].prompt) == len(rows[number].prompt)
        if group and not (is_alike and sum(map(size, group)) + size(number) <= _AT_ONCE):
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _group_logprobs(model: LanguageModel, rows: Sequence[EncodedRow]) -> list[tuple[float, ...]]:
    """Of rows whose prompts are equally long."""
    config, device = model.config, model.device
    prompt_RT = torch.tensor([row.prompt for row in rows], device=device)
    T = prompt_RT.shape[1]
    cache = KVCache(config, T, len(rows), device, model.compute_dtype)
    last_RD = model.hidden(prompt_RT, cache=cache)[:, -1]
    choices = [(number, choice) for number, row in enumerate(rows) for choice in row.choices]
    first_C = torch.tensor([choice[0] for _, choice in choices], device=device)
    owner_C = torch.tensor([number for number, _ in choices], device=device)
    logp_RV = model.logits(last_RD[None])[0].log_softmax(-1)
    total_C = logp_RV[owner_C, first_C].cpu().double()
    for part in _parts([len(choice) for _, choice in choices], T):
        total_C[part] += _rest_logprobs(model, cache, [choices[at] for at in part])
    totals = iter(total_C.tolist())
    return [tuple(next(totals) for _ in row.choices) for row in rows]


def _parts(lengths: Sequence[int], T: int) -> Iterator[list[int]]:
    """The choices of more than one token in batches of about one length, the longest first, behind T tokens each."""
    part: list[int] = []
    for at in sorted((at for at, length in enumerate(lengths) if length > 1), key=lambda at: -lengths[at]):
        if part:
            longest = lengths[part[0]]
            is_repaid = len(part) * longest >= _REPAYS and 4 * lengths[at] < 3 * longest
            if is_repaid or (len(part) + 1) * (T + longest) > _AT_ONCE:
                yield part
                part = []
        part.append(at)
    if part:
        yield part


def _rest_logprobs(model: LanguageModel, prompts: KVCache, choices: Sequence[tuple[int, tuple[int, ...]]]) -> Tensor:
    """[C]: the log-probability of all but the first token of choices, each behind the prompt of its number."""
    T, device = prompts.length, model.device
    longest = max(len(choice) for _, choice in choices) - 1
    owner_C = torch.tensor([number for number, _ in choices], device=device)
    cache = KVCache(model.config, T + longest, len(choices), device, model.compute_dtype)
    cache.k_LBKSD[..., :T, :] = prompts.k_LBKSD[:, owner_C]
    cache.v_LBKSD[..., :T, :] = prompts.v_LBKSD[:, owner_C]
    cache.rewind(T)
    # What is read behind the end of a shorter choice comes after all that is scored of it.
    ids_CT = torch.zeros(len(choices), longest + 1, dtype=torch.int64)
    for ids_T, (_, choice) in zip(ids_CT, choices, strict=True):
        ids_T[: len(choice)] = torch.tensor(choice)
    counts_C = torch.tensor([len(choice) - 1 for _, choice in choices])
    is_scored_CT = torch.arange(longest) < counts_C[:, None]
    targets_N = ids_CT[:, 1:][is_scored_CT].to(device)
    hidden_ND = model.hidden(ids_CT[:, :-1].to(device), cache=cache)[is_scored_CT.to(device)]
    logp_N = torch.cat(
        [
            model.logits(hidden_D[None])[0].log_softmax(-1).gather(1, targets_D[:, None])[:, 0]
            for hidden_D, targets_D in zip(
                hidden_ND.split(_LOGITS_AT_ONCE), targets_N.split(_LOGITS_AT_ONCE), strict=True
            )
        ]
    )
    choice_N = torch.arange(len(choices)).repeat_interleave(counts_C)
    return torch.zeros(len(choices), dtype=torch.float64).index_add_(0, choice_N, logp_N.cpu().double())
