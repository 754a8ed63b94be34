"""`ChatFormat`: how the messages of a chat are written for a model, segment by segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

ChatFormatName = Literal["chatml", "llama-3", "gemma", "phi-3", "zephyr", "llama-2", "mistral", "plain"]
Role = Literal["system", "user", "assistant"]
Trim = Literal["never", "message", "turn"]  # what loses the blanks at its ends: a content, or all that its turn holds

THOUGHTS_OPENING, THOUGHTS_END = "<think>\n", "</think>\n\n"
_NO_THOUGHTS = f"{THOUGHTS_OPENING}\n{THOUGHTS_END}"
_LINE_END = "\n"


class Message(NamedTuple):
    """One message of a chat; an answer that is not `trained` on is there to be read only."""

    role: Role
    content: str
    trained: bool = True


class Segment(NamedTuple):
    """A part of a chat as it is written.

    - `message`: the number of the message it belongs to; None: what stands before the first.
    - `is_content`: words of a message, in which no special token is read; else the format's own.
    - `trained`: said by the model: an answer, or the token that ends it.
    """

    text: str
    message: int | None
    is_content: bool
    trained: bool


class Turn(NamedTuple):
    """What stands before and behind a message of some role."""

    before: str
    after: str


_BEFORE_QUESTION = Turn("", "\n\n")


@dataclass(frozen=True)
class ChatFormat:
    """How the messages of a chat are written; `{bos}` and `{eos}` are filled in when it is recognised.

    - `system`: None where a system message stands in the first question, between the two texts `system_in_question`.
    - `end`: what ends an answer, and `answer_prefix` what begins it: the model says both.
    - `required`: special tokens that a vocabulary must have as tokens of their own.
    - `default_system`: the system message of a chat that has none; `system_prefix` begins every one.
    - `thinks`: an answer is preceded by thoughts, which may be empty, and those of earlier answers are left out.
      `thoughts_opening`: what the model is given of them, where it is to think.
    """

    name: ChatFormatName
    user: Turn
    assistant: Turn
    system: Turn | None
    end: str
    required: tuple[str, ...] = ()
    system_in_question: Turn = _BEFORE_QUESTION
    answer_prefix: str = ""
    begin: str = ""
    default_system: str | None = None
    system_prefix: str = ""
    trim: Trim = "never"
    thinks: bool = False
    thoughts_opening: str = ""

    def segments(self, messages: Sequence[Message], *, answer: bool = False, think: bool = False) -> list[Segment]:
        """A chat as it is written, in parts; with `answer` up to where the model begins its next one.

        `think`: of a model that does, let it begin with its thoughts instead of with the answer itself.
        """
        segments = [Segment(self.begin, None, False, False)]
        if not messages or messages[0].role != "system":
            segments.append(Segment(self._own_system, None, False, False))
        segments += self._written(messages, keeps_thoughts=None if answer else len(messages) - 1)
        if answer:
            opening = self.thoughts_opening if think else _NO_THOUGHTS if self.thinks else ""
            segments.append(Segment(self.assistant.before + opening, len(messages), False, False))
        return [segment for segment in segments if segment.text]

    def text(self, messages: Sequence[Message], *, answer: bool = False) -> str:
        """The same as a text, in which special tokens are spelled out."""
        return "".join(segment.text for segment in self.segments(messages, answer=answer))

    @property
    def _own_system(self) -> str:
        """What stands before a chat that has no system message."""
        if self.system is None or (self.default_system is None and not self.system_prefix):
            return ""
        return f"{self.system.before}{self.system_prefix}{self.default_system or ''}{self.system.after}"

    def _written(self, messages: Sequence[Message], keeps_thoughts: int | None) -> Iterator[Segment]:
        held: str | None = None  # a system message that is to stand in the first question
        for number, message in enumerate(messages):
            content = message.content if self.trim == "never" else message.content.strip()
            match message.role:
                case "system":
                    if self.system is None:
                        held = message.content
                        continue
                    yield Segment(self.system.before + self.system_prefix, number, False, False)
                    yield Segment(content, number, True, False)
                    yield Segment(self.system.after, number, False, False)
                case "user":
                    yield Segment(self.user.before, number, False, False)
                    if held is not None:
                        behind = self.system_in_question.after
                        if self.trim == "turn":
                            content = message.content.rstrip()
                            behind = behind if content else behind.rstrip()  # of a blank question nothing is left
                        yield Segment(self.system_in_question.before, number, False, False)
                        yield Segment(held, number, True, False)
                        yield Segment(behind, number, False, False)
                        held = None
                    yield Segment(content, number, True, False)
                    yield Segment(self.user.after, number, False, False)
                case "assistant":
                    yield from self._answer(content, number, message.trained, keeps=number == keeps_thoughts)

    def _answer(self, content: str, number: int, trained: bool, *, keeps: bool) -> Iterator[Segment]:
        opening = self.assistant.before
        if self.thinks:
            thoughts, content = _thoughts(content)
            if keeps and thoughts:
                content = f"<think>\n{thoughts}\n</think>\n\n{content.lstrip(_LINE_END)}"
            elif keeps:
                opening, content = opening + _NO_THOUGHTS, content.lstrip(_LINE_END)
        yield Segment(opening, number, False, False)
        yield Segment(self.answer_prefix + content, number, True, trained)
        before_end, end, rest = self.assistant.after.partition(self.end)
        yield Segment(before_end + end, number, False, trained)
        yield Segment(rest, number, False, False)

    @property
    def has_template(self) -> bool:
        """Can `chat_template` write one? Not where system messages stand in questions, and not of one that thinks."""
        return self.system is not None and not self.thinks

    def chat_template(self) -> str:
        """A Jinja template that writes the same, for other programs: for a vocabulary whose file has none.

        Only where `has_template`: the others come with their own.
        """
        assert self.system is not None and self.has_template
        content = "message['content']" if self.trim == "never" else "message['content'] | trim"
        lines = [_quoted(self.begin)] if self.begin else []
        if self._own_system:
            lines.append(f"{{% if messages[0]['role'] != 'system' %}}{_quoted(self._own_system)}{{% endif %}}")
        lines.append("{% for message in messages %}")
        system = Turn(self.system.before + self.system_prefix, self.system.after)
        answer = Turn(self.assistant.before + self.answer_prefix, self.assistant.after)
        for word, role, turn in (("if", "system", system), ("elif", "user", self.user), ("elif", "assistant", answer)):
            lines.append(f"{{% {word} message['role'] == '{role}' %}}")
            lines.append(f"{_quoted(turn.before)}{{{{ {content} }}}}{_quoted(turn.after)}")
        opening = _quoted(self.assistant.before)
        lines.append(f"{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{opening}{{% endif %}}")
        return "".join(lines)


def _thoughts(content: str) -> tuple[str, str]:
    """The thoughts of an answer, and what follows them; without any an empty text, and the answer as it is."""
    before, mark, _ = content.partition("</think>")
    if not mark:
        return "", content
    thoughts = before.rstrip(_LINE_END).rpartition("<think>")[2]
    return thoughts.strip(_LINE_END), content.rpartition("</think>")[2].lstrip(_LINE_END)


def _quoted(text: str) -> str:
    """A text as an expression of Jinja; nothing for none."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"{{{{ '{escaped}' }}}}" if text else ""
