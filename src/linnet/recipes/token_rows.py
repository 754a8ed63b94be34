"""Whose rows a new vocabulary begins with: a donor's tokens found again by their bytes, the rest from their pieces.

Tokens are compared by the bytes they stand for, not by their spelling in the file: byte-level BPE writes ` def` as
`Ġdef`, SentencePiece as `▁def`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.gguf.token_spelling import token_bytes
from linnet.gguf.tokenizer import NORMAL, USER_DEFINED, rebuild_tokenizer
from linnet.recipes.donor import DonorError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

# Names of the token that ends a text. A chat model's `eos` ends a turn, so these go first.
_ENDS_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>")
_NOISE = 0.1  # of the spread of the donor's rows
_LONGEST_PIECE = 64  # bytes that are compared at once where a token is no text


@dataclass(frozen=True)
class TokenRows:
    """For each row of the new table, the donor's rows it is the mean of.

    `of[first[i] : first[i + 1]]` are those of row i: one where the donor has the very token, several where it is
    made of pieces, none where the donor cannot spell it.
    """

    of: NDArray[np.int64]
    first: NDArray[np.int64]
    same: bool = False  # the tokenizers are the same: row i is row i

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many of the donor's rows make each new one."""
        return np.diff(self.first)

    @property
    def coverage(self) -> float:
        """The share of rows that have something of the donor's."""
        return float((self.counts > 0).mean())

    @property
    def own(self) -> int:
        """How many rows are the donor's as they are."""
        return int((self.counts == 1).sum())

    @property
    def means(self) -> int:
        """How many rows are means of the donor's."""
        return int((self.counts > 1).sum())

    @property
    def new(self) -> int:
        """How many rows have nothing of the donor's."""
        return int((self.counts == 0).sum())

    @property
    def words(self) -> str:
        """What became of the vocabulary, in words."""
        total = len(self.counts)
        if self.same:
            return f"all {total:,} rows by the donor's own tokenizer"
        sources = "".join(
            f", {number:,} {source}"
            for number, source in ((self.means, "from the mean of their pieces"), (self.new, "new"))
            if number
        )
        return f"{self.own:,} of {total:,} rows are tokens of the donor's ({self.own / total:.1%}){sources}"

    def take(self, table_VW: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
        """The new table, out of the donor's; rows without a source are drawn with the mean and spread of the others."""
        counts = self.counts
        if self.same:
            return table_VW[: len(counts)]
        out = np.empty((len(counts), table_VW.shape[1]), np.float32)
        new = np.flatnonzero(counts == 0)
        drawn = np.random.default_rng(seed).standard_normal((len(new), table_VW.shape[1]), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            out[new] = drawn * table_VW.std(0) + table_VW.mean(0)
            known = np.flatnonzero(counts)
            if len(known):
                sums = np.add.reduceat(table_VW[self.of], self.first[known], axis=0)
                out[known] = sums / counts[known, None]
            # Where the table is not trained, tokens of equal rows would stay one token.
            equal = self._equal()
            noise = np.random.default_rng([seed, 1]).standard_normal((len(equal), table_VW.shape[1]), np.float32)
            out[equal] += np.float32(_NOISE) * noise * table_VW.std(0)
        if not np.isfinite(out).all():
            raise DonorError(
                "the donor's rows are too large to take a mean of",
                place="tensor 'token_embd.weight'",
                expected="numbers whose squares are finite",
                found=f"up to {np.abs(table_VW).max():.3g}",
            )
        return out

    def _equal(self) -> list[int]:
        """Means that are the row of a token as it is, or another mean: `dd` of d and d, `fd` and `df`."""
        counts = self.counts
        matched: set[tuple[tuple[int, int], ...]]
        matched = {((number, 1),) for number in self.of[self.first[:-1][counts == 1]].tolist()}
        equal = []
        for row in np.flatnonzero(counts > 1).tolist():
            pieces, times = np.unique(self.of[self.first[row] : self.first[row + 1]], return_counts=True)
            shares = tuple(zip(pieces.tolist(), (times // np.gcd.reduce(times)).tolist(), strict=True))
            if shares in matched:
                equal.append(row)
            matched.add(shares)
        return equal


def same_rows(rows: int) -> TokenRows:
    """Row i is the donor's row i."""
    return TokenRows(np.arange(rows), np.arange(rows + 1), same=True)


def find_rows(donor: Mapping[str, Any], new: Mapping[str, Any], *, pieces: bool, path: object = None) -> TokenRows:
    """Find the tokens of `new` in `donor` (both the `tokenizer.*` keys of a file).

    Without `pieces` a token that the donor does not have is new; with them it is the mean of what the donor's
    tokenizer makes of its text.
    """
    if tuple(donor.get("tokenizer.ggml.tokens", ())) == tuple(new["tokenizer.ggml.tokens"]):
        return same_rows(len(new["tokenizer.ggml.tokens"]))
    if "tokenizer.ggml.tokens" not in donor:
        raise DonorError(
            "the donor has no vocabulary to find tokens in",
            path=str(path),
            place="metadata 'tokenizer.ggml.tokens'",
            expected="the texts of its tokens",
            found="none",
        )
    theirs = token_bytes(donor)
    known: dict[bytes | str, int] = {}
    for number, text in enumerate(theirs):
        known.setdefault(text, number)
    for text in [text for text in known if isinstance(text, str)]:
        if _type(donor, known[text]) == USER_DEFINED:  # text that is always a token of its own
            known.setdefault(text.encode(), known[text])
    end = next((known[name] for name in _ENDS_OF_TEXT if name in known), donor.get("tokenizer.ggml.eos_token_id"))
    cut = _Cutter(rebuild_tokenizer(donor), theirs, known) if pieces else None
    of: list[int] = []
    first = [0]
    for number, text in enumerate(token_bytes(new)):
        if text and text in known:
            of.append(known[text])
        elif number == new.get("tokenizer.ggml.eos_token_id") and isinstance(end, int):
            of.append(end)  # what ends a text goes by many names
        elif cut is not None and isinstance(text, bytes):
            of += cut.pieces(text)
        first.append(len(of))
    rows = TokenRows(np.array(of, np.int64), np.array(first, np.int64))
    if not (rows.counts == 1).any():
        raise DonorError(
            "the donor and the corpus's tokenizer have no token in common",
            path=str(path),
            place="metadata 'tokenizer.ggml.tokens'",
            expected="some tokens of the same text",
            found=f"none among {len(known):,} and {len(rows.counts):,}",
        )
    return rows


class _Cutter:
    """The donor's pieces of a text, without its space at the front or its marks round a text."""

    def __init__(self, tokenizer: Tokenizer, spelt: Sequence[bytes | str], known: Mapping[bytes | str, int]) -> None:
        from tokenizers import normalizers

        if tokenizer.normalizer is not None:  # SentencePiece: the space at the front is not part of a token
            tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.encode_special_tokens = True
        self._tokenizer, self._spelt, self._known = tokenizer, spelt, known

    def pieces(self, text: bytes) -> list[int]:
        """Ids that spell all of `text`; none where the donor leaves out a part of it, or has it as unknown."""
        try:
            ids = list(self._tokenizer.encode(text.decode(), add_special_tokens=False).ids)
        except UnicodeDecodeError:  # a part of a letter, which is no text
            return self._longest(text)
        return ids if b"".join(_as_bytes(self._spelt[id_]) for id_ in ids) == text else self._longest(text)

    def _longest(self, text: bytes) -> list[int]:
        """The longest token that fits, again and again: bytes at least, where the donor has them all."""
        ids, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + _LONGEST_PIECE), start, -1)
            end = next((end for end in ends if text[start:end] in self._known), None)
            if end is None:
                return []
            ids.append(self._known[text[start:end]])
            start = end
        return ids


def _as_bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _type(tokenizer: Mapping[str, Any], number: int) -> int:
    types = tokenizer.get("tokenizer.ggml.token_type", ())
    return int(types[number]) if number < len(types) else NORMAL
