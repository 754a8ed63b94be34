"""The tokenizer of a corpus: trained on it, or taken from a GGUF as it stands.

Either way it is kept as a GGUF without tensors and read back from there, so a corpus prepared just now and one found
in the cache use the very same tokenizer, and the one in a checkpoint is a copy of its bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.data.documents import END_OF_TEXT
from linnet.data.errors import DataError
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tokenizer import donor_keys, rebuild_tokenizer
from linnet.gguf.tokenizer_write import tokenizer_block, train_tokenizer
from linnet.gguf.values import ValueType
from linnet.gguf.writer import GGUFWriter

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.gguf.values import Value


class Vocabulary:
    """A tokenizer with all that goes with it, read from a GGUF (a model, or one of ours without tensors).

    A file that is open already stays open.
    """

    def __init__(self, source: str | os.PathLike[str] | GGUFFile) -> None:
        path = source.path if isinstance(source, GGUFFile) else source
        with nullcontext(source) if isinstance(source, GGUFFile) else GGUFFile.open(source) as file:
            keys = donor_keys(file.metadata)
            if "tokenizer.ggml.tokens" not in keys:
                raise DataError(f"tokenizer {os.fspath(path)}: this GGUF has no vocabulary inside")
            self.metadata: dict[str, Value] = {key: file.metadata[key] for key in keys}
            self.keys = MetadataBlock().copy(file.metadata, keys)
            self.rows: int = file.metadata.length("tokenizer.ggml.tokens")
        self.tokenizer: Tokenizer = rebuild_tokenizer(self.metadata)
        self.fingerprint = hashlib.blake2b(self.keys.to_bytes(), digest_size=16).hexdigest()
        self.end = self._end(path)

    def save(self, path: Path) -> None:
        """Write a GGUF that holds this tokenizer and nothing else."""
        _save(self.keys, path)

    def _end(self, path: str | os.PathLike[str]) -> int:
        """The token between documents. A chat model's `eos` ends a turn, so the token of that name goes first."""
        found: object = self.tokenizer.token_to_id(END_OF_TEXT)
        if found is None:
            found = self.metadata.get("tokenizer.ggml.eos_token_id")
        if not isinstance(found, int) or not 0 <= found < self.rows:
            raise DataError(f"tokenizer {os.fspath(path)}: it has no end-of-text token to put between documents")
        return found


def train_vocabulary(texts: Iterable[str], size: int, pre: str, path: Path) -> None:
    """Train a byte-level BPE of exactly `size` tokens and write it to `path`."""
    tokenizer = train_tokenizer(texts, size, pre=pre, special=(END_OF_TEXT,))
    reached = tokenizer.get_vocab_size(with_added_tokens=True)
    if reached < size:
        raise DataError(
            f"a vocabulary of {size:,} tokens is more than this corpus can give: it gives {reached:,};"
            f" take more text or --vocab {reached}"
        )
    block = MetadataBlock()
    for key, (kind, value) in tokenizer_block(tokenizer, eos=END_OF_TEXT).items():
        if kind.startswith("array:"):
            assert isinstance(value, list)
            block.add_array(key, _KINDS[kind.removeprefix("array:")], value)
        else:
            assert isinstance(value, (bool, int, float, str))
            block.add(key, _KINDS[kind], value)
    _save(block, path)


_KINDS = {kind.label: kind for kind in ValueType}


def _save(keys: MetadataBlock, path: Path) -> None:
    named = MetadataBlock().text("general.architecture", "none").text("general.type", "vocab")
    GGUFWriter(named.extend(keys)).write(path)
