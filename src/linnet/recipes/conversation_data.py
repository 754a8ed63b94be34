"""Conversations as the data of a run: packed rows, a loss on the answers, held-out questions to answer.

What pairs of them have in common with them is in `ChatRunData`; the rest of theirs in `preference_data.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from linnet.data import Batch, Batches, Prepared
from linnet.data.batches import Blocks, in_order
from linnet.data.chat_encoding import ChatEncoder
from linnet.data.conversation_blocks import ConversationBlocks, PackingFacts, require_rows
from linnet.gguf.chat_families import AUTO, chat_format_of
from linnet.gguf.chat_format import Message
from linnet.infer import score_batches
from linnet.models import LanguageModel
from linnet.recipes.job import DEFAULT_PROMPTS, Job, TextData
from linnet.recipes.token_data import PROBE_TOKENS, TokenRunData, too_few_held_out
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.protocols import EvalResult
from linnet.train.text import Evaluation, continue_ids, rows_at_once

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SHORT = 200  # letters of a question that a sample answers


class ChatRunData(TokenRunData):
    """What conversations and pairs of them share. A class of theirs sets `_held_out` and `_batches`."""

    _held_out: Blocks
    _batches: Batches
    remarks: tuple[str, ...]

    def __init__(self, job: Job, hardware: Hardware, prepared: Prepared) -> None:
        super().__init__(job, hardware)
        assert isinstance(job.data, TextData) and prepared.vocabulary is not None
        self._prepared, self._vocabulary, self._data = prepared, prepared.vocabulary, job.data
        metadata = prepared.vocabulary.metadata
        chat_format = chat_format_of(metadata, job.data.chat_format or AUTO)
        self._chats = ChatEncoder(prepared.vocabulary.tokenizer, metadata, chat_format)
        self.description = f"corpus {job.data.corpus!r}"
        self.fingerprint = prepared.fingerprint
        self.left_out = (*prepared.left_out, *prepared.dropped)
        self.tokenizer, self._sampler = prepared.tokenizer_keys, prepared.tokenizer

    def _keep(self, job: Job, count: int, **found: Any) -> None:
        """Know the job with what was found out of the data: the `count` of its rows, and fields of `TextData`."""
        self.per_epoch = count * self.ctx
        self.settings = self.settings.in_steps(self.per_step, self.per_epoch)
        kept = replace(self._data, chat_format=self._chats.format.name, documents=True, **found)
        model = replace(self._model, vocab=self._prepared.vocab)
        prompts = self._questions() if job.prompts == DEFAULT_PROMPTS else job.prompts
        self.job = replace(job, model=model, data=kept, settings=self.settings, prompts=prompts)

    @property
    def vocabulary(self) -> dict[str, object]:
        """The keys of its tokenizer."""
        return dict(self._vocabulary.metadata)

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0."""
        batch = self._batches.at(index, self._ranks.rank, self._ranks.count)
        return batch if self._ranks.alone else replace(batch, n_targets=self._batches.n_targets(index))

    def probe(self) -> torch.Tensor | None:
        """The first of the held-out rows."""
        if not self._held_out.count:
            return None
        return next(in_order(self._held_out, 1)).ids_BT[:1, :PROBE_TOKENS]

    def _written_after(self, prompt: str, model: LanguageModel, tokenizer: Tokenizer) -> str:
        """The model's answer to a prompt, on a line of its own."""
        asked = self._chats.encode([Message("user", prompt)], answer=True).ids_N.tolist()
        if len(asked) >= self.ctx:
            return "\n"  # no room for an answer
        end = tokenizer.token_to_id(self._chats.format.end)
        answer = continue_ids(model, tokenizer, asked, self.settings.sample_tokens, () if end is None else (end,))
        return f"\n{answer}"

    def _questions(self) -> tuple[str, ...]:
        """A held-out question that is short enough to be read."""
        written, tokens = self._chats.format, self._prepared.held_out
        for number in range(len(tokens.documents) - 1):
            ids = np.asarray(tokens.document(number)) % self._prepared.vocab
            text = self._chats.words.tokenizer.decode(ids.tolist(), skip_special_tokens=False)
            question = text.partition(written.user.before)[2].partition(written.user.after)[0].strip()
            if 0 < len(question) <= _SHORT:
                return (question,)
        return ()


class ConversationRunData(ChatRunData):
    """The conversations of a corpus, packed into rows. `job` has what was found out of them."""

    _held_out: ConversationBlocks

    def __init__(self, job: Job, hardware: Hardware, prepared: Prepared) -> None:
        super().__init__(job, hardware, prepared)
        data, vocab = self._data, self._vocabulary.rows
        train_on = data.train_on or "answers"
        blocks = ConversationBlocks(prepared.train, vocab, self.ctx, train_on)
        require_rows(blocks, data.corpus)
        self._held_out = ConversationBlocks(prepared.held_out, vocab, self.ctx, train_on)
        self._held_out.to(hardware.device)
        self._keep(job, blocks.facts.rows, rows="conversations", train_on=train_on)
        what = "everything in them" if train_on == "all" else "their answers"
        self.remarks = (
            packing_sentence(blocks.facts, "conversation", self._chats.format.name, what),
            *cut_sentences(blocks.facts, "conversation"),
            *prepared.remarks,
            *too_few_held_out(self._held_out.facts.trained, data.held_out, self.settings),
        )
        self._batches = Batches(
            blocks, ctx=self.ctx, batch=self.rows_per_step, seed=self.settings.seed, documents=True
        ).to(hardware.device)

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no conversation is held out."""
        return ("loss", "ppl") if self._held_out.count else ()

    def scored(self, step: int) -> int:
        """Held-out tokens that are scored."""
        return min(self.settings.tokens_to_score(self.per_step), self._held_out.facts.trained)

    def evaluate(self, model: nn.Module, step: int) -> Evaluation | None:
        """Score what the first rows of held-out conversations are trained to say."""
        assert isinstance(model, LanguageModel)
        if not self._held_out.count:
            return None
        rows = rows_at_once(self._device, self.ctx, self._held_out.count)
        most = self.settings.tokens_to_score(self.per_step)
        return Evaluation.of(score_batches(model, in_order(self._held_out, rows), most, ranks=self._scorers))

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event."""
        assert isinstance(result, Evaluation)
        run.eval(step, "validation", loss=result.loss, ppl=result.ppl, samples=result.tokens)


def packing_sentence(facts: PackingFacts, noun: str, chat_format: str, what: str) -> str:
    """What the rows of a training are, in a line. `noun`: what is packed; `what` of it is trained on."""
    return (
        f"{facts.conversations:,} {noun}{'s'[: facts.conversations != 1]}, written as {chat_format}, in {facts.rows:,}"
        f" row{'s'[: facts.rows != 1]} of {facts.ctx:,}"
        f" tokens ({facts.padding:.1%} padding); trained on {what}: {facts.trained:,} of {facts.tokens:,} tokens"
    )


def cut_sentences(facts: PackingFacts, noun: str, why_left_out: str = "since the first answer begins") -> list[str]:
    """What of the conversations does not fit a row."""
    sentences = []
    if facts.cut:
        sentences.append(
            f"{_count(facts.cut, noun)} longer than the context of {facts.ctx:,} tokens and cut there:"
            f" {facts.cut_tokens:,} tokens of answers are lost; a larger `ctx` keeps them"
        )
    if facts.left_out:
        sentences.append(
            f"{_count(facts.left_out, noun)} left out, {why_left_out} behind the context of {facts.ctx:,} tokens"
        )
    return sentences


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{' is' if number == 1 else 's are'}"
