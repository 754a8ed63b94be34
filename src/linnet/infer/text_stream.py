"""`TextStream`: the text that follows a prompt, piece by piece as it comes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Literal

from linnet.errors import UsageError
from linnet.infer.generation import Memory, generate
from linnet.infer.stop_strings import StopStrings
from linnet.infer.stream_decoder import StreamDecoder
from linnet.infer.text_options import TextOptions

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from linnet.models import LanguageModel

StopReason = Literal["end", "stop", "max_tokens", "context"]


class TextStream:
    """Iterate over it for the pieces of the text; `text`, `tokens` and `stopped` say what came so far.

    - `tokens`: the ids as the model gave them, those of a stop string or of the text's end among them.
    - `stopped`: what ended it: the model (`end`), a `stop` string, `max_tokens` or the `context`; None until then.

    Wrong options are refused when it is made, not at the first piece. `memory`: what of the prompt was read before.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        prompt_tokens: list[int],
        options: TextOptions,
        ends: Collection[int] = (),
        memory: Memory | None = None,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.text = ""
        self.seconds = 0.0
        self.stopped: StopReason | None = None
        self._ends, self._max_tokens = frozenset(ends), options.max_tokens
        self._stops = StopStrings(options.stop)
        sampling = options.sampling()
        self._ids = generate(
            model, prompt_tokens, options.max_tokens, **sampling, seed=options.seed, stop=self._ends, memory=memory
        )
        self._decoder = StreamDecoder(tokenizer, prompt_tokens)

    @property
    def tokens(self) -> list[int]:
        """The ids so far."""
        return self._decoder.tokens

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.matched

    def __iter__(self) -> Iterator[str]:
        if self.stopped is not None or self.tokens:
            raise UsageError("this text has been generated already; its `text` is kept, and another stream can be made")
        return self._pieces()

    def _pieces(self) -> Iterator[str]:
        begun = time.perf_counter()
        for token in self._ids:
            if piece := self._take(self._stops.add(self._decoder.add(token))):
                yield piece
            if self._stops.matched is not None:
                break
        if self._stops.matched is None:
            rest = self._stops.add(self._decoder.finish())
            if piece := self._take(rest + self._stops.finish()):
                yield piece
        self.seconds = time.perf_counter() - begun
        self.stopped = self._reason()

    def _take(self, piece: str) -> str:
        self.text += piece
        return piece

    def _reason(self) -> StopReason:
        if self._stops.matched is not None:
            return "stop"
        if self.tokens and self.tokens[-1] in self._ends:
            return "end"
        return "max_tokens" if len(self.tokens) >= self._max_tokens else "context"
