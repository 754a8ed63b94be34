"""A chat as token ids: those of each message, and which of them are trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet.data.tokenizer import Encoder
from linnet.gguf.chat_families import special_tokens
from linnet.gguf.chat_format import ChatFormat, Message, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

NO_MESSAGE = -1


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
    """Encodes chats in a format, with the tokenizer of a GGUF and its metadata.

    Special tokens are read where the format writes them, and nowhere in a message: `<|im_end|>` in a question is text.
    Everything between two of them is encoded as one text, as other programs encode a chat that is written out; a token
    in which two segments meet belongs to that in which it begins.
    """

    def __init__(self, tokenizer: Tokenizer, metadata: Mapping[str, object], chat_format: ChatFormat) -> None:
        self.format = chat_format
        self._encoder = Encoder(tokenizer, metadata)
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
                ids += self._encoder.encode_parts([piece.text for piece in pieces])
            owners += [piece.segment for piece in pieces]
        lengths = [len(array) for array in ids]
        messages = [NO_MESSAGE if segment.message is None else segment.message for segment in owners]
        return EncodedChat(
            np.concatenate([np.empty(0), *ids]).astype(self._encoder.dtype),
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
