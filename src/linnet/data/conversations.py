"""Rows that hold conversations, in the shapes that people keep them in, as messages.

A row is told by its keys: `messages` (role, content), `conversations` (from, value), or a question and an answer:
`prompt` and `completion`, `instruction`, `input` and `output`. Between reading and encoding a conversation is a line of
JSON, `[["user", "hi", true], …]`: what is hashed, compared with others and handed to worker processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec

from linnet.data.corpus_file import CorpusFile, ReadingReport
from linnet.data.rows import ANSWERS, JSON_KINDS, QUESTIONS, ROW_READERS
from linnet.gguf.chat_format import Message, Role

MESSAGE_KEYS = ("messages", "conversations", "conversation")
_MORE, _SYSTEM = ("input", "context"), ("system", "system_prompt")  # of a question; besides it
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatgpt"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
_SHOWN_KEYS = 8


class RowError(Exception):
    """A row that is not what it should be: the rest of a sentence that begins with its place."""


class NoAnswerError(RowError):
    """A row with nothing to train on. It is left out, and counted."""


@dataclass(frozen=True)
class Shape:
    """Where in a row its conversation is: under `messages`, or a question and its answer under two keys."""

    messages: str = ""
    question: str = ""
    answer: str = ""

    def __str__(self) -> str:
        return self.messages or f"{self.question} and {self.answer}"

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Shape | None:
        """The shape of a row by its keys; None where it holds no conversation. One that fits two is a RowError."""
        questions, answers = ([key for key in keys if fields.get(key) is not None] for keys in (QUESTIONS, ANSWERS))
        shapes = [cls(messages=key) for key in MESSAGE_KEYS if isinstance(fields.get(key), list)]
        shapes += [cls(question=question, answer=answer) for question in questions for answer in answers]
        if len(shapes) > 1:
            raise RowError(f"is of two kinds, {shapes[0]} as well as {shapes[1]}: keep one of them")
        return shapes[0] if shapes else None

    def read(self, fields: Mapping[str, Any]) -> list[Message]:
        """The messages of a row."""
        if self.messages:
            return [_message(value, number) for number, value in enumerate(fields[self.messages], 1)]
        answer = messages_under(fields, self.answer)
        return asked(fields, self.question) + ([Message("assistant", answer)] if isinstance(answer, str) else answer)


def conversation_texts(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The conversations of a file, each as a line of JSON. All of its rows have the shape of the first."""
    shape: Shape | None = None
    with closing(ROW_READERS[file.kind](file, report)) as rows:
        for place, fields in rows:
            try:
                shape_of_row = Shape.of(fields)
                if shape_of_row is None:
                    raise _no_conversation(fields)
                shape = shape or shape_of_row
                if shape_of_row != shape:
                    raise RowError(f"has {shape_of_row}, and the rows before it {shape}: keep one kind in a file")
                yield as_json(checked(shape.read(fields)))
            except NoAnswerError as error:
                report.leave_out_row(f"{place} {error}")
            except RowError as error:
                report.skip_row(file, f"{place} {error}")


def lacks_values(fields: Mapping[str, Any]) -> bool:
    """Has a row the keys of a conversation, and null where that should be?"""
    if any(key in fields and fields[key] is None for key in MESSAGE_KEYS):
        return True
    both = [[fields[key] for key in keys if key in fields] for keys in (QUESTIONS, ANSWERS)]
    return all(both) and any(all(value is None for value in values) for values in both)


def has_other_messages(fields: Mapping[str, Any]) -> bool:
    """Has a row something under the key of messages that is meant for them and no list: an object, JSON as a text?"""
    values = [fields[key] for key in MESSAGE_KEYS if key in fields]
    return any(isinstance(value, dict) or (isinstance(value, str) and value.lstrip()[:1] == "[") for value in values)


