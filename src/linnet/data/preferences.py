"""Rows of preferences: a prompt, the answer to it that was chosen and the one that was rejected.

A row is told by its keys `chosen` and `rejected`. Under each is a text or messages: the answer alone, which goes on
from `prompt`, or, as in most public sets, the whole conversation. A `Pair` is always two whole conversations; between
reading and encoding it is a line of JSON, as a conversation is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from linnet.data.conversations import (
    NoAnswerError,
    RowError,
    Shape,
    asked,
    checked,
    messages_under,
)
from linnet.data.corpus_file import CorpusFile, ReadingReport
from linnet.data.rows import QUESTIONS, ROW_READERS
from linnet.gguf.chat_format import Message, Role

CHOSEN, REJECTED = "chosen", "rejected"
_SHOWN_KEYS = 8


class Pair(NamedTuple):
    """Two conversations that begin alike and end in other answers, of which the first is the better one.

    What is the same in both is not trained on.
    """

    chosen: list[Message]
    rejected: list[Message]

    @property
    def shared(self) -> int:
        """Messages that are the same in both, from the beginning on."""
        pairs = zip(self.chosen, self.rejected, strict=False)
        return next(
            (number for number, (one, other) in enumerate(pairs) if one[:2] != other[:2]),
            min(len(self.chosen), len(self.rejected)),
        )


def holds_preference(fields: Mapping[str, Any]) -> bool:
    """Is a row one of a preference, complete or not? Public sets often have other columns beside it."""
    known = [key for key in (CHOSEN, REJECTED) if isinstance(fields.get(key), str | list | dict)]
    if len(known) != 1:
        return bool(known)
    try:
        return Shape.of(fields) is None
    except RowError:
        return False


def preference_texts(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The pairs of a file, each as a line of JSON."""
    with closing(ROW_READERS[file.kind](file, report)) as rows:
        for place, fields in rows:
            try:
                yield pair_as_json(read_pair(fields))
            except NoAnswerError as error:
                report.leave_out_row(f"{place} {error}")
            except RowError as error:
                report.skip_row(file, f"{place} {error}")


def read_pair(fields: Mapping[str, Any]) -> Pair:
    """The pair of a row. What is wrong with it is a RowError; one with nothing to compare a NoAnswerError."""
    missing = [key for key in (CHOSEN, REJECTED) if fields.get(key) is None]
    if len(missing) == 2:
        keys = ", ".join(key[:40] for key in list(fields)[:_SHOWN_KEYS]) or "nothing"
        raise RowError(f"holds no preference; it has {keys}: expected prompt, chosen and rejected")
    if missing:
        raise RowError(f"has no {missing[0]}: expected prompt, chosen and rejected")
    questions = [key for key in QUESTIONS if fields.get(key) is not None]
    if len(questions) > 1:
        raise RowError(f"has two prompts, {questions[0]} as well as {questions[1]}: keep one of them")
    before = asked(fields, questions[0]) if questions else []
    pair = Pair(*(_conversation(fields, key, before) for key in (CHOSEN, REJECTED)))
    shared = pair.shared
    if shared == len(pair.chosen) == len(pair.rejected):
        raise NoAnswerError("has the same answer as chosen and as rejected")
    if shared in (len(pair.chosen), len(pair.rejected)):
        raise NoAnswerError("has an answer that only begins the other one")
    if pair.chosen[shared].role != "assistant" or pair.rejected[shared].role != "assistant":
        raise RowError("has other questions before its chosen answer than before its rejected one: expected one prompt")
    pair = Pair(*([_trained_from(shared, *message) for message in enumerate(side)] for side in pair))
    if not all(any(message.trained for message in side) for side in pair):
        raise NoAnswerError("has no answer to train on")
    return pair


def pair_as_json(pair: Pair) -> str:
    """A pair as a line of JSON."""
    return msgspec.json.encode(pair).decode()


_DECODER = msgspec.json.Decoder(tuple[list[tuple[Role, str, bool]], list[tuple[Role, str, bool]]])


def pair_from_json(line: str) -> Pair:
    """A pair back from a line of JSON."""
    return Pair(*([Message(*message) for message in side] for side in _DECODER.decode(line)))


def _conversation(fields: Mapping[str, Any], key: str, before: list[Message]) -> list[Message]:
    """The whole conversation that ends with an answer."""
    try:
        answer = messages_under({key: [fields[key]]} if isinstance(fields[key], dict) else fields, key)
        if isinstance(answer, str):
            answer = [Message("assistant", answer)]
        if answer[0].role != "assistant":  # it begins at the beginning
            system = before[:1] if before and before[0].role == "system" and answer[0].role != "system" else []
            return checked([*system, *answer])
        if not before:
            raise RowError("has no prompt: expected prompt, chosen and rejected")
        return checked([*before, *answer])
    except NoAnswerError as error:
        raise NoAnswerError(f"{error} ({key})") from None
    except RowError as error:
        raise RowError(f"{error} ({key})") from None


def _trained_from(first: int, number: int, message: Message) -> Message:
    """A message that is trained on if it is an answer from number `first` on."""
    return message._replace(trained=message.trained and message.role == "assistant" and number >= first)
