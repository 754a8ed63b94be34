"""`LoadedModel`: a model with its tokenizer or its labels; text in and text out, images in and classes out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from linnet.architectures import task_of
from linnet.display import Shown, one_line
from linnet.errors import UsageError
from linnet.gguf.adapter import AdapterFile
from linnet.gguf.chat_families import as_turn
from linnet.gguf.errors import GGUFError
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import END_TEXTS, donor_keys, rebuild_tokenizer
from linnet.infer.classification import Guess, classify
from linnet.infer.scoring import score
from linnet.infer.text_options import TextOptions, checked_options, require_utf8
from linnet.infer.text_stream import TextStream
from linnet.models import LanguageModel, ViT
from linnet.models import load as load_weights
from linnet.models.model_files import ModelFiles, name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image
    from tokenizers import Tokenizer

    ImageLike = str | os.PathLike[str] | Image.Image | NDArray[Any]

_AT_ONCE = 32  # images that are classified together


@dataclass(frozen=True)
class TextScore:
    """How well a model predicts a text: `loss` in nats a token, `ppl`, and bits for each of its bytes.

    The text's first token is predicted from nothing, and not counted, where the tokenizer puts none before it.
    """

    loss: float
    ppl: float
    bits_per_byte: float
    tokens: int


def read_model(files: ModelFiles, device: torch.device) -> LoadedModel:
    """The model of a GGUF file, on a device, with the adapters that are merged into it."""
    with GGUFFile.open(files.model) as file:
        module = load_weights(file, device, adapters=files.adapters)
        tokenizer = _tokenizer(file) if isinstance(module, LanguageModel) else None
        vocabulary = {key: file.metadata[key] for key in donor_keys(file.metadata)}
    return LoadedModel(files.named, module, tokenizer, vocabulary, files.adapters)


def task_of_file(path: Path) -> str | None:
    """What the model of a GGUF file does, `text` or `images`, by its header alone; None where it is none of ours."""
    with GGUFFile.open(path) as file:
        return task_of(file.architecture)


class LoadedModel(Shown):
    """A model to be used, made by `linnet.load`. `module` is the `nn.Module`, `path` the file it was read from.

    - Of a language model: `generate`, `stream`, `score`, `encode`, `decode`; `tokenizer` is one of `tokenizers`, and
      `vocabulary` has the file's keys that it was made of.
    - Of a vision transformer: `classify`.
    """

    def __init__(
        self,
        path: Path,
        module: LanguageModel | ViT,
        tokenizer: Tokenizer | GGUFError | None,
        vocabulary: Mapping[str, object],
        adapters: Sequence[tuple[AdapterFile, float]] = (),
    ) -> None:
        self.path = path
        self.adapters = tuple(adapters)  # that are merged into its weights, each with its scale
        self.module = module
        self.vocabulary = vocabulary
        self._tokenizer = tokenizer

    @property
    def chat_template(self) -> str | None:
        """The file's template for chats, as text."""
        template = self.vocabulary.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    @property
    def task(self) -> str:
        """`text` or `images`."""
        return "images" if isinstance(self.module, ViT) else "text"

    @property
    def tokenizer(self) -> Tokenizer:
        """The file's own tokenizer."""
        if isinstance(self._tokenizer, GGUFError):
            raise self._tokenizer
        if self._tokenizer is None:
            raise UsageError(f"{self.path} classifies images and has no tokenizer: use `.classify(image)`")
        return self._tokenizer

    @property
    def config(self) -> Any:
        """The model's hyper-parameters."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.module.device

    # -- text ---------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with what the file says is put before or behind it."""
        require_utf8(text, "the text")
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        return str(self.tokenizer.decode([int(id_) for id_ in ids], skip_special_tokens=True))

    @overload
    def generate(self, prompt: str = "", /, *, samples: None = None, **options: Any) -> str: ...
    @overload
    def generate(self, prompt: str = "", /, *, samples: int, **options: Any) -> list[str]: ...
    def generate(self, prompt: str = "", /, *, samples: int | None = None, **options: Any) -> str | list[str]:
        """The text that follows a prompt; with `samples` a list of so many, of the seeds `seed`, `seed` + 1, …

        - `max_tokens` (128), `temperature` (0.8; 0: the likeliest), `top_k`, `top_p` (0.95), `min_p`,
          `repetition_penalty`, `seed` (0): as `linnet generate` has them.
        - `stop`: a text, or several, before which it ends.
        """
        first = TextOptions(**checked_options(options, TextOptions, "generate"))
        streams = [self.stream(prompt, seed=seed, **_without_seed(options)) for seed in seeds(first, samples)]
        texts = ["".join(stream) for stream in streams]
        if reason := self.why_silent(prompt, streams[0]):
            warnings.warn(f"{reason[0]}{'' if reason[1] is None else f': generate({reason[1]!r})'}", stacklevel=2)
        return texts[0] if samples is None else texts

    def stream(self, prompt: str = "", /, **options: Any) -> TextStream:
        """The same piece by piece: iterate over it, then read its `text`, `tokens` and `stopped`."""
        model, tokenizer = self._text_model(), self.tokenizer
        if not isinstance(prompt, str):
            raise UsageError(f"the prompt is {type(prompt).__name__}, expected text; for ids: linnet.infer.generate")
        if self.device.type == "cuda":
            model.set_compute_dtype(torch.bfloat16)
        ends = {id_ for text in END_TEXTS if (id_ := tokenizer.token_to_id(text)) is not None}
        return TextStream(
            model,
            tokenizer,
            self._prompt_ids(prompt),
            TextOptions(**checked_options(options, TextOptions, "generate")),
            ends,
        )

    def why_silent(self, prompt: str, stream: TextStream) -> tuple[str, str | None] | None:
        """Why a text that has come to its end is empty, and a prompt that may work better; None where it is not."""
        if stream.text or stream.stopped != "end":
            return None
        end = self.tokenizer.id_to_token(stream.tokens[-1])
        explanation = f"the model ended the text at once, with {end}"
        if self.chat_template is None:
            return (
                f"{explanation}: it sees nothing to go on with; try another `prompt`, or a higher `temperature`",
                None,
            )
        return (
            f"{explanation}: it was tuned for chats (see linnet chat), and answers a question that is written as its"
            " chat template has it",
            as_turn(prompt, self.chat_template),
        )

    def score(self, text: str, *, ctx: int | None = None) -> TextScore:
        """How well the model predicts a text of any length, in windows of `ctx` tokens; the model's own by default."""
        model = self._text_model()
        require_utf8(text, "the text")
        encoding = self.tokenizer.encode(text)
        if self.device.type == "cuda":
            model.set_compute_dtype(torch.float32)
        scored = score(model, encoding.ids, ctx=ctx)
        predicted = text[encoding.offsets[0][1] :]  # a token that the tokenizer puts first stands for no letter
        n_bytes = len(predicted.encode("utf-8", "surrogatepass"))
        bits = scored.bits_per_byte(n_bytes) if n_bytes else float("nan")
        return TextScore(scored.mean, scored.perplexity, bits, scored.tokens)

    def _text_model(self) -> LanguageModel:
        if not isinstance(self.module, LanguageModel):
            raise UsageError(f"{self.path} classifies images and knows no text: use `.classify(image)`")
        return self.module

    def _prompt_ids(self, prompt: str) -> list[int]:
        ids = self.encode(prompt)
        if ids:
            return ids
        first = self.vocabulary.get("tokenizer.ggml.bos_token_id")
        if not isinstance(first, int):
            raise UsageError(f"{self.path} names no token to begin a text with: give a `prompt`")
        return [first]

    # -- images -------------------------------------------------------------------------------------------------------

    @overload
    def classify(self, image: ImageLike, /, top: int = 3) -> list[Guess]: ...
    @overload
    def classify(self, image: list[ImageLike], /, top: int = 3) -> list[list[Guess]]: ...
    def classify(self, image: ImageLike | list[ImageLike], /, top: int = 3) -> list[Guess] | list[list[Guess]]:
        """The likeliest classes of an image, the likeliest first, as `Guess(label, probability)`.

        An image is a file, an image of Pillow, or an array: [H, W] or [H, W, channels] of bytes. Of a list of them the
        guesses come as a list.
        """
        if not isinstance(self.module, ViT):
            raise UsageError(f"{self.path} is a model of text and sees no images: use `.generate(text)`")
        if top < 1:
            raise UsageError(f"`top` must be 1 or more, found {top}")
        from linnet.data.image_files import image_pixels, read_image

        size, channels = self.module.config.image_size, self.module.config.num_channels

        def pixels(one: ImageLike) -> NDArray[np.uint8]:
            if isinstance(one, str | os.PathLike):
                return read_image(Path(one), size, channels)
            return image_pixels(one, size, channels)

        if not isinstance(image, list):
            return classify(self.module, np.ascontiguousarray(pixels(image)[None]), top)[0]
        guesses: list[list[Guess]] = []
        for start in range(0, len(image), _AT_ONCE):
            guesses += classify(self.module, np.stack([pixels(one) for one in image[start : start + _AT_ONCE]]), top)
        return guesses

    # -- what it shows ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return one_line("LoadedModel", self.name, self._facts().values())

    def _shown(self) -> tuple[str, dict[str, object]]:
        return self.name, {**self._facts(), "file": self.path}

    @property
    def name(self) -> str:
        """What it could be called by: `llama-20260531-001@480` of a run's checkpoint, else the file's name."""
        return name_of(self.path)

    def _facts(self) -> dict[str, object]:
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        config = self.config
        if isinstance(self.module, ViT):
            shape = f"{config.num_classes} classes, {config.image_size} px"
        else:
            shape = f"context {config.ctx:,}, vocabulary {config.vocab:,}"
        facts: dict[str, object] = {
            "architecture": config.arch,
            "parameters": f"{parameters:,} parameters",
            "shape": shape,
            "device": f"on {self.device}",
        }
        if self.adapters:
            named = (f"{file.name}{'' if scale == 1 else f' × {scale:g}'}" for file, scale in self.adapters)
            facts["adapters"] = f"with {', '.join(named)}"
        return facts


def seeds(options: TextOptions, samples: int | None) -> list[int]:
    """The seeds of so many samples: each can be had again by its own."""
    count = 1 if samples is None else samples
    if count < 1:
        raise UsageError(f"`samples` must be 1 or more, found {count}")
    if count > 1 and options.temperature == 0:
        raise UsageError(f"`temperature=0` gives the same text {count} times: leave out `samples`, or give another")
    return list(range(options.seed, options.seed + count))


def _without_seed(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "seed"}


def _tokenizer(file: GGUFFile) -> Tokenizer | GGUFError:
    """The tokenizer of a file; why there is none, for who asks for it."""
    try:
        return rebuild_tokenizer(file.metadata)
    except GGUFError as error:
        return error
