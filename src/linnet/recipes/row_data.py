"""The data of a program: rows of token ids from a `torch.utils.data` dataset, a list, a generator."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from linnet.data import NOT_SCORED, Batch, DataError
from linnet.data.order import shuffled
from linnet.data.tokenizer import Vocabulary
from linnet.infer import score_batches
from linnet.models import LanguageModel
from linnet.recipes.job import Job, RowData, vocabulary_size
from linnet.recipes.token_data import PROBE_TOKENS, TokenRunData
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.own_model import tokenizer_keys
from linnet.train.protocols import DataEndedError, EvalResult
from linnet.train.text import Evaluation

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from linnet.gguf import MetadataBlock


_SAMPLED = 8  # rows of a dataset that its fingerprint looks at


class RowRunData(TokenRunData):
    """Batches of a program's own rows.

    Rows of a map-style dataset come in an order that is a pure function of seed and step: resume goes on to the bit.
    Those of an iterable come as it gives them; to go on at step N the first N batches are passed over.
    """

    def __init__(self, job: Job, hardware: Hardware, progress: object = None, tokenizer: Path | None = None) -> None:
        super().__init__(job, hardware)
        assert isinstance(job.data, RowData) and job.rows is not None
        rows, vocab = job.rows, self._model.vocab
        self._tokenizer = RowTokenizer.of(rows.tokenizer, vocab) if rows.tokenizer is not None else None
        self._sampler = None if self._tokenizer is None else self._tokenizer.tokenizer
        self._vocab = vocab if self._tokenizer is None else self._tokenizer.rows
        self.description = f"data ({job.data.rows})"
        self.remarks: tuple[str, ...] = ()
        self.left_out: tuple[str, ...] = ()
        share = 0.0 if rows.eval_rows is not None else job.data.held_out
        self._source: MapRows | StreamRows = (
            MapRows(rows.rows, share, self.settings.seed) if is_map_style(rows.rows) else StreamRows(rows.rows)
        )
        count = self._source.count
        self.per_epoch = None if count is None else count * self.ctx  # a row counts as a whole context
        self.settings = self.settings.in_steps(self.per_step, self.per_epoch)
        self.job = replace(job, model=replace(self._model, vocab=self._vocab), settings=self.settings)
        self.fingerprint = self._source.fingerprint
        self._eval_rows: Iterable[Any] = self._source.held_out() if rows.eval_rows is None else rows.eval_rows

    @property
    def tokenizer(self) -> MetadataBlock | None:
        """The keys that checkpoints carry."""
        return None if self._tokenizer is None else self._tokenizer.keys

    @property
    def vocabulary(self) -> Mapping[str, object] | None:
        """The tokenizer to be read; only a GGUF's is."""
        return None if self._tokenizer is None else self._tokenizer.metadata

    @property
    def held_out_metrics(self) -> tuple[str, ...]:
        """What an evaluation gives; nothing where no rows are held out."""
        return ("loss", "ppl") if self._eval_batches else ()

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0."""
        batch = self._collate(self._source.take(index, self.rows_per_step))
        if self._ranks.alone:
            return batch
        return replace(batch, ids_BT=batch.ids_BT[self._share], targets_BT=batch.targets_BT[self._share])

    def scored(self, step: int) -> int:
        """The held-out tokens, as many as are asked for."""
        return sum(batch.n_targets for batch in self._eval_batches)

    def evaluate(self, model: nn.Module, step: int) -> Evaluation | None:
        """Score the held-out rows, always the same ones, by the model's own cross entropy."""
        assert isinstance(model, LanguageModel)
        if not self._eval_batches:
            return None
        return Evaluation.of(score_batches(model, self._eval_batches, ranks=self._scorers))

    def probe(self) -> torch.Tensor | None:
        """The first of the held-out rows with a target, without what it was filled up with."""
        if not self._eval_batches:
            return None
        batch = self._eval_batches[0]
        scored_BT = batch.targets_BT != NOT_SCORED
        row = int(scored_BT.any(1).int().argmax())
        filled = int(scored_BT[row].nonzero().max()) + 1
        return batch.ids_BT[row : row + 1, : min(filled, PROBE_TOKENS)]

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """One `eval` event."""
        assert isinstance(result, Evaluation)
        run.eval(step, "validation", loss=result.loss, ppl=result.ppl, samples=result.tokens)

    @cached_property
    def _eval_batches(self) -> list[Batch]:
        """The held-out rows as batches, as many as an evaluation scores."""
        batches, most = [], self.settings.tokens_to_score(self.per_step)
        rows = _flat(self._eval_rows)
        while most > 0 and (part := list(islice(rows, self.settings.batch))):
            batches.append(self._collate(part))
            most -= batches[-1].n_targets
        return batches

    def _collate(self, rows: Sequence[Any]) -> Batch:
        """Inputs and targets [B, ctx]; where a row is shorter, what is filled up is not scored."""
        ids_BT = np.zeros((len(rows), self.ctx), np.int64)
        targets_BT = np.full((len(rows), self.ctx), NOT_SCORED, np.int64)
        for number, row in enumerate(rows):
            ids, labels = _ids_and_labels(row)
            if not 2 <= len(ids) <= self.ctx + 1:
                raise DataError(
                    f"a row of the data has {len(ids)} tokens: expected 2 to {self.ctx + 1}, the model's ctx and the"
                    " token after it; cut the rows, or choose another ctx"
                )
            if ids.min() < 0 or ids.max() >= self._vocab:
                wrong = int(ids.min() if ids.min() < 0 else ids.max())
                raise DataError(f"a row of the data has the token {wrong}: expected 0 to {self._vocab - 1} (vocab)")
            ids_BT[number, : len(ids) - 1] = ids[:-1]
            targets_BT[number, : len(ids) - 1] = np.where(labels[1:] < 0, NOT_SCORED, labels[1:])
        n_targets = int((targets_BT != NOT_SCORED).sum())
        if n_targets == 0:
            raise DataError("a batch of the data has no token to predict: every label is negative")
        sent = [torch.from_numpy(array).to(self._device) for array in (ids_BT, targets_BT)]
        return Batch(sent[0], sent[1], None, n_targets)


