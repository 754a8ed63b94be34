"""The tokenizer that goes with rows of token ids: a GGUF's, or an object of `tokenizers` or `transformers`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.data.tokenizer import Vocabulary
from linnet.train.own_model import tokenizer_keys

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf import MetadataBlock


@dataclass(frozen=True)
class RowTokenizer:
    """What samples are written with and checkpoints carry."""

    tokenizer: Tokenizer
    keys: MetadataBlock
    rows: int
    metadata: Mapping[str, object] | None

    @classmethod
    def of(cls, source: Any, vocab: int) -> RowTokenizer:
        """From the path of a GGUF, or from a tokenizer object, whose vocabulary may be smaller than `vocab`."""
        if isinstance(source, str | os.PathLike):
            read = Vocabulary(source)
            return cls(read.tokenizer, read.keys, read.rows, read.metadata)
        backend = getattr(source, "backend_tokenizer", source)
        rows = max(vocab, vocabulary_size(source) or 0)
        return cls(backend, tokenizer_keys(source, rows), rows, None)


def vocabulary_size(source: Any) -> int | None:
    """How many tokens a tokenizer object has; None where it is none."""
    backend = getattr(source, "backend_tokenizer", source)
    size = getattr(backend, "get_vocab_size", None)
    return None if size is None else int(size(with_added_tokens=True))
