"""`Decoder`: one token after another, each step the same work on the same memory, so that it can be captured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor

from linnet.kernels import DecodeWeights, Graph, Recording, decode_weights
from linnet.models.cache import KVCache
from linnet.models.language_model import LanguageModel

_Work = Callable[..., tuple[Tensor, ...]]

_WORTH_IT = 16  # tokens from which the weights are prepared for decoding: it costs about as much as a few tokens


class Decoder:
    """A model and the text it has seen so far. On CUDA a step is a graph, on a CPU it is recorded.

    A capture is good as long as the cache shows the same number of slots; then the next one is made.
    """

    def __init__(self, model: LanguageModel, slots: int) -> None:
        self._device = model.device.type
        self._cache = KVCache(model.config, slots, device=model.device, dtype=model.compute_dtype)
        prepared = decode_weights(model) if slots >= _WORTH_IT and self._device != "mps" else None
        self._pass = _Pass(model, self._cache, prepared)
        self._captured: tuple[int, _Work] = (0, self._pass.step)

    def read(self, ids_1T: Tensor) -> Tensor:
        """[V]: the logits after these tokens, which come after those seen before."""
        return self._pass.read(ids_1T)

    def next(self, token: Tensor) -> tuple[Tensor, Tensor]:
        """[V]: the logits after one token more, and the likeliest. Both are overwritten by the next call.

        Something has been read before, in the same thread.
        """
        assert self._cache.length, "a capture is no time for libraries to be loaded: read a prompt first"
        visible = self._cache.visible(1)
        if visible != self._captured[0]:
            self._captured = visible, self._capture()
        length = self._cache.length
        logits_V, likeliest = self._captured[1](token.view(1, 1))
        if self._cache.length == length:  # a replay moves the position on the device only
            self._cache.length += 1
        return logits_V, likeliest

    def _capture(self) -> _Work:
        step = self._pass.step
        if self._device == "cuda":
            return Graph(step, plain_calls=0)  # the prompt has been read: libraries are loaded
        return Recording(step, plain_calls=0) if self._device == "cpu" else step


@dataclass(frozen=True)
class _Pass:
    """What is captured. It does not know the decoder, which holds the capture.

    In a circle they would wait for Python's collector, which is off while a model is trained (`train.loop`), and every
    sample would leave a copy of the weights behind.
    """

    model: LanguageModel
    cache: KVCache
    weights: DecodeWeights | None

    def read(self, ids_1T: Tensor) -> Tensor:
        return self.model.logits(self.model.hidden(ids_1T, cache=self.cache)[:, -1:])[0, 0]

    def step(self, token_11: Tensor) -> tuple[Tensor, Tensor]:
        with self.weights.used_by(self.model) if self.weights is not None else nullcontext():
            logits_V = self.read(token_11)
        return logits_V, logits_V.argmax()
