"""`Chat`: a conversation with a model, in the format of its chats, that is remembered within its context."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import torch

from linnet.data.chat_encoding import ChatEncoder
from linnet.display import Shown, one_line
from linnet.errors import UsageError
from linnet.gguf.adapter import chat_format_beside
from linnet.gguf.chat_families import AUTO, chat_format_of
from linnet.gguf.chat_format import Message
from linnet.gguf.tokenizer import END_TEXTS, rebuild_tokenizer
from linnet.infer.generation import Memory
from linnet.infer.text_options import ChatOptions, checked_options, require_utf8
from linnet.infer.text_stream import StopReason, TextStream
from linnet.models import LanguageModel

if TYPE_CHECKING:
    from linnet.infer.loaded_model import LoadedModel

_LEAST_ANSWER = 0.25  # of the context, that is kept free for an answer which may be as long


class Chat(Shown):
    """A conversation with a model, made by `linnet.chat`.

    chat = linnet.chat("smollm2.gguf", system="Be brief.")
    chat.ask("What is 2 + 2?")
    for piece in (answer := chat.stream("And one more?")):
        print(piece, end="", flush=True)
    chat.messages, chat.save("chat.jsonl"), chat.reset()

    - `messages`: what was said, the system message first; `format`: how it is written.
    - Where it no longer fits the context, the oldest questions are forgotten with their answers.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        system: str | None = None,
        chat_format: str = AUTO,
        think: bool = False,
        **options: Any,
    ) -> None:
        self.model, self._think = model, think
        self._options = options
        self._language_model, metadata = _chatting(model)
        name = chat_format_beside(model.adapters) if chat_format == AUTO else chat_format
        self.format = chat_format_of(metadata, name)
        self._tokenizer = rebuild_tokenizer(metadata)  # one of its own: special tokens in a message are text
        self._encoder = ChatEncoder(self._tokenizer, metadata, self.format)
        texts = (self.format.end, *END_TEXTS)
        self._ends = {id_ for text in texts if (id_ := self._tokenizer.token_to_id(text)) is not None}
        self._memory = Memory()
        self.messages: list[Message] = []
        self.system = system
        self._options_of({})

    @property
    def system(self) -> str | None:
        """The system message; set, it counts from the next question on."""
        first = self.messages[0] if self.messages else None
        return first.content if first is not None and first.role == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        if text is not None:
            require_utf8(text, "the system message")
        said = [message for message in self.messages if message.role != "system"]
        self.messages = said if text is None else [Message("system", text), *said]

    def ask(self, question: str, /, **options: Any) -> str:
        """The answer to a question; `options` as `linnet chat` has them."""
        return "".join(self.stream(question, **options))

    def stream(self, question: str, /, **options: Any) -> Answer:
        """The same piece by piece. Question and answer are part of the conversation once it has been iterated over."""
        if not isinstance(question, str) or not question.strip():
            raise UsageError("the question is empty: give a text")
        require_utf8(question, "the question")
        chosen = self._options_of(options)
        if self.model.device.type == "cuda":  # each time: a text that was scored meanwhile was read in float32
            self._language_model.set_compute_dtype(torch.bfloat16)
        messages, dropped, ids = self.messages, 0, self._ids(self.messages, question)
        ctx = self._language_model.config.ctx
        room = min(chosen.max_tokens, int(_LEAST_ANSWER * ctx))
        first = 0 if self.system is None else 1
        while len(ids) + room > ctx and len(messages) > first:
            messages = [*messages[:first], *messages[first + 2 :]]
            dropped += 1
            ids = self._ids(messages, question)
        if len(ids) >= ctx:
            raise UsageError(
                f"the question has {len(ids):,} tokens as the chat is written, and the model's context {ctx:,}: shorten"
                f" it{'' if self.system is None else ' or the system message'}"
            )
        chosen = replace(chosen, seed=chosen.seed + sum(message.role == "assistant" for message in messages))
        stream = TextStream(self._language_model, self._tokenizer, ids, chosen, self._ends, self._memory)
        self.messages = messages  # not before: wrong options are refused by the stream, and nothing is forgotten then
        return Answer(self, question, stream, dropped)

    def reset(self) -> None:
        """Forget what was said, but for the system message."""
        self.messages = [message for message in self.messages if message.role == "system"]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Add the conversation to a JSONL file, as a row of `messages` that can be trained on."""
        if not any(message.role == "assistant" for message in self.messages):
            raise UsageError("nothing has been answered yet: there is no conversation to save")
        row = {"messages": [{"role": message.role, "content": message.content} for message in self.messages]}
        path = Path(path)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        return path

    def keep(self, question: str, answer: str) -> None:
        """Add a question and its answer to what was said."""
        self.messages = [*self.messages, Message("user", question), Message("assistant", answer)]

    def _ids(self, messages: Sequence[Message], question: str) -> list[int]:
        asked = [*messages, Message("user", question)]
        ids: list[int] = self._encoder.encode(asked, answer=True, think=self._think).ids_N.tolist()
        return ids

    def _options_of(self, options: Mapping[str, Any]) -> ChatOptions:
        return ChatOptions(**checked_options({**self._options, **options}, ChatOptions, "chat"))

    def __repr__(self) -> str:
        return one_line("Chat", self.model.name, self._facts().values())

    def _shown(self) -> tuple[str, dict[str, object]]:
        return self.model.name, self._facts()

    def _facts(self) -> dict[str, object]:
        answers = sum(message.role == "assistant" for message in self.messages)
        return {"format": self.format.name, "said": f"{answers} answer{'s'[: answers != 1]}"}


class Answer:
    """Iterate over it for the pieces of an answer; `text`, `tokens` and `stopped` say what came so far.

    - `stopped`: what ended it: the model (`end`), a `stop` string, `max_tokens`, the `context`; `interrupted` where it
      was no longer iterated over. What there is of it is then part of the conversation all the same.
    - `dropped`: how many of the oldest questions were forgotten for it.
    """

    def __init__(self, chat: Chat, question: str, stream: TextStream, dropped: int) -> None:
        self.question, self.dropped = question, dropped
        self._chat, self._stream = chat, stream
        self._is_interrupted = False

    @property
    def text(self) -> str:
        """What has come so far."""
        return self._stream.text

    @property
    def tokens(self) -> list[int]:
        """The ids so far."""
        return self._stream.tokens

    @property
    def seconds(self) -> float:
        """How long it took, once it has come to its end."""
        return self._stream.seconds

    @property
    def prompt_tokens(self) -> list[int]:
        """The ids of the whole chat, up to the answer."""
        return self._stream.prompt_tokens

    @property
    def stopped(self) -> StopReason | Literal["interrupted"] | None:
        """What ended it; None until then."""
        return "interrupted" if self._is_interrupted else self._stream.stopped

    def __iter__(self) -> Iterator[str]:
        pieces = iter(self._stream)  # refused a second time: the conversation has this answer already
        try:
            yield from pieces
        finally:
            self._is_interrupted = self._stream.stopped is None
            if self.text.strip():
                self._chat.keep(self.question, self.text)


def _chatting(model: LoadedModel) -> tuple[LanguageModel, Mapping[str, object]]:
    """The model of text with the keys of its vocabulary; one without them is an error."""
    if not isinstance(model.module, LanguageModel):
        raise UsageError(f"{model.path} classifies images and knows no text")
    _ = model.tokenizer  # one that cannot be rebuilt says so
    return model.module, model.vocabulary