@dataclass(frozen=True)
class RowTokenizer:
    """The tokenizer of rows: what samples are written with and checkpoints carry."""

    tokenizer: Tokenizer
    keys: MetadataBlock
    rows: int
    metadata: Mapping[str, object] | None

    @classmethod
    def of(cls, source: Any, vocab: int) -> RowTokenizer:
        """From the path of a GGUF, or from a tokenizer object, whose vocabulary may be smaller than `vocab`."""
        if isinstance(source, str | os.PathLike):
            vocabulary = Vocabulary(source)
            return cls(vocabulary.tokenizer, vocabulary.keys, vocabulary.rows, vocabulary.metadata)
        backend = getattr(source, "backend_tokenizer", source)
        rows = max(vocab, vocabulary_size(source) or 0)
        return cls(backend, tokenizer_keys(source, rows), rows, None)


class MapRows:
    """Rows of a map-style dataset (`len` and `[i]`), shuffled each epoch; `share` of them are held out."""

    def __init__(self, rows: Any, share: float, seed: int) -> None:
        self._rows, self._seed = rows, seed
        count = len(rows)
        if count < 1:
            raise DataError("the data has no rows")
        held_out = min(count - 1, max(1, round(share * count))) if share > 0 else 0
        order = shuffled(np.arange(count, dtype=np.uint64), count, 0)
        self._held_out, self._train = np.sort(order[:held_out]), np.sort(order[held_out:])

    @property
    def count(self) -> int:
        """Rows to train on."""
        return len(self._train)

    @property
    def fingerprint(self) -> str:
        """A hash of how many rows there are and of some of them."""
        digest = hashlib.blake2b(str(len(self._rows)).encode(), digest_size=8)
        for row in np.linspace(0, len(self._rows) - 1, _SAMPLED, dtype=np.int64).tolist():
            digest.update(_ids_and_labels(self._rows[row])[0].tobytes())
        return digest.hexdigest()

    def take(self, index: int, count: int) -> list[Any]:
        """The rows of batch `index`."""
        order = shuffled(np.arange(index * count, (index + 1) * count, dtype=np.uint64), len(self._train), self._seed)
        return [self._rows[int(self._train[row])] for row in order]

    def held_out(self) -> Iterator[Any]:
        """The rows that are not trained on."""
        return (self._rows[int(row)] for row in self._held_out)


class StreamRows:
    """Rows of an iterable, in its order; one that can be iterated again begins anew when it ends."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows
        self._iterator: Iterator[Any] | None = None
        self._position = 0  # rows taken so far

    @property
    def count(self) -> None:
        """Rows to train on: nobody knows."""

    @property
    def fingerprint(self) -> str:
        """Its kind: nothing more is known of an iterable before it is read."""
        return type(self._rows).__name__

    def take(self, index: int, count: int) -> list[Any]:
        """The rows of batch `index`; those before it are passed over where they were not asked for."""
        if self._iterator is None or self._position > index * count:
            self._iterator, self._position = self._endless(), 0
        for _ in islice(self._iterator, index * count - self._position):
            self._position += 1
        rows = list(islice(self._iterator, count))
        self._position += len(rows)
        if len(rows) < count:
            raise DataEndedError
        return rows

    def held_out(self) -> Iterator[Any]:
        """None: an iterable is trained on as it is."""
        return iter(())

    def _endless(self) -> Iterator[Any]:
        while True:
            epoch, has_rows = iter(self._rows), False
            for row in _flat(epoch):
                has_rows = True
                yield row
            if epoch is self._rows or not has_rows:  # a generator, or nothing: it does not begin again
                return


def is_map_style(rows: object) -> bool:
    """Can rows be asked for by number? As torch has it: an `IterableDataset` cannot, a `Dataset` with a length can."""
    if isinstance(rows, torch.utils.data.IterableDataset):
        return False
    return hasattr(rows, "__len__") and hasattr(rows, "__getitem__") and not isinstance(rows, Mapping)


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    """Rows; a batch of them, as a DataLoader gives it, is taken apart."""
    for item in items:
        ids = item.get("input_ids") if isinstance(item, Mapping) else item
        if ids is None or getattr(ids, "ndim", 1) != 2:
            yield item
        elif isinstance(item, Mapping):
            yield from ({name: values[row] for name, values in item.items()} for row in range(len(ids)))
        else:
            yield from ids


def _ids_and_labels(row: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token ids of a row, and what is to be predicted: the same, unless it has `labels`, as transformers has it."""
    try:
        if isinstance(row, Mapping):
            ids = np.asarray(row["input_ids"], np.int64)
            labels = np.asarray(row.get("labels", ids), np.int64)
        else:
            ids = labels = np.asarray(row, np.int64)
    except (TypeError, ValueError, KeyError):
        raise DataError(_expected(row)) from None
    if ids.ndim != 1 or labels.shape != ids.shape:
        raise DataError(_expected(row))
    return ids, labels


def _expected(row: object) -> str:
    return (
        "a row of the data is not understood: expected token ids (a list, an array, a tensor of one dimension) or a"
        f" mapping with input_ids, found a {type(row).__name__}"
    )
