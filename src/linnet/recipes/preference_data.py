"""Pairs of a chosen and a rejected answer as the data of a run: packed blocks, held-out pairs to tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from linnet.data import Batches, Prepared
from linnet.data.batches import in_order
from linnet.data.preference_blocks import ROWS, PreferenceBlocks, require_pairs
from linnet.errors import UsageError
from linnet.models import LanguageModel
from linnet.recipes.conversation_data import ChatRunData, cut_sentences, packing_sentence
from linnet.recipes.job import Job, TextData
from linnet.recipes.lora import LoraOptions
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.preferences import PreferenceEvaluation, PreferenceLoss, evaluate_preferences
from linnet.train.protocols import EvalResult
from linnet.train.settings import TrainSettings
from linnet.train.text import rows_at_once

if TYPE_CHECKING:
    from linnet.data.corpus import RowKind

_ENOUGH = 32  # held-out pairs whose loss can be gone by


class PreferenceRunData(ChatRunData):
    """The pairs of a corpus, packed into blocks of two rows. `job` has what was found out of them."""

    _held_out: PreferenceBlocks
    loss_may_rise = True

    def __init__(self, job: Job, hardware: Hardware, prepared: Prepared) -> None:
        super().__init__(job, hardware, prepared)
        data, vocab = self._data, self._vocabulary.rows
        assert isinstance(job.options, LoraOptions)
        self._beta = job.options.reward_scale
        blocks = PreferenceBlocks(prepared.train, vocab, self.ctx)
        require_pairs(blocks, data.corpus)
        self._held_out = PreferenceBlocks(prepared.held_out, vocab, self.ctx)
        self._held_out.to(hardware.device)
        self._keep(job, blocks.facts.rows, rows="preferences")
        self.remarks = (
            packing_sentence(blocks.facts, "pair", self._chats.format.name, "their answers"),
            *cut_sentences(blocks.facts, "pair", "since one of the two answers begins"),
            *prepared.remarks,
            *_too_few_held_out(self._held_out.facts.conversations, data.held_out, self.settings),
        )
        self._batches = Batches(
            blocks, ctx=self.ctx, batch=self.rows_per_step // ROWS, seed=self.settings.seed, documents=True
        ).to(hardware.device)
        self._scoring: tuple[LanguageModel, PreferenceLoss] | None = None

    @property
    def step_metrics(self) -> tuple[str, ...]:
        """What a step gives."""
        return ("loss", "accuracy", "reward_margin", "reward_chosen", "reward_rejected")

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no pair is held out."""
        return self.step_metrics if self._held_out.count else ()

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step: the reference passes forwards as well."""
        assert isinstance(model, LanguageModel) and model.adapter is not None
        config = model.config
        attention = 4.0 * config.n_layers * config.n_heads * config.head_size * self.ctx
        return super().flops(model) + (2.0 * model.adapter.frozen_weights + attention) * self.per_step

    def scored(self, step: int) -> int:
        """Held-out pairs that are scored: those of about as many tokens as another training would score."""
        tokens, facts = self.settings.tokens_to_score(self.per_step), self._held_out.facts
        return min(facts.conversations, -(-tokens * facts.conversations // max(1, facts.tokens)))

    def evaluate(self, model: nn.Module, step: int) -> PreferenceEvaluation | None:
        """Tell the answers of the first held-out pairs apart."""
        assert isinstance(model, LanguageModel)
        if not self._held_out.count:
            return None
        if self._scoring is None or self._scoring[0] is not model:
            self._scoring = model, PreferenceLoss(model, self._beta)
        at_once = max(1, rows_at_once(self._device, self.ctx, ROWS * self._held_out.count) // ROWS)
        batches = in_order(self._held_out, at_once)
        return evaluate_preferences(self._scoring[1], batches, self.scored(step), self._scorers)

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event."""
        assert isinstance(result, PreferenceEvaluation)
        run.eval(step, "validation", samples=result.pairs, **result.figures)


def check_pairs(job: Job, rows: RowKind, ranks: int) -> None:
    """Refuse pairs where nothing learns from pairs, other rows where something does, and what does not go with them."""
    data = job.data
    assert isinstance(data, TextData)
    if rows != "preferences":
        if job.learns_preferences:
            found = "conversations" if rows == "conversations" else "text"
            raise UsageError(
                f"`loss=dpo` learns from pairs, and corpus {data.corpus} is {found}: give rows of prompt, chosen and"
                " rejected, or leave it out"
            )
        return
    if not job.learns_preferences:
        hint = "learn from them with `loss=dpo`"
        if job.recipe != "lora":
            hint += " in linnet train lora, whose adapter is switched off for the reference"
        raise UsageError(f"corpus {data.corpus} holds pairs of a chosen and a rejected answer: {hint}")
    if data.train_on == "all":
        raise UsageError("`train_on=all` does not go with `loss=dpo`, which compares answers: leave it out")
    batch = job.settings.batch
    if batch % ROWS:
        raise UsageError(
            f"`batch={batch}` parts pairs, whose two answers stand in rows beside each other: choose {batch + 1}"
        )
    at_once = batch * job.settings.accumulate(job.ctx)
    if at_once % (ROWS * ranks):
        raise UsageError(
            f"a batch of {at_once // ROWS} times two rows of pairs cannot be shared out to {ranks} ranks: the number of"
            " ranks must divide it (`batch`, `batch_tokens`)"
        )


def _too_few_held_out(pairs: int, share: float, settings: TrainSettings) -> list[str]:
    """A remark where what is kept apart is so little that its loss says little."""
    if not 0 < pairs < _ENOUGH or not settings.interval("eval"):
        return []
    cure = f"`held_out={max(0.1, 2 * share):g}` keeps more of them" if share < 0.25 else "more rows would help"
    return [f"only {pairs:,} pair{'s are' if pairs > 1 else ' is'} held out, and their loss says little: {cure}"]