def _no_conversation(fields: Mapping[str, Any]) -> RowError:
    """Why a row holds no conversation."""
    for key in MESSAGE_KEYS:
        if (value := fields.get(key)) is not None:
            return RowError(f"has {JSON_KINDS.get(type(value), 'a text')} in {key}, expected a list of messages")
    if lacks_values(fields):
        if any(fields.get(key) is not None for key in ANSWERS):
            return RowError("has an answer, and null for its question")
        return NoAnswerError("has no answer to train on")
    keys = ", ".join(key[:40] for key in list(fields)[:_SHOWN_KEYS]) or "nothing"
    return RowError(f"holds no conversation; it has {keys}: expected messages, or prompt and completion")


def as_json(messages: Sequence[Message]) -> str:
    """A conversation as a line of JSON."""
    return msgspec.json.encode(messages).decode()


_DECODER = msgspec.json.Decoder(list[tuple[Role, str, bool]])


def from_json(line: str) -> list[Message]:
    """A conversation back from a line of JSON."""
    return [Message(*message) for message in _DECODER.decode(line)]


def checked(messages: Sequence[Message]) -> list[Message]:
    """The messages in their order, up to the last answer.

    A system message may come first; then questions and answers take turns.
    """
    expected: tuple[Role, ...] = ("system", "user")
    for number, message in enumerate(messages, 1):
        if message.role not in expected:
            before = f"after one of the {messages[number - 2].role}" if number > 1 else "at the beginning"
            raise RowError(
                f"has its roles out of order: message {number} is of the {message.role}, {before}, expected"
                f" {' or '.join(expected)}"
            )
        expected = ("assistant",) if message.role == "user" else ("user",)
    answers = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if not answers or not any(messages[number].trained for number in answers):
        raise NoAnswerError("has no answer to train on")
    if any(not messages[number].content.strip() for number in answers):
        raise NoAnswerError("has an empty answer")
    return list(messages[: answers[-1] + 1])


def asked(fields: Mapping[str, Any], question: str) -> list[Message]:
    """What comes before an answer: a system message, and the question under a key with what there is more of it."""
    system = next((fields[key] for key in _SYSTEM if fields.get(key)), None)
    further_input = next((fields[key] for key in _MORE if fields.get(key)), None)
    said = messages_under(fields, question)
    messages = [Message("system", _text(system, "system"))] if system is not None else []
    messages += [Message("user", said)] if isinstance(said, str) else said
    if further_input is not None:
        last = messages[-1]
        messages[-1] = last._replace(content=f"{last.content}\n\n{_text(further_input, 'input')}")
    return messages


def messages_under(fields: Mapping[str, Any], key: str) -> str | list[Message]:
    """A question or an answer: a text, or messages."""
    value = fields[key]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_message(one, number) for number, one in enumerate(value, 1)]
    return _text(value, key)


def _message(value: Any, number: int) -> Message:
    if not isinstance(value, dict):
        raise RowError(f"has a message {number} that is no object: expected a role and a content")
    said_by = value.get("role", value.get("from"))
    content = value.get("content", value.get("value"))
    if said_by is None:
        raise RowError(f"has a message {number} without a role")
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        raise RowError(
            f"has a message {number} of the role {str(said_by)[:40]!r}: expected system, user or assistant"
            " (calls of tools are not trained on)"
        )
    if content is None and (value.get("tool_calls") or value.get("function_call")):
        raise RowError(f"has a message {number} that calls a tool (calls of tools are not trained on)")
    weight = value.get("weight", 1)  # as in OpenAI's files for fine-tuning
    if weight not in (0, 1):
        raise RowError(f"has a message {number} with the weight {str(weight)[:40]}: expected 0 or 1")
    return Message(role, _text(content, f"message {number}"), bool(weight))


def _text(content: Any, where: str) -> str:
    """A content: a text, or a list of parts that are texts."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        if texts and all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
        raise RowError(f"has a list in {where}, expected text, or parts that are text")
    if not isinstance(content, str):
        raise RowError(f"has {JSON_KINDS.get(type(content), 'no text')} in {where}, expected text")
    return content
