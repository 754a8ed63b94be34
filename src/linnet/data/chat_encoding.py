"""A chat as token ids: those of each message, and which of them are trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet.data.conversations import from_json
from linnet.data.preferences import pair_from_json
from linnet.data.token_set import token_dtype
from linnet.data.tokenizer import Encoder, Vocabulary
from linnet.gguf.chat_families import special_tokens
from linnet.gguf.chat_format import ChatFormat, Message, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from linnet.data.corpus import RowKind

NO_MESSAGE = -1
# How often each id of the vocabulary is there among the values of a set: trained on and not; of preferences either in
# the conversation with the chosen answer and in that with the rejected one.
VALUES_OF_AN_ID: dict[RowKind, int] = {"text": 1, "conversations": 2, "preferences": 4}


def value_count(rows: int, kind: RowKind) -> int:
    """How many values the tokens of a set can have."""
    return rows * VALUES_OF_AN_ID[kind]


@dataclass(frozen=True)
class EncodedChat:
    """The ids of a chat; for each of them whether it is trained on, and the number of its message.

    What stands before the first message has the number -1.
    """

    ids_N: NDArray[Any]
    trained_N: NDArray[np.bool_]
    messages_N: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids_N)


class _Piece(NamedTuple):
    """A special token, or a text in which there is none to be read, of a segment."""

    text: str
    token: int | None
    segment: Segment


class ChatEncoder:
    """Encodes chats in a format, with the tokenizer of a GGUF and its metadata; `words` encodes the texts in it.

    Special tokens are read where the format writes them, and nowhere in a message: `<|im_end|>` in a question is text.
    Everything between two of them is encoded as one text, as other programs encode a chat that is written out; a token
    in which two segments meet belongs to that in which it begins.
    """

    def __init__(self, tokenizer: Tokenizer, metadata: Mapping[str, object], chat_format: ChatFormat) -> None:
        self.format, self.words = chat_format, Encoder(tokenizer, metadata)
        self._ids = {text: tokenizer.token_to_id(text) for text in special_tokens(metadata)}
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def encode(self, messages: Sequence[Message], *, answer: bool = False, think: bool = False) -> EncodedChat:
        """The ids of a chat; with `answer` up to where the model begins its next one."""
        return self.encode_segments(self.format.segments(messages, answer=answer, think=think))

    def encode_segments(self, segments: Sequence[Segment]) -> EncodedChat:
        """The ids of a chat that is written already."""
        ids, owners = [], list[Segment]()
        for is_token, group in groupby(self._cut(segments), key=lambda piece: piece.token is not None):
            pieces = list(group)
            if is_token:
                ids += [np.array([piece.token]) for piece in pieces]
            else:
                ids += self.words.encode_parts([piece.text for piece in pieces])
            owners += [piece.segment for piece in pieces]
        lengths = [len(array) for array in ids]
        messages = [NO_MESSAGE if segment.message is None else segment.message for segment in owners]
        return EncodedChat(
            np.concatenate([np.empty(0), *ids]).astype(self.words.dtype),
            np.repeat(np.array([segment.trained for segment in owners], np.bool_), lengths),
            np.repeat(np.array(messages, np.int32), lengths),
        )

    def _cut(self, segments: Sequence[Segment]) -> Iterator[_Piece]:
        for segment in segments:
            if segment.is_content:
                yield _Piece(segment.text, None, segment)
                continue
            at = 0
            for token in self._special.finditer(segment.text):
                if token.start() > at:
                    yield _Piece(segment.text[at : token.start()], None, segment)
                yield _Piece(token[0], self._ids[token[0]], segment)
                at = token.end()
            if at < len(segment.text):
                yield _Piece(segment.text[at:], None, segment)


class ConversationEncoder:
    """Encodes conversations that are lines of JSON, as `Encoder` does texts.

    A token that is trained on is its id plus the vocabulary's `rows`.
    """

    kind: RowKind = "conversations"

    def __init__(self, vocabulary: Vocabulary, chat_format: ChatFormat) -> None:
        self._chats = ChatEncoder(vocabulary.tokenizer, vocabulary.metadata, chat_format)
        self._rows, self.dtype = vocabulary.rows, token_dtype(value_count(vocabulary.rows, self.kind))

    @property
    def remark(self) -> str:
        """Why all is left to `tokenizers`, where it is."""
        return self._chats.words.remark

    def slow(self, why: str) -> None:
        """Leave all to `tokenizers` from here on."""
        self._chats.words.slow(why)

    def agrees(self, text: str) -> bool:
        """Whether the ids of a text are those that `tokenizers` gives."""
        return self._chats.words.agrees(text)

    def encode(self, text: str) -> bytes:
        """The ids of a conversation, as bytes of `dtype`."""
        return self._values(from_json(text)).tobytes()

    def _values(self, messages: Sequence[Message]) -> NDArray[Any]:
        encoded = self._chats.encode(messages)
        values_N = encoded.ids_N.astype(self.dtype)
        values_N[encoded.trained_N] += self._rows
        return values_N


class PreferenceEncoder(ConversationEncoder):
    """The same of pairs: the conversation with the chosen answer, then that with the rejected one.

    The tokens of the latter are twice the vocabulary's `rows` further up.
    """

    kind: RowKind = "preferences"

    def encode(self, text: str) -> bytes:
        """The ids of a pair, as bytes of `dtype`."""
        chosen, rejected = map(self._values, pair_from_json(text))
        rejected += 2 * self._rows
        return chosen.tobytes() + rejected.tobytes()
